//! Completed pods, which lose their series some time after their end (`--drop-completed-pods-after`).
//!
//! The wall clock shows the number of the world's last state in seconds of 2026, as all times in objects do, so it is fast
//! and irregular. The client reads it whenever it looks for pods to drop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::cluster::BOOKMARK_INTERVAL;
use super::encode::YEAR;
use super::scenario::Scenario;
use super::server::Server;
use crate::util::wall_clock::simulation::{Simulated, simulate};

/// The longest time from the next bookmark until a pod is dropped.
const DELAY: Duration = Duration::from_secs(2);

/// A new reading of the wall clock, with its time.
type Reading = (Instant, u64);

impl Scenario {
    /// Lets completed pods lose their series, in half of the histories soon, so that many do before pods are listed again.
    pub(super) fn drop_completed(&mut self, rng: &mut Rng) {
        let seconds = rng.u64(1..400);
        let divisor = if seconds.is_multiple_of(2) { 10 } else { 1 };
        self.drop_completed_after = Some(Duration::from_secs(1 + seconds / divisor));
    }
}

/// The drop of completed pods.
pub struct Completed {
    after: Duration,
    readings: Arc<Mutex<Vec<Reading>>>,
    _clock: Simulated,
}

/// The pods that a scrape may or must not show, by the second in which they ended.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// Those that ended up to this second may be dropped.
    possible: i64,
    /// Those that ended up to this second must be dropped.
    certain: i64,
    /// The time before which everything is known: there was no fault since.
    known: Option<Instant>,
}

impl Dropped {
    /// Returns true if the process has certainly dropped a pod that ended at this second, which this state was the first to say.
    pub fn has_certainly(self, ended: Option<u64>, state: u64) -> bool {
        self.shows(ended) == Some(false) && state.cast_signed() <= self.certain
    }

    /// Returns true if the process certainly knows what had happened by this time.
    pub fn certainly_knows(self, time: Instant) -> bool {
        self.known.is_some_and(|known| time < known)
    }

    /// Returns whether a pod that ended at this second is shown, or `None` if it need not be.
    pub fn shows(self, ended: Option<u64>) -> Option<bool> {
        match ended.map(u64::cast_signed) {
            Some(ended) if ended <= self.certain => Some(false),
            Some(ended) if ended <= self.possible => None,
            _ => Some(true),
        }
    }
}

impl Completed {
    /// Drops pods this time after their end.
    pub fn new(server: &Arc<Server>, after: Duration) -> Self {
        let readings = Arc::<Mutex<Vec<Reading>>>::default();
        let (server, noted) = (Arc::clone(server), Arc::clone(&readings));
        let clock = simulate(move || {
            let second = server.cluster().second();
            note(&noted, second);
            (YEAR + second).cast_signed()
        });
        Self { after, readings, _clock: clock }
    }

    /// Returns which pods a scrape at this second of the wall clock shows. Since `quiet`, there is no fault.
    pub fn dropped(&self, now: Instant, second: u64, quiet: Instant) -> Dropped {
        note(&self.readings, second);
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |second: u64| second.cast_signed() - self.after.as_secs().cast_signed();
        let possible = readings.iter().map(|(_, second)| due(*second)).max();
        // The client has looked since then: after each event and bookmark.
        let looked = now.checked_sub(BOOKMARK_INTERVAL + DELAY).filter(|looked| *looked >= quiet);
        let certain = looked.and_then(|looked| {
            let before = readings.partition_point(|(at, _)| *at <= looked).checked_sub(1)?;
            readings[before..].iter().map(|(_, second)| due(*second)).min()
        });
        Dropped {
            possible: possible.unwrap_or(i64::MIN),
            certain: certain.unwrap_or(i64::MIN),
            known: looked,
        }
    }
}

fn note(readings: &Mutex<Vec<Reading>>, second: u64) {
    let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
    if readings.last().is_none_or(|(_, last)| *last != second) {
        readings.push((Instant::now(), second));
    }
}
