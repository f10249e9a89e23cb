//! A UDP or Unix datagram socket, its batches and its drop counter.
//!
//! There is no queue: datagrams stay in the receive buffer until they are applied. After a read error, which
//! is counted, the socket is read until it is empty, then closed and opened again. The listener survives.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::Socket;

use super::batch::Batch;
use super::net::kernel_drops;
use super::wakeup_batcher::WakeupBatcher;
use crate::statsd::metrics::{Listener, Metrics, SocketStats, bump};
use crate::util::lock::Lock;

const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Opens the socket, at startup and after a read error.
pub(crate) type OpenSocket = Box<dyn Fn() -> io::Result<Socket> + Send>;

/// The state of a socket that is visible to scrapes.
#[derive(Debug)]
pub(crate) struct SocketState {
    listener: Listener,
    /// The index among the sockets of this listener.
    number: usize,
    current: Lock<CurrentSocket>,
}

/// A socket, and the datagrams that it and those before it have dropped.
#[derive(Debug, Default)]
struct CurrentSocket {
    /// `None` after a read error until a new socket is open.
    socket: Option<Arc<Socket>>,
    /// The kernel's 32-bit counter of the socket when it was last read.
    seen: u32,
    dropped: u64,
}

impl CurrentSocket {
    /// Reads the counter of the socket.
    fn count_drops(&mut self) {
        if let Some(counter) = self.socket.as_deref().and_then(kernel_drops) {
            self.update(counter);
        }
    }

    fn update(&mut self, counter: u32) {
        self.dropped += u64::from(counter.wrapping_sub(self.seen));
        self.seen = counter;
    }
}

impl SocketState {
    /// Returns the state of the socket and the drops of this and earlier sockets.
    pub(crate) fn facts(&self) -> SocketStats {
        let mut current = self.current.lock();
        current.count_drops();
        let socket = current.socket.as_deref();
        SocketStats {
            listener: self.listener,
            socket: self.number,
            dropped: current.dropped,
            receive_buffer: socket.and_then(|socket| socket.recv_buffer_size().ok()),
        }
    }

    fn set(&self, socket: Option<Arc<Socket>>) {
        let mut current = self.current.lock();
        // The final count of the old socket. The counter of the new one starts at 0.
        current.count_drops();
        (current.socket, current.seen) = (socket, 0);
    }
}

/// The state of a socket in its receiving thread.
pub(crate) struct DatagramSource {
    state: Arc<SocketState>,
    token: Token,
    socket: Option<Arc<Socket>>,
    open: OpenSocket,
    /// The datagrams received last.
    pub(crate) batch: Batch,
    batcher: Option<WakeupBatcher>,
    /// True if the socket may contain unread datagrams.
    pub(crate) has_more: bool,
    /// True after a read error. The socket is closed once it is empty.
    is_broken: bool,
    /// The time at which a failed socket will be opened again.
    pub(crate) retry_at: Option<Instant>,
    pause: Duration,
}

impl DatagramSource {
    /// Registers an open socket with `token`.
    ///
    /// # Errors
    /// Fails if the socket cannot be registered or examined.
    pub(crate) fn new(
        listener: Listener,
        number: usize,
        socket: Socket,
        open: OpenSocket,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let credentials = listener != Listener::Udp && socket.passcred()?;
        let state = SocketState { listener, number, current: Lock::default() };
        let mut source = Self {
            state: Arc::new(state),
            token,
            socket: None,
            open,
            batch: Batch::new(credentials),
            batcher: None,
            has_more: false,
            is_broken: false,
            retry_at: None,
            pause: FIRST_RETRY,
        };
        source.register_socket(socket, registry)?;
        Ok(source)
    }

    fn register_socket(&mut self, socket: Socket, registry: &Registry) -> io::Result<()> {
        registry.register(&mut SourceFd(&socket.as_raw_fd()), self.token, Interest::READABLE)?;
        let socket = Arc::new(socket);
        // A Unix socket is not delayed: its queue holds a few datagrams, and its senders block or fail while
        // it is full.
        let buffer = socket.recv_buffer_size().ok().filter(|_| self.listener() == Listener::Udp);
        self.batcher = buffer.map(|buffer| WakeupBatcher::new(buffer, Instant::now()));
        self.state.set(Some(Arc::clone(&socket)));
        self.socket = Some(socket);
        self.has_more = true;
        Ok(())
    }

    /// Returns the state for scrapes.
    pub(crate) fn state(&self) -> Arc<SocketState> {
        Arc::clone(&self.state)
    }

    pub(crate) fn listener(&self) -> Listener {
        self.state.listener
    }

    /// Returns true if there may be datagrams that have not been taken.
    pub(crate) fn is_ready(&self) -> bool {
        self.has_more || !self.batch.is_done()
    }

    /// Receives the next batch. Every datagram of the previous one must have been taken. Sets
    /// [`Self::has_more`] if there may be more. If the socket is empty, returns the pause before the
    /// next read.
    pub(crate) fn read(&mut self, metrics: &Metrics, registry: &Registry) -> Option<Duration> {
        self.has_more = false;
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
            self.reopen(registry);
        }
        let socket = self.socket.as_ref()?;
        match self.batch.receive(socket) {
            Ok(count) => {
                self.pause = FIRST_RETRY;
                // A batch that is not full contained everything.
                self.has_more = self.batch.is_full() || self.is_broken;
                let truncated = self.batch.truncated() as u64;
                metrics.truncated[self.listener() as usize].fetch_add(truncated, Ordering::Relaxed);
                let (bytes, more) = (self.batch.bytes(), self.has_more);
                self.batcher.as_mut()?.record_read(count, bytes, more, Instant::now())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.is_broken {
                    self.close(registry);
                }
                self.batcher.as_mut()?.record_empty(Instant::now())
            }
            Err(error) => {
                bump(&metrics.read_errors[self.listener() as usize]);
                tracing::error!(listener = self.listener().as_str(), %error, "Read failed, reopening the socket");
                if self.is_broken {
                    self.close(registry);
                } else {
                    // Datagrams in the receive buffer are read first.
                    (self.is_broken, self.has_more) = (true, true);
                }
                None
            }
        }
    }

    /// Closes the socket and schedules a new one. A new one cannot be bound while the old one is open.
    fn close(&mut self, registry: &Registry) {
        if let Some(socket) = self.socket.take() {
            let _ = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
        self.state.set(None);
        self.is_broken = false;
        self.retry();
    }

    fn retry(&mut self) {
        // Avoids a busy loop if the socket fails immediately.
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LAST_RETRY);
    }

    fn reopen(&mut self, registry: &Registry) {
        if let Err(error) = (self.open)().and_then(|socket| self.register_socket(socket, registry))
        {
            tracing::error!(listener = self.listener().as_str(), %error, "Cannot open the socket, retrying");
            self.retry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_counter_may_wrap() {
        let mut current = CurrentSocket::default();
        current.update(5);
        assert_eq!(current.dropped, 5);
        current.update(u32::MAX - 1);
        current.update(4);
        assert_eq!(current.dropped, u64::from(u32::MAX) + 5);
    }
}
