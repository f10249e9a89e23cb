//! The interface between a scrape and the writer of a format.

use std::sync::Arc;

use crate::exposition::family::{Family as OwnFamily, Series as OwnSeries};
use crate::exposition::typed::NativeHistogram;
use crate::statsd::series::family::Family;
use crate::statsd::series::observer::{HistogramSpec, SummarySpec};
use crate::statsd::series::registry::View;

/// The quantiles or buckets of an observer, as described by its spec.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Distribution {
    pub(crate) quantiles: Vec<f64>,
    /// Cumulative bucket counts.
    pub(crate) counts: Vec<u64>,
}

/// The values of one observer, read under its lock.
pub(crate) enum Reading {
    Value(f64),
    Summary { spec: Arc<SummarySpec>, count: u64, sum: f64 },
    Histogram { spec: Arc<HistogramSpec>, count: u64, sum: f64, native: Option<NativeHistogram> },
}

/// The value of a counter or gauge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalarSample {
    pub(crate) value: f64,
    /// The tick of creation; 0 if unknown.
    pub(crate) created: u32,
}

/// The values of an observer and the tick of its creation.
pub(crate) struct ObserverSample {
    pub(crate) reading: Reading,
    pub(crate) created: u32,
}

/// One series of an observer.
pub(crate) struct Series<'a> {
    pub(crate) labels: &'a [u8],
    pub(crate) reading: &'a Reading,
    pub(crate) distribution: &'a Distribution,
    pub(crate) created: u32,
}

/// Writes families and series, called in exposition order.
pub(crate) trait Writer {
    /// True if later passes must use the values that the first one read.
    const REUSES_VALUES: bool;
    /// Returns the number of passes over the series of a family, which begin on page `near`.
    fn passes(&mut self, view: &View, near: usize, family: &Family) -> u8;
    /// Begins a pass over a family. All of its series may turn out to have expired.
    fn begin(&mut self, view: &View, family: &Family, pass: u8);
    /// Returns true if this pass needs quantiles and buckets.
    fn needs_distribution(&self) -> bool {
        true
    }
    /// Writes a counter or gauge of the family.
    fn scalar(&mut self, family: &Family, labels: &[u8], read: ScalarSample, out: &mut Vec<u8>);
    /// Writes any other series of the family.
    fn observer(&mut self, family: &Family, series: &Series<'_>, out: &mut Vec<u8>);
    /// Ends the pass.
    fn end(&mut self, out: &mut Vec<u8>);
    /// Returns the number of passes over each of our own families.
    fn own_passes(&self) -> u8;
    /// Begins a pass over one of our own families, which has series. It is ended like the other ones.
    fn begin_own(&mut self, view: &View, family: &OwnFamily, pass: u8, out: &mut Vec<u8>);
    /// Writes a series of the family.
    fn own(&mut self, family: &OwnFamily, series: &OwnSeries, out: &mut Vec<u8>);
}
