//! The relay, which forwards a copy of every line to another StatsD server over UDP.
//!
//! Ingest threads pass batches of lines without blocking: if the queue is full, the batch is dropped and
//! counted. One thread ([`RelaySender::run`]) packs lines into datagrams and sends them. Every line is eventually
//! counted once, as relayed or as dropped.
//!
//! The socket is connected, so the kernel reports a port without a listener (ICMP port unreachable). The
//! report arrives after the send: it is noticed when the next datagram is sent, or after [`CONFIRM_AFTER`]. A
//! failure loses only its own datagram. During failures the target is resolved again with backoff, see [`lookup`].
//!
//! A remote kernel reports only some refusals (Linux: about one a second), so datagrams without one may be lost, too. A
//! failure therefore ends once none has been refused for [`RECOVERED_AFTER`].

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::metrics::counters::bump;
use super::supervise::SupervisedThread;
use crate::util::lock::Lock;
use crate::util::log_limit::LogLimit;

pub(super) mod lookup;

use lookup::TargetLookup;

/// The maximum size of the queue in bytes.
pub(super) const QUEUE_BYTES: usize = 8 << 20;
/// The overhead of a batch in bytes.
pub(super) const BATCH_BYTES: usize = 64;
/// The maximum time that a datagram waits for more lines.
pub(super) const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// The time after which a datagram that was not refused counts as relayed.
pub(super) const CONFIRM_AFTER: Duration = Duration::from_secs(1);
/// The time without a refusal after which a failing target has recovered, well above the time between two reports of
/// refusals.
pub(super) const RECOVERED_AFTER: Duration = Duration::from_secs(3);

/// The target of the relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// `host:port` as configured; the value of the label `target`.
    pub address: String,
    /// `host:port` to resolve, with a numeric port.
    pub target: String,
    /// The maximum length of a datagram in bytes. 0 sends each line in its own datagram.
    pub packet_length: usize,
}

/// The lines of one batch, each followed by a line feed.
#[derive(Debug, Default)]
pub(crate) struct RelayBatch {
    pub(super) text: Vec<u8>,
    /// The number of lines.
    pub(super) lines: u64,
}

impl RelayBatch {
    /// Adds a line.
    pub(crate) fn push(&mut self, line: &[u8]) {
        self.push_parts(&[line]);
    }

    /// Adds a line that consists of these parts.
    pub(crate) fn push_parts(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.text.extend_from_slice(part));
        self.text.push(b'\n');
        self.lines += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Returns the memory that the batch takes in a queue, in bytes.
    pub(super) fn cost(&self) -> usize {
        self.text.len() + BATCH_BYTES
    }
}

/// The ingest side of the relay.
#[derive(Debug)]
pub(crate) struct Relay {
    target: String,
    packet_length: usize,
    /// Limits log lines about lines that are too long.
    long_lines: Lock<LogLimit>,
    /// `None` once the relay shuts down.
    queue: Lock<Option<Sender<RelayBatch>>>,
    thread: Option<SupervisedThread>,
    pub(crate) counts: Arc<RelayCounts>,
}

/// The counters of the relay. Each line is relayed, dropped or still queued.
#[derive(Debug, Default)]
pub(crate) struct RelayCounts {
    /// Lines in datagrams that were sent and not refused.
    pub(crate) relayed_lines: AtomicU64,
    /// Lines dropped because the queue was full, a send failed or the datagram was refused.
    pub(crate) dropped_lines: AtomicU64,
    /// Datagrams sent, including failed ones.
    pub(crate) packets: AtomicU64,
    /// Failed sends, refusals and failed look-ups.
    pub(crate) errors: AtomicU64,
    /// Panics of the sending thread.
    pub(crate) restarts: AtomicU64,
    /// The cost of the batches in the queue.
    queued: AtomicUsize,
}

impl Relay {
    /// Resolves the target and starts the sending thread.
    ///
    /// # Errors
    /// Fails if the target cannot be resolved or the thread cannot be started.
    pub(crate) fn start(config: &RelayConfig) -> io::Result<Self> {
        let (relay, mut relay_sender) = Self::new(config)?;
        let restarts = Arc::clone(&relay.counts);
        let thread = SupervisedThread::spawn(
            "statsd-relay",
            move || bump(&restarts.restarts),
            move || relay_sender.run(),
        )?;
        Ok(Self { thread: Some(thread), ..relay })
    }

    /// Creates both ends without a sending thread.
    ///
    /// # Errors
    /// Fails if the target cannot be resolved.
    pub(super) fn new(config: &RelayConfig) -> io::Result<(Self, RelaySender)> {
        let (sender, queue) = channel();
        let counts = Arc::new(RelayCounts::default());
        let mut lookup = TargetLookup::new(&config.target);
        let relay_sender = RelaySender {
            queue,
            target: config.target.clone(),
            packet_length: config.packet_length,
            peer: lookup.first()?,
            lookup,
            socket: None,
            is_failing: false,
            unrefused_since: None,
            batch: RelayBatch::default(),
            read: 0,
            packet: Vec::new(),
            lines: 0,
            flush_at: None,
            sent: None,
            counts: Arc::clone(&counts),
            now: Instant::now(),
        };
        let relay = Self {
            target: config.address.clone(),
            packet_length: config.packet_length,
            long_lines: Lock::default(),
            queue: Lock::new(Some(sender)),
            thread: None,
            counts,
        };
        Ok((relay, relay_sender))
    }

    /// Returns the target as configured.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Returns true if the line and its line feed fit into a datagram.
    pub(crate) fn fits(&self, line: &[u8]) -> bool {
        self.packet_length == 0 || line.len() < self.packet_length
    }

    /// Logs, at most once a minute, that lines do not fit into a datagram.
    pub(crate) fn log_long_line(&self) {
        let due = self.long_lines.lock().add(1, Instant::now());
        if let Some(lines) = due {
            tracing::warn!(
                target_address = %self.target,
                lines,
                packet_length = self.packet_length,
                "Lines are too long to be relayed"
            );
        }
    }

    /// Queues a batch. If the queue is full, drops and counts the batch and returns false.
    pub(crate) fn send(&self, batch: RelayBatch) -> bool {
        let (cost, lines) = (batch.cost(), batch.lines);
        let before = self.counts.queued.fetch_add(cost, Ordering::Relaxed);
        let queue = self.queue.lock();
        let taken = before + cost <= QUEUE_BYTES
            && queue.as_ref().is_some_and(|queue| queue.send(batch).is_ok());
        if !taken {
            self.counts.queued.fetch_sub(cost, Ordering::Relaxed);
            self.counts.dropped_lines.fetch_add(lines, Ordering::Relaxed);
        }
        taken
    }

    /// Sends everything in the queue and ends the thread.
    pub(crate) fn shutdown(&self) {
        drop(self.queue.lock().take());
        self.thread.iter().for_each(SupervisedThread::join);
    }
}

/// Opens a socket that sends to `peer` and receives its refusals.
fn open(peer: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr =
        if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(local)?;
    // Nothing can listen on port 0. Sends will report the error.
    if peer.port() != 0 {
        socket.connect(peer)?;
    }
    Ok(socket)
}

/// A datagram that may still be refused.
#[derive(Debug)]
struct Sent {
    lines: u64,
    confirm_at: Instant,
}

/// The sending end. It keeps all state, so after a panic [`RelaySender::run`] continues with the next line.
pub(crate) struct RelaySender {
    pub(super) queue: Receiver<RelayBatch>,
    target: String,
    packet_length: usize,
    /// The most recently resolved address.
    peer: SocketAddr,
    pub(super) lookup: TargetLookup,
    /// `None` before the first datagram, and after a failure that a new socket may fix.
    socket: Option<UdpSocket>,
    /// True from a lost datagram until the target has recovered.
    is_failing: bool,
    /// The time at which, during a failure, the first datagram since the last loss counted as relayed.
    unrefused_since: Option<Instant>,
    /// The current batch and the number of its bytes already packed.
    batch: RelayBatch,
    read: usize,
    packet: Vec<u8>,
    /// The number of lines in the packet.
    lines: u64,
    flush_at: Option<Instant>,
    sent: Option<Sent>,
    counts: Arc<RelayCounts>,
    /// The time of the current step.
    now: Instant,
}

impl RelaySender {
    /// Sends until the ingest side shuts down and the queue is empty.
    pub(crate) fn run(&mut self) {
        loop {
            // Blocks indefinitely if there is nothing to flush or confirm.
            let next = match self.step(Instant::now()) {
                None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.queue.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match next {
                Ok(batch) => self.take(batch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.flush();
                    return self.confirm();
                }
            }
        }
    }

    /// Takes a batch from the queue.
    fn take(&mut self, batch: RelayBatch) {
        self.counts.queued.fetch_sub(batch.cost(), Ordering::Relaxed);
        (self.batch, self.read) = (batch, 0);
    }

    /// Packs the batch, and sends and confirms what is due at this time. Returns the time of the next step unless there is a
    /// batch before.
    pub(super) fn step(&mut self, now: Instant) -> Option<Instant> {
        self.now = now;
        self.pack();
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush();
        }
        if self.sent.as_ref().is_some_and(|sent| sent.confirm_at <= now) {
            self.confirm();
        }
        self.flush_at.into_iter().chain(self.sent.as_ref().map(|sent| sent.confirm_at)).min()
    }

    /// Packs the lines of the batch into datagrams.
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
                self.flush_at = Some(self.now + FLUSH_AFTER);
            }
        }
        (self.batch, self.read) = (RelayBatch::default(), 0);
    }

    fn flush(&mut self) {
        self.flush_at = None;
        if self.packet.is_empty() {
            return;
        }
        self.confirm();
        bump(&self.counts.packets);
        let lines = std::mem::take(&mut self.lines);
        match self.transmit() {
            Ok(()) => {
                self.sent = Some(Sent { lines, confirm_at: self.now + CONFIRM_AFTER });
                // On the local host a refusal is available immediately.
                if let Some(refused) = self.refusal() {
                    self.drop_sent(&refused);
                }
            }
            Err(error) => {
                self.counts.dropped_lines.fetch_add(lines, Ordering::Relaxed);
                self.record_failure(&error);
            }
        }
        self.packet.clear();
    }

    /// Sends the packet. Retries once if the error belongs to an earlier datagram or a new socket may fix it.
    fn transmit(&mut self) -> io::Result<()> {
        self.look_up();
        match self.try_send() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.drop_sent(&error);
                self.try_send()
            }
            // A new socket would not accept a datagram of this length either.
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Err(error),
            // The address or route of the socket may no longer exist.
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

    /// Takes the pending error of the socket.
    fn refusal(&self) -> Option<io::Error> {
        self.socket.as_ref().and_then(|socket| socket.take_error().ok().flatten())
    }

    /// Counts the lines of the last datagram as relayed or dropped.
    fn confirm(&mut self) {
        if let Some(refused) = self.refusal() {
            return self.drop_sent(&refused);
        }
        if let Some(sent) = self.sent.take() {
            self.counts.relayed_lines.fetch_add(sent.lines, Ordering::Relaxed);
            if self.is_failing
                && self.now - *self.unrefused_since.get_or_insert(self.now) >= RECOVERED_AFTER
            {
                self.is_failing = false;
                self.lookup.reset_pause(self.now);
                tracing::info!(target_address = %self.target, "The relay has recovered");
            }
        }
    }

    /// Handles the refusal of the last datagram. If its lines already count as relayed, because the target
    /// took too long to refuse, they stay so.
    fn drop_sent(&mut self, error: &io::Error) {
        if let Some(sent) = self.sent.take() {
            self.counts.dropped_lines.fetch_add(sent.lines, Ordering::Relaxed);
        }
        self.record_failure(error);
    }

    fn record_failure(&mut self, error: &io::Error) {
        bump(&self.counts.errors);
        self.unrefused_since = None;
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                target_address = %self.target,
                %error,
                bytes = self.packet.len(),
                "Relaying failed; lines are dropped and counted until it recovers"
            );
            // The next datagram may already go to a new address.
            self.look_up();
        }
    }

    /// Uses the address that a look-up has found. During a failure, starts the next one.
    fn look_up(&mut self) {
        let now = self.now;
        let started = if self.is_failing { self.lookup.start_if_due(now) } else { Ok(()) };
        match started.map_or_else(|error| Some(Err(error)), |()| self.lookup.answer(now)) {
            None => {}
            Some(Ok(peer)) if peer == self.peer => {}
            Some(Ok(peer)) => {
                tracing::info!(target_address = %self.target, %peer, "The relay target has a new address");
                (self.peer, self.socket) = (peer, None);
            }
            Some(Err(error)) => {
                bump(&self.counts.errors);
                tracing::warn!(
                    target_address = %self.target,
                    %error,
                    "Cannot resolve the relay target, next attempt in {:?}",
                    self.lookup.pause()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RelaySender {
        /// Takes the next batch from the queue, without waiting. Returns false if there is none.
        pub(in crate::statsd) fn take_queued(&mut self) -> bool {
            self.queue.try_recv().map(|batch| self.take(batch)).is_ok()
        }
    }

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

    /// Lines relayed, lines dropped, datagrams, errors.
    fn counts(relay: &Relay) -> [u64; 4] {
        let RelayCounts { relayed_lines, dropped_lines, packets, errors, .. } = &*relay.counts;
        [relayed_lines, dropped_lines, packets, errors].map(|count| count.load(Ordering::Relaxed))
    }

    #[test]
    fn lines_are_packed_and_flushed_at_shutdown() {
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
    fn an_unfilled_datagram_is_sent_after_a_second_and_counted() {
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
    fn packet_length_0_sends_each_line_separately() {
        let (socket, address) = receiver();
        let relay = Relay::start(&config(&address, 0)).expect("started");
        assert!(relay.fits(&[b'x'; 100_000]));
        relay.send(batch(&["a:1|c", "b:1|c"]));
        assert_eq!([next(&socket), next(&socket)], ["a:1|c\n", "b:1|c\n"]);
        relay.shutdown();
    }

    #[test]
    fn a_failed_send_loses_only_its_datagram() {
        let (socket, address) = receiver();
        let (relay, mut relay_sender) = Relay::new(&config(&address, 100_000)).expect("made");
        // Longer than the maximum UDP datagram, so the send fails.
        let long = "x".repeat(70_000);
        for line in ["a:1|c", &long, "b:1|c", &long, "c:1|c"] {
            assert!(relay.send(batch(&[line])));
            // Each line goes into its own datagram.
            (relay_sender.batch, relay_sender.read) =
                (relay_sender.queue.recv().expect("queued"), 0);
            relay_sender.pack();
            relay_sender.flush();
        }
        relay.shutdown();
        relay_sender.run();
        assert_eq!(
            [next(&socket), next(&socket), next(&socket)],
            ["a:1|c\n", "b:1|c\n", "c:1|c\n"]
        );
        assert_eq!(counts(&relay), [3, 2, 5, 2]);
    }

    #[test]
    fn an_unreachable_target_is_noticed_and_a_recovered_one_gets_everything() {
        let (socket, address) = receiver();
        let relay = Relay::start(&config(&address, 0)).expect("started");
        relay.send(batch(&["a:1|c"]));
        let mut buffer = [0; 64];
        let (_, sender) = socket.recv_from(&mut buffer).expect("a datagram");
        // A connected socket accepts one peer only, so the relay's datagrams are refused while the port stays
        // taken.
        socket.connect("127.0.0.1:9").expect("connected");
        let mut handed = 1;
        let deadline = Instant::now() + Duration::from_secs(120);
        while counts(&relay)[3] < 3 {
            assert!(Instant::now() < deadline, "nothing noticed: {:?}", counts(&relay));
            handed += u64::from(relay.send(batch(&["b:1|c"])));
            std::thread::yield_now();
        }
        socket.connect(sender).expect("connected");
        // The next datagram arrives despite the earlier refusals.
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

    /// The kernel of a remote target reports about one refusal per second; all other datagrams look as if they had
    /// arrived.
    #[test]
    fn a_target_that_reports_few_refusals_has_not_recovered() {
        let (socket, address) = receiver();
        let (_relay, mut relay_sender) = Relay::new(&config(&address, 0)).expect("made");
        let log = tempfile::NamedTempFile::new().expect("a file");
        let writer = Arc::new(log.reopen().expect("open"));
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let send = |sender: &mut RelaySender, count| {
            for _ in 0..count {
                sender.batch = batch(&["a:1|c"]);
                sender.pack();
            }
        };
        send(&mut relay_sender, 1);
        let sender = relay_sender.socket.as_ref().expect("a socket").local_addr().expect("address");
        let sender = SocketAddr::from(([127, 0, 0, 1], sender.port()));
        for _ in 0..3 {
            // A connected socket accepts one peer only.
            socket.connect("127.0.0.1:9").expect("connected");
            send(&mut relay_sender, 1);
            socket.connect(sender).expect("connected");
            send(&mut relay_sender, 10);
        }
        let messages =
            |text: &str| std::fs::read_to_string(log.path()).expect("a log").matches(text).count();
        assert_eq!((messages("Relaying failed"), messages("recovered")), (1, 0));
        relay_sender.now += RECOVERED_AFTER;
        send(&mut relay_sender, 10);
        assert_eq!((messages("Relaying failed"), messages("recovered")), (1, 1));
    }

    #[test]
    fn a_full_queue_drops_without_blocking_and_every_line_is_counted() {
        let (socket, address) = receiver();
        let (relay, mut relay_sender) = Relay::new(&config(&address, 60_000)).expect("made");
        let line = "a".repeat(1_000);
        let (mut handed, mut refused) = (0, 0);
        while refused < 100 {
            handed += 3;
            refused += u64::from(!relay.send(batch(&[&line, &line, "b:1|c"])));
        }
        assert_eq!(counts(&relay), [0, 300, 0, 0]);
        let reader = std::thread::spawn(move || while next(&socket) != "end:1|c\n" {});
        relay.shutdown();
        relay_sender.run();
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
    fn small_batches_count_with_their_overhead() {
        let (_socket, address) = receiver();
        let (relay, _outlet) = Relay::new(&config(&address, 1_400)).expect("made");
        let mut batches = 0;
        while relay.send(batch(&["a:1|c"])) {
            batches += 1;
        }
        assert!(batches <= QUEUE_BYTES / BATCH_BYTES, "{batches}");
    }

    #[test]
    fn an_interrupted_run_continues_at_the_next_line() {
        let (socket, address) = receiver();
        let (relay, mut relay_sender) = Relay::new(&config(&address, 0)).expect("made");
        (relay_sender.batch, relay_sender.read) = (batch(&["a:1|c", "b:1|c", "c:1|c"]), 6);
        relay.shutdown();
        relay_sender.run();
        assert_eq!([next(&socket), next(&socket)], ["b:1|c\n", "c:1|c\n"]);
    }

    #[test]
    fn an_unusable_target_does_not_fail_at_startup_and_loses_its_lines() {
        // Sending to a broadcast address fails without SO_BROADCAST.
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
