//! How long to wait before the next attempt.

use std::time::{Duration, Instant};

/// Waiting times that grow with each failure and fall back after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffConfig {
    /// The first waiting time, which doubles with each failure.
    pub initial: Duration,
    /// What it grows to at most, jitter not counted.
    pub cap: Duration,
    /// After so long without a failure the next one counts as the first.
    pub reset: Duration,
}

impl Default for BackoffConfig {
    /// The times of the reflectors in Go's client.
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            cap: Duration::from_secs(30),
            reset: Duration::from_secs(120),
        }
    }
}

/// The waiting times of one list/watch.
#[derive(Debug)]
pub struct Backoff {
    config: BackoffConfig,
    /// The next waiting time, before jitter.
    next: Duration,
    last: Option<Instant>,
}

impl Backoff {
    /// No failure so far.
    #[must_use]
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, next: config.initial, last: None }
    }

    /// Notes a failure at `now`; how long to wait, with up to its double as `jitter` (0 to 1) says.
    pub fn failed(&mut self, now: Instant, jitter: f64) -> Duration {
        if self.last.is_some_and(|last| now.duration_since(last) > self.config.reset) {
            self.next = self.config.initial;
        }
        self.last = Some(now);
        let wait = self.next.min(self.config.cap);
        self.next = (wait * 2).min(self.config.cap);
        wait + wait.mul_f64(jitter.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_and_resets() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(backoff.failed(now, 0.0).as_millis());
            now += Duration::from_secs(100);
        }
        assert_eq!(waits, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        now += Duration::from_secs(21);
        assert_eq!(backoff.failed(now, 0.0).as_millis(), 800);
    }

    #[test]
    fn jitter_adds_up_to_as_much_again() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let now = Instant::now();
        assert_eq!(backoff.failed(now, 0.5).as_millis(), 1200);
        assert_eq!(backoff.failed(now, 1.0).as_millis(), 3200);
        assert_eq!(backoff.failed(now, 7.0).as_millis(), 6400);
    }
}
