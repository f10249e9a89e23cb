//! The clock of the StatsD pipeline: nanoseconds and ticks since start.
//!
//! Everything that ages (time to live, quantile windows, creation times) reads this clock only, so a test can
//! set the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds per [`Moment::tick`].
pub(crate) const TICK_NANOS: u64 = 100_000_000;
/// The difference from the wall clock that is ignored: start times of series may change only if they would be far off.
const MAX_DEVIATION: Duration = Duration::from_secs(10);
/// Ticks per second.
pub(crate) const TICKS_PER_SECOND: u32 = (1_000_000_000 / TICK_NANOS) as u32;

/// A clock that either runs or is advanced by hand. Clones share the same time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The wall-clock time of the start, in nanoseconds since the Unix epoch.
    epoch: AtomicU64,
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
        Self::since(wall_clock(), Source::Running(Instant::now()))
    }

    /// Returns a clock that begins with the year 2026 and that only [`Clock::advance`] moves. A pipeline with such a
    /// clock does not expire series on its own.
    pub fn manual() -> Self {
        Self::since(Duration::from_secs(1_767_225_600), Source::Manual(AtomicU64::new(0)))
    }

    fn since(epoch: Duration, source: Source) -> Self {
        Self(Arc::new(Inner { epoch: AtomicU64::new(nanos(epoch)), source }))
    }

    /// Returns true if only [`Clock::advance`] moves this clock.
    pub fn is_manual(&self) -> bool {
        matches!(self.0.source, Source::Manual(_))
    }

    /// Advances a manual clock. Has no effect on a running one.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(now) = &self.0.source {
            now.fetch_add(nanos(by), Ordering::Relaxed);
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(match &self.0.source {
            Source::Running(start) => nanos(start.elapsed()),
            Source::Manual(now) => now.load(Ordering::Relaxed),
        })
    }

    /// Returns the wall-clock time of a tick, since the Unix epoch.
    pub(crate) fn wall(&self, tick: u32) -> Duration {
        let epoch = Duration::from_nanos(self.0.epoch.load(Ordering::Relaxed));
        epoch + Duration::from_nanos(u64::from(tick.saturating_sub(1)) * TICK_NANOS)
    }

    /// Follows a change of the system's wall clock, which may have been wrong at the start, and continues while the monotonic clock
    /// stands still in a suspended machine.
    pub(crate) fn follow_wall_clock(&self) {
        if !self.is_manual() {
            self.follow(wall_clock());
        }
    }

    fn follow(&self, wall: Duration) {
        let epoch = nanos(wall).saturating_sub(self.now().nanos());
        let known = self.0.epoch.load(Ordering::Relaxed);
        if epoch.abs_diff(known) > nanos(MAX_DEVIATION) {
            self.0.epoch.store(epoch, Ordering::Relaxed);
        }
    }
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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

    /// Small differences would change the start times of series, which are to be constant.
    #[test]
    fn large_changes_of_the_wall_clock_are_followed() {
        let clock = Clock::manual();
        clock.advance(Duration::from_secs(100));
        let start = clock.wall(1);
        let after = |seconds| start + Duration::from_secs(seconds);
        for (wall, expected) in [(100, 0), (109, 0), (91, 0), (3_700, 3_600), (3_695, 3_600)] {
            clock.follow(after(wall));
            assert_eq!(clock.wall(1), after(expected), "{wall}");
        }
        clock.follow(after(100));
        assert_eq!(clock.wall(1001) - start, Duration::from_secs(100));
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
