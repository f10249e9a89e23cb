//! Metric primitives: counter, gauge, histogram, and sets of them by label.
//!
//! All are cheap to clone, and clones share the same series. A [`Row`] describes the family of a
//! metric.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::exposition::family::{Buckets, Collect, Family, Kind, Series, Value};
use crate::exposition::labels;
use crate::util::lock::Lock;

/// A counter.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Increments the counter by 1.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Increments the counter by `count`.
    pub fn inc_by(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A gauge.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Sets the gauge.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds `change`, which may be negative.
    pub fn add(&self, change: f64) {
        let changed = |bits| Some((f64::from_bits(bits) + change).to_bits());
        // The closure never returns `None`.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }

    /// Returns the current value.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// A histogram of seconds with the default buckets of Prometheus' clients.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Arc<Lock<HistogramState>>);

const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Non-cumulative bucket counts, the overflow bucket last, and the sum.
#[derive(Debug, Default)]
struct HistogramState {
    counts: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Histogram {
    /// Records an observation.
    pub fn observe(&self, value: f64) {
        let mut observed = self.0.lock();
        let bucket = BOUNDS.partition_point(|bound| *bound < value);
        observed.counts[bucket] += 1;
        observed.sum += value;
    }
}

/// The series of one family, by label values.
#[derive(Clone, Debug)]
pub struct Labelled<M, const N: usize> {
    names: [&'static str; N],
    series: Arc<RwLock<BTreeMap<[Box<str>; N], M>>>,
}

impl<M, const N: usize> Labelled<M, N> {
    /// Returns the series to read, while a scrape also may.
    fn shared(&self) -> RwLockReadGuard<'_, BTreeMap<[Box<str>; N], M>> {
        self.series.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, BTreeMap<[Box<str>; N], M>> {
        self.series.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Clone + Default, const N: usize> Labelled<M, N> {
    /// Creates an empty set. The names must be sorted, like Go's client does.
    pub fn new(names: [&'static str; N]) -> Self {
        debug_assert!(names.is_sorted(), "{names:?}");
        Self { names, series: Arc::default() }
    }

    /// Returns the series with these label values, creating it if needed.
    pub fn with(&self, values: [&str; N]) -> M {
        let key = values.map(Box::from);
        if let Some(series) = self.shared().get(&key) {
            return series.clone();
        }
        self.exclusive().entry(key).or_default().clone()
    }

    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.shared().len()
    }

    /// Returns whether there is a series with these label values.
    pub(crate) fn has(&self, values: [&str; N]) -> bool {
        self.shared().contains_key(&values.map(Box::from))
    }

    /// Returns all series with their label values.
    pub(crate) fn each(&self) -> Vec<([Box<str>; N], M)> {
        self.shared().clone().into_iter().collect()
    }

    /// Removes the series with these label values.
    pub(crate) fn remove(&self, values: [&str; N]) {
        self.exclusive().remove(&values.map(Box::from));
    }

    /// Removes all series.
    pub fn clear(&self) {
        self.exclusive().clear();
    }
}

/// A metric that can be exported.
pub trait Read: Send + Sync {
    /// Appends the current series, prefixed with these labels.
    fn read(&self, labels: &[u8], out: &mut Vec<Series>);
}

impl Read for Counter {
    fn read(&self, labels: &[u8], out: &mut Vec<Series>) {
        let value = Value::Number(self.get() as f64);
        out.push(Series { labels: labels.to_vec(), value });
    }
}

impl Read for Gauge {
    fn read(&self, labels: &[u8], out: &mut Vec<Series>) {
        let value = Value::Number(self.get());
        out.push(Series { labels: labels.to_vec(), value });
    }
}

impl Read for Histogram {
    fn read(&self, labels: &[u8], out: &mut Vec<Series>) {
        let observed = self.0.lock();
        let mut sum = 0;
        let cumulative = observed.counts.iter().map(|count| {
            sum += count;
            sum
        });
        let buckets = Buckets { bounds: &BOUNDS, counts: cumulative.collect(), sum: observed.sum };
        out.push(Series { labels: labels.to_vec(), value: Value::Histogram(buckets) });
    }
}

impl<M: Read, const N: usize> Read for Labelled<M, N> {
    fn read(&self, before: &[u8], out: &mut Vec<Series>) {
        for (values, metric) in self.shared().iter() {
            let mut text = before.to_vec();
            for (name, value) in self.names.iter().zip(values) {
                labels::push(&mut text, name, value);
            }
            metric.read(&text, out);
        }
    }
}

impl<F: Fn() -> f64 + Send + Sync> Read for F {
    fn read(&self, labels: &[u8], out: &mut Vec<Series>) {
        out.push(Series { labels: labels.to_vec(), value: Value::Number(self()) });
    }
}

/// A family and the source of its values.
pub struct Row {
    /// The name, as in [`Family::name`].
    pub name: &'static str,
    /// The help text, as in [`Family::help`].
    pub help: &'static str,
    /// The metric type.
    pub kind: Kind,
    /// The source of the values.
    pub series: Box<dyn Read>,
}

impl Row {
    /// Creates the row of a counter.
    pub fn counter(name: &'static str, help: &'static str, series: impl Read + 'static) -> Self {
        Self { name, help, kind: Kind::Counter, series: Box::new(series) }
    }

    /// Creates the row of a histogram.
    pub fn histogram(name: &'static str, help: &'static str, series: impl Read + 'static) -> Self {
        Self { name, help, kind: Kind::Histogram, series: Box::new(series) }
    }

    /// Creates the row of a gauge.
    pub fn gauge(name: &'static str, help: &'static str, series: impl Read + 'static) -> Self {
        Self { name, help, kind: Kind::Gauge, series: Box::new(series) }
    }
}

impl Collect for Row {
    fn collect(&self, out: &mut Vec<Family>) {
        let mut series = Vec::new();
        self.series.read(&[], &mut series);
        out.push(Family { name: self.name, help: self.help, kind: self.kind, series });
    }

    fn may_have(&self, names: &BTreeSet<String>) -> bool {
        names.contains(self.name)
    }
}

/// Declares a struct of metrics, one row for each family, with `Default` and `register`.
///
/// A row is `TYPE FIELD: METRIC [LABELS] = NAME, HELP;`, where the metric type is `counter`, `gauge` or `histogram` and only a
/// [`Labelled`] has labels. Fields below `state` are no metrics.
macro_rules! own_metrics {
    (@new $metric:ty) => { <$metric>::default() };
    (@new $metric:ty, $($label:literal)+) => { <$metric>::new([$($label),+]) };
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $struct:ident {
            $($kind:ident $field_visibility:vis $field:ident: $metric:ty $([$($label:literal),+])?
                = $name:literal, $help:literal;)+
        }
        $(state { $($(#[$about:meta])* $other_visibility:vis $other:ident: $other_type:ty,)+ })?
    ) => {
        $(#[$attribute])*
        $visibility struct $struct {
            $(#[doc = $help] $field_visibility $field: $metric,)+
            $($($(#[$about])* $other_visibility $other: $other_type,)+)?
        }

        impl Default for $struct {
            fn default() -> Self {
                Self {
                    $($field: $crate::telemetry::metric::own_metrics!(@new $metric $(, $($label)+)?),)+
                    $($($other: Default::default(),)+)?
                }
            }
        }

        impl $struct {
            /// Registers all metrics.
            pub(crate) fn register(
                &self,
                recorder: &mut impl Extend<$crate::telemetry::metric::Row>,
            ) {
                use $crate::telemetry::metric::Row;
                recorder.extend([$(Row::$kind($name, $help, self.$field.clone())),+]);
            }
        }
    };
}

pub(crate) use own_metrics;

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(row: Row) -> String {
        let mut families = Vec::new();
        row.collect(&mut families);
        let mut out = Vec::new();
        families.iter().for_each(|family| family.text(&mut out, crate::exposition::Format::Text));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn series_are_sorted_by_labels_and_share_counts() {
        let calls = Labelled::<Counter, 2>::new(["a", "b"]);
        calls.with(["y", "1"]).inc();
        let held = calls.with(["x", "\"2\""]);
        calls.clone().with(["x", "\"2\""]).inc_by(4);
        held.inc();
        assert_eq!(
            collected(Row::counter("calls_total", "Calls.", calls.clone())),
            "# HELP calls_total Calls.\n# TYPE calls_total counter\n\
             calls_total{a=\"x\",b=\"\\\"2\\\"\"} 5\ncalls_total{a=\"y\",b=\"1\"} 1\n"
        );
        calls.clear();
        assert!(!collected(Row::counter("calls_total", "Calls.", calls)).contains("calls_total{"));
    }

    #[test]
    fn gauges_increase_and_decrease() {
        let gauge = Gauge::default();
        gauge.add(2.0);
        gauge.add(-0.5);
        assert_eq!(gauge.get(), 1.5);
        gauge.set(-7.0);
        assert!(collected(Row::gauge("g", "G.", gauge)).ends_with("\ng -7\n"));
    }

    #[test]
    fn bucket_bounds_are_inclusive() {
        let histogram = Histogram::default();
        for value in [0.005, 0.0051, 10.0, 11.0] {
            histogram.observe(value);
        }
        let row = Row { name: "h", help: "H.", kind: Kind::Histogram, series: Box::new(histogram) };
        let text = collected(row);
        for line in [
            "h_bucket{le=\"0.005\"} 1\n",
            "h_bucket{le=\"0.01\"} 2\n",
            "h_bucket{le=\"10\"} 3\n",
            "h_bucket{le=\"+Inf\"} 4\n",
            "h_sum 21.0101\n",
            "h_count 4\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
