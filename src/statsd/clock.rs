//! The clock of the StatsD pipeline: nanoseconds and ticks since start.
//!
//! Everything that ages (time to live, quantile windows, creation times) reads this clock only, so a test can
//! set the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::util::wall_clock;

/// Nanoseconds per [`Moment::tick`].
pub(crate) const TICK_NANOS: u64 = 100_000_000;
/// The change of the wall clock that is ignored: start times of series may change only if they would be far off.
const MAX_CHANGE: Duration = Duration::from_secs(10);
/// Ticks per second.
pub(crate) const TICKS_PER_SECOND: u32 = (1_000_000_000 / TICK_NANOS) as u32;

/// A clock that either runs or is advanced by hand. Clones share the same time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The wall-clock time of the start, in nanoseconds since the Unix epoch.
    epoch: AtomicU64,
    /// The wall-clock time at which the system booted, in the same unit. It changes when the wall clock is set, but not by a
    /// suspension.
    booted: AtomicU64,
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
        let (wall, boot) = (wall_clock::since_epoch(), wall_clock::since_boot());
        let booted = wall.saturating_sub(boot.unwrap_or_default());
        Self::since(wall, booted, Source::Running(Instant::now()))
    }

    /// Returns a clock that begins with the year 2026 and that only [`Clock::advance`] moves. A pipeline with such a
    /// clock does not expire series on its own.
    pub fn manual() -> Self {
        let epoch = Duration::from_secs(1_767_225_600);
        Self::since(epoch, epoch, Source::Manual(AtomicU64::new(0)))
    }

    fn since(epoch: Duration, booted: Duration, source: Source) -> Self {
        let [epoch, booted] = [epoch, booted].map(|time| AtomicU64::new(nanos(time)));
        Self(Arc::new(Inner { epoch, booted, source }))
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

    /// Returns the wall-clock time of the start, for a body whose start times must not change while it is written.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(Duration::from_nanos(self.0.epoch.load(Ordering::Relaxed)))
    }

    /// Follows a change of the system's wall clock, which may have been wrong at the start.
    ///
    /// A system that was suspended has not changed it: if series from before began later than their last scrape, it would seem
    /// that they had been reset.
    pub(crate) fn follow_wall_clock(&self) {
        if let Some(boot) = wall_clock::since_boot().filter(|_| !self.is_manual()) {
            self.follow(wall_clock::since_epoch(), boot);
        }
    }

    fn follow(&self, wall: Duration, boot: Duration) {
        let booted = nanos(wall.saturating_sub(boot));
        let Inner { epoch, booted: known, .. } = &*self.0;
        let before = known.load(Ordering::Relaxed);
        let is_changed = booted.abs_diff(before) > nanos(MAX_CHANGE);
        let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if is_changed && known.compare_exchange(before, booted, set, failed).is_ok() {
            epoch.fetch_add(booted.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

/// The wall-clock time of the start of a clock, since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(Duration);

impl Epoch {
    /// Returns the wall-clock time of a tick, since the Unix epoch.
    pub(crate) fn wall(self, tick: u32) -> Duration {
        self.0 + Duration::from_nanos(u64::from(tick.saturating_sub(1)) * TICK_NANOS)
    }
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

    /// Start times of series are constant, but for large changes of the wall clock.
    #[test]
    fn large_changes_of_the_wall_clock_are_followed() {
        let clock = Clock::manual();
        let start = clock.epoch().wall(1);
        let seconds = Duration::from_secs;
        for (wall, boot, expected) in [
            (100, 100, 0),
            (109, 100, 0),
            (3_700, 100, 3_600),
            (3_700, 110, 3_600),
            // The system was suspended for a day.
            (3_810 + 86_400, 210 + 86_400, 3_600),
            (220 + 86_400, 220 + 86_400, 0),
        ] {
            clock.follow(start + seconds(wall), seconds(boot));
            assert_eq!(clock.epoch().wall(1), start + seconds(expected), "{wall} {boot}");
        }
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual();
        let copy = clock.clone();
        assert_eq!(clock.now().tick(), 1);
        copy.advance(Duration::from_secs(2));
        assert_eq!(clock.now().nanos(), 2_000_000_000);
        assert_eq!(clock.now().tick(), 21);
        assert_eq!(clock.epoch().wall(21) - clock.epoch().wall(1), Duration::from_secs(2));
    }
}
