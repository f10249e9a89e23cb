//! The typed form of a snapshot: families and samples as values.
//!
//! Every format that is not text is written from it. A [`Source`](super::Source) returns a [`TypedBody`], which passes
//! the families in exposition order to a [`FamilyEncoder`], and the encoder of a format appends them to a buffer. So a
//! source knows no format, and a format knows no source. No source has exemplars or units.

use crate::util::words::words;
use std::time::Duration;

words! {
    /// The type of a family.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Kind {
        /// A monotonic counter.
        Counter = "counter",
        /// A value that can go up and down.
        #[default]
        Gauge = "gauge",
        /// Quantiles, sum and count.
        Summary = "summary",
        /// Cumulative buckets, sum and count.
        Histogram = "histogram",
    }
}

impl Kind {
    /// Returns the number and name in `io.prometheus.client.MetricType`.
    pub const fn message(self) -> (u64, &'static str) {
        match self {
            Self::Counter => (0, "COUNTER"),
            Self::Gauge => (1, "GAUGE"),
            Self::Summary => (2, "SUMMARY"),
            Self::Histogram => (4, "HISTOGRAM"),
        }
    }
}

/// The description of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyHead<'a> {
    /// The name of the series; ends in `_total` for most counters.
    pub name: &'a str,
    /// The HELP text, unescaped.
    pub help: &'a str,
    /// The metric type.
    pub kind: Kind,
}

/// A series with its current value.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The [rendered](super::labels) labels, in two parts; either may be empty.
    pub labels: [&'a [u8]; 2],
    /// The current value.
    pub value: SampleValue<'a>,
    /// The time at which a counter, summary or histogram started from zero, since the Unix epoch, if known.
    pub created: Option<Duration>,
}

/// The value of a series.
#[derive(Clone, Copy, Debug)]
pub enum SampleValue<'a> {
    /// The value of a counter or gauge.
    Number(f64),
    /// The quantiles of a summary.
    Summary {
        /// The number of observations.
        count: u64,
        /// The sum of the observations.
        sum: f64,
        /// The quantiles, ascending.
        quantiles: &'a [Quantile],
    },
    /// The buckets of a histogram.
    Histogram {
        /// The number of observations.
        count: u64,
        /// The sum of the observations.
        sum: f64,
        /// The upper bounds of the classic buckets, without infinity.
        bounds: &'a [f64],
        /// The cumulative count for each bound.
        counts: &'a [u64],
        /// The native buckets, if the histogram has them.
        native: Option<&'a NativeHistogram>,
    },
}

/// A quantile and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// The rank, from 0 to 1.
    pub quantile: f64,
    /// The value; NaN without recent observations.
    pub value: f64,
}

/// Values of at most this magnitude belong to the zero bucket of a native histogram.
pub const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// The sparse buckets of a native histogram, in ascending order of index.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeHistogram {
    /// The resolution: bucket bounds grow by the factor `2^(2^-schema)`.
    pub schema: i32,
    /// The count of the zero bucket.
    pub zero: u64,
    /// The buckets of positive values.
    pub positive: Vec<NativeBucket>,
    /// The buckets of negative values.
    pub negative: Vec<NativeBucket>,
}

/// A bucket of a native histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeBucket {
    /// The index, which determines the bounds.
    pub index: i32,
    /// The number of observations, not cumulative.
    pub count: u64,
}

/// A writer of one format. It is called for one family after the other.
pub trait FamilyEncoder: Send {
    /// Returns the number of passes over the samples of a family. All passes get the same samples.
    fn passes(&self) -> u8;
    /// Begins a pass, from 0. A family may turn out to have no samples.
    fn begin(&mut self, family: &FamilyHead<'_>, pass: u8);
    /// Appends a sample.
    fn sample(&mut self, sample: &Sample<'_>, out: &mut Vec<u8>);
    /// Ends the pass.
    fn end(&mut self, out: &mut Vec<u8>);
}

/// A snapshot being read. It holds no lock.
pub trait TypedBody: Send {
    /// Passes the next samples to `encoder`, until `out` has the size of a frame or about a millisecond has passed.
    /// Returns true if there may be more.
    fn step(&mut self, encoder: &mut dyn FamilyEncoder, out: &mut Vec<u8>) -> bool;
}
