//! What an observer series aggregates: values in, quantiles, buckets or a count of distinct members out.
//!
//! Every kind takes *weighted* values: a timer at rate 0.000001 is one observation of weight 1,000,000, at the cost of
//! one. Nothing here knows names, labels or locks.

mod distinct;
mod histogram;
mod native;
mod quantile;
mod summary;

pub(crate) use distinct::{Distinct, SetSpec};
pub(crate) use histogram::{Histogram, HistogramSpec};
pub(crate) use native::{NativeView, ZERO_THRESHOLD};
pub(crate) use summary::{Summary, SummarySpec};

use std::sync::atomic::{AtomicBool, Ordering};

use crate::statsd::clock::Moment;

/// Whether a sum may fall: a negative value or NaN was observed, or buckets reach below 0. A format in which sums are
/// counters cannot show such observers as what they are. It stays so for as long as the family lives, so that a type
/// does not change with every value.
#[derive(Debug, Default)]
pub(crate) struct Falls(AtomicBool);

impl Falls {
    /// Takes note of an observed value.
    #[inline]
    fn observe(&self, value: f64) {
        if !(value >= 0.0) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it does.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

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
}

/// Repeated additions up to this weight, so that small rates sum up exactly as repeated observations do.
const EXACT_REPEATS: u64 = 128;

/// Adds `value` `weight` times to `sum`.
fn add_weighted(sum: &mut f64, value: f64, weight: u64) {
    if weight == 1 {
        *sum += value;
    } else if weight <= EXACT_REPEATS {
        for _ in 0..weight {
            *sum += value;
        }
    } else {
        *sum += value * weight as f64;
    }
}
