//! A summary: count and sum since creation, quantiles over a sliding window.
//!
//! The window consists of `age_buckets` streams with staggered starts. Each stream sees every value since its
//! start, the oldest one answers queries, and every `max_age / age_buckets` the oldest one is reset. The
//! quantiles of a stream with up to [`EXACT`] values are exact; after that its values are added to a
//! [`Sketch`]. All streams share one buffer of raw values, so an idle summary stores its values once.

use std::sync::Arc;
use std::time::Duration;

use super::quantile::{Sketch, Weighted, order};
use super::raw_values::RawValues;
use super::thinning::{label_text, thin};
use super::weighted_sum::{DecreaseFlag, add_weighted};
use crate::mapper::{Quantile, SummaryOptions};
use crate::statsd::clock::Moment;

/// The number of raw values at which a stream adds them to its sketch.
const EXACT: usize = 500;
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(600);
const DEFAULT_AGE_BUCKETS: u32 = 5;
/// The maximum number of streams. More would not justify their cost, because each stream processes every
/// value.
const MAX_AGE_BUCKETS: u32 = 1_000;

/// A sliding window of several parts. A part ends after each interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The length of a part in nanoseconds.
    interval: u64,
    pub(super) parts: u32,
}

impl Window {
    /// Returns the end of the first part of a window that starts now.
    pub(super) fn first_end(self, now: Moment) -> u64 {
        now.nanos().saturating_add(self.interval)
    }

    /// Returns the number of parts that have ended since `end`, and moves `end` to that of the current part.
    #[inline]
    pub(super) fn ended(self, end: &mut u64, now: Moment) -> u64 {
        if now.nanos() <= *end {
            return 0;
        }
        let ended = (now.nanos() - *end).div_ceil(self.interval);
        *end = end.saturating_add(ended.saturating_mul(self.interval));
        ended
    }
}

/// The settings that all series of a summary share.
#[derive(Debug)]
pub(crate) struct SummarySpec {
    targets: Vec<Quantile>,
    labels: Vec<Box<[u8]>>,
    /// A stream starts at the end of each part.
    window: Window,
    decrease_flag: Arc<DecreaseFlag>,
}

impl SummarySpec {
    /// Creates settings from the options of a rule, whose quantiles are from 0 to 1. They are sorted; the last of
    /// equal ones wins.
    pub(crate) fn new(options: &SummaryOptions) -> Self {
        let mut targets: Vec<Quantile> = Vec::with_capacity(options.quantiles.len());
        for &Quantile { quantile, error } in &options.quantiles {
            let target = Quantile { quantile, error: error.max(0.0) };
            match targets.iter_mut().find(|known| known.quantile == target.quantile) {
                Some(known) => *known = target,
                None => targets.push(target),
            }
        }
        targets.sort_by(|a, b| a.quantile.total_cmp(&b.quantile));
        let labels = targets.iter().map(|target| label_text(target.quantile)).collect();
        let parts = match options.age_buckets {
            0 => DEFAULT_AGE_BUCKETS,
            count => count.min(MAX_AGE_BUCKETS),
        };
        let max_age = if options.max_age.is_zero() { DEFAULT_MAX_AGE } else { options.max_age };
        let interval = max_age.as_nanos() / u128::from(parts);
        let interval = u64::try_from(interval).unwrap_or(u64::MAX).max(1);
        Self { targets, labels, window: Window { interval, parts }, decrease_flag: Arc::default() }
    }

    /// Reports to `decrease_flag` whether the sum may decrease.
    pub(crate) fn with_decrease_flag(self, decrease_flag: Arc<DecreaseFlag>) -> Self {
        Self { decrease_flag, ..self }
    }

    /// Returns the settings with `less` quantiles removed, evenly spread.
    pub(crate) fn with_fewer(&self, less: u64) -> Self {
        Self {
            targets: thin(&self.targets, less),
            labels: thin(&self.labels, less),
            window: self.window,
            decrease_flag: Arc::clone(&self.decrease_flag),
        }
    }

    /// Returns the quantiles in ascending order, each with its label value.
    pub(crate) fn quantiles(&self) -> impl Iterator<Item = (f64, &[u8])> {
        self.targets.iter().zip(&self.labels).map(|(target, label)| (target.quantile, &**label))
    }

    /// Returns the number of samples of a series: quantiles, sum and count.
    pub(crate) fn samples(&self) -> u64 {
        self.targets.len() as u64 + 2
    }

    /// Returns the sliding window.
    pub(crate) fn window(&self) -> Window {
        self.window
    }
}

/// The aggregate of one series.
#[derive(Debug)]
pub(crate) struct Summary {
    /// The shared settings.
    pub(crate) spec: Arc<SummarySpec>,
    /// The number and the sum of all observations since creation.
    pub(crate) count: u64,
    pub(crate) sum: f64,
    /// The values that some stream needs: fewer than [`EXACT`].
    raw: RawValues,
    /// For each stream, the oldest first: the index of its first raw value that its sketch does not have.
    starts: Box<[u16]>,
    /// The sketches of the streams; none until a stream has [`EXACT`] values, because most summaries never have
    /// as many. A stream whose sketch is empty has only raw values.
    sketches: Box<[Sketch]>,
    next_rotation: u64,
}

impl Summary {
    /// Creates an empty summary whose window starts now.
    pub(crate) fn new(spec: Arc<SummarySpec>, now: Moment) -> Self {
        let starts = (0..spec.window.parts).map(|_| 0).collect();
        let (sketches, next_rotation) = (Box::default(), spec.window.first_end(now));
        Self { spec, count: 0, sum: 0.0, raw: RawValues::new(), starts, sketches, next_rotation }
    }

    /// Returns the number of heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.raw.heap_bytes()
            + size_of_val(&*self.starts)
            + size_of_val(&*self.sketches)
            + self.sketches.iter().map(Sketch::heap_bytes).sum::<usize>()
    }

    /// Observes `value` `weight` times.
    pub(crate) fn observe(&mut self, value: f64, weight: u64, now: Moment) {
        if weight == 0 {
            return;
        }
        self.rotate(now);
        self.spec.decrease_flag.observe(value);
        self.count = self.count.saturating_add(weight);
        add_weighted(&mut self.sum, value, weight);
        if self.spec.targets.is_empty() {
            return;
        }
        self.raw.push(value, weight);
        let mut folded = false;
        for stream in 0..self.starts.len() {
            if self.raw.len() - usize::from(self.starts[stream]) >= EXACT {
                self.fold(stream);
                folded = true;
            }
        }
        if folded {
            self.drop_folded();
        }
    }

    /// Returns the raw values of a stream, sorted in ascending order.
    fn sorted(&self, start: u16) -> Vec<Weighted> {
        let mut values = self.raw.from(start.into());
        values.sort_unstable_by(|a, b| order(a.value, b.value));
        values
    }

    /// Adds the raw values of a stream to its sketch.
    fn fold(&mut self, stream: usize) {
        let values = self.sorted(self.starts[stream]);
        if self.sketches.is_empty() {
            self.sketches = self.starts.iter().map(|_| Sketch::default()).collect();
        }
        self.sketches[stream].insert_sorted(&self.spec.targets, &values);
        self.starts[stream] = self.raw.len() as u16;
    }

    /// Removes raw values that no stream needs any more.
    fn drop_folded(&mut self) {
        let gone = self.starts.iter().copied().min().unwrap_or(0);
        self.raw.remove_first(gone.into());
        self.starts.iter_mut().for_each(|start| *start -= gone);
    }

    /// Replaces the streams whose time is over by new ones.
    fn rotate(&mut self, now: Moment) {
        let turns = self.spec.window.ended(&mut self.next_rotation, now);
        if turns == 0 {
            return;
        }
        let over = turns.min(self.starts.len() as u64) as usize;
        self.starts[..over].fill(self.raw.len() as u16);
        self.starts.rotate_left(over);
        if !self.sketches.is_empty() {
            self.sketches[..over].fill_with(Sketch::default);
            self.sketches.rotate_left(over);
            if self.sketches.iter().all(Sketch::is_empty) {
                self.sketches = Box::default();
            }
        }
        self.drop_folded();
        if self.raw.len() == 0 {
            self.raw = RawValues::new();
        }
    }

    /// Appends the current quantiles in the order of [`SummarySpec::quantiles`]; NaN if the window is empty.
    pub(crate) fn quantiles(&mut self, now: Moment, out: &mut Vec<f64>) {
        self.rotate(now);
        let Some(&start) = self.starts.first() else {
            return out.extend(self.spec.targets.iter().map(|_| f64::NAN));
        };
        if self.sketches.first().is_none_or(Sketch::is_empty) {
            let values = self.sorted(start);
            let total: u64 = values.iter().map(|each| each.weight).sum();
            out.extend(
                self.spec.targets.iter().map(|target| exact(&values, total, target.quantile)),
            );
            return;
        }
        self.fold(0);
        self.drop_folded();
        let sketch = &self.sketches[0];
        let targets = self.spec.targets.iter();
        out.extend(targets.map(|target| sketch.query(*target).unwrap_or(f64::NAN)));
    }
}

/// Returns the value of rank `ceil(total * quantile)` among sorted weighted values.
fn exact(values: &[Weighted], total: u64, quantile: f64) -> f64 {
    let rank = ((total as f64 * quantile).ceil() as u64).max(1);
    let mut seen = 0;
    for &Weighted { value, weight } in values {
        seen += weight;
        if seen >= rank {
            return value;
        }
    }
    values.last().map_or(f64::NAN, |last| last.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapper::Defaults;
    use crate::statsd::clock::Clock;

    fn spec(max_age: Duration, age_buckets: u32) -> Arc<SummarySpec> {
        Arc::new(SummarySpec::new(&SummaryOptions {
            max_age,
            age_buckets,
            ..Defaults::default().summary_options
        }))
    }

    fn quantiles(summary: &mut Summary, clock: &Clock) -> Vec<f64> {
        let mut out = Vec::new();
        summary.quantiles(clock.now(), &mut out);
        out
    }

    #[test]
    fn up_to_499_values_are_exact() {
        let clock = Clock::manual();
        let mut summary = Summary::new(spec(Duration::ZERO, 0), clock.now());
        for value in (1..=499).rev() {
            summary.observe(f64::from(value), 1, clock.now());
        }
        assert_eq!(quantiles(&mut summary, &clock), [250.0, 450.0, 495.0]);
        assert_eq!((summary.count, summary.sum), (499, 124_750.0));
    }

    #[test]
    fn more_values_are_within_their_errors() {
        let clock = Clock::manual();
        let mut summary = Summary::new(spec(Duration::ZERO, 0), clock.now());
        for value in 0..20_000u32 {
            summary.observe(f64::from(value * 7_919 % 20_000), 1, clock.now());
        }
        let got = quantiles(&mut summary, &clock);
        for (got, (want, error)) in
            got.iter().zip([(10_000.0, 1_000.0), (18_000.0, 200.0), (19_800.0, 20.0)])
        {
            assert!((got - want).abs() <= error + 1.0, "{got} for {want}±{error}");
        }
    }

    #[test]
    fn values_expire_with_the_window_but_the_sum_stays() {
        let clock = Clock::manual();
        let mut summary = Summary::new(spec(Duration::from_secs(1), 2), clock.now());
        summary.observe(5.0, 1, clock.now());
        assert_eq!(quantiles(&mut summary, &clock), [5.0; 3]);
        clock.advance(Duration::from_millis(900));
        summary.observe(7.0, 1, clock.now());
        assert_eq!(quantiles(&mut summary, &clock), [5.0, 7.0, 7.0]);
        clock.advance(Duration::from_millis(400));
        assert_eq!(quantiles(&mut summary, &clock), [7.0; 3]);
        clock.advance(Duration::from_millis(400));
        assert!(quantiles(&mut summary, &clock).iter().all(|value| value.is_nan()));
        assert_eq!((summary.count, summary.sum), (2, 12.0));
    }

    #[test]
    fn a_window_becomes_exact_again_after_a_burst() {
        let clock = Clock::manual();
        let mut summary = Summary::new(spec(Duration::from_secs(10), 5), clock.now());
        for value in 0..5_000 {
            summary.observe(f64::from(value), 1, clock.now());
        }
        for _ in 0..6 {
            clock.advance(Duration::from_secs(2));
            summary.observe(3.0, 1, clock.now());
        }
        assert_eq!(quantiles(&mut summary, &clock), [3.0; 3]);
        assert!(summary.raw.len() < 10);
    }

    #[test]
    fn scrapes_leave_no_values_in_a_window_of_one_part() {
        let clock = Clock::manual();
        let mut summary = Summary::new(spec(Duration::from_secs(10), 1), clock.now());
        for value in 0..5_000 {
            summary.observe(f64::from(value), 1, clock.now());
            if value % 100 == 0 {
                quantiles(&mut summary, &clock);
            }
        }
        assert!(summary.raw.len() < EXACT, "{} values", summary.raw.len());
    }

    #[test]
    fn a_long_idle_time_is_one_step() {
        let clock = Clock::manual();
        let mut summary = Summary::new(spec(Duration::from_nanos(5), 5), clock.now());
        summary.observe(1.0, 1, clock.now());
        clock.advance(Duration::from_secs(1_000_000_000));
        summary.observe(2.0, 1, clock.now());
        assert_eq!(quantiles(&mut summary, &clock), [2.0; 3]);
    }

    #[test]
    fn weights_count_as_repeats() {
        let clock = Clock::manual();
        let mut summary = Summary::new(spec(Duration::ZERO, 0), clock.now());
        summary.observe(1.0, 1, clock.now());
        summary.observe(2.0, 1_000_000, clock.now());
        summary.observe(3.0, 1, clock.now());
        summary.observe(9.0, 0, clock.now());
        assert_eq!(quantiles(&mut summary, &clock), [2.0; 3]);
        assert_eq!((summary.count, summary.sum), (1_000_002, 2_000_004.0));
    }

    #[test]
    fn quantiles_are_sorted_and_deduplicated() {
        let quantile = |quantile, error| Quantile { quantile, error };
        let spec = SummarySpec::new(&SummaryOptions {
            quantiles: vec![quantile(0.9, 0.1), quantile(0.00001, 0.1), quantile(0.9, 0.2)],
            ..SummaryOptions::default()
        });
        let labels: Vec<_> = spec.quantiles().map(|(_, label)| label.to_vec()).collect();
        assert_eq!(labels, [b"1e-05".to_vec(), b"0.9".to_vec()]);
        assert_eq!(spec.targets[1].error, 0.2);
    }
}
