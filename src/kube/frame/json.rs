//! Framing of JSON lists and watches without parsing the items.
//!
//! A scanner tracks strings and nesting to find the end of each value. Its state survives the end of a chunk, so each
//! byte is scanned once, however the body is split. Items are validated when they are decoded.

use std::borrow::Cow;

use super::buffer::Buffer;
use super::members::for_each_member;
use super::message::{
    Event, EventKind, ListMeta, MAX_OBJECT, Status, TypeMeta, WireError, not_a_list,
};
use super::table::TableConverter;
use crate::resources::ObjectBytes;
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
    FirstItem,
    Item,
    AfterItem,
    AfterValue,
    End,
}

/// Reads a list response as it arrives. The members of the list may be in any order.
#[derive(Debug, Default)]
pub struct JsonList {
    state: ListState,
    scan: ValueScanner,
    meta: ListMeta,
    /// True once the member `items` has been seen, even if empty.
    has_items: bool,
    /// True once the response is known to be a table.
    is_table: bool,
    /// The members of a `Status`.
    status: Status<'static>,
}

impl JsonList {
    /// Returns the next complete item as JSON text, or `None` if more of the body is needed. Rows are converted to objects by
    /// `table`, if the response may be one.
    ///
    /// # Errors
    /// Returns an error if the body is not a JSON list or an item is larger than [`MAX_OBJECT`].
    pub(super) fn next<'a>(
        &'a mut self,
        buffer: &'a mut Buffer,
        table: &'a mut Option<TableConverter>,
    ) -> Result<Option<&'a [u8]>, WireError> {
        loop {
            let Some(byte) = self.peek_token(buffer) else {
                return Ok(None);
            };
            let offset = buffer.offset();
            match (self.state, byte) {
                (ListState::Object, b'{') => self.advance(buffer, ListState::FirstKey),
                (ListState::FirstKey | ListState::AfterValue, b'}') => {
                    self.advance(buffer, ListState::End)
                }
                (ListState::FirstKey | ListState::Key, b'"') => {
                    let Some(len) = self.value_len(buffer, "member name")? else {
                        return Ok(None);
                    };
                    self.state = ListState::Colon(match buffer.take(len) {
                        b"\"metadata\"" => Member::Metadata,
                        b"\"items\"" => Member::Items,
                        b"\"rows\"" if table.is_some() => {
                            self.is_table = true;
                            Member::Items
                        }
                        b"\"columnDefinitions\"" if table.is_some() => Member::Columns,
                        b"\"kind\"" => Member::Kind,
                        b"\"message\"" => Member::Message,
                        b"\"reason\"" => Member::Reason,
                        b"\"code\"" => Member::Code,
                        _ => Member::Other,
                    });
                }
                (ListState::Colon(member), b':') => self.advance(buffer, ListState::Value(member)),
                (ListState::Value(Member::Items), b'[') => {
                    self.has_items = true;
                    self.advance(buffer, ListState::FirstItem);
                }
                (ListState::FirstItem | ListState::AfterItem, b']') => {
                    self.advance(buffer, ListState::AfterValue)
                }
                (ListState::AfterItem, b',') => self.advance(buffer, ListState::Item),
                (ListState::AfterValue, b',') => self.advance(buffer, ListState::Key),
                (ListState::FirstItem | ListState::Item, b'{') => {
                    let Some(len) = self.value_len(buffer, "list item")? else {
                        return Ok(None);
                    };
                    self.state = ListState::AfterItem;
                    let item = buffer.take(len);
                    return match table {
                        Some(table) if self.is_table => table.convert_row(item, offset).map(Some),
                        _ => Ok(Some(item)),
                    };
                }
                (ListState::Value(member), byte) if member.may_begin_with(byte) => {
                    let Some(len) = self.value_len(buffer, "list member")? else {
                        return Ok(None);
                    };
                    self.read_member(buffer, member, len, table)?;
                    self.state = ListState::AfterValue;
                }
                _ => {
                    return Err(WireError::unexpected(self.state.expected(), &[byte], offset));
                }
            }
        }
    }

    /// Checks that the body is complete and returns the list metadata.
    ///
    /// # Errors
    /// Returns an error if the body is truncated or not a list.
    pub(super) fn finish(self, buffer: &Buffer) -> Result<ListMeta, WireError> {
        if self.state != ListState::End {
            return Err(buffer.truncated("list"));
        }
        if self.meta.kind == "Status" {
            return Err(self.status.into_error());
        }
        if !self.has_items {
            return Err(not_a_list("items"));
        }
        Ok(self.meta)
    }

    /// Returns the next byte that is not whitespace, without taking it.
    fn peek_token(&self, buffer: &mut Buffer) -> Option<u8> {
        if self.scan.seen > 0 {
            // Inside a value, its first byte selects the same branch again.
            return buffer.unread_after(0).first().copied();
        }
        loop {
            let bytes = buffer.unread_after(0);
            let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            match bytes.get(blank) {
                Some(&byte) => {
                    buffer.discard(blank as u64);
                    return Some(byte);
                }
                None if blank == 0 => return None,
                None => buffer.discard(blank as u64),
            };
        }
    }

    fn advance(&mut self, buffer: &mut Buffer, state: ListState) {
        buffer.discard(1);
        self.state = state;
    }

    /// Returns the length of the value at the start of the unread bytes, or `None` if it is incomplete.
    fn value_len(
        &mut self,
        buffer: &Buffer,
        what: &'static str,
    ) -> Result<Option<usize>, WireError> {
        loop {
            let bytes = buffer.unread_after(self.scan.seen);
            if bytes.is_empty() {
                let size = self.scan.seen;
                if size > MAX_OBJECT {
                    return Err(WireError::too_large(what, size as u64, buffer.offset()));
                }
                return Ok(None);
            }
            if let Some(len) = self.scan.scan(bytes) {
                self.scan = ValueScanner::default();
                return Ok(Some(len));
            }
        }
    }

    /// Takes the value of a member other than an array of items.
    fn read_member(
        &mut self,
        buffer: &mut Buffer,
        member: Member,
        len: usize,
        table: &mut Option<TableConverter>,
    ) -> Result<(), WireError> {
        let offset = buffer.offset();
        let bytes = buffer.take(len);
        let malformed = |what| WireError::malformed(what, offset);
        match (member, bytes.first()) {
            (Member::Metadata, _) => self.meta.update(ObjectBytes::Json(bytes), offset)?,
            (_, Some(b'n')) if bytes != b"null" => return Err(malformed("JSON value")),
            // Go servers encode a nil slice as `null`.
            (Member::Items, _) => self.has_items = true,
            (Member::Columns, _) => {
                if let Some(table) = table {
                    table.set_columns(bytes, offset)?;
                }
            }
            (Member::Code, _) => {
                self.status.code = serde_json::from_slice(bytes).unwrap_or_default()
            }
            (Member::Kind | Member::Message | Member::Reason, Some(b'"')) => {
                let text: String =
                    serde_json::from_slice(bytes).map_err(|_| malformed("JSON string"))?;
                match member {
                    Member::Kind => self.meta.kind = text,
                    Member::Message => self.status.message = Cow::<str>::from(text).into(),
                    _ => self.status.reason = Cow::<str>::from(text).into(),
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Member {
    /// Returns true if a value of this member other than an array of items may begin with this byte.
    fn may_begin_with(self, byte: u8) -> bool {
        match self {
            Self::Metadata => true,
            Self::Items => byte == b'n',
            _ => matches!(byte, b'"' | b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'),
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
            Self::Value(_) => "a JSON value",
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
    /// The number of bytes of the line that have been searched for a line break.
    seen: usize,
}

impl JsonWatch {
    /// Returns the next complete event, or `None` if more of the body is needed. Tables are converted to objects by `table`, if
    /// the response may contain any.
    ///
    /// # Errors
    /// Returns an error if a line is not a JSON event or is longer than [`MAX_OBJECT`].
    pub(super) fn next<'a>(
        &'a mut self,
        buffer: &'a mut Buffer,
        table: &'a mut Option<TableConverter>,
    ) -> Result<Option<Event<'a>>, WireError> {
        let (len, offset) = loop {
            let offset = buffer.offset();
            let bytes = buffer.unread_after(self.seen);
            if self.seen == 0 && bytes.first().is_some_and(u8::is_ascii_whitespace) {
                buffer.discard(1);
                continue;
            }
            if bytes.is_empty() {
                let size = self.seen as u64;
                if self.seen > MAX_OBJECT {
                    return Err(WireError::too_large("watch event", size, offset));
                }
                return Ok(None);
            }
            match memchr::memchr(b'\n', bytes) {
                Some(at) => break (self.seen + at, offset),
                None => self.seen += bytes.len(),
            }
        };
        self.seen = 0;
        let mut event = parse_event(buffer.take(len), offset)?;
        if let (Some(table), ObjectBytes::Json(object)) = (table, event.object)
            && event.kind != EventKind::Error
        {
            event.object = ObjectBytes::Json(table.convert_event(object, offset)?);
        }
        Ok(Some(event))
    }

    /// Returns the error of a body that ends here: it is truncated, or a `Status` instead of a watch.
    pub(super) fn unfinished(buffer: &mut Buffer) -> WireError {
        let truncated = buffer.truncated("watch event");
        status_error(buffer.take(buffer.len())).unwrap_or(truncated)
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
