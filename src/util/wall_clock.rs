//! The wall clock. Tests can simulate its seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time in Unix seconds.
pub(crate) fn unix_seconds() -> i64 {
    #[cfg(any(test, fuzzing))]
    if let Some(seconds) = simulation::seconds() {
        return seconds;
    }
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

/// Returns the time since the Unix epoch.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time since the start of the system, including the time for which it was suspended; `None` without `/proc`.
pub(crate) fn since_boot() -> Option<Duration> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds = uptime.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A simulated clock of the current thread.
#[cfg(any(test, fuzzing))]
pub(crate) mod simulation {
    use std::cell::RefCell;

    type Clock = Box<dyn Fn() -> i64>;

    thread_local! {
        static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
    }

    /// Restores the real clock when it is dropped.
    pub(crate) struct Simulated(());

    impl Drop for Simulated {
        fn drop(&mut self) {
            CLOCK.set(None);
        }
    }

    /// Makes this function, which returns Unix seconds, the clock of the current thread.
    pub(crate) fn simulate(clock: impl Fn() -> i64 + 'static) -> Simulated {
        CLOCK.set(Some(Box::new(clock)));
        Simulated(())
    }

    pub(super) fn seconds() -> Option<i64> {
        CLOCK.with_borrow(|clock| clock.as_ref().map(|clock| clock()))
    }
}
