//! Deadlines of one connection, put under hyper's feet.
//!
//! hyper's own header timeout also runs while a kept-alive connection is idle and it has no limit for
//! writing. The originals tell the phases apart: waiting for a request, reading its head, answering.
//! [`Deadlines`] carries the phase; [`TimedStream`] fails reads and writes that outlast it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// Limits of a server's connections; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the first byte of a request (or from accepting the connection) to the end of its head.
    pub read_header: Option<Duration>,
    /// From the end of the head to the last byte of the answer.
    pub write: Option<Duration>,
    /// Between the end of an answer and the next request.
    pub idle: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Head,
    Answering,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    read_by: Option<Instant>,
    write_by: Option<Instant>,
}

/// The phase of a connection, shared by its stream and its service.
#[derive(Clone, Debug)]
pub struct Deadlines {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

impl Deadlines {
    /// Of a connection accepted now.
    pub fn new(limits: Limits) -> Self {
        let read_by = after(limits.read_header.or(limits.idle));
        let state = State { phase: Phase::Head, read_by, write_by: None };
        Self { limits, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The head of a request is complete. The returned guard is the answer; its drop ends it.
    pub fn answering(&self) -> Answer {
        let mut state = self.state();
        state.phase = Phase::Answering;
        state.read_by = None;
        state.write_by = after(self.limits.write);
        Answer(self.clone())
    }

    fn bytes_arrived(&self) {
        let mut state = self.state();
        if state.phase == Phase::Idle {
            state.phase = Phase::Head;
            state.read_by = after(self.limits.read_header);
        }
    }
}

fn after(limit: Option<Duration>) -> Option<Instant> {
    limit.filter(|limit| !limit.is_zero()).map(|limit| Instant::now() + limit)
}

/// An answer under way.
#[derive(Debug)]
pub struct Answer(Deadlines);

impl Drop for Answer {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.phase = Phase::Idle;
        state.read_by = after(self.0.limits.idle);
    }
}

/// A TCP stream that fails when its [`Deadlines`] pass.
pub struct TimedStream {
    stream: TokioIo<TcpStream>,
    deadlines: Deadlines,
    reading: Timer,
    writing: Timer,
}

#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Pending until `deadline`; arms the timer only when there is something to wait for.
    fn poll(&mut self, deadline: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = deadline else {
            self.0 = None;
            return Poll::Pending;
        };
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx)
    }
}

impl TimedStream {
    /// Watches over `stream`.
    pub fn new(stream: TcpStream, deadlines: Deadlines) -> Self {
        let (reading, writing) = (Timer::default(), Timer::default());
        Self { stream: TokioIo::new(stream), deadlines, reading, writing }
    }

    fn poll_writing(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let deadline = self.deadlines.state().write_by;
        ready!(self.writing.poll(deadline, cx));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly"))
    }
}

impl Read for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(result) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.deadlines.bytes_arrived();
            return Poll::Ready(result);
        }
        let deadline = this.deadlines.state().read_by;
        ready!(this.reading.poll(deadline, cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no complete request in time")))
    }
}

impl Write for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, buf) {
            Poll::Pending => self.poll_writing(cx).map(Err),
            written => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(cx, bufs) {
            Poll::Pending => self.poll_writing(cx).map(Err),
            written => written,
        }
    }
}
