//! What a format is given of a series, and what it has to do with it.

use std::sync::Arc;

use crate::exposition::family::Family as OwnFamily;
use crate::statsd::series::family::Family;
use crate::statsd::series::observer::{HistogramSpec, NativeView, SummarySpec};
use crate::statsd::series::registry::View;

/// How a writer goes through the series of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passes {
    /// How often; 0 leaves the family out.
    pub(crate) count: u8,
    /// Every pass sees the numbers that the first one read.
    pub(crate) same: bool,
}

impl Passes {
    pub(crate) const NONE: Self = Self { count: 0, same: false };
    pub(crate) const ONE: Self = Self { count: 1, same: false };
}

/// The numbers of an observer that go with its spec.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Numbers {
    pub(crate) quantiles: Vec<f64>,
    /// Cumulative.
    pub(crate) counts: Vec<u64>,
}

/// The numbers of one observer, taken under its lock.
pub(crate) enum Reading {
    Value(f64),
    Summary { spec: Arc<SummarySpec>, count: u64, sum: f64 },
    Histogram { spec: Arc<HistogramSpec>, count: u64, sum: f64, native: Option<NativeView> },
}

/// A series of an observer.
pub(crate) struct Series<'a> {
    pub(crate) labels: &'a [u8],
    pub(crate) reading: &'a Reading,
    pub(crate) numbers: &'a Numbers,
    pub(crate) created: u32,
}

/// Receives what a scrape meets, in exposition order.
pub(crate) trait Writer {
    /// Says how often the series of a family, which begin on page `near`, are gone through.
    fn passes(&mut self, view: &View, near: usize, family: &Family) -> Passes;
    /// A pass through the series of a family begins; all may turn out to be gone.
    fn begin(&mut self, view: &View, family: &Family, pass: u8);
    /// Whether this pass needs quantiles and buckets.
    fn needs_numbers(&self) -> bool {
        true
    }
    /// A counter or gauge of that family.
    fn scalar(
        &mut self,
        family: &Family,
        labels: &[u8],
        value: f64,
        created: u32,
        out: &mut Vec<u8>,
    );
    /// Any other series of that family.
    fn observer(&mut self, family: &Family, series: &Series<'_>, out: &mut Vec<u8>);
    /// The pass ends.
    fn end(&mut self, out: &mut Vec<u8>);
    /// One of our own families.
    fn own(&mut self, view: &View, family: &OwnFamily, out: &mut Vec<u8>);
}
