//! Framing of JSON lists and watches without parsing the items.
//!
//! A scanner tracks strings and nesting to find the end of each value. Its state survives the end of a chunk, so each
//! byte is scanned once, however the body is split. Items are validated when they are decoded.

use std::borrow::Cow;

use super::buffer::{BodyReader, Buffer};
use super::members::for_each_member;
use super::message::{Event, EventKind, ListMeta, MAX_OBJECT, Status, TypeMeta, WireError};
use super::table::TableConverter;
use crate::resources::{Column, ObjectBytes};
use crate::wire::json::ValueScanner;
use crate::wire::view::decode;

/// A member of the list object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Metadata,
    Items,
    /// The column definitions of a table.
    Columns,
    Kind,
    /// Members of a `Status`.
    Message,
    Reason,
    Code,
    Other,
}

/// The next token expected in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ListState {
    #[default]
    Object,
    FirstKey,
    Key,
    Colon(Member),
    Value(Member),
    /// Inside a value to skip.
    SkippedValue,
    FirstItem,
    Item,
    AfterItem,
    AfterValue,
    End,
}

/// Reads a list response as it arrives. The members of the list may be in any order.
#[derive(Debug, Default)]
pub struct JsonList {
    buffer: Buffer,
    state: ListState,
    scan: ValueScanner,
    meta: ListMeta,
    /// True once the member `items` has been seen, even if empty.
    has_items: bool,
    /// Converts rows to objects if the response may be a table. `is_table` is true once it is known to be one.
    table: Option<TableConverter>,
    is_table: bool,
    /// The members of a `Status`.
    status: Status<'static>,
}

impl BodyReader for JsonList {
    fn buffer(&mut self) -> &mut Buffer {
        &mut self.buffer
    }

    fn with_table(mut self, column: Column) -> Self {
        self.table = Some(TableConverter::new(column));
        self
    }
}

impl JsonList {
    /// Returns the next complete item as JSON text, or `None` if more of the body is needed.
    ///
    /// # Errors
    /// Returns an error if the body is not a JSON list or an item is larger than [`MAX_OBJECT`].
    #[allow(clippy::should_implement_trait)] // The item is lent.
    pub fn next(&mut self) -> Result<Option<&[u8]>, WireError> {
        loop {
            if self.state == ListState::SkippedValue {
                if !self.skip_value() {
                    return Ok(None);
                }
                self.state = ListState::AfterValue;
            }
            let Some(byte) = self.peek_token() else {
                return Ok(None);
            };
            let offset = self.buffer.offset();
            match (self.state, byte) {
                (ListState::Object, b'{') => self.advance(ListState::FirstKey),
                (ListState::FirstKey | ListState::AfterValue, b'}') => self.advance(ListState::End),
                (ListState::FirstKey | ListState::Key, b'"') => {
                    let Some(len) = self.value_len("member name")? else {
                        return Ok(None);
                    };
                    self.state = ListState::Colon(match self.buffer.take(len) {
                        b"\"metadata\"" => Member::Metadata,
                        b"\"items\"" => Member::Items,
                        b"\"rows\"" if self.table.is_some() => {
                            self.is_table = true;
                            Member::Items
                        }
                        b"\"columnDefinitions\"" if self.table.is_some() => Member::Columns,
                        b"\"kind\"" => Member::Kind,
                        b"\"message\"" => Member::Message,
                        b"\"reason\"" => Member::Reason,
                        b"\"code\"" => Member::Code,
                        _ => Member::Other,
                    });
                }
                (ListState::Colon(member), b':') => self.advance(ListState::Value(member)),
                (ListState::Value(Member::Items), b'[') => {
                    self.has_items = true;
                    self.advance(ListState::FirstItem);
                }
                (ListState::FirstItem | ListState::AfterItem, b']') => {
                    self.advance(ListState::AfterValue)
                }
                (ListState::AfterItem, b',') => self.advance(ListState::Item),
                (ListState::AfterValue, b',') => self.advance(ListState::Key),
                (ListState::FirstItem | ListState::Item, b'{') => {
                    let Some(len) = self.value_len("list item")? else {
                        return Ok(None);
                    };
                    self.state = ListState::AfterItem;
                    let item = self.buffer.take(len);
                    return match &mut self.table {
                        Some(table) if self.is_table => table.convert_row(item, offset).map(Some),
                        _ => Ok(Some(item)),
                    };
                }
                // Go servers encode a nil slice as `null`.
                (ListState::Value(member), b'n')
                | (ListState::Value(member @ Member::Metadata), _) => {
                    let Some(len) = self.value_len("list metadata")? else {
                        return Ok(None);
                    };
                    let bytes = self.buffer.take(len);
                    if member == Member::Metadata {
                        self.meta.update(ObjectBytes::Json(bytes), offset)?;
                    } else if bytes != b"null" {
                        return Err(WireError::Malformed { what: "JSON value", offset });
                    }
                    self.has_items |= member == Member::Items;
                    self.state = ListState::AfterValue;
                }
                (ListState::Value(Member::Columns), b'[') => {
                    let Some(len) = self.value_len("column definitions")? else {
                        return Ok(None);
                    };
                    if let Some(table) = &mut self.table {
                        table.set_columns(self.buffer.take(len), offset)?;
                    }
                    self.state = ListState::AfterValue;
                }
                (
                    ListState::Value(member @ (Member::Kind | Member::Message | Member::Reason)),
                    b'"',
                ) => {
                    let Some(len) = self.value_len("JSON string")? else {
                        return Ok(None);
                    };
                    let value = serde_json::from_slice::<String>(self.buffer.take(len));
                    let value =
                        value.map_err(|_| WireError::Malformed { what: "JSON string", offset })?;
                    match member {
                        Member::Kind => self.meta.kind = value,
                        Member::Message => self.status.message = Cow::<str>::from(value).into(),
                        _ => self.status.reason = Cow::<str>::from(value).into(),
                    }
                    self.state = ListState::AfterValue;
                }
                (ListState::Value(Member::Code), b'0'..=b'9') => {
                    let Some(len) = self.value_len("JSON number")? else {
                        return Ok(None);
                    };
                    let digits = std::str::from_utf8(self.buffer.take(len)).unwrap_or_default();
                    self.status.code = digits.parse().unwrap_or_default();
                    self.state = ListState::AfterValue;
                }
                (
                    ListState::Value(member),
                    b'"' | b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f',
                ) if !matches!(member, Member::Items | Member::Columns) => {
                    self.state = ListState::SkippedValue;
                }
                _ => {
                    return Err(WireError::Unexpected {
                        what: self.state.expected(),
                        found: byte.escape_ascii().to_string(),
                        offset,
                    });
                }
            }
        }
    }

    /// Checks that the body is complete and returns the list metadata.
    ///
    /// # Errors
    /// Returns an error if the body is truncated or not a list.
    pub fn finish(self) -> Result<ListMeta, WireError> {
        if self.state != ListState::End {
            return Err(self.buffer.truncated("list"));
        }
        if self.meta.kind == "Status" {
            return Err(self.status.into_error());
        }
        if !self.has_items {
            return Err(WireError::NotAList { missing: "items" });
        }
        Ok(self.meta)
    }

    /// Returns the next byte that is not whitespace, without taking it.
    fn peek_token(&mut self) -> Option<u8> {
        if self.scan.seen > 0 {
            // Inside a value, its first byte selects the same branch again.
            return self.buffer.unread_after(0).first().copied();
        }
        loop {
            let bytes = self.buffer.unread_after(0);
            let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            match bytes.get(blank) {
                Some(&byte) => {
                    self.buffer.discard(blank as u64);
                    return Some(byte);
                }
                None if blank == 0 => return None,
                None => self.buffer.discard(blank as u64),
            };
        }
    }

    fn advance(&mut self, state: ListState) {
        self.buffer.discard(1);
        self.state = state;
    }

    /// Returns the length of the value at the start of the unread bytes, or `None` if it is incomplete.
    fn value_len(&mut self, what: &'static str) -> Result<Option<usize>, WireError> {
        loop {
            let bytes = self.buffer.unread_after(self.scan.seen);
            if bytes.is_empty() {
                let size = self.scan.seen;
                if size > MAX_OBJECT {
                    let (size, offset) = (size as u64, self.buffer.offset());
                    return Err(WireError::TooLarge { what, size, offset });
                }
                return Ok(None);
            }
            if let Some(len) = self.scan.scan(bytes) {
                self.scan = ValueScanner::default();
                return Ok(Some(len));
            }
        }
    }

    /// Drops the value at the start of the unread bytes as far as it has arrived. Returns true at its end.
    fn skip_value(&mut self) -> bool {
        loop {
            let before = self.scan.seen;
            let bytes = self.buffer.unread_after(0);
            if bytes.is_empty() {
                return false;
            }
            match self.scan.scan(bytes) {
                Some(len) => {
                    self.buffer.discard((len - before) as u64);
                    self.scan = ValueScanner::default();
                    return true;
                }
                None => {
                    let count = bytes.len() as u64;
                    self.buffer.discard(count);
                }
            }
        }
    }
}

impl ListState {
    fn expected(self) -> &'static str {
        match self {
            Self::Object => "a JSON object",
            Self::FirstKey => "a member name or `}`",
            Self::Key => "a member name",
            Self::Colon(_) => "`:`",
            Self::Value(Member::Items) => "a JSON array",
            Self::Value(_) | Self::SkippedValue => "a JSON value",
            Self::FirstItem => "a JSON object or `]`",
            Self::Item => "a JSON object",
            Self::AfterItem => "`,` or `]`",
            Self::AfterValue => "`,` or `}`",
            Self::End => "the end of the list",
        }
    }
}

/// Reads a watch response as it arrives: one JSON object per line.
#[derive(Debug, Default)]
pub struct JsonWatch {
    buffer: Buffer,
    /// Converts tables to objects, if the response may contain any.
    table: Option<TableConverter>,
    /// The number of bytes of the line that have been searched for a line break.
    seen: usize,
}

impl BodyReader for JsonWatch {
    fn buffer(&mut self) -> &mut Buffer {
        &mut self.buffer
    }

    fn with_table(mut self, column: Column) -> Self {
        self.table = Some(TableConverter::new(column));
        self
    }
}

impl JsonWatch {
    /// Returns the next complete event, or `None` if more of the body is needed.
    ///
    /// # Errors
    /// Returns an error if a line is not a JSON event or is longer than [`MAX_OBJECT`].
    #[allow(clippy::should_implement_trait)] // The event is lent.
    pub fn next(&mut self) -> Result<Option<Event<'_>>, WireError> {
        let (len, offset) = loop {
            let offset = self.buffer.offset();
            let bytes = self.buffer.unread_after(self.seen);
            if self.seen == 0 && bytes.first().is_some_and(u8::is_ascii_whitespace) {
                self.buffer.discard(1);
                continue;
            }
            if bytes.is_empty() {
                let size = self.seen as u64;
                if self.seen > MAX_OBJECT {
                    return Err(WireError::TooLarge { what: "watch event", size, offset });
                }
                return Ok(None);
            }
            match memchr::memchr(b'\n', bytes) {
                Some(at) => break (self.seen + at, offset),
                None => self.seen += bytes.len(),
            }
        };
        self.seen = 0;
        let mut event = parse_event(self.buffer.take(len), offset)?;
        if let (Some(table), ObjectBytes::Json(object)) = (&mut self.table, event.object)
            && event.kind != EventKind::Error
        {
            event.object = ObjectBytes::Json(table.convert_event(object, offset)?);
        }
        Ok(Some(event))
    }

    /// Returns the error of a body that ends here: it is truncated, or a `Status` instead of a watch.
    pub(super) fn unfinished(&mut self) -> WireError {
        let truncated = self.buffer.truncated("watch event");
        status_error(self.buffer.take(self.buffer.len())).unwrap_or(truncated)
    }
}

/// Returns the error described by a line that is a `Status` instead of an event.
fn status_error(line: &[u8]) -> Option<WireError> {
    let type_meta: TypeMeta<'_> = decode(ObjectBytes::Json(line)).ok()?;
    let status: Status<'_> = decode(ObjectBytes::Json(line)).ok()?;
    (*type_meta.kind == *"Status").then(|| status.into_error())
}

/// Parses `type` and `object` of an event.
fn parse_event(line: &[u8], offset: u64) -> Result<Event<'_>, WireError> {
    let (mut kind, mut object): (&[u8], &[u8]) = (b"", b"");
    for_each_member(line, offset, |name, value| match name {
        b"\"type\"" => kind = value,
        b"\"object\"" => object = value,
        _ => {}
    })?;
    if kind.is_empty()
        && let Some(status) = status_error(line)
    {
        return Err(status);
    }
    let kind = kind.strip_prefix(b"\"").and_then(|kind| kind.strip_suffix(b"\""));
    let kind = EventKind::parse(kind.unwrap_or_default(), offset)?;
    Ok(Event { kind, object: ObjectBytes::Json(object) })
}
