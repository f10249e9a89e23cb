//! Exponential backoff with jitter for one list/watch.

use std::time::Duration;

use tokio::time::Instant;

/// The backoff settings: delays double with each failure and reset after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffConfig {
    /// The delay after the first failure. It doubles with each further failure.
    pub initial: Duration,
    /// The longest delay after a transient failure. Jitter adds up to 100%, and the total must leave time for
    /// a list within the 10 s in which the data has to be correct again after a fault.
    pub cap: Duration,
    /// The longest delay after a permanent refusal, such as missing permissions. Jitter adds up to 100%.
    pub denied_cap: Duration,
    /// The time after which continuous failures count as long-lasting, so that a fix is not expected soon.
    pub lasting: Duration,
    /// The interval of retries after long-lasting refusals. All such list/watches retry at the same time, so that
    /// the process wakes up once for all of them. It is short because the data has to be correct 10 s after
    /// permissions return.
    pub lasting_cycle: Duration,
    /// The longest delay if the server does not have the kind (404). Jitter adds up to 100%. A new CRD or a new connection
    /// to the server ends the wait early; the cap covers kinds that appear without either.
    pub absent_cap: Duration,
    /// The same as `lasting_cycle`, for kinds that the server does not have.
    pub absent_cycle: Duration,
    /// The average interval of retries of all list/watches together. It is four times as long during an outage
    /// of the server, and shorter in proportion with more than 100 list/watches.
    pub spacing: Duration,
    /// The time over which the retries of all list/watches are spread when the server has recovered.
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
            spacing: Duration::from_millis(400),
            spread: Duration::from_millis(500),
        }
    }
}

/// The kind of a failure, which determines the backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A retry may succeed at any time.
    Transient,
    /// The server refuses the request permanently, such as for missing permissions.
    Denied,
    /// The server does not have the kind.
    Absent,
}

/// The backoff state of one list/watch.
#[derive(Debug)]
pub struct Backoff {
    config: BackoffConfig,
    /// The next delay, before cap and jitter.
    next: Duration,
    /// The time of the first consecutive failure.
    since: Option<Instant>,
}

impl Backoff {
    /// Creates the state before any failure.
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, next: config.initial, since: None }
    }

    /// Records a failure at `now` and returns the delay. `jitter` (0 to 1) adds up to 100%.
    pub fn failed(&mut self, now: Instant, failure: Failure, jitter: f64) -> Duration {
        self.since.get_or_insert(now);
        let wait = self.next.min(match failure {
            Failure::Transient => self.config.cap,
            Failure::Denied => self.config.denied_cap,
            Failure::Absent => self.config.absent_cap,
        });
        self.next = wait * 2;
        wait + wait.mul_f64(jitter.clamp(0.0, 1.0))
    }

    /// Returns whether failures have lasted for at least [`BackoffConfig::lasting`].
    pub fn is_lasting(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.duration_since(since) >= self.config.lasting)
    }

    /// Resets the backoff after a success.
    pub fn succeeded(&mut self) {
        (self.next, self.since) = (self.config.initial, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_cap_and_resets_after_a_success() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let now = Instant::now();
        let mut waits = |failure, times| {
            let waits = (0..times).map(|_| backoff.failed(now, failure, 0.0).as_millis());
            waits.collect::<Vec<_>>()
        };
        assert_eq!(waits(Failure::Transient, 6), [250, 500, 1000, 2000, 2000, 2000]);
        assert_eq!(waits(Failure::Denied, 2), [4000, 4000]);
        assert_eq!(waits(Failure::Absent, 5), [8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(waits(Failure::Denied, 1), [4000]);
        assert_eq!(waits(Failure::Transient, 1), [2000]);
        backoff.succeeded();
        assert_eq!(backoff.failed(now, Failure::Absent, 0.0).as_millis(), 250);
    }

    #[test]
    fn consecutive_failures_become_long_lasting() {
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
    fn jitter_adds_up_to_100_percent() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let now = Instant::now();
        let mut failed = |jitter| backoff.failed(now, Failure::Transient, jitter).as_millis();
        assert_eq!([0.5, 1.0, 7.0].map(&mut failed), [375, 1000, 2000]);
    }

    /// The guarantee of correct data 10 s after a fault requires that no delay exceeds 4 s.
    #[test]
    fn delay_after_transient_failures_is_short() {
        let config = BackoffConfig::default();
        let mut backoff = Backoff::new(config);
        let start = Instant::now();
        for hour in 0..100 {
            let now = start + Duration::from_secs(3600 * hour);
            let wait = backoff.failed(now, Failure::Transient, 1.0);
            assert!(wait <= Duration::from_secs(4));
        }
        assert!(config.spread <= Duration::from_secs(1));
    }
}
