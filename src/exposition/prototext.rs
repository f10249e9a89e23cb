//! The protobuf text format of `io.prometheus.client.MetricFamily` messages.
//!
//! A client may request `encoding=text` or `compact-text` instead of the binary form. [`Text`] is the sink for sources
//! that write field by field. [`TextConverter`] converts length-delimited binary messages, for sources that have no other form;
//! it buffers one metric at a time, independent of the size of a family. It knows the content of messages only through
//! the schema below.

use bytes::Bytes;

use super::protobuf::{Field, Sink, fields, read_varint, unzigzag};

/// The layout: one message per line, or one field per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `encoding=text`: one field per line, an empty line after each message.
    Lines,
    /// `encoding=compact-text`: one message per line.
    Compact,
}

/// The writing state within a family.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    layout: Layout,
    depth: usize,
    /// No field of the current message has been written.
    first: bool,
}

impl Cursor {
    /// Starts before the first field of a family.
    #[must_use]
    pub const fn new(layout: Layout) -> Self {
        Self { layout, depth: 0, first: true }
    }
}

/// A cached template of the bucket text of one histogram, split at the counts, since the next histogram most likely has
/// the same bounds.
#[derive(Debug, Default)]
pub struct BucketTemplate {
    /// The layout and depth for which the template was built.
    at: Option<(Layout, usize)>,
    bounds: Vec<f64>,
    /// The pieces: one before each count, and one after the last.
    text: Vec<u8>,
    /// The end of each piece in `text`.
    ends: Vec<usize>,
}

impl BucketTemplate {
    fn are(&self, at: Cursor, bounds: &[f64]) -> bool {
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        self.at == Some((at.layout, at.depth))
            && self.bounds.len() == bounds.len()
            && self.bounds.iter().zip(bounds).all(same)
    }

    /// Rebuilds the template for other bounds. The count always precedes the buckets, so a bucket is never the first
    /// field.
    fn rebuild(&mut self, at: Cursor, bounds: &[f64]) {
        self.at = Some((at.layout, at.depth));
        self.bounds.clear();
        self.bounds.extend_from_slice(bounds);
        self.text.clear();
        self.ends.clear();
        let mut text = Text::new(&mut self.text, Cursor { first: false, ..at });
        for &bound in bounds {
            text.message(fields::BUCKET, |bucket| {
                bucket.entry(fields::CUMULATIVE_COUNT, |out| self.ends.push(out.len()));
                bucket.double(fields::UPPER_BOUND, bound);
            });
        }
        self.ends.push(self.text.len());
    }
}

/// A sink that appends text.
#[derive(Debug)]
pub struct Text<'o> {
    out: &'o mut Vec<u8>,
    at: Cursor,
    buckets: Option<&'o mut BucketTemplate>,
}

impl<'o> Text<'o> {
    /// Resumes at `cursor`.
    pub fn new(out: &'o mut Vec<u8>, cursor: Cursor) -> Self {
        Self { out, at: cursor, buckets: None }
    }

    /// Resumes at `cursor`, with the bucket template of the previous histogram.
    pub fn with_buckets(
        out: &'o mut Vec<u8>,
        cursor: Cursor,
        buckets: &'o mut BucketTemplate,
    ) -> Self {
        Self { out, at: cursor, buckets: Some(buckets) }
    }

    /// Returns the state to resume from.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.at
    }

    /// Ends the family.
    pub fn end(&mut self) {
        self.out.push(b'\n');
        self.at = Cursor::new(self.at.layout);
    }

    #[inline]
    fn name(&mut self, field: Field) {
        match self.at.layout {
            Layout::Lines => self.indent(),
            Layout::Compact if self.at.first => self.at.first = false,
            Layout::Compact => self.out.push(b' '),
        }
        self.out.extend_from_slice(field.name.as_bytes());
    }

    #[inline]
    fn indent(&mut self) {
        const BLANKS: &[u8] = b"                ";
        let width = (2 * self.at.depth).min(BLANKS.len());
        self.out.extend_from_slice(BLANKS.get(..width).unwrap_or_default());
    }

    #[inline]
    fn entry(&mut self, field: Field, value: impl FnOnce(&mut Vec<u8>)) {
        self.name(field);
        match self.at.layout {
            Layout::Lines => {
                self.out.extend_from_slice(b": ");
                value(self.out);
                self.out.push(b'\n');
            }
            Layout::Compact => {
                self.out.push(b':');
                value(self.out);
            }
        }
    }

    fn integer(&mut self, field: Field, value: i64) {
        self.entry(field, |out| {
            out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        });
    }
}

impl Sink for Text<'_> {
    #[inline]
    fn text(&mut self, field: Field, value: &[u8]) {
        self.entry(field, |out| quoted(out, value));
    }

    #[inline]
    fn double(&mut self, field: Field, value: f64) {
        self.entry(field, |out| double(out, value));
    }

    #[inline]
    fn unsigned(&mut self, field: Field, value: u64) {
        self.entry(field, |out| {
            out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        });
    }

    fn signed(&mut self, field: Field, value: i64) {
        self.integer(field, value);
    }

    fn word(&mut self, field: Field, _number: u64, name: &str) {
        self.entry(field, |out| out.extend_from_slice(name.as_bytes()));
    }

    #[inline]
    fn message(&mut self, field: Field, fill: impl FnOnce(&mut Self)) {
        self.name(field);
        let lines = self.at.layout == Layout::Lines;
        self.out.extend_from_slice(if lines { b": {\n" } else { b":{" });
        self.at.depth += 1;
        self.at.first = true;
        fill(self);
        self.at.depth -= 1;
        self.at.first = false;
        if lines {
            self.indent();
            self.out.extend_from_slice(b"}\n");
        } else {
            self.out.push(b'}');
        }
    }

    fn buckets(&mut self, bounds: &[f64], counts: &[u64]) {
        let mut own = BucketTemplate::default();
        let texts = self.buckets.as_deref_mut().unwrap_or(&mut own);
        let bounds = bounds.get(..counts.len()).unwrap_or(bounds);
        if !texts.are(self.at, bounds) {
            texts.rebuild(self.at, bounds);
        }
        let mut start = 0;
        for (index, &end) in texts.ends.iter().enumerate() {
            self.out.extend_from_slice(texts.text.get(start..end).unwrap_or_default());
            start = end;
            if let Some(&count) = counts.get(index).filter(|_| index < bounds.len()) {
                self.out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            }
        }
    }
}

fn double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    } else {
        super::float::write(out, value);
    }
}

#[inline]
fn quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if bytes.iter().all(is_plain) {
        out.extend_from_slice(bytes);
    } else {
        escaped(out, bytes);
    }
    out.push(b'"');
}

#[cold]
fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                c if c.is_control() && c.is_ascii() => hexadecimal(out, c as u8),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for &byte in chunk.invalid() {
            hexadecimal(out, byte);
        }
    }
}

fn hexadecimal(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
}

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
    cursor: Cursor,
}

impl<I> TextConverter<I> {
    /// Converts the messages in `chunks`.
    pub fn new(chunks: I, layout: Layout) -> Self {
        Self { chunks, pending: Vec::new(), family: None, cursor: Cursor::new(layout) }
    }

    /// Converts and consumes all complete fields of a family.
    fn advance(&mut self, out: &mut Vec<u8>) {
        let mut rest = self.pending.as_slice();
        let mut text = Text::new(out, self.cursor);
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
        self.cursor = text.cursor();
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
        (FieldType::ZigZag, Wire::Varint(value)) => text.integer(field, unzigzag(*value)),
        (FieldType::Signed, Wire::Varint(value)) => text.integer(field, *value as i64),
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
