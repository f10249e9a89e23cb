//! Framing: splits the chunks of a response body into the bytes of single objects.
//!
//! Chunks are fed as they arrive from the socket, and items and events are returned as slices as soon as they are
//! complete. Only what the framing needs is decoded, and a body is never held as a whole. The readers have no clock and
//! no I/O, do not panic on any input, and look at each byte a bounded number of times. They are independent of HTTP and
//! of kinds.

mod buffer;
mod json;
mod members;
mod message;
mod protobuf;
mod table;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use buffer::Buffer;
use message::not_a_list;
use table::TableConverter;

pub use json::{JsonList, JsonWatch};
pub use message::*;
pub use protobuf::{ProtobufList, ProtobufWatch, strip_envelope};

use crate::resources::{Column, ObjectBytes};

/// The encodings of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/json`
    Json,
}

impl Encoding {
    /// Parses a `Content-Type`; parameters such as `stream=watch` are ignored.
    ///
    /// # Errors
    /// Returns an error if the media type is not supported.
    pub fn from_content_type(value: &str) -> Result<Self, WireError> {
        let media_type = value.split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("application/vnd.kubernetes.protobuf") {
            Ok(Self::Protobuf)
        } else if media_type.eq_ignore_ascii_case("application/json") {
            Ok(Self::Json)
        } else {
            Err(WireError::Malformed(format!(
                "response has content type {value:?}, expected protobuf or JSON"
            )))
        }
    }

    /// Marks the bytes of a complete object with this encoding.
    pub fn object(self, bytes: &[u8]) -> ObjectBytes<'_> {
        match self {
            Self::Protobuf => ObjectBytes::Protobuf(bytes),
            Self::Json => ObjectBytes::Json(bytes),
        }
    }
}

/// A reader of responses in either encoding.
#[derive(Debug)]
pub struct Reader<P, J> {
    buffer: Buffer,
    /// Converts tables to objects, if the response may contain any.
    table: Option<TableConverter>,
    framing: Framing<P, J>,
}

#[derive(Debug)]
enum Framing<P, J> {
    Protobuf(P),
    Json(J),
}

impl<P: Default, J: Default> Reader<P, J> {
    /// Returns a reader of a body in `encoding`.
    pub fn new(encoding: Encoding) -> Self {
        let framing = match encoding {
            Encoding::Protobuf => Framing::Protobuf(P::default()),
            Encoding::Json => Framing::Json(J::default()),
        };
        Self { buffer: Buffer::default(), table: None, framing }
    }

    /// Accepts tables with this column as well, and converts their rows to objects.
    #[must_use]
    pub fn with_table(self, column: Option<Column>) -> Self {
        Self { table: column.map(TableConverter::new), ..self }
    }

    /// Adds the next chunk of the body.
    pub fn feed(&mut self, chunk: Bytes) {
        self.buffer.feed(chunk);
    }
}

/// A reader of list responses in either encoding.
pub type ListReader = Reader<ProtobufList, JsonList>;

impl ListReader {
    /// Returns the next complete item, or `None` if more of the body is needed.
    ///
    /// # Errors
    /// Returns an error if the body is malformed.
    #[allow(clippy::should_implement_trait)] // The item is lent.
    pub fn next(&mut self) -> Result<Option<ObjectBytes<'_>>, WireError> {
        let Self { buffer, table, framing } = self;
        Ok(match framing {
            Framing::Protobuf(reader) => reader.next(buffer)?.map(ObjectBytes::Protobuf),
            Framing::Json(reader) => reader.next(buffer, table)?.map(ObjectBytes::Json),
        })
    }

    /// Checks that the body is complete and returns the list metadata.
    ///
    /// # Errors
    /// Returns an error if the body is truncated or not a list. The items read so far must then be discarded.
    pub fn finish(self) -> Result<ListMeta, WireError> {
        let meta = match self.framing {
            Framing::Protobuf(reader) => reader.finish(&self.buffer),
            Framing::Json(reader) => reader.finish(&self.buffer),
        }?;
        if meta.resource_version.is_empty() {
            return Err(not_a_list("resourceVersion"));
        }
        Ok(meta)
    }
}

/// A reader of watch responses in either encoding.
pub type WatchReader = Reader<ProtobufWatch, JsonWatch>;

impl WatchReader {
    /// Returns the next complete event, or `None` if more of the body is needed.
    ///
    /// # Errors
    /// Returns an error if the body is malformed.
    #[allow(clippy::should_implement_trait)] // The event is lent.
    pub fn next(&mut self) -> Result<Option<Event<'_>>, WireError> {
        match &mut self.framing {
            Framing::Protobuf(_) => ProtobufWatch::next(&mut self.buffer),
            Framing::Json(reader) => reader.next(&mut self.buffer, &mut self.table),
        }
    }

    /// Returns true if part of an event has arrived.
    pub fn is_within_event(&self) -> bool {
        self.buffer.len() > 0
    }

    /// Checks that the body is complete.
    ///
    /// # Errors
    /// Returns an error if the body ends within an event, or is a `Status` instead of a watch.
    pub fn finish(&mut self) -> Result<(), WireError> {
        if !self.is_within_event() {
            return Ok(());
        }
        Err(match self.framing {
            Framing::Protobuf(_) => ProtobufWatch::unfinished(&mut self.buffer)?,
            Framing::Json(_) => JsonWatch::unfinished(&mut self.buffer),
        })
    }
}

impl<'a> Status<'a> {
    /// Parses the body of an error response; protobuf bodies have an envelope.
    ///
    /// # Errors
    /// Returns an error if the body is not a `Status`.
    pub fn from_body(encoding: Encoding, body: &'a [u8]) -> Result<Self, WireError> {
        let bytes = match encoding {
            Encoding::Protobuf => strip_envelope(body, 0)?,
            Encoding::Json => body,
        };
        decode_part(encoding.object(bytes), "status", 0)
    }
}
