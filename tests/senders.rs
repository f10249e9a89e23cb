//! Senders of anything: each line of it is counted, and nobody else notices.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{DEADLINE, Program, get, until, valid_text};

struct Exporter {
    program: Program,
    web: SocketAddr,
    udp: SocketAddr,
    tcp: SocketAddr,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Exporter {
    fn start(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let socket = directory.path().join("s");
        let unix = format!("--statsd.listen-unixgram={}", socket.display());
        let fixed = [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=127.0.0.1:0",
            &unix,
        ];
        let program = Program::start("statsd_exporter", [&fixed[..], flags].concat());
        let web = program.address(&["Accepting Prometheus Requests"], "addr");
        let traffic = ["Accepting StatsD Traffic"];
        let (udp, tcp) = (program.address(&traffic, "udp"), program.address(&traffic, "tcp"));
        Self { program, web, udp, tcp, socket, _directory: directory }
    }

    /// Sum of the own series that begin like this.
    fn own(&self, series: &str) -> f64 {
        let text = get(self.web, "/kstatd/metrics").text();
        let lines = text.lines().filter(|line| line.starts_with(series));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    fn lines(&self, listener: &str) -> f64 {
        self.own(&format!("kstatd_statsd_lines_total{{listener=\"{listener}\""))
    }

    /// Memory that is no part of a file, in bytes.
    fn memory(&self) -> usize {
        let path = format!("/proc/{}/smaps_rollup", self.program.id());
        let text = std::fs::read_to_string(path).expect("memory");
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a number");
        let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }
}

/// Lines of a datagram, as they are counted: empty ones, too.
fn lines_of(datagram: &[u8]) -> f64 {
    (datagram.iter().filter(|byte| **byte == b'\n').count() + 1) as f64
}

#[test]
fn datagrams_of_any_size_and_content_are_counted_line_by_line() {
    let exporter = Exporter::start(&[]);
    let udp = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let unix = UnixDatagram::unbound().expect("socket");
    unix.connect(&exporter.socket).expect("connect");
    let all_bytes: Vec<u8> = (0..=255).collect();
    // As large as UDP can be.
    let mut full = b"full:1|c\n".repeat(8_000);
    full.truncate(65_507);
    let one_name = [&[b'n'; 65_000][..], b":1|c"].concat();
    let datagrams: [&[u8]; 10] = [
        b"",
        b"\n\n\n",
        &full,
        &one_name,
        &all_bytes.repeat(200),
        b"\xff\xfe:1|c\n\xc3\x28:1|c\nok:1|c|#\xff:\xfe",
        b"\0\0\0:1|c",
        b"a:1|c\r\nb:1|c\r\n",
        &b":".repeat(65_000),
        &b"|#@".repeat(20_000),
    ];
    let mut sent = 0.0;
    for (datagram, count) in datagrams.into_iter().zip(1..) {
        udp.send_to(datagram, exporter.udp).expect("sent");
        unix.send(datagram).expect("sent");
        sent += lines_of(datagram);
        for listener in ["udp", "unixgram"] {
            until("each of its lines is counted", || {
                (exporter.lines(listener) == sent).then_some(())
            });
            let packets = exporter.own(&format!("statsd_exporter_{listener}_packets_total"));
            assert_eq!(packets, f64::from(count), "{listener}");
        }
        valid_text(&get(exporter.web, "/metrics").text());
    }
    assert_eq!(exporter.own("kstatd_statsd_truncated_datagrams_total"), 0.0);
    assert_eq!(exporter.own("kstatd_statsd_thread_restarts_total"), 0.0);
    // What is longer than any buffer is cut, and that is counted.
    unix.send(&b"x:1|c\n".repeat(12_000)).expect("sent");
    until("it is counted", || {
        (exporter.own("kstatd_statsd_truncated_datagrams_total") == 1.0).then_some(())
    });
}

#[test]
fn lines_without_end_are_cut_and_hold_no_memory() {
    let exporter = Exporter::start(&[]);
    let mut good = TcpStream::connect(exporter.tcp).expect("connect");
    good.write_all(b"good:1|c\n").expect("sent");
    until("it is heard", || {
        get(exporter.web, "/metrics").text().contains("\ngood 1\n").then_some(())
    });
    let before = exporter.memory();
    const SENDERS: usize = 50;
    for _ in 0..SENDERS {
        let mut stream = TcpStream::connect(exporter.tcp).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        let block = [b'x'; 64 << 10];
        // It is closed long before a gigabyte.
        let cut = (0..16_000).any(|_| stream.write_all(&block).is_err());
        assert!(cut || matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "it goes on for ever");
    }
    assert_eq!(exporter.own("statsd_exporter_tcp_too_long_lines_total"), SENDERS as f64);
    let more = exporter.memory().saturating_sub(before);
    assert!(more < 8 << 20, "{more} bytes");
    good.write_all(b"good:1|c\n").expect("sent");
    until("the others go on", || {
        get(exporter.web, "/metrics").text().contains("\ngood 2\n").then_some(())
    });
}

#[test]
fn what_is_too_much_is_lost_by_count_and_costs_no_memory() {
    // A buffer of few datagrams, and senders that never wait: more than can be taken, however fast that is.
    let exporter = Exporter::start(&["--statsd.read-buffer=4096"]);
    const SENDERS: u64 = 2;
    const LINES: u64 = 40;
    let datagram = ["flood:1|c"; LINES as usize].join("\n");
    let udp = || UdpSocket::bind("127.0.0.1:0").expect("bind");
    udp().send_to(datagram.as_bytes(), exporter.udp).expect("sent");
    until("the series is there", || (exporter.lines("udp") == LINES as f64).then_some(()));
    let before = exporter.memory();
    let (sent, is_over) = (AtomicU64::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                let socket = udp();
                while !is_over.load(Ordering::Relaxed) {
                    socket.send_to(datagram.as_bytes(), exporter.udp).expect("sent");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let drops = || exporter.own("statsd_exporter_udp_packet_drops_total");
        // Every answer comes while they send.
        until("much is lost", || {
            valid_text(&get(exporter.web, "/metrics").text());
            (drops() > 10_000.0).then_some(())
        });
        is_over.store(true, Ordering::Relaxed);
    });
    // The kernel tells of drops with the next datagram of the socket.
    until("the ledger balances", || {
        udp().send_to(datagram.as_bytes(), exporter.udp).expect("sent");
        let sent = (sent.fetch_add(1, Ordering::Relaxed) + 1) as f64;
        let dropped = exporter.own("statsd_exporter_udp_packet_drops_total");
        let taken = exporter.own("statsd_exporter_udp_packets_total");
        (taken + dropped == sent && exporter.lines("udp") == taken * LINES as f64).then_some(())
    });
    let more = exporter.memory().saturating_sub(before);
    assert!(more < 8 << 20, "{more} bytes");
}
