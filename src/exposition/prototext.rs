//! The protobuf text format of `io.prometheus.client.MetricFamily` messages.
//!
//! A client may request `encoding=text` or `compact-text` instead of the binary form. [`Text`] is the sink for it.

use super::protobuf::{Field, Sink, fields};

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

    /// Appends a signed number.
    pub fn integer(&mut self, field: Field, value: i64) {
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
    } else if value.to_bits() == (-0.0_f64).to_bits() {
        out.extend_from_slice(b"-0");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Like the binary form, which has all bits of a number.
    #[test]
    fn numbers_keep_their_signs() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (-1.5, "-1.5"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let mut out = Vec::new();
            double(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}
