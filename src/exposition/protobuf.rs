//! Encoding of `io.prometheus.client` messages field by field, in every requested form.
//!
//! A module with metrics lists the fields of a message; a [`Sink`] turns them into the binary form, its length alone,
//! or (in [`super::prototext`]) text. So the content of a message is defined once, and no form is derived from another.
//! Field numbers: `io/prometheus/client/metrics.proto` of Prometheus' client model (proto2: repeated numbers are not
//! packed).

use crate::wire::varint as wire;
pub use wire::{varint, varint_length};

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The number in the binary form.
    pub number: u64,
    /// The name in the text forms.
    pub name: &'static str,
}

const fn field(number: u64, name: &'static str) -> Field {
    Field { number, name }
}

/// The fields, grouped by message.
pub mod fields {
    use super::{Field, field};

    /// `MetricFamily.name`.
    pub const FAMILY_NAME: Field = field(1, "name");
    /// `MetricFamily.help`.
    pub const FAMILY_HELP: Field = field(2, "help");
    /// `MetricFamily.type`.
    pub const FAMILY_TYPE: Field = field(3, "type");
    /// `MetricFamily.metric`.
    pub const FAMILY_METRIC: Field = field(4, "metric");
    /// `Metric.label`.
    pub const LABEL: Field = field(1, "label");
    /// `LabelPair.name`.
    pub const LABEL_NAME: Field = field(1, "name");
    /// `LabelPair.value`.
    pub const LABEL_VALUE: Field = field(2, "value");
    /// `Metric.gauge`.
    pub const GAUGE: Field = field(2, "gauge");
    /// `Metric.counter`.
    pub const COUNTER: Field = field(3, "counter");
    /// `Metric.summary`.
    pub const SUMMARY: Field = field(4, "summary");
    /// `Metric.histogram`.
    pub const HISTOGRAM: Field = field(7, "histogram");
    /// `Gauge.value` and `Counter.value`.
    pub const VALUE: Field = field(1, "value");
    /// `Counter.created_timestamp`.
    pub const COUNTER_CREATED: Field = field(3, "created_timestamp");
    /// `Timestamp.seconds`.
    pub const SECONDS: Field = field(1, "seconds");
    /// `Timestamp.nanos`.
    pub const NANOS: Field = field(2, "nanos");
    /// `Summary.sample_count` and `Histogram.sample_count`.
    pub const SAMPLE_COUNT: Field = field(1, "sample_count");
    /// `Summary.sample_sum` and `Histogram.sample_sum`.
    pub const SAMPLE_SUM: Field = field(2, "sample_sum");
    /// `Summary.quantile`.
    pub const QUANTILES: Field = field(3, "quantile");
    /// `Quantile.quantile`.
    pub const QUANTILE: Field = field(1, "quantile");
    /// `Quantile.value`.
    pub const QUANTILE_VALUE: Field = field(2, "value");
    /// `Summary.created_timestamp`.
    pub const SUMMARY_CREATED: Field = field(4, "created_timestamp");
    /// `Histogram.bucket`.
    pub const BUCKET: Field = field(3, "bucket");
    /// `Bucket.cumulative_count`.
    pub const CUMULATIVE_COUNT: Field = field(1, "cumulative_count");
    /// `Bucket.upper_bound`.
    pub const UPPER_BOUND: Field = field(2, "upper_bound");
    /// `Histogram.schema`.
    pub const SCHEMA: Field = field(5, "schema");
    /// `Histogram.zero_threshold`.
    pub const ZERO_THRESHOLD: Field = field(6, "zero_threshold");
    /// `Histogram.zero_count`.
    pub const ZERO_COUNT: Field = field(7, "zero_count");
    /// `Histogram.negative_span`.
    pub const NEGATIVE_SPAN: Field = field(9, "negative_span");
    /// `Histogram.negative_delta`.
    pub const NEGATIVE_DELTA: Field = field(10, "negative_delta");
    /// `Histogram.positive_span`.
    pub const POSITIVE_SPAN: Field = field(12, "positive_span");
    /// `Histogram.positive_delta`.
    pub const POSITIVE_DELTA: Field = field(13, "positive_delta");
    /// `BucketSpan.offset`.
    pub const OFFSET: Field = field(1, "offset");
    /// `BucketSpan.length`.
    pub const LENGTH: Field = field(2, "length");
    /// `Histogram.created_timestamp`.
    pub const HISTOGRAM_CREATED: Field = field(15, "created_timestamp");
}

/// A consumer of the fields of a message, in the order of their numbers.
pub trait Sink {
    /// Appends a string field.
    fn text(&mut self, field: Field, value: &[u8]);
    /// Appends a `double` field.
    fn double(&mut self, field: Field, value: f64);
    /// Appends an unsigned number, or a non-negative signed one.
    fn unsigned(&mut self, field: Field, value: u64);
    /// Appends a `sint32` or `sint64` field.
    fn signed(&mut self, field: Field, value: i64);
    /// Appends an enumeration value, by number and name.
    fn word(&mut self, field: Field, number: u64, name: &str);
    /// Appends a nested message, whose fields are written by `fill`.
    fn message(&mut self, field: Field, fill: impl FnOnce(&mut Self));

    /// Appends a message with cumulative count and upper bound for each bucket of a histogram.
    #[inline]
    fn buckets(&mut self, bounds: &[f64], counts: &[u64]) {
        for (&bound, &count) in bounds.iter().zip(counts) {
            self.message(fields::BUCKET, |bucket| {
                bucket.unsigned(fields::CUMULATIVE_COUNT, count);
                bucket.double(fields::UPPER_BOUND, bound);
            });
        }
    }
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// A sink that appends the binary form.
#[derive(Debug)]
pub struct Binary<'o>(pub &'o mut Vec<u8>);

impl Sink for Binary<'_> {
    #[inline]
    fn text(&mut self, field: Field, value: &[u8]) {
        varint(self.0, field.number << 3 | BYTES);
        varint(self.0, value.len() as u64);
        self.0.extend_from_slice(value);
    }

    #[inline]
    fn double(&mut self, field: Field, value: f64) {
        varint(self.0, field.number << 3 | FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn unsigned(&mut self, field: Field, value: u64) {
        varint(self.0, field.number << 3 | VARINT);
        varint(self.0, value);
    }

    #[inline]
    fn signed(&mut self, field: Field, value: i64) {
        self.unsigned(field, zigzag(value));
    }

    fn word(&mut self, field: Field, number: u64, _name: &str) {
        self.unsigned(field, number);
    }

    #[inline]
    fn message(&mut self, field: Field, fill: impl FnOnce(&mut Self)) {
        varint(self.0, field.number << 3 | BYTES);
        // Most messages are shorter than 128 bytes, so one byte is reserved for the length; longer ones are shifted.
        let at = self.0.len();
        self.0.push(0);
        fill(self);
        let length = self.0.len() - at - 1;
        if let Ok(short @ 0..0x80) = u8::try_from(length) {
            if let Some(place) = self.0.get_mut(at) {
                *place = short;
            }
            return;
        }
        let (mut head, size) = ([0; 10], varint_length(length as u64));
        let mut rest = length as u64;
        for (index, byte) in head.iter_mut().take(size).enumerate() {
            *byte = rest as u8 & 0x7f | if index + 1 < size { 0x80 } else { 0 };
            rest >>= 7;
        }
        self.0.splice(at..=at, head.into_iter().take(size));
    }
}

/// A sink that computes the length of the binary form.
#[derive(Debug, Default)]
pub struct Length(pub usize);

impl Length {
    fn varint_field(&mut self, field: Field, value: u64) {
        self.0 += varint_length(field.number << 3) + varint_length(value);
    }
}

impl Sink for Length {
    #[inline]
    fn text(&mut self, field: Field, value: &[u8]) {
        self.varint_field(field, value.len() as u64);
        self.0 += value.len();
    }

    #[inline]
    fn double(&mut self, field: Field, _value: f64) {
        self.0 += varint_length(field.number << 3) + 8;
    }

    #[inline]
    fn unsigned(&mut self, field: Field, value: u64) {
        self.varint_field(field, value);
    }

    #[inline]
    fn signed(&mut self, field: Field, value: i64) {
        self.varint_field(field, zigzag(value));
    }

    fn word(&mut self, field: Field, number: u64, _name: &str) {
        self.varint_field(field, number);
    }

    #[inline]
    fn message(&mut self, field: Field, fill: impl FnOnce(&mut Self)) {
        let before = std::mem::take(&mut self.0);
        fill(self);
        let length = self.0;
        self.0 += before;
        self.varint_field(field, length as u64);
    }
}

/// Encodes a signed number as an unsigned one that is small if its magnitude is.
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Decodes [`zigzag`].
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Splits a varint off the front of `bytes`; returns it and the rest, or `None` if it is incomplete.
#[inline]
pub fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    wire::read_varint(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varints_are_as_long_as_measured_and_read_back() {
        for value in
            (0..64).map(|shift| 1u64 << shift).flat_map(|power| [power - 1, power, power + 1])
        {
            let mut out = Vec::new();
            varint(&mut out, value);
            assert_eq!(out.len(), varint_length(value), "{value}");
            assert_eq!(read_varint(&out), Some((value, &[][..])));
        }
    }

    fn write(sink: &mut impl Sink, texts: &[Vec<u8>], numbers: &[i64]) {
        sink.message(fields::FAMILY_METRIC, |metric| {
            for text in texts {
                metric.message(fields::LABEL, |label| label.text(fields::LABEL_VALUE, text));
            }
            metric.message(fields::HISTOGRAM, |histogram| {
                histogram.double(fields::SAMPLE_SUM, 1.5);
                for &number in numbers {
                    histogram.signed(fields::POSITIVE_DELTA, number);
                    histogram.unsigned(fields::SAMPLE_COUNT, number as u64);
                }
            });
        });
    }

    proptest! {
        #[test]
        fn messages_are_as_long_as_measured(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..80),
            numbers in prop::collection::vec(any::<i64>(), 0..40),
        ) {
            let (mut out, mut length) = (Vec::new(), Length::default());
            write(&mut Binary(&mut out), &texts, &numbers);
            write(&mut length, &texts, &numbers);
            prop_assert_eq!(out.len(), length.0);
            // One message with the correct length.
            let (content, rest) = read_varint(&out[1..]).expect("a length");
            prop_assert_eq!(content as usize, rest.len());
        }
    }
}
