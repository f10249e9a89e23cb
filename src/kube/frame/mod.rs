//! Framing: from the chunks of a response body to the bytes of single objects.
//!
//! Chunks flow in as they come off the socket, items and events flow out as slices as soon as they are
//! complete; nothing is decoded but what the framing itself needs, and no body is ever held. The readers
//! are pure: no clock, no I/O, no panic on any input, each byte looked at a bounded number of times.
//! They know nothing of HTTP and nothing of kinds.

mod buffer;
mod json;
mod message;
mod protobuf;
mod scan;
mod table;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use buffer::Body;
pub use json::{JsonList, JsonWatch};
pub use message::*;
pub use protobuf::{ProtobufList, ProtobufWatch, unwrap};

use crate::resources::{Column, ObjectBytes};
use crate::wire::view::decode;

/// The two encodings that the API server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/json`
    Json,
}

impl Encoding {
    /// The encoding that a `Content-Type` names; parameters such as `stream=watch` are ignored.
    ///
    /// # Errors
    /// It is another one.
    pub fn from_content_type(value: &str) -> Result<Self, WireError> {
        let media_type = value.split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("application/vnd.kubernetes.protobuf") {
            Ok(Self::Protobuf)
        } else if media_type.eq_ignore_ascii_case("application/json") {
            Ok(Self::Json)
        } else {
            Err(WireError::ContentType(value.to_owned()))
        }
    }

    /// Bytes of a whole object in this encoding.
    #[must_use]
    pub fn object(self, bytes: &[u8]) -> ObjectBytes<'_> {
        match self {
            Self::Protobuf => ObjectBytes::Protobuf(bytes),
            Self::Json => ObjectBytes::Json(bytes),
        }
    }
}

/// Reads a response in either encoding.
#[derive(Debug)]
pub enum Reader<P, J> {
    /// In protobuf.
    Protobuf(P),
    /// In JSON.
    Json(J),
}

impl<P: Body, J: Body> Reader<P, J> {
    /// A reader for a body in `encoding`.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Protobuf => Self::Protobuf(P::default()),
            Encoding::Json => Self::Json(J::default()),
        }
    }

    /// The same, which also takes tables with this column.
    #[must_use]
    pub fn or_table(self, column: Option<Column>) -> Self {
        match (self, column) {
            (Self::Protobuf(reader), Some(column)) => Self::Protobuf(reader.or_table(column)),
            (Self::Json(reader), Some(column)) => Self::Json(reader.or_table(column)),
            (reader, None) => reader,
        }
    }

    /// Adds the next chunk of the body.
    pub fn feed(&mut self, chunk: Bytes) {
        match self {
            Self::Protobuf(reader) => reader.feed(chunk),
            Self::Json(reader) => reader.feed(chunk),
        }
    }
}

/// Reads a list response in either encoding.
pub type ListReader = Reader<ProtobufList, JsonList>;

impl ListReader {
    /// The next item that is complete. `None` asks for more.
    ///
    /// # Errors
    /// The body is malformed.
    #[allow(clippy::should_implement_trait)] // The item is lent.
    pub fn next(&mut self) -> Result<Option<ObjectBytes<'_>>, WireError> {
        Ok(match self {
            Self::Protobuf(reader) => reader.next()?.map(ObjectBytes::Protobuf),
            Self::Json(reader) => reader.next()?.map(ObjectBytes::Json),
        })
    }

    /// Ends the body.
    ///
    /// # Errors
    /// The body ended too early, or it was no list: what has come of it is nobody's state.
    pub fn finish(self) -> Result<ListMeta, WireError> {
        let meta = match self {
            Self::Protobuf(reader) => reader.finish(),
            Self::Json(reader) => reader.finish(),
        }?;
        if meta.resource_version.is_empty() {
            return Err(WireError::NoList { missing: "resourceVersion" });
        }
        Ok(meta)
    }
}

/// Reads a watch response in either encoding.
pub type WatchReader = Reader<ProtobufWatch, JsonWatch>;

impl WatchReader {
    /// The next event that is complete. `None` asks for more.
    ///
    /// # Errors
    /// The body is malformed.
    #[allow(clippy::should_implement_trait)] // The event is lent.
    pub fn next(&mut self) -> Result<Option<Event<'_>>, WireError> {
        match self {
            Self::Protobuf(reader) => reader.next(),
            Self::Json(reader) => reader.next(),
        }
    }

    /// Whether an event has begun that is not complete.
    #[must_use]
    pub fn is_within_event(&self) -> bool {
        match self {
            Self::Protobuf(reader) => reader.is_within_event(),
            Self::Json(reader) => reader.is_within_event(),
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// The body ended within an event, or it was a status in place of a watch.
    pub fn finish(&mut self) -> Result<(), WireError> {
        match self {
            Self::Protobuf(reader) => reader.finish(),
            Self::Json(reader) => reader.finish(),
        }
    }
}

impl<'a> Status<'a> {
    /// Reads the body of an answer that is not a success, enveloped if it is protobuf.
    ///
    /// # Errors
    /// It is no status.
    pub fn from_body(encoding: Encoding, body: &'a [u8]) -> Result<Self, WireError> {
        let bytes = match encoding {
            Encoding::Protobuf => unwrap(body, 0)?,
            Encoding::Json => body,
        };
        decode(encoding.object(bytes)).map_err(|error| WireError::Decode {
            what: "status",
            error,
            offset: 0,
        })
    }
}
