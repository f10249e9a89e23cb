//! Tests of HTTP/2 against a scripted server, and of idle HTTP/1.1 connections.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::dial::{Connecting, Dialed, Network, Stream};
use super::http1::{self, Idle};
use super::http2::{Failed, Link, Place, Streamed};
use super::socket::Activity;
use super::{Body, Built, Connections, Content};
use crate::util::work_counter;

type Server = Connection<DuplexStream, Bytes>;
type Call = (Request<RecvStream>, SendResponse<Bytes>);

/// Returns a connection to a server that allows `most` concurrent streams.
async fn pair(most: u32) -> (Link, Server) {
    let (ours, theirs) = tokio::io::duplex(1024 * 1024);
    let dialed =
        Dialed { stream: Box::new(ours), http2: true, activity: Arc::new(Activity::new()) };
    let mut server = h2::server::Builder::new();
    let server = server.max_concurrent_streams(most).handshake(theirs);
    let (link, server) = tokio::join!(Link::open(dialed, 0), server);
    (link.unwrap_or_else(|error| panic!("{error}")), server.expect("a client"))
}

fn request() -> Request<Bytes> {
    Request::get("https://server/path").body(Bytes::new()).expect("a request")
}

/// Sends a request while the server runs and handles it with `answer`. Returns the response.
async fn call(
    place: Place,
    server: &mut Server,
    answer: impl FnOnce(Call),
) -> Result<Response<Streamed>, Failed> {
    let mut sent = std::pin::pin!(place.send(request()));
    let mut answer = Some(answer);
    loop {
        tokio::select! {
            response = &mut sent => return response,
            call = server.accept() => {
                if let (Some(Ok(call)), Some(answer)) = (call, answer.take()) {
                    answer(call);
                }
            }
        }
    }
}

fn whole(body: &'static [u8]) -> impl FnOnce(Call) {
    move |(_, mut respond)| {
        let mut stream = respond.send_response(Response::new(()), false).expect("sent");
        stream.send_data(Bytes::from_static(body), true).expect("sent");
    }
}

async fn read(response: Response<Streamed>, server: &mut Server) -> Result<Bytes, String> {
    let body = Body(Content::Http2(Box::new(response.into_body())));
    let mut read = std::pin::pin!(body.collect());
    loop {
        tokio::select! {
            body = &mut read => {
                return body.map(|body| body.to_bytes()).map_err(|error| error.to_string());
            }
            // Disabled once the connection has ended and `accept` returns `None`.
            Some(_) = server.accept() => {}
        }
    }
}

#[tokio::test]
async fn requests_have_as_many_places_as_the_server_says() {
    let (mut link, mut server) = pair(2).await;
    let (one, two) = (link.place().expect("room"), link.place().expect("room"));
    assert!(link.place().is_none());
    drop(one);
    let response =
        call(two, &mut server, whole(b"body")).await.unwrap_or_else(|f| panic!("{}", f.reason));
    let other = link.place().expect("room");
    assert!(link.place().is_none());
    assert_eq!(read(response, &mut server).await, Ok(Bytes::from_static(b"body")));
    assert!(link.place().is_some());
    assert!(!link.is_closed());
    link.retire();
    assert!(link.is_closed());
    assert!(link.place().is_none());
    drop(other);
}

#[tokio::test]
async fn what_the_server_did_not_look_at_is_told_apart() {
    let (mut link, mut server) = pair(10).await;
    let refuse = |(_, mut respond): Call| respond.send_reset(Reason::REFUSED_STREAM);
    let failed = call(link.place().expect("room"), &mut server, refuse).await;
    assert!(failed.err().is_some_and(|failed| failed.untouched));
    let cancel = |(_, mut respond): Call| respond.send_reset(Reason::INTERNAL_ERROR);
    let failed = call(link.place().expect("room"), &mut server, cancel).await;
    assert!(failed.err().is_some_and(|failed| !failed.untouched && !failed.stale));
    assert!(!link.is_closed());
}

/// Returns a response whose body the server has not sent yet, and the stream to send it.
async fn begun(link: &Link, server: &mut Server) -> (Response<Streamed>, SendStream<Bytes>) {
    let mut stream = None;
    let begin = |(_, mut respond): Call| {
        stream = Some(respond.send_response(Response::new(()), false).expect("sent"));
    };
    let response = call(link.place().expect("room"), server, begin).await;
    let response = response.unwrap_or_else(|failed| panic!("{}", failed.reason));
    (response, stream.expect("a stream"))
}

#[tokio::test]
async fn a_server_that_says_goodbye_finishes_what_it_has_begun() {
    let (mut link, mut server) = pair(10).await;
    let (response, mut stream) = begun(&link, &mut server).await;
    server.graceful_shutdown();
    let body = async {
        tokio::time::timeout(Duration::from_secs(120), async {
            while !link.is_closed() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the goodbye is seen");
        stream.send_data(Bytes::from_static(b"rest"), true).expect("sent");
    };
    let (rest, ()) = tokio::join!(read(response, &mut server), body);
    assert_eq!(rest, Ok(Bytes::from_static(b"rest")));
}

#[tokio::test]
async fn a_body_cut_short_is_an_error() {
    let (link, mut server) = pair(10).await;
    let (response, stream) = begun(&link, &mut server).await;
    drop((server, stream));
    let body = Body(Content::Http2(Box::new(response.into_body())));
    assert!(body.collect().await.is_err());
}

#[tokio::test]
async fn a_peer_without_settings_is_not_waited_for() {
    let (ours, theirs) = tokio::io::duplex(1024);
    let dialed =
        Dialed { stream: Box::new(ours), http2: true, activity: Arc::new(Activity::new()) };
    drop(theirs);
    assert!(Link::open(dialed, 0).await.is_err());
}

/// A server that refuses each request, or never ends its response, and keeps the connection.
struct SimulatedServer {
    tls: TlsAcceptor,
    refuses: bool,
    streams: u32,
    connections: AtomicU32,
}

impl Network for SimulatedServer {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> Connecting<'a> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = tokio::io::duplex(1024 * 1024);
        let accepting = self.tls.accept(theirs);
        let (refuses, streams) = (self.refuses, self.streams);
        tokio::spawn(async move {
            let stream = accepting.await.expect("TLS");
            let mut server = h2::server::Builder::new();
            let server = server.max_concurrent_streams(streams).handshake(stream).await;
            let mut server: Connection<_, Bytes> = server.expect("a client");
            let mut open = Vec::new();
            while let Some(Ok((_, mut respond))) = server.accept().await {
                if refuses {
                    respond.send_reset(Reason::REFUSED_STREAM);
                } else {
                    open.push(respond.send_response(Response::new(()), false));
                }
            }
        });
        Box::pin(ready(Ok(Box::new(ours) as Box<dyn Stream>)))
    }
}

/// Returns a server with this number of streams per connection, connections to it, and its certificate.
fn simulated(refuses: bool, streams: u32) -> (Arc<SimulatedServer>, Connections, Built) {
    let certified = rcgen::generate_simple_self_signed(["server".to_owned()]).expect("a pair");
    let certificate = certified.cert.der().clone();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a pair");
    server.alpn_protocols = vec![b"h2".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = Built { config: Arc::new(config), generation: 0 };
    let (acceptor, connections) = (Arc::new(server).into(), AtomicU32::default());
    let server = Arc::new(SimulatedServer { tls: acceptor, refuses, streams, connections });
    let url = "https://server".parse().expect("a URL");
    let mut connections = Connections::new(&url, None, None);
    connections.over(Arc::clone(&server) as Arc<dyn Network>);
    (server, connections, tls)
}

#[tokio::test]
async fn a_request_that_is_refused_opens_one_connection() {
    let (server, connections, tls) = simulated(true, 10);
    // The first request needs a connection anyway.
    for expected in 2..5 {
        let error = connections.send(&request(), Some(&tls), None, &|_| {}).await.err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("refused"), "{error}");
        assert_eq!(server.connections.load(Ordering::Relaxed), expected);
    }
}

/// Watches that reopen together each look at one connection, or at all of them before another one is opened.
#[tokio::test]
async fn many_requests_at_once_take_little_work() {
    let (server, connections, tls) = simulated(false, 4);
    for requests in [40, 400] {
        let before = server.connections.load(Ordering::Relaxed);
        work_counter::take();
        let sent = (0..requests)
            .map(|_| async { connections.send(&request(), Some(&tls), None, &|_| {}).await });
        let responses = futures_util::future::try_join_all(sent.map(Box::pin)).await;
        let looks = work_counter::take();
        drop(responses.expect("responses"));
        let opened = u64::from(server.connections.load(Ordering::Relaxed) - before);
        assert!((requests / 4..=requests / 2).contains(&opened), "{opened} connections");
        let most = 2 * opened * opened + 2 * requests;
        assert!(looks <= most, "{requests} requests looked at {looks} connections");
    }
}

/// Sends a request over a new HTTP/1.1 connection, which is idle then. Returns the server's end.
async fn call_over_http1(idle: &Idle) -> DuplexStream {
    let (ours, mut server) = tokio::io::duplex(1024);
    let dialed =
        Dialed { stream: Box::new(ours), http2: false, activity: Arc::new(Activity::new()) };
    let link = http1::Link::open(dialed, 0).await.expect("a connection");
    let answer = async {
        assert!(server.read(&mut [0; 1024]).await.is_ok_and(|length| length > 0));
        server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("sent");
    };
    let (response, ()) = tokio::join!(http1::exchange(link, request(), Arc::clone(idle)), answer);
    assert!(response.is_ok());
    server
}

#[test]
fn event_loops_have_idle_connections_of_their_own() {
    let event_loop = || Builder::new_current_thread().build().expect("an event loop");
    let (one, two): (Runtime, Runtime) = (event_loop(), event_loop());
    let idle = Idle::default();
    let mut of_one: Vec<_> = (0..5).map(|_| one.block_on(call_over_http1(&idle))).collect();
    assert_eq!(idle.lock().len(), 4);
    let of_two = two.block_on(call_over_http1(&idle));
    assert_eq!(idle.lock().len(), 5);
    // Another takes the place of one that the server has closed.
    of_one.truncate(4);
    of_one.remove(0);
    let newest = one.block_on(call_over_http1(&idle));
    assert_eq!(idle.lock().len(), 5);
    drop((of_one, of_two));
    assert!(http1::take(&idle, one.handle().id(), 0, None).is_some());
    assert_eq!(idle.lock().len(), 1);
    assert!(http1::take(&idle, two.handle().id(), 0, None).is_none());
    assert!(idle.lock().is_empty());
    drop(newest);
}
