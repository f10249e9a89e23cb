//! The socket of a connection. It counts against the descriptor limit, and records when data last arrived.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, Join, ReadBuf, join};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use crate::kube::client::error::TransportError;
use crate::util::descriptors::{self, Permit, Share};

/// The idle time before the first TCP keepalive probe, and the interval of further probes.
const KEEPALIVE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(10)];
/// `TCP_USER_TIMEOUT`: sent data and keepalive probes must be acknowledged within this time.
const UNACKNOWLEDGED: Duration = Duration::from_secs(45);
/// The size of the read-ahead buffer, in bytes. TLS alone reads 4 KiB at a time.
const READ_AHEAD: usize = 64 * 1024;

/// The activity of a socket, shared with its connection.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    /// When data was last received, in microseconds since `start`.
    heard: AtomicU64,
    /// Reads fill the read-ahead buffer.
    ahead: AtomicBool,
    /// Bytes that may be read until [`Activity::allow`] is next called.
    allowance: AtomicUsize,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            heard: AtomicU64::new(0),
            ahead: AtomicBool::new(false),
            allowance: AtomicUsize::new(usize::MAX),
        }
    }

    /// Returns when data was last received.
    pub(crate) fn heard(&self) -> Instant {
        self.start + Duration::from_micros(self.heard.load(Ordering::Relaxed))
    }

    fn hear(&self) {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.heard.store(now, Ordering::Relaxed);
    }

    /// Enables the read-ahead buffer.
    pub(crate) fn read_ahead(&self) {
        self.ahead.store(true, Ordering::Relaxed);
    }

    /// Sets the number of bytes that may be read before the task yields to others.
    pub(crate) fn allow(&self, bytes: usize) {
        self.allowance.store(bytes, Ordering::Relaxed);
    }
}

/// The bytes that are received and those to send.
pub(crate) type Socket = Join<Receiver<OwnedReadHalf>, OwnedWriteHalf>;

/// The receiving side of a socket.
pub(crate) struct Receiver<R> {
    stream: R,
    activity: Arc<Activity>,
    ahead: Option<Box<Ahead>>,
    _permit: Option<Permit<'static>>,
}

/// A buffer of bytes that were read ahead.
struct Ahead {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

/// Takes a permit for the descriptor of a socket to the API server.
///
/// # Errors
/// No descriptor is left for the API server.
pub(crate) fn permit() -> Result<Permit<'static>, TransportError> {
    let descriptors = descriptors::of_process();
    descriptors.take(Share::ApiServer).ok_or_else(|| {
        // The text is always the same, because only new errors are logged.
        format!(
            "no file descriptor is left for another connection to the API server: the process may have {} \
             open files",
            descriptors.limit
        )
        .into()
    })
}

/// Connects to an address.
///
/// # Errors
/// The connection fails, or a socket option cannot be set.
pub(crate) async fn connect(
    address: SocketAddr,
    permit: Permit<'static>,
    activity: Arc<Activity>,
) -> io::Result<Socket> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let [time, interval] = KEEPALIVE;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(interval))?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    let (stream, sender) = stream.into_split();
    Ok(join(Receiver { stream, activity, ahead: None, _permit: Some(permit) }, sender))
}

/// Wraps a simulated stream.
#[cfg(any(test, fuzzing))]
pub(crate) fn over<S: super::dial::Stream>(
    stream: S,
    activity: Arc<Activity>,
) -> impl super::dial::Stream {
    let (stream, sender) = tokio::io::split(stream);
    join(Receiver { stream, activity, ahead: None, _permit: None }, sender)
}

impl<R: AsyncRead + Unpin> AsyncRead for Receiver<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(ahead) = &mut this.ahead
            && ahead.from < ahead.to
        {
            ahead.hand_out(out);
            return Poll::Ready(Ok(()));
        }
        let allowance = this.activity.allowance.load(Ordering::Relaxed);
        if allowance == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = if this.activity.ahead.load(Ordering::Relaxed) {
            let ahead = this.ahead.get_or_insert_with(|| {
                Box::new(Ahead { buffer: vec![0; READ_AHEAD], from: 0, to: 0 })
            });
            let mut buffer = ReadBuf::new(&mut ahead.buffer);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer))?;
            (ahead.from, ahead.to) = (0, buffer.filled().len());
            ahead.hand_out(out);
            ahead.to
        } else {
            let before = out.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, out))?;
            out.filled().len() - before
        };
        if read > 0 {
            this.activity.hear();
        }
        this.activity.allowance.store(allowance.saturating_sub(read), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl Ahead {
    fn hand_out(&mut self, out: &mut ReadBuf<'_>) {
        let end = self.to.min(self.from + out.remaining());
        out.put_slice(&self.buffer[self.from..end]);
        self.from = end;
    }
}
