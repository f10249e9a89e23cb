//! HTTP/1.1 connections without tasks of their own: whoever reads a body drives its connection.
//!
//! A watch is one connection with one reader for its whole life. Where the connection runs as a second
//! task, each chunk costs a channel and a wake-up between the two, and a reader cannot tell whether more
//! is at hand. Here a body that is not ready means that the socket is empty. Requests flow in from the
//! layers of [`client`](super::client), which hold the credentials; nothing here knows Kubernetes.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, Uri};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::rt::{Read, Write};
use kube::client::Body;
use tokio::runtime::{Handle, Id};
use tower_service::Service;

/// Bytes that are read from a connection at once, at most. Beyond this, larger reads save nothing.
const READ_BUFFER: usize = 256 * 1024;
/// Idle connections that are kept. Only requests that follow one another closely profit.
const MAX_IDLE: usize = 4;

/// Any error of a connection or of the layers above it.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Opens connections to one server with `C`, and uses them again while they are open.
pub(super) struct Connections<C, I: Stream> {
    connector: C,
    idle: Idle<I>,
}

/// What HTTP goes over.
pub(super) trait Stream: Read + Write + Unpin {}

impl<I: Read + Write + Unpin> Stream for I {}

type Idle<I> = Arc<Mutex<Vec<Link<I>>>>;

/// One connection, with the sender of its requests.
struct Link<I: Stream> {
    /// The event loop that watches its socket. No other uses it: the list/watches have a thread of their
    /// own, which lets packets gather, and would be woken for each by another one's loop.
    home: Id,
    sender: SendRequest<Body>,
    connection: Connection<I, Body>,
}

impl<C, I: Stream> Connections<C, I> {
    pub(super) fn new(connector: C) -> Self {
        Self { connector, idle: Arc::default() }
    }
}

impl<C: Clone, I: Stream> Clone for Connections<C, I> {
    fn clone(&self) -> Self {
        Self { connector: self.connector.clone(), idle: Arc::clone(&self.idle) }
    }
}

impl<C, I> Service<Request<Body>> for Connections<C, I>
where
    C: Service<Uri, Response = I, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    I: Stream + Send + 'static,
{
    type Response = Response<Driven<I>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // What was polled ready is what has to be called.
        let unpolled = self.connector.clone();
        let mut connector = std::mem::replace(&mut self.connector, unpolled);
        let idle = Arc::clone(&self.idle);
        Box::pin(async move {
            let server = request.uri().clone();
            let request = origin_form(request)?;
            // A connection may be closed while the request is on its way: only what can be repeated
            // goes over a used one.
            if let Some(again) = repeatable(&request)
                && let Some(link) = take(&idle)
                && let Ok(response) = exchange(link, again, Arc::clone(&idle)).await
            {
                return Ok(response);
            }
            let stream = connector.call(server).await.map_err(Into::into)?;
            let (sender, connection) =
                Builder::new().max_buf_size(READ_BUFFER).handshake(stream).await?;
            let home = Handle::current().id();
            Ok(exchange(Link { home, sender, connection }, request, idle).await?)
        })
    }
}

/// The request as it is written to a server: path and query alone, the server in a header.
fn origin_form(mut request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let authority = request.uri().authority().ok_or("request without a server")?;
    let host = match authority.port() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    let host = HeaderValue::try_from(host)?;
    request.headers_mut().entry(HOST).or_insert(host);
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.unwrap_or_else(|| PathAndQuery::from_static("/")).into();
    Ok(request)
}

/// The same request once more, if sending it twice does no harm.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    if request.method() != Method::GET {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// An idle connection of this event loop that is still open.
fn take<I: Stream>(idle: &Idle<I>) -> Option<Link<I>> {
    let here = Handle::current().id();
    loop {
        let mut links = idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = links.iter().rposition(|link| link.home == here)?;
        let mut link = links.swap_remove(at);
        drop(links);
        // Nobody has looked at it since: an end that the server has sent is seen now.
        if link.poll(&mut Context::from_waker(Waker::noop())).is_pending() && link.sender.is_ready()
        {
            return Some(link);
        }
    }
}

/// Sends a request and waits for the head of the answer.
async fn exchange<I: Stream>(
    link: Link<I>,
    request: Request<Body>,
    idle: Idle<I>,
) -> Result<Response<Driven<I>>, hyper::Error> {
    let Link { home, mut sender, connection } = link;
    let mut answer = pin!(sender.send_request(request));
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
    let link = connection.map(|connection| Link { home, sender, connection });
    Ok(response.map(|incoming| Driven { incoming, ended: false, link, idle }))
}

impl<I: Stream> Link<I> {
    /// Moves bytes between the socket and the request in progress; ready when the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        Pin::new(&mut self.connection).poll(context)
    }
}

/// The body of a response together with its connection.
pub(super) struct Driven<I: Stream> {
    incoming: Incoming,
    /// Whether the body was read to its end.
    ended: bool,
    link: Option<Link<I>>,
    idle: Idle<I>,
}

impl<I: Stream> hyper::body::Body for Driven<I> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.incoming).poll_frame(context);
        if frame.is_pending()
            && let Some(link) = &mut this.link
        {
            if link.poll(context).is_ready() {
                this.link = None;
            }
            frame = Pin::new(&mut this.incoming).poll_frame(context);
        }
        this.ended |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl<I: Stream> Drop for Driven<I> {
    /// Keeps the connection if the body was read to its end, and closes it otherwise.
    fn drop(&mut self) {
        if (self.ended || self.incoming.is_end_stream())
            && let Some(mut link) = self.link.take()
            && link.poll(&mut Context::from_waker(Waker::noop())).is_pending()
            && link.sender.is_ready()
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE {
                idle.push(link);
            }
        }
    }
}
