//! `io.prometheus.client.MetricFamily` messages, length-delimited or as protobuf text.
//!
//! A delimited message begins with its length, so it takes two passes over the samples of a family: the first measures,
//! the second writes. The text form has no length and takes one pass.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::frames::Frames;
use super::labels;
use super::protobuf::{Binary, Field, Length, Sink, fields, varint};
use super::prototext::{Layout, Text};
use super::typed::{
    FamilyEncoder, FamilyHead, Kind, NativeBucket, NativeHistogram, Quantile, Sample, SampleValue,
    TypedBody, ZERO_THRESHOLD,
};

/// Writes binary messages, each preceded by its length. Families without samples are omitted.
#[derive(Debug, Default)]
pub struct Delimited {
    kind: Kind,
    /// The encoded length of the samples of the current family.
    samples: Length,
    /// True if the length is known, so the current pass writes.
    is_measured: bool,
    /// The encoded fields before the first sample, until that is written.
    head: Vec<u8>,
}

impl FamilyEncoder for Delimited {
    fn passes(&self) -> u8 {
        2
    }

    fn begin(&mut self, family: &FamilyHead<'_>, pass: u8) {
        self.is_measured = pass > 0;
        if pass == 0 {
            self.kind = family.kind;
            self.samples = Length::default();
            self.head.clear();
            write_head(&mut Binary(&mut self.head), family);
        }
    }

    fn sample(&mut self, sample: &Sample<'_>, out: &mut Vec<u8>) {
        if !self.is_measured {
            return metric(&mut self.samples, self.kind, sample);
        }
        if !self.head.is_empty() {
            varint(out, (self.head.len() + self.samples.0) as u64);
            out.append(&mut self.head);
        }
        metric(&mut Binary(out), self.kind, sample);
    }

    fn end(&mut self, _out: &mut Vec<u8>) {}
}

/// Writes messages as protobuf text. Families without samples are omitted.
#[derive(Debug)]
pub struct ProtoText {
    kind: Kind,
    layout: Layout,
    /// The encoded fields before the first sample, until that is written.
    head: Vec<u8>,
}

impl ProtoText {
    /// Returns an encoder with this layout.
    pub fn new(layout: Layout) -> Self {
        Self { kind: Kind::default(), layout, head: Vec::new() }
    }
}

impl FamilyEncoder for ProtoText {
    fn passes(&self) -> u8 {
        1
    }

    fn begin(&mut self, family: &FamilyHead<'_>, _pass: u8) {
        self.kind = family.kind;
        self.head.clear();
        write_head(&mut Text::new(&mut self.head, self.layout), family);
    }

    fn sample(&mut self, sample: &Sample<'_>, out: &mut Vec<u8>) {
        out.append(&mut self.head);
        let mut text = Text::new(out, self.layout);
        text.first = false;
        metric(&mut text, self.kind, sample);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        // If the head has not been written, the message was never begun.
        if self.head.is_empty() {
            Text::new(out, self.layout).end();
        }
        self.head.clear();
    }
}

/// Returns the bodies in one format, one after the other.
pub fn frames(
    bodies: Vec<Box<dyn TypedBody>>,
    mut encoder: impl FamilyEncoder,
) -> impl Iterator<Item = Bytes> + Send {
    let mut bodies = VecDeque::from(bodies);
    Frames::new(move |out| {
        let Some(body) = bodies.front_mut() else { return false };
        if !body.step(&mut encoder, out) {
            bodies.pop_front();
        }
        !bodies.is_empty()
    })
}

fn write_head(sink: &mut impl Sink, family: &FamilyHead<'_>) {
    sink.text(fields::FAMILY_NAME, family.name.as_bytes());
    sink.text(fields::FAMILY_HELP, family.help.as_bytes());
    let (number, word) = family.kind.message();
    sink.word(fields::FAMILY_TYPE, number, word);
}

#[inline]
fn metric<S: Sink>(sink: &mut S, kind: Kind, sample: &Sample<'_>) {
    let &Sample { labels, value, created } = sample;
    sink.message(fields::FAMILY_METRIC, |metric| {
        labels.into_iter().for_each(|rendered| label_pairs(metric, rendered));
        match value {
            SampleValue::Number(value) if kind == Kind::Counter => {
                metric.message(fields::COUNTER, |counter| {
                    counter.double(fields::VALUE, value);
                    timestamp(counter, fields::COUNTER_CREATED, created);
                });
            }
            SampleValue::Number(value) => {
                metric.message(fields::GAUGE, |gauge| gauge.double(fields::VALUE, value));
            }
            SampleValue::Summary { count, sum, quantiles } => {
                metric.message(fields::SUMMARY, |summary| {
                    summary.unsigned(fields::SAMPLE_COUNT, count);
                    summary.double(fields::SAMPLE_SUM, sum);
                    for &Quantile { quantile, value } in quantiles {
                        summary.message(fields::QUANTILES, |inner| {
                            inner.double(fields::QUANTILE, quantile);
                            inner.double(fields::QUANTILE_VALUE, value);
                        });
                    }
                    timestamp(summary, fields::SUMMARY_CREATED, created);
                });
            }
            SampleValue::Histogram { count, sum, bounds, counts, native } => {
                metric.message(fields::HISTOGRAM, |histogram| {
                    histogram.unsigned(fields::SAMPLE_COUNT, count);
                    histogram.double(fields::SAMPLE_SUM, sum);
                    histogram.buckets(bounds, counts);
                    if let Some(native) = native {
                        native_buckets(histogram, native);
                    }
                    timestamp(histogram, fields::HISTOGRAM_CREATED, created);
                });
            }
        }
    });
}

#[inline]
fn label_pairs(metric: &mut impl Sink, rendered: &[u8]) {
    for (name, value) in labels::iter(rendered) {
        metric.message(fields::LABEL, |label| {
            label.text(fields::LABEL_NAME, name);
            label.text(fields::LABEL_VALUE, &labels::plain(value));
        });
    }
}

#[inline]
fn timestamp(message: &mut impl Sink, field: Field, time: Option<Duration>) {
    let Some(time) = time else { return };
    message.message(field, |timestamp| {
        timestamp.unsigned(fields::SECONDS, time.as_secs());
        timestamp.unsigned(fields::NANOS, u64::from(time.subsec_nanos()));
    });
}

fn native_buckets(histogram: &mut impl Sink, native: &NativeHistogram) {
    histogram.signed(fields::SCHEMA, i64::from(native.schema));
    histogram.double(fields::ZERO_THRESHOLD, ZERO_THRESHOLD);
    histogram.unsigned(fields::ZERO_COUNT, native.zero);
    let negative = (fields::NEGATIVE_SPAN, fields::NEGATIVE_DELTA);
    buckets(histogram, negative, &native.negative);
    let positive = (fields::POSITIVE_SPAN, fields::POSITIVE_DELTA);
    buckets(histogram, positive, &native.positive);
}

/// The maximum number of consecutive empty buckets written as zeros, which is shorter than another span.
const FILLED_GAP: i32 = 2;

/// A run of consecutive buckets, `offset` buckets after the previous run.
struct BucketSpan {
    offset: i32,
    length: u32,
}

/// Appends the buckets of one sign, with the fields of their spans and deltas.
fn buckets(
    histogram: &mut impl Sink,
    (spans_to, deltas_to): (Field, Field),
    buckets: &[NativeBucket],
) {
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
        histogram.message(spans_to, |span| {
            span.signed(fields::OFFSET, i64::from(offset));
            span.unsigned(fields::LENGTH, u64::from(length));
        });
    }
    for value in deltas {
        histogram.signed(deltas_to, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gaps_are_filled_and_large_ones_start_a_span() {
        let mut out = Vec::new();
        let found =
            [(-3, 2), (-1, 5), (0, 5), (4, 1)].map(|(index, count)| NativeBucket { index, count });
        let to = (fields::POSITIVE_SPAN, fields::POSITIVE_DELTA);
        buckets(&mut Binary(&mut out), to, &found);
        let mut want = Vec::new();
        let mut sink = Binary(&mut want);
        for (offset, length) in [(-3, 4), (3, 1)] {
            sink.message(fields::POSITIVE_SPAN, |span| {
                span.signed(fields::OFFSET, offset);
                span.unsigned(fields::LENGTH, length);
            });
        }
        for delta in [2, -2, 5, 0, -4] {
            sink.signed(fields::POSITIVE_DELTA, delta);
        }
        assert_eq!(out, want);
    }
}
