//! The clock of the StatsD pipeline: nanoseconds and ticks since start.
//!
//! Everything that ages (time to live, quantile windows, creation times) reads this clock only, so a test can
//! set the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds per [`Moment::tick`].
pub(crate) const TICK_NANOS: u64 = 100_000_000;
/// Ticks per second.
pub(crate) const TICKS_PER_SECOND: u32 = (1_000_000_000 / TICK_NANOS) as u32;

/// A clock that either runs or is advanced by hand. Clones share the same time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Wall clock at the start.
    epoch: Duration,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Running(Instant),
    Manual(AtomicU64),
}

/// A point in time, as the distance from the start of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Returns the nanoseconds since the start.
    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the whole minutes since the start.
    pub(crate) const fn minute(self) -> u64 {
        self.0 / 60_000_000_000
    }

    /// Returns the tenths of a second since the start, counted from 1 so that 0 can mean "never". Saturates
    /// after 13 years.
    pub(crate) const fn tick(self) -> u32 {
        let tick = self.0 / TICK_NANOS + 1;
        if tick < u32::MAX as u64 { tick as u32 } else { u32::MAX }
    }
}

/// Converts a time to live to ticks, rounded up. Returns 0, which means forever, for zero and for values
/// beyond the range of ticks.
pub(crate) fn ticks(life: Duration) -> u32 {
    let parts = u64::from(life.subsec_nanos()).div_ceil(TICK_NANOS);
    let ticks = life.as_secs().saturating_mul(TICKS_PER_SECOND.into()).saturating_add(parts);
    u32::try_from(ticks).unwrap_or(0)
}

impl Clock {
    /// Returns a clock that runs with the system's monotonic time.
    pub fn system() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Arc::new(Inner { epoch, source: Source::Running(Instant::now()) }))
    }

    /// Returns a clock that begins with the year 2026 and that only [`Clock::advance`] moves. A pipeline with such a
    /// clock does not expire series on its own.
    pub fn manual() -> Self {
        let epoch = Duration::from_secs(1_767_225_600);
        Self(Arc::new(Inner { epoch, source: Source::Manual(AtomicU64::new(0)) }))
    }

    /// Returns true if only [`Clock::advance`] moves this clock.
    pub fn is_manual(&self) -> bool {
        matches!(self.0.source, Source::Manual(_))
    }

    /// Advances a manual clock. Has no effect on a running one.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(now) = &self.0.source {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            now.fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(match &self.0.source {
            Source::Running(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Source::Manual(now) => now.load(Ordering::Relaxed),
        })
    }

    /// Returns the wall-clock time of a tick, since the Unix epoch.
    pub(crate) fn wall(&self, tick: u32) -> Duration {
        self.0.epoch + Duration::from_nanos(u64::from(tick.saturating_sub(1)) * TICK_NANOS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_rounded_up_to_ticks() {
        assert_eq!(ticks(Duration::ZERO), 0);
        assert_eq!(ticks(Duration::from_nanos(1)), 1);
        assert_eq!(ticks(Duration::from_millis(100)), 1);
        assert_eq!(ticks(Duration::from_millis(101)), 2);
        assert_eq!(ticks(Duration::from_secs(1)), TICKS_PER_SECOND);
        assert_eq!(ticks(Duration::MAX), 0, "beyond the range is for ever");
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual();
        let copy = clock.clone();
        assert_eq!(clock.now().tick(), 1);
        copy.advance(Duration::from_secs(2));
        assert_eq!(clock.now().nanos(), 2_000_000_000);
        assert_eq!(clock.now().tick(), 21);
        assert_eq!(clock.wall(21) - clock.wall(1), Duration::from_secs(2));
    }
}
