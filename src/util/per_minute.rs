//! Event counts by minute over the last hour.

/// Length of the window in minutes, including the current one.
pub(crate) const MINUTES: usize = 60;

/// A ring buffer of event counts for each of the last [`MINUTES`] minutes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerMinuteCounter {
    /// The latest minute with an event.
    latest: u64,
    /// Counts indexed by minute modulo [`MINUTES`].
    counts: [u64; MINUTES],
}

impl Default for PerMinuteCounter {
    fn default() -> Self {
        Self { latest: 0, counts: [0; MINUTES] }
    }
}

impl PerMinuteCounter {
    /// Adds `events` to `minute`. The caller chooses the epoch; a minute before the latest counts as the latest.
    pub(crate) fn add(&mut self, minute: u64, events: u64) {
        let minute = minute.max(self.latest);
        for passed in (self.latest + 1..=minute).rev().take(MINUTES) {
            if let Some(count) = self.counts.get_mut(passed as usize % MINUTES) {
                *count = 0;
            }
        }
        self.latest = minute;
        if let Some(count) = self.counts.get_mut(minute as usize % MINUTES) {
            *count += events;
        }
    }

    /// Returns the counts of `minute`, the minute before it, and so on.
    pub(crate) fn by_minute(&self, minute: u64) -> [u64; MINUTES] {
        let minute = minute.max(self.latest);
        let passed = usize::try_from(minute - self.latest).unwrap_or(MINUTES);
        let mut out = [0; MINUTES];
        for (back, out) in out.iter_mut().enumerate().skip(passed) {
            // There is no minute before minute 0.
            let at = minute.checked_sub(back as u64).map(|minute| minute as usize % MINUTES);
            *out = at.and_then(|at| self.counts.get(at)).copied().unwrap_or(0);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_minutes_are_dropped() {
        let mut counter = PerMinuteCounter::default();
        let first = |counter: &PerMinuteCounter, minute| counter.by_minute(minute)[..3].to_vec();
        assert_eq!(first(&counter, 0), [0, 0, 0]);
        counter.add(0, 1);
        counter.add(0, 1);
        assert_eq!(first(&counter, 1), [0, 2, 0]);
        counter.add(1, 1);
        let all = counter.by_minute(59);
        assert_eq!((all[58], all[59]), (1, 2));
        counter.add(59, 1);
        let all = counter.by_minute(60);
        assert_eq!((all[0], all[1], all[59]), (0, 1, 1));
        counter.add(360, 1);
        assert_eq!(counter.by_minute(360).iter().sum::<u64>(), 1);
    }

    #[test]
    fn minutes_are_kept_for_an_hour() {
        let mut counter = PerMinuteCounter::default();
        counter.add(3, 5);
        counter.add(3, 2);
        counter.add(5, 1);
        assert_eq!(counter.by_minute(5)[..4], [1, 0, 7, 0]);
        assert_eq!(counter.by_minute(62)[57..], [1, 0, 7]);
        assert_eq!(counter.by_minute(63)[57..], [0, 1, 0]);
        counter.add(64, 4);
        assert_eq!(counter.by_minute(64).iter().sum::<u64>(), 5);
        counter.add(1_000, 3);
        assert_eq!(counter.by_minute(1_000).iter().sum::<u64>(), 3);
    }
}
