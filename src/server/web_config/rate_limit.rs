//! A token bucket that limits the requests of a listener.

use std::time::Instant;

use super::file::Rate;
use crate::util::lock::Lock;

/// The token bucket of one listener.
#[derive(Debug)]
pub(super) struct Limiter {
    /// Tokens per second.
    speed: f64,
    /// The capacity.
    burst: f64,
    level: Lock<(f64, Instant)>,
}

impl Limiter {
    /// Creates a full bucket; `None` if there is no limit.
    pub(super) fn new(rate: Rate, now: Instant) -> Option<Self> {
        let burst = f64::from(rate.burst);
        let speed = rate.interval?.as_secs_f64().recip();
        Some(Self { speed, burst, level: Lock::new((burst, now)) })
    }

    /// Takes a token, if there is one.
    pub(super) fn allows(&self, now: Instant) -> bool {
        let mut level = self.level.lock();
        let (left, at) = *level;
        let passed = now.saturating_duration_since(at).as_secs_f64();
        let left = (left + passed * self.speed).min(self.burst);
        let allowed = left >= 1.0;
        *level = (if allowed { left - 1.0 } else { left }, at.max(now));
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_bucket_refills_up_to_the_burst() {
        let start = Instant::now();
        let rate = Rate { interval: Some(Duration::from_millis(500)), burst: 2 };
        let limiter = Limiter::new(rate, start).expect("a limit");
        for (after, allowed) in [
            (0, true),
            (0, true),
            (0, false),
            (499, false),
            (501, true),
            (501, false),
            (9_000, true),
            (9_000, true),
            (9_000, false),
        ] {
            let now = start + Duration::from_millis(after);
            assert_eq!(limiter.allows(now), allowed, "after {after} ms");
        }
        let none = Limiter::new(Rate { burst: 0, ..rate }, start).expect("a limit");
        assert!(!none.allows(start + Duration::from_secs(60)));
        assert!(Limiter::new(Rate::default(), start).is_none());
    }
}
