//! Deadlines of one connection, put under hyper's feet.
//!
//! hyper's own header timeout also runs while a kept-alive connection is idle and it has no limit for
//! writing. The originals tell the phases apart: waiting for a request, reading its head, answering.
//! [`Deadlines`] carries the phase; [`TimedStream`] fails reads and writes that outlast it, and hands over
//! one head at a time, so that bytes of the next request do not hide in hyper's buffer where no clock sees
//! them. [`Peer`] tells a long answer whether anybody waits for it. With HTTP/2, where requests come side by
//! side, a connection is in use while any of them is, and idle after the last.

use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes read at a time: several usual heads.
const READ: usize = 4 << 10;

/// An answer of which the client takes nothing for so long is given up, where no limit says otherwise. The
/// originals wait for ever; no reader that lives pauses that long.
const STALLED: Duration = Duration::from_secs(300);

/// How long a handshake may take where nothing else limits it.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// From when on a connection may be closed for a newcomer although it has begun a request, or has an answer
/// to take.
const HEAD_PATIENCE: Duration = Duration::from_millis(250);
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

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
    /// Between two requests.
    Idle,
    /// A request has begun, or the connection has.
    Head,
    /// The answer is made.
    Answering,
    /// The answer is made, its last bytes are on their way.
    Sending,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Begin of the phase.
    since: Instant,
    /// When the last bytes came.
    heard: Instant,
    read_by: Option<Instant>,
    write_by: Option<Instant>,
    /// Since when the client takes nothing.
    stalled: Option<Instant>,
    head: HeadEnd,
    /// Whether there was a request.
    had_request: bool,
    /// Whether the request being answered has a body, which is read during the answer.
    has_body: bool,
    /// Closed for a newcomer.
    cut: bool,
    /// Whether requests come side by side, whose heads nobody but HTTP/2 can find.
    is_http2: bool,
    /// Answers under way.
    answers: usize,
    /// Whoever polls the connection.
    task: Option<Waker>,
}

/// Finds the empty line that ends a head.
#[derive(Clone, Copy, Debug, Default)]
struct HeadEnd {
    /// Whether something other than line ends has come; before it empty lines mean nothing.
    begun: bool,
    in_line: bool,
}

impl HeadEnd {
    /// The number of bytes up to the end of the head, if it ends here.
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.begun && !self.in_line => {
                    *self = Self::default();
                    return Some(index + 1);
                }
                b'\n' => self.in_line = false,
                b'\r' => {}
                _ => *self = Self { begun: true, in_line: true },
            }
        }
        None
    }
}

/// How easily a connection can be done without: those between requests first, then those with half a
/// request, then those that do not take their answer; among equals, the one that has waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dispensable {
    rank: u8,
    since: Instant,
}

/// The phase of a connection, shared by its stream, its service and whoever has to make room.
#[derive(Clone, Debug)]
pub struct Deadlines {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

impl Deadlines {
    /// Of a connection accepted now.
    pub fn new(limits: Limits) -> Self {
        let state = State {
            phase: Phase::Head,
            since: Instant::now(),
            heard: Instant::now(),
            read_by: after(limits.read_header.or(limits.idle)),
            write_by: None,
            stalled: None,
            head: HeadEnd::default(),
            had_request: false,
            has_body: false,
            cut: false,
            is_http2: false,
            answers: 0,
            task: None,
        };
        Self { limits, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The head of a request is complete. The returned guard is the answer; its drop ends it.
    pub fn answering(&self, has_body: bool) -> Answer {
        let mut state = self.state();
        state.enter(Phase::Answering);
        state.answers += 1;
        state.had_request = true;
        state.has_body = has_body;
        state.read_by = None;
        state.write_by = after(self.limits.write);
        Answer(self.clone())
    }

    /// From here on requests come side by side: while any is answered, the connection is.
    pub(super) fn speaks_http2(&self) {
        self.state().is_http2 = true;
    }

    /// Runs what comes before the first request, at most until the connection is closed for a newcomer or its
    /// time is over.
    ///
    /// # Errors
    ///
    /// That of `work`, or that it was not done in time.
    pub(super) async fn before_requests<T>(
        &self,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let (mut work, mut timer) = (pin!(work), Timer::default());
        poll_fn(|cx| {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            let deadline = {
                let mut state = self.state();
                state.watch(cx);
                state.read_by.unwrap_or(state.since + HANDSHAKE)
            };
            timer
                .poll(Some(deadline), cx)
                .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "no handshake in time")))
        })
        .await
    }

    /// Whether the connection has had a request.
    pub(super) fn had_request(&self) -> bool {
        self.state().had_request
    }

    /// Whether a request has begun of which nothing more has come for so long.
    pub(super) fn is_left_half(&self, quiet: Duration) -> bool {
        let state = self.state();
        state.phase == Phase::Head && state.heard.elapsed() >= quiet
    }

    /// How easily this connection can be done without at a point in time; `None` while it is of use.
    pub(crate) fn dispensable(&self, now: Instant) -> Option<Dispensable> {
        self.state().dispensable(now)
    }

    /// Ends the connection, unless it has become of use again.
    pub(crate) fn cut(&self, now: Instant) -> bool {
        let mut state = self.state();
        if state.dispensable(now).is_none() {
            return false;
        }
        state.cut = true;
        (state.read_by, state.write_by) = (Some(now), Some(now));
        if let Some(task) = state.task.take() {
            task.wake();
        }
        true
    }

    /// Bytes have arrived; the number of them that belong to the request at hand.
    fn arrived(&self, bytes: &[u8]) -> usize {
        let mut state = self.state();
        state.heard = Instant::now();
        if state.is_http2 {
            return bytes.len();
        }
        if state.phase == Phase::Idle {
            state.enter(Phase::Head);
            state.read_by = after(self.limits.read_header);
        }
        // A body is delimited by its head, which is hyper's to read.
        let end = if state.phase == Phase::Head { state.head.find(bytes) } else { None };
        end.unwrap_or(bytes.len())
    }

    /// Whether the next request has to wait until the answer to the last one is sent, as in the originals.
    fn withholds(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        state.watch(cx);
        state.phase == Phase::Sending && !state.has_body && !state.is_http2
    }

    /// Everything that was written has been taken over by the system.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        if state.phase == Phase::Sending {
            state.enter(Phase::Idle);
            state.read_by = after(self.limits.idle);
            state.write_by = None;
            // Reads that were withheld go on.
            if let Some(task) = state.task.take() {
                task.wake();
            }
        }
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
        self.stalled = None;
        self.head = HeadEnd::default();
    }

    fn dispensable(&self, now: Instant) -> Option<Dispensable> {
        let (rank, since, patience) = match (self.phase, self.stalled) {
            _ if self.cut => return None,
            (Phase::Idle, _) => (0, self.since, Duration::ZERO),
            (Phase::Head, _) => (1, self.since, HEAD_PATIENCE),
            (_, Some(stalled)) => (2, stalled, ANSWER_PATIENCE),
            (_, None) => return None,
        };
        let waited = now.saturating_duration_since(since);
        (waited >= patience).then_some(Dispensable { rank, since })
    }

    /// Remembers whom to wake.
    fn watch(&mut self, cx: &Context<'_>) {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
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
        state.answers -= 1;
        if state.answers == 0 {
            state.enter(Phase::Sending);
        }
    }
}

/// The other side of a connection.
#[derive(Clone, Debug)]
pub struct Peer(Weak<TcpStream>);

impl Peer {
    /// Where it is, while it is there.
    pub fn address(&self) -> Option<IpAddr> {
        Some(self.0.upgrade()?.peer_addr().ok()?.ip())
    }

    /// Whether the client has closed its side, or the connection is gone. Who only closes the sending side
    /// counts as gone too, as in Go's server: ask where an answer takes long and nobody else wants it.
    pub fn has_left(&self) -> bool {
        let Some(stream) = self.0.upgrade() else { return true };
        let ready = pin!(stream.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }
}

/// A stream that fails when its [`Deadlines`] pass.
pub struct TimedStream<S> {
    stream: S,
    deadlines: Deadlines,
    /// What was read behind the end of a head.
    ahead: Vec<u8>,
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

impl<S: AsyncRead + AsyncWrite + Unpin> TimedStream<S> {
    /// Watches over `stream`.
    pub fn new(stream: S, deadlines: Deadlines) -> Self {
        let (reading, writing) = (Timer::default(), Timer::default());
        Self { stream, deadlines, ahead: Vec::new(), reading, writing }
    }

    /// Bytes of the stream; fails when they do not come in time.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(bytes);
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
            return Poll::Ready(result.map(|()| buf.filled().len()));
        }
        let deadline = self.deadlines.state().read_by;
        self.reading
            .poll(deadline, cx)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "no complete request in time")))
    }

    /// Gives something to the stream; fails when the client does not take it in time.
    fn poll_out<T>(
        &mut self,
        cx: &mut Context<'_>,
        give: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = give(Pin::new(&mut self.stream), cx) {
            self.deadlines.state().stalled = None;
            return Poll::Ready(result);
        }
        let deadline = {
            let mut state = self.deadlines.state();
            state.watch(cx);
            let stalled = *state.stalled.get_or_insert_with(Instant::now) + STALLED;
            state.write_by.map_or(stalled, |deadline| deadline.min(stalled))
        };
        self.writing
            .poll(Some(deadline), cx)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly")))
    }
}

impl Peer {
    /// The other side of `stream`.
    pub(super) fn of(stream: &Arc<TcpStream>) -> Self {
        Self(Arc::downgrade(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Read for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.deadlines.withholds(cx) {
            return Poll::Pending;
        }
        let mut bytes = [0; READ];
        let room = buf.remaining().min(READ);
        let count = if this.ahead.is_empty() {
            match this.poll_bytes(cx, &mut bytes[..room]) {
                Poll::Ready(Ok(count)) => count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        } else {
            let count = room.min(this.ahead.len());
            bytes[..count].copy_from_slice(&this.ahead[..count]);
            this.ahead.drain(..count);
            count
        };
        let (now, later) = bytes[..count].split_at(match count {
            // The end of the stream is no request.
            0 => 0,
            _ => this.deadlines.arrived(&bytes[..count]),
        });
        buf.put_slice(now);
        this.ahead.splice(..0, later.iter().copied());
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
        // hyper comes here when its own buffer is empty.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        read_header: Some(Duration::from_secs(3_600)),
        write: None,
        idle: Some(Duration::from_secs(2 * 3_600)),
    };

    #[test]
    fn a_head_ends_with_an_empty_line_after_text() {
        for (bytes, end) in [
            ("GET / HTTP/1.1\r\nA: b\r\n\r\nGET", Some(24)),
            ("GET / HTTP/1.1\n\nGET", Some(16)),
            ("\r\n\r\n\nGET / HTTP/1.0\r\n\r\n", Some(23)),
            ("GET / HTTP/1.1\r\nA: b\r\n", None),
            ("\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(HeadEnd::default().find(bytes.as_bytes()), end, "{bytes:?}");
            let mut head = HeadEnd::default();
            let piecewise = bytes.bytes().position(|byte| head.find(&[byte]).is_some());
            assert_eq!(piecewise.map(|index| index + 1), end, "{bytes:?}");
        }
    }

    #[test]
    fn the_next_request_has_its_own_clock() {
        let deadlines = Deadlines::new(LIMITS);
        // The limit that runs, as far as it can be told from what is left of it.
        let limit = |deadlines: &Deadlines| {
            let left = deadlines.state().read_by?.saturating_duration_since(Instant::now());
            [LIMITS.read_header, LIMITS.idle].into_iter().flatten().find(|limit| left <= *limit)
        };
        assert_eq!(limit(&deadlines), LIMITS.read_header);
        assert_eq!(deadlines.arrived(b"GET / HTTP/1.1\r\n\r\nGET /"), 18);
        let answer = deadlines.answering(false);
        assert_eq!(limit(&deadlines), None);
        drop(answer);
        let cx = &Context::from_waker(Waker::noop());
        assert!(deadlines.withholds(cx), "the answer is not sent yet");
        deadlines.flushed();
        assert!(!deadlines.withholds(cx));
        assert_eq!(limit(&deadlines), LIMITS.idle);
        deadlines.arrived(b"GET /");
        assert_eq!(limit(&deadlines), LIMITS.read_header);
    }

    #[test]
    fn what_is_of_use_is_not_cut() {
        let (idle, new, busy) =
            (Deadlines::new(LIMITS), Deadlines::new(LIMITS), Deadlines::new(LIMITS));
        let answer = busy.answering(false);
        drop(idle.answering(false));
        idle.flushed();
        let now = new.state().since;
        assert!(new.dispensable(now).is_none() && !new.cut(now), "it has just come");
        let now = now + HEAD_PATIENCE * 2;
        assert!(idle.dispensable(now).is_some());
        assert!(idle.dispensable(now) < new.dispensable(now), "between requests goes first");
        assert!(busy.dispensable(now).is_none() && !busy.cut(now));
        busy.state().stalled = Some(now);
        assert!(busy.dispensable(now).is_none());
        let now = now + ANSWER_PATIENCE;
        assert!(new.dispensable(now) < busy.dispensable(now));
        for cut in [idle, new, busy] {
            assert!(cut.cut(now) && !cut.cut(now));
            assert_eq!(cut.state().read_by, Some(now));
        }
        drop(answer);
    }
}
