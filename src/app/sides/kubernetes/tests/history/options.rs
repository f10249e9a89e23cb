//! The options of a history, which reloads change, and what a scrape shows with them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fastrand::Rng;

use crate::cli::config::{self, Config, Load};
use crate::cli::native::RunArgs;
use crate::kube::shard::Shard;
use crate::kube::tests::history::cluster::{Cluster, Kind, Object};

/// The built-in kinds that may be watched, each with the family that shows all of its objects and the label with their names.
pub(super) const BUILT_IN: [(Kind, &str, &str); 3] = [
    (Kind::ConfigMap, "kube_configmap_info", "configmap"),
    (Kind::Node, "kube_node_info", "node"),
    (Kind::Secret, "kube_secret_info", "secret"),
];
/// The families that options may leave out. Each object keeps one that names it.
const DENIED: [&str; 6] = [
    "kube_configmap_info",
    "kube_configmap_metadata_resource_version",
    "kube_node_created",
    "kube_node_info",
    "kube_secret_info",
    "kube_secret_type",
];
/// The namespaces that options may name; none are all of them.
const NAMESPACES: [&[&str]; 4] = [&[], &["east"], &["west"], &["east", "west"]];
/// The prefixes of the families of the custom kind.
const PREFIXES: [&str; 3] = ["w0", "w1", "w2"];
/// The last parts of their names. The second one is an info metric.
const FAMILIES: [&str; 2] = ["state", "about_info"];

/// Returns the names of all families that the custom kind may have.
pub(super) fn custom_names() -> Vec<String> {
    let of = |prefix: &&'static str| FAMILIES.map(|family| format!("{prefix}_{family}"));
    PREFIXES.iter().flat_map(of).collect()
}

/// An entry of the configuration of custom resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    prefix: &'static str,
    has_info: bool,
}

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The numbers of the [built-in](BUILT_IN) kinds.
    kinds: BTreeSet<usize>,
    /// A label that is allowed in addition to none.
    label: Option<u8>,
    shard: (i32, i64),
    namespaces: &'static [&'static str],
    denied: BTreeSet<&'static str>,
    /// The configuration of custom resources, if there is one, and its entry, if it has one.
    custom: Option<Option<Entry>>,
}

impl Options {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let mut kinds: BTreeSet<usize> = (0..BUILT_IN.len()).filter(|_| rng.bool()).collect();
        if kinds.is_empty() {
            kinds.insert(rng.usize(..BUILT_IN.len()));
        }
        let custom = (rng.u32(0..5) > 0).then(|| Entry::random(rng));
        let (namespaces, denied) = (NAMESPACES[0], BTreeSet::new());
        Self { kinds, label: None, shard: shard(rng), namespaces, denied, custom }
    }

    /// Changes what not all histories change.
    pub(super) fn vary(&mut self, rng: &mut Rng) {
        if rng.bool() {
            self.namespaces = NAMESPACES[rng.usize(..NAMESPACES.len())];
        }
        if rng.bool() {
            self.denied = DENIED.into_iter().filter(|_| rng.u32(0..4) == 0).collect();
        }
    }

    /// Returns true if they show an object of a built-in kind, or of the custom one.
    pub(super) fn show(&self, kind: usize, object: &Object) -> bool {
        let is_watched = match kind == BUILT_IN.len() {
            true => self.custom.flatten().is_some(),
            false => self.kinds.contains(&kind),
        };
        is_watched && self.select(object)
    }

    /// Returns true if an object is of their shard and namespaces.
    fn select(&self, object: &Object) -> bool {
        let (namespace, (index, total)) = (object.scope.namespace, self.shard);
        let is_named = self.namespaces.is_empty() || self.namespaces.contains(&namespace);
        (is_named || !object.scope.kind.namespaced())
            && Shard::new(index, total).keeps(object.uid.as_bytes())
    }

    /// Returns other options, some of which stay.
    pub(super) fn next(&self, rng: &mut Rng) -> Self {
        let mut next = self.clone();
        if rng.u32(0..3) == 0 {
            next.kinds = Self::random(rng).kinds;
        }
        if rng.u32(0..3) == 0 {
            next.label = rng.bool().then(|| rng.u8(0..3));
        }
        if rng.u32(0..4) == 0 {
            next.shard = shard(rng);
        }
        if rng.u32(0..3) > 0 {
            next.custom = Self::random(rng).custom;
        }
        next
    }

    /// Returns the configuration of a process.
    pub(super) fn config(&self) -> Config {
        let mut args = RunArgs::default();
        (args.listen, args.telemetry_listen) = (":1".to_owned(), ":2".to_owned());
        let kube = &mut args.kube.0;
        kube.resources.extend(self.kinds.iter().map(|kind| BUILT_IN[*kind].0.plural().to_owned()));
        (kube.shard, kube.total_shards) = self.shard;
        kube.namespaces.extend(self.namespaces.iter().map(|&name| name.to_owned()));
        kube.metric_denylist.extend(self.denied.iter().map(|name| format!("^{name}$")));
        kube.custom_resource_config = self.custom_text();
        if let Some(label) = self.label {
            let names = self.kinds.iter().map(|kind| BUILT_IN[*kind].0.plural());
            let lists: Vec<String> = names.map(|name| format!("{name}=[l{label}]")).collect();
            kube.labels_allowlist =
                crate::resources::select::selection::AllowLists::parse_flag(&lists.join(","))
                    .expect("lists");
        }
        config::kstatd(&args, Load::First, |_| true).unwrap_or_else(|error| panic!("{error}"))
    }

    fn custom_text(&self) -> String {
        let Some(entry) = self.custom else { return String::new() };
        let mut text = "kind: CustomResourceStateMetrics\nspec:\n  resources:\n".to_owned();
        let absent = "  - groupVersionKind: {group: absent.example.com, version: v1, kind: Absent}\n    metrics:\n    - {name: absent, help: Nothing., each: {type: Gauge, gauge: {path: [spec]}}}\n";
        if let Some(Entry { prefix, has_info }) = entry {
            let _ = write!(
                text,
                "  - groupVersionKind: {{group: example.com, version: v1, kind: Widget}}\n\
                 \x20   metricNamePrefix: {prefix}\n\
                 \x20   labelsFromPath: {{namespace: [metadata, namespace], object: [metadata, name]}}\n\
                 \x20   metrics:\n\
                 \x20   - {{name: state, help: A number., each: {{type: Gauge, gauge: {{path: [spec, state]}}}}}}\n"
            );
            if has_info {
                text += "    - {name: about_info, help: A label., each: {type: Info, info: {labelsFromPath: {state: [spec, state]}}}}\n";
            }
        }
        text + absent
    }

    /// Returns the kinds that are watched.
    pub(super) fn watched(&self) -> impl Iterator<Item = Kind> {
        self.kinds.iter().map(|number| BUILT_IN[*number].0).chain([Kind::Widget])
    }

    /// Returns the names of the custom resources that these options show.
    pub(super) fn custom_objects(&self, cluster: &Cluster) -> BTreeSet<String> {
        let is_shown = self.custom.flatten().is_some() && cluster.serves(Kind::Widget);
        let objects = cluster.of_kind(Kind::Widget).filter(|_| is_shown);
        let own = objects.filter(|object| self.select(object));
        own.map(|object| object.name.clone()).collect()
    }

    /// Compares a scrape with the objects of a cluster that has not changed for a while.
    pub(super) fn check(&self, cluster: &Cluster, text: &str) -> Result<(), String> {
        let is_own = |object: &&Object| self.select(object);
        for (number, (kind, family, label)) in BUILT_IN.into_iter().enumerate() {
            let is_watched = self.kinds.contains(&number) && !self.denied.contains(family);
            let objects = cluster.of_kind(kind).filter(is_own).filter(|_| is_watched);
            same(family, objects.map(name).collect(), shown(text, family, label))?;
        }
        let entry = self.custom.flatten().filter(|_| cluster.serves(Kind::Widget));
        for prefix in PREFIXES {
            for (number, family) in FAMILIES.into_iter().enumerate() {
                let is_there = entry
                    .is_some_and(|entry| entry.prefix == prefix && (number == 0 || entry.has_info));
                let objects = cluster.of_kind(Kind::Widget).filter(is_own).filter(|_| is_there);
                let family = format!("{prefix}_{family}");
                same(&family, objects.map(name).collect(), shown(text, &family, "object"))?;
            }
        }
        Ok(())
    }
}

impl Entry {
    fn random(rng: &mut Rng) -> Option<Self> {
        let (prefix, has_info) = (PREFIXES[rng.usize(..PREFIXES.len())], rng.bool());
        (rng.u32(0..6) > 0).then_some(Self { prefix, has_info })
    }
}

fn shard(rng: &mut Rng) -> (i32, i64) {
    let total = rng.u8(1..4);
    (rng.u8(..total).into(), total.into())
}

/// Returns namespace and name of an object.
fn name(object: &Object) -> (String, String) {
    (object.scope.namespace.to_owned(), object.name.clone())
}

/// Returns namespaces and names of the objects in a family, of which each has one series.
fn shown(text: &str, family: &str, label: &str) -> Vec<(String, String)> {
    let series = text.lines().filter_map(|line| line.strip_prefix(family)?.strip_prefix('{'));
    let of = |labels: &str, name: &str| {
        let (_, rest) = labels.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let names = series.map(|labels| {
        let namespace = of(labels, "namespace").unwrap_or_default();
        (namespace, of(labels, label).unwrap_or_default())
    });
    names.collect()
}

fn same(
    family: &str,
    mut expected: Vec<(String, String)>,
    mut shown: Vec<(String, String)>,
) -> Result<(), String> {
    expected.sort_unstable();
    shown.sort_unstable();
    match shown == expected {
        true => Ok(()),
        false => Err(format!("{family} has {shown:?}, not {expected:?}")),
    }
}
