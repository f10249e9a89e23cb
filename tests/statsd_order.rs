//! What reaches the host first takes effect first, whatever it comes over and from whichever port.
//!
//! Pairs of gauges of one name are sent from fresh sockets: the second value has to stay.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Program, get, until};
use kstatd::exposition::{Format, ScrapeQuery, Source as _};
use kstatd::statsd::{Pipeline, PipelineConfig};

/// Lets time pass between two datagrams, exactly.
fn spin(gap: Duration) {
    let start = Instant::now();
    while start.elapsed() < gap {
        std::hint::spin_loop();
    }
}

fn over_udp(address: SocketAddr, line: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket.send_to(line.as_bytes(), address).expect("sent");
}

fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn pairs_from_fresh_ports_keep_their_order() {
    let program = Program::start(
        "statsd_exporter",
        [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=",
        ],
    );
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let udp = program.address(&["Accepting StatsD Traffic"], "udp");
    const PAIRS: usize = 2_000;
    const PACKETS: &str = "statsd_exporter_udp_packets_total";
    let (own, mut sent) = (format!("/metrics?name[]={PACKETS}"), 0.0);
    let gaps = [0, 50, 200, 1_000].map(Duration::from_micros);
    for (number, gap) in gaps.into_iter().enumerate() {
        // Long gaps show nothing that short ones do not; they only take their time.
        let pairs = if gap.as_micros() >= 1_000 { PAIRS / 4 } else { PAIRS };
        for pair in 0..pairs {
            over_udp(udp, &format!("g{number}_{pair}:5|g"));
            spin(gap);
            over_udp(udp, &format!("g{number}_{pair}:0|g"));
            over_udp(udp, &format!("t{number}_{pair}:100|g"));
            over_udp(udp, &format!("t{number}_{pair}:+1|g"));
            // The first one makes the family; the second one clashes.
            over_udp(udp, &format!("k{number}_{pair}:1|c"));
            over_udp(udp, &format!("k{number}_{pair}:7|g"));
            // No more than any receive buffer holds may wait in it.
            sent += 6.0;
            if (pair + 1) % 40 == 0 {
                until("all is counted", || {
                    (sample(&get(web, &own).text(), PACKETS) >= Some(sent)).then_some(())
                });
            }
        }
        let last = format!("last{number}");
        over_udp(udp, &format!("{last}:1|g"));
        sent += 1.0;
        let text = until("all is counted", || {
            let text = get(web, "/metrics").text();
            sample(&text, &last).map(|_| text)
        });
        let values: std::collections::HashMap<&str, &str> =
            text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        for (prefix, expected) in [("g", "0"), ("t", "101"), ("k", "1")] {
            let wrong = (0..pairs)
                .filter(|pair| values.get(&*format!("{prefix}{number}_{pair}")) != Some(&expected))
                .count();
            assert_eq!(wrong, 0, "of {pairs} pairs {prefix} with {gap:?} between them");
        }
    }
}

/// A pipeline with every kind of listener.
struct Room {
    runtime: tokio::runtime::Runtime,
    pipeline: Arc<Pipeline>,
    unixgram: PathBuf,
    _directory: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let unixgram = directory.path().join("s");
        let local = Some(([127, 0, 0, 1], 0).into());
        let pipeline = Pipeline::start(PipelineConfig {
            udp: local,
            tcp: local,
            unixgram: Some(unixgram.display().to_string()),
            ..PipelineConfig::default()
        })
        .expect("started");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        Self { runtime, pipeline: Arc::new(pipeline), unixgram, _directory: directory }
    }

    fn text(&self) -> String {
        let frames = self.pipeline.frames(Format::Text, &ScrapeQuery::default());
        String::from_utf8(frames.flat_map(|frame| frame.to_vec()).collect()).expect("UTF-8")
    }
}

/// How a line is sent.
trait Sender {
    fn send(&mut self, line: &str);
}

struct Udp(SocketAddr);
/// A connection for each line; it stays open, or is closed behind the line.
struct FreshTcp(SocketAddr, Vec<TcpStream>, bool);
struct Tcp(TcpStream);
struct Unixgram<'a>(&'a Path);

impl Sender for Udp {
    fn send(&mut self, line: &str) {
        over_udp(self.0, line);
    }
}

impl Sender for FreshTcp {
    fn send(&mut self, line: &str) {
        let mut stream = TcpStream::connect(self.0).expect("connected");
        stream.write_all(format!("{line}\n").as_bytes()).expect("sent");
        self.1.extend(self.2.then_some(stream));
    }
}

impl Sender for Tcp {
    fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).expect("sent");
    }
}

impl Sender for Unixgram<'_> {
    fn send(&mut self, line: &str) {
        UnixDatagram::unbound().expect("socket").send_to(line.as_bytes(), self.0).expect("sent");
    }
}

const PAIRS: u64 = 150;
/// Pairs that may wait unread: fewer than any receive buffer holds.
const MANY: u64 = 75;
/// Bytes of a long-lived connection may wait in its sender until earlier ones are acknowledged, and have not arrived
/// then. So no pair with such a connection in it is sent before the last one has been read.
const ONE: u64 = 1;

/// Sends pairs, first by one, then by the other; `at_once` of them may wait unread.
fn pairs(room: &Room, name: &str, first: &mut dyn Sender, second: &mut dyn Sender, at_once: u64) {
    let before = room.pipeline.lines(None);
    let counted = |lines: u64| {
        until("the lines are counted", || {
            (room.pipeline.lines(None) - before >= lines).then_some(())
        });
    };
    // Where each is waited for, it is the waiting that takes the time.
    let pairs = if at_once == ONE { PAIRS / 4 } else { PAIRS };
    for pair in 0..pairs {
        first.send(&format!("{name}_{pair}:5|g"));
        spin(Duration::from_micros(pair % 5 * 40));
        second.send(&format!("{name}_{pair}:0|g"));
        if (pair + 1) % at_once == 0 {
            counted(2 * (pair + 1));
        }
    }
    counted(2 * pairs);
    let text = room.text();
    let wrong: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with(&format!("{name}_")) && !line.ends_with(" 0"))
        .collect();
    assert!(wrong.is_empty(), "{} of {pairs}: {wrong:?}", wrong.len());
}

#[test]
fn lines_of_different_listeners_keep_their_order() {
    let room = Room::new();
    let udp = || Udp(room.pipeline.udp_address().expect("address"));
    let tcp = room.pipeline.tcp_address().expect("address");
    let fresh = || FreshTcp(tcp, Vec::new(), true);
    let closed = || FreshTcp(tcp, Vec::new(), false);
    // A sender that waits for acknowledgements keeps lines back, which come when they come.
    let open = || {
        let mut stream = TcpStream::connect(tcp).expect("connected");
        stream.set_nodelay(true).expect("option");
        // The kernel joins what comes before a connection is accepted.
        let before = room.pipeline.lines(None);
        stream.write_all(b"first:1|c\n").expect("sent");
        until("the connection is accepted", || (room.pipeline.lines(None) > before).then_some(()));
        Tcp(stream)
    };
    let unixgram = || Unixgram(&room.unixgram);
    // The kernel begins to stamp packets a moment after it is told to.
    pairs(&room, "warm", &mut udp(), &mut udp(), ONE);
    pairs(&room, "udp_udp", &mut udp(), &mut udp(), MANY);
    pairs(&room, "udp_fresh", &mut udp(), &mut fresh(), MANY);
    pairs(&room, "fresh_udp", &mut fresh(), &mut udp(), MANY);
    pairs(&room, "fresh_fresh", &mut fresh(), &mut fresh(), MANY);
    pairs(&room, "udp_closed", &mut udp(), &mut closed(), MANY);
    pairs(&room, "closed_udp", &mut closed(), &mut udp(), MANY);
    pairs(&room, "closed_closed", &mut closed(), &mut closed(), MANY);
    pairs(&room, "udp_open", &mut udp(), &mut open(), ONE);
    pairs(&room, "open_udp", &mut open(), &mut udp(), ONE);
    pairs(&room, "open_open", &mut open(), &mut open(), ONE);
    pairs(&room, "open_fresh", &mut open(), &mut fresh(), ONE);
    pairs(&room, "open_unix", &mut open(), &mut unixgram(), ONE);
    pairs(&room, "udp_unix", &mut udp(), &mut unixgram(), MANY);
    pairs(&room, "unix_udp", &mut unixgram(), &mut udp(), MANY);
    pairs(&room, "unix_fresh", &mut unixgram(), &mut fresh(), MANY);
    pairs(&room, "unix_unix", &mut unixgram(), &mut unixgram(), MANY);
    room.runtime.block_on(room.pipeline.shutdown());
}

#[test]
fn the_stop_keeps_the_order_too() {
    // Keeps the kernel stamping, which it begins a moment after it is told to.
    let warm = Room::new();
    let udp = || Udp(warm.pipeline.udp_address().expect("address"));
    pairs(&warm, "warm", &mut udp(), &mut udp(), ONE);
    for _ in 0..20 {
        let room = Room::new();
        let udp = room.pipeline.udp_address().expect("address");
        let mut fresh = FreshTcp(room.pipeline.tcp_address().expect("address"), Vec::new(), true);
        for pair in 0..50 {
            over_udp(udp, &format!("a_{pair}:5|g"));
            fresh.send(&format!("a_{pair}:0|g"));
            fresh.send(&format!("b_{pair}:5|g"));
            over_udp(udp, &format!("b_{pair}:0|g"));
        }
        room.runtime.block_on(room.pipeline.shutdown());
        let text = room.text();
        let kept = text.lines().filter(|line| line.ends_with(" 0") && !line.starts_with("statsd_"));
        assert_eq!(kept.count(), 100, "{text}");
        // Who waits sees the end.
        for mut stream in fresh.1 {
            assert_eq!(stream.read(&mut [0; 1]).ok(), Some(0));
        }
    }
}
