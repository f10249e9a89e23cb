//! The protobuf text format of `io.prometheus.client.MetricFamily` messages.
//!
//! A client may request `encoding=text` or `compact-text` instead of the binary form. [`Text`] is the sink for it.

use super::protobuf::{Field, Sink};

/// The layout: one message per line, or one field per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `encoding=text`: one field per line, an empty line after each message.
    Lines,
    /// `encoding=compact-text`: one message per line.
    Compact,
}

/// A sink that appends text.
#[derive(Debug)]
pub struct Text<'o> {
    out: &'o mut Vec<u8>,
    layout: Layout,
    depth: usize,
    /// True if no field of the current message has been written.
    pub first: bool,
}

impl<'o> Text<'o> {
    /// Starts before the first field of a family.
    pub fn new(out: &'o mut Vec<u8>, layout: Layout) -> Self {
        Self { out, layout, depth: 0, first: true }
    }

    /// Ends the family.
    pub fn end(&mut self) {
        self.out.push(b'\n');
        self.first = true;
    }

    #[inline]
    fn name(&mut self, field: Field) {
        match self.layout {
            Layout::Lines => self.indent(),
            Layout::Compact if self.first => self.first = false,
            Layout::Compact => self.out.push(b' '),
        }
        self.out.extend_from_slice(field.name.as_bytes());
    }

    #[inline]
    fn indent(&mut self) {
        const BLANKS: &[u8] = b"                ";
        let width = (2 * self.depth).min(BLANKS.len());
        self.out.extend_from_slice(BLANKS.get(..width).unwrap_or_default());
    }

    #[inline]
    fn entry(&mut self, field: Field, value: impl FnOnce(&mut Vec<u8>)) {
        self.name(field);
        match self.layout {
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
        self.entry(field, |out| integer(out, value));
    }

    fn signed(&mut self, field: Field, value: i64) {
        self.entry(field, |out| integer(out, value));
    }

    fn word(&mut self, field: Field, _number: u64, name: &str) {
        self.entry(field, |out| out.extend_from_slice(name.as_bytes()));
    }

    #[inline]
    fn message(&mut self, field: Field, fill: impl FnOnce(&mut Self)) {
        self.name(field);
        let lines = self.layout == Layout::Lines;
        self.out.extend_from_slice(if lines { b": {\n" } else { b":{" });
        self.depth += 1;
        self.first = true;
        fill(self);
        self.depth -= 1;
        self.first = false;
        if lines {
            self.indent();
            self.out.extend_from_slice(b"}\n");
        } else {
            self.out.push(b'}');
        }
    }
}

fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
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
