//! Accepting connections and answering on them until the process is told to end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Body as _;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::admission::{self, Place};
use super::connection::{Deadlines, Limits, Peer, TimedStream};
use super::handshake;
use super::response::Response;
use super::router::Router;
use super::shutdown::Shutdown;
use super::socket::Socket;
use super::validity;

/// Largest request head, start line included.
const MAX_HEAD: usize = 64 << 10;

/// What hyper may buffer of one response before it waits for the socket: two frames. More would save calls of the system, and
/// each slow reader holds it.
const MAX_BUFFERED: usize = 80 << 10;

/// Requests that one HTTP/2 connection may have under way, as in Go's server.
const MAX_STREAMS: u32 = 250;

/// When the system asks whether a silent peer is still there, how often it repeats the question, and after
/// how many unanswered ones it ends the connection; as Go's server has it.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(15))
    .with_retries(9);

/// What a client gets for which there is no room.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Connection: close\r\nContent-Length: 21\r\n\r\nToo many connections\n";

/// How long the first request of a connection may be on its way when the server ends. To close one before it
/// was answered at all would look like a server that is down.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// How long nothing may come of a request that has begun when the server ends.
const HALF_REQUEST: Duration = Duration::from_millis(500);

/// Pauses after a failed accept: long enough not to spin while descriptors are short, short enough
/// to be back at once when they are not.
const ACCEPT_PAUSE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(5)..=Duration::from_secs(1);

/// Serves `listener` until `shutdown`, then lets answers in flight finish for at most `grace`.
///
/// # Errors
///
/// When the runtime cannot take over the socket. Errors while accepting are logged and retried.
pub async fn serve(
    listener: TcpListener,
    router: Arc<Router>,
    limits: Limits,
    grace: Duration,
    shutdown: Shutdown,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (ending, told) = watch::channel(false);
    let mut stop = pin!(shutdown.wait());
    let mut pause = *ACCEPT_PAUSE.start();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = *ACCEPT_PAUSE.start();
                let deadlines = Deadlines::new(limits);
                // Whoever was accepted gets an answer, also while the server ends.
                match admission::of_process().admit(&deadlines).await {
                    Some(place) => answer(stream, deadlines, place, &router, told.clone()),
                    None => refuse(stream),
                }
            }
            // The client was gone before its turn; the next one is not affected.
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, retry_in = ?pause, "cannot accept connections");
                tokio::select! {
                    () = sleep(pause) => {}
                    () = &mut stop => break,
                }
                pause = (pause * 2).min(*ACCEPT_PAUSE.end());
            }
        }
    }
    // The port is free for a successor while old answers finish.
    drop((listener, told));
    ending.send_replace(true);
    if timeout(grace, ending.closed()).await.is_err() {
        tracing::warn!(?grace, "connections still open at shutdown were cut");
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
    place: Place<'static>,
    router: &Arc<Router>,
    mut told: watch::Receiver<bool>,
) {
    // Only latency suffers when this fails.
    let _ = stream.set_nodelay(true);
    // Without it the other limits still end a connection whose peer has vanished, only later.
    let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
    let (socket, router) = (Socket::new(stream), Arc::clone(router));
    tokio::spawn(async move {
        if let Err(error) = converse(socket, &deadlines, &router, &mut told).await {
            tracing::debug!(error, "connection ended early");
        }
        // Only now is its descriptor free for another, and nobody has to wait for it any more.
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
    let peer = Peer::of(socket.stream());
    let Some(web) = router.web().filter(|web| web.is_tls()) else {
        return serve_http1(socket, peer, deadlines, router, told).await;
    };
    let handshake = deadlines.before_requests(handshake::accept(socket, web));
    let Some(stream) = handshake.await.map_err(|error| error.to_string())? else { return Ok(()) };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(stream, peer, deadlines, router, told).await
    } else {
        serve_http1(stream, peer, deadlines, router, told).await
    }
}

/// Answers one request after the other.
async fn serve_http1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    deadlines: &Deadlines,
    router: &Arc<Router>,
    told: &mut watch::Receiver<bool>,
) -> Result<(), String> {
    let stream = TimedStream::new(stream, deadlines.clone());
    let service = service_fn(|request| reply(request, peer.clone(), deadlines, router));
    let connection = http1::Builder::new()
        // A client may close its sending side after the request and still read the answer.
        .half_close(true)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_BUFFERED)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        // First, so that a request that has come is seen before the question whether there is one.
        biased;
        ended = connection.as_mut() => ended,
        () = time_to_end(told, deadlines) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = left_half(deadlines) => Ok(()),
            }
        }
    };
    ended.map_err(|error| error.to_string())
}

/// Answers requests side by side.
async fn serve_http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    deadlines: &Deadlines,
    router: &Arc<Router>,
    told: &mut watch::Receiver<bool>,
) -> Result<(), String> {
    deadlines.speaks_http2();
    let stream = TimedStream::new(stream, deadlines.clone());
    let (phases, router) = (deadlines.clone(), Arc::clone(router));
    let service = service_fn(move |request| {
        let (peer, phases, router) = (peer.clone(), phases.clone(), Arc::clone(&router));
        async move { reply(request, peer, &phases, &router).await }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buf_size(MAX_BUFFERED)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = time_to_end(told, deadlines) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    ended.map_err(|error| error.to_string())
}

/// The answer to one request.
async fn reply(
    mut request: hyper::Request<hyper::body::Incoming>,
    peer: Peer,
    deadlines: &Deadlines,
    router: &Router,
) -> Result<Response, Infallible> {
    let answer = deadlines.answering(!request.body().is_end_stream());
    request.extensions_mut().insert(peer);
    let (head, _) = request.into_parts();
    let response = match validity::refusal(&head) {
        Some(refusal) => refusal,
        None => router.dispatch(head).await,
    };
    Ok(response.map(|body| body.hold(answer)))
}

/// Completes when the server ends and the connection has had its first request, or enough time for it.
async fn time_to_end(told: &mut watch::Receiver<bool>, phases: &Deadlines) {
    // An error says that the server has ended, too.
    let _ = told.wait_for(|ending| *ending).await;
    let mut enough = pin!(sleep(FIRST_REQUEST));
    poll_fn(|context| match phases.had_request() {
        true => Poll::Ready(()),
        false => enough.as_mut().poll(context),
    })
    .await;
}

/// Completes when nothing more comes of a request that has begun: the process need not wait for it.
async fn left_half(phases: &Deadlines) {
    loop {
        sleep(HALF_REQUEST).await;
        if phases.is_left_half(HALF_REQUEST) {
            return;
        }
    }
}

/// Says that there is no room. Nothing is waited for: what the client has not sent, or does not take, by now
/// is not worth a descriptor.
fn refuse(stream: TcpStream) {
    let Ok(mut stream) = stream.into_std() else { return };
    // Bytes that nobody has read would make the system discard the answer.
    let _ = io::Read::read(&mut stream, &mut [0; 4 << 10]);
    let _ = io::Write::write(&mut stream, REFUSAL);
    let _ = stream.shutdown(std::net::Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// The first request of a connection, and one after another.
    #[tokio::test]
    async fn half_a_request_does_not_hold_up_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.set_nonblocking(true).expect("nonblocking");
        let address = listener.local_addr().expect("address");
        let (trigger, shutdown) = super::super::shutdown::switch();
        let limits = Limits { read_header: None, write: None, idle: None };
        let hours = Duration::from_secs(36_000);
        let server = serve(listener, Arc::new(Router::default()), limits, hours, shutdown);
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
    async fn a_refused_client_is_told_so() {
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
