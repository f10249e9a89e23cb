//! How many different members a set had: an estimate over a sliding window.
//!
//! Each part of the window is a [`sketch::Distinct`](crate::sketch::Distinct), exact while it is small. The window works
//! as that of a summary, in parts of `max_age / age_buckets`.

use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};

use super::summary::SummarySpec;
use crate::sketch::Distinct as Part;
use crate::statsd::clock::Moment;

/// One key for the process, so that a sender cannot choose members that collide.
static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// What all series of a set share: the window, taken from the summary options.
#[derive(Debug)]
pub(crate) struct SetSpec {
    interval: u64,
    parts: u32,
}

impl SetSpec {
    /// The window of `summary`.
    pub(crate) fn new(summary: &SummarySpec) -> Self {
        let (interval, parts) = summary.window();
        Self { interval, parts }
    }
}

/// The aggregate of one series.
#[derive(Debug)]
pub(crate) struct Distinct {
    spec: Arc<SetSpec>,
    parts: Box<[Part]>,
    newest: usize,
    next_rotation: u64,
}

impl Distinct {
    /// An empty set whose window starts now.
    pub(crate) fn new(spec: Arc<SetSpec>, now: Moment) -> Self {
        let parts = (0..spec.parts.max(1)).map(|_| Part::default()).collect();
        let next_rotation = now.nanos().saturating_add(spec.interval);
        Self { spec, parts, newest: 0, next_rotation }
    }

    fn rotate(&mut self, now: Moment) {
        if now.nanos() <= self.next_rotation {
            return;
        }
        let turns = (now.nanos() - self.next_rotation).div_ceil(self.spec.interval);
        self.next_rotation =
            self.next_rotation.saturating_add(turns.saturating_mul(self.spec.interval));
        for _ in 0..turns.min(self.parts.len() as u64) {
            self.newest = (self.newest + 1) % self.parts.len();
            if let Some(part) = self.parts.get_mut(self.newest) {
                *part = Part::default();
            }
        }
    }

    /// Takes a member in.
    pub(crate) fn insert(&mut self, member: &[u8], now: Moment) {
        self.rotate(now);
        let hash = HASHER.hash_one(member);
        if let Some(part) = self.parts.get_mut(self.newest) {
            part.insert(hash);
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.parts) + self.parts.iter().map(Part::heap_bytes).sum::<usize>()
    }

    /// Estimated number of different members in the window; exact while it is small.
    pub(crate) fn estimate(&mut self, now: Moment) -> f64 {
        self.rotate(now);
        let mut union = Part::default();
        for part in &self.parts {
            union.merge(part);
        }
        union.count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::clock::Clock;
    use crate::statsd::mapper::SummaryOptions;
    use std::time::Duration;

    fn set(clock: &Clock, max_age: Duration, age_buckets: u32) -> Distinct {
        let summary =
            SummarySpec::new(&SummaryOptions { max_age, age_buckets, ..SummaryOptions::default() });
        Distinct::new(Arc::new(SetSpec::new(&summary)), clock.now())
    }

    #[test]
    fn small_sets_are_exact() {
        let clock = Clock::manual();
        let mut set = set(&clock, Duration::ZERO, 0);
        for round in 0..3 {
            for member in 0..200 {
                set.insert(format!("user{member}").as_bytes(), clock.now());
            }
            assert_eq!(set.estimate(clock.now()), 200.0, "round {round}");
        }
    }

    #[test]
    fn large_sets_are_within_five_standard_errors() {
        let clock = Clock::manual();
        let mut set = set(&clock, Duration::ZERO, 0);
        let mut next = 0u32;
        for size in [300u32, 1_000, 10_000, 100_000, 300_000] {
            while next < size {
                set.insert(&next.to_le_bytes(), clock.now());
                next += 1;
            }
            let got = set.estimate(clock.now());
            let error = (got - f64::from(size)).abs() / f64::from(size);
            assert!(error < 5.0 * 0.0163, "{got} for {size}");
        }
    }

    #[test]
    fn members_leave_with_the_window() {
        let clock = Clock::manual();
        let mut set = set(&clock, Duration::from_secs(10), 2);
        set.insert(b"a", clock.now());
        clock.advance(Duration::from_secs(6));
        set.insert(b"b", clock.now());
        assert_eq!(set.estimate(clock.now()), 2.0);
        clock.advance(Duration::from_secs(5));
        assert_eq!(set.estimate(clock.now()), 1.0);
        clock.advance(Duration::from_secs(50));
        assert_eq!(set.estimate(clock.now()), 0.0);
    }
}
