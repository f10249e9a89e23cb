//! Framing of JSON lists and watches, without parsing what is framed.
//!
//! A scanner that tracks strings and nesting finds where a value ends; its state survives the end of a
//! chunk, so that each byte is looked at once however the body is cut. What it frames is checked when it
//! is decoded.

use bytes::Bytes;

use super::buffer::{Body, Buffer};
use super::message::{Event, EventKind, ListMeta, MAX_OBJECT, Status, WireError};
use super::scan::{Scan, members};
use super::table::Table;
use crate::resources::{Column, ObjectBytes};
use crate::wire::view::{Str, decode, view};

view! {
    /// What any answer says about itself.
    pub struct Typed<'a> {
        kind: Str<'a> = 1 "kind",
    }
}

/// A member of the list object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Metadata,
    Items,
    /// What the columns of a table are.
    Columns,
    /// A text that tells what the body is.
    Text(Text),
    /// The HTTP status in a `Status`.
    Code,
    Other,
}

/// Which text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Kind,
    Message,
    Reason,
}

/// What comes next in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Object,
    FirstKey,
    Key,
    Colon(Member),
    Value(Member),
    /// Within a value that nobody reads.
    Skipped,
    FirstItem,
    Item,
    AfterItem,
    AfterValue,
    Nothing,
}

/// Reads a list response as it arrives; the members of the list may come in any order.
#[derive(Debug)]
pub struct JsonList {
    buffer: Buffer,
    next: Next,
    scan: Scan,
    meta: ListMeta,
    /// Whether there were items, if only none.
    items: bool,
    /// Makes objects of items, if it may be a table, and whether it is one.
    table: Option<Table>,
    is_table: bool,
    /// What a `Status` says.
    message: String,
    reason: String,
    code: u16,
}

impl Default for JsonList {
    fn default() -> Self {
        Self {
            buffer: Buffer::default(),
            next: Next::Object,
            scan: Scan::default(),
            meta: ListMeta::default(),
            items: false,
            table: None,
            is_table: false,
            message: String::new(),
            reason: String::new(),
            code: 0,
        }
    }
}

impl Body for JsonList {
    fn feed(&mut self, chunk: Bytes) {
        self.buffer.feed(chunk);
    }

    fn or_table(mut self, column: Column) -> Self {
        self.table = Some(Table::new(column));
        self
    }
}

impl JsonList {
    /// The next item that is complete, as JSON text. `None` asks for more.
    ///
    /// # Errors
    /// The body is not a list in JSON, or an item is larger than [`MAX_OBJECT`].
    #[allow(clippy::should_implement_trait)] // The item is lent.
    pub fn next(&mut self) -> Result<Option<&[u8]>, WireError> {
        loop {
            if self.next == Next::Skipped {
                if !self.skip() {
                    return Ok(None);
                }
                self.next = Next::AfterValue;
            }
            let Some(byte) = self.token() else {
                return Ok(None);
            };
            match (self.next, byte) {
                (Next::Object, b'{') => self.advance(Next::FirstKey),
                (Next::FirstKey | Next::AfterValue, b'}') => self.advance(Next::Nothing),
                (Next::FirstKey | Next::Key, b'"') => {
                    let Some(len) = self.value("member name")? else {
                        return Ok(None);
                    };
                    self.next = Next::Colon(match self.buffer.take(len) {
                        b"\"metadata\"" => Member::Metadata,
                        b"\"items\"" => Member::Items,
                        b"\"rows\"" if self.table.is_some() => {
                            self.is_table = true;
                            Member::Items
                        }
                        b"\"columnDefinitions\"" if self.table.is_some() => Member::Columns,
                        b"\"kind\"" => Member::Text(Text::Kind),
                        b"\"message\"" => Member::Text(Text::Message),
                        b"\"reason\"" => Member::Text(Text::Reason),
                        b"\"code\"" => Member::Code,
                        _ => Member::Other,
                    });
                }
                (Next::Colon(member), b':') => self.advance(Next::Value(member)),
                (Next::Value(Member::Items), b'[') => {
                    self.items = true;
                    self.advance(Next::FirstItem);
                }
                (Next::FirstItem | Next::AfterItem, b']') => self.advance(Next::AfterValue),
                (Next::AfterItem, b',') => self.advance(Next::Item),
                (Next::AfterValue, b',') => self.advance(Next::Key),
                (Next::FirstItem | Next::Item, b'{') => {
                    let offset = self.buffer.offset();
                    let Some(len) = self.value("list item")? else {
                        return Ok(None);
                    };
                    self.next = Next::AfterItem;
                    let item = self.buffer.take(len);
                    return match &mut self.table {
                        Some(table) if self.is_table => table.object(item, offset).map(Some),
                        _ => Ok(Some(item)),
                    };
                }
                // A list without items is `null` where a Go server has no slice.
                (Next::Value(member), b'n') | (Next::Value(member @ Member::Metadata), _) => {
                    let offset = self.buffer.offset();
                    let Some(len) = self.value("list metadata")? else {
                        return Ok(None);
                    };
                    let bytes = self.buffer.take(len);
                    if member == Member::Metadata {
                        let meta = ListMeta::decode(ObjectBytes::Json(bytes));
                        let meta = meta.map_err(|error| {
                            let what = "list metadata";
                            WireError::Decode { what, error, offset }
                        })?;
                        self.meta = ListMeta { kind: std::mem::take(&mut self.meta.kind), ..meta };
                    } else if bytes != b"null" {
                        return Err(WireError::Malformed { what: "JSON value", offset });
                    }
                    self.items |= member == Member::Items;
                    self.next = Next::AfterValue;
                }
                (Next::Value(Member::Columns), b'[') => {
                    let offset = self.buffer.offset();
                    let Some(len) = self.value("column definitions")? else {
                        return Ok(None);
                    };
                    if let Some(table) = &mut self.table {
                        table.columns(self.buffer.take(len), offset)?;
                    }
                    self.next = Next::AfterValue;
                }
                (Next::Value(Member::Text(text)), b'"') => {
                    let offset = self.buffer.offset();
                    let Some(len) = self.value("JSON string")? else {
                        return Ok(None);
                    };
                    let value = serde_json::from_slice(self.buffer.take(len));
                    *match text {
                        Text::Kind => &mut self.meta.kind,
                        Text::Message => &mut self.message,
                        Text::Reason => &mut self.reason,
                    } = value.map_err(|_| WireError::Malformed { what: "JSON string", offset })?;
                    self.next = Next::AfterValue;
                }
                (Next::Value(Member::Code), b'0'..=b'9') => {
                    let Some(len) = self.value("JSON number")? else {
                        return Ok(None);
                    };
                    let digits = std::str::from_utf8(self.buffer.take(len)).unwrap_or_default();
                    self.code = digits.parse().unwrap_or_default();
                    self.next = Next::AfterValue;
                }
                (
                    Next::Value(Member::Other | Member::Text(_) | Member::Code),
                    b'"' | b'{' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f',
                ) => self.next = Next::Skipped,
                _ => {
                    return Err(WireError::Unexpected {
                        what: self.next.expected(),
                        found: byte.escape_ascii().to_string(),
                        offset: self.buffer.offset(),
                    });
                }
            }
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// The body ended too early, or is no list.
    pub fn finish(self) -> Result<ListMeta, WireError> {
        if self.next != Next::Nothing {
            let offset = self.buffer.offset() + self.buffer.len() as u64;
            return Err(WireError::Truncated { what: "list", offset });
        }
        if self.meta.kind == "Status" {
            let message = if self.message.is_empty() { self.reason } else { self.message };
            return Err(WireError::Status { code: self.code, message });
        }
        if !self.items {
            return Err(WireError::NoList { missing: "items" });
        }
        Ok(self.meta)
    }

    /// The next byte that is not white space.
    fn token(&mut self) -> Option<u8> {
        if self.scan.seen > 0 {
            // Within a value: its first byte decides, as it did before.
            return self.buffer.beyond(0).first().copied();
        }
        loop {
            let bytes = self.buffer.beyond(0);
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

    fn advance(&mut self, next: Next) {
        self.buffer.discard(1);
        self.next = next;
    }

    /// The length of the value that the unread bytes begin with, once all of it is there.
    fn value(&mut self, what: &'static str) -> Result<Option<usize>, WireError> {
        loop {
            let bytes = self.buffer.beyond(self.scan.seen);
            if bytes.is_empty() {
                let size = self.scan.seen;
                if size > MAX_OBJECT {
                    let (size, offset) = (size as u64, self.buffer.offset());
                    return Err(WireError::TooLarge { what, size, offset });
                }
                return Ok(None);
            }
            if let Some(len) = self.scan.scan(bytes) {
                self.scan = Scan::default();
                return Ok(Some(len));
            }
        }
    }

    /// Drops the value that the unread bytes begin with, as far as it is there; tells whether it ended.
    fn skip(&mut self) -> bool {
        loop {
            let before = self.scan.seen;
            let bytes = self.buffer.beyond(0);
            if bytes.is_empty() {
                return false;
            }
            match self.scan.scan(bytes) {
                Some(len) => {
                    self.buffer.discard((len - before) as u64);
                    self.scan = Scan::default();
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

impl Next {
    fn expected(self) -> &'static str {
        match self {
            Self::Object => "a JSON object",
            Self::FirstKey => "a member name or `}`",
            Self::Key => "a member name",
            Self::Colon(_) => "`:`",
            Self::Value(Member::Items) => "a JSON array",
            Self::Value(_) | Self::Skipped => "a JSON value",
            Self::FirstItem => "a JSON object or `]`",
            Self::Item => "a JSON object",
            Self::AfterItem => "`,` or `]`",
            Self::AfterValue => "`,` or `}`",
            Self::Nothing => "the end of the list",
        }
    }
}

/// Reads a watch response as it arrives: one JSON object on each line.
#[derive(Debug, Default)]
pub struct JsonWatch {
    buffer: Buffer,
    /// Makes objects of tables, if there may be some.
    table: Option<Table>,
    /// Bytes of the line in which no line break was found.
    seen: usize,
}

impl Body for JsonWatch {
    fn feed(&mut self, chunk: Bytes) {
        self.buffer.feed(chunk);
    }

    fn or_table(mut self, column: Column) -> Self {
        self.table = Some(Table::new(column));
        self
    }
}

impl JsonWatch {
    /// The next event that is complete. `None` asks for more.
    ///
    /// # Errors
    /// A line is not an event in JSON, or longer than [`MAX_OBJECT`].
    #[allow(clippy::should_implement_trait)] // The event is lent.
    pub fn next(&mut self) -> Result<Option<Event<'_>>, WireError> {
        let (len, offset) = loop {
            let offset = self.buffer.offset();
            let bytes = self.buffer.beyond(self.seen);
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
        let mut event = event(self.buffer.take(len), offset)?;
        if let (Some(table), ObjectBytes::Json(object)) = (&mut self.table, event.object)
            && event.kind != EventKind::Error
        {
            event.object = ObjectBytes::Json(table.of_event(object, offset)?);
        }
        Ok(Some(event))
    }

    /// Whether an event has begun that is not complete.
    #[must_use]
    pub fn is_within_event(&self) -> bool {
        self.buffer.len() > 0
    }

    /// Ends the body.
    ///
    /// # Errors
    /// The body ended within an event, or it was a status in place of a watch.
    pub fn finish(&mut self) -> Result<(), WireError> {
        let left = self.buffer.len();
        if left == 0 {
            return Ok(());
        }
        let offset = self.buffer.offset() + left as u64;
        match status(self.buffer.take(left)) {
            Some(status) => Err(status),
            None => Err(WireError::Truncated { what: "watch event", offset }),
        }
    }
}

/// What a `Status` in place of an event says.
fn status(line: &[u8]) -> Option<WireError> {
    let typed: Typed<'_> = decode(ObjectBytes::Json(line)).ok()?;
    let status: Status<'_> = decode(ObjectBytes::Json(line)).ok()?;
    (*typed.kind == *"Status").then(|| status.into_error())
}

/// Finds `type` and `object` among the members of `line`.
fn event(line: &[u8], offset: u64) -> Result<Event<'_>, WireError> {
    let (mut kind, mut object): (&[u8], &[u8]) = (b"", b"");
    members(line, offset, |name, value| match name {
        b"\"type\"" => kind = value,
        b"\"object\"" => object = value,
        _ => {}
    })?;
    if kind.is_empty()
        && let Some(status) = status(line)
    {
        return Err(status);
    }
    let kind = kind.strip_prefix(b"\"").and_then(|kind| kind.strip_suffix(b"\""));
    let kind = EventKind::parse(kind.unwrap_or_default(), offset)?;
    Ok(Event { kind, object: ObjectBytes::Json(object) })
}
