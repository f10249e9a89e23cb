//! The relay: a copy of every line to another StatsD server, over UDP.
//!
//! Ingest threads hand over whole batches of lines and never wait: if the queue is full the batch is dropped and
//! counted. One thread packs lines into datagrams and sends them. A failed send costs its datagram; after it the
//! target is looked up and a socket opened anew, at a growing interval while that fails.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::metrics::bump;
use super::supervise;

/// Lines waiting to be sent, in bytes.
const QUEUE_BYTES: usize = 8 << 20;
/// How long a datagram waits to be filled.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Where to relay to.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// `host:port`, as given: the label `target`.
    pub address: String,
    /// `host:port` to look up, with a numeric port.
    pub target: String,
    /// Longest datagram in bytes; 0 sends each line alone.
    pub packet_length: usize,
}

/// Lines of one batch, each with its line feed.
#[derive(Debug, Default)]
pub(crate) struct RelayBatch {
    text: Vec<u8>,
    lines: u64,
}

impl RelayBatch {
    pub(crate) fn push(&mut self, line: &[u8]) {
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        self.lines += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines == 0
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }
}

/// The ingest side of the relay.
#[derive(Debug)]
pub(crate) struct Relay {
    target: String,
    packet_length: usize,
    /// Gone once the relay is being shut down.
    queue: Mutex<Option<Sender<Vec<u8>>>>,
    queued: Arc<AtomicUsize>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) counts: Arc<RelayCounts>,
}

/// What the sending thread counts.
#[derive(Debug, Default)]
pub(crate) struct RelayCounts {
    /// Datagrams sent, failed ones included.
    pub(crate) packets: std::sync::atomic::AtomicU64,
    /// Failed sends and failed look-ups.
    pub(crate) errors: std::sync::atomic::AtomicU64,
    /// Lines of datagrams that were not sent.
    pub(crate) lost_lines: std::sync::atomic::AtomicU64,
    /// Panics of that thread.
    pub(crate) restarts: std::sync::atomic::AtomicU64,
}

impl Relay {
    /// Looks the target up and starts the sending thread.
    ///
    /// # Errors
    /// When the target cannot be looked up now, or no thread can be started.
    pub(crate) fn start(config: &RelayConfig) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let counts = Arc::new(RelayCounts::default());
        let mut outlet = Outlet {
            target: config.target.clone(),
            packet_length: config.packet_length,
            connection: Some(connect(&config.target)?),
            retry_after: FIRST_RETRY,
            retry_at: Instant::now(),
            packet: Vec::new(),
            lines: 0,
            counts: Arc::clone(&counts),
        };
        let left = Arc::clone(&queued);
        let restarts = Arc::clone(&counts);
        let thread = supervise::spawn(
            "statsd-relay",
            move || bump(&restarts.restarts),
            move || outlet.run(&receiver, &left),
        )?;
        Ok(Self {
            target: config.address.clone(),
            packet_length: config.packet_length,
            queue: Mutex::new(Some(sender)),
            queued,
            thread: Mutex::new(Some(thread)),
            counts,
        })
    }

    /// The target as given.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Whether a line and its line feed fit into a datagram.
    pub(crate) fn fits(&self, line: &[u8]) -> bool {
        self.packet_length == 0 || line.len() < self.packet_length
    }

    /// Hands a batch over; `false` if the queue is full and the batch is dropped.
    pub(crate) fn send(&self, batch: RelayBatch) -> bool {
        let length = batch.text.len();
        let before = self.queued.fetch_add(length, Ordering::Relaxed);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = before + length <= QUEUE_BYTES
            && queue.as_ref().is_some_and(|queue| queue.send(batch.text).is_ok());
        if !taken {
            self.queued.fetch_sub(length, Ordering::Relaxed);
        }
        taken
    }

    /// Sends what is queued and ends the thread.
    pub(crate) fn shutdown(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the relay thread panicked");
        }
    }
}

struct Connection {
    socket: UdpSocket,
    target: SocketAddr,
}

fn connect(address: &str) -> io::Result<Connection> {
    // Without a host it is this one, as in Go's resolver.
    let named =
        if address.starts_with(':') { format!("localhost{address}") } else { address.into() };
    let target = named.to_socket_addrs()?.next().ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"))
    })?;
    let local: SocketAddr =
        if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    // Not connected: a target that is down for a while must not turn into errors of ours.
    Ok(Connection { socket: UdpSocket::bind(local)?, target })
}

/// The sending thread.
struct Outlet {
    target: String,
    packet_length: usize,
    connection: Option<Connection>,
    retry_after: Duration,
    retry_at: Instant,
    packet: Vec<u8>,
    /// Lines in the packet.
    lines: u64,
    counts: Arc<RelayCounts>,
}

impl Outlet {
    fn run(&mut self, queue: &Receiver<Vec<u8>>, queued: &AtomicUsize) {
        let mut flush_at = None;
        loop {
            // With nothing to flush there is nothing to wake up for.
            let next = match flush_at {
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => {
                    queue.recv_timeout(Instant::saturating_duration_since(&at, Instant::now()))
                }
            };
            match next {
                Ok(lines) => {
                    queued.fetch_sub(lines.len(), Ordering::Relaxed);
                    for line in lines.split_inclusive(|byte| *byte == b'\n') {
                        self.add(line);
                    }
                    flush_at = match (self.packet.is_empty(), flush_at) {
                        (true, _) => None,
                        (false, Some(at)) => Some(at),
                        (false, None) => Some(Instant::now() + FLUSH_AFTER),
                    };
                    if flush_at.is_some_and(|at| at <= Instant::now()) {
                        self.flush();
                        flush_at = None;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.flush();
                    flush_at = None;
                }
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
        }
    }

    fn add(&mut self, line: &[u8]) {
        if !self.packet.is_empty() && self.packet.len() + line.len() > self.packet_length {
            self.flush();
        }
        self.packet.extend_from_slice(line);
        self.lines += 1;
        if self.packet_length == 0 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.packet.is_empty() {
            return;
        }
        bump(&self.counts.packets);
        if self.connection.is_none() && Instant::now() >= self.retry_at {
            match connect(&self.target) {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => self.failed(&error),
            }
        }
        let sent = match &self.connection {
            Some(connection) => connection.socket.send_to(&self.packet, connection.target),
            // Between two attempts; the failed one has been counted.
            None => Ok(0),
        };
        match sent {
            Ok(0) => self.lose(),
            Ok(_) => self.retry_after = FIRST_RETRY,
            Err(error) => {
                self.connection = None;
                self.failed(&error);
                self.lose();
            }
        }
        self.packet.clear();
        self.lines = 0;
    }

    fn lose(&self) {
        self.counts.lost_lines.fetch_add(self.lines, Ordering::Relaxed);
    }

    /// Counts a failure and sets the time of the next attempt.
    fn failed(&mut self, error: &io::Error) {
        bump(&self.counts.errors);
        tracing::warn!(
            target_address = %self.target,
            %error,
            bytes = self.packet.len(),
            "relaying failed, next attempt in {:?}",
            self.retry_after
        );
        self.retry_at = Instant::now() + self.retry_after;
        self.retry_after = (self.retry_after * 2).min(LAST_RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lines: &[&str]) -> RelayBatch {
        let mut batch = RelayBatch::default();
        for line in lines {
            batch.push(line.as_bytes());
        }
        batch
    }

    fn receiver() -> (UdpSocket, String) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        let address = socket.local_addr().expect("address").to_string();
        (socket, address)
    }

    fn next(socket: &UdpSocket) -> String {
        let mut buffer = [0; 65_535];
        let length = socket.recv(&mut buffer).expect("a datagram");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn lines_are_packed_and_the_rest_goes_at_shutdown() {
        let (socket, address) = receiver();
        let relay =
            Relay::start(&RelayConfig { target: address.clone(), address, packet_length: 20 })
                .expect("started");
        assert!(relay.send(batch(&["aaaa:1|c", "bbbb:1|c", "cccc:1|c"])));
        assert_eq!(next(&socket), "aaaa:1|c\nbbbb:1|c\n");
        relay.shutdown();
        assert_eq!(next(&socket), "cccc:1|c\n");
        assert_eq!(relay.counts.packets.load(Ordering::Relaxed), 2);
        assert!(!relay.send(batch(&["late:1|c"])));
    }

    #[test]
    fn the_rest_goes_after_a_second_by_itself() {
        let (socket, address) = receiver();
        let relay =
            Relay::start(&RelayConfig { target: address.clone(), address, packet_length: 1_400 })
                .expect("started");
        relay.send(batch(&["a:1|c"]));
        assert_eq!(next(&socket), "a:1|c\n");
        relay.shutdown();
    }

    #[test]
    fn length_0_sends_each_line_alone() {
        let (socket, address) = receiver();
        let relay =
            Relay::start(&RelayConfig { target: address.clone(), address, packet_length: 0 })
                .expect("started");
        assert!(relay.fits(&[b'x'; 100_000]));
        relay.send(batch(&["a:1|c", "b:1|c"]));
        assert_eq!([next(&socket), next(&socket)], ["a:1|c\n", "b:1|c\n"]);
        relay.shutdown();
    }

    #[test]
    fn a_failed_send_is_survived() {
        let (socket, address) = receiver();
        // Longer than any UDP datagram: the send fails.
        let relay =
            Relay::start(&RelayConfig { target: address.clone(), address, packet_length: 100_000 })
                .expect("started");
        let long = "x".repeat(70_000);
        assert!(relay.send(batch(&[&long])));
        assert!(relay.send(batch(&[&"y".repeat(60_000)])));
        let deadline = Instant::now() + Duration::from_secs(20);
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("timeout");
        let mut buffer = [0; 65_535];
        let received = loop {
            relay.send(batch(&[&"z".repeat(60_000)]));
            match socket.recv(&mut buffer) {
                Ok(_) => break true,
                Err(_) if Instant::now() < deadline => {}
                Err(_) => break false,
            }
        };
        assert!(received, "the relay sends again after a failure");
        assert!(relay.counts.errors.load(Ordering::Relaxed) >= 1);
        // The long line went with the datagram that failed, perhaps others while there was no socket.
        assert!(relay.counts.lost_lines.load(Ordering::Relaxed) >= 1);
        relay.shutdown();
    }

    #[test]
    fn a_full_queue_drops_and_does_not_wait() {
        let relay = Relay {
            target: String::new(),
            packet_length: 1_400,
            queue: Mutex::new(None),
            queued: Arc::new(AtomicUsize::new(QUEUE_BYTES)),
            thread: Mutex::new(None),
            counts: Arc::default(),
        };
        let (sender, receiver) = channel();
        *relay.queue.lock().expect("lock") = Some(sender);
        assert!(!relay.send(batch(&["a:1|c"])));
        relay.queued.store(0, Ordering::Relaxed);
        assert!(relay.send(batch(&["a:1|c"])));
        assert_eq!(receiver.try_recv().expect("queued"), b"a:1|c\n");
    }

    #[test]
    fn an_unknown_target_is_an_error_at_start() {
        let error = Relay::start(&RelayConfig {
            address: "no-port".into(),
            target: "no-port".into(),
            packet_length: 1,
        });
        assert!(error.is_err());
    }
}
