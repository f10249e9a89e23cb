//! The parts of response bodies, and the errors of reading them.

use crate::resources::ObjectBytes;
use crate::wire::view::{DecodeError, Field, Map, Str, decode, view};

/// The largest accepted object in bytes. The API server limits requests to 3 MiB and etcd values to 1.5 MiB by default,
/// so a larger object means that the stream is corrupt.
pub const MAX_OBJECT: usize = 32 * 1024 * 1024;

/// An error of reading a response body. Offsets are in bytes from its start.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The body is truncated.
    #[error("response ends at byte {offset}, within a {what}")]
    Truncated {
        /// The part that is truncated.
        what: &'static str,
        /// The offset in the body.
        offset: u64,
    },
    /// The body is a `Status` instead of a list or a watch, although the HTTP status may be 200.
    #[error("Status {code} in the body of the response: {message}")]
    Status {
        /// The code in the `Status`, 0 if none.
        code: u16,
        /// The message in the `Status`.
        message: String,
    },
    /// A table lacks requested data.
    #[error("table has no {missing} at byte {offset} of the response")]
    IncompleteTable {
        /// The part that is missing.
        missing: &'static str,
        /// The offset in the body.
        offset: u64,
    },
    /// The response is a list of another kind.
    #[error("response is a {found:?}, expected a list of {expected:?}")]
    UnexpectedKind {
        /// The kind of the response.
        found: String,
        /// The kind of the requested objects.
        expected: String,
    },
    /// The body is malformed or not what was requested.
    #[error("{0}")]
    Malformed(String),
}

impl WireError {
    /// Returns the error of a malformed part of the body.
    pub(super) fn malformed(what: &str, offset: u64) -> Self {
        Self::Malformed(format!("malformed {what} at byte {offset} of the response"))
    }

    /// Returns the error of a part of the body that exceeds [`MAX_OBJECT`].
    pub(super) fn too_large(what: &str, size: u64, offset: u64) -> Self {
        Self::Malformed(format!(
            "{what} of {size} bytes at byte {offset} of the response, limit is {MAX_OBJECT}"
        ))
    }

    /// Returns the error of bytes that do not fit the syntax.
    pub(super) fn unexpected(what: &str, found: &[u8], offset: u64) -> Self {
        let found = found.escape_ascii();
        Self::Malformed(format!(
            "expected {what} at byte {offset} of the response, found `{found}`"
        ))
    }

    /// Returns the error of a part of the body that cannot be decoded.
    pub(super) fn undecodable(what: &str, error: &DecodeError, offset: u64) -> Self {
        Self::Malformed(format!("malformed {what} at byte {offset} of the response: {error}"))
    }
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The resource version of the list, from which to watch.
    pub resource_version: String,
    /// The continue token of the next page, empty on the last.
    pub continue_token: String,
    /// The number of objects on the following pages, if the server provides it.
    pub remaining: Option<u64>,
    /// The kind of the list, such as `PodList`; empty if the response has none.
    pub kind: String,
}

impl ListMeta {
    /// Replaces all but the kind, which is not part of the encoded metadata.
    pub(super) fn update(&mut self, bytes: ObjectBytes<'_>, offset: u64) -> Result<(), WireError> {
        let view: ListMetaView<'_> = decode_part(bytes, "list metadata", offset)?;
        self.resource_version = view.resource_version.to_string();
        self.continue_token = view.continue_token.to_string();
        self.remaining = view.remaining_item_count.and_then(|count| u64::try_from(count).ok());
        Ok(())
    }
}

/// Returns the error of a body that is well-formed, but not a list.
pub(super) fn not_a_list(missing: &str) -> WireError {
    WireError::Malformed(format!("response is not a list: no {missing}"))
}

/// Decodes a part of the body at `offset`, called `what` in an error.
pub(super) fn decode_part<'a, T: Field<'a>>(
    bytes: ObjectBytes<'a>,
    what: &'static str,
    offset: u64,
) -> Result<T, WireError> {
    decode(bytes).map_err(|error| WireError::undecodable(what, &error, offset))
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An object was created or belongs to the initial state.
    Added,
    /// An object was changed.
    Modified,
    /// An object was deleted; the event has its last state.
    Deleted,
    /// A bookmark: all events up to this version have been sent.
    Bookmark,
    /// The watch has failed; the object is a [`Status`].
    Error,
}

impl EventKind {
    pub(super) fn parse(kind: &[u8], offset: u64) -> Result<Self, WireError> {
        match kind {
            b"ADDED" => Ok(Self::Added),
            b"MODIFIED" => Ok(Self::Modified),
            b"DELETED" => Ok(Self::Deleted),
            b"BOOKMARK" => Ok(Self::Bookmark),
            b"ERROR" => Ok(Self::Error),
            other => {
                let kind = String::from_utf8_lossy(&other[..other.len().min(64)]);
                Err(WireError::Malformed(format!(
                    "watch event of type {kind:?} at byte {offset} of the response"
                )))
            }
        }
    }
}

/// One event of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The type of the event.
    pub kind: EventKind,
    /// The object, without its envelope.
    pub object: ObjectBytes<'a>,
}

view! {
    /// `metav1.TypeMeta`, in a JSON object or in the envelope of a protobuf message.
    pub struct TypeMeta<'a> {
        kind: Str<'a> = 2 "kind",
    }

    /// `metav1.ListMeta`
    pub struct ListMetaView<'a> {
        resource_version: Str<'a> = 2 "resourceVersion",
        continue_token: Str<'a> = 3 "continue",
        remaining_item_count: Option<i64> = 4 "remainingItemCount",
    }

    /// `metav1.Status`, which the API server sends to report an error.
    pub struct Status<'a> {
        message: Str<'a> = 3 "message",
        reason: Str<'a> = 4 "reason",
        code: i32 = 6 "code",
    }

    /// The identity of any object.
    pub struct IdentifiedObject<'a> {
        metadata: ObjectIdentity<'a> = 1 "metadata",
    }

    /// The identifying fields of `metav1.ObjectMeta`.
    pub struct ObjectIdentity<'a> {
        name: Str<'a> = 1 "name",
        namespace: Str<'a> = 3 "namespace",
        uid: Str<'a> = 5 "uid",
        resource_version: Str<'a> = 6 "resourceVersion",
    }

    /// The object of a bookmark.
    pub struct Bookmark<'a> {
        metadata: BookmarkMeta<'a> = 1 "metadata",
    }

    /// The fields of `metav1.ObjectMeta` in a bookmark.
    pub struct BookmarkMeta<'a> {
        resource_version: Str<'a> = 6 "resourceVersion",
        annotations: Map<'a> = 12 "annotations",
    }
}

impl Status<'_> {
    /// Converts the status to an error.
    pub(super) fn into_error(self) -> WireError {
        let code = u16::try_from(self.code).unwrap_or_default();
        let message = if self.message.is_empty() { &self.reason } else { &self.message };
        WireError::Status { code, message: message.to_string() }
    }
}

impl Bookmark<'_> {
    /// Returns true if the bookmark marks the end of the initial state of a streaming list.
    pub fn ends_initial_events(&self) -> bool {
        self.metadata.annotations.get("k8s.io/initial-events-end").is_some_and(|v| **v == *"true")
    }
}
