//! The limit of objects in a history (`--object-limit`): kinds have more objects than it, and sometimes room again.
//!
//! A scrape shows any objects of a kind up to the limit, each of them as a whole. What is left out is unknown until it
//! returns. Then:
//!
//! - No kind shows more objects than the limit, in all namespaces together.
//! - An object is only missing if the kind had more objects at the time, or has not returned yet.
//! - Missing objects return in time once there is room.
//! - A kind is listed for them once in each interval, and not again when it is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::checker::Fits;
use super::cluster::{KINDS, Kind, Scope};
use super::limits::{identity, states_since};
use super::server::Server;
use super::snapshot::Snapshot;
use crate::tests::{hash, time_bound};

/// The time within which left-out objects return, once there is room.
static RETURN: LazyLock<Duration> =
    LazyLock::new(|| time_bound("objects return when a budget has room for them"));
/// The interval of the lists for left-out objects.
const LIST_INTERVAL: Duration = Duration::from_secs(36);
/// The longest time from a change to a scrape that shows it, without faults.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(2);

/// A time without faults in which something has held for a kind, with the number of its lists at the beginning.
#[derive(Clone, Copy)]
pub(super) struct Period {
    pub(super) since: Instant,
    pub(super) lists: u64,
}

/// The limit of a history.
pub struct ObjectLimit {
    limit: u64,
    /// The time of the last scrape.
    last: Instant,
    /// The end of the last time in which scrapes may have been stale.
    stale_until: Instant,
    /// The time since which there has been room for missing objects of a kind.
    room: BTreeMap<Kind, Instant>,
    /// The time without faults.
    quiet: BTreeMap<Kind, Period>,
    /// The time in which a kind has been complete and within the limit.
    complete: BTreeMap<Kind, Period>,
}

impl ObjectLimit {
    pub fn new(limit: u64) -> Self {
        let now = Instant::now();
        let (room, quiet, complete) = Default::default();
        Self { limit, last: now, stale_until: now, room, quiet, complete }
    }

    /// Compares a scrape with the limit.
    ///
    /// # Errors
    /// Describes the difference.
    pub fn check(
        &mut self,
        snapshots: &BTreeMap<Scope, Vec<Snapshot>>,
        lines: &[&str],
        fits: &Fits,
        (server, may_be_stale): (&Server, bool),
    ) -> Result<(), String> {
        let now = Instant::now();
        let last = std::mem::replace(&mut self.last, now);
        if may_be_stale {
            self.stale_until = now;
            (self.room, self.quiet, self.complete) = Default::default();
        }
        for kind in KINDS {
            let of_kind = lines.iter().filter(|line| Kind::of_line(line) == Some(kind));
            let shown = of_kind.map(|line| identity(line)).collect::<BTreeSet<&str>>().len() as u64;
            if shown > self.limit {
                return Err(format!("{kind:?}: {shown} objects, limit {}", self.limit));
            }
            if !may_be_stale {
                let fits = fits.iter().filter(|(scope, _)| scope.kind == kind);
                let history: Vec<&[Snapshot]> = snapshots
                    .iter()
                    .filter(|(scope, _)| scope.kind == kind)
                    .map(|(_, snapshots)| &snapshots[..])
                    .collect();
                // Others may be on their way.
                let arrived = now.checked_sub(IN_FLIGHT).unwrap_or(now);
                let has_arrived = |line: &&String| has_had(&history, line, arrived);
                let missing = fits.flat_map(|(_, fit)| &fit.missing).filter(has_arrived);
                let missing: Vec<&String> = missing.collect();
                self.check_kind(kind, &history, (shown, &missing), (server, last))
                    .map_err(|why| format!("{kind:?}: {why}"))?;
            }
        }
        Ok(())
    }

    fn check_kind(
        &mut self,
        kind: Kind,
        history: &[&[Snapshot]],
        (shown, missing): (u64, &[&String]),
        (server, last): (&Server, Instant),
    ) -> Result<(), String> {
        let (now, lists) = (Instant::now(), server.answered_lists(kind));
        let scopes = history.len() as u64;
        let quiet = *self.quiet.entry(kind).or_insert(Period { since: now, lists });
        let intervals = (now - quiet.since).as_secs() / LIST_INTERVAL.as_secs() + 2;
        if lists - quiet.lists > scopes * intervals {
            let seconds = (now - quiet.since).as_secs();
            return Err(format!("{} lists in {seconds} s without faults", lists - quiet.lists));
        }
        // The decision about an object may be as old as the return is late.
        let window = now.checked_sub(*RETURN).unwrap_or(now);
        if !missing.is_empty() && self.stale_until < window {
            let most = population(history, window);
            if most <= self.limit {
                return Err(format!("{missing:?} is missing, although there were only {most}"));
            }
        }
        if missing.is_empty() || shown >= self.limit {
            self.room.remove(&kind);
        } else {
            let since = *self.room.entry(kind).or_insert(now);
            if now - since > *RETURN {
                let seconds = (now - since).as_secs();
                return Err(format!("{missing:?} is missing, with room for {seconds} s"));
            }
        }
        let recent = last.checked_sub(IN_FLIGHT).unwrap_or(last);
        if !missing.is_empty() || population(history, recent) > self.limit {
            self.complete.remove(&kind);
            return Ok(());
        }
        let complete = *self.complete.entry(kind).or_insert(Period { since: now, lists });
        // A list/watch that has left objects out notices once that they are gone, or have changed and are shown.
        if lists - complete.lists > scopes {
            let seconds = (now - complete.since).as_secs();
            let more = lists - complete.lists;
            return Err(format!("{more} lists in {seconds} s, although nothing is left out"));
        }
        Ok(())
    }
}

/// Returns true if the cluster had a series at this time.
pub(super) fn has_had(history: &[&[Snapshot]], line: &str, at: Instant) -> bool {
    let series = hash(line.as_bytes());
    history.iter().any(|snapshots| {
        let mut states = states_since(std::slice::from_ref(snapshots), at);
        states.next().is_some_and(|state| state.has(series))
    })
}

/// Returns the sum of the largest numbers of objects that each scope has had since a time.
fn population(history: &[&[Snapshot]], from: Instant) -> u64 {
    let most = |snapshots: &&[Snapshot]| {
        let states = states_since(std::slice::from_ref(snapshots), from);
        states.map(|state| state.objects.len() as u64).max().unwrap_or_default()
    };
    history.iter().map(most).sum()
}
