//! The target of a relay: a real UDP socket, which refuses all datagrams at times. The relay sends on the thread of the test before
//! each scrape.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::History;
use super::features::Feature;
use crate::statsd::relay::{Relay, RelayConfig, RelaySender};

/// The target of the relay of a history.
pub(super) struct RelayTarget {
    rng: Rng,
    sender: RelaySender,
    packet_length: usize,
    socket: UdpSocket,
    /// The address of the relay, once it has sent a datagram.
    relay: Option<SocketAddr>,
    refuses: bool,
    /// The lines since the last check.
    lines: Vec<String>,
    /// The lines that must have been relayed, dropped, or too long so far.
    counts: [usize; 3],
}

impl RelayTarget {
    /// Returns a target and the relay that sends to it, in one of two histories.
    pub(super) fn start(seed: u64) -> Option<(Self, Relay)> {
        let mut rng = Rng::with_seed(seed ^ 0x510e_527f_ade6_82d1);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_nonblocking(true).expect("an option");
        let address = socket.local_addr().expect("an address").to_string();
        let packet_length = [0, 15, 60, 1_400][rng.usize(0..4)];
        let config = RelayConfig { address: "target".to_owned(), target: address, packet_length };
        let is_there = rng.bool();
        let (relay, sender) = Relay::new(&config).expect("an address");
        let (lines, counts) = (Vec::new(), [0; 3]);
        let target =
            Self { rng, sender, packet_length, socket, relay: None, refuses: false, lines, counts };
        is_there.then_some((target, relay))
    }

    /// Notes lines that the pipeline has got.
    pub(super) fn sent(&mut self, lines: &[String]) -> Result<(), String> {
        /// The number of datagrams that the buffer of a socket certainly holds.
        const BUFFERED: usize = 50;
        self.lines.extend_from_slice(lines);
        if self.lines.len() > BUFFERED { self.receive() } else { Ok(()) }
    }

    /// Sends what the relay holds, and compares what arrives with the lines.
    fn receive(&mut self) -> Result<(), String> {
        self.sender.drain();
        let is_long = |line: &str| self.packet_length > 0 && line.len() >= self.packet_length;
        let lines = std::mem::take(&mut self.lines);
        let (long, fitting): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| is_long(line));
        self.counts[2] += long.len();
        self.counts[usize::from(self.refuses)] += fitting.len();
        let expected = if self.refuses { Vec::new() } else { fitting };
        let expected: String = expected.into_iter().map(|line| line + "\n").collect();
        let (mut received, mut buffer) = (Vec::new(), [0; 2_000]);
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, relay)) => {
                    self.relay = Some(relay);
                    if length > self.packet_length && buffer[..length - 1].contains(&b'\n') {
                        return Err(format!("a datagram of {length} bytes"));
                    }
                    received.extend_from_slice(&buffer[..length]);
                }
                Err(_) if received.len() >= expected.len() || Instant::now() > end => break,
                // The kernel delivers to the loopback interface at once, unless the machine is busy.
                Err(_) => std::thread::yield_now(),
            }
        }
        if received != expected.as_bytes() {
            return Err(format!(
                "relayed {:?}, not {expected:?}",
                String::from_utf8_lossy(&received)
            ));
        }
        Ok(())
    }

    /// Begins or ends to refuse datagrams: a connected socket accepts those of one peer only.
    fn change(&mut self) {
        if let Some(relay) = self.relay.filter(|_| self.rng.u32(0..6) == 0) {
            // The relay is bound to all addresses.
            let relay = SocketAddr::from(([127, 0, 0, 1], relay.port()));
            let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
            self.refuses = !self.refuses;
            let peer = if self.refuses { nobody } else { relay };
            self.socket.connect(peer).expect("connected");
        }
    }
}

impl History {
    /// Compares what the relay has sent, and its counters, with the lines.
    pub(super) fn check_relay(&mut self) -> Result<(), String> {
        let Some(target) = &mut self.relay else { return Ok(()) };
        target.receive()?;
        let (expected, refuses) = (target.counts, target.refuses);
        target.change();
        let own: Vec<u8> = self.offline.self_metrics().flatten().collect();
        let own = String::from_utf8_lossy(&own);
        let count = |family: &str| {
            let line = own.lines().find_map(|line| line.strip_prefix(family));
            line.and_then(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok())
        };
        let counts = [
            "statsd_exporter_relay_lines_relayed_total{",
            "kstatd_statsd_relay_dropped_lines_total{",
            "statsd_exporter_relay_long_lines_total{",
        ];
        let counts = counts.map(count);
        if counts != expected.map(Some) {
            return Err(format!("lines relayed, dropped, too long: {counts:?}, not {expected:?}"));
        }
        self.used(if refuses { Feature::RelayRefused } else { Feature::Relay });
        Ok(())
    }
}
