//! Framing of the Kubernetes protobuf encoding
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>).
//!
//! Every message travels in an envelope: the bytes `k8s\0`, then `Unknown{1: type, 2: raw}`. A list is one
//! envelope around `{1: ListMeta, 2: items}`; a watch is a series of `WatchEvent{1: type, 2: {1: object}}`,
//! each behind its length in four bytes, big endian, and each object in an envelope of its own.

use bytes::Bytes;

use super::buffer::{Body, Buffer};
use super::message::{Event, EventKind, ListMeta, MAX_OBJECT, Status, WireError};
use crate::resources::ObjectBytes;
use crate::wire::varint::{NotRead, read_varint};
use crate::wire::view::{DecodeError, Message, Str, Wire, decode, view};

view! {
    /// What an envelope says about what is in it.
    pub struct TypeMeta<'a> {
        kind: Str<'a> = 2 "kind",
    }
}

/// What every protobuf message of the API begins with.
const MAGIC: &[u8] = b"k8s\0";
/// The largest `Status` and the largest type that are read, in bytes.
const MAX_STATUS: usize = 64 * 1024;
/// A field's key and length are two varints of at most ten bytes each.
const MAX_HEADER: usize = 20;

/// A field's key with what follows it: where the value lies, counted from the key's first byte.
struct Header {
    tag: u64,
    /// Whether the value is length-delimited.
    delimited: bool,
    /// Bytes before the value.
    size: usize,
    /// Bytes of the value.
    len: u64,
}

/// Reads a field's header; `None` if `bytes` end before it does.
fn header(bytes: &[u8], offset: u64) -> Result<Option<Header>, WireError> {
    let malformed = || WireError::Malformed { what: "protobuf field", offset };
    let Some((key, size)) = varint(bytes, offset)? else {
        return Ok(None);
    };
    let (delimited, extra, len) = match key & 7 {
        0 => match varint(&bytes[size..], offset)? {
            Some((_, extra)) => (false, extra, 0),
            None => return Ok(None),
        },
        1 => (false, 0, 8),
        2 => match varint(&bytes[size..], offset)? {
            Some((len, extra)) => (true, extra, len),
            None => return Ok(None),
        },
        5 => (false, 0, 4),
        _ => return Err(malformed()),
    };
    Ok(Some(Header { tag: key >> 3, delimited, size: size + extra, len }))
}

fn varint(bytes: &[u8], offset: u64) -> Result<Option<(u64, usize)>, WireError> {
    match read_varint(bytes) {
        Ok((value, rest)) => Ok(Some((value, bytes.len() - rest.len()))),
        Err(NotRead::CutOff) => Ok(None),
        Err(NotRead::TooLong) => Err(WireError::Malformed { what: "protobuf varint", offset }),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// Before the magic bytes.
    Start,
    /// In the envelope, before or behind the list.
    Envelope,
    /// In the list, with so many bytes of it to come.
    List(u64),
}

/// Reads a list response as it arrives.
#[derive(Debug)]
pub struct ProtobufList {
    buffer: Buffer,
    within: Within,
    /// Bytes of a field that nobody reads, still to be dropped.
    skip: u64,
    seen: bool,
    meta: ListMeta,
}

impl Default for ProtobufList {
    fn default() -> Self {
        Self {
            buffer: Buffer::default(),
            within: Within::Start,
            skip: 0,
            seen: false,
            meta: ListMeta::default(),
        }
    }
}

impl Body for ProtobufList {
    fn feed(&mut self, chunk: Bytes) {
        self.buffer.feed(chunk);
    }
}

impl ProtobufList {
    /// The next item that is complete: a bare message. `None` asks for more.
    ///
    /// # Errors
    /// The body is not a list in protobuf, or an item is larger than [`MAX_OBJECT`].
    #[allow(clippy::should_implement_trait)] // The item is lent.
    pub fn next(&mut self) -> Result<Option<&[u8]>, WireError> {
        loop {
            self.skip -= self.buffer.discard(self.skip);
            if self.skip > 0 {
                return Ok(None);
            }
            let offset = self.buffer.offset();
            if self.within == Within::Start {
                let start = self.buffer.peek(MAGIC.len());
                if start.len() < MAGIC.len() {
                    return Ok(None);
                }
                if !start.starts_with(MAGIC) {
                    return Err(WireError::NoEnvelope { found: first_bytes(start), offset });
                }
                self.buffer.discard(MAGIC.len() as u64);
                self.within = Within::Envelope;
                continue;
            }
            if self.within == Within::List(0) {
                self.within = Within::Envelope;
                continue;
            }
            let Some(field) = header(self.buffer.peek(MAX_HEADER), offset)? else {
                return Ok(None);
            };
            let Within::List(left) = self.within else {
                let read = field.delimited
                    && field.len <= MAX_STATUS as u64
                    && (field.tag == 1 || self.meta.kind == "Status");
                if read {
                    let whole = field.size + field.len as usize;
                    if self.buffer.peek(whole).len() < whole {
                        return Ok(None);
                    }
                    let bytes = &self.buffer.take(whole)[field.size..];
                    if field.tag == 1 {
                        self.meta.kind = kind(bytes, offset)?;
                    } else if field.tag == 2 {
                        return Err(status(bytes, offset)?);
                    }
                    continue;
                }
                self.buffer.discard(field.size as u64);
                if field.tag == 2 && field.delimited {
                    self.within = Within::List(field.len);
                    self.seen = true;
                } else {
                    self.skip = field.len;
                }
                continue;
            };
            let whole = (field.size as u64).saturating_add(field.len);
            let Some(rest) = left.checked_sub(whole) else {
                return Err(WireError::Malformed { what: "length in a protobuf list", offset });
            };
            if !field.delimited || !matches!(field.tag, 1 | 2) {
                self.within = Within::List(rest);
                self.buffer.discard(field.size as u64);
                self.skip = field.len;
                continue;
            }
            if field.len > MAX_OBJECT as u64 {
                return Err(WireError::TooLarge { what: "list item", size: field.len, offset });
            }
            let whole = whole as usize;
            if self.buffer.peek(whole).len() < whole {
                return Ok(None);
            }
            self.within = Within::List(rest);
            if field.tag == 2 {
                return Ok(Some(&self.buffer.take(whole)[field.size..]));
            }
            let bytes = &self.buffer.take(whole)[field.size..];
            let meta = ListMeta::decode(ObjectBytes::Protobuf(bytes))
                .map_err(|error| WireError::Decode { what: "list metadata", error, offset })?;
            self.meta = ListMeta { kind: std::mem::take(&mut self.meta.kind), ..meta };
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// The body ended too early.
    pub fn finish(self) -> Result<ListMeta, WireError> {
        let whole = matches!(self.within, Within::Envelope | Within::List(0));
        if !whole || !self.seen || self.skip > 0 || self.buffer.len() > 0 {
            let offset = self.buffer.offset() + self.buffer.len() as u64;
            return Err(WireError::Truncated { what: "list", offset });
        }
        Ok(self.meta)
    }
}

/// Reads a watch response as it arrives.
#[derive(Debug, Default)]
pub struct ProtobufWatch {
    buffer: Buffer,
}

impl Body for ProtobufWatch {
    fn feed(&mut self, chunk: Bytes) {
        self.buffer.feed(chunk);
    }
}

impl ProtobufWatch {
    /// The next event that is complete. `None` asks for more.
    ///
    /// # Errors
    /// The body is not a watch in protobuf, or a frame is larger than [`MAX_OBJECT`].
    #[allow(clippy::should_implement_trait)] // The event is lent.
    pub fn next(&mut self) -> Result<Option<Event<'_>>, WireError> {
        if self.is_status() {
            return Ok(None);
        }
        let offset = self.buffer.offset();
        let Some((prefix, _)) = self.buffer.peek(4).split_first_chunk() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*prefix) as usize;
        if len > MAX_OBJECT {
            return Err(WireError::TooLarge { what: "watch frame", size: len as u64, offset });
        }
        if self.buffer.peek(4 + len).len() < 4 + len {
            return Ok(None);
        }
        event(&self.buffer.take(4 + len)[4..], offset).map(Some)
    }

    /// Whether an event has begun that is not complete.
    #[must_use]
    pub fn is_within_event(&self) -> bool {
        self.buffer.len() > 0
    }

    /// Whether the body is no watch but one message in an envelope, as errors are.
    fn is_status(&mut self) -> bool {
        self.buffer.offset() == 0
            && self.buffer.len() <= MAX_STATUS
            && self.buffer.peek(MAGIC.len()).starts_with(MAGIC)
    }

    /// Ends the body.
    ///
    /// # Errors
    /// The body ended within a frame, or it was a status in place of a watch.
    pub fn finish(&mut self) -> Result<(), WireError> {
        let left = self.buffer.len();
        if left == 0 {
            return Ok(());
        }
        let offset = self.buffer.offset() + left as u64;
        if self.is_status() {
            return Err(status(unwrap(self.buffer.take(left), 0)?, 0)?);
        }
        Err(WireError::Truncated { what: "watch frame", offset })
    }
}

/// The kind in an envelope's type.
fn kind(bytes: &[u8], offset: u64) -> Result<String, WireError> {
    let fault = |error| WireError::Decode { what: "type of a message", error, offset };
    let meta: TypeMeta<'_> = decode(ObjectBytes::Protobuf(bytes)).map_err(fault)?;
    Ok(meta.kind.to_string())
}

/// What a `Status` in place of what was asked for says.
fn status(bytes: &[u8], offset: u64) -> Result<WireError, WireError> {
    let fault = |error| WireError::Decode { what: "status", error, offset };
    let status: Status<'_> = decode(ObjectBytes::Protobuf(bytes)).map_err(fault)?;
    Ok(status.into_error())
}

fn event(frame: &[u8], offset: u64) -> Result<Event<'_>, WireError> {
    let fault = |error| WireError::Decode { what: "watch event", error, offset };
    let (mut kind, mut object): (&[u8], &[u8]) = (b"", b"");
    let mut message = Message(frame);
    while let Some((tag, wire)) = message.next_field().map_err(fault)? {
        match tag {
            1 => kind = wire.bytes().map_err(fault)?,
            2 => object = field(wire.bytes().map_err(fault)?, 1).map_err(fault)?.unwrap_or(b""),
            _ => {}
        }
    }
    let kind = EventKind::parse(kind, offset)?;
    Ok(Event { kind, object: ObjectBytes::Protobuf(unwrap(object, offset)?) })
}

/// The message in an envelope.
///
/// # Errors
/// There is no envelope, or it is malformed.
pub fn unwrap(bytes: &[u8], offset: u64) -> Result<&[u8], WireError> {
    let Some(envelope) = bytes.strip_prefix(MAGIC) else {
        return Err(WireError::NoEnvelope { found: first_bytes(bytes), offset });
    };
    let raw = field(envelope, 2).map_err(|error| WireError::Decode {
        what: "envelope",
        error,
        offset,
    })?;
    Ok(raw.unwrap_or(b""))
}

/// The last occurrence of a length-delimited field.
fn field(bytes: &[u8], wanted: u32) -> Result<Option<&[u8]>, DecodeError> {
    let mut message = Message(bytes);
    let mut found = None;
    while let Some((tag, wire)) = message.next_field()? {
        if tag == wanted
            && let Wire::Bytes(bytes) = wire
        {
            found = Some(bytes);
        }
    }
    Ok(found)
}

fn first_bytes(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(MAGIC.len())].escape_ascii().to_string()
}

impl ListMeta {
    pub(super) fn decode(bytes: ObjectBytes<'_>) -> Result<Self, DecodeError> {
        let view: super::message::ListMetaView<'_> = decode(bytes)?;
        Ok(Self {
            resource_version: view.resource_version.to_string(),
            continue_token: view.continue_token.to_string(),
            remaining: view.remaining_item_count.and_then(|count| u64::try_from(count).ok()),
            kind: String::new(),
        })
    }
}
