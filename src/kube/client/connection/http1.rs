//! HTTP/1.1 connections without their own tasks: the reader of a response body drives its connection.
//!
//! A watch has one connection and one reader for its whole life. If a second task drove the connection, each chunk
//! would cost a channel operation and a wake-up. Here, a body that is pending means that the socket is empty.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::dial::{Dialed, Stream};
use crate::util::lock::Lock;

/// The maximum size of a connection's read buffer, in bytes. A larger one does not save CPU.
const READ_BUFFER: usize = 256 * 1024;
/// The maximum number of idle connections of an event loop. Only requests in quick succession reuse them.
const MAX_IDLE: usize = 4;

/// The time after which an idle connection is not reused: nothing shows whether its peer still answers, and a list would wait for
/// it for long.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The idle connections to one server.
pub(crate) type Idle = Arc<Lock<Vec<Link>>>;

/// A connection with the sender of its requests.
pub(crate) struct Link {
    /// The event loop that polls the socket. Only requests from this loop use the connection: the list/watch thread
    /// lets packets accumulate before it reads them, and a socket on another loop would wake it for each packet.
    home: Id,
    generation: u64,
    opened: Instant,
    /// The end of the last response.
    used: Instant,
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>,
}

impl Link {
    /// Starts HTTP/1.1 on a stream.
    ///
    /// # Errors
    /// The handshake fails.
    pub(crate) async fn open(dialed: Dialed, generation: u64) -> Result<Self, hyper::Error> {
        let opened = Instant::now();
        let stream = TokioIo::new(dialed.stream);
        let (sender, connection) =
            Builder::new().max_buf_size(READ_BUFFER).handshake(stream).await?;
        let (home, used) = (Handle::current().id(), opened);
        Ok(Self { home, generation, opened, used, sender, connection })
    }

    /// Transfers bytes between the socket and the request in progress. Ready when the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        Pin::new(&mut self.connection).poll(context)
    }

    fn is_recent(&self) -> bool {
        self.used.elapsed() < MAX_PAUSE
    }

    fn is_open(&mut self) -> bool {
        // An idle connection is not polled; poll it now to notice that the server has closed it.
        self.poll(&mut Context::from_waker(Waker::noop())).is_pending() && self.sender.is_ready()
    }
}

/// Takes an idle connection of this event loop that is still open, has at least this generation of the TLS
/// configuration, and was opened after `after` if given. Drops those that have been idle for [`MAX_PAUSE`], and those of this event
/// loop that the server has closed.
pub(crate) fn take(idle: &Idle, here: Id, generation: u64, after: Option<Instant>) -> Option<Link> {
    let mut links = idle.lock();
    links.retain_mut(|link| {
        let is_usable = link.generation >= generation && link.is_recent();
        is_usable && (link.home != here || link.is_open())
    });
    let at = links
        .iter()
        .rposition(|link| link.home == here && after.is_none_or(|after| link.opened > after))?;
    Some(links.swap_remove(at))
}

/// Sends a request and waits for the head of the response.
///
/// # Errors
/// The connection failed or was closed before the response.
pub(crate) async fn exchange(
    mut link: Link,
    request: Request<Bytes>,
    idle: Idle,
) -> Result<Response<Driven>, hyper::Error> {
    let mut answer = pin!(link.sender.send_request(request.map(Full::new)));
    let mut link = Some(link);
    let response = poll_fn(|context| {
        if let Some(open) = &mut link
            && open.poll(context).is_ready()
        {
            // Dropping the connection completes the waiting request.
            link = None;
        }
        answer.as_mut().poll(context)
    })
    .await?;
    Ok(response.map(|incoming| Driven { incoming, ended: false, link, idle }))
}

/// A response body together with its connection.
pub(crate) struct Driven {
    incoming: Incoming,
    /// The body was read to its end.
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
    /// Makes the connection idle if the body was read to its end, and closes it otherwise.
    fn drop(&mut self) {
        if (self.ended || self.incoming.is_end_stream())
            && let Some(mut link) = self.link.take()
            && link.is_open()
        {
            let home = link.home;
            let is_full =
                |links: &[Link]| links.iter().filter(|link| link.home == home).count() >= MAX_IDLE;
            let mut idle = self.idle.lock();
            if is_full(&idle) {
                idle.retain_mut(|link| link.is_recent() && (link.home != home || link.is_open()));
            }
            if !is_full(&idle) {
                link.used = Instant::now();
                idle.push(link);
            }
        }
    }
}
