//! Rejects requests that are well-formed for the parser but that no handler should see.
//!
//! HTTP/1.1 requires one `Host` of valid characters; Go's server, which the originals use, rejects
//! anything else and closes the connection. This module only knows the head of a request, not the
//! routes.

use hyper::Version;
use hyper::header::HOST;
use hyper::http::request::Parts;

use super::response::{self, Response};

/// Returns the response to a request whose `Host` is missing, repeated or malformed; `None` for all
/// others.
pub fn refusal(head: &Parts) -> Option<Response> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let message = match (hosts.next(), hosts.next()) {
        (None, _) if head.version == Version::HTTP_11 => {
            "400 Bad Request: missing required Host header"
        }
        (_, Some(_)) => "400 Bad Request",
        (Some(host), None) if !host.as_bytes().iter().all(|byte| is_host_byte(*byte)) => {
            "400 Bad Request: malformed Host header"
        }
        _ => return None,
    };
    Some(response::closing(400, message))
}

/// Returns whether a byte may occur in RFC 3986's `host` and `port`, escapes included, as Go's
/// server accepts them.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn refused(version: Version, hosts: &[&[u8]]) -> bool {
        let mut request = Request::builder().version(version).uri("/metrics");
        for host in hosts {
            request = request.header(HOST, *host);
        }
        refusal(&request.body(()).expect("request").into_parts().0).is_some()
    }

    #[test]
    fn exactly_one_valid_host_is_required() {
        for host in ["", "a", "a.b:80", "[::1]:9102", "a%20b", "!$&'()*+,;=:._~-"] {
            assert!(!refused(Version::HTTP_11, &[host.as_bytes()]), "{host}");
        }
        for host in ["a b", "a/b", "a@b", "a\"b", "a<b", "a#b", "a?b", "é"] {
            assert!(refused(Version::HTTP_11, &[host.as_bytes()]), "{host}");
            assert!(refused(Version::HTTP_10, &[host.as_bytes()]), "{host}");
        }
        assert!(refused(Version::HTTP_11, &[]));
        assert!(!refused(Version::HTTP_10, &[]));
        assert!(refused(Version::HTTP_11, &[b"a", b"a"]));
        assert!(refused(Version::HTTP_10, &[b"a", b"a"]));
    }
}
