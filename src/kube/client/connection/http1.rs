//! HTTP/1.1 connections without tasks of their own: whoever reads a body drives its connection.
//!
//! A watch is one connection with one reader for its whole life. Where the connection runs as a second
//! task, each chunk costs a channel and a wake-up between the two. Here a body that is not ready means
//! that the socket is empty.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::dial::{Dialed, Stream};

/// Bytes that are read from a connection at once, at most. Beyond this, larger reads save nothing.
const READ_BUFFER: usize = 256 * 1024;
/// Idle connections that are kept. Only requests that follow one another closely profit.
const MAX_IDLE: usize = 4;

/// Connections that wait for a request.
pub(crate) type Idle = Arc<Mutex<Vec<Link>>>;

/// One connection, with the sender of its requests.
pub(crate) struct Link {
    /// The event loop that watches its socket. No other uses it: the list/watches have a thread of their
    /// own, which lets packets gather, and would be woken for each by another one's loop.
    home: Id,
    generation: u64,
    opened: Instant,
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>,
}

impl Link {
    /// Begins HTTP/1.1 on a stream.
    ///
    /// # Errors
    /// As hyper says.
    pub(crate) async fn open(dialed: Dialed, generation: u64) -> Result<Self, hyper::Error> {
        let opened = Instant::now();
        let stream = TokioIo::new(dialed.stream);
        let (sender, connection) =
            Builder::new().max_buf_size(READ_BUFFER).handshake(stream).await?;
        Ok(Self { home: Handle::current().id(), generation, opened, sender, connection })
    }

    /// Moves bytes between the socket and the request in progress; ready when the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        Pin::new(&mut self.connection).poll(context)
    }

    fn is_open(&mut self) -> bool {
        // Nobody has looked at it since: an end that the server has sent is seen now.
        self.poll(&mut Context::from_waker(Waker::noop())).is_pending() && self.sender.is_ready()
    }
}

/// An idle connection of this event loop that is still open, of this generation at least, and opened
/// after `after`.
pub(crate) fn take(idle: &Idle, here: Id, generation: u64, after: Option<Instant>) -> Option<Link> {
    loop {
        let mut links = idle.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| link.generation >= generation);
        let at = links
            .iter()
            .rposition(|link| link.home == here && after.is_none_or(|after| link.opened > after))?;
        let mut link = links.swap_remove(at);
        drop(links);
        if link.is_open() {
            return Some(link);
        }
    }
}

/// Sends a request and waits for the head of the answer.
///
/// # Errors
/// The connection has ended.
pub(crate) async fn exchange(
    link: Link,
    request: Request<Bytes>,
    idle: Idle,
) -> Result<Response<Driven>, hyper::Error> {
    let Link { home, generation, opened, mut sender, connection } = link;
    let mut answer = pin!(sender.send_request(request.map(Full::new)));
    let mut connection = Some(connection);
    let response = poll_fn(|context| {
        if let Some(open) = &mut connection
            && Pin::new(open).poll(context).is_ready()
        {
            // Dropped, it says what it has to say to the waiting request.
            connection = None;
        }
        answer.as_mut().poll(context)
    })
    .await?;
    let link = connection.map(|connection| Link { home, generation, opened, sender, connection });
    Ok(response.map(|incoming| Driven { incoming, ended: false, link, idle }))
}

/// The body of a response together with its connection.
pub(crate) struct Driven {
    incoming: Incoming,
    /// Whether the body was read to its end.
    ended: bool,
    link: Option<Link>,
    idle: Idle,
}

impl Driven {
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let mut frame = Pin::new(&mut self.incoming).poll_frame(context);
        if frame.is_pending()
            && let Some(link) = &mut self.link
        {
            if link.poll(context).is_ready() {
                self.link = None;
            }
            frame = Pin::new(&mut self.incoming).poll_frame(context);
        }
        self.ended |= matches!(frame, Poll::Ready(None));
        frame
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }
}

impl Drop for Driven {
    /// Keeps the connection if the body was read to its end, and closes it otherwise.
    fn drop(&mut self) {
        if (self.ended || self.incoming.is_end_stream())
            && let Some(mut link) = self.link.take()
            && link.is_open()
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE {
                idle.push(link);
            }
        }
    }
}
