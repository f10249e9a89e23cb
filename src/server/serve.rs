//! Accepts connections and serves requests until shutdown.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::TcpListener;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Body as _;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::admission::{self, ConnectionSlot};
use super::connection::{Deadlines, Exchange, Limits, Peer, TimedStream, scrape_timeout};
use super::handshake;
use super::host_header;
use super::response::Response;
use super::router::Router;
use super::socket::Socket;
use crate::util::descriptors::Share;

/// The maximum size of a request head, including the request line.
const MAX_HEAD: usize = 64 << 10;

/// The maximum number of header lines of a request over HTTP/1.1. The originals have no limit other than that of the size.
const MAX_HEADERS: usize = 1024;

/// The maximum response data that hyper buffers while waiting for the socket: two frames. More
/// would save system calls, but each slow reader holds it.
const MAX_BUFFERED: usize = 80 << 10;

/// The maximum number of concurrent requests per HTTP/2 connection. Each may hold a frame of its
/// body, so that a connection costs at most 1 MB; a scraper has few at once.
const MAX_STREAMS: u32 = 16;

tokio::task_local! {
    /// The exchange number of an HTTP/2 stream.
    static EXCHANGE: u64;
}

/// TCP keepalive settings: idle time, interval and number of probes, as in Go's server.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(15))
    .with_retries(9);

/// The response to a client for which there is no room.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Connection: close\r\nContent-Length: 21\r\n\r\nToo many connections\n";

/// The time that a shutdown waits for the first request of a connection. Closing a connection
/// before any response would look like an unavailable server.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// The time without data after which a shutdown abandons an incomplete request.
const HALF_REQUEST: Duration = Duration::from_millis(500);

/// The time that a shutdown gives an HTTP/2 client to confirm that it has seen the end of its connection announced.
const GOODBYE: Duration = Duration::from_secs(1);

/// The reason for a connection closed by the server.
const SHUTDOWN_NOTICE: &str = "closed for another connection, or a response took too long";

/// The pause after a failed accept: long enough not to spin while descriptors are short, short
/// enough to resume promptly.
const ACCEPT_PAUSE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(5)..=Duration::from_secs(1);

/// Serves `listener` until `shutdown`, then waits at most `grace` for responses in flight. Its
/// connections count towards `share`.
///
/// # Errors
///
/// When the runtime cannot take over the socket. Errors while accepting are logged and retried.
pub async fn serve(
    listener: TcpListener,
    router: Arc<Router>,
    limits: Limits,
    grace: Duration,
    share: Share,
    shutdown: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (ending, told) = watch::channel(false);
    let mut stop = pin!(shutdown);
    let mut pause = *ACCEPT_PAUSE.start();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stop => break,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = *ACCEPT_PAUSE.start();
                let deadlines = Deadlines::new(limits);
                // Accepted connections are answered even during shutdown.
                match admission::of_process().admit(&deadlines, share).await {
                    Some(place) => answer(stream, deadlines, place, &router, told.clone()),
                    None => refuse(stream),
                }
            }
            // The client disconnected while queued, which does not affect the next one.
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, retry_in = ?pause, "Cannot accept connections");
                tokio::select! {
                    () = sleep(pause) => {}
                    _ = &mut stop => break,
                }
                pause = (pause * 2).min(*ACCEPT_PAUSE.end());
            }
        }
    }
    // Free the port for a successor while the last responses finish.
    drop((listener, told));
    ending.send_replace(true);
    if timeout(grace, ending.closed()).await.is_err() {
        tracing::warn!(?grace, "Connections are still open after their listener has ended");
    }
    Ok(())
}

fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn answer(
    stream: TcpStream,
    deadlines: Deadlines,
    place: ConnectionSlot<'static>,
    router: &Arc<Router>,
    mut told: watch::Receiver<bool>,
) {
    // A failure only affects latency.
    let _ = stream.set_nodelay(true);
    // Without it, the other timeouts still end a connection whose peer has vanished, only later.
    let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
    let (socket, router) = (Socket::new(stream), Arc::clone(router));
    tokio::spawn(async move {
        if let Err(error) = converse(socket, &deadlines, &router, &mut told).await {
            tracing::debug!(error, "Connection ended early");
        }
        // The descriptor is now free, and shutdown no longer waits for this connection.
        drop((place, told));
    });
}

/// Serves a connection from its first byte to its last.
async fn converse(
    socket: Socket,
    deadlines: &Deadlines,
    router: &Arc<Router>,
    told: &mut watch::Receiver<bool>,
) -> Result<(), String> {
    let stream = Arc::clone(&socket.stream);
    let Some(web) = router.web().filter(|web| web.is_tls) else {
        let peer = Peer::of(&stream, false);
        return serve_http1(socket, peer, deadlines, router, told).await;
    };
    let handshake = deadlines.before_first_request(handshake::accept(socket, web));
    let encrypted = tokio::select! {
        biased;
        encrypted = handshake => encrypted.map_err(|error| error.to_string())?,
        () = time_to_end(told, deadlines) => return Err(SHUTDOWN_NOTICE.to_owned()),
    };
    let Some(encrypted) = encrypted else { return Ok(()) };
    let peer = Peer::of(&stream, encrypted.is_client_verified);
    let stream = encrypted.stream;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(stream, peer, deadlines, router, told).await
    } else {
        serve_http1(stream, peer, deadlines, router, told).await
    }
}

/// Serves sequential requests.
async fn serve_http1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    deadlines: &Deadlines,
    router: &Arc<Router>,
    told: &mut watch::Receiver<bool>,
) -> Result<(), String> {
    let stream = TimedStream::new(stream, deadlines.clone());
    let service = service_fn(|request| {
        reply(request, peer.clone(), deadlines, deadlines.next_exchange(), router)
    });
    let connection = http1::Builder::new()
        // A client may close its sending side after the request and still read the response.
        .half_close(true)
        .max_header_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_BUFFERED)
        .serve_connection(stream, service);
    let goodbye = http1::Connection::graceful_shutdown;
    run(connection, goodbye, deadlines, told, incomplete_requests(deadlines)).await
}

/// Serves multiplexed requests.
async fn serve_http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    deadlines: &Deadlines,
    router: &Arc<Router>,
    told: &mut watch::Receiver<bool>,
) -> Result<(), String> {
    deadlines.state.lock().is_http2 = true;
    let stream = TimedStream::new(stream, deadlines.clone());
    let (phases, router) = (deadlines.clone(), Arc::clone(router));
    let service = service_fn(move |request| {
        let (peer, phases, router) = (peer.clone(), phases.clone(), Arc::clone(&router));
        async move {
            let exchange = EXCHANGE.try_get().unwrap_or_else(|_| phases.next_exchange());
            reply(request, peer, &phases, exchange, &router).await
        }
    });
    let connection = http2::Builder::new(Exchanges(deadlines.clone()))
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buf_size(MAX_BUFFERED)
        .serve_connection(stream, service);
    let goodbye = http2::Connection::graceful_shutdown;
    run(connection, goodbye, deadlines, told, last_response(deadlines)).await
}

/// Serves a connection until it ends, its deadlines expire, or the server ends: then it says `goodbye` and waits for
/// `last`, too.
async fn run<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    goodbye: impl FnOnce(Pin<&mut C>),
    deadlines: &Deadlines,
    told: &mut watch::Receiver<bool>,
    last: impl Future<Output = ()>,
) -> Result<(), String> {
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        // First, so that a received request is seen before checking whether there is one.
        biased;
        ended = connection.as_mut() => ended,
        () = deadlines.expired() => return Err(SHUTDOWN_NOTICE.to_owned()),
        () = time_to_end(told, deadlines) => {
            goodbye(connection.as_mut());
            tokio::select! {
                biased;
                ended = connection => ended,
                () = deadlines.expired() => return Err(SHUTDOWN_NOTICE.to_owned()),
                () = last => Ok(()),
            }
        }
    };
    ended.map_err(|error| error.to_string())
}

/// Runs each stream of an HTTP/2 connection as a task, until its response has timed out: the stream
/// is then reset, and the resources of the response are freed. A refused stream is reset at once.
#[derive(Clone)]
struct Exchanges(Deadlines);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Exchanges {
    fn execute(&self, stream: F) {
        let deadlines = self.0.clone();
        if deadlines.state.lock().refuses_streams {
            return;
        }
        let exchange = deadlines.next_exchange();
        tokio::spawn(async move {
            tokio::select! {
                // First, so that the client's progress is known.
                biased;
                _ = EXCHANGE.scope(exchange, stream) => {}
                () = deadlines.response_expired(exchange) => {
                    tracing::debug!("A client reads its response too slowly, resetting the stream");
                }
            }
        });
    }
}

/// Answers one request.
async fn reply(
    mut request: hyper::Request<hyper::body::Incoming>,
    peer: Peer,
    deadlines: &Deadlines,
    exchange: u64,
    router: &Router,
) -> Result<Response, Infallible> {
    let has_body = !request.body().is_end_stream();
    let answer = deadlines.answering(exchange, has_body, scrape_timeout(request.headers()));
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(Exchange { number: exchange, deadlines: deadlines.clone() });
    let (head, _) = request.into_parts();
    let response = match host_header::refusal(&head) {
        Some(refusal) => refusal,
        None => router.dispatch(head).await,
    };
    answer.has_head();
    Ok(response.map(|body| body.with_answer(answer)))
}

/// Completes on shutdown, once the connection has had its first request or enough time for it.
async fn time_to_end(told: &mut watch::Receiver<bool>, phases: &Deadlines) {
    // An error means shutdown, too.
    let _ = told.wait_for(|ending| *ending).await;
    let mut enough = pin!(sleep(FIRST_REQUEST));
    poll_fn(|context| {
        let had_request = phases.state.lock().had_request;
        if had_request { Poll::Ready(()) } else { enough.as_mut().poll(context) }
    })
    .await;
}

/// Completes when an incomplete request receives no more data, so that shutdown need not wait for
/// it.
async fn incomplete_requests(phases: &Deadlines) {
    loop {
        sleep(HALF_REQUEST).await;
        if phases.is_request_stalled(HALF_REQUEST) {
            return;
        }
    }
}

/// Completes when the responses of an HTTP/2 connection are sent whose client was told of the end but has not closed it.
/// Further requests are refused: a client may confirm nothing, and send requests for ever.
async fn last_response(deadlines: &Deadlines) {
    sleep(GOODBYE).await;
    deadlines.state.lock().refuses_streams = true;
    while !deadlines.is_quiet(GOODBYE) {
        sleep(GOODBYE / 4).await;
    }
}

/// Refuses a connection without waiting: unsent requests and unread responses are not worth a
/// descriptor.
fn refuse(stream: TcpStream) {
    let Ok(mut stream) = stream.into_std() else { return };
    // Unread input would make the system discard the response.
    let _ = io::Read::read(&mut stream, &mut [0; 4 << 10]);
    let _ = io::Write::write(&mut stream, REFUSAL);
    let _ = stream.shutdown(std::net::Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// The first request of a connection, and a later one.
    #[tokio::test]
    async fn an_incomplete_request_does_not_delay_shutdown() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.set_nonblocking(true).expect("nonblocking");
        let address = listener.local_addr().expect("address");
        let (trigger, shutdown) = oneshot::channel();
        let limits = Limits { read_header: None, write: None, idle: None };
        let hours = Duration::from_secs(36_000);
        let server =
            serve(listener, Arc::new(Router::default()), limits, hours, Share::Http, shutdown);
        let server = tokio::spawn(server);
        let clients = tokio::task::spawn_blocking(move || {
            let connect = || std::net::TcpStream::connect(address).expect("connect");
            let (mut first, mut second) = (connect(), connect());
            second.write_all(b"GET /none HTTP/1.1\r\nHost: test\r\n\r\n").expect("request");
            let answered = second.read(&mut [0; 4 << 10]).expect("answer") > 0;
            for client in [&mut first, &mut second] {
                client.write_all(b"GET /none HTT").expect("half a request");
            }
            (first, second, answered)
        });
        let (mut first, second, answered) = clients.await.expect("clients");
        assert!(answered);
        drop(trigger);
        timeout(Duration::from_secs(60), server)
            .await
            .expect("an end")
            .expect("no panic")
            .expect("ok");
        assert_eq!(first.read(&mut [0; 16]).unwrap_or(0), 0);
        drop(second);
    }

    #[tokio::test]
    async fn a_rejected_client_gets_503() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let mut client = std::net::TcpStream::connect(address).expect("connect");
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").expect("request");
        let (stream, _) = listener.accept().await.expect("accept");
        refuse(stream);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("answer");
        assert_eq!(answer, REFUSAL);
        let body = REFUSAL.rsplit(|byte| *byte == b'\n').nth(1).expect("body");
        assert_eq!(body.len() + 1, 21);
    }
}
