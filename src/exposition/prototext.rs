//! Protobuf text format of `io.prometheus.client.MetricFamily` messages.
//!
//! A client may ask for `encoding=text` or `compact-text` instead of the binary form. Length-delimited
//! binary messages go in, text comes out; the schema below is all that is known of their content.

use std::fmt::Write;

/// One message a line, or one field a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `encoding=text`: fields on lines of their own, an empty line after each message.
    Lines,
    /// `encoding=compact-text`: each message on a line.
    Compact,
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
    Message(&'static [Field]),
}

type Field = (u64, &'static str, Kind);

const LABEL: &[Field] = &[(1, "name", Kind::Text), (2, "value", Kind::Text)];
const VALUE: &[Field] = &[
    (1, "value", Kind::Double),
    (2, "exemplar", Kind::Message(EXEMPLAR)),
    (3, "created_timestamp", Kind::Message(TIMESTAMP)),
];
const TIMESTAMP: &[Field] = &[(1, "seconds", Kind::Signed), (2, "nanos", Kind::Signed)];
const EXEMPLAR: &[Field] = &[
    (1, "label", Kind::Message(LABEL)),
    (2, "value", Kind::Double),
    (3, "timestamp", Kind::Message(TIMESTAMP)),
];
const QUANTILE: &[Field] = &[(1, "quantile", Kind::Double), (2, "value", Kind::Double)];
const SUMMARY: &[Field] = &[
    (1, "sample_count", Kind::Unsigned),
    (2, "sample_sum", Kind::Double),
    (3, "quantile", Kind::Message(QUANTILE)),
    (4, "created_timestamp", Kind::Message(TIMESTAMP)),
];
const BUCKET: &[Field] = &[
    (1, "cumulative_count", Kind::Unsigned),
    (2, "upper_bound", Kind::Double),
    (3, "exemplar", Kind::Message(EXEMPLAR)),
    (4, "cumulative_count_float", Kind::Double),
];
const SPAN: &[Field] = &[(1, "offset", Kind::ZigZag), (2, "length", Kind::Unsigned)];
const HISTOGRAM: &[Field] = &[
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
const METRIC: &[Field] = &[
    (1, "label", Kind::Message(LABEL)),
    (2, "gauge", Kind::Message(VALUE)),
    (3, "counter", Kind::Message(VALUE)),
    (4, "summary", Kind::Message(SUMMARY)),
    (5, "untyped", Kind::Message(VALUE)),
    (6, "timestamp_ms", Kind::Signed),
    (7, "histogram", Kind::Message(HISTOGRAM)),
];
const FAMILY: &[Field] = &[
    (1, "name", Kind::Text),
    (2, "help", Kind::Text),
    (3, "type", Kind::Type),
    (4, "metric", Kind::Message(METRIC)),
    (5, "unit", Kind::Text),
];

const TYPES: [&str; 6] = ["COUNTER", "GAUGE", "SUMMARY", "UNTYPED", "HISTOGRAM", "GAUGE_HISTOGRAM"];

/// Turns a stream of length-delimited messages into text. Chunks may end anywhere.
pub struct Texts<I> {
    chunks: I,
    pending: Vec<u8>,
    layout: Layout,
}

impl<I> Texts<I> {
    /// The text of the messages in `chunks`.
    pub fn new(chunks: I, layout: Layout) -> Self {
        Self { chunks, pending: Vec::new(), layout }
    }
}

impl<I: Iterator<Item = bytes::Bytes>> Iterator for Texts<I> {
    type Item = bytes::Bytes;

    fn next(&mut self) -> Option<bytes::Bytes> {
        loop {
            self.pending.extend_from_slice(&self.chunks.next()?);
            let mut text = String::new();
            let mut rest = self.pending.as_slice();
            while let Some((message, after)) = delimited(rest) {
                message_text(message, FAMILY, self.layout, 0, &mut text);
                text.push_str(if self.layout == Layout::Lines { "\n" } else { "" });
                if self.layout == Layout::Compact {
                    text.truncate(text.trim_end().len());
                    text.push('\n');
                }
                rest = after;
            }
            let left = rest.to_vec();
            self.pending = left;
            if !text.is_empty() {
                return Some(text.into());
            }
        }
    }
}

fn delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = varint(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

/// A value as it is on the wire.
enum Wire<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

fn field(bytes: &[u8]) -> Option<(u64, Wire<'_>, &[u8])> {
    let (key, rest) = varint(bytes)?;
    let (wire, rest) = match key & 7 {
        0 => varint(rest).map(|(value, rest)| (Wire::Varint(value), rest))?,
        1 => {
            let (fixed, rest) = rest.split_at_checked(8)?;
            (Wire::Fixed(u64::from_le_bytes(fixed.try_into().ok()?)), rest)
        }
        2 => delimited(rest).map(|(bytes, rest)| (Wire::Bytes(bytes), rest))?,
        5 => rest.split_at_checked(4).map(|(_, rest)| (Wire::Bytes(&[]), rest))?,
        _ => return None,
    };
    Some((key >> 3, wire, rest))
}

/// Fields outside the schema are left out, and so is whatever follows a broken one.
fn message_text(
    mut bytes: &[u8],
    schema: &[Field],
    layout: Layout,
    depth: usize,
    out: &mut String,
) {
    while let Some((number, wire, rest)) = field(bytes) {
        bytes = rest;
        let Some((_, name, kind)) = schema.iter().find(|(known, ..)| *known == number) else {
            continue;
        };
        match (kind, wire) {
            // Numbers of a repeated field may stand packed in one value.
            (Kind::ZigZag | Kind::Double, Wire::Bytes(mut packed)) => {
                while let Some((value, rest)) = packed_value(*kind, packed) {
                    entry(name, &value, layout, depth, out);
                    packed = rest;
                }
            }
            (Kind::Message(inner), Wire::Bytes(content)) => {
                indent(layout, depth, out);
                out.push_str(name);
                out.push_str(if layout == Layout::Lines { ": {\n" } else { ":{" });
                message_text(content, inner, layout, depth + 1, out);
                if layout == Layout::Compact {
                    out.truncate(out.trim_end().len());
                    out.push_str("} ");
                } else {
                    indent(layout, depth, out);
                    out.push_str("}\n");
                }
            }
            (kind, wire) => entry(name, &scalar(*kind, &wire), layout, depth, out),
        }
    }
}

fn packed_value(kind: Kind, bytes: &[u8]) -> Option<(String, &[u8])> {
    if matches!(kind, Kind::Double) {
        let (fixed, rest) = bytes.split_at_checked(8)?;
        let wire = Wire::Fixed(u64::from_le_bytes(fixed.try_into().ok()?));
        return Some((scalar(kind, &wire), rest));
    }
    varint(bytes).map(|(value, rest)| (scalar(kind, &Wire::Varint(value)), rest))
}

fn entry(name: &str, value: &str, layout: Layout, depth: usize, out: &mut String) {
    indent(layout, depth, out);
    // Writing to a String cannot fail.
    let _ = match layout {
        Layout::Lines => writeln!(out, "{name}: {value}"),
        Layout::Compact => write!(out, "{name}:{value} "),
    };
}

fn indent(layout: Layout, depth: usize, out: &mut String) {
    if layout == Layout::Lines {
        out.extend(std::iter::repeat_n("  ", depth));
    }
}

fn scalar(kind: Kind, wire: &Wire<'_>) -> String {
    match (kind, wire) {
        (Kind::Double, Wire::Fixed(bits)) => double(f64::from_bits(*bits)),
        (Kind::ZigZag, Wire::Varint(value)) => {
            ((value >> 1) as i64 ^ -((value & 1) as i64)).to_string()
        }
        (Kind::Signed, Wire::Varint(value)) => (*value as i64).to_string(),
        (Kind::Type, Wire::Varint(value)) => {
            let name = usize::try_from(*value).ok().and_then(|index| TYPES.get(index));
            name.map_or_else(|| value.to_string(), |name| (*name).to_owned())
        }
        (_, Wire::Varint(value) | Wire::Fixed(value)) => value.to_string(),
        (_, Wire::Bytes(bytes)) => quoted(bytes),
    }
}

fn double(value: f64) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else {
        let mut text = Vec::new();
        super::float::write(&mut text, value);
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if c.is_control() && (c as u32) < 0x80 => {
                    text.push_str(&format!("\\x{:02x}", c as u32));
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text.push('"');
    text
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
