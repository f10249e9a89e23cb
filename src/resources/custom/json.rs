//! A partial JSON parser: reads the parts of an object that a [mask](super::mask) selects, as a tree that borrows from
//! the input.
//!
//! Everything else is skipped by counting brackets and is therefore not validated; the objects come from an API server,
//! which has encoded them itself. Depth is bounded, so that no input overflows the stack.

use std::borrow::Cow;

use super::mask::Mask;
use super::tree::Json;
use crate::wire::json::ValueScanner;

/// The maximum depth; deeper values are rejected. The API server's own decoder has a limit as well; real resources stay
/// below 50.
const MAX_DEPTH: usize = 256;

/// The reason why a text is not a JSON object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub(super) struct JsonError {
    what: &'static str,
    at: usize,
}

impl<'a> Json<'a> {
    /// Reads the parts that `mask` selects.
    pub(super) fn read(bytes: &'a [u8], mask: &Mask) -> Result<Self, JsonError> {
        let mut reader = Reader { bytes, at: 0 };
        let value = reader.value(mask, 0)?;
        reader.blank();
        if reader.at < bytes.len() {
            return Err(reader.error("text behind the object"));
        }
        Ok(value)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[cold]
    fn error(&self, what: &'static str) -> JsonError {
        JsonError { what, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Consumes blanks and `byte`, if it comes next.
    #[inline]
    fn eat(&mut self, byte: u8) -> bool {
        self.blank();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, mask: &Mask, depth: usize) -> Result<Json<'a>, JsonError> {
        if depth > MAX_DEPTH {
            return Err(self.error("values nested too deeply"));
        }
        self.blank();
        match self.peek() {
            Some(b'{') if mask.skips_members() => self.skip().map(|()| Json::Map(Vec::new())),
            Some(b'[') if mask.skips_elements() => self.skip().map(|()| Json::List(Vec::new())),
            Some(b'{') => self.map(mask, depth),
            Some(b'[') => self.list(mask, depth),
            Some(b'"') => self.text().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.word(),
            None => Err(self.error("end of the text")),
        }
    }

    fn map(&mut self, mask: &Mask, depth: usize) -> Result<Json<'a>, JsonError> {
        self.at += 1;
        let mut entries: Vec<(Cow<'a, str>, Json<'a>)> = Vec::new();
        if self.eat(b'}') {
            return Ok(Json::Map(entries));
        }
        let mut sorted = true;
        loop {
            self.blank();
            if self.peek() != Some(b'"') {
                return Err(self.error("no member name"));
            }
            let key = self.text()?;
            if !self.eat(b':') {
                return Err(self.error("no colon"));
            }
            match mask.member(&key) {
                Some(member) => {
                    let value = self.value(member, depth + 1)?;
                    sorted &= entries.last().is_none_or(|(last, _)| *last < key);
                    entries.push((key, value));
                }
                None => self.skip()?,
            }
            if self.eat(b',') {
                continue;
            }
            if !self.eat(b'}') {
                return Err(self.error("neither comma nor bracket"));
            }
            break;
        }
        if !sorted {
            // The last of several members with one name counts.
            entries.reverse();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            entries.dedup_by(|(a, _), (b, _)| a == b);
        }
        Ok(Json::Map(entries))
    }

    fn list(&mut self, mask: &Mask, depth: usize) -> Result<Json<'a>, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.eat(b']') {
            return Ok(Json::List(items));
        }
        let element = mask.element();
        loop {
            match element {
                Some(element) => items.push(self.value(element, depth + 1)?),
                None => self.skip()?,
            }
            if self.eat(b',') {
                continue;
            }
            if !self.eat(b']') {
                return Err(self.error("neither comma nor bracket"));
            }
            return Ok(Json::List(items));
        }
    }

    /// Reads a string, starting at its opening quote.
    fn text(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let start = self.at + 1;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let Some(len) = memchr::memchr2(b'"', b'\\', rest) else {
            return Err(self.error("text without an end"));
        };
        let plain = rest.get(..len).unwrap_or_default();
        self.at = start + len;
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(String::from_utf8_lossy(plain));
        }
        self.escaped(plain.to_vec()).map(Cow::Owned)
    }

    /// Reads the rest of a string with escapes; `text` is the part before.
    fn escaped(&mut self, mut text: Vec<u8>) -> Result<String, JsonError> {
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(String::from_utf8_lossy(&text).into_owned());
                }
                Some(b'\\') => {
                    self.at += 1;
                    let escape = self.peek().ok_or_else(|| self.error("text without an end"))?;
                    self.at += 1;
                    text.push(match escape {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'r' => b'\r',
                        b'b' => 8,
                        b'f' => 12,
                        b'"' | b'\\' | b'/' => escape,
                        b'u' => {
                            let mut buffer = [0; 4];
                            let character = self.unicode()?;
                            text.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
                            continue;
                        }
                        _ => return Err(self.error("unknown escape")),
                    });
                }
                Some(_) => {
                    let rest = self.bytes.get(self.at..).unwrap_or_default();
                    let len = memchr::memchr2(b'"', b'\\', rest)
                        .ok_or_else(|| self.error("text without an end"))?;
                    text.extend_from_slice(rest.get(..len).unwrap_or_default());
                    self.at += len;
                }
                None => return Err(self.error("text without an end")),
            }
        }
    }

    /// Reads the character after `\u`; an unpaired surrogate becomes U+FFFD, as in Go.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before = self.at;
        if self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(b"\\u")) {
            self.at += 2;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Result<u32, JsonError> {
        let digits = self.bytes.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        code.ok_or_else(|| self.error("no hexadecimal digits"))
    }

    fn number(&mut self) -> Result<Json<'a>, JsonError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_part = |byte: &&u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        let len = rest.iter().take_while(is_part).count();
        let text = std::str::from_utf8(rest.get(..len).unwrap_or_default()).unwrap_or_default();
        let value = match text.parse::<i64>() {
            Ok(number) if !text.starts_with('+') => Json::Int(number),
            _ => match text.parse::<f64>() {
                Ok(number) => Json::Float(number),
                Err(_) => return Err(self.error("no number")),
            },
        };
        self.at += len;
        Ok(value)
    }

    fn word(&mut self) -> Result<Json<'a>, JsonError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        for (word, value) in
            [(&b"true"[..], Json::Bool(true)), (b"false", Json::Bool(false)), (b"null", Json::Null)]
        {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error("no value"))
    }

    /// Skips a value without parsing it.
    fn skip(&mut self) -> Result<(), JsonError> {
        self.blank();
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let Some(b',' | b'}' | b']') = rest.first() {
            return Err(self.error("no value"));
        }
        let end = ValueScanner::default().scan(rest);
        self.at += end.ok_or_else(|| self.error("end of the text"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<Json<'_>, JsonError> {
        Json::read(text.as_bytes(), &Mask::whole())
    }

    fn plain(value: &Json<'_>) -> serde_json::Value {
        match value {
            Json::Null => serde_json::Value::Null,
            Json::Bool(on) => (*on).into(),
            Json::Int(number) => (*number).into(),
            Json::Float(number) => (*number).into(),
            Json::Text(text) => text.as_ref().into(),
            Json::List(items) => items.iter().map(plain).collect(),
            Json::Map(entries) => serde_json::Value::Object(
                entries.iter().map(|(key, value)| (key.to_string(), plain(value))).collect(),
            ),
        }
    }

    #[test]
    fn agrees_with_serde_json() {
        for text in [
            r#" { "a" : [ 1 , -2.5e3 , "x\n\u00e9\ud83d\ude00\/" , null , true , false , {} , [] ] } "#,
            r#"{"b":{"c":"\\\"","a":12345678901234567},"a":1e400}"#,
            r#"{"z":1,"a":{"z":[[]],"a":[[1],[2,[3]]]}}"#,
        ] {
            let own = whole(text);
            match serde_json::from_str::<serde_json::Value>(text) {
                Ok(want) => assert_eq!(plain(&own.expect(text)), want, "{text}"),
                // The other parser has no infinity.
                Err(_) => assert!(own.is_ok(), "{text}"),
            }
        }
        let twice = whole(r#"{"b":1,"a":2,"b":3}"#).expect("valid");
        assert_eq!(plain(&twice), serde_json::json!({"a": 2, "b": 3}));
        assert_eq!(whole(r#""\ud800x""#).expect("valid").text(), Some("\u{fffd}x"));
    }

    #[test]
    fn malformed_texts_are_errors() {
        for text in [
            "",
            "{",
            "[",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "\"a",
            "\"\\",
            "\"\\u12",
            "\"\\x\"",
            "nul",
            "-",
            "1-",
            "{} x",
            "}",
            "{1:2}",
        ] {
            assert!(whole(text).is_err(), "{text}");
            let object = format!("{{\"a\":{text}");
            assert!(
                Json::read(object.as_bytes(), &Mask::default()).is_err() || text == "}",
                "{object}"
            );
        }
        let deep = "[".repeat(100_000);
        assert!(whole(&deep).is_err());
        assert!(Json::read(format!("{{\"a\":{deep}").as_bytes(), &Mask::default()).is_err());
    }
}
