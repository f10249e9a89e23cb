//! Compares the counters of events with the world's own account in every scrape.
//!
//! A scrape names the state of each pod, job and node that it shows, and the account tells what had happened by then. The
//! ledger may be ahead of that state while a list is in progress, but never ahead of the world. Hence:
//!
//! - **Terminations of a pod.** Their sum over reasons is the number of terminations between the first state that was
//!   seen and some state between the one shown and the present one. The first state is the creation for a pod that was
//!   created after its namespace was first shown. The first scrapes narrow it down; later ones must agree with it.
//! - **Reasons.** None but `unknown` exceeds the world's number, each has its exit code, and `unknown` exceeds the number
//!   of terminations that no status describes only after faults. Thus each equals the world's number without faults.
//! - **Workloads.** Their terminations are those of their pods in the same scrape plus those of former pods. The latter
//!   change only when a pod ceases to exist, by what the pod had; they never decrease or vanish.
//! - **Ends of pods and jobs.** Each ends once, with a reason that its states prove, or `unknown` after faults.
//! - **Kubernetes Events.** Each occurrence counts once, for the workload of its object or for none. Those that certainly
//!   arrive are counted.
//! - **Transitions of nodes.** Their number is that of the transitions since the first state. Each transition that a fault
//!   has hidden may be missing, but not all of those between two states that were shown.
//! - Counters do not decrease, except those of pods and nodes that have ceased to exist, or were refused for long.
//!   Those of the usual reasons exist from the first pod or job of a workload, and from the beginning of a node.
//! - **Retention.** Counters of a workload that is gone are removed in time and not earlier. They begin again at 0.
//! - **Shards.** A workload or node that the process does not serve has no counters. Those of a workload begin at 0 when the
//!   process begins to count it, which is before it shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::accounts::{Account, Accounts, WorkloadAccount};
use super::cluster::{Kind, Scope};
use super::counters::{Counters, Counts, EVENTS, WorkloadKey, family};
use super::ends::EndChecker;
use super::kube_events::EventChecker;
use super::lives::Lives;
use super::nodes::NodeChecker;
use super::pod_track::{OldCounts, PodTrack};
use super::status::{Status, UNKNOWN};
use crate::kube::shard::{Ownership, Shard};

/// The time after which an event has certainly arrived, without faults.
pub(super) const ARRIVAL: Duration = Duration::from_secs(2);

/// The reasons whose counters exist from the first pod or job of a workload: of terminations, and of ends of pods and jobs.
const USUAL: [[&str; 3]; 3] = [
    ["Completed", "Error", "OOMKilled"],
    ["Evicted", "Failed", "Succeeded"],
    ["BackoffLimitExceeded", "Complete", "DeadlineExceeded"],
];

/// The conditions of a scrape, or of the time since another one.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// It need not show the present.
    pub may_be_stale: bool,
    /// Objects may have been dropped because they were refused for long.
    pub may_be_dropped: bool,
}

/// Possible values of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Range {
    pub(super) least: i64,
    pub(super) most: i64,
}

impl Range {
    /// Restricts the range to another one, and returns whether anything is left.
    pub(super) fn restrict(&mut self, least: i64, most: i64) -> bool {
        (self.least, self.most) = (self.least.max(least), self.most.min(most));
        self.least <= self.most
    }

    pub(super) fn add(&mut self, other: Self) {
        self.least += other.least;
        self.most += other.most;
    }
}

/// Compares the ledger with the world.
pub struct LedgerChecker {
    before: Option<Conditions>,
    /// Removals until then had arrived at the time of the last scrape.
    arrived: Option<Instant>,
    quiet_since: Option<Instant>,
    since: Since,
    shard: Shard,
    /// The shards until now.
    former_shards: Vec<Shard>,
    possible: BTreeMap<String, PossibleUids>,
    /// The workloads that were not shown in the last scrape, because of the shard.
    hidden: BTreeSet<String>,
    pods: BTreeMap<String, PodTrack>,
    /// The counters of the last scrape: terminations by pod and by former pods of a workload, and all of workloads.
    of_pods: BTreeMap<String, OldCounts>,
    of_former_pods: BTreeMap<(String, String, String), i64>,
    of_workloads: BTreeMap<WorkloadKey, i64>,
    ends: [EndChecker; 2],
    events: EventChecker,
    lives: Lives,
    nodes: NodeChecker,
}

/// The last states of the world at times since which everything counts.
#[derive(Clone, Default)]
struct Since {
    /// When objects of a scope were first shown.
    first_shown: BTreeMap<Scope, u64>,
    /// When the counters of a workload began again at 0.
    restarted: BTreeMap<String, u64>,
}

/// The UIDs of a workload that the process may take for its latest one.
#[derive(Debug, Default)]
struct PossibleUids {
    uids: BTreeSet<String>,
    /// The number of UIDs of the workload that have been considered.
    considered: usize,
}

impl PossibleUids {
    /// Adds the UIDs that the workload has got since.
    fn extend(&mut self, life: &WorkloadAccount) {
        let new = life.uids().iter().skip(self.considered);
        self.uids.extend(new.map(|(_, uid)| uid.clone()));
        self.considered = life.uids().len();
    }
}

/// Whether a process serves a workload, if that is certain.
struct Serving {
    is_counted: Option<bool>,
    is_shown: Option<bool>,
}

impl Serving {
    /// Workloads of one name may belong to several shards, one after the other. The latest that the process knows decides.
    fn new(shard: Shard, possible: Option<&PossibleUids>) -> Self {
        let uids = || possible.into_iter().flat_map(|possible| &possible.uids);
        let agreed = |serves: fn(Shard, &str) -> bool| {
            let first = uids().next().is_none_or(|uid| serves(shard, uid));
            uids().all(|uid| serves(shard, uid) == first).then_some(first)
        };
        Self { is_counted: agreed(counts_uid), is_shown: agreed(shows_uid) }
    }
}

/// Returns whether a shard counts what happens to the objects of the workload with this UID.
pub(super) fn counts_uid(shard: Shard, uid: &str) -> bool {
    shard.ownership(uid.as_bytes()) != Ownership::Foreign
}

/// Returns whether a shard shows the object or workload with this UID.
pub(super) fn shows_uid(shard: Shard, uid: &str) -> bool {
    matches!(shard.ownership(uid.as_bytes()), Ownership::Kept | Ownership::Lost)
}

/// A scrape in comparison.
pub(super) struct Comparison<'c> {
    pub(super) accounts: &'c Accounts,
    pub(super) counters: Counters<'c>,
    of_workloads: BTreeMap<WorkloadKey, i64>,
    /// The pods and jobs that are shown, by UID, with the statuses that are shown.
    pub(super) shown: BTreeMap<&'c str, &'c Arc<Status>>,
    /// The time since the last scrape.
    pub(super) conditions: Conditions,
    /// The time since which there has been no fault.
    pub(super) quiet_since: Option<Instant>,
    pub(super) shard: Shard,
    pub(super) now: Instant,
    possible: BTreeMap<String, PossibleUids>,
    since: Since,
    hidden: BTreeSet<String>,
}

impl Comparison<'_> {
    /// Returns whether an object was created after its namespace was first shown, so that everything that happens to it
    /// counts.
    pub(super) fn is_new(&self, account: &Account) -> bool {
        let first = self.since.first_shown.get(&account.object.scope);
        let restarted = account.workload.as_ref().and_then(|name| self.since.restarted.get(name));
        !account.is_restored
            && first.is_some_and(|first| account.created() > *first)
            && restarted.is_none_or(|restarted| account.created() > *restarted)
    }

    /// Returns whether the end of a completed pod, which may have lost its series before, may not have arrived.
    fn may_end(&self, account: &Account) -> bool {
        account.status.end.is_some()
            && account.removed_at.is_some_and(|at| self.now <= at + ARRIVAL)
    }

    fn serving(&self, workload: &str) -> Serving {
        Serving::new(self.shard, self.possible.get(workload))
    }

    /// Notes the workloads whose latest UIDs are certain: the process has seen each that was created without faults, and each
    /// that it shows.
    fn note_latest_uids(&mut self) {
        let Some(quiet_since) = self.quiet_since else { return };
        let shown = self.shown.keys().filter_map(|uid| self.accounts.get(uid));
        let shown: BTreeSet<(Option<&str>, &str)> =
            shown.map(|one| (one.workload.as_deref(), &*one.workload_uid)).collect();
        for (workload, possible) in &mut self.possible {
            let latest = self.accounts.workload(workload).and_then(|life| life.uids().last());
            let Some((since, uid)) = latest else { continue };
            if *since + ARRIVAL <= self.now
                && (*since >= quiet_since || shown.contains(&(Some(workload), uid)))
            {
                possible.uids.retain(|possible| possible == uid);
            }
        }
    }

    /// Returns whether the shard counts what happens to a pod or job, unless its workload has been replaced.
    pub(super) fn counts(&self, account: &Account) -> bool {
        counts_uid(self.shard, &account.workload_uid)
    }

    /// Returns whether the shard certainly shows a workload.
    pub(super) fn shows(&self, workload: &str) -> bool {
        self.serving(workload).is_shown == Some(true)
    }

    /// Returns whether the shard did not show a workload at the time of the last scrape.
    pub(super) fn was_shown(&self, workload: &str) -> bool {
        !self.hidden.contains(workload)
    }

    /// Returns whether the shard may count a workload.
    pub(super) fn may_count(&self, workload: &str) -> bool {
        self.serving(workload).is_counted != Some(false)
    }
}

impl LedgerChecker {
    /// Creates the checker of a ledger that keeps the counters of a workload for this time after its end.
    pub fn new(retention: Duration) -> Self {
        Self {
            before: None,
            arrived: None,
            quiet_since: None,
            since: Since::default(),
            shard: Shard::ALL,
            former_shards: Vec::new(),
            possible: BTreeMap::new(),
            hidden: BTreeSet::new(),
            pods: BTreeMap::new(),
            of_pods: BTreeMap::new(),
            of_former_pods: BTreeMap::new(),
            of_workloads: BTreeMap::new(),
            ends: [Kind::Pod, Kind::Job].map(EndChecker::new),
            events: EventChecker::default(),
            lives: Lives::new(retention),
            nodes: NodeChecker::default(),
        }
    }

    /// Notes a change of the shard.
    pub fn reshard(&mut self, accounts: &Accounts, shard: Shard) {
        let before = std::mem::replace(&mut self.shard, shard);
        self.former_shards.push(before);
        self.ends.iter_mut().for_each(|ends| ends.reshard(accounts, before, shard));
        for (workload, life) in accounts.workloads() {
            let possible = self.possible.entry(workload.clone()).or_default();
            possible.extend(life);
            let serving = |shard| Serving::new(shard, Some(possible));
            let counts = [before, shard].map(|shard| serving(shard).is_counted);
            if counts[0] != counts[1] || counts[0].is_none() {
                self.since.restarted.insert(workload.clone(), accounts.last_state);
                let is_certain = counts.iter().all(Option::is_some);
                self.restart(accounts, workload, is_certain);
            }
        }
        for (uid, account) in accounts.of_kind(Kind::Pod) {
            if counts_uid(before, &account.workload_uid) != counts_uid(shard, &account.workload_uid)
            {
                self.restart_pod(uid, account, true);
            }
        }
        self.events.reshard(accounts, before);
        self.lives.reshard();
    }

    /// Notes that the counters of a workload have begun again at 0, or may have.
    fn restart(&mut self, accounts: &Accounts, workload: &str, is_certain: bool) {
        self.of_workloads.retain(|(name, ..), _| name != workload);
        self.of_former_pods.retain(|(name, ..), _| name != workload);
        let shard = self.shard;
        self.ends.iter_mut().for_each(|ends| ends.restart(accounts, workload, shard, is_certain));
        self.events.restart(accounts, workload);
    }

    /// Returns whether what has happened to a pod may be part of the counters of its workload.
    fn may_have_counted(&self, account: &Account) -> bool {
        let mut shards = self.former_shards.iter().chain([&self.shard]);
        shards.any(|shard| counts_uid(*shard, &account.workload_uid))
    }

    /// Notes that the counters of a pod have begun again at 0, or may have.
    fn restart_pod(&mut self, uid: &str, account: &Account, is_certain: bool) {
        self.of_pods.remove(uid);
        let containers = self.pods.get_mut(uid).into_iter().flat_map(|pod| &mut pod.containers);
        for (track, status) in containers.zip(&account.status.containers) {
            let least = if is_certain { track.seen } else { track.base.least };
            track.base = Range { least, most: status.ended.len() as i64 };
        }
    }

    /// Notes which counters have begun again at 0, and checks that none is left that should have been removed.
    fn note_restarts(&mut self, scrape: &Comparison<'_>) -> Result<(), String> {
        let counts = &scrape.of_workloads;
        let present = counts.keys().map(|key| &*key.0).collect();
        let is_less = |(key, before): &(&WorkloadKey, &i64)| {
            counts.get(*key).is_none_or(|count| count < *before)
        };
        let decreased = self.of_workloads.iter().filter(is_less).map(|(key, _)| &*key.0).collect();
        let mut touched: BTreeMap<&str, bool> = BTreeMap::new();
        for (key, count) in counts.iter().filter(|(key, _)| key.1 == EVENTS) {
            // A counter that is not remembered may have been hidden, or begun again.
            let before = self.of_workloads.get(key);
            if before.is_none_or(|before| before < count) {
                *touched.entry(&key.0).or_default() |= before.is_some();
            }
        }
        let restarted = self.lives.check(scrape, &present, &touched, &decreased)?;
        for workload in restarted {
            // Counters that the shard has hidden may be the old ones when they are shown again.
            let is_certain = scrape.shows(&workload);
            for (uid, account) in scrape.accounts.of_kind(Kind::Pod) {
                if account.workload.as_ref() == Some(&workload) {
                    self.restart_pod(uid, account, is_certain);
                }
            }
            self.restart(scrape.accounts, &workload, is_certain);
            self.since.restarted.insert(workload, scrape.accounts.last_state);
        }
        if self.shard != Shard::ALL {
            let is_uncertain = |name: &&String| {
                let Serving { is_counted, is_shown } = scrape.serving(name);
                is_counted.is_none() || is_shown.is_none()
            };
            let names = scrape.accounts.workloads().map(|(name, _)| name);
            names.filter(is_uncertain).for_each(|name| self.restart(scrape.accounts, name, false));
        }
        if let Some(workload) =
            present.iter().find(|workload| scrape.serving(workload).is_shown == Some(false))
        {
            return Err(format!("{workload} has counters, but belongs to another shard"));
        }
        Ok(())
    }

    /// Checks the counters of a scrape, with the other lines of it.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub fn check(
        &mut self,
        accounts: &Accounts,
        counters: &[&str],
        lines: &[&str],
        conditions: Conditions,
    ) -> Result<(), String> {
        let before = self.before.replace(conditions);
        let before = before.unwrap_or(Conditions { may_be_stale: true, may_be_dropped: false });
        let conditions = Conditions {
            may_be_stale: conditions.may_be_stale || before.may_be_stale,
            may_be_dropped: conditions.may_be_dropped || before.may_be_dropped,
        };
        let states = |name: &str| -> Vec<(&str, &Arc<Status>)> {
            let of_kind = lines.iter().filter(|line| line.starts_with(name));
            let numbers = of_kind.filter_map(|line| {
                let (_, rest) = line.split_once("label_state=\"")?;
                rest.split_once('"')?.0.parse().ok()
            });
            numbers.filter_map(|number| accounts.state(number)).collect()
        };
        let now = Instant::now();
        let counters = Counters::parse(counters)?;
        let pods_and_jobs = ["kube_pod_labels{", "kube_job_labels{"].into_iter();
        let shown = pods_and_jobs.flat_map(states).collect();
        let nodes = states("kube_node_labels{");
        let (shard, hidden) = (self.shard, std::mem::take(&mut self.hidden));
        self.quiet_since = (!conditions.may_be_stale).then(|| self.quiet_since.unwrap_or(now));
        let (quiet_since, since) = (self.quiet_since, self.since.clone());
        let of_workloads = counters.of_workloads();
        let mut possible = std::mem::take(&mut self.possible);
        for (workload, life) in accounts.workloads() {
            possible.entry(workload.clone()).or_default().extend(life);
        }
        let mut comparison = Comparison {
            accounts,
            counters,
            of_workloads,
            shown,
            conditions,
            quiet_since,
            shard,
            now,
            possible,
            since,
            hidden,
        };
        self.nodes.check(accounts, shard, &comparison.counters.nodes, &nodes, conditions)?;
        self.note_restarts(&comparison)?;
        comparison.since = self.since.clone();
        self.check_workloads(&comparison)?;
        self.check_pods(&comparison)?;
        self.ends.iter_mut().try_for_each(|ends| ends.check(&comparison))?;
        self.events.check(&comparison)?;
        self.check_usual_series(&comparison)?;
        self.remember(&comparison);
        comparison.note_latest_uids();
        self.possible = comparison.possible;
        Ok(())
    }

    /// Compares the counters of workloads with those of their pods.
    fn check_workloads(&self, scrape: &Comparison<'_>) -> Result<(), String> {
        let Comparison { accounts, counters, conditions, .. } = scrape;
        let mut sums: BTreeMap<(&str, &str, &str), i64> = BTreeMap::new();
        for (workload, [terminations, ..]) in &counters.workloads {
            for ((container, reason), count) in terminations {
                sums.insert((workload.as_str(), container, reason), *count);
            }
        }
        // Of former pods: what the terminations of each reason increase by at least, and their sums by.
        let mut left: BTreeMap<(&str, &str, &str), i64> = BTreeMap::new();
        let mut gained: BTreeMap<(&str, &str), Range> = BTreeMap::new();
        let mut most: BTreeMap<(&str, &str, &str), i64> = BTreeMap::new();
        for (uid, account) in accounts.of_kind(Kind::Pod) {
            let Some(workload) = account.workload.as_deref() else { continue };
            if !scrape.shows(workload) || !self.may_have_counted(account) {
                continue;
            }
            let (none, names) = (Counts::new(), account.object.containers());
            let counts = counters.pods.get(&**uid).unwrap_or(&none);
            for ((container, reason), count) in counts {
                *sums.entry((workload, container, reason)).or_default() -= count;
            }
            let before = self.of_pods.get(uid);
            let is_reset = before.is_some_and(|before| {
                before.iter().any(|((c, r), n)| counts.get(&(&**c, &**r)).unwrap_or(&0) < n)
            });
            if is_reset {
                for ((container, reason), count) in before.into_iter().flatten() {
                    let key = (workload, &**container, &**reason);
                    *left.entry(key).or_default() += count;
                }
            }
            let track = self.pods.get(uid);
            let was_removed = account
                .removed_at
                .is_some_and(|at| self.arrived.is_none_or(|arrived| at > arrived));
            let was_shown = track.is_some_and(|track| track.is_shown);
            let is_gone = was_shown
                && !account.is_present
                && !scrape.shown.contains_key(&**uid)
                && !scrape.may_end(account);
            for (number, name) in names.iter().enumerate() {
                let ended = &account.status.containers[number].ended;
                let old = account.initial.as_ref().map_or(0, |initial| {
                    initial.containers[number].proven(account.object.has_container_ids())
                });
                for termination in &ended[old..] {
                    let key = (workload, *name, termination.reason);
                    *most.entry(key).or_default() += 1;
                }
                if is_reset || was_removed || is_gone || conditions.may_be_dropped {
                    let base = track.map(|track| track.containers[number].base);
                    let ended = ended.len() as i64;
                    let all = base.map_or(old as i64, |base| base.least);
                    let gain = gained.entry((workload, *name)).or_default();
                    gain.most += ended - all;
                    if is_gone && !conditions.may_be_stale && scrape.counts(account) {
                        gain.least += base.map_or(0, |base| ended - base.most);
                    }
                }
            }
        }
        let mut gains: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for (key, count) in sums.iter().filter(|((workload, ..), _)| scrape.shows(workload)) {
            let (workload, container, reason) = key;
            let before = ((*workload).to_owned(), (*container).to_owned(), (*reason).to_owned());
            let before = self.of_former_pods.get(&before).copied().unwrap_or(0);
            let least = before + left.get(key).unwrap_or(&0);
            if *count < least {
                return Err(format!(
                    "{key:?}: former pods have {count} terminations, but at least {least}"
                ));
            }
            *gains.entry((*workload, *container)).or_default() += count - before;
            let total = count_of(counters, key);
            let most = most.get(key).copied().unwrap_or(0);
            if *reason != UNKNOWN && total > most {
                return Err(format!("{key:?}: {total} terminations, but at most {most}"));
            }
        }
        let was_shown = |((workload, _), _): &((&str, &str), i64)| scrape.was_shown(workload);
        for (key, gain) in gains.into_iter().filter(was_shown) {
            let Range { least, most } = gained.get(&key).copied().unwrap_or_default();
            if gain < least || gain > most {
                return Err(format!(
                    "{key:?}: former pods have {gain} more terminations, not {least} to {most}"
                ));
            }
        }
        let counts = &scrape.of_workloads;
        for (key, before) in &self.of_workloads {
            let count = counts.get(key);
            if count.is_none_or(|count| count < before) {
                return Err(format!("{key:?}: a total of {before} has become {count:?}"));
            }
        }
        Ok(())
    }

    /// Compares the terminations of each pod that is shown with its account.
    fn check_pods(&mut self, scrape: &Comparison<'_>) -> Result<(), String> {
        let Comparison { accounts, counters, shown, conditions, .. } = scrape;
        for uid in counters.pods.keys().filter(|uid| !shown.contains_key(**uid)) {
            let account = accounts.get(uid);
            let is_gone = |account: &Account| {
                !account.is_present && !conditions.may_be_stale && !scrape.may_end(account)
            };
            if account.is_none_or(is_gone) {
                return Err(format!("{uid} has counters, but does not exist"));
            }
        }
        for (uid, status) in shown {
            let Some(account) = accounts.get(uid) else { continue };
            if account.object.scope.kind != Kind::Pod {
                continue;
            }
            let counts = counters.pods.get(uid);
            if account.workload.is_none() || !shows_uid(scrape.shard, &account.workload_uid) {
                if counts.is_some() {
                    return Err(format!("{uid} has counters, but no workload of this shard"));
                }
                continue;
            }
            let is_new = scrape.is_new(account);
            let track = self
                .pods
                .entry((*uid).to_owned())
                .or_insert_with(|| PodTrack::new(account, status, is_new));
            let before = self.of_pods.get(*uid);
            track
                .check(account, status, (before, counts), *conditions)
                .map_err(|why| format!("{uid}: {why}; {track:?} {account:?}"))?;
        }
        for (uid, track) in &mut self.pods {
            track.is_shown = shown.contains_key(&**uid);
        }
        Ok(())
    }

    /// Compares the counters that exist with the pods and jobs that are shown.
    fn check_usual_series(&self, scrape: &Comparison<'_>) -> Result<(), String> {
        let empty = <[Counts<'_>; 3]>::default();
        for uid in scrape.shown.keys() {
            let Some(account) = scrape.accounts.get(uid) else { continue };
            let workload = account.workload.as_deref().filter(|workload| scrape.shows(workload));
            let Some(workload) = workload else { continue };
            let counts = scrape.counters.workloads.get(workload).unwrap_or(&empty);
            let have = |family: usize, container| {
                USUAL[family]
                    .iter()
                    .all(|reason| counts[family].contains_key(&(container, *reason)))
            };
            let (object, kind) = (&account.object, account.object.scope.kind);
            let containers = if kind == Kind::Pod { object.containers() } else { &[] };
            let all =
                containers.iter().all(|container| have(0, container)) && have(family(kind), "");
            if !all {
                return Err(format!("{workload}: the usual counters are missing"));
            }
        }
        Ok(())
    }

    /// Keeps what the next scrape is compared with.
    fn remember(&mut self, scrape: &Comparison<'_>) {
        let Comparison { accounts, counters, shown, conditions, now, .. } = scrape;
        for uid in shown.keys() {
            let Some(account) = accounts.get(uid) else { continue };
            self.since.first_shown.entry(account.object.scope).or_insert(accounts.last_state);
        }
        if self.shard != Shard::ALL {
            let names = accounts.workloads().map(|(name, _)| name);
            self.hidden.extend(names.filter(|name| !scrape.shows(name)).cloned());
        }
        let owned = |text: &&str| (*text).to_owned();
        (self.of_pods, self.of_former_pods) = Default::default();
        self.of_workloads.clone_from(&scrape.of_workloads);
        for (workload, [terminations, ..]) in &counters.workloads {
            for ((container, reason), count) in terminations {
                let key = (workload.clone(), owned(container), owned(reason));
                self.of_former_pods.insert(key, *count);
            }
        }
        for (uid, counts) in &counters.pods {
            let workload = accounts.get(uid).and_then(|account| account.workload.clone());
            for ((container, reason), count) in counts {
                let (container, reason) = (owned(container), owned(reason));
                let key = (workload.clone().unwrap_or_default(), container.clone(), reason.clone());
                *self.of_former_pods.entry(key).or_default() -= count;
                let of_pod = self.of_pods.entry(owned(uid)).or_default();
                of_pod.insert((container, reason), *count);
            }
        }
        if !conditions.may_be_stale {
            self.arrived = now.checked_sub(ARRIVAL);
        }
    }
}

/// Returns a counter of terminations, 0 if it does not exist.
fn count_of(counters: &Counters<'_>, (workload, container, reason): &(&str, &str, &str)) -> i64 {
    let of_workload = counters.workloads.get(*workload);
    of_workload.and_then(|counts| counts[0].get(&(*container, *reason))).copied().unwrap_or(0)
}
