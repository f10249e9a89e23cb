//! The terminations of one pod that is shown, compared with its account.

use std::collections::{BTreeMap, BTreeSet};

use super::accounts::Account;
use super::counters::Counts;
use super::ledger::{Conditions, Range};
use super::status::{Status, Termination, UNKNOWN};

/// The terminations of a pod at the last scrape, by container and reason.
pub(super) type OldCounts = BTreeMap<(String, String), i64>;

/// What is known about the terminations of a container.
#[derive(Debug)]
pub(super) struct ContainerTrack {
    /// The number of terminations that are not counted because they are older than the counter.
    pub(super) base: Range,
    /// The largest number that a scrape has proven.
    pub(super) seen: i64,
    /// The number of terminations that may be unknown although a status described them.
    lost: i64,
}

/// What is known about a pod that has been shown.
#[derive(Debug)]
pub(super) struct PodTrack {
    pub(super) containers: Vec<ContainerTrack>,
    /// Its removals by the time of the last scrape.
    removals: u32,
    pub(super) is_shown: bool,
    /// It was created after its namespace was first shown, and there has been no fault since.
    is_undisturbed: bool,
}

impl PodTrack {
    pub(super) fn new(account: &Account, status: &Status, is_new: bool) -> Self {
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
            is_undisturbed: is_new,
        }
    }

    /// Compares the counters of the last scrape and of this one with a status that is shown.
    pub(super) fn check(
        &mut self,
        account: &Account,
        status: &Status,
        (before, counts): (Option<&OldCounts>, Option<&Counts<'_>>),
        conditions: Conditions,
    ) -> Result<(), String> {
        let may_be_reset =
            !self.is_shown || self.removals != account.removals || conditions.may_be_dropped;
        self.removals = account.removals;
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
            let among = |range: &[Termination], reason: &str| {
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
