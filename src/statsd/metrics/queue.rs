//! The event queue of the original, which is not here: how often it would have handed a batch on.
//!
//! There, events gather in a buffer that goes to a channel whenever it holds `--statsd.event-flush-threshold` of them, and
//! once in each `--statsd.event-flush-interval`, empty or not. Dashboards divide by that number, so it is kept.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::statsd::clock::Moment;

/// Counts what would have been handed on.
#[derive(Debug)]
pub(crate) struct EventQueue {
    threshold: u64,
    interval: u64,
    buffer: Mutex<Buffer>,
}

#[derive(Debug, Default)]
struct Buffer {
    /// Events since the last hand-over.
    events: u64,
    /// Number of the interval of the last event.
    interval: u64,
    /// Times that the buffer was full.
    full: u64,
}

impl Default for EventQueue {
    /// With the defaults of the original.
    fn default() -> Self {
        Self::new(1_000, Duration::from_millis(200))
    }
}

impl EventQueue {
    /// A queue that hands on when it holds `threshold` events, and in each `interval`.
    pub(crate) fn new(threshold: u64, interval: Duration) -> Self {
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { threshold: threshold.max(1), interval, buffer: Mutex::default() }
    }

    /// Takes note of events.
    pub(crate) fn add(&self, events: u64, now: Moment) {
        let interval = now.nanos() / self.interval;
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.interval < interval {
            (buffer.interval, buffer.events) = (interval, 0);
        }
        let events = buffer.events.saturating_add(events);
        buffer.full += events / self.threshold;
        buffer.events = events % self.threshold;
    }

    /// Times that events have been handed on by now.
    pub(crate) fn flushed(&self, now: Moment) -> u64 {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        now.nanos() / self.interval + buffer.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::Clock;

    #[test]
    fn it_hands_on_when_it_is_full_and_in_each_interval() {
        let clock = Clock::manual();
        let queue = EventQueue::default();
        assert_eq!(queue.flushed(clock.now()), 0);
        queue.add(999, clock.now());
        assert_eq!(queue.flushed(clock.now()), 0);
        queue.add(1_002, clock.now());
        assert_eq!(queue.flushed(clock.now()), 2);
        clock.advance(Duration::from_millis(199));
        queue.add(998, clock.now());
        assert_eq!(queue.flushed(clock.now()), 2, "one event was left, so it holds 999");
        clock.advance(Duration::from_secs(1));
        queue.add(999, clock.now());
        assert_eq!(queue.flushed(clock.now()), 2 + 5, "the interval has emptied it");
    }

    #[test]
    fn a_threshold_of_0_or_1_hands_on_each_event() {
        for threshold in [0, 1] {
            let clock = Clock::manual();
            let queue = EventQueue::new(threshold, Duration::from_secs(1));
            queue.add(7, clock.now());
            assert_eq!(queue.flushed(clock.now()), 7);
        }
    }
}
