//! Protobuf text format of `io.prometheus.client.MetricFamily` messages.
//!
//! A client may ask for `encoding=text` or `compact-text` instead of the binary form. [`Text`] is the sink for whoever
//! says field by field what it has. [`Texts`] makes text of length-delimited binary messages, for sources that have no
//! other form; it holds one metric at a time, however many a family has. The schema below is all that is known of their
//! content.

use bytes::Bytes;

use super::protobuf::{Field, Sink, fields, read_varint, unzigzag};

/// One message a line, or one field a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `encoding=text`: fields on lines of their own, an empty line after each message.
    Lines,
    /// `encoding=compact-text`: each message on a line.
    Compact,
}

/// Where in a family the text is.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    layout: Layout,
    depth: usize,
    /// Nothing has been written of the present message.
    first: bool,
}

impl Cursor {
    /// Before the first field of a family.
    #[must_use]
    pub const fn new(layout: Layout) -> Self {
        Self { layout, depth: 0, first: true }
    }
}

/// The text of the buckets of one histogram, cut where the counts stand: what the next histogram's buckets will most
/// likely look like.
#[derive(Debug, Default)]
pub struct BucketTexts {
    /// Where it was written.
    at: Option<(Layout, usize)>,
    bounds: Vec<f64>,
    /// One piece before each count, and one behind the last.
    text: Vec<u8>,
    /// Where each piece ends.
    ends: Vec<usize>,
}

impl BucketTexts {
    fn are(&self, at: Cursor, bounds: &[f64]) -> bool {
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        self.at == Some((at.layout, at.depth))
            && self.bounds.len() == bounds.len()
            && self.bounds.iter().zip(bounds).all(same)
    }

    /// Makes the text for other bounds. A message is never the first field of a histogram, its count is.
    fn make(&mut self, at: Cursor, bounds: &[f64]) {
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

/// Appends text.
#[derive(Debug)]
pub struct Text<'o> {
    out: &'o mut Vec<u8>,
    at: Cursor,
    buckets: Option<&'o mut BucketTexts>,
}

impl<'o> Text<'o> {
    /// Goes on at `cursor`.
    pub fn new(out: &'o mut Vec<u8>, cursor: Cursor) -> Self {
        Self { out, at: cursor, buckets: None }
    }

    /// Goes on at `cursor`, with the buckets of the histogram before.
    pub fn with_buckets(
        out: &'o mut Vec<u8>,
        cursor: Cursor,
        buckets: &'o mut BucketTexts,
    ) -> Self {
        Self { out, at: cursor, buckets: Some(buckets) }
    }

    /// To go on from here later.
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
        let mut own = BucketTexts::default();
        let texts = self.buckets.as_deref_mut().unwrap_or(&mut own);
        let bounds = bounds.get(..counts.len()).unwrap_or(bounds);
        if !texts.are(self.at, bounds) {
            texts.make(self.at, bounds);
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

/// What a field holds.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Double,
    Unsigned,
    Signed,
    ZigZag,
    Type,
    Message(&'static [Known]),
}

/// Number, name and kind of a field.
type Known = (u64, &'static str, Kind);

const LABEL: &[Known] = &[(1, "name", Kind::Text), (2, "value", Kind::Text)];
const VALUE: &[Known] = &[
    (1, "value", Kind::Double),
    (2, "exemplar", Kind::Message(EXEMPLAR)),
    (3, "created_timestamp", Kind::Message(TIMESTAMP)),
];
const TIMESTAMP: &[Known] = &[(1, "seconds", Kind::Signed), (2, "nanos", Kind::Signed)];
const EXEMPLAR: &[Known] = &[
    (1, "label", Kind::Message(LABEL)),
    (2, "value", Kind::Double),
    (3, "timestamp", Kind::Message(TIMESTAMP)),
];
const QUANTILE: &[Known] = &[(1, "quantile", Kind::Double), (2, "value", Kind::Double)];
const SUMMARY: &[Known] = &[
    (1, "sample_count", Kind::Unsigned),
    (2, "sample_sum", Kind::Double),
    (3, "quantile", Kind::Message(QUANTILE)),
    (4, "created_timestamp", Kind::Message(TIMESTAMP)),
];
const BUCKET: &[Known] = &[
    (1, "cumulative_count", Kind::Unsigned),
    (2, "upper_bound", Kind::Double),
    (3, "exemplar", Kind::Message(EXEMPLAR)),
    (4, "cumulative_count_float", Kind::Double),
];
const SPAN: &[Known] = &[(1, "offset", Kind::ZigZag), (2, "length", Kind::Unsigned)];
const HISTOGRAM: &[Known] = &[
    (1, "sample_count", Kind::Unsigned),
    (2, "sample_sum", Kind::Double),
    (3, "bucket", Kind::Message(BUCKET)),
    (4, "sample_count_float", Kind::Double),
    (5, "schema", Kind::ZigZag),
    (6, "zero_threshold", Kind::Double),
    (7, "zero_count", Kind::Unsigned),
    (8, "zero_count_float", Kind::Double),
    (9, "negative_span", Kind::Message(SPAN)),
    (10, "negative_delta", Kind::ZigZag),
    (11, "negative_count", Kind::Double),
    (12, "positive_span", Kind::Message(SPAN)),
    (13, "positive_delta", Kind::ZigZag),
    (14, "positive_count", Kind::Double),
    (15, "created_timestamp", Kind::Message(TIMESTAMP)),
    (16, "exemplars", Kind::Message(EXEMPLAR)),
];
const METRIC: &[Known] = &[
    (1, "label", Kind::Message(LABEL)),
    (2, "gauge", Kind::Message(VALUE)),
    (3, "counter", Kind::Message(VALUE)),
    (4, "summary", Kind::Message(SUMMARY)),
    (5, "untyped", Kind::Message(VALUE)),
    (6, "timestamp_ms", Kind::Signed),
    (7, "histogram", Kind::Message(HISTOGRAM)),
];
const FAMILY: &[Known] = &[
    (1, "name", Kind::Text),
    (2, "help", Kind::Text),
    (3, "type", Kind::Type),
    (4, "metric", Kind::Message(METRIC)),
    (5, "unit", Kind::Text),
];

const TYPES: [&str; 6] = ["COUNTER", "GAUGE", "SUMMARY", "UNTYPED", "HISTOGRAM", "GAUGE_HISTOGRAM"];

/// What a metric may be long; a longer one can only come from a broken stream.
const MAX_METRIC: usize = 64 << 20;

/// Turns a stream of length-delimited messages into text. Chunks may end anywhere.
#[derive(Debug)]
pub struct Texts<I> {
    chunks: I,
    /// What has come and is not text yet.
    pending: Vec<u8>,
    /// Bytes of the present family that are to come, once its length is known.
    family: Option<u64>,
    cursor: Cursor,
}

impl<I> Texts<I> {
    /// The text of the messages in `chunks`.
    pub fn new(chunks: I, layout: Layout) -> Self {
        Self { chunks, pending: Vec::new(), family: None, cursor: Cursor::new(layout) }
    }

    /// Writes what is there in whole fields of a family, and drops it.
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

    /// Whether nothing that may come makes a field of what is pending.
    fn is_broken(&self) -> bool {
        let whole = self.family.is_some_and(|left| left <= self.pending.len() as u64);
        whole || self.pending.len() > MAX_METRIC
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for Texts<I> {
    type Item = Bytes;

    /// The text of one chunk, which is empty if no field is complete yet.
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

/// A value as it is on the wire.
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

/// Writes one field; one outside the schema is left out.
fn entry(number: u64, wire: &Wire<'_>, schema: &[Known], text: &mut Text<'_>) {
    let Some((_, name, kind)) = schema.iter().find(|(known, ..)| *known == number) else {
        return;
    };
    let field = Field { number, name };
    match (kind, wire) {
        // Numbers of a repeated field may stand packed in one value.
        (Kind::ZigZag | Kind::Double, Wire::Bytes(packed)) => {
            let mut packed = *packed;
            while let Some((wire, rest)) = packed_value(*kind, packed) {
                scalar(field, *kind, &wire, text);
                packed = rest;
            }
        }
        (Kind::Message(inner), Wire::Bytes(content)) => text.message(field, |text| {
            // What follows a broken field is left out.
            let mut content = *content;
            while let Some((number, wire, rest)) = self::field(content) {
                entry(number, &wire, inner, text);
                content = rest;
            }
        }),
        (kind, wire) => scalar(field, *kind, wire, text),
    }
}

fn packed_value(kind: Kind, bytes: &[u8]) -> Option<(Wire<'_>, &[u8])> {
    if matches!(kind, Kind::Double) {
        let (fixed, rest) = bytes.split_at_checked(8)?;
        return Some((Wire::Fixed(u64::from_le_bytes(fixed.try_into().ok()?)), rest));
    }
    read_varint(bytes).map(|(value, rest)| (Wire::Varint(value), rest))
}

fn scalar(field: Field, kind: Kind, wire: &Wire<'_>, text: &mut Text<'_>) {
    match (kind, wire) {
        (Kind::Double, Wire::Fixed(bits)) => text.double(field, f64::from_bits(*bits)),
        (Kind::ZigZag, Wire::Varint(value)) => text.integer(field, unzigzag(*value)),
        (Kind::Signed, Wire::Varint(value)) => text.integer(field, *value as i64),
        (Kind::Type, Wire::Varint(value)) => {
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
        let bytes: Vec<u8> = Texts::new(chunks.into_iter(), layout).flatten().collect();
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
    fn one_message_a_line_however_it_is_cut() {
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
