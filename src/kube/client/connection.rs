//! Connections to one API server: HTTP/2 where it is offered, HTTP/1.1 otherwise, and which of them the
//! next request goes over.
//!
//! Requests flow in complete, credentials and all, from [`client`](crate::kube::client); answers flow out with
//! bodies that are read where the connection lives. Each connection belongs to the event loop that opened
//! it, so that the thread of the list/watches has its own. Nothing here knows Kubernetes.

mod dial;
mod gzip;
mod http1;
mod http2;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use hyper::body::Frame;
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::causes;
use super::proxy::{Kind, Proxy};
use super::tls::Built;
use dial::Dialer;
#[cfg(any(test, fuzzing))]
pub(crate) use dial::{Connecting, Network, Stream};

/// How often a request is sent again when the server has not looked at it.
const AGAIN: usize = 3;

/// Why a body has come to an early end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BodyError(String);

/// The body of an answer, in the chunks in which it comes.
pub(crate) struct Body(Content);

enum Content {
    Whole(Option<Bytes>),
    // Boxed: they are moved about with the list/watches.
    Http1(Box<http1::Driven>),
    Http2(Box<http2::Streamed>),
    Packed(Box<gzip::Packed<Body>>),
}

impl Body {
    /// The body of an answer with these headers, which say nothing more of a compression that is undone here.
    fn new(headers: &mut HeaderMap, content: Content) -> Self {
        let body = Self(content);
        if gzip::is_named(headers) {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
            return Self(Content::Packed(Box::new(gzip::Packed::new(body))));
        }
        body
    }
}

impl From<Bytes> for Body {
    fn from(whole: Bytes) -> Self {
        Self(Content::Whole(Some(whole)))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().0 {
            Content::Whole(whole) => Poll::Ready(whole.take().map(Frame::data).map(Ok)),
            Content::Http1(driven) => driven
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map_err(|error| BodyError(causes(&error))))),
            Content::Http2(streamed) => streamed
                .poll_data(context)
                .map(|data| data.map(|data| data.map(Frame::data).map_err(BodyError))),
            Content::Packed(packed) => packed
                .poll_data(context)
                .map(|data| data.map(|data| data.map(Frame::data).map_err(BodyError))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Whole(whole) => whole.is_none(),
            Content::Http1(driven) => driven.is_end_stream(),
            Content::Http2(streamed) => streamed.is_end_stream(),
            // Its last bytes may be with it still.
            Content::Packed(_) => false,
        }
    }
}

/// The connections to one server; cheap to clone.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Inner>);

struct Inner {
    dialer: Dialer,
    /// For a server behind an HTTP proxy that is told the whole URL: what proves who we are to it.
    forward: Option<Option<HeaderValue>>,
    idle: http1::Idle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: Vec<http2::Link>,
    /// Connections that others wait for, by event loop.
    opening: HashMap<Id, watch::Receiver<Opening>>,
    /// How many were opened, by event loop.
    opened: HashMap<Id, u64>,
    /// Whether the server has chosen HTTP/1.1: there is nothing to wait for then.
    http1: bool,
}

/// How an attempt to open a connection ended; nothing while it lasts.
type Opening = Option<Result<(), String>>;

/// What a request goes over.
enum Way {
    Http1(Box<http1::Link>),
    Http2(http2::Place),
}

/// What to do where there is no connection to use.
enum Turn {
    Wait(watch::Receiver<Opening>),
    Open(Option<watch::Sender<Opening>>),
}

impl Connections {
    /// To the server of this URL.
    pub(crate) fn new(url: &Uri, server_name: Option<String>, proxy: Option<Proxy>) -> Self {
        let https = url.scheme_str() == Some("https");
        let host = url.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = url.port_u16().unwrap_or(if https { 443 } else { 80 });
        let forward = proxy
            .as_ref()
            .filter(|proxy| !https && matches!(proxy.kind, Kind::Http { .. }))
            .map(Proxy::authorization);
        let dialer = Dialer {
            host: host.to_owned(),
            port,
            server_name,
            proxy,
            #[cfg(any(test, fuzzing))]
            network: None,
        };
        Self(Arc::new(Inner { dialer, forward, idle: Arc::default(), state: Mutex::default() }))
    }

    /// From here on over another network.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn over(&mut self, network: Arc<dyn Network>) {
        let inner = Arc::get_mut(&mut self.0).expect("nobody else has it yet");
        inner.dialer.network = Some(network);
    }

    /// Sends a request, over TLS if `tls` says how, and waits for the head of the answer. A connection
    /// that was opened at the instant `after` or before is not used.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub(crate) async fn send(
        &self,
        request: &Request<Bytes>,
        tls: Option<&Built>,
        mut after: Option<Instant>,
    ) -> Result<Response<Body>, String> {
        for attempt in 0.. {
            let (way, fresh) = self.way(tls, after).await?;
            let failed = match way {
                Way::Http2(place) => match place.send(copy(request)).await {
                    Ok(response) => {
                        let (mut head, body) = response.into_parts();
                        let body = Body::new(&mut head.headers, Content::Http2(Box::new(body)));
                        return Ok(Response::from_parts(head, body));
                    }
                    Err(failed) => failed,
                },
                Way::Http1(link) => {
                    let request = self.0.written(copy(request))?;
                    match http1::exchange(*link, request, Arc::clone(&self.0.idle)).await {
                        Ok(response) => {
                            let (mut head, body) = response.into_parts();
                            let body = Body::new(&mut head.headers, Content::Http1(Box::new(body)));
                            return Ok(Response::from_parts(head, body));
                        }
                        Err(error) => {
                            let reason = causes(&error);
                            http2::Failed { reason, untouched: false, stale: true }
                        }
                    }
                }
            };
            // A connection may be closed while the request is on its way: only what can be repeated goes
            // over a used one a second time.
            let stale = failed.stale && !fresh && request.method() == Method::GET;
            if attempt >= AGAIN || !(failed.untouched || stale) {
                return Err(failed.reason);
            }
            after = Some(Instant::now());
        }
        Err("not sent".to_owned())
    }

    /// How many were opened from this event loop.
    pub(crate) fn opened(&self) -> u64 {
        self.0.state().opened.get(&Handle::current().id()).copied().unwrap_or_default()
    }

    /// A connection for a request, and whether it was opened for it.
    async fn way(
        &self,
        tls: Option<&Built>,
        after: Option<Instant>,
    ) -> Result<(Way, bool), String> {
        let here = Handle::current().id();
        let generation = tls.map_or(0, |built| built.generation);
        loop {
            if let Some(link) = http1::take(&self.0.idle, here, generation, after) {
                return Ok((Way::Http1(Box::new(link)), false));
            }
            let turn = {
                let mut state = self.0.state();
                if let Some(place) = state.place(here, generation, after) {
                    return Ok((Way::Http2(place), false));
                }
                state.turn(here, tls.is_some())
            };
            match turn {
                Turn::Wait(mut opening) => {
                    // An error says that whoever was opening it has given up.
                    if let Ok(ended) = opening.wait_for(Option::is_some).await
                        && let Some(Err(error)) = &*ended
                    {
                        return Err(error.clone());
                    }
                }
                Turn::Open(announce) => {
                    let opened = self.open(tls, generation).await;
                    if let Some(announce) = announce {
                        self.0.state().opening.remove(&here);
                        let result = opened.as_ref().map(|_| ()).map_err(Clone::clone);
                        announce.send_replace(Some(result));
                    }
                    return opened.map(|way| (way, true));
                }
            }
        }
    }

    async fn open(&self, tls: Option<&Built>, generation: u64) -> Result<Way, String> {
        let dialed = self.0.dialer.dial(tls.map(|built| &built.config)).await?;
        {
            let mut state = self.0.state();
            state.http1 = !dialed.http2;
            *state.opened.entry(Handle::current().id()).or_default() += 1;
        }
        if !dialed.http2 {
            let link = http1::Link::open(dialed, generation).await;
            return link.map(|link| Way::Http1(Box::new(link))).map_err(|error| causes(&error));
        }
        let link = http2::Link::open(dialed, generation).await?;
        let place = link.place().ok_or("the server closed the connection at once")?;
        self.0.state().links.push(link);
        Ok(Way::Http2(place))
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request as it is written in HTTP/1.1: to a server path and query alone, the server in a
    /// header.
    fn written(&self, mut request: Request<Bytes>) -> Result<Request<Bytes>, String> {
        let host = dial::place(&self.dialer.host, self.dialer.port);
        let authority = request.uri().authority().map_or(host.as_str(), |one| one.as_str());
        let host = HeaderValue::try_from(authority).map_err(|error| causes(&error))?;
        request.headers_mut().entry(HOST).or_insert(host);
        match &self.forward {
            Some(authorization) => {
                if let Some(authorization) = authorization {
                    request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
                }
            }
            None => {
                let path = request.uri().path_and_query().cloned();
                *request.uri_mut() = path.unwrap_or_else(|| PathAndQuery::from_static("/")).into();
            }
        }
        Ok(request)
    }
}

impl State {
    /// A place on a connection that is there already.
    fn place(&mut self, here: Id, generation: u64, after: Option<Instant>) -> Option<http2::Place> {
        self.links.retain_mut(|link| {
            if link.generation < generation {
                link.retire();
            }
            !link.is_closed()
        });
        // The newest is the least likely to be broken.
        let mut links = self.links.iter().rev();
        links
            .by_ref()
            .filter(|link| link.home == here && after.is_none_or(|after| link.opened() > after))
            .find_map(http2::Link::place)
    }

    /// One opens a connection, the others wait for it: it may have room for them all.
    fn turn(&mut self, here: Id, tls: bool) -> Turn {
        if !tls || self.http1 {
            return Turn::Open(None);
        }
        match self.opening.get(&here) {
            // Its sender is gone if the request that opened it was given up.
            Some(opening) if opening.has_changed().is_ok() => Turn::Wait(opening.clone()),
            _ => {
                let (announce, opening) = watch::channel(None);
                self.opening.insert(here, opening);
                Turn::Open(Some(announce))
            }
        }
    }
}

/// The same request once more.
fn copy(request: &Request<Bytes>) -> Request<Bytes> {
    let mut copy = Request::new(request.body().clone());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}
