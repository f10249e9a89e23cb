//! What bodies consist of, and why one cannot be read.

use crate::resources::ObjectBytes;
use crate::wire::view::{DecodeError, Map, Str, view};

/// The largest object that is accepted, in bytes. The API server takes requests of 3 MiB at most and
/// etcd keeps 1.5 MiB by default, so a larger one means that the stream is not what it should be.
pub const MAX_OBJECT: usize = 32 * 1024 * 1024;

/// Why a body could not be read. Places are offsets in bytes from the start of the body.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The media type is neither of the two.
    #[error("response has content type {0:?}, expected protobuf or JSON")]
    ContentType(String),
    /// A protobuf message without its envelope.
    #[error("expected `k8s\\0` at byte {offset} of the response, found `{found}`")]
    NoEnvelope {
        /// The first bytes, escaped.
        found: String,
        /// Where.
        offset: u64,
    },
    /// The body ended too early.
    #[error("response ends at byte {offset}, within a {what}")]
    Truncated {
        /// What it ended in.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// A piece is too large.
    #[error(
        "{what} of {size} bytes at byte {offset} of the response, at most {MAX_OBJECT} are taken"
    )]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its size, or as much of it as was seen.
        size: u64,
        /// Where.
        offset: u64,
    },
    /// Bytes that make no sense.
    #[error("malformed {what} at byte {offset} of the response")]
    Malformed {
        /// What it should have been.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// Another character than the syntax wants.
    #[error("expected {what} at byte {offset} of the response, found `{found}`")]
    Unexpected {
        /// What it should have been.
        what: &'static str,
        /// What was there, escaped.
        found: String,
        /// Where.
        offset: u64,
    },
    /// An event of a type that the protocol does not have.
    #[error("watch event of type {kind:?} at byte {offset} of the response")]
    EventKind {
        /// The type.
        kind: String,
        /// Where.
        offset: u64,
    },
    /// A status in place of a list or a watch, whatever the answer's own status says.
    #[error("the server answers {code} in the body of a success: {message}")]
    Status {
        /// The HTTP status that it names, 0 if none.
        code: u16,
        /// What the server says about it.
        message: String,
    },
    /// A body that is well formed, but no list.
    #[error("response is no list: it has no {missing}")]
    NoList {
        /// What it lacks.
        missing: &'static str,
    },
    /// A table without what was asked for.
    #[error("table has no {missing} at byte {offset} of the response")]
    NoTable {
        /// What it lacks.
        missing: &'static str,
        /// Where.
        offset: u64,
    },
    /// A list of something else.
    #[error("response is a {found:?}, expected a list of {expected:?}")]
    OtherKind {
        /// Its kind.
        found: String,
        /// The kind of the objects that were asked for.
        expected: String,
    },
    /// A piece that has to be understood cannot be decoded.
    #[error("malformed {what} at byte {offset} of the response: {error}")]
    Decode {
        /// What it is.
        what: &'static str,
        /// Why.
        #[source]
        error: DecodeError,
        /// Where.
        offset: u64,
    },
}

/// What a list says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The version of the whole list, from which to watch.
    pub resource_version: String,
    /// The token of the next page, empty on the last.
    pub continue_token: String,
    /// How many objects are on the pages after this one, where the server says so.
    pub remaining: Option<u64>,
    /// The kind of the list, such as `PodList`; empty if it does not say.
    pub kind: String,
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An object is new, or belongs to the initial state.
    Added,
    /// An object has changed.
    Modified,
    /// An object is gone; the event has its last state.
    Deleted,
    /// Nothing happened up to this version.
    Bookmark,
    /// The watch is broken; the object is a [`Status`].
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
                let kind = String::from_utf8_lossy(&other[..other.len().min(64)]).into_owned();
                Err(WireError::EventKind { kind, offset })
            }
        }
    }
}

/// One event of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its type.
    pub kind: EventKind,
    /// Its object, without envelope.
    pub object: ObjectBytes<'a>,
}

view! {
    /// `metav1.ListMeta`
    pub struct ListMetaView<'a> {
        resource_version: Str<'a> = 2 "resourceVersion",
        continue_token: Str<'a> = 3 "continue",
        remaining_item_count: Option<i64> = 4 "remainingItemCount",
    }

    /// `metav1.Status`, which the API server answers in place of what was asked for.
    pub struct Status<'a> {
        message: Str<'a> = 3 "message",
        reason: Str<'a> = 4 "reason",
        code: i32 = 6 "code",
    }

    /// Any object, as far as its identity goes.
    pub struct Identified<'a> {
        metadata: Identity<'a> = 1 "metadata",
    }

    /// The part of `metav1.ObjectMeta` that says which object it is.
    pub struct Identity<'a> {
        name: Str<'a> = 1 "name",
        namespace: Str<'a> = 3 "namespace",
        uid: Str<'a> = 5 "uid",
        resource_version: Str<'a> = 6 "resourceVersion",
    }

    /// The object of a bookmark.
    pub struct Bookmark<'a> {
        metadata: BookmarkMeta<'a> = 1 "metadata",
    }

    /// The part of `metav1.ObjectMeta` that a bookmark has.
    pub struct BookmarkMeta<'a> {
        resource_version: Str<'a> = 6 "resourceVersion",
        annotations: Map<'a> = 12 "annotations",
    }
}

impl Status<'_> {
    /// The status as the reason why a body is not what it should be.
    pub(super) fn into_error(self) -> WireError {
        let code = u16::try_from(self.code).unwrap_or_default();
        let message = if self.message.is_empty() { &self.reason } else { &self.message };
        WireError::Status { code, message: message.to_string() }
    }
}

impl Bookmark<'_> {
    /// Whether the initial state of a streaming list ends here.
    #[must_use]
    pub fn ends_initial_events(&self) -> bool {
        self.metadata.annotations.get("k8s.io/initial-events-end").is_some_and(|v| **v == *"true")
    }
}
