//! Limits log lines about something that can happen often.

use std::time::{Duration, Instant};

/// The minimum time between two log lines.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

/// Counts occurrences for a log line that appears at most once a minute.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    /// The number since the last log line.
    count: u64,
    logged_at: Option<Instant>,
}

impl LogLimit {
    /// Adds occurrences. If a log line is due, returns their number since the last one.
    pub(crate) fn add(&mut self, count: u64, now: Instant) -> Option<u64> {
        self.count += count;
        if self.is_recent(now) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.count))
    }

    /// Returns true if the last log line is less than a minute old.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_logged_at_once_and_others_once_a_minute() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        let logged =
            [0, 1, 59, 60, 61, 200].map(|second| limit.add(2, start + Duration::from_secs(second)));
        assert_eq!(logged, [Some(2), None, None, Some(6), None, Some(4)]);
        let mut limit = LogLimit::default();
        let logged =
            (0..=180).filter_map(|second| limit.add(1, start + Duration::from_secs(second)));
        assert_eq!(logged.collect::<Vec<u64>>(), [1, 60, 60, 60]);
    }
}
