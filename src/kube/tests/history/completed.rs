//! Completed pods, which lose their series some time after their end (`--drop-completed-pods-after`).
//!
//! The wall clock shows the number of the world's last state in seconds of 2026, as all times in objects do, so it is fast
//! and irregular. The client reads it at the beginning of each list, and computes from that reading when to drop a pod.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::BOOKMARK_INTERVAL;
use super::encode::YEAR;
use super::server::Server;
use crate::util::wall_clock::simulation::{Simulated, simulate};

/// The longest time from the next bookmark until a pod is dropped.
const DELAY: Duration = Duration::from_secs(2);

/// A reading of the wall clock, with its time.
type Reading = (Instant, u64);

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
}

impl Dropped {
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
            noted.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), second));
            (YEAR + second).cast_signed()
        });
        Self { after, readings, _clock: clock }
    }

    /// Returns which pods a scrape shows. Since `quiet`, there is no fault.
    pub fn dropped(&self, now: Instant, quiet: Instant) -> Dropped {
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        // By a reading of the clock, those are due that ended up to this second.
        let due = |(at, second): &Reading, now: Instant| {
            let passed = now.checked_duration_since(*at)?;
            Some((second + passed.as_secs()).cast_signed() - self.after.as_secs().cast_signed())
        };
        let possible = readings.iter().filter_map(|reading| due(reading, now)).max();
        // The client looks after each event and bookmark.
        let looked = now.checked_sub(BOOKMARK_INTERVAL + DELAY).filter(|looked| *looked >= quiet);
        let certain = looked.and_then(|looked| {
            readings.iter().map(|reading| due(reading, looked).unwrap_or(i64::MIN)).min()
        });
        Dropped { possible: possible.unwrap_or(i64::MIN), certain: certain.unwrap_or(i64::MIN) }
    }
}
