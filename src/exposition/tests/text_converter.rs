//! Converts length-delimited messages to protobuf text, to compare both forms in tests.
//!
//! It knows the content of messages only through the schema below.

use bytes::Bytes;

use crate::exposition::protobuf::{Field, Sink, read_varint, unzigzag};
use crate::exposition::prototext::{Layout, Text};

/// The type of a field.
#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Double,
    Unsigned,
    Signed,
    ZigZag,
    Type,
    Message(&'static [SchemaField]),
}

/// Number, name and type of a field.
type SchemaField = (u64, &'static str, FieldType);

const LABEL: &[SchemaField] = &[(1, "name", FieldType::Text), (2, "value", FieldType::Text)];
const VALUE: &[SchemaField] = &[
    (1, "value", FieldType::Double),
    (2, "exemplar", FieldType::Message(EXEMPLAR)),
    (3, "created_timestamp", FieldType::Message(TIMESTAMP)),
];
const TIMESTAMP: &[SchemaField] =
    &[(1, "seconds", FieldType::Signed), (2, "nanos", FieldType::Signed)];
const EXEMPLAR: &[SchemaField] = &[
    (1, "label", FieldType::Message(LABEL)),
    (2, "value", FieldType::Double),
    (3, "timestamp", FieldType::Message(TIMESTAMP)),
];
const QUANTILE: &[SchemaField] =
    &[(1, "quantile", FieldType::Double), (2, "value", FieldType::Double)];
const SUMMARY: &[SchemaField] = &[
    (1, "sample_count", FieldType::Unsigned),
    (2, "sample_sum", FieldType::Double),
    (3, "quantile", FieldType::Message(QUANTILE)),
    (4, "created_timestamp", FieldType::Message(TIMESTAMP)),
];
const BUCKET: &[SchemaField] = &[
    (1, "cumulative_count", FieldType::Unsigned),
    (2, "upper_bound", FieldType::Double),
    (3, "exemplar", FieldType::Message(EXEMPLAR)),
    (4, "cumulative_count_float", FieldType::Double),
];
const SPAN: &[SchemaField] =
    &[(1, "offset", FieldType::ZigZag), (2, "length", FieldType::Unsigned)];
const HISTOGRAM: &[SchemaField] = &[
    (1, "sample_count", FieldType::Unsigned),
    (2, "sample_sum", FieldType::Double),
    (3, "bucket", FieldType::Message(BUCKET)),
    (4, "sample_count_float", FieldType::Double),
    (5, "schema", FieldType::ZigZag),
    (6, "zero_threshold", FieldType::Double),
    (7, "zero_count", FieldType::Unsigned),
    (8, "zero_count_float", FieldType::Double),
    (9, "negative_span", FieldType::Message(SPAN)),
    (10, "negative_delta", FieldType::ZigZag),
    (11, "negative_count", FieldType::Double),
    (12, "positive_span", FieldType::Message(SPAN)),
    (13, "positive_delta", FieldType::ZigZag),
    (14, "positive_count", FieldType::Double),
    (15, "created_timestamp", FieldType::Message(TIMESTAMP)),
    (16, "exemplars", FieldType::Message(EXEMPLAR)),
];
const METRIC: &[SchemaField] = &[
    (1, "label", FieldType::Message(LABEL)),
    (2, "gauge", FieldType::Message(VALUE)),
    (3, "counter", FieldType::Message(VALUE)),
    (4, "summary", FieldType::Message(SUMMARY)),
    (5, "untyped", FieldType::Message(VALUE)),
    (6, "timestamp_ms", FieldType::Signed),
    (7, "histogram", FieldType::Message(HISTOGRAM)),
];
const FAMILY: &[SchemaField] = &[
    (1, "name", FieldType::Text),
    (2, "help", FieldType::Text),
    (3, "type", FieldType::Type),
    (4, "metric", FieldType::Message(METRIC)),
    (5, "unit", FieldType::Text),
];

const TYPES: [&str; 6] = ["COUNTER", "GAUGE", "SUMMARY", "UNTYPED", "HISTOGRAM", "GAUGE_HISTOGRAM"];

/// The maximum length of a metric, in bytes; a longer one can only come from a corrupt stream.
const MAX_METRIC: usize = 64 << 20;

/// An iterator that converts a stream of length-delimited messages to text. Chunks may end anywhere.
#[derive(Debug)]
pub struct TextConverter<I> {
    chunks: I,
    /// Received bytes that are not converted yet.
    pending: Vec<u8>,
    /// Remaining bytes of the current family, once its length is known.
    family: Option<u64>,
    layout: Layout,
    /// True before the first field of a family.
    first: bool,
}

impl<I> TextConverter<I> {
    /// Converts the messages in `chunks`.
    pub fn new(chunks: I, layout: Layout) -> Self {
        Self { chunks, pending: Vec::new(), family: None, layout, first: true }
    }

    /// Converts and consumes all complete fields of a family.
    fn advance(&mut self, out: &mut Vec<u8>) {
        let mut rest = self.pending.as_slice();
        let mut text = Text::new(out, self.layout);
        text.first = self.first;
        loop {
            let left = match self.family {
                Some(left) => left,
                None => {
                    let Some((length, after)) = read_varint(rest) else { break };
                    rest = after;
                    length
                }
            };
            self.family = Some(left);
            if left == 0 {
                text.end();
                self.family = None;
                continue;
            }
            let family = rest.get(..usize::try_from(left).unwrap_or(usize::MAX).min(rest.len()));
            let Some((number, wire, after)) = family.and_then(field) else { break };
            let used = (family.map_or(0, <[u8]>::len) - after.len()) as u64;
            entry(number, &wire, FAMILY, &mut text);
            self.family = Some(left - used);
            rest = rest.get(used as usize..).unwrap_or_default();
        }
        self.first = text.first;
        let used = self.pending.len() - rest.len();
        self.pending.drain(..used);
    }

    /// True if no further input can complete the pending field.
    fn is_broken(&self) -> bool {
        let whole = self.family.is_some_and(|left| left <= self.pending.len() as u64);
        whole || self.pending.len() > MAX_METRIC
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for TextConverter<I> {
    type Item = Bytes;

    /// Returns the text of one chunk, which is empty if no field is complete yet.
    fn next(&mut self) -> Option<Bytes> {
        if self.is_broken() {
            return None;
        }
        self.pending.extend_from_slice(&self.chunks.next()?);
        let mut out = Vec::new();
        self.advance(&mut out);
        Some(out.into())
    }
}

/// A decoded wire value.
enum Wire<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

fn field(bytes: &[u8]) -> Option<(u64, Wire<'_>, &[u8])> {
    let (key, rest) = read_varint(bytes)?;
    let (wire, rest) = match key & 7 {
        0 => read_varint(rest).map(|(value, rest)| (Wire::Varint(value), rest))?,
        1 => {
            let (fixed, rest) = rest.split_at_checked(8)?;
            (Wire::Fixed(u64::from_le_bytes(fixed.try_into().ok()?)), rest)
        }
        2 => {
            let (length, rest) = read_varint(rest)?;
            let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (Wire::Bytes(bytes), rest)
        }
        5 => rest.split_at_checked(4).map(|(_, rest)| (Wire::Bytes(&[]), rest))?,
        _ => return None,
    };
    Some((key >> 3, wire, rest))
}

/// Writes one field; fields outside the schema are skipped.
fn entry(number: u64, wire: &Wire<'_>, schema: &[SchemaField], text: &mut Text<'_>) {
    let Some((_, name, kind)) = schema.iter().find(|(known, ..)| *known == number) else {
        return;
    };
    let field = Field { number, name };
    match (kind, wire) {
        // Repeated numbers may be packed into one value.
        (FieldType::ZigZag | FieldType::Double, Wire::Bytes(packed)) => {
            let mut packed = *packed;
            while let Some((wire, rest)) = packed_value(*kind, packed) {
                scalar(field, *kind, &wire, text);
                packed = rest;
            }
        }
        (FieldType::Message(inner), Wire::Bytes(content)) => text.message(field, |text| {
            // Everything after a malformed field is skipped.
            let mut content = *content;
            while let Some((number, wire, rest)) = self::field(content) {
                entry(number, &wire, inner, text);
                content = rest;
            }
        }),
        (kind, wire) => scalar(field, *kind, wire, text),
    }
}

fn packed_value(kind: FieldType, bytes: &[u8]) -> Option<(Wire<'_>, &[u8])> {
    if matches!(kind, FieldType::Double) {
        let (fixed, rest) = bytes.split_at_checked(8)?;
        return Some((Wire::Fixed(u64::from_le_bytes(fixed.try_into().ok()?)), rest));
    }
    read_varint(bytes).map(|(value, rest)| (Wire::Varint(value), rest))
}

fn scalar(field: Field, kind: FieldType, wire: &Wire<'_>, text: &mut Text<'_>) {
    match (kind, wire) {
        (FieldType::Double, Wire::Fixed(bits)) => text.double(field, f64::from_bits(*bits)),
        (FieldType::ZigZag, Wire::Varint(value)) => text.signed(field, unzigzag(*value)),
        (FieldType::Signed, Wire::Varint(value)) => text.signed(field, *value as i64),
        (FieldType::Type, Wire::Varint(value)) => {
            match usize::try_from(*value).ok().and_then(|index| TYPES.get(index)) {
                Some(name) => text.word(field, *value, name),
                None => text.unsigned(field, *value),
            }
        }
        (_, Wire::Varint(value) | Wire::Fixed(value)) => text.unsigned(field, *value),
        (_, Wire::Bytes(bytes)) => text.text(field, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// `up`, a gauge with one label and the value 1.5, and a packed delta of a histogram.
    fn message() -> Vec<u8> {
        let mut label = vec![0x0a, 1, b'a', 0x12, 3];
        label.extend_from_slice(b"x\"\n");
        let mut metric = vec![0x0a, label.len() as u8];
        metric.extend(label);
        metric.extend([0x12, 9, 0x09]);
        metric.extend(1.5_f64.to_le_bytes());
        metric.extend([0x3a, 4, 0x6a, 2, 2, 3]);
        let mut family = vec![0x0a, 2, b'u', b'p', 0x18, 1, 0x22, metric.len() as u8];
        family.extend(metric);
        let mut delimited = vec![family.len() as u8];
        delimited.extend(family);
        delimited
    }

    fn text(chunks: Vec<Bytes>, layout: Layout) -> String {
        let bytes: Vec<u8> = TextConverter::new(chunks.into_iter(), layout).flatten().collect();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn one_field_a_line() {
        let expected = "name: \"up\"\ntype: GAUGE\nmetric: {\n  label: {\n    name: \"a\"\n    \
                        value: \"x\\\"\\n\"\n  }\n  gauge: {\n    value: 1.5\n  }\n  histogram: {\n    \
                        positive_delta: 1\n    positive_delta: -2\n  }\n}\n\n";
        assert_eq!(text(vec![message().into()], Layout::Lines), expected);
    }

    #[test]
    fn compact_text_is_independent_of_chunking() {
        let line = "name:\"up\" type:GAUGE metric:{label:{name:\"a\" value:\"x\\\"\\n\"} \
                    gauge:{value:1.5} histogram:{positive_delta:1 positive_delta:-2}}\n";
        let twice = [message(), message()].concat();
        for cut in [1, 5, message().len(), message().len() + 3] {
            let chunks =
                vec![Bytes::copy_from_slice(&twice[..cut]), Bytes::copy_from_slice(&twice[cut..])];
            assert_eq!(text(chunks, Layout::Compact), line.repeat(2), "cut at {cut}");
        }
    }

    #[test]
    fn broken_messages_end_where_they_break() {
        for bytes in [&[3, 0x0a, 5, b'u'][..], &[2, 0x22, 0xff], &[1, 0xff], &[0xff; 12]] {
            let text = text(vec![Bytes::copy_from_slice(bytes)], Layout::Compact);
            assert!(text.trim().is_empty(), "{text}");
        }
    }
}
