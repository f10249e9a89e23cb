//! Compares the occurrences of Kubernetes Events with the world's own account, by the rules of the
//! [ledger](super::ledger).
//!
//! No scrape names the state of an Event, so that a count is compared with the occurrences at the time of the scrape and
//! with those that have certainly arrived. An occurrence counts for the workload of the object that its Event is about, or
//! for none if that is not known in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::accounts::{Account, Accounts};
use super::cluster::Kind;
use super::counters::EventKey;
use super::ledger::{ARRIVAL, Comparison, Range};
use crate::kube::shard::{Ownership, Shard};

/// The longest time for which an occurrence waits for the workload of its object.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The time for which a deleted object is certainly remembered.
const REMEMBERED: Duration = Duration::from_secs(30);

/// What is known about an Event.
#[derive(Debug)]
struct Track {
    /// The number of its occurrences that are not counted since the last restart, because they are older.
    base: Range,
    /// The number of occurrences that have certainly been seen.
    certain: i64,
    /// A number of occurrences is certain.
    is_settled: bool,
    /// The counted occurrences from before the last restart.
    kept: Range,
    /// The number of occurrences that have certainly been counted for the workload since the last restart.
    of_workload: i64,
}

/// Compares the counters of Kubernetes Events.
#[derive(Default)]
pub(super) struct EventChecker {
    /// The last state of the world when Events had certainly been listed.
    listed: Option<u64>,
    tracks: BTreeMap<String, Track>,
}

/// Returns the counter of the occurrences of an Event, with the workload of its object, if there is one.
fn key_of<'c>(accounts: &'c Accounts, account: &'c Account) -> Option<EventKey<'c>> {
    let object = &account.object;
    let subject = object.subject.as_ref()?;
    let namespace = object.scope.namespace;
    let workload = match subject.kind {
        "Rollout" => Some(format!("{namespace}/rollout/{}", subject.name)),
        _ => accounts.get(&subject.uid)?.workload.clone(),
    };
    let (reason, event_type) = object.reason_and_type();
    let workload = workload.unwrap_or_else(|| without_workload(namespace));
    Some(EventKey { workload, kind: subject.kind, reason, event_type })
}

/// Returns the name of the counters of a namespace's Events about objects without a workload.
pub(super) fn without_workload(namespace: &str) -> String {
    format!("{namespace}//")
}

fn namespace_of(workload: &str) -> &str {
    workload.split('/').next().unwrap_or_default()
}

impl Track {
    fn new(account: &Account) -> Self {
        let initial = account.initial.as_ref().map_or(0, |status| status.occurrences).into();
        let (base, kept) = (Range { least: initial, most: 0 }, Range::default());
        Self { base, certain: initial, is_settled: false, kept, of_workload: 0 }
    }

    /// Returns the number of occurrences that have been counted since the last restart, of `total` in all.
    fn counted(&self, total: i64) -> Range {
        Range {
            least: (self.certain - self.base.most).max(0),
            most: (total - self.base.least).max(0),
        }
    }

    /// Notes that the counters may have begun again at 0, or that occurrences begin or end to be counted.
    fn restart(&mut self, total: i64, keeps: Keeps) {
        let counted = self.counted(total);
        match keeps {
            Keeps::All => self.kept.add(counted),
            Keeps::Some => self.kept = Range { least: 0, most: self.kept.most + counted.most },
            Keeps::Former => {}
        }
        self.base = Range { least: self.certain, most: total };
        self.of_workload = 0;
    }
}

/// What is left of the counted occurrences of an Event after a restart.
#[derive(Clone, Copy)]
enum Keeps {
    All,
    /// Some or none of them.
    Some,
    /// None was counted since the last restart.
    Former,
}

impl EventChecker {
    /// Notes that the counters of a workload, or of a namespace without one, have begun again at 0.
    pub(super) fn restart(&mut self, accounts: &Accounts, workload: &str) {
        for (uid, account) in accounts.of_kind(Kind::Event) {
            let Some(key) = key_of(accounts, account) else { continue };
            let track = self.tracks.entry(uid.clone()).or_insert_with(|| Track::new(account));
            let is_alone = workload == without_workload(account.object.scope.namespace);
            if is_alone || key.workload == workload {
                track.restart(account.status.occurrences.into(), Keeps::Some);
            }
        }
    }

    /// Notes a change of the shard.
    pub(super) fn reshard(&mut self, accounts: &Accounts, before: Shard) {
        for (uid, account) in accounts.of_kind(Kind::Event) {
            let Some(subject) = &account.object.subject else { continue };
            let track = self.tracks.entry(uid.clone()).or_insert_with(|| Track::new(account));
            let keeps = match subject.kind {
                "Node" if counts_alone(before, &subject.uid) => Keeps::All,
                "Node" => Keeps::Former,
                _ => Keeps::Some,
            };
            track.restart(account.status.occurrences.into(), keeps);
        }
    }

    /// Compares the counters of a scrape.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub(super) fn check(&mut self, scrape: &Comparison<'_>) -> Result<(), String> {
        let Comparison { accounts, counters, conditions, quiet_since, now, .. } = scrape;
        let mut sums: BTreeMap<EventKey<'_>, Range> = BTreeMap::new();
        let mut of_workloads: BTreeMap<EventKey<'_>, Range> = BTreeMap::new();
        let is_quiet = !conditions.may_be_stale;
        let was_quiet = quiet_since.is_some_and(|since| since < *now);
        for (uid, account) in accounts.of_kind(Kind::Event) {
            let (Some(key), Some(subject)) =
                (key_of(accounts, account), account.object.subject.as_ref())
            else {
                continue;
            };
            let total = i64::from(account.status.occurrences);
            let is_new = self.listed.is_some_and(|listed| account.created() > listed)
                && !account.is_restored;
            let track = self.tracks.entry(uid.clone()).or_insert_with(|| Track::new(account));
            if !track.is_settled && !is_new {
                track.base.most = total;
            }
            let of_subject = accounts.get(&subject.uid);
            let has_workload = of_subject.is_some_and(|subject| subject.workload.is_some());
            let is_placed = has_workload
                && was_quiet
                && of_subject.is_some_and(|subject| is_known(subject, *quiet_since, *now));
            let may_wait = !is_placed && subject.kind != "Node";
            let delay = if may_wait { ARRIVAL + MAX_WAIT } else { ARRIVAL };
            let has_waited = !may_wait || quiet_since.is_some_and(|since| since + delay <= *now);
            // It existed when the faults were over.
            let was_seen = account.is_present
                || account.removed_at.zip(*quiet_since).is_some_and(|(at, since)| at > since);
            // What a backup has undone arrives again with the next report.
            let has_arrived = !account.is_set_back
                && account.reported_at.is_none_or(|reported| reported + delay <= *now);
            if is_quiet && was_seen && has_waited && has_arrived {
                // What was reported before the end of a fault may have arrived before the object.
                let before = quiet_since.map_or(total, |since| account.occurrences_before(since));
                let before = before.max(track.certain).max(track.base.most);
                track.certain = track.certain.max(account.occurrences_before(*now - delay));
                track.is_settled = true;
                if is_placed {
                    track.of_workload += (track.certain - before).max(0);
                }
            }
            let mut counted = track.counted(total);
            // The same for the object without a workload, which shards divide.
            let alone = counts_alone(scrape.shard, &subject.uid);
            let of_workload = has_workload || subject.kind == "Rollout";
            let is_shown = scrape.shows(&key.workload);
            let may_count = alone || of_workload && scrape.may_count(&key.workload);
            if !may_count {
                counted = Range::default();
            } else if !alone || of_workload && !is_shown {
                counted.least = 0;
            }
            counted.add(track.kept);
            if account.is_forgotten {
                counted.most += total;
            }
            let of_namespace = without_workload(account.object.scope.namespace);
            sums.entry(EventKey { workload: of_namespace, ..key.clone() })
                .or_default()
                .add(counted);
            if of_workload {
                let least = if is_shown { track.of_workload } else { 0 };
                of_workloads.entry(key).or_default().add(Range { least, most: counted.most });
            }
        }
        if is_quiet {
            self.listed.get_or_insert(accounts.last_state);
        }
        let mut counts: BTreeMap<EventKey<'_>, i64> = BTreeMap::new();
        for (key, count) in &counters.events {
            let workload = without_workload(namespace_of(&key.workload));
            *counts.entry(EventKey { workload, ..key.clone() }).or_default() += count;
        }
        compare(&counts, &sums)?;
        let is_of_workload = |key: &EventKey<'_>| !key.workload.ends_with("//");
        let counts = counters.events.iter().filter(|(key, _)| is_of_workload(key));
        compare(&counts.map(|(key, count)| (key.clone(), *count)).collect(), &of_workloads)
    }
}

/// Returns whether the workload of an object is certainly known: it is there, or it is a pod that was there for a while without
/// faults and is remembered.
fn is_known(subject: &Account, quiet_since: Option<Instant>, now: Instant) -> bool {
    let was_seen = subject.removed_at.zip(quiet_since).is_some_and(|(at, since)| {
        subject.created_at.max(since) + ARRIVAL <= at && now < at + REMEMBERED
    });
    let is_pod = subject.object.scope.kind == Kind::Pod;
    !subject.is_restored && (subject.is_present || is_pod && was_seen)
}

/// Returns whether a shard counts the occurrences of Events about an object without a workload.
fn counts_alone(shard: Shard, uid: &str) -> bool {
    matches!(shard.ownership(uid.as_bytes()), Ownership::Kept | Ownership::Gained)
}

fn compare(
    counts: &BTreeMap<EventKey<'_>, i64>,
    ranges: &BTreeMap<EventKey<'_>, Range>,
) -> Result<(), String> {
    let keys: BTreeSet<_> = counts.keys().chain(ranges.keys()).collect();
    for key in keys {
        let count = counts.get(key).copied().unwrap_or(0);
        let Range { least, most } = ranges.get(key).copied().unwrap_or_default();
        if count < least || count > most {
            return Err(format!("{key:?}: {count} occurrences, not {least} to {most}"));
        }
    }
    Ok(())
}
