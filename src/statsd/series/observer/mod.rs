//! The aggregates of observer series: quantiles, buckets or the number of distinct members.
//!
//! Values are *weighted*: a timer with rate 0.000001 is one observation of weight 1,000,000, at the cost of
//! one.

mod distinct;
mod histogram;
mod native;
mod quantile;
mod raw_values;
mod summary;
mod thinning;
mod weighted_sum;

pub(crate) use distinct::Distinct;
pub(crate) use histogram::{Histogram, HistogramSpec};
pub(crate) use summary::{Summary, SummarySpec, Window};
pub(crate) use weighted_sum::DecreaseFlag;

use crate::statsd::clock::Moment;

/// The aggregate of one series.
#[derive(Debug)]
pub(crate) enum Observer {
    /// Quantiles over a sliding window.
    Summary(Summary),
    /// Classic and native buckets.
    Histogram(Histogram),
    /// The number of distinct members in a sliding window.
    Distinct(Distinct),
}

impl Observer {
    /// Observes `value` `weight` times. Ignored by sets.
    pub(crate) fn observe(&mut self, value: f64, weight: u64, now: Moment) {
        match self {
            Self::Summary(summary) => summary.observe(value, weight, now),
            Self::Histogram(histogram) => histogram.observe(value, weight),
            Self::Distinct(_) => {}
        }
    }

    /// Returns the number of samples of the series.
    pub(crate) fn samples(&self) -> u64 {
        match self {
            Self::Summary(summary) => summary.spec.samples(),
            Self::Histogram(histogram) => histogram.spec.samples(),
            Self::Distinct(_) => 1,
        }
    }

    /// Returns the number of heap bytes, in addition to the size of the value.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Summary(summary) => summary.heap_bytes(),
            Self::Histogram(histogram) => histogram.heap_bytes(),
            Self::Distinct(set) => set.heap_bytes(),
        }
    }
}
