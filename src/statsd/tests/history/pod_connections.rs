//! TCP connections of pods. They are real, from the address of the pod on the loopback interface, and stay open while pods change. Some
//! end after a last line without a line feed, which another peer's line precedes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use fastrand::Rng;
use socket2::{Domain, Socket, Type};

use super::transport::{apply_until, is_read};
use crate::statsd::Listener;
use crate::statsd::ingest::Shared;
use crate::statsd::receive::net::bind_tcp;
use crate::statsd::receive::receiver::ReceiveLoop;
use crate::util::descriptors;

/// The connections of all pods to one pipeline.
pub(super) struct PodConnections {
    rng: Rng,
    shared: Arc<Shared>,
    receiver: ReceiveLoop,
    listener: SocketAddr,
    open: BTreeMap<IpAddr, TcpStream>,
}

/// The way in which the next lines come.
pub(super) struct Plan {
    address: IpAddr,
    /// The connection ends after them, without a line feed.
    is_cut: bool,
    /// The peer whose line comes before the last one.
    pub(super) interrupter: Option<IpAddr>,
}

impl PodConnections {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let mut receiver = ReceiveLoop::new(shared).expect("a receiver");
        let listener = bind_tcp("127.0.0.1:0".parse().expect("an address")).expect("a listener");
        let address = listener.local_addr().expect("an address");
        receiver.add_tcp(listener, None, descriptors::of_process()).expect("watched");
        Self {
            rng: Rng::with_seed(0x9b05_688c_2b3e_6c1f),
            shared: Arc::clone(shared),
            receiver,
            listener: address,
            open: BTreeMap::new(),
        }
    }

    /// Returns how the next lines from an address come, if they come over TCP.
    pub(super) fn plan(&mut self, address: Option<IpAddr>) -> Option<Plan> {
        let address = address.filter(IpAddr::is_loopback)?;
        if self.rng.u32(0..3) > 0 {
            return None;
        }
        let is_cut = self.rng.u32(0..3) == 0;
        let others: Vec<IpAddr> =
            self.open.keys().copied().filter(|other| *other != address).collect();
        let interrupter = self.rng.choice(others).filter(|_| is_cut);
        Some(Plan { address, is_cut, interrupter })
    }

    /// Sends lines, each with its line feed, and applies them. `between` comes from the other peer before the last one.
    pub(super) fn send(&mut self, plan: &Plan, lines: &[u8], between: &[u8]) {
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let lines = if plan.is_cut { lines.strip_suffix(b"\n").unwrap_or(lines) } else { lines };
        let listener = self.listener;
        let stream =
            self.open.entry(plan.address).or_insert_with(|| connect(plan.address, listener));
        let mut expected = self.shared.metrics.lines(Some(Listener::Tcp)) + count(lines);
        let (first, second) = lines.split_at(self.rng.usize(0..=lines.len()));
        for part in [first, second] {
            stream.write_all(part).expect("sent");
            self.receiver.apply_received();
        }
        self.wait_for(expected);
        if !plan.is_cut {
            return;
        }
        let stream = self.open.remove(&plan.address).expect("a connection");
        apply_until(&mut self.receiver, || is_read(&stream));
        if let Some(other) = plan.interrupter.and_then(|other| self.open.get_mut(&other)) {
            other.write_all(between).expect("sent");
            expected += count(between);
            self.wait_for(expected);
        }
        drop(stream);
        self.wait_for(expected + 1);
    }

    /// Applies what is received until this number of lines has come over TCP.
    fn wait_for(&mut self, lines: u64) {
        let metrics = &self.shared.metrics;
        apply_until(&mut self.receiver, || metrics.lines(Some(Listener::Tcp)) == lines);
    }
}

/// Returns a connection from this address.
fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(from, 0).into()).expect("an address of the loopback interface");
    socket.connect(&to.into()).expect("connected");
    socket.set_tcp_nodelay(true).expect("an option");
    socket.into()
}
