//! Accepting connections and answering on them until the process is told to end.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::connection::{Deadlines, Limits, TimedStream};
use super::router::Router;
use super::shutdown::Shutdown;
use super::validity;

/// Largest request head, start line included.
const MAX_HEAD: usize = 64 << 10;

/// What hyper may buffer of one response before it waits for the socket.
const MAX_BUFFERED: usize = 256 << 10;

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
    let graceful = GracefulShutdown::new();
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
                answer(stream, &router, limits, &graceful);
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
    drop(listener);
    if timeout(grace, graceful.shutdown()).await.is_err() {
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

fn answer(stream: TcpStream, router: &Arc<Router>, limits: Limits, graceful: &GracefulShutdown) {
    // Only latency suffers when this fails.
    let _ = stream.set_nodelay(true);
    let deadlines = Deadlines::new(limits);
    let router = Arc::clone(router);
    let phases = deadlines.clone();
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let answer = phases.answering();
        let router = Arc::clone(&router);
        async move {
            let (head, _) = request.into_parts();
            let response = match validity::refusal(&head) {
                Some(refusal) => refusal,
                None => router.dispatch(head).await,
            };
            Ok::<_, Infallible>(response.map(|body| body.hold(answer)))
        }
    });
    let connection = http1::Builder::new()
        // A client may close its sending side after the request and still read the answer.
        .half_close(true)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_BUFFERED)
        .serve_connection(TimedStream::new(stream, deadlines), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended early");
        }
    });
}
