//! Limits the responses to requests of kube's client, which holds each as a whole.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Frame;

use super::connection::{Body, BodyError};
use super::error::TransportError;

/// A body of limited size. A watch may be of any size, but each of its events, which are lines, is limited.
pub(super) struct Bounded {
    body: Body,
    is_watch: bool,
    limit: usize,
    /// The number of bytes so far: of the body, or of the last line of a watch.
    size: usize,
}

impl Bounded {
    pub(super) fn new(body: Body, is_watch: bool, limit: usize) -> Self {
        Self { body, is_watch, limit, size: 0 }
    }

    fn count(&mut self, data: &[u8]) -> Result<(), TransportError> {
        let newline = data.iter().rposition(|byte| *byte == b'\n').filter(|_| self.is_watch);
        self.size = match newline {
            Some(at) => data.len() - at - 1,
            None => self.size + data.len(),
        };
        if self.size > self.limit {
            return Err(format!("the answer is longer than {} bytes", self.limit).into());
        }
        Ok(())
    }
}

impl hyper::body::Body for Bounded {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        Pin::new(&mut this.body).poll_frame(context).map(|frame| {
            frame.map(|frame| {
                let frame = frame?;
                this.count(frame.data_ref().map_or(&[][..], |data| &data[..]))?;
                Ok(frame)
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_limited_by_the_event() {
        let read = |is_watch, chunks: &[&[u8]]| {
            let mut body = Bounded::new(Bytes::new().into(), is_watch, 4);
            chunks.iter().all(|chunk| body.count(chunk).is_ok())
        };
        assert!(read(false, &[b"a\nb\n"]));
        assert!(!read(false, &[b"a\nb\n", b"c"]));
        assert!(read(true, &[b"abc\n", b"abc\nabc", b"d", b"\nabcd"]));
        assert!(!read(true, &[b"abc\n", b"abc\nabc", b"de"]));
    }
}
