//! Response bodies: nothing, some bytes, or frames pulled from an iterator while the client reads.
//!
//! A body is produced on a worker that has other connections too. So it gives way: after a piece without bytes, and when
//! it has produced for [`SLICE`], however fast the client reads.

use std::convert::Infallible;
use std::future::Future as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// How long a body is produced before others have their turn.
const SLICE: Duration = Duration::from_millis(1);

/// A body. What it holds (a snapshot, a timer) lives until the last frame was handed over or the
/// client is gone.
pub struct Body {
    data: Data,
    held: Option<Box<dyn Send>>,
    sent: Option<Arc<Sent>>,
}

/// How much of a body has been handed over.
#[derive(Debug, Default)]
pub struct Sent {
    bytes: AtomicU64,
    complete: AtomicBool,
}

impl Sent {
    /// Bytes handed over.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether that is all there are.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }
}

enum Data {
    Empty,
    Whole(Bytes),
    Frames(Frames),
}

/// Frames and the time spent on them since others had their turn.
struct Frames {
    pieces: Box<dyn Iterator<Item = Bytes> + Send>,
    spent: Duration,
}

impl Frames {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.spent >= SLICE {
            return self.give_way(cx);
        }
        let started = Instant::now();
        let piece = self.pieces.next();
        self.spent += started.elapsed();
        match piece {
            // An empty frame would end a chunked body early.
            Some(piece) if piece.is_empty() => self.give_way(cx),
            piece => Poll::Ready(piece),
        }
    }

    /// Goes on after whatever else is ready, sockets included.
    fn give_way(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.spent = Duration::ZERO;
        // Unlike a plain wake-up this one waits until the worker has looked for events.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
        Poll::Pending
    }
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self { data: Data::Empty, held: None, sent: None }
    }

    /// Bytes known in advance; their length is announced.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { data: Data::Whole(bytes.into()), held: None, sent: None }
    }

    /// Frames produced one by one as the connection takes them. An empty one says that the next may take a while.
    pub fn frames(frames: Box<dyn Iterator<Item = Bytes> + Send>) -> Self {
        let frames = Frames { pieces: frames, spent: Duration::ZERO };
        Self { data: Data::Frames(frames), held: None, sent: None }
    }

    /// Keeps `guard` until the body ends; its drop is the end of the exchange.
    pub fn hold(self, guard: impl Send + 'static) -> Self {
        let held: Box<dyn Send> = match self.held {
            Some(earlier) => Box::new((earlier, guard)),
            None => Box::new(guard),
        };
        Self { held: Some(held), ..self }
    }

    /// Counts in `sent` what is handed over.
    pub fn counted(self, sent: Arc<Sent>) -> Self {
        // An empty body is never asked for a frame.
        sent.complete.store(matches!(self.data, Data::Empty), Ordering::Relaxed);
        Self { sent: Some(sent), ..self }
    }

    /// The same exchange without bytes, as `HEAD` answers.
    pub fn without_data(self) -> Self {
        Self { data: Data::Empty, ..self }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut self.data {
            Data::Empty => None,
            Data::Whole(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Data::Frames(frames) => ready!(frames.poll(cx)),
        };
        if let Some(sent) = &self.sent {
            let bytes = frame.as_ref().map_or(0, Bytes::len) as u64;
            sent.bytes.fetch_add(bytes, Ordering::Relaxed);
            // hyper does not ask again behind a body of known length.
            if frame.is_none() || matches!(self.data, Data::Whole(_)) {
                sent.complete.store(true, Ordering::Relaxed);
            }
        }
        if frame.is_none() {
            self.data = Data::Empty;
            self.held = None;
        }
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.data {
            Data::Empty => true,
            Data::Whole(bytes) => bytes.is_empty(),
            Data::Frames(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.data {
            Data::Empty => SizeHint::with_exact(0),
            Data::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Data::Frames(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counts(Arc<AtomicUsize>);

    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Others have their turn while a body has no bytes yet, and nothing is produced for a client that has gone.
    #[tokio::test]
    async fn a_piece_without_bytes_gives_way() {
        let pulled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pulled);
        let pieces = std::iter::repeat_with(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Bytes::new()
        });
        let mut body = Body::frames(Box::new(pieces.take(3).chain([Bytes::from_static(b"end")])));
        for turns in 1..=3 {
            let frame = poll_once(&mut body);
            assert!(frame.is_pending(), "turn {turns}");
            assert_eq!(pulled.load(Ordering::Relaxed), turns);
        }
        // Woken without anybody else's doing.
        assert_eq!(body.collect().await.expect("infallible").to_bytes(), "end");
    }

    fn poll_once(body: &mut Body) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        hyper::body::Body::poll_frame(Pin::new(body), &mut cx)
    }

    #[tokio::test]
    async fn frames_are_pulled_lazily_and_the_guards_end_with_them() {
        let pulled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pulled);
        let frames = ["a", "", "b"].into_iter().map(move |text| {
            counter.fetch_add(1, Ordering::Relaxed);
            Bytes::from_static(text.as_bytes())
        });
        let ended = Arc::new(AtomicUsize::new(0));
        let mut body = Body::frames(Box::new(frames))
            .hold(Counts(Arc::clone(&ended)))
            .hold(Counts(Arc::clone(&ended)));
        let first = body.frame().await.expect("frame").expect("infallible").into_data();
        assert_eq!(first.ok(), Some(Bytes::from_static(b"a")));
        assert_eq!(pulled.load(Ordering::Relaxed), 1);
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        assert_eq!(body.collect().await.expect("infallible").to_bytes(), "b");
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn whole_bodies_announce_their_length() {
        let body = Body::whole("hello");
        assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(5));
        assert_eq!(body.collect().await.expect("infallible").to_bytes(), "hello");
    }
}
