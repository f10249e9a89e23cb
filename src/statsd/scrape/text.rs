//! Text 0.0.4 and OpenMetrics text.

use super::openmetrics_names;
use super::writer::{Distribution, Reading, ScalarSample, Series, Writer};
use crate::exposition::family::{Family as OwnFamily, Series as OwnSeries, sample};
use crate::exposition::{Format, float, header};
use crate::statsd::clock::Epoch;
use crate::statsd::series::family::{Family, Kind};
use crate::statsd::series::observer::{HistogramSpec, SummarySpec};
use crate::statsd::series::registry::View;

/// Writes either text format.
pub(super) struct TextWriter {
    format: Format,
    /// The part of an observer that the current pass writes.
    part: ObserverPart,
    /// The header lines, until the first series of the pass is written.
    head: Vec<u8>,
    /// True if the current family has the type counter.
    is_counter: bool,
    /// The page on which the series of the family begin.
    near: usize,
    /// The epoch of start times, if they are written.
    epoch: Option<Epoch>,
}

/// The samples of an observer that one pass writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObserverPart {
    /// All samples, under one type.
    Whole,
    Quantiles,
    Buckets,
    Sum,
    Count,
}

impl ObserverPart {
    /// Returns the part written in pass `pass` when each sample name is a separate family, and its suffix.
    const fn split(kind: Kind, pass: u8) -> (Self, &'static str) {
        match (pass, kind) {
            (0, Kind::Histogram) => (Self::Buckets, "_bucket"),
            (0, _) => (Self::Quantiles, ""),
            (1, _) => (Self::Sum, "_sum"),
            _ => (Self::Count, "_count"),
        }
    }

    const fn has(self, part: Self) -> bool {
        matches!(self, Self::Whole) || self as u8 == part as u8
    }
}

impl TextWriter {
    /// Returns a writer of text; with an epoch, typed OpenMetrics families have `_created` samples.
    pub(super) fn new(format: Format, epoch: Option<Epoch>) -> Self {
        let (part, head) = (ObserverPart::Whole, Vec::new());
        Self { format, part, head, is_counter: false, near: 0, epoch }
    }

    /// Appends the start time of a series of a typed family.
    fn created(&self, name: &str, labels: &[u8], created: u32, out: &mut Vec<u8>) {
        if let Some(epoch) = self.epoch.filter(|_| created > 0) {
            sample(out, (name, "_created"), labels, epoch.wall(created).as_secs_f64());
        }
    }

    /// Appends the value of a `le` or `quantile` label. OpenMetrics requires a decimal point.
    fn bound(&self, out: &mut Vec<u8>, text: &[u8]) {
        out.extend_from_slice(text);
        let is_whole = || text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
        if self.format == Format::OpenMetrics && is_whole() {
            out.extend_from_slice(b".0");
        }
    }

    /// Returns true if the current type forbids a negative value or NaN. If such a value appears only after
    /// the type has been written, this one body omits the sample.
    fn forbids(&self, value: f64) -> bool {
        self.format == Format::OpenMetrics && self.part == ObserverPart::Whole && !(value >= 0.0)
    }

    #[inline]
    fn write_head(&mut self, out: &mut Vec<u8>) {
        if !self.head.is_empty() {
            out.append(&mut self.head);
        }
    }

    /// Appends a sample with a label `le` or `quantile` after the others.
    #[inline]
    fn bounded(
        &self,
        (name, suffix): (&str, &str),
        labels: &[u8],
        (label, bound): (&str, &[u8]),
        value: f64,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(suffix.as_bytes());
        out.push(b'{');
        if !labels.is_empty() {
            out.extend_from_slice(labels);
            out.push(b',');
        }
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(b"=\"");
        self.bound(out, bound);
        out.extend_from_slice(b"\"} ");
        float::write(out, value);
        out.push(b'\n');
    }

    fn summary(
        &self,
        name: &str,
        labels: &[u8],
        spec: &SummarySpec,
        quantiles: &[f64],
        out: &mut Vec<u8>,
    ) {
        for ((_, label), &value) in spec.quantiles().zip(quantiles) {
            // The quantile of an empty window is NaN, which is allowed.
            if value.is_nan() || !self.forbids(value) {
                self.bounded((name, ""), labels, ("quantile", label), value, out);
            }
        }
    }

    fn buckets(
        &self,
        name: &str,
        labels: &[u8],
        spec: &HistogramSpec,
        (counts, count): (&[u64], u64),
        out: &mut Vec<u8>,
    ) {
        for ((_, label), &number) in spec.bounds().zip(counts) {
            self.bounded((name, "_bucket"), labels, ("le", label), number as f64, out);
        }
        self.bounded((name, "_bucket"), labels, ("le", b"+Inf"), count as f64, out);
    }
}

impl Writer for TextWriter {
    const REUSES_VALUES: bool = false;

    fn passes(&mut self, view: &View, near: usize, family: &Family) -> u8 {
        let is_observer = family.kind.is_observer();
        let split = self.format == Format::OpenMetrics
            && is_observer
            && !openmetrics_names::is_typed(view, near, family);
        self.near = near;
        self.part = if split { ObserverPart::Quantiles } else { ObserverPart::Whole };
        if split { 3 } else { 1 }
    }

    fn begin(&mut self, view: &View, family: &Family, pass: u8) {
        let help = view.helps.get(family.help as usize).map_or("", |help| help);
        let (head, format) = (&mut self.head, self.format);
        head.clear();
        self.is_counter = false;
        if self.part != ObserverPart::Whole {
            let (part, suffix) = ObserverPart::split(family.kind, pass);
            self.part = part;
            let name = format!("{}{suffix}", family.name);
            return header::write(head, format, &name, openmetrics_names::UNKNOWN, help);
        }
        match format {
            Format::OpenMetrics if !family.kind.is_observer() => {
                let name = openmetrics_names::of_scalar(view, self.near, family);
                self.is_counter = name.kind == "counter";
                header::write(head, format, name.family, name.kind, help);
            }
            _ => {
                header::write(head, format, &family.name, family.kind.exposed_kind().as_str(), help)
            }
        }
    }

    fn needs_distribution(&self) -> bool {
        !matches!(self.part, ObserverPart::Sum | ObserverPart::Count)
    }

    #[inline]
    fn scalar(&mut self, family: &Family, labels: &[u8], read: ScalarSample, out: &mut Vec<u8>) {
        let ScalarSample { value, created } = read;
        if self.is_counter && self.forbids(value) {
            return;
        }
        self.write_head(out);
        sample(out, (&family.name, ""), labels, value);
        if self.is_counter
            && let Some(name) = family.name.strip_suffix("_total")
        {
            self.created(name, labels, created, out);
        }
    }

    fn observer(&mut self, family: &Family, series: &Series<'_>, out: &mut Vec<u8>) {
        let name = &*family.name;
        let &Series { labels, distribution: Distribution { quantiles, counts }, created, .. } =
            series;
        let (count, sum) = match series.reading {
            Reading::Value(value) => {
                self.write_head(out);
                return sample(out, (name, ""), labels, *value);
            }
            Reading::Summary { spec, count, sum } => {
                if self.part.has(ObserverPart::Quantiles) && !quantiles.is_empty() {
                    self.write_head(out);
                    self.summary(name, labels, spec, quantiles, out);
                }
                (*count, *sum)
            }
            Reading::Histogram { spec, count, sum, .. } => {
                if self.part.has(ObserverPart::Buckets) {
                    self.write_head(out);
                    self.buckets(name, labels, spec, (counts, *count), out);
                    // A histogram without a sum must not have a count.
                    if self.forbids(*sum) {
                        return;
                    }
                }
                (*count, *sum)
            }
        };
        if self.part.has(ObserverPart::Sum) && !self.forbids(sum) {
            self.write_head(out);
            sample(out, (name, "_sum"), labels, sum);
        }
        if self.part.has(ObserverPart::Count) {
            self.write_head(out);
            sample(out, (name, "_count"), labels, count as f64);
        }
        if self.part == ObserverPart::Whole {
            self.created(name, labels, created, out);
        }
    }

    fn end(&mut self, _out: &mut Vec<u8>) {
        self.head.clear();
    }

    fn own_passes(&self) -> u8 {
        1
    }

    fn begin_own(&mut self, view: &View, family: &OwnFamily, _pass: u8, out: &mut Vec<u8>) {
        let (name, kind) = match self.format {
            Format::Text => (family.name, family.kind.as_str()),
            Format::OpenMetrics => {
                let name = openmetrics_names::of_own(view, family);
                (name.family, name.kind)
            }
        };
        header::write(out, self.format, name, kind, family.help);
    }

    fn own(&mut self, family: &OwnFamily, series: &OwnSeries, out: &mut Vec<u8>) {
        series.text(family.name, out, self.format);
    }
}
