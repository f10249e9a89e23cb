//! The ways in which lines reach the pipeline. Sockets are real, but are read on the thread of the test after each send,
//! so a seed determines the order of all lines.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::senders::DROPPED;
use crate::statsd::Listener;
use crate::statsd::ingest::{Shared, Worker};
use crate::statsd::receive::net::{bind_tcp, bind_udp, bind_unixgram};
use crate::statsd::receive::receiver::ReceiveLoop;
use crate::util::descriptors;

/// The largest number of lines of a datagram: many of them do not fit into one.
const LINES: usize = 1000;
/// The largest number of bytes written to a connection before they are read: they fit into the kernel's buffers.
const BYTES: usize = 32_768;

/// The way of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A worker, as for one of several UDP sockets.
    Worker(usize),
    Udp,
    Unixgram,
    Tcp,
}

impl Way {
    pub(super) const ALL: [Self; 5] =
        [Self::Worker(0), Self::Worker(1), Self::Udp, Self::Unixgram, Self::Tcp];
}

/// Workers and sockets of one pipeline.
pub(super) struct Transport {
    shared: Arc<Shared>,
    workers: [Worker; 2],
    receiver: ReceiveLoop,
    udp: UdpSocket,
    unixgram: Socket,
    tcp: TcpStream,
    /// Determines when a connection is reset after its last line, which has no line feed.
    resets: Rng,
    /// Determines when lines come together with one of another socket.
    others: Rng,
}

/// Returns true once the kernel and the receiver have taken everything that was written to a connection.
pub(super) fn is_read(tcp: &TcpStream) -> bool {
    let port = |address: std::io::Result<SocketAddr>| address.expect("an address").port();
    let (own, other) = (port(tcp.local_addr()), port(tcp.peer_addr()));
    let hex = |port: u16| format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
    let is_empty = |(from, to): (u16, u16)| {
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut rows =
            rows.filter(|row| row[1].ends_with(&hex(from)) && row[2].ends_with(&hex(to)));
        rows.any(|row| row[4] == "00000000:00000000")
    };
    is_empty((own, other)) && is_empty((other, own))
}

/// Applies what is received until `probe` returns true. The kernel delivers to the loopback interface at once, unless the machine is busy.
pub(super) fn apply_until(receiver: &mut ReceiveLoop, mut probe: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    receiver.apply_received();
    while !probe() {
        assert!(Instant::now() < end, "what was sent got lost");
        std::thread::yield_now();
        receiver.apply_received();
    }
}

impl Transport {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut receiver = ReceiveLoop::new(shared).expect("a receiver");
        let never = || Box::new(|| Err(std::io::Error::other("never closed")));
        let any = "127.0.0.1:0".parse().expect("an address");
        let socket = bind_udp(any, 0, false).expect("a socket");
        let udp = UdpSocket::bind(any).expect("a socket");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        udp.connect(address.expect("an address")).expect("connected");
        receiver.add_datagrams(Listener::Udp, 0, socket, never()).expect("watched");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("@kstatd-history-{}-{number}", std::process::id());
        let socket = bind_unixgram(&name, 0).expect("a socket");
        let unixgram = Socket::new(Domain::UNIX, Type::DGRAM, None).expect("a socket");
        let address: SockAddr = socket.local_addr().expect("an address");
        unixgram.connect(&address).expect("connected");
        receiver.add_datagrams(Listener::Unixgram, 0, socket, never()).expect("watched");
        let listener = bind_tcp(any).expect("a listener");
        let tcp =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        tcp.set_nodelay(true).expect("an option");
        receiver.add_tcp(listener, None, descriptors::of_process()).expect("watched");
        let workers = [(); 2].map(|()| Worker::new(shared, Listener::Direct));
        let resets = Rng::with_seed(0x510e_527f_ade6_82d1);
        let others = Rng::with_seed(0x1f83_d9ab_fb41_bd6b);
        let shared = Arc::clone(shared);
        Self { shared, workers, receiver, udp, unixgram, tcp, resets, others }
    }

    /// Sends a line that its rule drops to a socket other than that of `listener`, which the next read finds there together with those of
    /// `listener`. Returns its listener and the number of lines that it will have had.
    fn send_to_another(&mut self, listener: Listener) -> (Listener, u64) {
        let all = [Listener::Udp, Listener::Unixgram, Listener::Tcp];
        let mut others = all.into_iter().filter(|other| *other != listener);
        let other = others.nth(self.others.usize(0..2)).expect("two others");
        let line = DROPPED.as_bytes();
        match other {
            Listener::Udp => self.udp.send(line).expect("sent"),
            Listener::Unixgram => self.unixgram.send(line).expect("sent"),
            _ => self.tcp.write([line, b"\n"].concat().as_slice()).expect("sent"),
        };
        (other, self.shared.metrics.lines(Some(other)) + 1)
    }

    /// Sends lines in order, in datagrams or writes of random sizes, and applies them. Returns true if a line that its rule drops has come
    /// before them, which it only does if it `may_be_preceded`.
    ///
    /// # Errors
    /// The lines are counted for other listeners.
    pub(super) fn send(
        &mut self,
        way: Way,
        lines: &[String],
        may_be_preceded: bool,
        rng: &mut Rng,
    ) -> Result<bool, String> {
        let mut rest = lines;
        let mut packets = Vec::new();
        while !rest.is_empty() {
            let (packet, after) = rest.split_at(rng.usize(1..=rest.len().min(LINES)));
            packets.push(packet.join("\n"));
            rest = after;
        }
        let listener = match way {
            Way::Worker(number) => {
                let worker = &mut self.workers[number];
                worker.begin();
                packets.iter().for_each(|packet| worker.lines(packet.as_bytes()));
                worker.end();
                return Ok(false);
            }
            Way::Udp => Listener::Udp,
            Way::Unixgram => Listener::Unixgram,
            Way::Tcp => Listener::Tcp,
        };
        let is_preceded = may_be_preceded && self.others.u32(0..4) == 0;
        let mut expected =
            vec![(listener, self.shared.metrics.lines(Some(listener)) + lines.len() as u64)];
        expected.extend(is_preceded.then(|| self.send_to_another(listener)));
        let all = self.shared.metrics.lines(None) + lines.len() as u64 + u64::from(is_preceded);
        match way {
            Way::Tcp => {
                let is_reset = self.resets.u32(0..8) == 0;
                let bytes = packets.join("\n") + if is_reset { "" } else { "\n" };
                // The cut may be in the middle of a line.
                let (first, second) = bytes.as_bytes().split_at(rng.usize(0..=bytes.len()));
                for part in first.chunks(BYTES).chain(second.chunks(BYTES)) {
                    self.tcp.write_all(part).expect("sent");
                    self.receiver.apply_received();
                }
                if is_reset {
                    self.reset();
                }
            }
            Way::Udp => packets.iter().for_each(|packet| {
                self.udp.send(packet.as_bytes()).expect("sent");
                self.receiver.apply_received();
            }),
            _ => packets.iter().for_each(|packet| {
                self.unixgram.send(packet.as_bytes()).expect("sent");
                self.receiver.apply_received();
            }),
        }
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            self.receiver.apply_received();
            let is_counted =
                |(of, lines): &(Listener, u64)| self.shared.metrics.lines(Some(*of)) == *lines;
            if expected.iter().all(is_counted) {
                return Ok(is_preceded);
            }
            if self.shared.metrics.lines(None) == all {
                let metrics = &self.shared.metrics;
                let counts: Vec<_> =
                    expected.iter().map(|(of, _)| metrics.lines(Some(*of))).collect();
                return Err(format!("lines are counted as {counts:?} instead of {expected:?}"));
            }
            // The kernel delivers to the loopback interface at once, unless the machine is busy.
            assert!(Instant::now() < end, "lines got lost");
            std::thread::yield_now();
        }
    }

    /// Resets the TCP connection once everything has been read, and opens another one.
    fn reset(&mut self) {
        apply_until(&mut self.receiver, || is_read(&self.tcp));
        SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO)).expect("an option");
        let listener = self.tcp.peer_addr().expect("an address");
        // Closes the former one.
        self.tcp = TcpStream::connect(listener).expect("connected");
        self.tcp.set_nodelay(true).expect("an option");
    }
}
