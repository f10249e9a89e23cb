//! Senders of arbitrary data: each line is counted, and other senders are unaffected.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{DEADLINE, Program, get, run, until, valid_text};

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

    /// Returns the sum of the own series with this prefix.
    fn own(&self, series: &str) -> f64 {
        let text = get(self.web, "/kstatd/metrics").text();
        let lines = text.lines().filter(|line| line.starts_with(series));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    fn lines(&self, listener: &str) -> f64 {
        self.own(&format!("kstatd_statsd_lines_total{{listener=\"{listener}\""))
    }

    /// Returns the anonymous memory in bytes.
    fn memory(&self) -> usize {
        let path = format!("/proc/{}/smaps_rollup", self.program.id());
        let text = std::fs::read_to_string(path).expect("memory");
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a number");
        let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }
}

/// Returns the counted lines of a datagram, including empty ones.
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
    // The maximum size of a UDP datagram.
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
    // A datagram larger than the buffer is truncated and counted.
    unix.send(&b"x:1|c\n".repeat(12_000)).expect("sent");
    until("it is counted", || {
        (exporter.own("kstatd_statsd_truncated_datagrams_total") == 1.0).then_some(())
    });
}

#[test]
fn unterminated_lines_are_closed_and_use_no_memory() {
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
fn overload_is_counted_and_uses_no_memory() {
    // A buffer for few datagrams, and senders that never wait: an overload for any receiver.
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
        // Every scrape is answered while they send.
        until("much is lost", || {
            valid_text(&get(exporter.web, "/metrics").text());
            (drops() > 10_000.0).then_some(())
        });
        is_over.store(true, Ordering::Relaxed);
    });
    // The kernel reports drops with the next datagram of the socket.
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

/// A text field of each sender that the status lists, and the sentences for those that would gain.
fn batching(exporter: &Exporter) -> (serde_json::Value, Vec<String>) {
    let json = get(exporter.web, "/kstatd/status?format=json").text();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let output = run("kstatd", ["status", &format!("--addr={}", exporter.web)]);
    let lines = output.stdout.lines().filter(|line| line.contains("lines per datagram"));
    (json["statsd"]["senders"].clone(), lines.map(|line| line.trim().to_owned()).collect())
}

#[test]
fn the_status_names_the_senders_that_should_batch() {
    let directory = tempfile::tempdir().expect("directory");
    let mapping = directory.path().join("mapping.yaml");
    std::fs::write(&mapping, "mappings: []").expect("file");
    let relay = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let relay_flag = format!("--statsd.relay.address={}", relay.local_addr().expect("address"));
    let mapping_flag = format!("--statsd.mapping-config={}", mapping.display());
    let exporter = Exporter::start(&[
        "--statsd.udp-sockets=2",
        "--limit.mode=enforce",
        "--limit.series=10",
        "--web.enable-lifecycle",
        &relay_flag,
        &mapping_flag,
    ]);
    assert!(batching(&exporter).1.is_empty());
    let batch = "batched:1|c\n".repeat(100);
    let [single, batched] = ["127.0.0.2:0", "127.0.0.3:0"].map(|address| {
        // Several sockets each, so that both of the exporter's receive from both.
        [(); 8].map(|()| UdpSocket::bind(address).expect("bind"))
    });
    let unix = UnixDatagram::unbound().expect("socket");
    unix.connect(&exporter.socket).expect("connect");
    let mut tcp = TcpStream::connect(exporter.tcp).expect("connect");
    let (mut round, mut sent) = (0_u64, 0_u64);
    let mut send = || {
        for part in 0..4_000 {
            round += 1;
            sent += 1 + u64::from(round.is_multiple_of(4));
            let socket = round as usize % 8;
            // Series beyond the budget come from a sender as well.
            let line = format!("single{}:1|c", round % 20);
            single[socket].send_to(line.as_bytes(), exporter.udp).expect("sent");
            if round.is_multiple_of(4) {
                batched[socket].send_to(batch.as_bytes(), exporter.udp).expect("sent");
                tcp.write_all(b"tcp:1|c\n").expect("sent");
            }
            if round.is_multiple_of(2) {
                unix.send(b"unix:1|c\nunix:2|c").expect("sent");
            }
            // The kernel drops datagrams of UDP alone, which would change the shares of the senders.
            if part % 100 == 99 {
                until("all datagrams have been taken", || {
                    let taken = exporter.own("statsd_exporter_udp_packets_total");
                    (taken == sent as f64).then_some(())
                });
            }
        }
    };
    let names = |lines: &[String]| -> Vec<String> {
        lines.iter().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
    };
    let lines = until("both senders of small datagrams are named", || {
        send();
        let (_, lines) = batching(&exporter);
        (names(&lines) == ["127.0.0.2", "Unix socket"]).then_some(lines)
    });
    assert!(lines[0].starts_with("127.0.0.2: 1.0 lines per datagram, "), "{lines:?}");
    assert!(lines[1].starts_with("Unix socket: 2.0 lines per datagram, "), "{lines:?}");
    let saving = lines[0].rsplit_once("save about ").expect("saving").1;
    let percent = saving.split_once("% of the CPU for datagrams").expect("percent").0;
    assert!((1..=60).contains(&percent.parse::<u32>().expect("a number")), "{lines:?}");
    // A reload changes what lines mean, not who sends them.
    std::fs::write(&mapping, "mappings: [{match: single*, name: single}]").expect("file");
    assert_eq!(common::request(exporter.web, "PUT", "/-/reload", &[]).expect("answer").status, 200);
    let (json, lines) = batching(&exporter);
    assert_eq!(names(&lines), ["127.0.0.2", "Unix socket"]);
    let senders = json.as_array().expect("a list");
    let lines_of = |address: serde_json::Value| {
        let sender = senders.iter().find(|sender| sender["address"] == address);
        sender.map(|sender| sender["lines_per_datagram"].as_f64().expect("a number"))
    };
    // Who batches already is known as well; who sends over TCP has no datagrams.
    assert_eq!(lines_of("127.0.0.3".into()), Some(100.0));
    assert_eq!(lines_of(serde_json::Value::Null), Some(2.0));
    assert_eq!((senders.len(), lines_of("127.0.0.1".into())), (3, None));
    let page = get(exporter.web, "/kstatd/status").text();
    let table = page.split("Senders that should batch their lines").nth(1).expect("a table");
    let table = table.split("</table>").next().expect("its end");
    for part in ["127.0.0.2", "1.0", "Unix socket", "2.0"] {
        assert!(table.contains(&format!(">{part}</td>")), "{part} in {table}");
    }
    assert!(!table.contains("127.0.0.3"), "{table}");
}
