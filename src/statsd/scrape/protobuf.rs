//! `io.prometheus.client.MetricFamily` messages, length-delimited or as protobuf text.
//!
//! A delimited message begins with its length, so the series of a family are read twice: the first pass
//! measures and [buffers](super::value_buffer) the values, the second writes them. The text form has no length
//! and needs one pass.

use super::writer::{Distribution, Passes, Reading, Series, Writer};
use crate::exposition::family::{Family as OwnFamily, head, label_pairs};
use crate::exposition::protobuf::{Binary, Field, Length, Sink, fields, varint};
use crate::exposition::prototext::{BucketTemplate, Cursor, Layout, Text};
use crate::statsd::clock::Clock;
use crate::statsd::series::family::{Family, Kind};
use crate::statsd::series::observer::{NativeBucket, NativeView, ZERO_THRESHOLD};
use crate::statsd::series::registry::View;

/// Writes binary messages, each preceded by its length.
pub(super) struct DelimitedWriter {
    clock: Clock,
    /// The encoded length of the series of the current family.
    series: Length,
    /// True if the length is known, so the current pass writes.
    is_measured: bool,
    /// The encoded fields before the first series, until that is written.
    head: Vec<u8>,
}

impl DelimitedWriter {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, series: Length::default(), is_measured: false, head: Vec::new() }
    }

    #[inline]
    fn write_head(&mut self, out: &mut Vec<u8>) {
        if !self.head.is_empty() {
            varint(out, (self.head.len() + self.series.0) as u64);
            out.append(&mut self.head);
        }
    }
}

impl Writer for DelimitedWriter {
    fn passes(&mut self, _view: &View, _near: usize, _family: &Family) -> Passes {
        Passes { count: 2, reuses_values: true }
    }

    fn begin(&mut self, view: &View, family: &Family, pass: u8) {
        self.is_measured = pass > 0;
        if pass == 0 {
            self.series = Length::default();
            let help = view.helps.get(family.help as usize).map_or("", |help| help);
            self.head.clear();
            head(&mut Binary(&mut self.head), &family.name, help, family.kind.exposed_kind());
        }
    }

    fn scalar(
        &mut self,
        family: &Family,
        labels: &[u8],
        value: f64,
        created: u32,
        out: &mut Vec<u8>,
    ) {
        if self.is_measured {
            self.write_head(out);
            scalar(&mut Binary(out), &self.clock, family.kind, labels, value, created);
        } else {
            scalar(&mut self.series, &self.clock, family.kind, labels, value, created);
        }
    }

    fn observer(&mut self, _family: &Family, series: &Series<'_>, out: &mut Vec<u8>) {
        if self.is_measured {
            self.write_head(out);
            observer(&mut Binary(out), &self.clock, series);
        } else {
            observer(&mut self.series, &self.clock, series);
        }
    }

    fn end(&mut self, _out: &mut Vec<u8>) {}

    fn own(&mut self, _view: &View, family: &OwnFamily, out: &mut Vec<u8>) {
        family.delimited(out);
    }
}

/// Writes messages as protobuf text.
pub(super) struct ProtoTextWriter {
    clock: Clock,
    layout: Layout,
    /// The encoded fields before the first series, until that is written.
    head: Vec<u8>,
    cursor: Cursor,
    buckets: BucketTemplate,
}

impl ProtoTextWriter {
    pub(super) fn new(clock: Clock, layout: Layout) -> Self {
        let (head, buckets) = (Vec::new(), BucketTemplate::default());
        Self { clock, layout, head, cursor: Cursor::new(layout), buckets }
    }
}

impl Writer for ProtoTextWriter {
    fn passes(&mut self, _view: &View, _near: usize, _family: &Family) -> Passes {
        Passes::ONE
    }

    fn begin(&mut self, view: &View, family: &Family, _pass: u8) {
        let help = view.helps.get(family.help as usize).map_or("", |help| help);
        self.head.clear();
        let mut text = Text::new(&mut self.head, Cursor::new(self.layout));
        head(&mut text, &family.name, help, family.kind.exposed_kind());
        self.cursor = text.cursor();
    }

    fn scalar(
        &mut self,
        family: &Family,
        labels: &[u8],
        value: f64,
        created: u32,
        out: &mut Vec<u8>,
    ) {
        out.append(&mut self.head);
        let mut text = Text::new(out, self.cursor);
        scalar(&mut text, &self.clock, family.kind, labels, value, created);
    }

    fn observer(&mut self, _family: &Family, series: &Series<'_>, out: &mut Vec<u8>) {
        out.append(&mut self.head);
        let mut text = Text::with_buckets(out, self.cursor, &mut self.buckets);
        observer(&mut text, &self.clock, series);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        // If the head has not been written, all series have expired and the message was never begun.
        if self.head.is_empty() {
            Text::new(out, self.cursor).end();
        }
        self.head.clear();
    }

    fn own(&mut self, _view: &View, family: &OwnFamily, out: &mut Vec<u8>) {
        family.prototext(out, self.layout);
    }
}

/// Writes a counter or gauge. `created` 0 means unknown.
#[inline]
fn scalar<S: Sink>(
    sink: &mut S,
    clock: &Clock,
    kind: Kind,
    labels: &[u8],
    value: f64,
    created: u32,
) {
    sink.message(fields::FAMILY_METRIC, |metric| {
        label_pairs(metric, labels);
        if kind == Kind::Counter {
            metric.message(fields::COUNTER, |counter| {
                counter.double(fields::VALUE, value);
                if created > 0 {
                    timestamp(counter, fields::COUNTER_CREATED, clock, created);
                }
            });
        } else {
            metric.message(fields::GAUGE, |gauge| gauge.double(fields::VALUE, value));
        }
    });
}

fn observer<S: Sink>(sink: &mut S, clock: &Clock, series: &Series<'_>) {
    let &Series { labels, reading, distribution: Distribution { quantiles, counts }, created } =
        series;
    sink.message(fields::FAMILY_METRIC, |metric| {
        label_pairs(metric, labels);
        match reading {
            Reading::Value(value) => {
                metric.message(fields::GAUGE, |gauge| gauge.double(fields::VALUE, *value));
            }
            Reading::Summary { spec, count, sum } => metric.message(fields::SUMMARY, |summary| {
                summary.unsigned(fields::SAMPLE_COUNT, *count);
                summary.double(fields::SAMPLE_SUM, *sum);
                for ((quantile, _), value) in spec.quantiles().zip(quantiles) {
                    summary.message(fields::QUANTILES, |inner| {
                        inner.double(fields::QUANTILE, quantile);
                        inner.double(fields::QUANTILE_VALUE, *value);
                    });
                }
                timestamp(summary, fields::SUMMARY_CREATED, clock, created);
            }),
            Reading::Histogram { spec, count, sum, native } => {
                metric.message(fields::HISTOGRAM, |histogram| {
                    histogram.unsigned(fields::SAMPLE_COUNT, *count);
                    histogram.double(fields::SAMPLE_SUM, *sum);
                    histogram.buckets(spec.upper_bounds(), counts);
                    if let Some(native) = native {
                        native_buckets(histogram, native);
                    }
                    timestamp(histogram, fields::HISTOGRAM_CREATED, clock, created);
                });
            }
        }
    });
}

fn native_buckets(histogram: &mut impl Sink, native: &NativeView) {
    histogram.signed(fields::SCHEMA, i64::from(native.schema));
    histogram.double(fields::ZERO_THRESHOLD, ZERO_THRESHOLD);
    histogram.unsigned(fields::ZERO_COUNT, native.zero);
    buckets(histogram, NEGATIVE, &native.negative);
    buckets(histogram, POSITIVE, &native.positive);
}

/// The maximum number of consecutive empty buckets written as zeros, which is shorter than another span.
const FILLED_GAP: i32 = 2;

/// The fields for the buckets of one sign.
#[derive(Clone, Copy)]
struct BucketFields {
    span: Field,
    delta: Field,
}

const NEGATIVE: BucketFields =
    BucketFields { span: fields::NEGATIVE_SPAN, delta: fields::NEGATIVE_DELTA };
const POSITIVE: BucketFields =
    BucketFields { span: fields::POSITIVE_SPAN, delta: fields::POSITIVE_DELTA };

/// A run of consecutive buckets, `offset` buckets after the previous run.
struct BucketSpan {
    offset: i32,
    length: u32,
}

fn buckets(histogram: &mut impl Sink, to: BucketFields, buckets: &[NativeBucket]) {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut deltas: Vec<i64> = Vec::with_capacity(buckets.len());
    let mut previous = 0i64;
    let mut next = 0i32;
    for &NativeBucket { index, count } in buckets {
        let gap = index - next;
        match spans.last_mut() {
            Some(span) if gap <= FILLED_GAP => {
                for _ in 0..gap {
                    deltas.push(-previous);
                    previous = 0;
                }
                span.length += gap as u32 + 1;
            }
            _ => spans.push(BucketSpan { offset: gap, length: 1 }),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - previous);
        previous = count;
        next = index + 1;
    }
    for BucketSpan { offset, length } in spans {
        histogram.message(to.span, |span| {
            span.signed(fields::OFFSET, i64::from(offset));
            span.unsigned(fields::LENGTH, u64::from(length));
        });
    }
    for value in deltas {
        histogram.signed(to.delta, value);
    }
}

#[inline]
fn timestamp<S: Sink>(message: &mut S, field: Field, clock: &Clock, tick: u32) {
    let time = clock.wall(tick);
    message.message(field, |timestamp| {
        timestamp.unsigned(fields::SECONDS, time.as_secs());
        timestamp.unsigned(fields::NANOS, u64::from(time.subsec_nanos()));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gaps_are_filled_and_large_ones_start_a_span() {
        let mut out = Vec::new();
        let found =
            [(-3, 2), (-1, 5), (0, 5), (4, 1)].map(|(index, count)| NativeBucket { index, count });
        buckets(&mut Binary(&mut out), POSITIVE, &found);
        let mut want = Vec::new();
        let mut sink = Binary(&mut want);
        for (offset, length) in [(-3, 4), (3, 1)] {
            sink.message(POSITIVE.span, |span| {
                span.signed(fields::OFFSET, offset);
                span.unsigned(fields::LENGTH, length);
            });
        }
        for delta in [2, -2, 5, 0, -4] {
            sink.signed(POSITIVE.delta, delta);
        }
        assert_eq!(out, want);
    }
}
