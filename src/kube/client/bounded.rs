//! Limits the responses to requests of kube's client, which holds each as a whole.

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

use super::connection::{Body, BodyError};
use super::error::TransportError;

/// Limits the size of a body. A watch may be of any size, but each of its events, which are lines, is limited.
pub(super) fn bounded(
    body: Body,
    is_watch: bool,
    limit: usize,
) -> impl hyper::body::Body<Data = Bytes, Error = BodyError> {
    let mut counted = counter(is_watch, limit);
    StreamBody::new(body.into_data_stream().map(move |data| {
        let data = data?;
        counted(&data)?;
        Ok(Frame::data(data))
    }))
}

/// Returns a function that counts chunks, and fails when there are more than `limit` bytes: of the body, or of the last
/// line of a watch.
fn counter(is_watch: bool, limit: usize) -> impl FnMut(&[u8]) -> Result<(), TransportError> {
    let mut size = 0;
    move |data| {
        let newline = data.iter().rposition(|byte| *byte == b'\n').filter(|_| is_watch);
        size = newline.map_or(size + data.len(), |at| data.len() - at - 1);
        if size > limit {
            return Err(format!("the answer is longer than {limit} bytes").into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_limited_by_the_event() {
        let read = |is_watch, chunks: &[&[u8]]| {
            let mut counted = counter(is_watch, 4);
            chunks.iter().all(|chunk| counted(chunk).is_ok())
        };
        assert!(read(false, &[b"a\nb\n"]));
        assert!(!read(false, &[b"a\nb\n", b"c"]));
        assert!(read(true, &[b"abc\n", b"abc\nabc", b"d", b"\nabcd"]));
        assert!(!read(true, &[b"abc\n", b"abc\nabc", b"de"]));
    }
}
