//! The envelopes of objects: lists, watch events, bookmarks, and failures.
//!
//! Protobuf lists are `k8s\0` and an `Unknown` message that contains the list. A protobuf watch is a sequence of
//! lengths (four bytes, big-endian), each before a `WatchEvent` whose object has such an envelope again. JSON watches
//! have one event per line.

use super::encode::{Encoding, Message, bytes_field, nested, prefix, varint_len};

const MAGIC: &[u8] = b"k8s\0";
/// `Unknown.contentEncoding` and `Unknown.contentType`, which are always present and empty.
const TRAILER: &[u8] = &[3 << 3 | 2, 0, 4 << 3 | 2, 0];

/// The bytes before and after the items of a list.
pub struct ListEnds {
    /// Before the first item.
    pub head: Vec<u8>,
    /// After the last item.
    pub tail: &'static [u8],
}

/// `metadata` of a list.
pub struct ListMeta<'a> {
    /// Version of the list.
    pub version: u64,
    /// Token of the next page, empty on the last one.
    pub next: &'a str,
    /// Number of items after this page, if counted.
    pub remaining: Option<usize>,
}

impl ListMeta<'_> {
    fn write(&self, m: &mut Message<'_>) {
        m.text(1, "selfLink", "");
        m.text(2, "resourceVersion", &self.version.to_string());
        m.text(3, "continue", self.next);
        if let Some(remaining) = self.remaining {
            m.required_int(4, "remainingItemCount", remaining as i64);
        }
    }
}

/// Returns the envelope of a list of `kind`. `items_len` is the length of the items with their prefixes, which only
/// protobuf needs.
pub fn list(
    encoding: Encoding,
    api_version: &str,
    kind: &str,
    meta: &ListMeta<'_>,
    items_len: usize,
) -> ListEnds {
    let mut head = Vec::new();
    match encoding {
        Encoding::Json => {
            let type_meta = (kind, api_version);
            Message::object(&mut head, encoding, Some(type_meta), |m| {
                m.message(1, "metadata", |m| meta.write(m));
            });
            head.pop();
            head.extend_from_slice(b",\"items\":[");
            ListEnds { head, tail: b"]}" }
        }
        Encoding::Protobuf => {
            let mut metadata = Vec::new();
            Message::object(&mut metadata, encoding, None, |m| {
                m.message(1, "metadata", |m| meta.write(m));
            });
            head.extend_from_slice(MAGIC);
            type_meta(&mut head, api_version, kind);
            prefix(&mut head, 2, metadata.len() + items_len);
            head.extend_from_slice(&metadata);
            ListEnds { head, tail: TRAILER }
        }
    }
}

/// Appends the prefix of a list item of `len` bytes.
pub fn before_item(out: &mut Vec<u8>, encoding: Encoding, first: bool, len: usize) {
    match encoding {
        Encoding::Protobuf => prefix(out, 2, len),
        Encoding::Json if first => {}
        Encoding::Json => out.push(b','),
    }
}

/// Appends an object in its envelope.
pub fn object(out: &mut Vec<u8>, encoding: Encoding, api_version: &str, kind: &str, raw: &[u8]) {
    if encoding == Encoding::Json {
        out.extend_from_slice(raw);
        return;
    }
    out.extend_from_slice(MAGIC);
    type_meta(out, api_version, kind);
    bytes_field(out, 2, raw);
    out.extend_from_slice(TRAILER);
}

/// Appends a watch event.
pub fn event(
    out: &mut Vec<u8>,
    encoding: Encoding,
    event: &str,
    api_version: &str,
    kind: &str,
    raw: &[u8],
) {
    if encoding == Encoding::Json {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        out.extend_from_slice(raw);
        out.extend_from_slice(b"}\n");
        return;
    }
    let mut types = Vec::new();
    type_meta(&mut types, api_version, kind);
    // Lengths are computed from the inside out, so that a large object is copied once.
    let unknown = MAGIC.len() + types.len() + 1 + varint_len(raw.len()) + raw.len() + TRAILER.len();
    let extension = 1 + varint_len(unknown) + unknown;
    let whole = 2 + event.len() + 1 + varint_len(extension) + extension;
    out.reserve(4 + whole);
    out.extend_from_slice(&(whole as u32).to_be_bytes());
    bytes_field(out, 1, event.as_bytes());
    prefix(out, 2, extension);
    prefix(out, 1, unknown);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&types);
    bytes_field(out, 2, raw);
    out.extend_from_slice(TRAILER);
}

/// Appends a bookmark; `initial` marks the end of the initial events of a WatchList.
pub fn bookmark(
    out: &mut Vec<u8>,
    encoding: Encoding,
    api_version: &str,
    kind: &str,
    version: u64,
    initial: bool,
) {
    let mut raw = Vec::new();
    Message::object(&mut raw, encoding, Some((kind, api_version)), |m| {
        m.message(1, "metadata", |m| {
            m.text(1, "name", "");
            m.text(2, "generateName", "");
            m.text(3, "namespace", "");
            m.text(4, "selfLink", "");
            m.text(5, "uid", "");
            m.text(6, "resourceVersion", &version.to_string());
            m.int(7, "generation", 0);
            m.unset_time(8);
            let mark = initial.then_some(("k8s.io/initial-events-end", "true"));
            m.text_map(12, "annotations", mark);
        });
    });
    event(out, encoding, "BOOKMARK", api_version, kind, &raw);
}

fn type_meta(out: &mut Vec<u8>, api_version: &str, kind: &str) {
    nested(out, 1, |types| {
        bytes_field(types, 1, api_version.as_bytes());
        bytes_field(types, 2, kind.as_bytes());
    });
}

/// A failed request, as the API reports it (`v1.Status`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Human-readable reason.
    pub message: String,
    /// Reason and message of the cause, if any.
    pub cause: Option<(&'static str, &'static str)>,
    /// Seconds to wait before a retry.
    pub retry_after: Option<u32>,
    /// Token that continues a list at the newest version.
    pub next: String,
}

impl Failure {
    /// An invalid request.
    pub fn bad_request(message: String) -> Self {
        Self { code: 400, reason: "BadRequest", message, ..Self::default() }
    }

    /// An unknown path.
    pub fn not_found() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self { code: 404, reason: "NotFound", message, ..Self::default() }
    }

    /// Access to a resource is refused with this status.
    pub fn refused(code: u16, resource: &str) -> Self {
        let (reason, what) = match code {
            401 => ("Unauthorized", "asked for by nobody that is known"),
            403 => ("Forbidden", "forbidden"),
            404 => ("NotFound", "nowhere"),
            429 => ("TooManyRequests", "asked for too often"),
            _ => ("InternalError", "out of order"),
        };
        Self { code, reason, message: format!("{resource} is {what}"), ..Self::default() }
    }

    /// The client accepts no supported encoding.
    pub fn not_acceptable() -> Self {
        let message = concat!(
            "only the following media types are accepted: application/json, ",
            "application/vnd.kubernetes.protobuf",
        );
        let message = message.to_owned();
        Self { code: 406, reason: "NotAcceptable", message, ..Self::default() }
    }

    /// The version or token has expired.
    pub fn expired(message: String) -> Self {
        Self { code: 410, reason: "Expired", message, ..Self::default() }
    }

    /// An invalid combination of options.
    pub fn invalid(message: &'static str) -> Self {
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("ListOptions.meta.k8s.io \"\" is invalid: {message}"),
            cause: Some(("FieldValueForbidden", message)),
            ..Self::default()
        }
    }

    /// The version is newer than the newest one.
    pub fn too_large_version(asked: u64, current: u64) -> Self {
        Self {
            code: 504,
            reason: "Timeout",
            message: format!("Timeout: Too large resource version: {asked}, current: {current}"),
            cause: Some(("ResourceVersionTooLarge", "Too large resource version")),
            retry_after: Some(1),
            ..Self::default()
        }
    }

    fn raw(&self, encoding: Encoding) -> Vec<u8> {
        let mut raw = Vec::new();
        Message::object(&mut raw, encoding, Some(("Status", "v1")), |m| {
            m.message(1, "metadata", |m| {
                m.text(1, "selfLink", "");
                m.text(2, "resourceVersion", "");
                m.text(3, "continue", &self.next);
            });
            m.text(2, "status", "Failure");
            m.text(3, "message", &self.message);
            m.text(4, "reason", self.reason);
            if self.cause.is_some() || self.retry_after.is_some() {
                m.message(5, "details", |m| {
                    m.messages(4, "causes", self.cause, |m, (reason, message)| {
                        m.text(1, "reason", reason);
                        m.text(2, "message", message);
                    });
                    m.int(5, "retryAfterSeconds", self.retry_after.unwrap_or(0).into());
                });
            }
            m.required_int(6, "code", i64::from(self.code));
        });
        raw
    }

    /// Returns the body of the response.
    pub fn body(&self, encoding: Encoding) -> Vec<u8> {
        let mut out = Vec::new();
        object(&mut out, encoding, "v1", "Status", &self.raw(encoding));
        out
    }

    /// Returns the ERROR event that ends a watch.
    pub fn event(&self, encoding: Encoding) -> Vec<u8> {
        let mut out = Vec::new();
        event(&mut out, encoding, "ERROR", "v1", "Status", &self.raw(encoding));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected bytes were recorded from kube-apiserver 1.36.

    #[test]
    fn list() {
        let meta = ListMeta { version: 334, next: "", remaining: None };
        let ends = super::list(Encoding::Protobuf, "v1", "PodList", &meta, 0);
        let want: &[u8] =
            b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x0b\x0a\x09\x0a\0\x12\x03334\x1a\0\
            \x1a\0\x22\0";
        assert_eq!([&ends.head, ends.tail].concat(), want);
    }

    #[test]
    fn list_page_in_json() {
        let meta = ListMeta { version: 210, next: "abc", remaining: Some(1) };
        let ends = super::list(Encoding::Json, "v1", "ConfigMapList", &meta, 0);
        let mut out = ends.head;
        for first in [true, false] {
            before_item(&mut out, Encoding::Json, first, 2);
            out.extend_from_slice(b"{}");
        }
        out.extend_from_slice(ends.tail);
        let want = concat!(
            r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"210","#,
            r#""continue":"abc","remainingItemCount":1},"items":[{},{}]}"#,
        );
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn bookmarks() {
        let mut out = Vec::new();
        bookmark(&mut out, Encoding::Protobuf, "v1", "ConfigMap", 210, true);
        let want: &[u8] =
            b"\0\0\0\x61\x0a\x08BOOKMARK\x12\x55\x0a\x53k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\
            \x12\x38\x0a\x36\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\x03210\x38\0\x42\0\
            \x62\x21\x0a\x19k8s.io/initial-events-end\x12\x04true\x1a\0\x22\0";
        assert_eq!(out, want);
        out.clear();
        bookmark(&mut out, Encoding::Json, "v1", "ConfigMap", 210, true);
        let want = concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":"#,
            r#"{"resourceVersion":"210","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
            "\n",
        );
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn failures() {
        let failure = Failure::bad_request("no".to_owned());
        let want: &[u8] = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x24\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\
            \x1a\x02no\x22\x0aBadRequest\x30\x90\x03\x1a\0\x22\0";
        assert_eq!(failure.body(Encoding::Protobuf), want);
        let text =
            String::from_utf8(Failure::too_large_version(9, 7).body(Encoding::Json)).unwrap();
        let want = concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
            r#""message":"Timeout: Too large resource version: 9, current: 7","reason":"Timeout","#,
            r#""details":{"causes":[{"reason":"ResourceVersionTooLarge","#,
            r#""message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
        );
        assert_eq!(text, want);
    }

    #[test]
    fn event_lengths_agree_with_what_is_written() {
        for len in [0, 100, 127, 128, 20_000] {
            let raw = vec![0x2a; len];
            let mut out = Vec::new();
            event(&mut out, Encoding::Protobuf, "ADDED", "apps/v1", "Deployment", &raw);
            let mut body = Vec::new();
            object(&mut body, Encoding::Protobuf, "apps/v1", "Deployment", &raw);
            let mut want = Vec::new();
            bytes_field(&mut want, 1, b"ADDED");
            nested(&mut want, 2, |extension| bytes_field(extension, 1, &body));
            assert_eq!(out[..4], (want.len() as u32).to_be_bytes());
            assert_eq!(out[4..], want);
        }
    }
}
