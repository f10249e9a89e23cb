//! A histogram with classic cumulative buckets and, if enabled, native buckets.

use std::sync::Arc;

use super::native::{Native, schema_of};
use super::thinning::{label_text, thin};
use super::weighted_sum::{DecreaseFlag, add_weighted};
use crate::exposition::typed::NativeHistogram;

/// The settings that all series of a histogram share.
#[derive(Debug)]
pub(crate) struct HistogramSpec {
    bounds: Vec<f64>,
    labels: Vec<Box<[u8]>>,
    native: Option<(i32, u32)>,
    decrease_flag: Arc<DecreaseFlag>,
}

impl HistogramSpec {
    /// Creates settings from ascending `bounds`; `+Inf` is implied and omitted. `factor` is the
    /// growth of native buckets, which are disabled up to 1. `max_buckets` is their limit.
    pub(crate) fn new(bounds: &[f64], factor: f64, max_buckets: u32) -> Self {
        let bounds = bounds.iter().copied().filter(|bound| *bound != f64::INFINITY);
        let bounds: Vec<f64> = bounds.collect();
        let labels = bounds.iter().map(|&bound| label_text(bound)).collect();
        let native = schema_of(factor).map(|schema| (schema, max_buckets));
        Self { bounds, labels, native, decrease_flag: Arc::default() }
    }

    /// Reports to `decrease_flag` whether the sum may decrease.
    pub(crate) fn with_decrease_flag(self, decrease_flag: Arc<DecreaseFlag>) -> Self {
        self.bounds.iter().for_each(|&bound| decrease_flag.observe(bound));
        Self { decrease_flag, ..self }
    }

    /// Returns the settings with `less` bounds removed, evenly spread.
    pub(crate) fn with_fewer(&self, less: u64) -> Self {
        let (bounds, labels) = (thin(&self.bounds, less), thin(&self.labels, less));
        Self { bounds, labels, native: self.native, decrease_flag: Arc::clone(&self.decrease_flag) }
    }

    /// Returns the ascending upper bounds without `+Inf`.
    pub(crate) fn upper_bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Returns the number of samples of a series: the buckets with `+Inf`, sum and count.
    pub(crate) fn samples(&self) -> u64 {
        self.bounds.len() as u64 + 3
    }

    /// Returns the upper bounds without `+Inf`, each with its label value.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = (f64, &[u8])> {
        self.bounds.iter().zip(&self.labels).map(|(&bound, label)| (bound, &**label))
    }
}

/// The aggregate of one series.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The shared settings.
    pub(crate) spec: Arc<HistogramSpec>,
    /// The number and the sum of all observations since creation.
    pub(crate) count: u64,
    pub(crate) sum: f64,
    /// The count per bucket, not cumulative. Values above the last bound are only in `count`.
    counts: Box<[u64]>,
    /// Boxed, because few histograms have them and every summary would be as large.
    native: Option<Box<Native>>,
}

impl Histogram {
    /// Creates an empty histogram.
    pub(crate) fn new(spec: Arc<HistogramSpec>) -> Self {
        let counts = vec![0; spec.bounds.len()].into_boxed_slice();
        let native = spec.native.map(|(schema, limit)| Box::new(Native::new(schema, limit)));
        Self { spec, count: 0, sum: 0.0, counts, native }
    }

    /// Returns the number of heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.counts)
            + self.native.as_ref().map_or(0, |native| size_of::<Native>() + native.heap_bytes())
    }

    /// Observes `value` `weight` times. NaN only counts in `+Inf`.
    pub(crate) fn observe(&mut self, value: f64, weight: u64) {
        if weight == 0 {
            return;
        }
        self.spec.decrease_flag.observe(value);
        self.count = self.count.saturating_add(weight);
        add_weighted(&mut self.sum, value, weight);
        let bucket = self.spec.bounds.partition_point(|&bound| !(bound >= value));
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(weight);
        }
        if let Some(native) = &mut self.native {
            native.observe(value, weight);
        }
    }

    /// Appends the cumulative counts in the order of [`HistogramSpec::bounds`].
    pub(crate) fn cumulative(&self, out: &mut Vec<u64>) {
        let mut total = 0u64;
        out.extend(self.counts.iter().map(|count| {
            total = total.saturating_add(*count);
            total
        }));
    }

    /// Returns a copy of the native buckets, if they are enabled.
    pub(crate) fn native(&self) -> Option<NativeHistogram> {
        self.native.as_deref().map(Native::view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cumulative(histogram: &Histogram) -> Vec<u64> {
        let mut out = Vec::new();
        histogram.cumulative(&mut out);
        out
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let spec = Arc::new(HistogramSpec::new(&[1.0, 2.5, f64::INFINITY], 0.0, 0));
        let mut histogram = Histogram::new(spec);
        for value in [0.5, 1.0, 1.1, 2.5, 2.6, f64::INFINITY, f64::NEG_INFINITY] {
            histogram.observe(value, 1);
        }
        histogram.observe(f64::NAN, 2);
        assert_eq!(cumulative(&histogram), [3, 5]);
        assert_eq!(histogram.count, 9);
        assert!(histogram.sum.is_nan());
        assert!(histogram.native().is_none());
    }

    #[test]
    fn weights_count_as_repeats() {
        let mut histogram = Histogram::new(Arc::new(HistogramSpec::new(&[1.0], 1.1, 256)));
        histogram.observe(0.1, 3);
        histogram.observe(2.0, 1_000_000);
        histogram.observe(2.0, 0);
        assert_eq!(cumulative(&histogram), [3]);
        assert_eq!(histogram.count, 1_000_003);
        assert_eq!(histogram.sum, 0.1 + 0.1 + 0.1 + 2_000_000.0);
        let native = histogram.native().expect("on");
        assert_eq!(native.positive.iter().map(|bucket| bucket.count).sum::<u64>(), 1_000_003);
    }
}
