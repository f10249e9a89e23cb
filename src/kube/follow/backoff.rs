//! How long to wait before the next attempt.

use std::time::{Duration, Instant};

/// Waiting times that grow with each failure and begin anew after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffConfig {
    /// The first waiting time, which doubles with each failure.
    pub initial: Duration,
    /// What it grows to at most, jitter not counted. With jitter it is up to the double, which has to
    /// leave time for a list within the ten seconds that what is shown may stay wrong after a fault.
    pub cap: Duration,
    /// The cap where the server refuses a request for good, such as for want of rights.
    pub denied_cap: Duration,
    /// After so much refusing nobody is about to change it.
    pub lasting: Duration,
    /// How far apart the times are at which all that is refused for so long is asked for, so that the
    /// process wakes up once for all of it. Rights may return at any time, and what is shown has to be
    /// right ten seconds later.
    pub lasting_cycle: Duration,
    /// The least time between two attempts of all list/watches together while none succeeds.
    pub spacing: Duration,
    /// Within which time all try again when one has succeeded.
    pub spread: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(250),
            cap: Duration::from_secs(2),
            denied_cap: Duration::from_secs(4),
            lasting: Duration::from_secs(600),
            lasting_cycle: Duration::from_secs(7),
            spacing: Duration::from_millis(200),
            spread: Duration::from_millis(500),
        }
    }
}

/// The waiting times of one list/watch.
#[derive(Debug)]
pub struct Backoff {
    config: BackoffConfig,
    /// The next waiting time, before cap and jitter.
    next: Duration,
    /// When the failures in a row began.
    since: Option<Instant>,
}

impl Backoff {
    /// No failure so far.
    #[must_use]
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, next: config.initial, since: None }
    }

    /// Notes a failure at `now`; how long to wait, with up to its double as `jitter` (0 to 1) says.
    /// `denied` tells that the server has refused for good.
    pub fn failed(&mut self, now: Instant, denied: bool, jitter: f64) -> Duration {
        self.since.get_or_insert(now);
        let BackoffConfig { cap, denied_cap, .. } = self.config;
        let wait = self.next.min(if denied { denied_cap } else { cap });
        self.next = (wait * 2).min(denied_cap.max(cap));
        wait + wait.mul_f64(jitter.clamp(0.0, 1.0))
    }

    /// Whether failures have lasted so long that nobody is about to end them.
    #[must_use]
    pub fn is_lasting(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.duration_since(since) >= self.config.lasting)
    }

    /// Something came of the last attempt: the next failure is the first again.
    pub fn succeeded(&mut self) {
        (self.next, self.since) = (self.config.initial, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_and_begins_anew_after_a_success() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let now = Instant::now();
        let mut waits = |denied, times| {
            let waits = (0..times).map(|_| backoff.failed(now, denied, 0.0).as_millis());
            waits.collect::<Vec<_>>()
        };
        assert_eq!(waits(false, 6), [250, 500, 1000, 2000, 2000, 2000]);
        assert_eq!(waits(true, 2), [4000, 4000]);
        assert_eq!(waits(false, 1), [2000]);
        backoff.succeeded();
        assert_eq!(backoff.failed(now, true, 0.0).as_millis(), 250);
    }

    #[test]
    fn failures_in_a_row_come_to_last() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(!backoff.is_lasting(later(10_000)));
        for seconds in [0, 300, 599] {
            backoff.failed(later(seconds), true, 0.0);
            assert!(!backoff.is_lasting(later(seconds)));
        }
        assert!(backoff.is_lasting(later(600)));
        backoff.succeeded();
        assert!(!backoff.is_lasting(later(601)));
    }

    #[test]
    fn jitter_adds_up_to_as_much_again() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let now = Instant::now();
        assert_eq!(backoff.failed(now, false, 0.5).as_millis(), 375);
        assert_eq!(backoff.failed(now, false, 1.0).as_millis(), 1000);
        assert_eq!(backoff.failed(now, false, 7.0).as_millis(), 2000);
    }

    /// The sum that the promise of ten seconds rests on: no wait takes more than four.
    #[test]
    fn no_wait_for_a_server_that_may_come_back_is_long() {
        let config = BackoffConfig::default();
        let mut backoff = Backoff::new(config);
        let start = Instant::now();
        for hour in 0..100 {
            let now = start + Duration::from_secs(3600 * hour);
            assert!(backoff.failed(now, false, 1.0) <= Duration::from_secs(4));
        }
        assert!(config.spread <= Duration::from_secs(1));
    }
}
