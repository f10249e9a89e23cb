//! A metric family as a value, and its encoding in every format.
//!
//! Used for the process's own metrics: a few families, gathered for each scrape by the module that owns the numbers
//! ([`Collect`]) and encoded here. Large data (the lines of the cache, the series of StatsD clients) is written
//! straight from its storage, through the same [`header`], [`float`] and [`FamilyEncoder`].

use std::collections::BTreeSet;
use std::time::Duration;

use super::frames::FRAME;
pub use super::typed::Kind;
use super::typed::{FamilyEncoder, FamilyHead, Sample, SampleValue, TypedBody};
use super::{Format, float, header, labels};

/// A source of families with their current values.
pub trait Collect: Send + Sync {
    /// Appends families in any order. A family without series is omitted from the exposition.
    fn collect(&self, out: &mut Vec<Family>);

    /// Returns whether any of its families may have one of these names. Otherwise a request for them does not collect it.
    fn may_have(&self, names: &BTreeSet<String>) -> bool;
}

/// A constant family.
impl Collect for Family {
    fn collect(&self, out: &mut Vec<Family>) {
        out.push(self.clone());
    }

    fn may_have(&self, names: &BTreeSet<String>) -> bool {
        names.contains(self.name)
    }
}

/// A metric family.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name of its series; ends in `_total` for a counter.
    pub name: &'static str,
    /// The HELP text, unescaped.
    pub help: &'static str,
    /// The metric type.
    pub kind: Kind,
    /// The series, sorted by labels.
    pub series: Vec<Series>,
}

/// One series of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The [rendered](labels) labels.
    pub labels: Vec<u8>,
    /// The current value.
    pub value: Value,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A single number.
    Number(f64),
    /// The buckets of a histogram.
    Histogram(Buckets),
}

/// The buckets of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Upper bounds, without infinity.
    pub bounds: &'static [f64],
    /// Cumulative counts, one for each bound and one for infinity.
    pub counts: Vec<u64>,
    /// Sum of the observations.
    pub sum: f64,
}

impl Buckets {
    fn count(&self) -> u64 {
        self.counts.last().copied().unwrap_or_default()
    }

    /// Returns the bounds, infinity included, with their counts.
    fn iter(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().copied())
    }
}

impl Series {
    /// Creates a series with a single number.
    pub fn new(labels: &[(&str, &str)], value: f64) -> Self {
        Self { labels: labels::rendered(labels), value: Value::Number(value) }
    }

    /// Appends the samples as text. `name` is that of the family.
    pub(crate) fn text(&self, name: &str, out: &mut Vec<u8>, format: Format) {
        let labels = &self.labels;
        match &self.value {
            Value::Number(value) => sample(out, (name, ""), labels, *value),
            Value::Histogram(buckets) => {
                for (bound, count) in buckets.iter() {
                    let labels = with_bound(labels, format, bound);
                    sample(out, (name, "_bucket"), &labels, count as f64);
                }
                sample(out, (name, "_sum"), labels, buckets.sum);
                sample(out, (name, "_count"), labels, buckets.count() as f64);
            }
        }
    }

    /// Passes the series to an encoder.
    pub(crate) fn encode(
        &self,
        created: Option<Duration>,
        encoder: &mut dyn FamilyEncoder,
        out: &mut Vec<u8>,
    ) {
        let value = match &self.value {
            Value::Number(value) => SampleValue::Number(*value),
            Value::Histogram(buckets) => SampleValue::Histogram {
                count: buckets.count(),
                sum: buckets.sum,
                bounds: buckets.bounds,
                counts: &buckets.counts,
                native: None,
            },
        };
        encoder.sample(&Sample { labels: [&self.labels, b""], value, created }, out);
    }
}

impl Family {
    /// Creates a family with one series without labels.
    pub fn one(name: &'static str, help: &'static str, kind: Kind, value: f64) -> Self {
        Self { name, help, kind, series: vec![Series::new(&[], value)] }
    }

    /// Creates a family with one series for each value of one label.
    pub fn by<'a>(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        label: &str,
        series: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Self {
        let series = series.into_iter().map(|(of, value)| Series::new(&[(label, of)], value));
        Self { name, help, kind, series: series.collect() }.sorted()
    }

    /// Sorts the series by labels.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.series.sort_by(|a, b| labels::compare(&a.labels, &b.labels));
        self
    }

    /// Appends the family as text, under the name that the format gives to a family of this type.
    pub fn text(&self, out: &mut Vec<u8>, format: Format) {
        self.head_text(out, format);
        self.series.iter().for_each(|series| series.text(self.name, out, format));
    }

    /// Appends what is before its series.
    pub(crate) fn head_text(&self, out: &mut Vec<u8>, format: Format) {
        let name = match (format, self.kind) {
            (Format::OpenMetrics, Kind::Counter) => self.name.strip_suffix("_total"),
            _ => None,
        };
        header::write(out, format, name.unwrap_or(self.name), self.kind.as_str(), self.help);
    }

    /// Passes the family to an encoder. `created` is the start of all its series that start from zero, if known.
    pub fn encode(
        &self,
        created: Option<Duration>,
        encoder: &mut dyn FamilyEncoder,
        out: &mut Vec<u8>,
    ) {
        for pass in 0..encoder.passes() {
            encoder.begin(&self.head(), pass);
            self.series.iter().for_each(|series| series.encode(created, encoder, out));
            encoder.end(out);
        }
    }

    /// Returns name, help and type.
    pub(crate) fn head(&self) -> FamilyHead<'_> {
        FamilyHead { name: self.name, help: self.help, kind: self.kind }
    }
}

/// Families as the typed form of a source, in exposition order, each with the start of its series, if known.
#[derive(Default)]
pub struct TypedFamilies(std::vec::IntoIter<(Family, Option<Duration>)>);

impl TypedFamilies {
    /// Returns families in exposition order, each with the start of its series, if known.
    pub fn new(families: Vec<(Family, Option<Duration>)>) -> Self {
        Self(families.into_iter())
    }
}

impl TypedBody for TypedFamilies {
    fn step(&mut self, encoder: &mut dyn FamilyEncoder, out: &mut Vec<u8>) -> bool {
        while out.len() < FRAME {
            let Some((family, created)) = self.0.next() else { return false };
            family.encode(created, encoder, out);
        }
        true
    }
}

/// Appends a sample line: name and suffix, rendered labels, value.
#[inline]
pub fn sample(out: &mut Vec<u8>, (name, suffix): (&str, &str), labels: &[u8], value: f64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    if labels.is_empty() {
        out.push(b' ');
    } else {
        out.push(b'{');
        out.extend_from_slice(labels);
        out.extend_from_slice(b"} ");
    }
    float::write(out, value);
    out.push(b'\n');
}

/// Returns `labels` with the `le` label of a bucket. OpenMetrics requires whole numbers to have a decimal point.
fn with_bound(labels: &[u8], format: Format, bound: f64) -> Vec<u8> {
    let mut text = Vec::new();
    float::write(&mut text, bound);
    if format == Format::OpenMetrics && bound.trunc() == bound && bound.is_finite() {
        text.extend_from_slice(b".0");
    }
    let mut with = labels.to_vec();
    labels::push(&mut with, "le", &String::from_utf8_lossy(&text));
    with
}

/// A row of a table of families; see [`family_rows!`](family_rows).
pub(crate) struct FamilyRow<V> {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    /// The source of the series.
    pub(crate) value: V,
}

/// Declares a table of families, one row each: `TYPE NAME, HELP: VALUE;`.
macro_rules! family_rows {
    ($($kind:ident $name:literal, $help:literal: $value:expr;)+) => {
        &[$($crate::exposition::family::FamilyRow {
            name: $name,
            help: $help,
            kind: $crate::exposition::family::Kind::$kind,
            value: $value,
        }),+]
    };
}

pub(crate) use family_rows;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::message::{self, Delimited, ProtoText};
    use crate::exposition::prototext::Layout;
    use crate::exposition::tests::text_converter::TextConverter;

    fn families() -> [Family; 3] {
        let buckets = Buckets { bounds: &[0.5, 1.0], counts: vec![0, 1, 2], sum: 2.5 };
        let labels = labels::rendered(&[("k", "1")]);
        [
            Family {
                name: "a_total",
                help: "Counts \"\\\" and \n.",
                kind: Kind::Counter,
                series: vec![Series::new(&[("x", "}\""), ("y", "")], 3.0)],
            },
            Family::one("b", "B.", Kind::Gauge, -1.5),
            Family {
                name: "h",
                help: "H.",
                kind: Kind::Histogram,
                series: vec![Series { labels, value: Value::Histogram(buckets) }],
            },
        ]
    }

    fn written(write: impl Fn(&Family, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        families().iter().for_each(|family| write(family, &mut out));
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn every_kind_of_family_as_text() {
        assert_eq!(
            written(|family, out| family.text(out, Format::Text)),
            "# HELP a_total Counts \"\\\\\" and \\n.\n# TYPE a_total counter\n\
             a_total{x=\"}\\\"\",y=\"\"} 3\n# HELP b B.\n# TYPE b gauge\nb -1.5\n\
             # HELP h H.\n# TYPE h histogram\nh_bucket{k=\"1\",le=\"0.5\"} 0\n\
             h_bucket{k=\"1\",le=\"1\"} 1\nh_bucket{k=\"1\",le=\"+Inf\"} 2\n\
             h_sum{k=\"1\"} 2.5\nh_count{k=\"1\"} 2\n"
        );
        let open = written(|family, out| family.text(out, Format::OpenMetrics));
        let head = "# HELP a Counts \\\"\\\\\\\" and \\n.\n# TYPE a counter\na_total{";
        assert!(open.starts_with(head), "{open}");
        assert!(open.contains("h_bucket{k=\"1\",le=\"1.0\"} 1\nh_bucket{k=\"1\",le=\"+Inf\"} 2\n"));
    }

    #[test]
    fn every_kind_of_family_as_messages() {
        let text = "name:\"a_total\" help:\"Counts \\\"\\\\\\\" and \\n.\" type:COUNTER \
             metric:{label:{name:\"x\" value:\"}\\\"\"} label:{name:\"y\" value:\"\"} \
             counter:{value:3 created_timestamp:{seconds:7 nanos:500000000}}}\n\
             name:\"b\" help:\"B.\" type:GAUGE metric:{gauge:{value:-1.5}}\n\
             name:\"h\" help:\"H.\" type:HISTOGRAM metric:{label:{name:\"k\" value:\"1\"} \
             histogram:{sample_count:2 sample_sum:2.5 bucket:{cumulative_count:0 upper_bound:0.5} \
             bucket:{cumulative_count:1 upper_bound:1} \
             created_timestamp:{seconds:7 nanos:500000000}}}\n";
        let body = || -> Vec<Box<dyn TypedBody>> {
            let created = Some(Duration::from_millis(7_500));
            let families = families().map(|family| (family, created)).into();
            vec![Box::new(TypedFamilies::new(families))]
        };
        let direct = message::frames(body(), ProtoText::new(Layout::Compact));
        assert_eq!(String::from_utf8(direct.flatten().collect()).expect("UTF-8"), text);
        let binary = message::frames(body(), Delimited::default());
        let read: Vec<u8> = TextConverter::new(binary, Layout::Compact).flatten().collect();
        assert_eq!(String::from_utf8(read).expect("UTF-8"), text);
    }

    #[test]
    fn series_by_label_are_in_order() {
        let by = Family::by("n", "N.", Kind::Gauge, "l", [("b", 0.0), ("a", 2.0)]);
        let labels = |family: &Family| -> Vec<Vec<u8>> {
            family.series.iter().map(|series| series.labels.clone()).collect()
        };
        assert_eq!(labels(&by), [b"l=\"a\"", b"l=\"b\""]);
    }
}
