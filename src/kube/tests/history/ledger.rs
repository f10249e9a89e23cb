//! Compares the counters of events with the world's own account in every scrape.
//!
//! A scrape names the state of each pod and node that it shows, and the account tells what had happened by then. The
//! ledger may be ahead of that state while a list is in progress, but never ahead of the world. Hence:
//!
//! - **Terminations of a pod.** Their sum over reasons is the number of terminations between the first state that was
//!   seen and some state between the one shown and the present one. The first state is the creation for a pod that was
//!   created after its namespace was first shown. The first scrapes narrow it down; later ones must agree with it.
//! - **Reasons.** None but `unknown` exceeds the world's number, each has its exit code, and `unknown` exceeds the number
//!   of terminations that no status describes only after faults. Thus each equals the world's number without faults.
//! - **Workloads.** Their terminations are those of their pods in the same scrape plus those of former pods. The latter
//!   change only when a pod ceases to exist, by what the pod had; they never decrease or vanish.
//! - **Ends of pods.** Each pod ends once, with a reason that its states prove, or `unknown` after faults.
//! - **Transitions of nodes.** Their number is that of the transitions since the first state. Each transition that a fault
//!   has hidden may be missing, but not all of those between two states that were shown.
//! - Counters do not decrease, except those of pods and nodes that have ceased to exist, or were refused for long.
//!   Those of the usual reasons exist from the first pod of a workload, and from the beginning of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::accounts::{Account, Accounts};
use super::cluster::Kind;
use super::counters::{Counters, Counts};
use super::nodes::NodeChecker;
use super::status::{Status, UNKNOWN};

/// The time after which an event has certainly arrived, without faults.
pub(super) const ARRIVAL: Duration = Duration::from_secs(2);

/// The reasons whose counters exist from the first pod of a workload: of terminations and of ends.
const USUAL: [[&str; 3]; 2] =
    [["Completed", "Error", "OOMKilled"], ["Evicted", "Failed", "Succeeded"]];

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

/// The terminations of a pod at the last scrape, by container and reason.
type OldCounts = BTreeMap<(String, String), i64>;

/// What is known about the terminations of a container.
#[derive(Debug)]
struct ContainerTrack {
    /// The number of terminations that are not counted because they are older than the counter.
    base: Range,
    /// The largest number that a scrape has proven.
    seen: i64,
    /// The number of terminations that may be unknown although a status described them.
    lost: i64,
}

/// What is known about a pod that has been shown.
#[derive(Debug)]
struct PodTrack {
    containers: Vec<ContainerTrack>,
    /// Its removals by the time of the last scrape.
    removals: u32,
    is_shown: bool,
    /// It had not ended when it was first seen.
    had_not_ended: bool,
    /// The ledger knows it, so that it notices its end.
    is_known: bool,
    /// It was created after its namespace was first shown, and there has been no fault since.
    is_undisturbed: bool,
}

/// Compares the ledger with the world.
#[derive(Default)]
pub struct LedgerChecker {
    before: Option<Conditions>,
    /// Removals until then had arrived at the time of the last scrape.
    arrived: Option<Instant>,
    quiet_since: Option<Instant>,
    /// The last state of the world when pods of a namespace were first shown.
    first_shown: BTreeMap<&'static str, u64>,
    pods: BTreeMap<String, PodTrack>,
    /// The counters of the last scrape: terminations by pod and by former pods of a workload, and ends.
    of_pods: BTreeMap<String, OldCounts>,
    of_former_pods: BTreeMap<(String, String, String), i64>,
    of_workloads: BTreeMap<(String, usize, String, String), i64>,
    /// The number of ends of each pod, and whether that is final.
    ends: BTreeMap<String, (Range, bool)>,
    /// The number of ends of pods that are final.
    final_ends: BTreeMap<String, Range>,
    nodes: NodeChecker,
}

/// A scrape in comparison.
struct Comparison<'c> {
    accounts: &'c Accounts,
    counters: Counters<'c>,
    /// The pods that are shown, by UID, with the statuses that are shown.
    shown: BTreeMap<&'c str, &'c Arc<Status>>,
    /// The time since the last scrape.
    conditions: Conditions,
    now: Instant,
}

impl LedgerChecker {
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
        let (counters, shown) =
            (Counters::parse(counters)?, states("kube_pod_labels{").into_iter().collect());
        let nodes = states("kube_node_labels{");
        let comparison = Comparison { accounts, counters, shown, conditions, now };
        self.quiet_since = (!conditions.may_be_stale).then(|| self.quiet_since.unwrap_or(now));
        self.nodes.check(accounts, &comparison.counters.nodes, &nodes, conditions)?;
        self.check_workloads(&comparison)?;
        self.check_pods(&comparison)?;
        self.check_ends(&comparison)?;
        self.check_usual_series(&comparison)?;
        self.remember(&comparison);
        Ok(())
    }

    /// Returns whether a pod was created after its namespace was first shown, so that everything that happens to it counts.
    fn is_new(&self, account: &Account) -> bool {
        let first = self.first_shown.get(account.object.scope.namespace);
        !account.is_restored && first.is_some_and(|first| account.created() > *first)
    }

    /// Compares the counters of workloads with those of their pods.
    fn check_workloads(&self, scrape: &Comparison<'_>) -> Result<(), String> {
        let Comparison { accounts, counters, conditions, .. } = scrape;
        let mut sums: BTreeMap<(&str, &str, &str), i64> = BTreeMap::new();
        for (workload, [terminations, _]) in &counters.workloads {
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
            let is_gone = was_shown && !account.is_present && !scrape.shown.contains_key(&**uid);
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
                    if is_gone && !conditions.may_be_stale {
                        gain.least += base.map_or(0, |base| ended - base.most);
                    }
                }
            }
        }
        let mut gains: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for (key, count) in &sums {
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
        for (key, gain) in gains {
            let Range { least, most } = gained.get(&key).copied().unwrap_or_default();
            if gain < least || gain > most {
                return Err(format!(
                    "{key:?}: former pods have {gain} more terminations, not {least} to {most}"
                ));
            }
        }
        for ((workload, family, container, reason), before) in &self.of_workloads {
            let counts = counters.workloads.get(workload);
            let count = counts.and_then(|counts| counts[*family].get(&(&**container, &**reason)));
            if count.is_none_or(|count| count < before) {
                return Err(format!(
                    "{workload} {container} {reason}: a total of {before} has become {count:?}"
                ));
            }
        }
        Ok(())
    }

    /// Compares the terminations of each pod that is shown with its account.
    fn check_pods(&mut self, scrape: &Comparison<'_>) -> Result<(), String> {
        let Comparison { accounts, counters, shown, conditions, .. } = scrape;
        for uid in counters.pods.keys().filter(|uid| !shown.contains_key(**uid)) {
            let account = accounts.get(uid);
            if account.is_none_or(|account| !account.is_present && !conditions.may_be_stale) {
                return Err(format!("{uid} has counters, but does not exist"));
            }
        }
        for (uid, status) in shown {
            let Some(account) = accounts.get(uid) else { continue };
            let counts = counters.pods.get(uid);
            if account.workload.is_none() {
                if counts.is_some() {
                    return Err(format!("{uid} has counters, but no workload"));
                }
                continue;
            }
            let is_new = self.is_new(account);
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
            track.is_known &= track.is_shown || !conditions.may_be_dropped;
        }
        Ok(())
    }

    /// Compares the ends of pods with their accounts.
    fn check_ends(&mut self, scrape: &Comparison<'_>) -> Result<(), String> {
        let Comparison { accounts, counters, shown, conditions, now } = scrape;
        let mut sums: BTreeMap<&str, Range> = BTreeMap::new();
        let mut reasons: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for (uid, account) in accounts.of_kind(Kind::Pod) {
            let Some(workload) = account.workload.as_deref() else { continue };
            for reason in &account.ends {
                *reasons.entry((workload, *reason)).or_default() += 1;
            }
            let had_ended = account.initial.as_ref().is_some_and(|initial| initial.end.is_some());
            let may_end = !had_ended && (account.status.end.is_some() || account.removals > 0);
            let track = self.pods.get(uid);
            let status = shown.get(&**uid);
            let has_ended = match (track, status) {
                (Some(track), Some(status)) => track.had_not_ended && status.end.is_some(),
                (Some(track), None) => {
                    track.had_not_ended && track.is_known && account.removals > 0
                }
                (None, _) => false,
            };
            let has_arrived =
                !account.is_present && account.removed_at.is_some_and(|at| at + ARRIVAL < *now);
            let is_new = self.is_new(account);
            let (end, is_final) = self.ends.entry(uid.clone()).or_default();
            let was_certain = end.least == end.most;
            end.least = end.least.max(has_ended.into());
            end.most = end.most.max(may_end.into());
            if *is_final {
                if account.is_present && !was_certain {
                    // It is back, and may end although it was not seen to end before.
                    self.final_ends.entry(workload.to_owned()).or_default().most += 1;
                    *end = Range { least: 1, most: 1 };
                }
            } else if has_arrived && status.is_none() && !conditions.may_be_stale {
                let was_quiet = self.quiet_since.is_some_and(|since| since <= account.created_at);
                if track.is_none() && is_new && was_quiet {
                    end.least = 1;
                }
                *is_final = true;
                self.final_ends.entry(workload.to_owned()).or_default().add(*end);
            }
            if !*is_final {
                sums.entry(workload).or_default().add(*end);
            }
        }
        for (workload, [_, ends]) in &counters.workloads {
            let count: i64 = ends.values().sum();
            let Range { least, most } = sums.get(&**workload).copied().unwrap_or_default();
            let finals = self.final_ends.entry(workload.clone()).or_default();
            let before = *finals;
            if !finals.restrict(count - most, count - least) {
                return Err(format!(
                    "{workload}: {count} pods have ended, not {before:?} and {least} to {most}"
                ));
            }
            for ((_, reason), count) in ends {
                let key = (workload.clone(), 1, String::new(), (*reason).to_owned());
                let before = self.of_workloads.get(&key).copied().unwrap_or(0);
                let most = reasons.get(&(workload.as_str(), *reason)).copied().unwrap_or(0);
                if *reason != UNKNOWN && *count > most {
                    return Err(format!(
                        "{workload}: {count} pods have ended with {reason}, but at most {most}"
                    ));
                }
                if *reason == UNKNOWN && *count > before && !conditions.may_be_stale {
                    return Err(format!("{workload}: the end of a pod is unknown without a fault"));
                }
            }
        }
        Ok(())
    }

    /// Compares the counters that exist with the pods that are shown.
    fn check_usual_series(&self, scrape: &Comparison<'_>) -> Result<(), String> {
        let empty = <[Counts<'_>; 2]>::default();
        for uid in scrape.shown.keys() {
            let Some(account) = scrape.accounts.get(uid) else { continue };
            let Some(workload) = account.workload.as_deref() else { continue };
            let [terminations, ends] = scrape.counters.workloads.get(workload).unwrap_or(&empty);
            let [of_containers, of_pods] = USUAL;
            let have = |container| {
                of_containers.iter().all(|r| terminations.contains_key(&(container, *r)))
            };
            let all = account.object.containers().iter().all(|container| have(container))
                && of_pods.iter().all(|reason| ends.contains_key(&("", *reason)));
            if !all {
                return Err(format!("{workload}: the usual counters are missing"));
            }
        }
        Ok(())
    }

    /// Keeps what the next scrape is compared with.
    fn remember(&mut self, scrape: &Comparison<'_>) {
        let Comparison { accounts, counters, shown, conditions, now } = scrape;
        for uid in shown.keys() {
            let Some(account) = accounts.get(uid) else { continue };
            let namespace = account.object.scope.namespace;
            self.first_shown.entry(namespace).or_insert(accounts.last_state);
        }
        let owned = |text: &&str| (*text).to_owned();
        (self.of_pods, self.of_former_pods, self.of_workloads) = Default::default();
        for (workload, families) in &counters.workloads {
            for (family, counts) in families.iter().enumerate() {
                for ((container, reason), count) in counts {
                    let (container, reason) = (owned(container), owned(reason));
                    if family == 0 {
                        let key = (workload.clone(), container.clone(), reason.clone());
                        self.of_former_pods.insert(key, *count);
                    }
                    self.of_workloads.insert((workload.clone(), family, container, reason), *count);
                }
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

impl PodTrack {
    fn new(account: &Account, status: &Status, is_new: bool) -> Self {
        let has_ids = account.object.has_container_ids();
        let containers = status.containers.iter().enumerate().map(|(number, container)| {
            let initial = account.initial.as_ref().map(|initial| &initial.containers[number]);
            let first =
                if account.is_restored { &account.status.containers[number] } else { container };
            let most = if is_new { 0 } else { first.ended.len() as i64 };
            let least = initial.map_or(0, |initial| initial.proven(has_ids) as i64);
            ContainerTrack { base: Range { least, most }, seen: 0, lost: 0 }
        });
        Self {
            containers: containers.collect(),
            removals: account.removals,
            is_shown: true,
            had_not_ended: is_new || status.end.is_none() && !account.is_restored,
            is_known: true,
            is_undisturbed: is_new,
        }
    }

    /// Compares the counters of the last scrape and of this one with a status that is shown.
    fn check(
        &mut self,
        account: &Account,
        status: &Status,
        (before, counts): (Option<&OldCounts>, Option<&Counts<'_>>),
        conditions: Conditions,
    ) -> Result<(), String> {
        let may_be_reset =
            !self.is_shown || self.removals != account.removals || conditions.may_be_dropped;
        (self.removals, self.is_known) = (account.removals, true);
        self.is_undisturbed &= !conditions.may_be_stale;
        let has_ids = account.object.has_container_ids();
        let names: BTreeSet<&str> = account.object.containers().iter().copied().collect();
        if let Some(((name, _), _)) =
            counts.into_iter().flatten().find(|((name, _), _)| !names.contains(name))
        {
            return Err(format!("there is no container {name}"));
        }
        for (number, name) in account.object.containers().iter().enumerate() {
            let track = &mut self.containers[number];
            let ended = &account.status.containers[number].ended;
            let of_container =
                || counts.into_iter().flatten().filter(|((container, _), _)| container == name);
            let sum: i64 = of_container().map(|(_, count)| count).sum();
            let before =
                before.into_iter().flatten().filter(|((container, _), _)| container == name);
            let decreases = before.clone().any(|((_, reason), count)| {
                counts.and_then(|counts| counts.get(&(*name, &**reason))).unwrap_or(&0) < count
            });
            if may_be_reset {
                track.base.most = ended.len() as i64;
            }
            if decreases {
                if !may_be_reset {
                    return Err(format!("a counter of {name} decreases"));
                }
                track.base.least += before.map(|(_, count)| count).sum::<i64>();
            }
            track.seen = track.seen.max(status.containers[number].proven(has_ids) as i64);
            let (base, world) = (track.base, ended.len() as i64);
            if !track.base.restrict(track.seen - sum, world - sum) {
                return Err(format!(
                    "{name} has terminated {sum} times since {base:?}, but {} to {world} times in all",
                    track.seen
                ));
            }
            let among = |range: &[super::status::Termination], reason: &str| {
                range.iter().filter(|one| one.reason == reason).count() as i64
            };
            let since = &ended[track.base.least as usize..];
            for ((_, reason), count) in of_container() {
                let most = among(since, reason);
                if *reason != UNKNOWN && *count > most {
                    return Err(format!(
                        "{name} has {count} terminations {reason}, at most {most}"
                    ));
                }
            }
            let unknown = counts.and_then(|counts| counts.get(&(*name, UNKNOWN))).unwrap_or(&0);
            let lost = unknown - among(since, UNKNOWN);
            let first = (track.base.most as usize).min(track.seen as usize);
            let may_be_lost = unknown - among(&ended[first..track.seen as usize], UNKNOWN);
            if conditions.may_be_stale || may_be_reset || !has_ids && !self.is_undisturbed {
                track.lost = track.lost.max(may_be_lost);
            } else if lost > track.lost {
                return Err(format!("{lost} terminations of {name} are unknown without a fault"));
            }
        }
        Ok(())
    }
}
