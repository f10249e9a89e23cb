//! Response bodies: nothing, some bytes, or frames pulled from an iterator while the client reads.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A body. What it holds (a snapshot, a timer) lives until the last frame was handed over or the
/// client is gone.
pub struct Body {
    data: Data,
    held: Option<Box<dyn Send>>,
}

enum Data {
    Empty,
    Whole(Bytes),
    Frames(Box<dyn Iterator<Item = Bytes> + Send>),
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self { data: Data::Empty, held: None }
    }

    /// Bytes known in advance; their length is announced.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { data: Data::Whole(bytes.into()), held: None }
    }

    /// Frames produced one by one as the connection takes them.
    pub fn frames(frames: Box<dyn Iterator<Item = Bytes> + Send>) -> Self {
        Self { data: Data::Frames(frames), held: None }
    }

    /// Keeps `guard` until the body ends; its drop is the end of the exchange.
    pub fn hold(self, guard: impl Send + 'static) -> Self {
        let held: Box<dyn Send> = match self.held {
            Some(earlier) => Box::new((earlier, guard)),
            None => Box::new(guard),
        };
        Self { data: self.data, held: Some(held) }
    }

    /// The same exchange without bytes, as `HEAD` answers.
    pub fn without_data(self) -> Self {
        Self { data: Data::Empty, held: self.held }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut self.data {
            Data::Empty => None,
            Data::Whole(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            // An empty frame would end a chunked body early.
            Data::Frames(frames) => frames.find(|frame| !frame.is_empty()),
        };
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
