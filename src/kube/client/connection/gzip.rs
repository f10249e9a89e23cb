//! Decompression of gzip response bodies. List/watches do not ask for compression, but some proxies compress every
//! response.

use std::fmt::Display;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use hyper::body::Body;

use crate::kube::client::error::TransportError;

/// The maximum size of a decompressed chunk, in bytes.
const PIECE: usize = 64 * 1024;
/// The size of the deflate window, as a power of two.
const WINDOW: u8 = 15;

/// Returns whether the `Content-Encoding` is gzip.
pub(super) fn is_named(headers: &HeaderMap) -> bool {
    let coding = headers.get(CONTENT_ENCODING);
    coding.is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"gzip"))
}

/// A gzip body that is decompressed as it arrives, so that each event of a watch is available immediately.
pub(super) struct Packed<B> {
    /// The compressed body; `None` after its end.
    body: Option<B>,
    /// Compressed bytes that have arrived but are not decompressed yet.
    rest: Bytes,
    /// The decompressor of the current gzip member.
    member: Option<Decompress>,
    /// The last chunk was full, so the decompressor may have more output without further input.
    more: bool,
    /// The number of compressed bytes that have arrived.
    received: u64,
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Packed<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body: Some(body), rest: Bytes::new(), member: None, more: false, received: 0 }
    }

    /// Returns the compressed body, or `None` after its end.
    pub(super) fn body(&self) -> Option<&B> {
        self.body.as_ref()
    }

    /// Returns the number of compressed bytes that have arrived.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the next decompressed chunk.
    pub(super) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        loop {
            if !self.rest.is_empty() || self.more {
                let piece = self.unpack()?;
                if !piece.is_empty() {
                    return Poll::Ready(Some(Ok(piece)));
                }
                continue;
            }
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            match ready!(Pin::new(body).poll_frame(context)) {
                // Ignores trailers.
                Some(Ok(frame)) => {
                    self.rest = frame.into_data().unwrap_or_default();
                    self.received += self.rest.len() as u64;
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.to_string().into()))),
                None => {
                    self.body = None;
                    if self.member.is_some() {
                        return Poll::Ready(Some(Err("it is no whole gzip: it ends early".into())));
                    }
                }
            }
        }
    }

    fn unpack(&mut self) -> Result<Bytes, TransportError> {
        let member = self.member.get_or_insert_with(|| Decompress::new_gzip(WINDOW));
        let mut piece = Vec::with_capacity(PIECE);
        let before = member.total_in();
        let status = member.decompress_vec(&self.rest, &mut piece, FlushDecompress::Sync);
        let status = status.map_err(|error| format!("it is no gzip: {error}"))?;
        let taken = usize::try_from(member.total_in() - before).unwrap_or(usize::MAX);
        self.rest.advance(taken.min(self.rest.len()));
        self.more = piece.len() == piece.capacity();
        if status == Status::StreamEnd {
            (self.member, self.more) = (None, false);
        } else if taken == 0 && piece.is_empty() && !self.rest.is_empty() {
            return Err("it is no gzip: it cannot be unpacked".into());
        }
        Ok(piece.into())
    }
}
