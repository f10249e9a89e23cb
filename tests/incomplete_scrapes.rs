//! Responses that their client does not take in full: the counter, the status, and what is not counted.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::{DEADLINE, Program, get, request, until};
use serde_json::Value;

const COUNTER: &str = "kstatd_http_scrapes_incomplete_total{";

struct Kstatd {
    _program: Program,
    _cluster: Cluster,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Kstatd {
    /// Starts the program with the state of `pods` pods, 8 KB each.
    fn start(pods: u32) -> Self {
        let cluster = Cluster::new(pods);
        let flags = [
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=",
            "--statsd.listen-tcp=",
            "--resources=pods",
            "--enable-gzip-encoding",
            &cluster.flag(),
        ];
        let program = Program::start("kstatd", flags);
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        until("the pods are listed", || (get(main, "/readyz").status == 200).then_some(()));
        Self { _program: program, _cluster: cluster, main, telemetry }
    }

    /// Requests the metrics; the caller reads the response.
    fn ask(&self, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.main).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        let head = format!("GET /metrics HTTP/1.1\r\nHost: test\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).expect("request");
        stream.read_exact(&mut [0; 1024]).expect("the response has begun");
        stream
    }

    /// Returns the series of the counter.
    fn counted(&self) -> Vec<String> {
        let own = get(self.telemetry, "/metrics").text();
        own.lines().filter_map(|line| Some(line.strip_prefix(COUNTER)?.to_owned())).collect()
    }

    /// Waits until these are the series of the counter.
    fn counts(&self, wanted: &[&str]) {
        until(&format!("{wanted:?}"), || (self.counted() == wanted).then_some(()));
    }

    /// Returns the warnings and notes of the status.
    fn notes(&self) -> Vec<String> {
        let text = get(self.main, "/status?format=json").text();
        let facts: Value = serde_json::from_str(&text).expect("JSON");
        let of = |key: &str| facts[key].as_array().expect("sentences").clone();
        let text = |of: &Value| of["text"].as_str().or(of.as_str()).expect("text").to_owned();
        [of("warnings"), of("notes")].concat().iter().map(text).collect()
    }
}

#[test]
fn clients_that_close_early_are_counted() {
    let kstatd = Kstatd::start(2_000);
    let whole = get(kstatd.main, "/metrics").body.len();
    assert!(kstatd.counted().is_empty());

    let head = "User-Agent: vm_promscrape\r\nX-Prometheus-Scrape-Timeout-Seconds: 100\r\n";
    kstatd.ask(head).read_exact(&mut vec![0; 1 << 20]).expect("a part");
    kstatd.counts(&["cause=\"closed\",scraper=\"victoriametrics\"} 1"]);
    let notes = kstatd.notes();
    let note = notes.iter().find(|note| note.contains("did not take all")).expect("a note");
    for part in ["victoriametrics at 127.0.0.1", "/metrics", "of about 1", "maxScrapeSize"] {
        assert!(note.contains(part), "{part} in {note}; {whole} bytes");
    }

    // The second response of a connection, compressed.
    let mut stream = kstatd.ask("User-Agent: Prometheus/3.0\r\nAccept-Encoding: gzip\r\n");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let mut bytes = [0; 4 << 10];
        let count = stream.read(&mut bytes).expect("more of it");
        answer.extend_from_slice(&bytes[..count]);
    }
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nUser-Agent: Prometheus/3.0\r\n\r\n")
        .expect("ask");
    stream.read_exact(&mut [0; 1024]).expect("the response has begun");
    drop(stream);
    let closed = "cause=\"closed\",scraper=\"prometheus\"} 1";
    kstatd.counts(&[closed, "cause=\"closed\",scraper=\"victoriametrics\"} 1"]);
}

#[test]
fn clients_at_their_timeout_and_stalled_clients_have_their_own_causes() {
    let kstatd = Kstatd::start(2_000);
    let mut slow = kstatd.ask("User-Agent: Alloy/v1\r\nX-Prometheus-Scrape-Timeout-Seconds: 2\r\n");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1_950) {
        slow.read_exact(&mut [0; 1]).expect("more of it");
        std::thread::yield_now();
    }
    drop(slow);
    kstatd.counts(&["cause=\"scrape_timeout\",scraper=\"grafana\"} 1"]);
    // kstatd ends a response after twice the timeout.
    let head = "User-Agent: Datadog Agent/7\r\nX-Prometheus-Scrape-Timeout-Seconds: 0.2\r\n";
    let stalled = kstatd.ask(head);
    let server = "cause=\"server\",scraper=\"datadog\"} 1";
    kstatd.counts(&["cause=\"scrape_timeout\",scraper=\"grafana\"} 1", server]);
    drop(stalled);
}

#[test]
fn entire_responses_are_not_counted_and_large_ones_are_noted() {
    let kstatd = Kstatd::start(2_000);
    let agent = [("User-Agent", "vm_promscrape")];
    for (method, path, status) in [
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("HEAD", "/metrics?namespace=%2F", 400),
        ("GET", "/metrics?namespace=%2F", 400),
    ] {
        let answer = request(kstatd.main, method, path, &agent).expect("a response");
        assert_eq!(answer.status, status, "{method} {path}");
    }
    let gzip = [("User-Agent", "vm_promscrape"), ("Accept-Encoding", "gzip")];
    let answer = request(kstatd.main, "GET", "/metrics", &gzip).expect("a response");
    assert!(answer.body.len() < 4 << 20, "{}", answer.body.len());
    let notes = kstatd.notes();
    assert!(notes.iter().any(|note| note.contains("16 MiB, the default of")), "{notes:?}");
    // The log shows all of them before the counter is read.
    let answered = "http_request_duration_seconds_count{handler=\"metrics\",method=\"get\"} 3";
    until("all have ended", || {
        get(kstatd.telemetry, "/metrics").text().contains(answered).then_some(())
    });
    assert!(kstatd.counted().is_empty(), "{:?}", kstatd.counted());
}

/// The system takes a small response at once, and resets the connection when a client closes it
/// with unread data.
#[test]
fn a_small_response_that_is_not_read_is_counted_by_its_reset() {
    let kstatd = Kstatd::start(5);
    drop(kstatd.ask("User-Agent: otelcol-contrib/0.1\r\n"));
    kstatd.counts(&["cause=\"closed\",scraper=\"opentelemetry\"} 1"]);
    let notes = kstatd.notes();
    assert!(notes.iter().any(|note| note.contains("did not take all")), "{notes:?}");
}

#[test]
fn invented_user_agents_share_a_series() {
    let kstatd = Kstatd::start(5);
    for number in 0..50 {
        drop(kstatd.ask(&format!("User-Agent: invented-{number}/1\r\n")));
    }
    kstatd.counts(&["cause=\"closed\",scraper=\"other\"} 50"]);
}
