//! Custom resources in a history: a configuration that is reloaded, and a definition that comes, changes and goes.
//!
//! Each entry of the configuration has a unique number, which is a label of its series. Unless it differs from the entry before
//! in this label alone, its families have other names, too. A scrape is therefore compared in two steps: its objects with the
//! states of the cluster, like those of any other kind, and its numbers with the configurations so far:
//!
//! - All families of an entry show the same objects: its `Count`, if it has one, has a label set for each of them. Some entries have
//!   nothing else, so that an object changes only what it counts for.
//! - The series of a scope are those of one entry, never of an older one than in an earlier scrape.
//! - A version that is configured and served is shown, with the present entry. One that is not has no series, and is not
//!   requested. Both hold from [`FOLLOWED`] after the last change, unless a fault excuses it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::checker::{Expectation, Violation};
use super::cluster::{BOOKMARK_INTERVAL, Kind, Scope, VERSIONS};
use super::server::Server;
use super::snapshot::Snapshot;
use crate::kube::WatchedResource;
use crate::kube::discovery::Discovery;
use crate::kube::value_errors::ValueErrorLog;
use crate::resources::custom::{load, resolve, resolve::ResolveOptions};
use crate::resources::select::filter::FamilyFilter;
use crate::telemetry::KubeMetrics;
use crate::tests::time_bound;

/// The time within which a change of the definition or the configuration is followed, without faults.
static FOLLOWED: LazyLock<Duration> =
    LazyLock::new(|| time_bound("a custom resource appears or disappears"));

/// The debounce time for definitions, as in the program.
const DEBOUNCE: Duration = Duration::from_millis(500);

/// An entry of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: u64,
    /// The number in the names of its families, that of the first entry with these names.
    prefix: u64,
    /// True if it shows the states of its objects.
    has_state: bool,
    /// True if it has a second family.
    has_info: bool,
    /// True if it counts its objects by their states, of which each object has another.
    has_count: bool,
    /// True if the first labels of each object order it otherwise than its name, in an order that changes.
    is_unsorted: bool,
}

/// Returns how often an entry with families of these names counts an object: its `Count` is one of objects, or one of their two parts.
fn times(prefix: u64) -> u64 {
    1 + prefix % 2
}

/// A kind and a namespace.
type KindInNamespace = (Kind, String);
/// The number of an entry, and true for its second family.
type EntryFamily = (u64, bool);

/// The expectations of one version.
struct Track {
    is_wanted: bool,
    entry: Option<Entry>,
    /// The entry before the last reload.
    previous: Option<Entry>,
    /// The last reload was taken back: an older entry may be shown again.
    is_reverted: bool,
    /// The time of the last change of these.
    changed: Instant,
    /// True until the version is certainly there or gone.
    is_unsettled: bool,
    /// True until the present entry is certainly there.
    is_renewed: bool,
    /// The newest entry shown, by namespace.
    shown: BTreeMap<String, u64>,
    /// The number of requests when the version was certainly gone.
    requests: Option<u64>,
}

/// The custom resources of a history.
pub struct CustomResources {
    discovery: Arc<Discovery>,
    settled: watch::Receiver<u64>,
    _debounce: JoinSet<()>,
    options: ResolveOptions,
    rng: Rng,
    /// Determines the reloads that are taken back.
    reverts: Rng,
    /// Determines the entries with a `Count`; `None` if there are more objects at times than a `Count` has label sets.
    counts: Option<Rng>,
    /// Determines those that have only that.
    only_counts: Rng,
    /// Determines those whose objects are not listed in the order of their labels.
    orders: Rng,
    /// Determines those that have other families than the entry before.
    changes: Rng,
    last_number: u64,
    /// All entries so far, by number.
    entries: BTreeMap<u64, Entry>,
    tracks: BTreeMap<Kind, Track>,
    /// The time within which a change of the definition or the configuration is followed, without faults.
    followed: Duration,
}

/// The custom series of a scrape.
#[derive(Default)]
pub struct CustomLines {
    /// The series as the cluster names them.
    pub states: Vec<String>,
    /// The number of the entry that they are of.
    numbers: BTreeMap<KindInNamespace, u64>,
}

/// The labels of a series.
#[derive(Clone, Copy)]
struct Labels<'l>(&'l str);

impl<'l> Labels<'l> {
    fn get(self, wanted: &str) -> Option<&'l str> {
        let mut pairs = self.0.split(',').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| *name == wanted)?;
        Some(value.trim_matches('"'))
    }

    /// Returns the version of the custom kind.
    fn kind(self) -> Option<Kind> {
        let version = format!("example.com/{}", self.get("customresource_version")?);
        VERSIONS.into_iter().find(|kind| kind.api_version() == version)
    }
}

/// Returns the namespace and the series of the object that had a state.
fn object_of<'s>(
    snapshots: &'s BTreeMap<Scope, Vec<Snapshot>>,
    kind: Kind,
    state: &str,
) -> Option<(&'static str, &'s str)> {
    let scopes = snapshots.iter().filter(|(scope, _)| scope.kind == kind);
    let mut lines = scopes.flat_map(|(scope, past)| {
        let lines = past.iter().rev().flat_map(|snapshot| snapshot.lines.iter());
        lines.map(|line| (scope.namespace, &**line))
    });
    lines.find(|(_, line)| line.rsplit_once(' ').is_some_and(|(_, value)| value == state))
}

impl CustomResources {
    /// Starts with an entry for each version, in simulated time. Lists may be old if the server `is_lagging`.
    pub fn new(server: &Server, seed: u64, is_lagging: bool, metrics: &KubeMetrics) -> Self {
        let counts = Rng::with_seed(seed ^ 0x27b7_0a85_4612_0b34);
        let discovery = Discovery::new(metrics);
        let (mut changes, (sender, settled)) = (discovery.changes(), watch::channel(0));
        let mut debounce = JoinSet::new();
        debounce.spawn(async move {
            while changes.changed().await.is_ok() {
                sleep(DEBOUNCE).await;
                sender.send_modify(|changes| *changes += 1);
            }
        });
        let options = ResolveOptions {
            families: Arc::new(FamilyFilter::new(&[], &[], &[]).expect("no patterns")),
            keep_duplicates: false,
            errors: Arc::new(ValueErrorLog::new(metrics.clone(), 0)),
        };
        let track = || Track {
            is_wanted: false,
            entry: None,
            previous: None,
            is_reverted: false,
            changed: Instant::now(),
            is_unsettled: true,
            is_renewed: true,
            shown: BTreeMap::new(),
            requests: None,
        };
        let mut custom = Self {
            discovery,
            settled,
            _debounce: debounce,
            options,
            rng: Rng::with_seed(seed ^ 0x2d35_8dcc_aa6c_78a5),
            reverts: Rng::with_seed(seed ^ 0x1f83_d9ab_fb41_bd6b),
            counts: (!server.cluster().has_bursts()).then_some(counts),
            only_counts: Rng::with_seed(seed ^ 0x766a_0abb_3c77_b2a8),
            orders: Rng::with_seed(seed ^ 0x81c2_c92e_47ed_aee6),
            changes: Rng::with_seed(seed ^ 0x9b05_688c_2b3e_6c1f),
            last_number: 0,
            entries: BTreeMap::new(),
            tracks: VERSIONS.into_iter().map(|kind| (kind, track())).collect(),
            // An old list replaces nothing before the next bookmark.
            followed: *FOLLOWED + if is_lagging { BOOKMARK_INTERVAL } else { Duration::ZERO },
        };
        VERSIONS.into_iter().for_each(|kind| custom.renew(kind));
        custom
    }

    /// Waits until the definitions have changed and settled; cancel-safe.
    pub async fn definitions_changed(&mut self) {
        self.settled.changed().await.expect("the debounce runs");
    }

    fn renew(&mut self, kind: Kind) {
        let (prefix, has_info) = (self.last_number + 1, self.rng.bool());
        let has_count = self.counts.as_mut().is_some_and(Rng::bool);
        let has_state = !has_count || self.only_counts.u32(0..3) > 0;
        let has_info = has_info && has_state;
        let is_unsorted = self.orders.bool();
        let number = prefix;
        self.add(kind, Entry { number, prefix, has_state, has_info, has_count, is_unsorted });
    }

    /// Replaces the entry of a kind by one with another label. Sometimes it adds or removes the second family.
    fn relabel(&mut self, kind: Kind) {
        if let Some(entry) = self.tracks[&kind].entry {
            let has_info = entry.has_info != (entry.has_state && self.changes.bool());
            self.add(kind, Entry { has_info, ..entry });
        }
    }

    fn add(&mut self, kind: Kind, entry: Entry) {
        self.last_number += 1;
        let entry = Entry { number: self.last_number, ..entry };
        self.entries.insert(entry.number, entry);
        self.set(kind, Some(entry));
    }

    fn set(&mut self, kind: Kind, entry: Option<Entry>) {
        let Some(track) = self.tracks.get_mut(&kind) else { return };
        if track.entry != entry {
            (track.entry, track.changed, track.requests) = (entry, Instant::now(), None);
            track.is_renewed = true;
        }
    }

    /// Changes the configuration: an entry is kept, replaced, labelled anew, removed or added. Returns a description.
    pub fn reload(&mut self) -> String {
        self.tracks.values_mut().for_each(|track| track.previous = track.entry);
        for kind in VERSIONS {
            let is_there = self.tracks[&kind].entry.is_some();
            match self.rng.u32(0..5) {
                0 if is_there => self.set(kind, None),
                1 | 2 => self.renew(kind),
                3 if !is_there => self.renew(kind),
                3 => self.relabel(kind),
                _ => {}
            }
        }
        self.described()
    }

    /// Returns the time after which the last reload is taken back, if it is: while kinds wait to be listed for it.
    pub fn reverts_after(&mut self) -> Option<Duration> {
        let is_reverted = self.reverts.bool();
        is_reverted.then(|| Duration::from_millis(self.reverts.u64(0..30)))
    }

    /// Takes the last reload back. Returns a description.
    pub fn revert(&mut self) -> String {
        for kind in VERSIONS {
            let Track { entry, previous, is_reverted, .. } =
                &mut self.tracks.get_mut(&kind).expect("a track");
            *is_reverted |= entry != previous;
            let previous = *previous;
            self.set(kind, previous);
        }
        self.described()
    }

    fn described(&self) -> String {
        let entries = self.tracks.iter().map(|(kind, track)| format!("{kind:?} {:?}", track.entry));
        entries.collect::<Vec<_>>().join(", ")
    }

    /// Returns the text of the configuration.
    fn text(&self) -> String {
        let mut text = "kind: CustomResourceStateMetrics\nspec:\n  resources:\n".to_owned();
        let entries = self.tracks.iter().filter_map(|(kind, track)| Some((kind, track.entry?)));
        for (kind, entry) in entries {
            let Entry { number, prefix, has_state, has_info, has_count, is_unsorted } = entry;
            let first =
                if is_unsorted { "a_back: [spec, back], a_state: [spec, state], " } else { "" };
            let (group, version) = kind.api_version().split_once('/').expect("a group");
            let _ = write!(
                text,
                "  - groupVersionKind: {{group: {group}, version: {version}, kind: Widget}}\n\
                 \x20   metricNamePrefix: c{prefix}\n\
                 \x20   commonLabels: {{entry: n{number}}}\n\
                 \x20   labelsFromPath: {{{first}name: [metadata, name], namespace: [metadata, namespace], uid: [metadata, uid]}}\n\
                 \x20   metrics:\n"
            );
            if has_state {
                text += "    - {name: state, help: A number., each: {type: Gauge, gauge: {path: [spec, state]}}}\n";
            }
            if has_info {
                text += "    - {name: about_info, help: A label., each: {type: Info, info: {labelsFromPath: {state: [spec, state]}}}}\n";
            }
            if has_count {
                let of = match times(prefix) {
                    1 => "labelsFromPath: {state: [spec, state]}",
                    _ => "path: [spec, parts], labelsFromPath: {state: [state]}",
                };
                let _ = writeln!(
                    text,
                    "    - {{name: by_state, help: A count., each: {{type: Count, count: {{{of}}}}}}}"
                );
            }
        }
        text + "  - groupVersionKind: {group: absent.example.com, version: v1, kind: Absent}\n    metrics:\n    - {name: absent, help: Nothing., each: {type: Gauge, gauge: {path: [spec]}}}\n"
    }

    /// Returns the resources to watch: the definitions, and what is configured and served.
    pub fn watched(&self) -> Vec<WatchedResource> {
        let loaded = load(&self.text());
        let errors: Vec<String> = loaded.errors().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let resolution = resolve(&loaded.config, &self.discovery.served(), &self.options);
        let resources = resolution.unwrap_or_else(|error| panic!("{error}")).resources;
        let mut watched = vec![self.discovery.watched()];
        watched.extend(resources.into_iter().map(WatchedResource::custom));
        watched
    }

    /// Notes which versions are wanted now. Returns true if that has changed.
    pub fn observe(&mut self, server: &Server) -> bool {
        let (cluster, mut has_changed) = (server.cluster(), false);
        for (kind, track) in &mut self.tracks {
            let is_wanted = track.entry.is_some() && cluster.serves(*kind);
            if is_wanted != track.is_wanted {
                (track.is_wanted, track.changed) = (is_wanted, Instant::now());
                (track.is_unsettled, track.requests, has_changed) = (true, None, true);
            }
        }
        has_changed
    }

    /// Separates the custom series of a scrape from the others.
    pub fn lines(
        &self,
        lines: &mut Vec<&str>,
        snapshots: &BTreeMap<Scope, Vec<Snapshot>>,
    ) -> Result<CustomLines, Violation> {
        let mut families: BTreeMap<KindInNamespace, BTreeMap<EntryFamily, Vec<String>>> =
            BTreeMap::new();
        let mut counted = BTreeSet::new();
        for line in lines.extract_if(.., |line| line.contains("customresource_kind=")) {
            if line.contains("_by_state{") {
                let unknown = || Violation(format!("not a count of one object: {line}"));
                let count = self.count(line).ok_or_else(unknown)?;
                if !counted.insert(count) {
                    return Err(unknown());
                }
                continue;
            }
            let (scope, family, state) = self
                .series(line)
                .ok_or_else(|| Violation(format!("unknown custom series: {line}")))?;
            families.entry(scope).or_default().entry(family).or_default().push(state);
        }
        let (mut states, mut numbers) = (Vec::new(), BTreeMap::new());
        for (scope, mut families) in families {
            families.values_mut().for_each(|lines| lines.sort_unstable());
            // The number of the entry, and true for the family that is never missing.
            let of = |(number, is_info): &(u64, bool)| (*number, !is_info);
            let shown: Vec<(u64, bool)> = families.keys().map(of).collect();
            let number = shown[0].0;
            let entry = &self.entries[&number];
            // Another entry with the same names may have no second family.
            let may_lack = |other: &Entry| other.prefix == entry.prefix && !other.has_info;
            let least = if self.entries.values().any(may_lack) { 1 } else { 2 };
            let wanted = if entry.has_info { least..=2 } else { 1..=1 };
            let mut different = families.into_values();
            let first = different.next().unwrap_or_default();
            if !wanted.contains(&shown.len())
                || !shown[0].1
                || shown.iter().any(|(other, _)| *other != number)
                || different.any(|other| other != first)
            {
                let why = format!("{scope:?}: families {shown:?} of entries do not fit together");
                return Err(Violation(why));
            }
            if self.entries[&number].has_count {
                let values = first.iter().filter_map(|line| line.rsplit_once(' '));
                for (_, state) in values {
                    if !counted.remove(&(number, scope.0, state.to_owned())) {
                        let why = format!("{scope:?} of entry {number}: {state} is not counted");
                        return Err(Violation(why));
                    }
                }
            }
            states.extend(first);
            numbers.insert(scope, number);
        }
        for (number, kind, state) in counted {
            let unknown = || format!("{state} of {kind:?} is counted for entry {number}");
            // A scope whose objects are only counted has nothing else that names them.
            let (namespace, line) = object_of(snapshots, kind, &state)
                .filter(|_| !self.entries[&number].has_state)
                .ok_or_else(|| Violation(format!("{}, but not shown", unknown())))?;
            let other = numbers.insert((kind, namespace.to_owned()), number);
            if let Some(other) = other.filter(|other| *other != number) {
                return Err(Violation(format!("{}, and others are of entry {other}", unknown())));
            }
            states.push(line.to_owned());
        }
        states.sort_unstable();
        Ok(CustomLines { states, numbers })
    }

    /// Returns the entry, the kind and the state of a series of a `Count` that counts one object.
    fn count(&self, line: &str) -> Option<(u64, Kind, String)> {
        let (name, rest) = line.strip_prefix('c')?.split_once('{')?;
        let (prefix, family) = name.split_once('_')?;
        let (labels, value) = rest.rsplit_once("} ")?;
        let labels = Labels(labels);
        let entry = self.entry(labels)?;
        let is_its = prefix.parse() == Ok(entry.prefix)
            && family == "by_state"
            && value.parse() == Ok(times(entry.prefix));
        is_its.then_some((entry.number, labels.kind()?, labels.get("state")?.to_owned()))
    }

    /// Returns the entry of a series with these labels.
    fn entry(&self, labels: Labels<'_>) -> Option<&Entry> {
        self.entries.get(&labels.get("entry")?.strip_prefix('n')?.parse().ok()?)
    }

    /// Returns the scope of a series, the number of its entry, whether it is of the second family, and the series as the
    /// cluster names it.
    fn series(&self, line: &str) -> Option<(KindInNamespace, EntryFamily, String)> {
        let (name, rest) = line.strip_prefix('c')?.split_once('{')?;
        let (prefix, family) = name.split_once('_')?;
        let (labels, value) = rest.rsplit_once("} ")?;
        let labels = Labels(labels);
        let label = |wanted: &str| labels.get(wanted);
        let entry = self.entry(labels)?;
        let number = entry.number;
        if prefix.parse() != Ok(entry.prefix) {
            return None;
        }
        let kind = labels.kind()?;
        let (is_info, state) = match family {
            "state" => (false, value),
            "about_info" if value == "1" => (true, label("state")?),
            _ => return None,
        };
        let (namespace, object, uid) = (label("namespace")?, label("name")?, label("uid")?);
        let scope = (kind, namespace.to_owned());
        let who = format!("namespace=\"{namespace}\",name=\"{object}\",uid=\"{uid}\"");
        Some((scope, (number, is_info), format!("{}state{{{who}}} {state}", kind.prefix())))
    }

    /// Returns true if a version need not be followed yet. Faults excuse it until `may_be_stale_until`.
    fn may_be_late(track: &Track, may_be_stale_until: Instant, followed: Duration) -> bool {
        Instant::now() < track.changed.max(may_be_stale_until) + followed
    }

    /// Returns the expectation of a scope, which is `other` for kinds without a definition.
    pub fn expectation(
        &self,
        scope: Scope,
        may_be_stale_until: Instant,
        other: Expectation,
    ) -> Expectation {
        let Some(track) = self.tracks.get(&scope.kind) else { return other };
        match Self::may_be_late(track, may_be_stale_until, self.followed) {
            true if track.is_unsettled => Expectation::PastOrEmpty,
            // If a kind is refused after a reload, only families remain that are still configured.
            true if track.is_renewed && Instant::now() < may_be_stale_until + self.followed => {
                Expectation::PastOrEmpty
            }
            true if other == Expectation::Present => Expectation::Past,
            false if !track.is_wanted => Expectation::Empty,
            _ => other,
        }
    }

    /// Compares the entries of a scrape, and the requests, with the configuration.
    pub fn check(
        &mut self,
        lines: &CustomLines,
        server: &Server,
        may_be_stale_until: Instant,
    ) -> Result<(), Violation> {
        for ((kind, namespace), &number) in &lines.numbers {
            let Some(track) = self.tracks.get_mut(kind) else { continue };
            let before = track.shown.insert(namespace.clone(), number).unwrap_or_default();
            let (is_late, entry) =
                (Self::may_be_late(track, may_be_stale_until, self.followed), track.entry);
            let about = format!("{kind:?} of {namespace}: entry {number}");
            if number < before && !(is_late && track.is_reverted) {
                return Err(Violation(format!("{about}, after entry {before}")));
            }
            if !is_late && entry.is_none_or(|entry| entry.number != number) {
                return Err(Violation(format!("{about} is shown, but {entry:?} is configured")));
            }
        }
        for (kind, track) in &mut self.tracks {
            if Self::may_be_late(track, may_be_stale_until, self.followed) {
                continue;
            }
            (track.is_unsettled, track.is_renewed, track.is_reverted) = (false, false, false);
            if track.is_wanted {
                continue;
            }
            let requests = server.requests_for(*kind);
            let before = *track.requests.get_or_insert(requests);
            if requests > before {
                let more = requests - before;
                return Err(Violation(format!("{more} requests for {kind:?}, which is gone")));
            }
        }
        Ok(())
    }
}
