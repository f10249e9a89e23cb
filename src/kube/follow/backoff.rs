//! How long to wait before the next attempt.

use std::time::Duration;

use tokio::time::Instant;

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
    /// The cap where the server has no such kind (404). Whoever adds one makes the server begin anew, or defines it,
    /// which wakes those that wait; the cap is for what nobody tells of.
    pub absent_cap: Duration,
    /// The same as `lasting_cycle` for kinds that the server has not had for so long.
    pub absent_cycle: Duration,
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
            absent_cap: Duration::from_secs(60),
            absent_cycle: Duration::from_secs(120),
            spacing: Duration::from_millis(200),
            spread: Duration::from_millis(500),
        }
    }
}

/// How a request failed, as far as it decides when the next one is worth while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may succeed at any time.
    Passing,
    /// The server refuses it for good, such as for want of rights.
    Denied,
    /// The server has no such kind.
    Absent,
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
    pub fn failed(&mut self, now: Instant, failure: Failure, jitter: f64) -> Duration {
        self.since.get_or_insert(now);
        let wait = self.next.min(match failure {
            Failure::Passing => self.config.cap,
            Failure::Denied => self.config.denied_cap,
            Failure::Absent => self.config.absent_cap,
        });
        self.next = wait * 2;
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
        let mut waits = |failure, times| {
            let waits = (0..times).map(|_| backoff.failed(now, failure, 0.0).as_millis());
            waits.collect::<Vec<_>>()
        };
        assert_eq!(waits(Failure::Passing, 6), [250, 500, 1000, 2000, 2000, 2000]);
        assert_eq!(waits(Failure::Denied, 2), [4000, 4000]);
        assert_eq!(waits(Failure::Absent, 5), [8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(waits(Failure::Denied, 1), [4000]);
        assert_eq!(waits(Failure::Passing, 1), [2000]);
        backoff.succeeded();
        assert_eq!(backoff.failed(now, Failure::Absent, 0.0).as_millis(), 250);
    }

    #[test]
    fn failures_in_a_row_come_to_last() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(!backoff.is_lasting(later(10_000)));
        for seconds in [0, 300, 599] {
            backoff.failed(later(seconds), Failure::Denied, 0.0);
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
        let mut failed = |jitter| backoff.failed(now, Failure::Passing, jitter).as_millis();
        assert_eq!([0.5, 1.0, 7.0].map(&mut failed), [375, 1000, 2000]);
    }

    /// The sum that the promise of ten seconds rests on: no wait takes more than four.
    #[test]
    fn no_wait_for_a_server_that_may_come_back_is_long() {
        let config = BackoffConfig::default();
        let mut backoff = Backoff::new(config);
        let start = Instant::now();
        for hour in 0..100 {
            let now = start + Duration::from_secs(3600 * hour);
            let wait = backoff.failed(now, Failure::Passing, 1.0);
            assert!(wait <= Duration::from_secs(4));
        }
        assert!(config.spread <= Duration::from_secs(1));
    }
}
