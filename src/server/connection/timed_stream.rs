//! A stream that enforces the timeouts of its connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::deadlines::{Deadlines, RESPONSE};
use super::timer::Timer;

/// The read size in bytes: several usual heads.
const READ_SIZE: usize = 4 << 10;

/// A stream that fails when its [`Deadlines`] pass.
pub struct TimedStream<S> {
    stream: S,
    deadlines: Deadlines,
    /// Bytes read beyond the end of a head.
    read_ahead: Vec<u8>,
    reading: Timer,
    writing: Timer,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TimedStream<S> {
    /// Applies `deadlines` to `stream`.
    pub fn new(stream: S, deadlines: Deadlines) -> Self {
        let (reading, writing) = (Timer::default(), Timer::default());
        Self { stream, deadlines, read_ahead: Vec::new(), reading, writing }
    }

    /// Reads from the stream; fails on a timeout.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(bytes);
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
            let result = result.inspect_err(|error| self.deadlines.failed(error));
            return Poll::Ready(result.map(|()| buf.filled().len()));
        }
        let deadline = self.deadlines.state.lock().read_by;
        self.reading
            .poll(deadline, cx)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "request timed out")))
    }

    /// Writes to the stream; fails if the client does not accept the bytes in time.
    fn poll_out<T>(
        &mut self,
        cx: &mut Context<'_>,
        give: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = give(Pin::new(&mut self.stream), cx) {
            self.deadlines.state.lock().stalled = None;
            return Poll::Ready(result.inspect_err(|error| self.deadlines.failed(error)));
        }
        let deadline = {
            let mut state = self.deadlines.state.lock();
            state.watch(cx);
            let stalled = *state.stalled.get_or_insert_with(Instant::now) + RESPONSE;
            state.write_by.map_or(stalled, |deadline| deadline.min(stalled))
        };
        self.writing.poll(Some(deadline), cx).map(|()| {
            self.deadlines.state.lock().timed_out = true;
            Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads the response too slowly"))
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Read for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.deadlines.must_hold_next_request(cx) {
            return Poll::Pending;
        }
        let mut bytes = [0; READ_SIZE];
        // An escaped byte takes three.
        let room = buf.remaining().div_ceil(3).min(READ_SIZE);
        let count = if this.read_ahead.is_empty() {
            ready!(this.poll_bytes(cx, &mut bytes[..room]))?
        } else {
            let count = room.min(this.read_ahead.len());
            bytes[..count].copy_from_slice(&this.read_ahead[..count]);
            this.read_ahead.drain(..count);
            count
        };
        let (end, escaped) = match count {
            // The end of the stream is not a request.
            0 => (0, None),
            _ => this.deadlines.received(&bytes[..count]),
        };
        let (now, later) = bytes[..count].split_at(end);
        match escaped {
            // All of it fits, unless hyper asks for a byte or two.
            Some(escaped) if escaped.len() <= buf.remaining() => buf.put_slice(&escaped),
            _ => buf.put_slice(now),
        }
        this.read_ahead.splice(..0, later.iter().copied());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Write for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx, |stream, cx| stream.poll_flush(cx)))?;
        // hyper flushes when its own buffer is empty.
        self.deadlines.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_out(cx, |stream, cx| stream.poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }
}
