//! Compares scrapes while options change: objects that both the old and the new options show stay, and each series has existed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::options::{BUILT_IN, Options};
use crate::kube::tests::history::cluster::{Cluster, Kind, Scope};

/// The time after which a shown object is certainly the present one of the cluster, and not a former one with its name.
const KNOWN: Duration = Duration::from_secs(60);

/// The families whose series are those that the cluster has noted. The other ones are not compared.
const NOTED: [&str; 4] = [
    "kube_configmap_metadata_resource_version{",
    "kube_node_spec_taint{",
    "kube_node_spec_unschedulable{",
    "kube_secret_type{",
];

/// The number of a kind (the custom one is the last) and the UID of an object.
type Key = (usize, String);

/// The objects and series of the last scrapes.
#[derive(Default)]
pub(super) struct Continuity {
    /// All options since the last scrape with no reload pending.
    options: Vec<Options>,
    /// The objects that each scrape since this time has shown.
    shown: BTreeMap<Key, Instant>,
    /// All series of the noted families that have existed.
    series: HashSet<String>,
    /// The number of states of each scope that are among them.
    considered: BTreeMap<Scope, usize>,
    /// The UID and state of the definition: objects of the custom kind may go when it changes.
    definition: Option<(String, u64)>,
}

impl Continuity {
    /// Notes the options of a reload.
    pub(super) fn reload(&mut self, options: &Options) {
        self.options.push(options.clone());
    }

    /// Notes another server, whose objects are other ones.
    pub(super) fn change_server(&mut self) {
        self.shown.clear();
        self.considered.clear();
    }

    /// Compares a scrape with the cluster and with the scrapes before. The last options may be in force by now.
    pub(super) fn check(
        &mut self,
        cluster: &Cluster,
        text: &str,
        is_in_force: bool,
    ) -> Result<(), String> {
        self.check_series(cluster, text)?;
        let definition = cluster.definition().map(|object| (object.uid.clone(), object.state));
        if definition != self.definition {
            self.definition = definition;
            self.shown.retain(|(number, _), _| *number < BUILT_IN.len());
        }
        let mut still: BTreeMap<Key, Instant> = BTreeMap::new();
        let built_in = BUILT_IN.map(|(kind, _, label)| (kind, format!("kube_{label}_"), label));
        let kinds = built_in.into_iter().chain([(Kind::Widget, "w".to_owned(), "object")]);
        for (number, (kind, families, label)) in kinds.enumerate() {
            let names = names(text, &families, label);
            for object in cluster.of_kind(kind) {
                let key = (number, object.uid.clone());
                let since = self.shown.get(&key).copied();
                if names.contains(&(object.scope.namespace, &*object.name)) {
                    still.insert(key, since.unwrap_or_else(Instant::now));
                    continue;
                }
                let is_known = since.is_some_and(|since| since.elapsed() >= KNOWN);
                if is_known && self.options.iter().all(|options| options.show(number, object)) {
                    let (scope, name) = (object.scope, &object.name);
                    return Err(format!("{name} of {scope:?} is gone: {:#?}", self.options));
                }
            }
        }
        self.shown = still;
        if is_in_force {
            self.options.drain(..self.options.len().saturating_sub(1));
        }
        Ok(())
    }

    /// Checks that each series of the noted families has existed, and that info metrics are 1.
    fn check_series(&mut self, cluster: &Cluster, text: &str) -> Result<(), String> {
        for (scope, snapshots) in &cluster.snapshots {
            let considered = self.considered.entry(*scope).or_default();
            let new = snapshots.get(*considered..).unwrap_or_default();
            let lines = new.iter().flat_map(|snapshot| snapshot.lines.iter());
            let is_noted = |line: &&String| NOTED.iter().any(|family| line.starts_with(family));
            self.series.extend(lines.filter(is_noted).cloned());
            *considered = snapshots.len();
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let is_noted = NOTED.iter().any(|family| line.starts_with(family));
            if is_noted && !self.series.contains(line) {
                return Err(format!("never existed: {line}"));
            }
            let is_info = BUILT_IN.iter().any(|(_, family, _)| line.starts_with(family));
            if is_info && !line.ends_with("} 1") {
                return Err(format!("an info metric has another value than 1: {line}"));
            }
        }
        Ok(())
    }
}

/// Returns namespaces and names of the objects that have series of families with this beginning.
fn names<'t>(text: &'t str, families: &str, label: &str) -> BTreeSet<(&'t str, &'t str)> {
    let of = |line: &'t str, label: &str| {
        let (_, rest) = line.split_once(&format!("{label}=\""))?;
        Some(rest.split_once('"')?.0)
    };
    let series = text.lines().filter(|line| line.starts_with(families));
    series
        .filter_map(|line| Some((of(line, "namespace").unwrap_or_default(), of(line, label)?)))
        .collect()
}
