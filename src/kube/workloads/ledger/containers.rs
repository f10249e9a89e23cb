//! The terminations of one container, derived from the successive states of its status.
//!
//! `restartCount` is the number of the current run of the container, so it proves that all earlier runs have ended. The
//! current run has ended if `state` says so, or if `lastState` describes it while the container waits. Runs that ended
//! between two states without being described are counted as unseen.

use crate::cache::fnv1a64;
use crate::resources::kinds::pods::{ContainerStatus, Terminated};

/// The part of a container's past that has been counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerRecord {
    /// The last `restartCount`.
    restarts: u32,
    /// The number of runs that are known to have ended.
    ended: u32,
    /// The smallest number of ended runs that was reported since it went back below `ended`.
    low: Option<u32>,
    /// The identity of the latest described termination, and its time in unix seconds.
    last: u64,
    last_at: i64,
}

impl Default for ContainerRecord {
    fn default() -> Self {
        Self { restarts: 0, ended: 0, low: None, last: 0, last_at: i64::MIN }
    }
}

impl ContainerRecord {
    /// Takes the next state of the container. Calls `report` with each described termination that is new, and then with
    /// `None` and the number of unseen ones.
    pub(super) fn observe(
        &mut self,
        status: &ContainerStatus<'_>,
        mut report: impl FnMut(Option<&Terminated<'_>>, u32),
    ) {
        let restarts = u32::try_from(status.restart_count).unwrap_or_default();
        let last = status.last_state.terminated.as_ref();
        let waits = status.state.running.is_none() && status.state.terminated.is_none();
        let of_current =
            last.filter(|last| waits && self.is_of_current_run(status, last, restarts));
        let current = status.state.terminated.as_ref().or(of_current);
        let previous = last.filter(|_| of_current.is_none());
        let proven = restarts.saturating_add(u32::from(current.is_some()));
        let is_restart = restarts > self.restarts || proven > self.ended;
        self.restarts = restarts;
        let newest = current.or(previous);
        let new = if proven > self.ended {
            proven - self.ended
        } else if newest.is_some_and(|newest| {
            // An older state may show the end before, in the same second.
            let may_be_same = proven < self.ended && newest.finished_at.unix() == self.last_at;
            self.is_later(newest) && !may_be_same
        }) {
            // The counter has been reset, or does not count all restarts.
            proven.saturating_sub(self.low.unwrap_or(proven)).max(1)
        } else {
            if proven < self.ended {
                self.low = Some(self.low.map_or(proven, |low| low.min(proven)));
            }
            return;
        };
        let described = [current, previous.filter(|_| current.is_none() || is_restart)];
        let mut seen = 0;
        for terminated in described.into_iter().flatten() {
            if seen < new && identity(terminated) != self.last {
                report(Some(terminated), 1);
                seen += 1;
            }
        }
        if new > seen {
            report(None, new - seen);
        }
        (self.ended, self.low) = (proven, None);
        if let Some(newest) = newest {
            (self.last, self.last_at) = (identity(newest), newest.finished_at.unix());
        }
    }

    /// Returns whether `lastState` of a waiting container describes the run with the number `restartCount`.
    fn is_of_current_run(
        &self,
        status: &ContainerStatus<'_>,
        last: &Terminated<'_>,
        restarts: u32,
    ) -> bool {
        if !status.container_id.is_empty() && !last.container_id.is_empty() {
            return status.container_id == last.container_id;
        }
        // The ends of all earlier runs have been counted, so a new end is that of this run.
        let is_new = self.ended >= restarts && self.is_later(last);
        let is_counted = self.ended > restarts && identity(last) == self.last;
        restarts == 0 || is_new || is_counted
    }

    /// Returns whether a termination is none that was counted before. A server restored from a backup shows older ones.
    fn is_later(&self, terminated: &Terminated<'_>) -> bool {
        identity(terminated) != self.last && terminated.finished_at.unix() >= self.last_at
    }
}

/// Returns a hash that tells a termination from others of the container.
fn identity(terminated: &Terminated<'_>) -> u64 {
    let Terminated { container_id, exit_code, reason, started_at, finished_at, .. } = terminated;
    if !container_id.is_empty() {
        return fnv1a64(container_id.as_bytes());
    }
    let (started, finished) = (started_at.unix(), finished_at.unix());
    fnv1a64(format!("{started} {finished} {exit_code} {}", &**reason).as_bytes())
}
