//! Iterates over the members of JSON objects and the elements of arrays without parsing their values.

use super::message::WireError;
use crate::wire::json::ValueScanner;

/// Calls `each` with the name (in quotes) and the value of each member of a JSON object that is not empty.
pub(super) fn for_each_member<'a>(
    text: &'a [u8],
    offset: u64,
    mut each: impl FnMut(&'a [u8], &'a [u8]),
) -> Result<(), WireError> {
    let mut cursor = Cursor { text, at: 0, offset };
    cursor.expect(b'{', "a JSON object")?;
    loop {
        cursor.skip_whitespace();
        if cursor.peek() != Some(b'"') {
            return Err(cursor.unexpected("a member name"));
        }
        let name = cursor.value()?;
        cursor.expect(b':', "`:`")?;
        each(name, cursor.value()?);
        cursor.skip_whitespace();
        match cursor.peek() {
            Some(b',') => cursor.at += 1,
            Some(b'}') => break,
            _ => return Err(cursor.unexpected("`,` or `}`")),
        }
    }
    cursor.end()
}

/// Calls `each` with each element of a JSON array; not at all if `text` is `null`.
pub(super) fn for_each_element<'a>(
    text: &'a [u8],
    offset: u64,
    mut each: impl FnMut(&'a [u8]),
) -> Result<(), WireError> {
    if text == b"null" {
        return Ok(());
    }
    let mut cursor = Cursor { text, at: 0, offset };
    cursor.expect(b'[', "a JSON array")?;
    cursor.skip_whitespace();
    let mut is_first = true;
    while !(is_first && cursor.peek() == Some(b']')) {
        is_first = false;
        each(cursor.value()?);
        cursor.skip_whitespace();
        match cursor.peek() {
            Some(b',') => cursor.at += 1,
            Some(b']') => break,
            _ => return Err(cursor.unexpected("`,` or `]`")),
        }
    }
    cursor.end()
}

/// A position in a complete JSON text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    /// The offset of the text in the body.
    offset: u64,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_whitespace(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), WireError> {
        self.skip_whitespace();
        if self.peek() != Some(byte) {
            return Err(self.unexpected(what));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self) -> Result<&'a [u8], WireError> {
        self.skip_whitespace();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(len) = ValueScanner::default().scan(rest) else {
            self.at = self.text.len();
            return Err(self.unexpected("a JSON value"));
        };
        self.at += len;
        Ok(&rest[..len])
    }

    /// Takes the closing bracket and checks that nothing follows it.
    fn end(mut self) -> Result<(), WireError> {
        self.at += 1;
        self.skip_whitespace();
        if self.at < self.text.len() {
            return Err(self.unexpected("the end of the line"));
        }
        Ok(())
    }

    fn unexpected(&self, what: &'static str) -> WireError {
        let offset = self.offset + self.at as u64;
        match self.peek() {
            Some(byte) => WireError::unexpected(what, &[byte], offset),
            None => {
                let offset = self.offset + self.text.len() as u64;
                WireError::Truncated { what: "watch event", offset }
            }
        }
    }
}
