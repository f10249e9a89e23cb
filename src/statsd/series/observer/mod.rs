//! What an observer series aggregates: values in, quantiles, buckets or a count of distinct members out.
//!
//! Every kind takes *weighted* values: a timer at rate 0.000001 is one observation of weight 1,000,000, at the cost of
//! one. Nothing here knows names, labels or locks.

mod distinct;
mod histogram;
mod native;
mod quantile;
mod summary;
mod sums;

pub(crate) use distinct::{Distinct, SetSpec};
pub(crate) use histogram::{Histogram, HistogramSpec};
pub(crate) use native::{NativeView, ZERO_THRESHOLD};
pub(crate) use summary::{Summary, SummarySpec};
pub(crate) use sums::Falls;

use crate::statsd::clock::Moment;

/// The aggregate of one series.
#[derive(Debug)]
pub(crate) enum Observer {
    /// Quantiles over a sliding window.
    Summary(Summary),
    /// Classic and native buckets.
    Histogram(Histogram),
    /// How many different members a set had in a sliding window.
    Distinct(Distinct),
}

impl Observer {
    /// Observes `value` `weight` times. A set has no values and ignores it.
    pub(crate) fn observe(&mut self, value: f64, weight: u64, now: Moment) {
        match self {
            Self::Summary(summary) => summary.observe(value, weight, now),
            Self::Histogram(histogram) => histogram.observe(value, weight),
            Self::Distinct(_) => {}
        }
    }

    /// Lines of the text format that a series of this has.
    pub(crate) fn samples(&self) -> u64 {
        match self {
            Self::Summary(summary) => summary.spec().samples(),
            Self::Histogram(histogram) => histogram.spec().samples(),
            Self::Distinct(_) => 1,
        }
    }

    /// Bytes that it has on the heap, beside its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Summary(summary) => summary.heap_bytes(),
            Self::Histogram(histogram) => histogram.heap_bytes(),
            Self::Distinct(set) => set.heap_bytes(),
        }
    }
}
