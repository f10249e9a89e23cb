//! When something will be full if it goes on as it has.

/// Samples that are kept.
const KEPT: usize = 30;

/// Least time between two of them, in seconds.
const STEP: f64 = 10.0;

/// For how many seconds one says something of what comes.
const WINDOW: f64 = 7200.0;

/// The last samples of one figure: Unix seconds and bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Trend(Vec<(f64, f64)>);

impl Trend {
    /// Notes a sample, unless it is no newer than the last one. What has become smaller by more than half begins anew:
    /// something was cleared away, and what was before says nothing of what comes.
    pub(super) fn note(&mut self, at: f64, bytes: u64) {
        let bytes = bytes as f64;
        if let Some(&(last, before)) = self.0.last() {
            if at - last < STEP {
                return;
            }
            if bytes < before / 2.0 {
                self.0.clear();
            }
        }
        self.0.retain(|(earlier, _)| at - earlier <= WINDOW);
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push((at, bytes));
    }

    /// Bytes a second, by least squares; nothing of fewer than three samples.
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

    /// Seconds from the last sample until `limit` is reached; nothing if it is not on the way there.
    pub(super) fn full(&self, limit: f64) -> Option<f64> {
        let slope = self.slope()?;
        let left = limit - self.0.last()?.1;
        if left <= 0.0 {
            return Some(0.0);
        }
        (slope > 0.0).then_some(left / slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_followed_to_the_limit() {
        let mut trend = Trend::default();
        for (at, bytes) in [(0.0, 100), (60.0, 160), (65.0, 9999)] {
            trend.note(at, bytes);
        }
        assert_eq!(trend.full(1000.0), None, "two samples are no trend");
        trend.note(120.0, 220);
        assert_eq!(trend.full(1000.0), Some(780.0));
        assert_eq!(trend.full(200.0), Some(0.0));
        for step in 3..50 {
            trend.note(60.0 * f64::from(step), 220);
        }
        assert_eq!(trend.full(1000.0), None, "it stands still");
        trend.note(4000.0, 10);
        assert_eq!(trend.0.len(), 1, "it was cleared away");
        trend.note(4010.0, 20);
        trend.note(20_000.0, 20);
        assert_eq!(trend.0.len(), 1, "what was hours ago says nothing");
    }
}
