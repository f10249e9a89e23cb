//! Writes API objects in both encodings of the Kubernetes API from one description.
//!
//! A description calls one method for each field with its protobuf tag and its JSON name, as in the published
//! `.proto` files. Omission follows Go's encoders: protobuf writes every plain field, empty or not; JSON omits empty
//! ones unless they are required. Independent of particular kinds.

use std::io::Write as _;

/// The encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The protobuf message, without the `k8s\0` envelope.
    Protobuf,
    /// JSON text.
    Json,
}

/// A message that is being written.
pub struct Message<'a> {
    out: &'a mut Vec<u8>,
    encoding: Encoding,
    empty: bool,
}

impl<'a> Message<'a> {
    /// Appends a whole object to `out`. JSON objects begin with `kind` and `apiVersion` if `type_meta` has them, as
    /// in watches and unlike in lists.
    pub fn object(
        out: &'a mut Vec<u8>,
        encoding: Encoding,
        type_meta: Option<(&str, &str)>,
        write: impl FnOnce(&mut Message<'_>),
    ) {
        if encoding == Encoding::Json {
            out.push(b'{');
        }
        let mut message = Message { out, encoding, empty: true };
        if let (Encoding::Json, Some((kind, api_version))) = (encoding, type_meta) {
            message.text(0, "kind", kind);
            message.text(0, "apiVersion", api_version);
        }
        write(&mut message);
        if encoding == Encoding::Json {
            out.push(b'}');
        }
    }

    fn key(&mut self, name: &str) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn json_number(&mut self, name: &str, value: i64) {
        self.key(name);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn json_bool(&mut self, name: &str, value: bool) {
        self.key(name);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn varint_field(&mut self, tag: u32, value: u64) {
        varint(self.out, u64::from(tag) << 3);
        varint(self.out, value);
    }

    /// Writes a string, omitted from JSON if empty.
    pub fn text(&mut self, tag: u32, name: &str, value: &str) {
        match self.encoding {
            Encoding::Protobuf => bytes_field(self.out, tag, value.as_bytes()),
            Encoding::Json if value.is_empty() => {}
            Encoding::Json => {
                self.key(name);
                json_text(self.out, value);
            }
        }
    }

    /// Writes an integer, omitted from JSON if zero.
    pub fn int(&mut self, tag: u32, name: &str, value: i64) {
        match self.encoding {
            Encoding::Protobuf => self.varint_field(tag, value.cast_unsigned()),
            Encoding::Json if value == 0 => {}
            Encoding::Json => self.json_number(name, value),
        }
    }

    /// Writes an integer that is always in JSON.
    pub fn required_int(&mut self, tag: u32, name: &str, value: i64) {
        match self.encoding {
            Encoding::Protobuf => self.varint_field(tag, value.cast_unsigned()),
            Encoding::Json => self.json_number(name, value),
        }
    }

    /// Writes a boolean, omitted from JSON if false.
    pub fn flag(&mut self, tag: u32, name: &str, value: bool) {
        match self.encoding {
            Encoding::Protobuf => self.varint_field(tag, u64::from(value)),
            Encoding::Json if !value => {}
            Encoding::Json => self.json_bool(name, value),
        }
    }

    /// Writes a boolean that is always in JSON.
    pub fn required_flag(&mut self, tag: u32, name: &str, value: bool) {
        match self.encoding {
            Encoding::Protobuf => self.varint_field(tag, u64::from(value)),
            Encoding::Json => self.json_bool(name, value),
        }
    }

    /// Writes a nested message.
    pub fn message(&mut self, tag: u32, name: &str, write: impl FnOnce(&mut Message<'_>)) {
        if self.encoding == Encoding::Json {
            self.key(name);
        }
        self.element(tag, write);
    }

    /// Writes a repeated message.
    pub fn messages<T>(
        &mut self,
        tag: u32,
        name: &str,
        values: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Message<'_>, T),
    ) {
        self.repeated(name, values, |this, value| this.element(tag, |m| write(m, value)));
    }

    /// Writes a repeated string.
    pub fn texts<T: AsRef<str>>(
        &mut self,
        tag: u32,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) {
        self.repeated(name, values, |this, value| match this.encoding {
            Encoding::Protobuf => bytes_field(this.out, tag, value.as_ref().as_bytes()),
            Encoding::Json => json_text(this.out, value.as_ref()),
        });
    }

    /// Writes a map of strings in the given order, which must be the byte order of the keys.
    pub fn text_map<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        tag: u32,
        name: &str,
        entries: impl IntoIterator<Item = (K, V)>,
    ) {
        self.map(tag, name, entries, |entry, value| bytes_field(entry, 2, value.as_bytes()));
    }

    /// Writes a map of quantities in the given order.
    pub fn quantity_map<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        tag: u32,
        name: &str,
        entries: impl IntoIterator<Item = (K, V)>,
    ) {
        self.map(tag, name, entries, |entry, value| {
            nested(entry, 2, |quantity| bytes_field(quantity, 1, value.as_bytes()));
        });
    }

    /// Writes a map of byte strings in the given order.
    pub fn data_map<K: AsRef<str>, V: AsRef<[u8]>>(
        &mut self,
        tag: u32,
        name: &str,
        entries: impl IntoIterator<Item = (K, V)>,
    ) {
        let entries = entries.into_iter();
        match self.encoding {
            Encoding::Protobuf => {
                for (key, value) in entries {
                    nested(self.out, tag, |entry| {
                        bytes_field(entry, 1, key.as_ref().as_bytes());
                        bytes_field(entry, 2, value.as_ref());
                    });
                }
            }
            Encoding::Json => self.map(
                tag,
                name,
                entries.map(|(key, value)| (key, base64(value.as_ref()))),
                |_, _| {},
            ),
        }
    }

    /// Writes a quantity with presence.
    pub fn quantity(&mut self, tag: u32, name: &str, value: &str) {
        match self.encoding {
            Encoding::Protobuf => {
                nested(self.out, tag, |quantity| bytes_field(quantity, 1, value.as_bytes()));
            }
            Encoding::Json => self.text(tag, name, value),
        }
    }

    /// Writes a time in Unix seconds.
    pub fn time(&mut self, tag: u32, name: &str, unix: i64) {
        self.timestamp(tag, name, unix, "");
    }

    /// Writes an unset time, which is an empty message in protobuf.
    pub fn unset_time(&mut self, tag: u32) {
        if self.encoding == Encoding::Protobuf {
            bytes_field(self.out, tag, b"");
        }
    }

    /// Writes a time with microseconds, as leases have.
    pub fn micro_time(&mut self, tag: u32, name: &str, unix: i64) {
        self.timestamp(tag, name, unix, ".000000");
    }

    fn timestamp(&mut self, tag: u32, name: &str, unix: i64, fraction: &str) {
        match self.encoding {
            Encoding::Protobuf => nested(self.out, tag, |time| {
                time.push(1 << 3);
                varint(time, unix.cast_unsigned());
                time.extend_from_slice(&[2 << 3, 0]);
            }),
            Encoding::Json => {
                self.key(name);
                let days = civil(unix.div_euclid(86_400));
                let second = unix.rem_euclid(86_400);
                // Writing to a vector cannot fail.
                let _ = write!(
                    self.out,
                    "\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z\"",
                    days.0,
                    days.1,
                    days.2,
                    second / 3600,
                    second / 60 % 60,
                    second % 60
                );
            }
        }
    }

    /// Writes an `IntOrString` with a number.
    pub fn number_or_text(&mut self, tag: u32, name: &str, value: i64) {
        match self.encoding {
            Encoding::Protobuf => nested(self.out, tag, |value_message| {
                value_message.extend_from_slice(&[1 << 3, 0, 2 << 3]);
                varint(value_message, value.cast_unsigned());
                bytes_field(value_message, 3, b"");
            }),
            Encoding::Json => self.json_number(name, value),
        }
    }

    /// Writes an `IntOrString` with text, such as `25%`.
    pub fn text_or_number(&mut self, tag: u32, name: &str, value: &str) {
        match self.encoding {
            Encoding::Protobuf => nested(self.out, tag, |value_message| {
                value_message.extend_from_slice(&[1 << 3, 1, 2 << 3, 0]);
                bytes_field(value_message, 3, value.as_bytes());
            }),
            Encoding::Json => self.text(tag, name, value),
        }
    }

    /// Writes `FieldsV1`: in protobuf a message with JSON text, in JSON the text itself.
    pub fn fields_v1(&mut self, tag: u32, name: &str, json: &str) {
        match self.encoding {
            Encoding::Protobuf => {
                nested(self.out, tag, |fields| bytes_field(fields, 1, json.as_bytes()));
            }
            Encoding::Json => {
                self.key(name);
                self.out.extend_from_slice(json.as_bytes());
            }
        }
    }

    /// Writes fields that protobuf nests in a message and JSON has inline.
    pub fn inline(&mut self, tag: u32, write: impl FnOnce(&mut Message<'_>)) {
        match self.encoding {
            Encoding::Protobuf => self.element(tag, write),
            Encoding::Json => write(self),
        }
    }

    fn element(&mut self, tag: u32, write: impl FnOnce(&mut Message<'_>)) {
        let encoding = self.encoding;
        match encoding {
            Encoding::Protobuf => nested(self.out, tag, |out| {
                write(&mut Message { out, encoding, empty: true });
            }),
            Encoding::Json => {
                self.out.push(b'{');
                write(&mut Message { out: &mut *self.out, encoding, empty: true });
                self.out.push(b'}');
            }
        }
    }

    fn repeated<T>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        let mut values = values.into_iter().peekable();
        if self.encoding == Encoding::Protobuf {
            values.for_each(|value| write(self, value));
        } else if values.peek().is_some() {
            self.key(name);
            let mut separator = b'[';
            for value in values {
                self.out.push(separator);
                separator = b',';
                write(self, value);
            }
            self.out.push(b']');
        }
    }

    fn map<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        tag: u32,
        name: &str,
        entries: impl IntoIterator<Item = (K, V)>,
        value_field: impl Fn(&mut Vec<u8>, &str),
    ) {
        let mut entries = entries.into_iter().peekable();
        if self.encoding == Encoding::Protobuf {
            for (key, value) in entries {
                nested(self.out, tag, |entry| {
                    bytes_field(entry, 1, key.as_ref().as_bytes());
                    value_field(entry, value.as_ref());
                });
            }
        } else if entries.peek().is_some() {
            self.key(name);
            let mut separator = b'{';
            for (key, value) in entries {
                self.out.push(separator);
                separator = b',';
                json_text(self.out, key.as_ref());
                self.out.push(b':');
                json_text(self.out, value.as_ref());
            }
            self.out.push(b'}');
        }
    }
}

/// Appends a base-128 varint (<https://protobuf.dev/programming-guides/encoding/#varints>).
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the length of the varint for `value`.
pub fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends a length-delimited field.
pub fn bytes_field(out: &mut Vec<u8>, tag: u32, value: &[u8]) {
    prefix(out, tag, value.len());
    out.extend_from_slice(value);
}

/// Appends the prefix of a length-delimited field of `len` bytes.
pub fn prefix(out: &mut Vec<u8>, tag: u32, len: usize) {
    varint(out, u64::from(tag) << 3 | 2);
    varint(out, len as u64);
}

/// Appends a nested message. One byte is reserved for its length; the message is moved if the length needs more.
pub fn nested(out: &mut Vec<u8>, tag: u32, write: impl FnOnce(&mut Vec<u8>)) {
    varint(out, u64::from(tag) << 3 | 2);
    let start = out.len();
    out.push(0);
    write(out);
    let end = out.len();
    let mut len = end - start - 1;
    let extra = varint_len(len) - 1;
    if extra > 0 {
        out.resize(end + extra, 0);
        out.copy_within(start + 1..end, start + 1 + extra);
    }
    for byte in &mut out[start..start + extra] {
        *byte = len as u8 | 0x80;
        len >>= 7;
    }
    out[start + extra] = len as u8;
}

fn json_text(out: &mut Vec<u8>, value: &str) {
    if value.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    } else {
        // Writing text to a vector cannot fail.
        let _ = serde_json::to_writer(out, value);
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Returns year, month and day of a day counted from 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Message<'_>)) -> (Vec<u8>, String) {
        let (mut protobuf, mut json) = (Vec::new(), Vec::new());
        Message::object(&mut protobuf, Encoding::Protobuf, None, &write);
        Message::object(&mut json, Encoding::Json, Some(("Pod", "v1")), &write);
        (protobuf, String::from_utf8(json).unwrap())
    }

    #[test]
    fn empty_fields_are_written_as_go_does() {
        let (protobuf, json) = both(|m| {
            m.text(1, "name", "");
            m.int(2, "zero", 0);
            m.required_int(3, "replicas", 0);
            m.flag(4, "off", false);
        });
        assert_eq!(protobuf, [10, 0, 16, 0, 24, 0, 32, 0]);
        assert_eq!(json, r#"{"kind":"Pod","apiVersion":"v1","replicas":0}"#);
    }

    #[test]
    fn long_messages_get_long_lengths() {
        for len in [0, 127, 128, 16_383, 16_384, 300_000] {
            let text = "x".repeat(len);
            let mut got = Vec::new();
            nested(&mut got, 3, |out| out.extend_from_slice(text.as_bytes()));
            let mut want = Vec::new();
            bytes_field(&mut want, 3, text.as_bytes());
            assert_eq!(got, want, "{len}");
            assert_eq!(want.len(), 1 + varint_len(len) + len);
        }
    }

    #[test]
    fn times_maps_and_lists() {
        let (protobuf, json) = both(|m| {
            m.time(8, "creationTimestamp", 1_795_240_569);
            m.quantity_map(1, "limits", [("cpu", "250m")]);
            m.texts(2, "args", ["a\"b", ""]);
            m.data_map(4, "data", [("k", b"any carnal pleas".as_slice())]);
            m.number_or_text(5, "port", 80);
            m.text_or_number(6, "max", "25%");
        });
        assert!(protobuf.starts_with(b"\x42\x08\x08\xf9\xe4\x84\xd8\x06\x10\x00"));
        let want = concat!(
            r#"{"kind":"Pod","apiVersion":"v1","creationTimestamp":"2026-11-21T05:56:09Z","#,
            r#""limits":{"cpu":"250m"},"args":["a\"b",""],"data":{"k":"YW55IGNhcm5hbCBwbGVhcw=="},"#,
            r#""port":80,"max":"25%"}"#,
        );
        assert_eq!(json, want);
    }

    #[test]
    fn calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(-1), (1969, 12, 31));
    }
}
