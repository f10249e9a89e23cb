//! How many series came in each of the last minutes.

use std::sync::LazyLock;
use std::time::Instant;

/// Minutes that are remembered, the present one among them.
pub(crate) const MINUTES: usize = 60;

/// Minutes are counted from here.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The present minute.
fn now() -> usize {
    // A process does not run for so long that it would not fit.
    (ORIGIN.elapsed().as_secs() / 60) as usize
}

/// Series that came in each of the last [`MINUTES`] minutes, whether they are there still or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// The last minute in which some came.
    latest: usize,
    /// By minute, as a ring.
    counts: [u64; MINUTES],
}

impl Default for Growth {
    fn default() -> Self {
        Self { latest: 0, counts: [0; MINUTES] }
    }
}

impl Growth {
    /// So many have come, if any.
    pub(super) fn note(&mut self, series: u64) {
        if series > 0 {
            self.note_at(now(), series);
        }
    }

    fn note_at(&mut self, minute: usize, series: u64) {
        let minute = minute.max(self.latest);
        for passed in (self.latest + 1..=minute).rev().take(MINUTES) {
            self.counts[passed % MINUTES] = 0;
        }
        self.latest = minute;
        self.counts[minute % MINUTES] += series;
    }

    /// Adds those of the present minute, of the one before it, and so on.
    pub(super) fn add_to(&self, sums: &mut [u64; MINUTES]) {
        self.add_at(now(), sums);
    }

    fn add_at(&self, minute: usize, sums: &mut [u64; MINUTES]) {
        let minute = minute.max(self.latest);
        for (back, sum) in sums.iter_mut().enumerate().skip(minute - self.latest) {
            let Some(at) = minute.checked_sub(back) else { return };
            *sum += self.counts[at % MINUTES];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_is_remembered_for_an_hour() {
        let mut growth = Growth::default();
        let at = |growth: &Growth, minute| {
            let mut sums = [0; MINUTES];
            growth.add_at(minute, &mut sums);
            sums
        };
        growth.note_at(3, 5);
        growth.note_at(3, 2);
        growth.note_at(5, 1);
        assert_eq!(at(&growth, 5)[..4], [1, 0, 7, 0]);
        assert_eq!(at(&growth, 62)[57..], [1, 0, 7]);
        assert_eq!(at(&growth, 63)[57..], [0, 1, 0]);
        growth.note_at(64, 4);
        assert_eq!(at(&growth, 64).iter().sum::<u64>(), 5);
        growth.note_at(1_000, 3);
        assert_eq!(at(&growth, 1_000).iter().sum::<u64>(), 3);
    }
}
