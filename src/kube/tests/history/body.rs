//! Response bodies that tests write chunk by chunk.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::body::Frame;
use tokio::sync::mpsc;

/// A body written by a task.
pub struct ChannelBody(pub mpsc::UnboundedReceiver<Result<Bytes, &'static str>>);

/// Sends the chunks of a [`ChannelBody`].
pub type ChunkSender = mpsc::UnboundedSender<Result<Bytes, &'static str>>;

impl hyper::body::Body for ChannelBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

/// Returns a response with a body that is still being written.
pub fn build_response(
    code: u16,
    content_type: &str,
    gzip: bool,
    body: mpsc::UnboundedReceiver<Result<Bytes, &'static str>>,
) -> Response<ChannelBody> {
    let mut response = Response::builder().status(code).header(CONTENT_TYPE, content_type);
    if gzip {
        response = response.header(CONTENT_ENCODING, "gzip");
    }
    response.body(ChannelBody(body)).expect("a response")
}

/// Returns a response with a complete body.
pub fn complete_response(code: u16, content_type: &str, body: Vec<u8>) -> Response<ChannelBody> {
    let (chunks, receiver) = mpsc::unbounded_channel();
    let _ = chunks.send(Ok(body.into()));
    build_response(code, content_type, false, receiver)
}
