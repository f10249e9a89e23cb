//! Lines take effect in the order in which they were sent, within a datagram socket (from any port) and
//! within a TCP connection.
//!
//! The tests send pairs of gauges with the same name; the second value must remain.

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

/// Busy-waits for an exact time between two datagrams.
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
        // Long gaps show nothing more than short ones and only take time.
        let pairs = if gap.as_micros() >= 1_000 { PAIRS / 4 } else { PAIRS };
        for pair in 0..pairs {
            over_udp(udp, &format!("g{number}_{pair}:5|g"));
            spin(gap);
            over_udp(udp, &format!("g{number}_{pair}:0|g"));
            over_udp(udp, &format!("t{number}_{pair}:100|g"));
            over_udp(udp, &format!("t{number}_{pair}:+1|g"));
            // The first line creates the family, the second one conflicts.
            over_udp(udp, &format!("k{number}_{pair}:1|c"));
            over_udp(udp, &format!("k{number}_{pair}:7|g"));
            // Limits the datagrams in flight to what any receive buffer holds.
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

/// A sender of lines.
trait Sender {
    fn send(&mut self, line: &str);
}

struct Udp(SocketAddr);
struct Tcp(TcpStream);
struct Unixgram<'a>(&'a Path);

impl Sender for Udp {
    fn send(&mut self, line: &str) {
        over_udp(self.0, line);
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

const PAIRS: u64 = 1_500;
/// The maximum number of unread pairs; fewer than any receive buffer holds.
const AT_ONCE: u64 = 75;

/// Sends pairs with one sender.
fn pairs(room: &Room, name: &str, sender: &mut dyn Sender) {
    let before = room.pipeline.lines(None);
    let counted = |lines: u64| {
        until("the lines are counted", || {
            (room.pipeline.lines(None) - before >= lines).then_some(())
        });
    };
    for pair in 0..PAIRS {
        sender.send(&format!("{name}_{pair}:5|g"));
        spin(Duration::from_micros(pair % 5 * 40));
        sender.send(&format!("{name}_{pair}:0|g"));
        if (pair + 1) % AT_ONCE == 0 {
            counted(2 * (pair + 1));
        }
    }
    counted(2 * PAIRS);
    let text = room.text();
    let kept = text.lines().filter(|line| line.starts_with(&format!("{name}_")));
    let (kept, wrong): (Vec<_>, Vec<_>) = kept.partition(|line| line.ends_with(" 0"));
    assert!(
        wrong.is_empty() && kept.len() as u64 == PAIRS,
        "{} of {PAIRS}: {wrong:?}",
        wrong.len()
    );
}

#[test]
fn lines_of_one_socket_or_connection_keep_their_order() {
    let room = Room::new();
    let open = || {
        let stream = TcpStream::connect(room.pipeline.tcp_address().expect("address"));
        Tcp(stream.expect("connected"))
    };
    pairs(&room, "udp", &mut Udp(room.pipeline.udp_address().expect("address")));
    pairs(&room, "unix", &mut Unixgram(&room.unixgram));
    pairs(&room, "tcp", &mut open());
    let mut without_delay = open();
    without_delay.0.set_nodelay(true).expect("option");
    pairs(&room, "nodelay", &mut without_delay);
    // All senders run at once, so each one waits while others are read.
    let mut streams = [open(), open(), open()];
    std::thread::scope(|scope| {
        let udp = room.pipeline.udp_address().expect("address");
        let lines = room.pipeline.lines(None);
        for (number, stream) in streams.iter_mut().enumerate() {
            scope.spawn(move || {
                for pair in 0..PAIRS {
                    stream.send(&format!("both{number}_{pair}:5|g\nboth{number}_{pair}:0|g"));
                }
            });
        }
        for pair in 0..AT_ONCE {
            over_udp(udp, &format!("bothu_{pair}:5|g"));
            over_udp(udp, &format!("bothu_{pair}:0|g"));
        }
        until("the lines are counted", || {
            (room.pipeline.lines(None) - lines >= 6 * PAIRS + 2 * AT_ONCE).then_some(())
        });
    });
    let text = room.text();
    let both = text.lines().filter(|line| line.starts_with("both") && line.ends_with(" 0"));
    assert_eq!(both.count() as u64, 3 * PAIRS + AT_ONCE);
    room.runtime.block_on(room.pipeline.shutdown());
}

#[test]
fn order_is_kept_at_shutdown() {
    for _ in 0..20 {
        let room = Room::new();
        let udp = room.pipeline.udp_address().expect("address");
        let tcp = room.pipeline.tcp_address().expect("address");
        let mut streams = Vec::new();
        for pair in 0..50 {
            over_udp(udp, &format!("a_{pair}:5|g"));
            let mut stream = Tcp(TcpStream::connect(tcp).expect("connected"));
            stream.send(&format!("b_{pair}:5|g"));
            over_udp(udp, &format!("a_{pair}:0|g"));
            stream.send(&format!("b_{pair}:0|g"));
            streams.push(stream.0);
        }
        room.runtime.block_on(room.pipeline.shutdown());
        let text = room.text();
        let kept = text.lines().filter(|line| line.ends_with(" 0") && !line.starts_with("statsd_"));
        assert_eq!(kept.count(), 100, "{text}");
        // A client that waits sees the connection close.
        for mut stream in streams {
            assert_eq!(stream.read(&mut [0; 1]).ok(), Some(0));
        }
    }
}
