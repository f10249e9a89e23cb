//! Slow, many and malformed scrapers: they cost little and delay no other client.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::cluster::Cluster;
use common::{DEADLINE, Program, get, until, valid_text};

/// Starts the program under the name kube-state-metrics; returns it with its listeners.
fn exporter(cluster: &Cluster, flags: &[&str]) -> (Program, [SocketAddr; 2]) {
    let fixed =
        ["--port=0", "--telemetry-port=0", "--host=127.0.0.1", "--telemetry-host=127.0.0.1"];
    let flag = cluster.flag();
    let program =
        Program::start("kube-state-metrics", [&[flag.as_str()], &fixed[..], flags].concat());
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    until("all kinds are listed", || {
        get(telemetry, "/metrics").text().contains("\nkstatd_ready 1\n").then_some(())
    });
    (program, [main, telemetry])
}

/// Returns the process's anonymous memory in bytes.
fn own_memory(program: &Program) -> usize {
    let path = format!("/proc/{}/smaps_rollup", program.id());
    let text = std::fs::read_to_string(path).expect("memory");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a number");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
    stream
}

/// Maximum memory of a stalled reader: pieces queued for its socket, and its connection.
const MAX_HELD: usize = 400 << 10;

#[test]
fn stalled_readers_use_little_memory_and_delay_no_one() {
    // 30 responses of 16 MB; one reader has requested twenty more.
    let cluster = Cluster::new(2_000);
    let (program, [main, _]) =
        exporter(&cluster, &["--resources=pods", "--server-write-timeout=5m"]);
    let whole = get(main, "/metrics").body;
    let steady = own_memory(&program);
    let mut readers = Vec::from_iter((0..30).map(|number| {
        let mut stream = connect(main);
        let requests = if number == 0 { 20 } else { 1 };
        let head = "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n".repeat(requests);
        stream.write_all(head.as_bytes()).expect("request");
        stream.read_exact(&mut [0; 1024]).expect("the answer has begun");
        stream
    }));
    assert!(whole.len() * readers.len() > 400_000_000, "{}", whole.len());
    for _ in 0..3 {
        let answer = get(main, "/metrics");
        assert!(answer.body == whole, "another answer");
        let more = own_memory(&program).saturating_sub(steady);
        assert!(more < readers.len() * MAX_HELD, "{more} bytes for {} readers", readers.len());
    }
    // They are still being served, and their memory is freed when they disconnect.
    for reader in &mut readers {
        reader.read_exact(&mut [0; 1024]).expect("more of it");
    }
    drop(readers);
    until("memory is what it was", || (own_memory(&program) <= steady + steady / 4).then_some(()));
}

#[test]
fn slow_heads_are_closed_at_the_header_timeout() {
    let cluster = Cluster::new(5);
    let flags = ["--resources=pods", "--server-read-header-timeout=2s"];
    let (_program, listeners) = exporter(&cluster, &flags);
    std::thread::scope(|scope| {
        for address in listeners.into_iter().cycle().take(40) {
            scope.spawn(move || {
                let mut stream = connect(address);
                stream.set_read_timeout(Some(Duration::from_millis(50))).expect("timeout");
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nX: ").expect("begun");
                // Far more bytes than fit into the header timeout, one at a time.
                let closed = (0..20_000).any(|_| {
                    let is_cut = stream.write_all(b"x").is_err();
                    is_cut || !matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
                });
                assert!(closed, "{address} listens for ever");
            });
        }
        for address in listeners {
            assert_eq!(get(address, "/metrics").status, 200);
        }
    });
}

#[test]
fn malformed_heads_are_rejected_without_side_effects() {
    let cluster = Cluster::new(5);
    let (program, listeners) = exporter(&cluster, &["--resources=pods"]);
    let many = "X: y\r\n".repeat(10_000);
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100_000));
    let requests: [&[u8]; 16] = [
        b"\0\0\0\0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET  /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        b"G\xc3\x84T /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost a\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nX\x01Y: z\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        long_target.as_bytes(),
        many.as_bytes(),
    ];
    for address in listeners {
        for request in requests {
            let mut stream = connect(address);
            // The connection may end before all bytes were read.
            let _ = stream.write_all(request);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let ended = stream.read_to_end(&mut answer);
            let text = String::from_utf8_lossy(&answer);
            let is_refused = text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.0 4");
            let what = String::from_utf8_lossy(&request[..request.len().min(60)]);
            assert!(is_refused || answer.is_empty(), "{what:?} is answered with {text}");
            assert!(ended.is_ok() || answer.is_empty() || is_refused, "{what:?}: {ended:?}");
        }
        valid_text(&get(address, "/metrics").text());
    }
    // `I` is level info.
    let loud = program.log().iter().filter(|line| !line.starts_with('I')).count();
    assert!(loud <= 2, "strangers fill the log: {:#?}", program.log());
}
