//! Framing of the Kubernetes protobuf encoding
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>).
//!
//! Every message has an envelope: the bytes `k8s\0`, then `Unknown{1: type, 2: raw}`. A list is one envelope around
//! `{1: ListMeta, 2: items}`. A watch is a series of `WatchEvent{1: type, 2: {1: object}}`, each preceded by its length
//! as four big-endian bytes, with an envelope around each object.

use super::buffer::Buffer;
use super::message::{
    Event, EventKind, ListMeta, MAX_OBJECT, Status, TypeMeta, WireError, decode_part,
};
use crate::resources::ObjectBytes;
use crate::wire::varint::{VarintError, read_varint};
use crate::wire::view::{DecodeError, Message, Wire};

/// The bytes at the start of every envelope.
const MAGIC: &[u8] = b"k8s\0";
/// The largest `Status` and the largest type to read, in bytes.
const MAX_STATUS: usize = 64 * 1024;
/// A field's key and length are two varints of at most ten bytes each.
const MAX_FIELD_HEADER: usize = 20;

/// The key of a field, with the position of its value relative to the first byte of the key.
struct FieldHeader {
    tag: u64,
    /// True if the value is length-delimited.
    delimited: bool,
    /// The number of bytes before the value.
    size: usize,
    /// The number of bytes of the value.
    len: u64,
}

/// Reads the header of a field, or returns `None` if `bytes` end too early.
fn read_field_header(bytes: &[u8], offset: u64) -> Result<Option<FieldHeader>, WireError> {
    let Some((key, size)) = read_sized_varint(bytes, offset)? else {
        return Ok(None);
    };
    let (delimited, extra, len) = match key & 7 {
        0 => match read_sized_varint(&bytes[size..], offset)? {
            Some((_, extra)) => (false, extra, 0),
            None => return Ok(None),
        },
        1 => (false, 0, 8),
        2 => match read_sized_varint(&bytes[size..], offset)? {
            Some((len, extra)) => (true, extra, len),
            None => return Ok(None),
        },
        5 => (false, 0, 4),
        _ => return Err(WireError::malformed("protobuf field", offset)),
    };
    Ok(Some(FieldHeader { tag: key >> 3, delimited, size: size + extra, len }))
}

fn read_sized_varint(bytes: &[u8], offset: u64) -> Result<Option<(u64, usize)>, WireError> {
    match read_varint(bytes) {
        Ok((value, rest)) => Ok(Some((value, bytes.len() - rest.len()))),
        Err(VarintError::Truncated) => Ok(None),
        Err(VarintError::TooLong) => Err(WireError::malformed("protobuf varint", offset)),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Before the magic bytes.
    #[default]
    Start,
    /// In the envelope, before or after the list.
    Envelope,
    /// In the list, with this number of bytes remaining.
    List(u64),
}

/// Reads a list response as it arrives.
#[derive(Debug, Default)]
pub struct ProtobufList {
    position: Position,
    /// The number of bytes of a skipped field still to be dropped.
    skip: u64,
    has_list: bool,
    meta: ListMeta,
}

impl ProtobufList {
    /// Returns the next complete item, without an envelope, or `None` if more of the body is needed.
    ///
    /// # Errors
    /// Returns an error if the body is not a protobuf list or an item is larger than [`MAX_OBJECT`].
    pub(super) fn next<'a>(
        &mut self,
        buffer: &'a mut Buffer,
    ) -> Result<Option<&'a [u8]>, WireError> {
        loop {
            self.skip -= buffer.discard(self.skip);
            if self.skip > 0 {
                return Ok(None);
            }
            let offset = buffer.offset();
            if self.position == Position::Start {
                let start = buffer.peek(MAGIC.len());
                if start.len() < MAGIC.len() {
                    return Ok(None);
                }
                if !start.starts_with(MAGIC) {
                    return Err(missing_envelope(start, offset));
                }
                buffer.discard(MAGIC.len() as u64);
                self.position = Position::Envelope;
                continue;
            }
            if self.position == Position::List(0) {
                self.position = Position::Envelope;
                continue;
            }
            let Some(field) = read_field_header(buffer.peek(MAX_FIELD_HEADER), offset)? else {
                return Ok(None);
            };
            let Position::List(left) = self.position else {
                let read = field.delimited
                    && field.len <= MAX_STATUS as u64
                    && (field.tag == 1 || self.meta.kind == "Status");
                if read {
                    let whole = field.size + field.len as usize;
                    if buffer.peek(whole).len() < whole {
                        return Ok(None);
                    }
                    let bytes = &buffer.take(whole)[field.size..];
                    let bytes = ObjectBytes::Protobuf(bytes);
                    if field.tag == 1 {
                        let meta: TypeMeta<'_> = decode_part(bytes, "type of a message", offset)?;
                        self.meta.kind = meta.kind.to_string();
                    } else if field.tag == 2 {
                        let status: Status<'_> = decode_part(bytes, "status", offset)?;
                        return Err(status.into_error());
                    }
                    continue;
                }
                buffer.discard(field.size as u64);
                if field.tag == 2 && field.delimited {
                    self.position = Position::List(field.len);
                    self.has_list = true;
                } else {
                    self.skip = field.len;
                }
                continue;
            };
            let whole = (field.size as u64).saturating_add(field.len);
            let Some(rest) = left.checked_sub(whole) else {
                return Err(WireError::malformed("length in a protobuf list", offset));
            };
            if !field.delimited || !matches!(field.tag, 1 | 2) {
                self.position = Position::List(rest);
                buffer.discard(field.size as u64);
                self.skip = field.len;
                continue;
            }
            if field.len > MAX_OBJECT as u64 {
                return Err(WireError::too_large("list item", field.len, offset));
            }
            let whole = whole as usize;
            if buffer.peek(whole).len() < whole {
                return Ok(None);
            }
            self.position = Position::List(rest);
            if field.tag == 2 {
                return Ok(Some(&buffer.take(whole)[field.size..]));
            }
            let bytes = &buffer.take(whole)[field.size..];
            self.meta.update(ObjectBytes::Protobuf(bytes), offset)?;
        }
    }

    /// Checks that the body is complete and returns the list metadata.
    ///
    /// # Errors
    /// Returns an error if the body is truncated.
    pub(super) fn finish(self, buffer: &Buffer) -> Result<ListMeta, WireError> {
        let whole = matches!(self.position, Position::Envelope | Position::List(0));
        if !whole || !self.has_list || self.skip > 0 || buffer.len() > 0 {
            return Err(buffer.truncated("list"));
        }
        Ok(self.meta)
    }
}

/// Reads a watch response as it arrives.
#[derive(Debug, Default)]
pub struct ProtobufWatch;

impl ProtobufWatch {
    /// Returns the next complete event, or `None` if more of the body is needed.
    ///
    /// # Errors
    /// Returns an error if the body is not a protobuf watch or a frame is larger than [`MAX_OBJECT`].
    pub(super) fn next(buffer: &mut Buffer) -> Result<Option<Event<'_>>, WireError> {
        if Self::is_status(buffer) {
            return Ok(None);
        }
        let offset = buffer.offset();
        let Some((prefix, _)) = buffer.peek(4).split_first_chunk() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*prefix) as usize;
        if len > MAX_OBJECT {
            return Err(WireError::too_large("watch frame", len as u64, offset));
        }
        if buffer.peek(4 + len).len() < 4 + len {
            return Ok(None);
        }
        decode_event(&buffer.take(4 + len)[4..], offset).map(Some)
    }

    /// Returns true if the body is a single message in an envelope, like an error response, instead of a watch.
    fn is_status(buffer: &mut Buffer) -> bool {
        buffer.offset() == 0
            && buffer.len() <= MAX_STATUS
            && buffer.peek(MAGIC.len()).starts_with(MAGIC)
    }

    /// Returns the error of a body that ends here: it is truncated, or a `Status` instead of a watch.
    ///
    /// # Errors
    /// Returns an error if the `Status` is malformed.
    pub(super) fn unfinished(buffer: &mut Buffer) -> Result<WireError, WireError> {
        if !Self::is_status(buffer) {
            return Ok(buffer.truncated("watch frame"));
        }
        let body = strip_envelope(buffer.take(buffer.len()), 0)?;
        let status: Status<'_> = decode_part(ObjectBytes::Protobuf(body), "status", 0)?;
        Ok(status.into_error())
    }
}

fn decode_event(frame: &[u8], offset: u64) -> Result<Event<'_>, WireError> {
    let fault = |error| WireError::undecodable("watch event", &error, offset);
    let (mut kind, mut object): (&[u8], &[u8]) = (b"", b"");
    let mut message = Message(frame);
    while let Some((tag, wire)) = message.next_field().map_err(fault)? {
        match tag {
            1 => kind = wire.bytes().map_err(fault)?,
            2 => {
                object = last_field(wire.bytes().map_err(fault)?, 1).map_err(fault)?.unwrap_or(b"")
            }
            _ => {}
        }
    }
    let kind = EventKind::parse(kind, offset)?;
    Ok(Event { kind, object: ObjectBytes::Protobuf(strip_envelope(object, offset)?) })
}

/// Returns the message in an envelope.
///
/// # Errors
/// Returns an error if the envelope is missing or malformed.
pub fn strip_envelope(bytes: &[u8], offset: u64) -> Result<&[u8], WireError> {
    let Some(envelope) = bytes.strip_prefix(MAGIC) else {
        return Err(missing_envelope(bytes, offset));
    };
    let raw = last_field(envelope, 2);
    let raw = raw.map_err(|error| WireError::undecodable("envelope", &error, offset))?;
    Ok(raw.unwrap_or(b""))
}

/// Returns the last occurrence of a length-delimited field.
fn last_field(bytes: &[u8], wanted: u32) -> Result<Option<&[u8]>, DecodeError> {
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

fn missing_envelope(bytes: &[u8], offset: u64) -> WireError {
    WireError::unexpected("`k8s\\0`", &bytes[..bytes.len().min(MAGIC.len())], offset)
}
