//! The number of distinct members of a set, estimated over a sliding window.
//!
//! The window has parts of `max_age / age_buckets`, as that of a summary. Each part is a [`HyperLogLog`],
//! which is exact while it is small.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use super::summary::Window;
use crate::statsd::clock::Moment;
use crate::util::hyper_log_log::HyperLogLog;

/// A seed per process, so that a sender cannot choose colliding members.
static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// The aggregate of one series.
#[derive(Debug)]
pub(crate) struct Distinct {
    window: Window,
    parts: Box<[HyperLogLog]>,
    newest: usize,
    next_rotation: u64,
}

impl Distinct {
    /// Creates an empty set whose window starts now.
    pub(crate) fn new(window: Window, now: Moment) -> Self {
        let parts = (0..window.parts).map(|_| HyperLogLog::default()).collect();
        Self { window, parts, newest: 0, next_rotation: window.first_end(now) }
    }

    fn rotate(&mut self, now: Moment) {
        let turns = self.window.ended(&mut self.next_rotation, now);
        for _ in 0..turns.min(self.parts.len() as u64) {
            self.newest = (self.newest + 1) % self.parts.len();
            self.parts[self.newest] = HyperLogLog::default();
        }
    }

    /// Adds a member.
    pub(crate) fn insert(&mut self, member: &[u8], now: Moment) {
        self.rotate(now);
        self.parts[self.newest].insert(HASHER.hash_one(member));
    }

    /// Returns the number of heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.parts) + self.parts.iter().map(HyperLogLog::heap_bytes).sum::<usize>()
    }

    /// Returns the estimated number of distinct members in the window; exact while it is small.
    pub(crate) fn estimate(&mut self, now: Moment) -> f64 {
        self.rotate(now);
        let mut union = HyperLogLog::default();
        for part in &self.parts {
            union.merge(part);
        }
        union.count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapper::SummaryOptions;
    use crate::statsd::clock::Clock;
    use crate::statsd::series::observer::SummarySpec;
    use std::time::Duration;

    fn set(clock: &Clock, max_age: Duration, age_buckets: u32) -> Distinct {
        let summary =
            SummarySpec::new(&SummaryOptions { max_age, age_buckets, ..SummaryOptions::default() });
        Distinct::new(summary.window(), clock.now())
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
    fn members_expire_with_the_window() {
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
