//! A socket for datagrams (UDP or Unix): what it holds, batch by batch, and what the kernel dropped.
//!
//! There is no queue: datagrams lie where the kernel put them until they are applied. A read error costs the socket, not
//! the listener: it is counted, what can still be read is, and the socket is closed and opened again. When to read and
//! what becomes of a datagram is the business of [`super::intake`].

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::Socket;

use super::batch::Batch;
use super::net::kernel_drops;
use super::pace::Pace;
use super::stamp::Stamp;
use crate::statsd::metrics::{Listener, Metrics, SocketFacts, bump};

const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Opens the socket, at the start and after a read error.
pub(crate) type Open = Box<dyn Fn() -> io::Result<Socket> + Send>;

/// What scrapes see of a socket.
#[derive(Debug)]
pub(crate) struct Port {
    listener: Listener,
    /// Number among the sockets of this listener.
    number: usize,
    /// None between a read error and the next socket.
    socket: Mutex<Option<Arc<Socket>>>,
    drops: Mutex<Drops>,
}

/// The kernel's 32-bit counter of the present socket, and the sum over all sockets so far.
#[derive(Debug, Default)]
struct Drops {
    seen: u32,
    total: u64,
}

impl Drops {
    /// Takes a counter value; one that is older than the last is ignored.
    fn update(&mut self, counter: u32) {
        let more = counter.wrapping_sub(self.seen);
        if more < 1 << 31 {
            self.seen = counter;
            self.total += u64::from(more);
        }
    }
}

impl Port {
    /// The socket as it is, and what the kernel dropped for it, and those before it, so far.
    pub(crate) fn facts(&self) -> SocketFacts {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut drops = self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = socket.as_deref().and_then(kernel_drops) {
            drops.update(counter);
        }
        SocketFacts {
            listener: self.listener,
            socket: self.number,
            dropped: drops.total,
            receive_buffer: socket.as_deref().and_then(|socket| socket.recv_buffer_size().ok()),
        }
    }

    fn update(&self, counter: u32) {
        self.drops.lock().unwrap_or_else(PoisonError::into_inner).update(counter);
    }

    fn set(&self, socket: Option<Arc<Socket>>) {
        let mut present = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut drops = self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        // The last count of the old one, which the new one begins anew.
        if let Some(counter) = present.as_deref().and_then(kernel_drops) {
            drops.update(counter);
        }
        drops.seen = 0;
        *present = socket;
    }
}

/// A socket as the thread sees it that reads from it.
pub(crate) struct DatagramSource {
    port: Arc<Port>,
    token: Token,
    socket: Option<Arc<Socket>>,
    open: Open,
    batch: Batch,
    pace: Option<Pace>,
    /// The socket may hold more than has been read.
    pub(crate) unread: bool,
    /// A read failed: the socket is done with once it is empty.
    broken: bool,
    retry_at: Option<Instant>,
    pause: Duration,
}

impl std::fmt::Debug for DatagramSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramSource").field("port", &self.port).finish_non_exhaustive()
    }
}

impl DatagramSource {
    /// Takes an open socket that is known to the poll by `token` from here on.
    ///
    /// # Errors
    /// When the poll refuses it.
    pub(crate) fn new(
        listener: Listener,
        number: usize,
        socket: Socket,
        open: Open,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let port = Port { listener, number, socket: Mutex::new(None), drops: Mutex::default() };
        let mut source = Self {
            port: Arc::new(port),
            token,
            socket: None,
            open,
            batch: Batch::new(),
            pace: None,
            unread: false,
            broken: false,
            retry_at: None,
            pause: FIRST_RETRY,
        };
        source.adopt(socket, registry)?;
        Ok(source)
    }

    fn adopt(&mut self, socket: Socket, registry: &Registry) -> io::Result<()> {
        registry.register(&mut SourceFd(&socket.as_raw_fd()), self.token, Interest::READABLE)?;
        let socket = Arc::new(socket);
        // None for a Unix socket: its queue is a few datagrams, and its senders wait or fail while it is full.
        let buffer = socket.recv_buffer_size().ok().filter(|_| self.listener() == Listener::Udp);
        self.pace = buffer.map(|buffer| Pace::new(buffer, Instant::now()));
        self.port.set(Some(Arc::clone(&socket)));
        self.socket = Some(socket);
        self.unread = true;
        Ok(())
    }

    /// What scrapes see of it.
    pub(crate) fn port(&self) -> Arc<Port> {
        Arc::clone(&self.port)
    }

    pub(crate) fn listener(&self) -> Listener {
        self.port.listener
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// When the next datagram that has been read came.
    pub(crate) fn next_stamp(&self) -> Option<Stamp> {
        self.batch.next_stamp()
    }

    /// Whether every datagram that has been read is taken.
    pub(crate) fn is_done(&self) -> bool {
        self.batch.is_done()
    }

    /// Takes the next datagram that has been read, with the address of its sender if that has one.
    pub(crate) fn take(&mut self) -> Option<(&[u8], Option<IpAddr>)> {
        self.batch.take()
    }

    /// When a socket that failed is to be opened again.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Reads the next batch; every datagram of the one before must have been taken. Afterwards [`Self::unread`] tells
    /// whether there may be another. What comes back is how long to stay away from the socket, once it is empty.
    pub(crate) fn read(&mut self, metrics: &Metrics, registry: &Registry) -> Option<Duration> {
        self.unread = false;
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
            self.reopen(registry);
        }
        let socket = self.socket.as_ref()?;
        match self.batch.receive(socket) {
            Ok(count) => {
                self.pause = FIRST_RETRY;
                // Less than fits is all there was.
                self.unread = self.batch.is_full() || self.broken;
                if let Some(counter) = self.batch.drops() {
                    self.port.update(counter);
                }
                let truncated = self.batch.truncated() as u64;
                if let Some(counter) = metrics.truncated.get(self.listener() as usize) {
                    counter.fetch_add(truncated, Ordering::Relaxed);
                }
                let (bytes, more) = (self.batch.bytes(), self.unread);
                self.pace.as_mut()?.after(count, bytes, more, Instant::now())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.broken {
                    self.close(registry);
                }
                self.pace.as_mut()?.empty(Instant::now())
            }
            Err(error) => {
                if let Some(counter) = metrics.read_errors.get(self.listener() as usize) {
                    bump(counter);
                }
                tracing::error!(listener = self.listener().as_str(), %error, "reading failed, opening the socket again");
                if self.broken {
                    self.close(registry);
                } else {
                    // What it holds is read first.
                    (self.broken, self.unread) = (true, true);
                }
                None
            }
        }
    }

    /// Closes the socket, since a new one cannot be bound beside it, and has it opened after a pause.
    fn close(&mut self, registry: &Registry) {
        if let Some(socket) = self.socket.take() {
            let _ = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
        self.port.set(None);
        self.broken = false;
        self.retry();
    }

    fn retry(&mut self) {
        // A socket that fails at once must not make the thread spin.
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LAST_RETRY);
    }

    fn reopen(&mut self, registry: &Registry) {
        if let Err(error) = (self.open)().and_then(|socket| self.adopt(socket, registry)) {
            tracing::error!(listener = self.listener().as_str(), %error, "the socket cannot be opened, trying again");
            self.retry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counter_may_wrap_and_may_come_late() {
        let mut drops = Drops::default();
        drops.update(5);
        drops.update(3);
        assert_eq!(drops.total, 5);
        drops.update(u32::MAX / 2);
        drops.update(u32::MAX - 1);
        drops.update(4);
        assert_eq!(drops.total, u64::from(u32::MAX) + 5);
    }
}
