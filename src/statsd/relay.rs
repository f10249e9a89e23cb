//! The relay: a copy of every line to another StatsD server, over UDP.
//!
//! Ingest threads hand over whole batches of lines and never wait: if the queue is full the batch is dropped and
//! counted. One thread ([`Outlet::run`]) packs lines into datagrams and sends them. Every line that was handed over is in
//! the end counted once, as relayed or as dropped.
//!
//! The socket is connected, so that the kernel says when nobody listens at the target. It says so after the fact: the
//! fate of a datagram is only known when the next one goes, or after [`SETTLE_AFTER`]. A failure costs its own datagram and
//! nothing else; while there are failures the target is looked up anew, at growing intervals.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::metrics::counters::bump;
use super::supervise;

/// What waits to be sent, in bytes.
const QUEUE_BYTES: usize = 8 << 20;
/// What a batch costs beside its text.
const BATCH_BYTES: usize = 64;
/// How long a datagram waits to be filled.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// How long a target has to refuse a datagram.
const SETTLE_AFTER: Duration = Duration::from_secs(1);
const FIRST_LOOKUP: Duration = Duration::from_millis(100);
const LAST_LOOKUP: Duration = Duration::from_secs(30);

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

    fn cost(&self) -> usize {
        self.text.len() + BATCH_BYTES
    }
}

/// The ingest side of the relay.
#[derive(Debug)]
pub(crate) struct Relay {
    target: String,
    packet_length: usize,
    /// Gone once the relay is being shut down.
    queue: Mutex<Option<Sender<RelayBatch>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) counts: Arc<RelayCounts>,
}

/// What the relay counts. Lines handed over are those relayed, those dropped, and those that are on their way.
#[derive(Debug, Default)]
pub(crate) struct RelayCounts {
    /// Lines of datagrams that were sent and not refused.
    pub(crate) relayed_lines: AtomicU64,
    /// Lines that found the queue full, and lines of datagrams that could not be sent or were refused.
    pub(crate) dropped_lines: AtomicU64,
    /// Datagrams sent, failed ones included.
    pub(crate) packets: AtomicU64,
    /// Failed sends, refusals, and failed look-ups.
    pub(crate) errors: AtomicU64,
    /// Panics of the sending thread.
    pub(crate) restarts: AtomicU64,
    /// Cost of what is in the queue.
    queued: AtomicUsize,
}

impl Relay {
    /// Looks the target up and starts the sending thread.
    ///
    /// # Errors
    /// When the target cannot be looked up now, or no thread can be started.
    pub(crate) fn start(config: &RelayConfig) -> io::Result<Self> {
        let (relay, mut outlet) = Self::new(config)?;
        let restarts = Arc::clone(&relay.counts);
        let thread = supervise::spawn(
            "statsd-relay",
            move || bump(&restarts.restarts),
            move || outlet.run(),
        )?;
        *relay.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(relay)
    }

    /// Both ends, without a thread that sends.
    ///
    /// # Errors
    /// When the target cannot be looked up now.
    fn new(config: &RelayConfig) -> io::Result<(Self, Outlet)> {
        let (sender, queue) = channel();
        let counts = Arc::new(RelayCounts::default());
        let outlet = Outlet {
            queue,
            target: config.target.clone(),
            packet_length: config.packet_length,
            peer: look_up(&config.target)?,
            socket: None,
            lookup: Lookup { after: FIRST_LOOKUP, not_before: Instant::now() },
            failing: false,
            batch: RelayBatch::default(),
            read: 0,
            packet: Vec::new(),
            lines: 0,
            flush_at: None,
            sent: None,
            counts: Arc::clone(&counts),
        };
        let relay = Self {
            target: config.address.clone(),
            packet_length: config.packet_length,
            queue: Mutex::new(Some(sender)),
            thread: Mutex::new(None),
            counts,
        };
        Ok((relay, outlet))
    }

    /// The target as given.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Whether a line and its line feed fit into a datagram.
    pub(crate) fn fits(&self, line: &[u8]) -> bool {
        self.packet_length == 0 || line.len() < self.packet_length
    }

    /// Hands a batch over; `false` if the queue is full, and the batch is dropped and counted.
    pub(crate) fn send(&self, batch: RelayBatch) -> bool {
        let (cost, lines) = (batch.cost(), batch.lines);
        let before = self.counts.queued.fetch_add(cost, Ordering::Relaxed);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = before + cost <= QUEUE_BYTES
            && queue.as_ref().is_some_and(|queue| queue.send(batch).is_ok());
        if !taken {
            self.counts.queued.fetch_sub(cost, Ordering::Relaxed);
            self.counts.dropped_lines.fetch_add(lines, Ordering::Relaxed);
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

/// The address of a target.
fn look_up(target: &str) -> io::Result<SocketAddr> {
    // Without a host it is this one, as in Go's resolver.
    let named = if target.starts_with(':') { format!("localhost{target}") } else { target.into() };
    let found: Vec<SocketAddr> = named.to_socket_addrs()?.collect();
    // A name with addresses of both families is one of IPv4, as there.
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen
        .copied()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{target} has no address")))
}

/// A socket that sends to `peer` and hears of refusals.
fn open(peer: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr =
        if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(local)?;
    // Port 0 is nobody's: each send will say so.
    if peer.port() != 0 {
        socket.connect(peer)?;
    }
    Ok(socket)
}

/// When the target may be looked up again.
#[derive(Debug)]
struct Lookup {
    after: Duration,
    not_before: Instant,
}

/// A datagram whose fate is not known yet.
#[derive(Debug)]
struct Sent {
    lines: u64,
    settle_at: Instant,
}

/// The sending end. It keeps all its state, so that after a panic [`Outlet::run`] goes on with the next line.
#[derive(Debug)]
pub(crate) struct Outlet {
    queue: Receiver<RelayBatch>,
    target: String,
    packet_length: usize,
    /// The target's address, as looked up last.
    peer: SocketAddr,
    /// None before the first datagram, and after a failure that another socket may not have.
    socket: Option<UdpSocket>,
    lookup: Lookup,
    /// The last datagram was lost.
    failing: bool,
    /// What was taken from the queue last, and the bytes of it that are in datagrams.
    batch: RelayBatch,
    read: usize,
    packet: Vec<u8>,
    /// Lines in the packet.
    lines: u64,
    flush_at: Option<Instant>,
    sent: Option<Sent>,
    counts: Arc<RelayCounts>,
}

impl Outlet {
    /// Sends until the ingest side is shut down and all it handed over has gone.
    pub(crate) fn run(&mut self) {
        loop {
            self.pack();
            if self.flush_at.is_some_and(|at| at <= Instant::now()) {
                self.flush();
            }
            // With nothing to flush and nothing to settle there is nothing to wake up for.
            let settle_at = self.sent.as_ref().map(|sent| sent.settle_at);
            let wake_at = self.flush_at.into_iter().chain(settle_at).min();
            let next = match wake_at {
                None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.queue.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match next {
                Ok(batch) => {
                    self.counts.queued.fetch_sub(batch.cost(), Ordering::Relaxed);
                    (self.batch, self.read) = (batch, 0);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if settle_at.is_some_and(|at| at <= Instant::now()) {
                        self.settle();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.flush();
                    return self.settle();
                }
            }
        }
    }

    /// Puts the lines of the batch into datagrams.
    fn pack(&mut self) {
        loop {
            let rest = self.batch.text.get(self.read..).unwrap_or_default();
            let Some(end) = memchr::memchr(b'\n', rest) else { break };
            let line = rest.get(..=end).unwrap_or_default();
            if !self.packet.is_empty() && self.packet.len() + line.len() > self.packet_length {
                self.flush();
                continue;
            }
            self.packet.extend_from_slice(line);
            self.read += end + 1;
            self.lines += 1;
            if self.packet_length == 0 {
                self.flush();
            } else if self.flush_at.is_none() {
                self.flush_at = Some(Instant::now() + FLUSH_AFTER);
            }
        }
        (self.batch, self.read) = (RelayBatch::default(), 0);
    }

    fn flush(&mut self) {
        self.flush_at = None;
        if self.packet.is_empty() {
            return;
        }
        self.settle();
        bump(&self.counts.packets);
        let lines = std::mem::take(&mut self.lines);
        match self.transmit() {
            Ok(()) => {
                self.sent = Some(Sent { lines, settle_at: Instant::now() + SETTLE_AFTER });
                // On this host a refusal is there as soon as the datagram is sent.
                if let Some(refused) = self.refusal() {
                    self.lose_sent(&refused);
                }
            }
            Err(error) => {
                self.counts.dropped_lines.fetch_add(lines, Ordering::Relaxed);
                self.failed(&error);
            }
        }
        self.packet.clear();
    }

    /// Sends the packet; once more, if an earlier datagram's refusal or an old socket was in the way.
    fn transmit(&mut self) -> io::Result<()> {
        if self.failing {
            self.look_up();
        }
        match self.try_send() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.lose_sent(&error);
                self.try_send()
            }
            // No other socket would take a datagram of this length.
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Err(error),
            // The socket may be bound to an address or a route that is gone.
            Err(_) if self.socket.take().is_some() => self.try_send(),
            sent => sent,
        }
    }

    fn try_send(&mut self) -> io::Result<()> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(open(self.peer)?),
        };
        socket.send(&self.packet).map(drop)
    }

    /// What the target has said against a datagram since the last look.
    fn refusal(&self) -> Option<io::Error> {
        self.socket.as_ref().and_then(|socket| socket.take_error().ok().flatten())
    }

    /// Decides about the datagram sent last.
    fn settle(&mut self) {
        if let Some(refused) = self.refusal() {
            return self.lose_sent(&refused);
        }
        if let Some(sent) = self.sent.take() {
            self.counts.relayed_lines.fetch_add(sent.lines, Ordering::Relaxed);
            if std::mem::take(&mut self.failing) {
                self.lookup.after = FIRST_LOOKUP;
                tracing::info!(target_address = %self.target, "relaying again");
            }
        }
    }

    /// The datagram sent last was refused. If its lines are counted already, as a target far away may take its time,
    /// they stay what they are.
    fn lose_sent(&mut self, error: &io::Error) {
        if let Some(sent) = self.sent.take() {
            self.counts.dropped_lines.fetch_add(sent.lines, Ordering::Relaxed);
        }
        self.failed(error);
    }

    fn failed(&mut self, error: &io::Error) {
        bump(&self.counts.errors);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                target_address = %self.target,
                %error,
                bytes = self.packet.len(),
                "relaying failed; lines are dropped and counted until it works again"
            );
        }
    }

    /// Looks the target up anew, unless that was done just now.
    fn look_up(&mut self) {
        let now = Instant::now();
        if now < self.lookup.not_before {
            return;
        }
        self.lookup.not_before = now + self.lookup.after;
        self.lookup.after = (self.lookup.after * 2).min(LAST_LOOKUP);
        match look_up(&self.target) {
            Ok(peer) if peer == self.peer => {}
            Ok(peer) => {
                tracing::info!(target_address = %self.target, %peer, "the relay's target has moved");
                (self.peer, self.socket) = (peer, None);
            }
            Err(error) => {
                bump(&self.counts.errors);
                tracing::warn!(
                    target_address = %self.target,
                    %error,
                    "the relay's target cannot be looked up, next attempt in {:?}",
                    self.lookup.after
                );
            }
        }
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
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("timeout");
        let address = socket.local_addr().expect("address").to_string();
        (socket, address)
    }

    fn config(address: &str, packet_length: usize) -> RelayConfig {
        RelayConfig { address: address.to_owned(), target: address.to_owned(), packet_length }
    }

    fn next(socket: &UdpSocket) -> String {
        let mut buffer = [0; 65_535];
        let length = socket.recv(&mut buffer).expect("a datagram");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// Lines relayed and dropped, datagrams and errors.
    fn counts(relay: &Relay) -> [u64; 4] {
        let RelayCounts { relayed_lines, dropped_lines, packets, errors, .. } = &*relay.counts;
        [relayed_lines, dropped_lines, packets, errors].map(|count| count.load(Ordering::Relaxed))
    }

    #[test]
    fn lines_are_packed_and_the_rest_goes_at_shutdown() {
        let (socket, address) = receiver();
        let relay = Relay::start(&config(&address, 20)).expect("started");
        assert!(relay.send(batch(&["aaaa:1|c", "bbbb:1|c", "cccc:1|c"])));
        assert_eq!(next(&socket), "aaaa:1|c\nbbbb:1|c\n");
        relay.shutdown();
        assert_eq!(next(&socket), "cccc:1|c\n");
        assert_eq!(counts(&relay), [3, 0, 2, 0]);
        assert!(!relay.send(batch(&["late:1|c"])));
        assert_eq!(counts(&relay), [3, 1, 2, 0]);
    }

    #[test]
    fn the_rest_goes_after_a_second_by_itself_and_is_counted() {
        let (socket, address) = receiver();
        let relay = Relay::start(&config(&address, 1_400)).expect("started");
        relay.send(batch(&["a:1|c"]));
        assert_eq!(next(&socket), "a:1|c\n");
        let deadline = Instant::now() + Duration::from_secs(120);
        while counts(&relay)[0] == 0 {
            assert!(Instant::now() < deadline, "the line is not counted");
            std::thread::yield_now();
        }
        relay.shutdown();
        assert_eq!(counts(&relay), [1, 0, 1, 0]);
    }

    #[test]
    fn length_0_sends_each_line_alone() {
        let (socket, address) = receiver();
        let relay = Relay::start(&config(&address, 0)).expect("started");
        assert!(relay.fits(&[b'x'; 100_000]));
        relay.send(batch(&["a:1|c", "b:1|c"]));
        assert_eq!([next(&socket), next(&socket)], ["a:1|c\n", "b:1|c\n"]);
        relay.shutdown();
    }

    #[test]
    fn a_failed_send_costs_its_own_datagram_alone() {
        let (socket, address) = receiver();
        let (relay, mut outlet) = Relay::new(&config(&address, 100_000)).expect("made");
        // Longer than any UDP datagram: the send fails.
        let long = "x".repeat(70_000);
        for line in ["a:1|c", &long, "b:1|c", &long, "c:1|c"] {
            assert!(relay.send(batch(&[line])));
            // Each in a datagram of its own.
            (outlet.batch, outlet.read) = (outlet.queue.recv().expect("queued"), 0);
            outlet.pack();
            outlet.flush();
        }
        relay.shutdown();
        outlet.run();
        assert_eq!(
            [next(&socket), next(&socket), next(&socket)],
            ["a:1|c\n", "b:1|c\n", "c:1|c\n"]
        );
        assert_eq!(counts(&relay), [3, 2, 5, 2]);
    }

    #[test]
    fn a_target_that_is_down_is_noticed_and_one_that_is_back_gets_everything() {
        let (socket, address) = receiver();
        let relay = Relay::start(&config(&address, 0)).expect("started");
        relay.send(batch(&["a:1|c"]));
        let mut buffer = [0; 64];
        let (_, sender) = socket.recv_from(&mut buffer).expect("a datagram");
        // It hears another peer alone: for the relay nobody listens, and the port stays taken.
        socket.connect("127.0.0.1:9").expect("connected");
        let mut handed = 1;
        let deadline = Instant::now() + Duration::from_secs(120);
        while counts(&relay)[3] < 3 {
            assert!(Instant::now() < deadline, "nothing noticed: {:?}", counts(&relay));
            handed += u64::from(relay.send(batch(&["b:1|c"])));
            std::thread::yield_now();
        }
        socket.connect(sender).expect("connected");
        // The first one that is sent now arrives, whatever was refused before.
        handed += 1;
        assert!(relay.send(batch(&["c:1|c"])));
        let mut received = 0;
        loop {
            received += 1;
            if next(&socket) == "c:1|c\n" {
                break;
            }
        }
        relay.shutdown();
        let [relayed, dropped, packets, errors] = counts(&relay);
        assert_eq!(relayed + dropped, handed);
        assert_eq!((relayed, packets), (1 + received, handed));
        assert_eq!(errors, dropped, "each refusal is an error");
    }

    #[test]
    fn a_full_queue_drops_and_does_not_wait_and_the_ledger_holds() {
        let (socket, address) = receiver();
        let (relay, mut outlet) = Relay::new(&config(&address, 60_000)).expect("made");
        let line = "a".repeat(1_000);
        let (mut handed, mut refused) = (0, 0);
        while refused < 100 {
            handed += 3;
            refused += u64::from(!relay.send(batch(&[&line, &line, "b:1|c"])));
        }
        assert_eq!(counts(&relay), [0, 300, 0, 0]);
        let reader = std::thread::spawn(move || while next(&socket) != "end:1|c\n" {});
        relay.shutdown();
        outlet.run();
        let [relayed, dropped, _, errors] = counts(&relay);
        assert_eq!((relayed + dropped, dropped, errors), (handed, 300, 0));
        let end = UdpSocket::bind("127.0.0.1:0").expect("bind");
        while !reader.is_finished() {
            end.send_to(b"end:1|c\n", &address).expect("sent");
            std::thread::yield_now();
        }
        reader.join().expect("reader");
    }

    #[test]
    fn small_batches_count_with_what_they_cost() {
        let (_socket, address) = receiver();
        let (relay, _outlet) = Relay::new(&config(&address, 1_400)).expect("made");
        let mut batches = 0;
        while relay.send(batch(&["a:1|c"])) {
            batches += 1;
        }
        assert!(batches <= QUEUE_BYTES / BATCH_BYTES, "{batches}");
    }

    #[test]
    fn a_run_that_was_cut_goes_on_where_it_was() {
        let (socket, address) = receiver();
        let (relay, mut outlet) = Relay::new(&config(&address, 0)).expect("made");
        (outlet.batch, outlet.read) = (batch(&["a:1|c", "b:1|c", "c:1|c"]), 6);
        relay.shutdown();
        outlet.run();
        assert_eq!([next(&socket), next(&socket)], ["b:1|c\n", "c:1|c\n"]);
    }

    #[test]
    fn a_target_that_no_socket_can_have_is_no_error_at_start_and_costs_its_lines() {
        // Of a broadcast address sockets must be told before.
        for target in ["127.255.255.255:9", "127.0.0.1:0"] {
            let relay = Relay::start(&config(target, 0)).expect("started");
            assert!(relay.send(batch(&["a:1|c", "b:1|c"])));
            relay.shutdown();
            assert_eq!(counts(&relay), [0, 2, 2, 2], "{target}");
        }
    }

    #[test]
    fn an_unknown_target_is_an_error_at_start() {
        assert!(Relay::start(&config("no-port", 1)).is_err());
    }
}
