//! How many things came in each of the last minutes.

/// Minutes that are remembered, the present one among them.
pub(crate) const MINUTES: usize = 60;

/// Things that came in each of the last [`MINUTES`] minutes, whether they are there still or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// The last minute in which some came.
    latest: u64,
    /// By minute, as a ring.
    counts: [u64; MINUTES],
}

impl Default for Growth {
    fn default() -> Self {
        Self { latest: 0, counts: [0; MINUTES] }
    }
}

impl Growth {
    /// So many come in this minute, whoever counts minutes from wherever. Time does not go back.
    pub(crate) fn note(&mut self, minute: u64, many: u64) {
        let minute = minute.max(self.latest);
        for passed in (self.latest + 1..=minute).rev().take(MINUTES) {
            if let Some(count) = self.counts.get_mut(passed as usize % MINUTES) {
                *count = 0;
            }
        }
        self.latest = minute;
        if let Some(count) = self.counts.get_mut(minute as usize % MINUTES) {
            *count += many;
        }
    }

    /// Those of the present minute, of the one before it, and so on.
    pub(crate) fn by_minute(&self, minute: u64) -> [u64; MINUTES] {
        let minute = minute.max(self.latest);
        let passed = usize::try_from(minute - self.latest).unwrap_or(MINUTES);
        let mut out = [0; MINUTES];
        for (back, out) in out.iter_mut().enumerate().skip(passed) {
            // Before the first minute there is none.
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
    fn minutes_come_and_go() {
        let mut growth = Growth::default();
        let first = |growth: &Growth, minute| growth.by_minute(minute)[..3].to_vec();
        assert_eq!(first(&growth, 0), [0, 0, 0]);
        growth.note(0, 1);
        growth.note(0, 1);
        assert_eq!(first(&growth, 1), [0, 2, 0]);
        growth.note(1, 1);
        let all = growth.by_minute(59);
        assert_eq!((all[58], all[59]), (1, 2));
        growth.note(59, 1);
        let all = growth.by_minute(60);
        assert_eq!((all[0], all[1], all[59]), (0, 1, 1));
        growth.note(360, 1);
        assert_eq!(growth.by_minute(360).iter().sum::<u64>(), 1);
    }

    #[test]
    fn each_minute_is_remembered_for_an_hour() {
        let mut growth = Growth::default();
        growth.note(3, 5);
        growth.note(3, 2);
        growth.note(5, 1);
        assert_eq!(growth.by_minute(5)[..4], [1, 0, 7, 0]);
        assert_eq!(growth.by_minute(62)[57..], [1, 0, 7]);
        assert_eq!(growth.by_minute(63)[57..], [0, 1, 0]);
        growth.note(64, 4);
        assert_eq!(growth.by_minute(64).iter().sum::<u64>(), 5);
        growth.note(1_000, 3);
        assert_eq!(growth.by_minute(1_000).iter().sum::<u64>(), 3);
    }
}
