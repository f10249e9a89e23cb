//! Connections to one API server. Uses HTTP/2 if the server offers it and HTTP/1.1 otherwise, and selects the
//! connection for each request.
//!
//! A request from [`client`](crate::kube::client) is complete, including its credentials. Each connection belongs to
//! the event loop that opened it, and the response bodies are best read there. The thread of the list/watches
//! therefore has its own connections. Nothing here depends on Kubernetes.

mod dial;
mod gzip;
mod http1;
mod http2;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use hyper::body::Frame;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::error::{TransportError, causes};
use super::identity::Built;
use super::proxy::Proxy;
use crate::util::lock::Lock;
use crate::util::name_lookup::NameLookup;
use crate::util::work_counter;
use dial::Dialer;
#[cfg(any(test, fuzzing))]
pub(crate) use dial::{Connecting, Network, Stream};
pub(crate) use http2::{Place, Probe};

/// The maximum number of retries of a request that the server did not process, or that failed on a reused connection. A
/// request that the server refuses while it keeps the connection is retried once.
const AGAIN: usize = 3;

/// The reason why a response body ended early.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct BodyError {
    reason: TransportError,
    /// The connection was closed because the peer was silent for too long.
    pub(crate) is_silent: bool,
}

impl From<TransportError> for BodyError {
    fn from(reason: TransportError) -> Self {
        Self { reason, is_silent: false }
    }
}

/// The body of a response, in chunks as they arrive.
pub(crate) struct Body(Content);

enum Content {
    Whole(Option<Bytes>),
    // Boxed, because list/watches move bodies and these variants are large.
    Http1(Box<http1::Driven>),
    Http2(Box<http2::Streamed>),
    Packed(Box<gzip::Packed<Body>>),
}

impl Body {
    /// Creates the body of a response with these headers. Decompresses gzip, and then removes the headers that
    /// describe the compressed body.
    fn new(headers: &mut HeaderMap, content: Content) -> Self {
        let body = Self(content);
        if gzip::is_named(headers) {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
            return Self(Content::Packed(Box::new(gzip::Packed::new(body))));
        }
        body
    }

    /// Creates the body of a response over HTTP/2.
    pub(crate) fn streamed(body: http2::Streamed) -> Self {
        Self(Content::Http2(Box::new(body)))
    }

    /// Returns the number of bytes that have arrived of a compressed body; `None` if it is not compressed.
    pub(crate) fn compressed_bytes(&self) -> Option<u64> {
        match &self.0 {
            Content::Packed(packed) => Some(packed.received()),
            _ => None,
        }
    }

    /// Returns whether the connection also carries other requests and is probed when silent, as in HTTP/2.
    pub(crate) fn is_shared(&self) -> bool {
        match &self.0 {
            Content::Whole(_) | Content::Http1(_) => false,
            Content::Http2(_) => true,
            Content::Packed(packed) => packed.body().is_some_and(Self::is_shared),
        }
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
            Content::Http1(driven) => driven.poll_frame(context).map(|frame| {
                frame
                    .map(|frame| frame.map_err(|error| TransportError::from(causes(&error)).into()))
            }),
            Content::Http2(streamed) => streamed.poll_data(context).map(|data| {
                let is_silent = streamed.is_silent();
                let failed = |reason| BodyError { reason, is_silent };
                data.map(|data| data.map(Frame::data).map_err(failed))
            }),
            Content::Packed(packed) => packed
                .poll_data(context)
                .map(|data| data.map(|data| data.map(Frame::data).map_err(BodyError::from))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Whole(whole) => whole.is_none(),
            Content::Http1(driven) => driven.is_end_stream(),
            Content::Http2(streamed) => streamed.is_end_stream(),
            // The decompressor may still hold the last bytes.
            Content::Packed(_) => false,
        }
    }
}

/// The connections to one server.
pub(crate) struct Connections {
    dialer: Dialer,
    /// The server is reached over TLS. Without TLS, HTTP/2 is not negotiated.
    https: bool,
    idle: http1::Idle,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    links: Vec<http2::Link>,
    /// The turns to open a connection, by event loop.
    turns: HashMap<Id, Turn>,
    /// The number of HTTP/2 connections opened so far, by event loop.
    opened: HashMap<Id, u64>,
    /// The last connection negotiated HTTP/1.1, so requests do not wait for a shared connection.
    http1: bool,
}

/// Held by the request that opens a connection. The others wait and continue in the order of their arrival: each takes a place on
/// that connection, or opens the next one. The content is the last failure, which is also that of all requests that waited for it.
type Turn = Arc<tokio::sync::Mutex<Option<(Instant, TransportError)>>>;

/// The connection for one request.
enum Way {
    Http1(Box<http1::Link>),
    Http2(http2::Place),
}

impl Connections {
    /// Creates an empty set of connections to the server of this URL.
    pub(crate) fn new(url: &Uri, server_name: Option<String>, proxy: Option<Proxy>) -> Self {
        let https = url.scheme_str() == Some("https");
        let host = url.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = url.port_u16().unwrap_or(if https { 443 } else { 80 });
        let dialed = proxy.as_ref().map_or((host, port), |proxy| (proxy.host(), proxy.port()));
        let dialer = Dialer {
            host: host.to_owned(),
            port,
            server_name,
            lookup: NameLookup::new(dial::place(dialed.0, dialed.1)),
            proxy,
            #[cfg(any(test, fuzzing))]
            network: None,
        };
        let (idle, state) = (Arc::default(), Lock::default());
        Self { dialer, https, idle, state }
    }

    /// Uses a simulated network from now on.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn over(&mut self, network: Arc<dyn Network>) {
        self.dialer.network = Some(network);
    }

    /// Sends a request, over TLS if `tls` is given, and waits for the head of the response. Only uses connections
    /// opened after the instant `after`, if given. Calls `opened` with the number of each HTTP/2 connection that it
    /// opens.
    ///
    /// # Errors
    /// No connection could be opened, or the request failed.
    pub(crate) async fn send(
        &self,
        request: &Request<Bytes>,
        tls: Option<&Built>,
        mut after: Option<Instant>,
        opened: &(dyn Fn(u64) + Sync),
    ) -> Result<Response<Body>, TransportError> {
        let mut refused = false;
        for attempt in 0.. {
            let (way, fresh) = self.way(tls, after, opened).await?;
            let sent = match way {
                Way::Http2(place) => {
                    let response = place.send(request.clone()).await;
                    response.map(|response| response.map(|body| Content::Http2(Box::new(body))))
                }
                Way::Http1(link) => {
                    let request = self.written(request.clone())?;
                    let response = http1::exchange(*link, request, Arc::clone(&self.idle)).await;
                    response
                        .map(|response| response.map(|body| Content::Http1(Box::new(body))))
                        .map_err(|error| {
                            let reason = causes(&error);
                            http2::Failed { reason, untouched: false, refused: false, stale: true }
                        })
                }
            };
            let failed = match sent {
                Ok(response) => {
                    let (mut head, content) = response.into_parts();
                    let body = Body::new(&mut head.headers, content);
                    return Ok(Response::from_parts(head, body));
                }
                Err(failed) => failed,
            };
            // A reused connection may be closing while the request is sent. Only a GET is then safe to repeat.
            let stale = failed.stale && !fresh && request.method() == Method::GET;
            // A server that refuses it on another connection too is overloaded, and connections make that worse.
            let is_overloaded = failed.refused && std::mem::replace(&mut refused, true);
            if attempt >= AGAIN || is_overloaded || !(failed.untouched || stale) {
                return Err(failed.reason.into());
            }
            after = Some(Instant::now());
        }
        Err("not sent".into())
    }

    /// Returns the number of HTTP/2 connections opened from this event loop. HTTP/1.1 connections are not counted,
    /// because each watch has its own.
    pub(crate) fn opened(&self) -> u64 {
        self.state.lock().opened.get(&Handle::current().id()).copied().unwrap_or_default()
    }

    /// Returns whether watches are expected to share connections: over TLS, unless the last connection negotiated
    /// HTTP/1.1, where each watch has its own.
    pub(crate) fn are_shared(&self) -> bool {
        self.https && !self.state.lock().http1
    }

    /// Returns the HTTP/2 connection with this number, unless it has ended.
    pub(crate) fn link(&self, number: u64) -> Option<http2::Link> {
        let state = self.state.lock();
        let link = state.links.iter().find(|link| link.number == number)?;
        (!link.is_ended()).then(|| link.clone())
    }

    /// Selects or opens a connection for a request. Also returns whether it was opened for this request.
    async fn way(
        &self,
        tls: Option<&Built>,
        after: Option<Instant>,
        opened: &(dyn Fn(u64) + Sync),
    ) -> Result<(Way, bool), TransportError> {
        let (here, begun) = (Handle::current().id(), Instant::now());
        let generation = tls.map_or(0, |built| built.generation);
        let mut held = None;
        loop {
            if let Some(link) = http1::take(&self.idle, here, generation, after) {
                return Ok((Way::Http1(Box::new(link)), false));
            }
            let turn = {
                let mut state = self.state.lock();
                if let Some(place) = state.place(here, generation, after) {
                    return Ok((Way::Http2(place), false));
                }
                // Connections that cannot be shared are opened at once.
                let is_shared = tls.is_some() && !state.http1;
                is_shared.then(|| Arc::clone(state.turns.entry(here).or_default()))
            };
            match turn {
                Some(turn) if held.is_none() => {
                    let turn = turn.lock_owned().await;
                    if let Some((_, error)) = turn.as_ref().filter(|(at, _)| *at >= begun) {
                        return Err(error.clone());
                    }
                    held = Some(turn);
                    continue;
                }
                Some(_) => {}
                None => held = None,
            }
            let way = self.open(tls, generation, opened).await;
            if let Some(held) = &mut held {
                **held = way.as_ref().err().map(|error| (Instant::now(), error.clone()));
            }
            return way.map(|way| (way, true));
        }
    }

    async fn open(
        &self,
        tls: Option<&Built>,
        generation: u64,
        opened: &(dyn Fn(u64) + Sync),
    ) -> Result<Way, TransportError> {
        let dialed = self.dialer.dial(tls.map(|built| &built.config)).await?;
        {
            let mut state = self.state.lock();
            state.http1 = !dialed.http2;
            if dialed.http2 {
                *state.opened.entry(Handle::current().id()).or_default() += 1;
            }
        }
        if !dialed.http2 {
            let link = http1::Link::open(dialed, generation).await;
            return link
                .map(|link| Way::Http1(Box::new(link)))
                .map_err(|error| causes(&error).into());
        }
        let link = http2::Link::open(dialed, generation).await?;
        let place = link.place().ok_or("the server closed the connection at once")?;
        opened(link.number);
        self.state.lock().links.push(link);
        Ok(Way::Http2(place))
    }

    /// Prepares a request for HTTP/1.1: adds `Host`, and reduces the URL to its path and query, except for a
    /// forwarding proxy.
    fn written(&self, mut request: Request<Bytes>) -> Result<Request<Bytes>, TransportError> {
        let host = dial::place(&self.dialer.host, self.dialer.port);
        let authority = request.uri().authority().map_or(host.as_str(), |one| one.as_str());
        let host = HeaderValue::try_from(authority).map_err(|error| causes(&error))?;
        request.headers_mut().entry(HOST).or_insert(host);
        match &self.dialer.proxy {
            // An HTTP proxy forwards plain HTTP, for which it needs the absolute URL.
            Some(proxy) if !self.https && !proxy.is_socks() => {
                if let Some(authorization) = proxy.authorization() {
                    request.headers_mut().insert(PROXY_AUTHORIZATION, authorization);
                }
            }
            _ => {
                let path = request.uri().path_and_query().cloned();
                *request.uri_mut() = path.unwrap_or_else(|| PathAndQuery::from_static("/")).into();
            }
        }
        Ok(request)
    }
}

impl State {
    /// Reserves a stream on an open HTTP/2 connection. If there is no place, or there are connections with an older TLS
    /// configuration, retires these and removes those no longer in use.
    fn place(&mut self, here: Id, generation: u64, after: Option<Instant>) -> Option<http2::Place> {
        let is_current = self.links.iter().all(|link| link.generation >= generation);
        if is_current && let Some(place) = self.newest_place(here, after) {
            return Some(place);
        }
        self.links.retain_mut(|link| {
            if link.generation < generation {
                link.retire();
            }
            link.is_in_use()
        });
        if is_current { None } else { self.newest_place(here, after) }
    }

    /// Starts with the newest connection, which is the least likely to be broken.
    fn newest_place(&mut self, here: Id, after: Option<Instant>) -> Option<http2::Place> {
        let links = self.links.iter_mut().rev();
        let links = links
            .filter(|link| link.home == here && after.is_none_or(|after| link.opened() > after));
        links
            .inspect(|_| work_counter::add(1))
            .find_map(|link| if link.is_closed() { None } else { link.place() })
    }
}
