//! Compares the ends of pods or jobs with the world's own account, by the rules of the [ledger](super::ledger).

use std::collections::BTreeMap;

use super::accounts::{Account, Accounts};
use super::cluster::Kind;
use super::counters::family;
use super::ledger::{ARRIVAL, Comparison, Range, counts_uid};
use super::status::UNKNOWN;
use crate::kube::shard::Shard;

/// What is known about a pod or job that has been shown.
#[derive(Debug)]
struct Track {
    /// It had not ended when it was first seen.
    had_not_ended: bool,
    /// The ledger knows it, so that it notices its end.
    is_known: bool,
}

/// The number of ends of a pod or job, 0 or 1.
#[derive(Debug, Default)]
struct End {
    number: Range,
    /// It does not change any more, and is part of that of the workload.
    is_final: bool,
    /// It ended before the counters of the workload began again at 0.
    is_old: bool,
    /// The ledger certainly knows of it.
    is_seen: bool,
}

impl End {
    /// Notes that the end is as old as the counters, or the shard, that count it from now on.
    fn age(&mut self, is_counted: bool) {
        if is_counted && !self.is_seen {
            self.number.most = 1;
        }
        self.is_old = true;
    }
}

/// Compares the ends of the objects of one kind.
pub(super) struct EndChecker {
    kind: Kind,
    tracks: BTreeMap<String, Track>,
    ends: BTreeMap<String, End>,
    /// The number of ends that are final, by workload.
    finals: BTreeMap<String, Range>,
    /// The number of objects that have ended with an unknown reason, by workload.
    unknown: BTreeMap<String, i64>,
}

impl EndChecker {
    pub(super) fn new(kind: Kind) -> Self {
        let (tracks, ends, finals, unknown) = Default::default();
        Self { kind, tracks, ends, finals, unknown }
    }

    /// Notes a change of the shard, before the counters that have begun again at 0.
    pub(super) fn reshard(&mut self, accounts: &Accounts, before: Shard, after: Shard) {
        for (uid, account) in accounts.of_kind(self.kind) {
            let counts = [before, after].map(|shard| counts_uid(shard, &account.workload_uid));
            if counts[0] != counts[1] && may_end(account) {
                let end = self.ends.entry(uid.clone()).or_default();
                if !end.is_final {
                    end.age(true);
                }
            }
        }
    }

    /// Notes that the counters of a workload have just begun again at 0, or may have.
    pub(super) fn restart(
        &mut self,
        accounts: &Accounts,
        workload: &str,
        shard: Shard,
        is_certain: bool,
    ) {
        for (uid, account) in accounts.of_kind(self.kind) {
            let has_ended = account.status.end.is_some() || account.removals > 0;
            if account.workload.as_deref() == Some(workload) && has_ended {
                let end = self.ends.entry(uid.clone()).or_default();
                end.number.least = 0;
                if is_certain {
                    end.number.most = 0;
                }
                end.age(may_end(account) && counts_uid(shard, &account.workload_uid));
            }
        }
        if is_certain {
            self.finals.remove(workload);
        } else if let Some(finals) = self.finals.get_mut(workload) {
            finals.least = 0;
        }
        self.unknown.remove(workload);
    }

    /// Compares the counters of a scrape.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub(super) fn check(&mut self, scrape: &Comparison<'_>) -> Result<(), String> {
        let Comparison { accounts, counters, shown, conditions, now, .. } = scrape;
        for (uid, track) in &mut self.tracks {
            track.is_known &= shown.contains_key(&**uid) || !conditions.may_be_dropped;
        }
        let mut sums: BTreeMap<&str, Range> = BTreeMap::new();
        let mut reasons: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for (uid, account) in accounts.of_kind(self.kind) {
            let Some(workload) = account.workload.as_deref() else { continue };
            for reason in &account.ends {
                *reasons.entry((workload, *reason)).or_default() += 1;
            }
            let status = shown.get(&**uid);
            let is_new = scrape.is_new(account);
            if let Some(status) = status {
                let new = || Track {
                    had_not_ended: is_new || status.end.is_none() && !account.is_restored,
                    is_known: true,
                };
                let track = self.tracks.entry(uid.clone()).or_insert_with(new);
                // The ledger may have forgotten an object that was dropped: what it reports then is old.
                track.had_not_ended &= track.is_known || status.end.is_none();
                track.is_known = true;
            }
            let track = self.tracks.get(uid);
            let has_ended = track.is_some_and(|track| {
                track.had_not_ended
                    && match status {
                        Some(status) => status.end.is_some(),
                        None => track.is_known && account.removals > 0,
                    }
            });
            let has_arrived =
                !account.is_present && account.removed_at.is_some_and(|at| at + ARRIVAL < *now);
            let End { number: end, is_final, is_old, is_seen } =
                self.ends.entry(uid.clone()).or_default();
            let was_certain = end.least == end.most;
            let is_counted = scrape.counts(account);
            *is_seen |= has_ended;
            if !*is_old && is_counted {
                end.least = end.least.max(has_ended.into());
                end.most = end.most.max(may_end(account).into());
            }
            if *is_final {
                if account.is_present && !was_certain && is_counted {
                    // It is back, and may end although it was not seen to end before.
                    self.finals.entry(workload.to_owned()).or_default().most += 1;
                    *end = Range { least: 1, most: 1 };
                }
            } else if has_arrived && status.is_none() && !conditions.may_be_stale {
                let was_quiet = scrape.quiet_since.is_some_and(|since| since <= account.created_at);
                if track.is_none() && is_new && was_quiet && !*is_old && is_counted {
                    end.least = 1;
                }
                *is_final = true;
                self.finals.entry(workload.to_owned()).or_default().add(*end);
            }
            if !*is_final {
                sums.entry(workload).or_default().add(*end);
            }
        }
        for (workload, families) in &counters.workloads {
            if !scrape.shows(workload) {
                continue;
            }
            let ends = &families[family(self.kind)];
            let count: i64 = ends.values().sum();
            let Range { least, most } = sums.get(&**workload).copied().unwrap_or_default();
            let finals = self.finals.entry(workload.clone()).or_default();
            let before = *finals;
            if !finals.restrict(count - most, count - least) {
                let of_workload = accounts.of_kind(self.kind).filter(|(uid, account)| {
                    account.workload.as_ref() == Some(workload) && self.ends.contains_key(*uid)
                });
                let ends: Vec<_> =
                    of_workload.map(|(uid, account)| (&self.ends[uid], account)).collect();
                return Err(format!(
                    "{workload}: {count} of {:?} have ended, not {before:?} and {least} to {most}: {ends:?}",
                    self.kind
                ));
            }
            for ((_, reason), count) in ends {
                let most = reasons.get(&(workload.as_str(), *reason)).copied().unwrap_or(0);
                if *reason != UNKNOWN && *count > most {
                    return Err(format!(
                        "{workload}: {count} of {:?} have ended with {reason}, but at most {most}",
                        self.kind
                    ));
                }
                if *reason == UNKNOWN {
                    let before = self.unknown.insert(workload.clone(), *count).unwrap_or(0);
                    if *count > before && !conditions.may_be_stale && scrape.was_shown(workload) {
                        return Err(format!("{workload}: an end is unknown without a fault"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a pod or job has had an end that the ledger may count.
fn may_end(account: &Account) -> bool {
    let had_ended = account.initial.as_ref().is_some_and(|initial| initial.end.is_some());
    !had_ended && (account.status.end.is_some() || account.removals > 0)
}
