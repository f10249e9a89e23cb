//! Response bodies: empty, a byte string, or frames pulled from an iterator as the client reads.
//!
//! A worker that produces a body also serves other connections. Therefore a body yields after an
//! empty chunk, and when it has produced for [`SLICE`], however fast the client reads.

use std::convert::Infallible;
use std::future::Future as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::connection::Answer;
use super::gzip::Member;

/// The time after which a body yields to other tasks.
const SLICE: Duration = Duration::from_millis(1);

/// The maximum size of a frame of a body that is there as a whole. hyper buffers a frame completely, and the body ends with its
/// last one, after which no timeout watches the client.
const MAX_FRAME: usize = 48 << 10;

/// A response body. The values it holds (a snapshot, a timer) are dropped when the last frame was
/// passed on, the client has disconnected or the response has timed out.
pub struct Body {
    data: Data,
    held: Option<Box<dyn Send>>,
    sent: Option<Arc<Sent>>,
    /// The length of the text before compression, where it is compressed.
    text: Option<Arc<AtomicU64>>,
    /// The exchange, and whether it uses HTTP/2.
    answer: Option<(Answer, bool)>,
    /// The last byte of the current frame.
    tail: Option<Bytes>,
}

/// The progress of a body.
#[derive(Debug, Default)]
pub struct Sent {
    bytes: AtomicU64,
    complete: AtomicBool,
    text: Option<Arc<AtomicU64>>,
}

impl Sent {
    /// Returns the number of bytes sent.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes before compression.
    pub fn text_bytes(&self) -> u64 {
        self.text.as_ref().map_or_else(|| self.bytes(), |text| text.load(Ordering::Relaxed))
    }

    /// Returns whether the body is complete.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }
}

enum Data {
    Whole(Bytes),
    Frames(Frames),
}

/// Frames, and the time spent on them since the last yield.
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

    /// Yields to all other ready tasks, including socket events.
    fn give_way(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.spent = Duration::ZERO;
        // Unlike a plain wake-up, this waits until the worker has polled for events.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
        Poll::Pending
    }
}

impl Body {
    /// Returns an empty body.
    pub fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    /// Returns a body of known length, which is announced.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(Data::Whole(bytes.into()))
    }

    /// Returns a body of frames produced on demand. An empty frame signals that the next may take a
    /// while.
    pub fn frames(frames: Box<dyn Iterator<Item = Bytes> + Send>) -> Self {
        Self::new(Data::Frames(Frames { pieces: frames, spent: Duration::ZERO }))
    }

    /// Returns the compressed body of `member`.
    pub fn member(member: Member) -> Self {
        let text = Some(member.progress());
        Self { text, ..Self::frames(Box::new(member)) }
    }

    fn new(data: Data) -> Self {
        Self { data, held: None, sent: None, text: None, answer: None, tail: None }
    }

    /// Keeps `guard` until the body ends; dropping it ends the exchange.
    pub fn hold(self, guard: impl Send + 'static) -> Self {
        let held: Box<dyn Send> = match self.held {
            Some(earlier) => Box::new((earlier, guard)),
            None => Box::new(guard),
        };
        Self { held: Some(held), ..self }
    }

    /// Reports the client's progress to `answer`, and ends the exchange with the body.
    ///
    /// Over HTTP/2 the last byte of each frame is sent as a frame of its own. hyper passes a frame
    /// on as soon as the window has room for one byte, and then asks for the next. Without this, a
    /// body would end while its entire last frame is still buffered for a client that reads
    /// nothing, and no timeout would watch it.
    pub(super) fn with_answer(self, answer: Answer) -> Self {
        let is_http2 = answer.deadlines.state.lock().is_http2;
        Self { answer: Some((answer, is_http2)), ..self }
    }

    /// Counts the bytes from now on.
    pub fn counted(self) -> (Self, Arc<Sent>) {
        // An empty body is never polled for a frame.
        let complete =
            AtomicBool::new(matches!(&self.data, Data::Whole(bytes) if bytes.is_empty()));
        let sent = Arc::new(Sent { bytes: AtomicU64::new(0), complete, text: self.text.clone() });
        (Self { sent: Some(Arc::clone(&sent)), ..self }, sent)
    }

    /// Returns the same exchange without data, for `HEAD`.
    pub fn without_data(self) -> Self {
        if let Some(sent) = &self.sent {
            sent.complete.store(true, Ordering::Relaxed);
        }
        Self { data: Data::Whole(Bytes::new()), ..self }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some((answer, _)) = &self.answer {
            answer.progressed();
        }
        let tail = self.tail.take();
        let is_tail = tail.is_some();
        let mut frame = match &mut self.data {
            _ if is_tail => tail,
            Data::Whole(bytes) => {
                Some(bytes.split_to(bytes.len().min(MAX_FRAME))).filter(|bytes| !bytes.is_empty())
            }
            Data::Frames(frames) => ready!(frames.poll(cx)),
        };
        if let (Some((_, true)), Some(frame), false) = (&self.answer, &mut frame, is_tail)
            && frame.len() > 1
        {
            self.tail = Some(frame.split_off(frame.len() - 1));
        }
        if let Some(sent) = &self.sent {
            let bytes = frame.as_ref().map_or(0, Bytes::len) as u64;
            sent.bytes.fetch_add(bytes, Ordering::Relaxed);
            // hyper does not poll a body of known length again.
            let is_last = matches!(&self.data, Data::Whole(rest) if rest.is_empty());
            if frame.is_none() || is_last && self.tail.is_none() {
                sent.complete.store(true, Ordering::Relaxed);
            }
        }
        if frame.is_none() {
            self.data = Data::Whole(Bytes::new());
            self.held = None;
            self.answer = None;
        }
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.data {
            _ if self.tail.is_some() => false,
            Data::Whole(bytes) => bytes.is_empty(),
            Data::Frames(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.data {
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

    /// A body yields while it has no data, and stops producing for a client that has disconnected.
    #[tokio::test]
    async fn an_empty_piece_yields_to_other_tasks() {
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
        // The body wakes itself.
        assert_eq!(body.collect().await.expect("infallible").to_bytes(), "end");
    }

    fn poll_once(body: &mut Body) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        hyper::body::Body::poll_frame(Pin::new(body), &mut cx)
    }

    #[tokio::test]
    async fn frames_are_lazy_and_guards_end_with_the_body() {
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

    /// A client that reads nothing makes hyper hold one frame, and not the whole body.
    #[tokio::test]
    async fn whole_bodies_are_sent_in_frames() {
        let text: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        let (mut body, sent) = Body::whole(text.clone()).counted();
        let mut all = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.expect("infallible").into_data().expect("data");
            assert!((1..64 << 10).contains(&frame.len()), "{}", frame.len());
            all.extend_from_slice(&frame);
            assert_eq!(sent.is_complete(), all.len() == text.len());
        }
        assert!(all == text);
    }

    #[tokio::test]
    async fn whole_bodies_have_a_content_length() {
        let body = Body::whole("hello");
        assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(5));
        assert_eq!(body.collect().await.expect("infallible").to_bytes(), "hello");
    }
}
