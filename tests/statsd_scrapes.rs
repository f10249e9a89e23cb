//! Scrapes of large families: every format arrives completely, plain and compressed, and a disconnected
//! client cancels its scrape.

mod common;
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use common::{DEADLINE, Program, get, request, until};
use support::exposition;

const COUNTERS: usize = 30_000;
const TIMERS: usize = 3_000;

const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=";

struct Exporter {
    _program: Program,
    web: SocketAddr,
}

/// Starts an exporter with two large families.
fn exporter() -> Exporter {
    let flags = ["web.listen-address", "statsd.listen-udp", "statsd.listen-tcp"];
    let args = flags.map(|flag| format!("--{flag}=127.0.0.1:0"));
    let program = Program::start("statsd_exporter", &args);
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let tcp = program.address(&["Accepting StatsD Traffic"], "tcp");
    let counters = (0..COUNTERS).map(|id| format!("requests:{}|c|#id:{id}\n", id + 1));
    let timers = (0..TIMERS).map(|id| format!("times:{id}|ms|#id:{id}\n"));
    let lines: String = counters.chain(timers).collect();
    let mut stream = TcpStream::connect(tcp).expect("connect");
    stream.write_all(lines.as_bytes()).expect("send");
    drop(stream);
    let all = format!("statsd_exporter_lines_total {}", COUNTERS + TIMERS);
    until("all lines", || get(web, "/metrics").text().contains(&all).then_some(()));
    Exporter { _program: program, web }
}

impl Exporter {
    fn body(&self, accept: &str, encoding: &str) -> Vec<u8> {
        let headers = [("Accept", accept), ("Accept-Encoding", encoding)];
        let answer = request(self.web, "GET", "/metrics", &headers).expect("answer");
        assert_eq!(answer.status, 200);
        if encoding != "gzip" {
            return answer.body;
        }
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
        let mut plain = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(answer.body.as_slice());
        decoder.read_to_end(&mut plain).expect("one valid member");
        plain
    }

    fn in_flight(&self) -> f64 {
        self.number("promhttp_metric_handler_requests_in_flight ")
    }

    fn answered(&self) -> f64 {
        self.number("promhttp_metric_handler_requests_total{code=\"200\"} ")
    }

    fn number(&self, name: &str) -> f64 {
        let text = get(self.web, "/metrics").text();
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.parse().ok()).expect("a number of scrapes")
    }
}

/// Returns the samples of the user. Own metrics change from scrape to scrape.
fn users<T: IntoIterator<Item = (String, String)>>(samples: T) -> Vec<(String, String)> {
    let is_users = |name: &String| name.starts_with("requests") || name.starts_with("times");
    samples.into_iter().filter(|(name, _)| is_users(name)).collect()
}

#[test]
fn every_format_of_a_large_family_is_complete() {
    let exporter = exporter();
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let plain = text(exporter.body("text/plain", "identity"));
    let want = users(exposition::text_samples(&plain).expect("text"));
    // A timer has three quantiles, a sum and a count.
    assert_eq!(want.len(), COUNTERS + 5 * TIMERS);
    for encoding in ["identity", "gzip"] {
        let plain = text(exporter.body("text/plain", encoding));
        assert!(users(exposition::text_samples(&plain).expect("text")) == want, "text, {encoding}");
        let delimited = exporter.body(&format!("{PROTOBUF}delimited"), encoding);
        assert!(users(exposition::protobuf_samples(&delimited)) == want, "delimited, {encoding}");
        let lines = text(exporter.body(&format!("{PROTOBUF}text"), encoding));
        for id in [0, COUNTERS / 2, COUNTERS - 1] {
            let metric = format!(
                "metric: {{\n  label: {{\n    name: \"id\"\n    value: \"{id}\"\n  }}\n  counter: {{\n    value: "
            );
            assert_eq!(lines.matches(&metric).count(), 1, "{id}, {encoding}");
        }
        assert_eq!(lines.matches("\n    name: \"id\"\n").count(), COUNTERS + TIMERS);
        let compact = text(exporter.body(&format!("{PROTOBUF}compact-text"), encoding));
        let family = |name: &str| {
            let start = format!("name:\"{name}\" ");
            compact.lines().find(|line| line.starts_with(&start)).expect("a family").to_owned()
        };
        assert_eq!(family("requests").matches(" metric:{label:").count(), COUNTERS);
        assert_eq!(family("times").matches(" metric:{label:").count(), TIMERS);
    }
}

#[test]
fn a_disconnected_client_cancels_its_scrape() {
    let exporter = exporter();
    let mut cut = 0;
    for encoding in ["delimited", "text", "compact-text"] {
        let before = exporter.answered();
        let clients: Vec<TcpStream> = (0..3)
            .map(|_| {
                let mut client = TcpStream::connect(exporter.web).expect("connect");
                client.set_read_timeout(Some(DEADLINE)).expect("timeout");
                let request = format!(
                    "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {PROTOBUF}{encoding}\r\n\r\n"
                );
                client.write_all(request.as_bytes()).expect("send");
                client.read_exact(&mut [0; 10]).expect("the head");
                client
            })
            .collect();
        cut = clients.len();
        drop(clients);
        let mut asked = 0;
        until("only the scrape that asks", || {
            asked += 1;
            (exporter.in_flight() == 1.0).then_some(())
        });
        // A cancelled scrape counts once, with the status of its header.
        assert_eq!(exporter.answered(), before + (1 + cut + asked) as f64, "{encoding}");
    }
    assert!(cut > 0);
}
