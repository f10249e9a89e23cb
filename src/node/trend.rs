//! Predicts the time until a limit is reached from recent growth.

/// The maximum number of samples.
const MAX_SAMPLES: usize = 30;

/// The minimum interval between samples, in seconds.
const MIN_INTERVAL: f64 = 10.0;

/// The jump back of the clock, in seconds, from which on the samples are of another time.
const CLOCK_JUMP: f64 = 120.0;

/// The age in seconds beyond which a sample is discarded.
const MAX_AGE: f64 = 7200.0;

/// The recent samples of one figure: Unix seconds and bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Trend(Vec<(f64, f64)>);

impl Trend {
    /// Adds a sample, unless it is no newer than the last one. A drop by more than half discards
    /// the earlier samples: after a cleanup they do not predict growth. So does a clock that was set back.
    pub(super) fn add(&mut self, at: f64, bytes: u64) {
        let bytes = bytes as f64;
        if let Some(&(last, before)) = self.0.last() {
            let is_set_back = at + CLOCK_JUMP < last;
            if at - last < MIN_INTERVAL && !is_set_back {
                return;
            }
            if bytes < before / 2.0 || is_set_back {
                self.0.clear();
            }
        }
        self.0.retain(|(earlier, _)| at - earlier <= MAX_AGE);
        if self.0.len() == MAX_SAMPLES {
            self.0.remove(0);
        }
        self.0.push((at, bytes));
    }

    /// Returns the growth in bytes per second by least squares; `None` with fewer than three
    /// samples.
    fn slope(&self) -> Option<f64> {
        if self.0.len() < 3 {
            return None;
        }
        let count = self.0.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| self.0.iter().map(of).sum::<f64>() / count;
        let (at, bytes) = (mean(|sample| sample.0), mean(|sample| sample.1));
        let (above, below) = self.0.iter().fold((0.0, 0.0), |(above, below), sample| {
            let apart = sample.0 - at;
            (above + apart * (sample.1 - bytes), below + apart * apart)
        });
        Some(above / below)
    }

    /// Returns the seconds from `at` until `limit` is reached; `None` if the usage is not growing, or the last sample is
    /// old.
    pub(super) fn seconds_until(&self, limit: f64, at: f64) -> Option<f64> {
        let slope = self.slope()?;
        let (last, bytes) = *self.0.last().filter(|(last, _)| at - last <= MAX_AGE)?;
        let left = limit - bytes;
        if left <= 0.0 {
            return Some(0.0);
        }
        (slope > 0.0).then(|| (left / slope - (at - last)).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_followed_to_the_limit() {
        let mut trend = Trend::default();
        for (at, bytes) in [(0.0, 100), (60.0, 160), (65.0, 9999)] {
            trend.add(at, bytes);
        }
        assert_eq!(trend.seconds_until(1000.0, 65.0), None, "two samples are no trend");
        trend.add(120.0, 220);
        assert_eq!(trend.seconds_until(1000.0, 120.0), Some(780.0));
        assert_eq!(trend.seconds_until(200.0, 120.0), Some(0.0));
        // Without further samples it comes closer, and is forgotten in the end.
        assert_eq!(trend.seconds_until(1000.0, 420.0), Some(480.0));
        assert_eq!(trend.seconds_until(1000.0, 2000.0), Some(0.0));
        assert_eq!(trend.seconds_until(1000.0, 120.0 + MAX_AGE + 1.0), None);
        for step in 3..50 {
            trend.add(60.0 * f64::from(step), 220);
        }
        assert_eq!(trend.seconds_until(1000.0, 2940.0), None, "it stands still");
        trend.add(4000.0, 10);
        assert_eq!(trend.0.len(), 1, "it was cleared away");
        trend.add(4010.0, 20);
        trend.add(20_000.0, 20);
        assert_eq!(trend.0.len(), 1, "what was hours ago says nothing");
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let mut trend = Trend::default();
        for (at, bytes) in [(90_000.0, 100), (90_060.0, 400), (90_120.0, 700)] {
            trend.add(at, bytes);
        }
        trend.add(90_100.0, 9_999);
        assert_eq!(trend.seconds_until(1_000.0, 90_120.0), Some(60.0), "it is no newer");
        for (at, bytes) in [(0.0, 700), (60.0, 710), (120.0, 720)] {
            trend.add(at, bytes);
        }
        assert_eq!(trend.seconds_until(1_000.0, 120.0), Some(1_680.0));
    }
}
