//! How many series were made in each of the last minutes.

use crate::statsd::clock::Moment;

/// Minutes that are remembered, the present one among them.
pub(crate) const MINUTES: usize = crate::telemetry::cardinality::MINUTES;

/// The series made in each of the last [`MINUTES`] minutes.
#[derive(Debug)]
pub(crate) struct Growth {
    /// The last minute in which one was made.
    latest: u64,
    /// By minute, as a ring.
    counts: [u64; MINUTES],
}

impl Default for Growth {
    fn default() -> Self {
        Self { latest: 0, counts: [0; MINUTES] }
    }
}

fn minute(moment: Moment) -> u64 {
    moment.nanos() / 60_000_000_000
}

impl Growth {
    /// Counts one that is made now. Time does not go back.
    pub(crate) fn note(&mut self, now: Moment) {
        let minute = minute(now).max(self.latest);
        let passed = usize::try_from(minute - self.latest).unwrap_or(MINUTES).min(MINUTES);
        for back in 0..passed {
            if let Some(count) = self.counts.get_mut((minute as usize - back) % MINUTES) {
                *count = 0;
            }
        }
        self.latest = minute;
        if let Some(count) = self.counts.get_mut(minute as usize % MINUTES) {
            *count += 1;
        }
    }

    /// Those of the present minute, of the one before it, and so on.
    pub(crate) fn by_minute(&self, now: Moment) -> [u64; MINUTES] {
        let minute = minute(now).max(self.latest);
        let passed = usize::try_from(minute - self.latest).unwrap_or(MINUTES);
        let mut out = [0; MINUTES];
        for (back, out) in out.iter_mut().enumerate().skip(passed) {
            // Before the first minute of the process there is none.
            let at = minute.checked_sub(back as u64).map(|minute| minute as usize % MINUTES);
            *out = at.and_then(|at| self.counts.get(at)).copied().unwrap_or(0);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::statsd::clock::Clock;

    #[test]
    fn minutes_come_and_go() {
        let (clock, mut growth) = (Clock::manual(), Growth::default());
        let first = |growth: &Growth, clock: &Clock| growth.by_minute(clock.now())[..3].to_vec();
        assert_eq!(first(&growth, &clock), [0, 0, 0]);
        growth.note(clock.now());
        growth.note(clock.now());
        clock.advance(Duration::from_secs(60));
        assert_eq!(first(&growth, &clock), [0, 2, 0]);
        growth.note(clock.now());
        clock.advance(Duration::from_secs(58 * 60));
        let all = growth.by_minute(clock.now());
        assert_eq!((all[58], all[59]), (1, 2));
        growth.note(clock.now());
        clock.advance(Duration::from_secs(60));
        let all = growth.by_minute(clock.now());
        assert_eq!((all[0], all[1], all[59]), (0, 1, 1));
        clock.advance(Duration::from_secs(3_600 * 5));
        growth.note(clock.now());
        assert_eq!(growth.by_minute(clock.now()).iter().sum::<u64>(), 1);
    }
}
