//! Differences found by running kstatd beside statsd_exporter 0.31 on the same input. Each test states the
//! behaviour of statsd_exporter.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use common::{DEADLINE, Program, get, request, run, until};

const NAME: &str = "statsd_exporter";

struct Exporter {
    program: Program,
    web: SocketAddr,
    tcp: SocketAddr,
}

fn exporter(flags: &[&str]) -> Exporter {
    let mut args: Vec<String> = ["web.listen-address", "statsd.listen-udp", "statsd.listen-tcp"]
        .iter()
        .map(|flag| format!("--{flag}=127.0.0.1:0"))
        .collect();
    args.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let program = Program::start(NAME, &args);
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let tcp = program.address(&["Accepting StatsD Traffic"], "tcp");
    Exporter { program, web, tcp }
}

impl Exporter {
    fn value(&self, series: &str) -> Option<f64> {
        let text = get(self.web, "/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        line.parse().ok()
    }

    fn wait_for(&self, series: &str, value: f64) {
        until(series, || (self.value(series) == Some(value)).then_some(()));
    }

    /// Sends a raw request and returns everything received until the connection closes.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.web).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        stream.write_all(request.as_bytes()).expect("send");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the connection is closed");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[test]
fn a_carriage_return_without_a_line_feed_belongs_to_the_line() {
    let exporter = exporter(&[]);
    for (text, lines) in [("a:1|c\r\nb:1|c\r", 2.0), ("\r", 3.0)] {
        let mut stream = TcpStream::connect(exporter.tcp).expect("connect");
        stream.write_all(text.as_bytes()).expect("send");
        drop(stream);
        exporter.wait_for("statsd_exporter_lines_total", lines);
    }
    assert_eq!(exporter.value("a"), Some(1.0));
    assert_eq!(exporter.value("b"), None);
    for (reason, count) in [("illegal_event", 1.0), ("malformed_line", 1.0)] {
        let series = format!("statsd_exporter_sample_errors_total{{reason=\"{reason}\"}}");
        assert_eq!(exporter.value(&series), Some(count), "{reason}");
    }
}

/// Sends `text` and resets the connection once the exporter has counted `lines` lines.
fn send_and_reset(exporter: &Exporter, text: &str, lines: f64) {
    let mut stream = TcpStream::connect(exporter.tcp).expect("connect");
    stream.write_all(text.as_bytes()).expect("send");
    // A reset discards unread data.
    exporter.wait_for("statsd_exporter_lines_total", lines);
    socket2::SockRef::from(&stream)
        .set_linger(Some(std::time::Duration::ZERO))
        .expect("a reset instead of an end");
}

#[test]
fn a_reset_connection_loses_no_line() {
    let exporter = exporter(&[]);
    send_and_reset(&exporter, "a:1|c\nb:1|c", 1.0);
    exporter.wait_for("statsd_exporter_lines_total", 2.0);
    assert_eq!(exporter.value("b"), Some(1.0));
    assert_eq!(exporter.value("statsd_exporter_tcp_connection_errors_total"), Some(0.0));
    send_and_reset(&exporter, "c:1|c\n", 3.0);
    exporter.wait_for("statsd_exporter_tcp_connection_errors_total", 1.0);
}

#[test]
fn lines_and_the_reasons_for_rejections_are_logged_at_debug() {
    let exporter = exporter(&["--log.level=debug"]);
    let mut stream = TcpStream::connect(exporter.tcp).expect("connect");
    // The second line of a counter takes the fast path.
    let text = "fine:1|c\nbad\nv:x|c\nk:1|q\nt:1|c|#x\nn:-1|c\nm:1|c\nm:-7|c\nfine:2|g\n";
    stream.write_all(text.as_bytes()).expect("send");
    drop(stream);
    for parts in [
        &["level=DEBUG", "msg=\"Incoming line\"", "proto=tcp", "line=fine:1|c"][..],
        &["level=DEBUG", "line=bad", "refused=malformed_line"],
        &["level=DEBUG", "line=v:x|c", "refused=malformed_value"],
        &["level=DEBUG", "line=k:1|q", "refused=illegal_event"],
        &["level=DEBUG", "line=t:1|c|#x", "refused=tag_error"],
        &["level=DEBUG", "counter must be non-negative value", "metric=n", "event_value=-1"],
        &["level=DEBUG", "counter must be non-negative value", "metric=m", "event_value=-7"],
        &["level=DEBUG", "Failed to update metric", "metric=fine"],
    ] {
        exporter.program.line(parts);
    }
    let udp = exporter.program.address(&["Accepting StatsD Traffic"], "udp");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket.send_to(b"first:1|c\nsecond:1|c", udp).expect("send");
    exporter.program.line(&["msg=\"Incoming line\"", "proto=udp", "line=second:1|c"]);
}

#[test]
fn the_debug_log_grows_with_what_is_received() {
    let exporter = exporter(&["--log.level=debug"]);
    let udp = exporter.program.address(&["Accepting StatsD Traffic"], "udp");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    let name = "n".repeat(10_000);
    let datagrams = [
        // Each value is rejected: by the parser, as negative, or because of its type.
        format!("{name}:{}x|ms", "x:".repeat(20_000)),
        format!("{name}:-1|c{}", ":-1|c".repeat(9_000)),
        format!("{name}:1|c{}", ":1|g".repeat(9_000)),
        "\n".repeat(60_000),
        "a\n".repeat(30_000),
    ];
    for datagram in &datagrams {
        socket.send_to(datagram.as_bytes(), udp).expect("send");
    }
    socket.send_to(b"last:1|c", udp).expect("send");
    exporter.program.line(&["msg=\"Incoming line\"", "line=last:1|c"]);
    let sent: usize = datagrams.iter().map(String::len).sum();
    let logged: usize = exporter.program.log().iter().map(String::len).sum();
    assert!(logged < sent, "{logged} bytes of log for {sent} bytes");
}

#[test]
fn lines_are_not_logged_above_debug() {
    let exporter = exporter(&[]);
    let mut stream = TcpStream::connect(exporter.tcp).expect("connect");
    stream.write_all(b"bad\n").expect("send");
    exporter.wait_for("statsd_exporter_lines_total", 1.0);
    assert!(!exporter.program.log().iter().any(|line| line.contains("bad")));
}

#[test]
fn help_and_version_beat_bad_values() {
    for request in ["--help", "-h", "--help-long", "--version", "--version=1", "--help-man"] {
        for args in [["--log.level=zzz", request], [request, "--statsd.cache-size=x"]] {
            let output = run(NAME, args);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {}", output.stderr);
            assert!(!output.stdout.is_empty(), "{args:?}");
        }
    }
    assert_eq!(run(NAME, ["--log.level=zzz"]).status.code(), Some(1));
    assert_eq!(run(NAME, ["--log.level=info", "--completion-bash", "--l"]).status.code(), Some(0));
    assert_eq!(run(NAME, ["--no-completion-bash", "--check-config"]).status.code(), Some(0));
}

#[test]
fn requests_that_go_refuses() {
    let exporter = exporter(&[]);
    for (request, status, body) in [
        ("GET /metrics HTTP/1.1\r\n\r\n", "400", "400 Bad Request: missing required Host header"),
        (
            "GET http://h/metrics HTTP/1.1\r\n\r\n",
            "400",
            "400 Bad Request: missing required Host header",
        ),
        ("GET /metrics HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400", "400 Bad Request"),
        (
            "GET /metrics HTTP/1.1\r\nHost: a b\r\n\r\n",
            "400",
            "400 Bad Request: malformed Host header",
        ),
        ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400", "400 Bad Request"),
        ("GET /% HTTP/1.1\r\nHost: a\r\n\r\n", "400", "400 Bad Request"),
    ] {
        // Read to the end: the connection is closed although the request does not ask for it.
        let answer = exporter.raw(request);
        let (head, got) = answer.split_once("\r\n\r\n").expect("an answer");
        assert_eq!(head.split(' ').nth(1), Some(status), "{request:?}");
        assert!(head.to_lowercase().contains("connection: close"), "{head}");
        assert_eq!(got, body, "{request:?}");
    }
    let answer = exporter.raw("GET /-/ready HTTP/1.0\r\n\r\n");
    assert_eq!(answer.split(' ').nth(1), Some("200"));
}

#[test]
fn the_first_accept_counts_and_every_accept_encoding() {
    let exporter = exporter(&[]);
    let protobuf =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text";
    let ask = |headers: &[(&str, &str)]| {
        let answer = request(exporter.web, "GET", "/metrics", headers).expect("answer");
        let kind =
            answer.header("content-type").expect("type").split(';').next().map(str::to_owned);
        (kind.unwrap_or_default(), answer.header("content-encoding").map(str::to_owned))
    };
    let text = "text/plain".to_owned();
    let gzip = Some("gzip".to_owned());
    assert_eq!(ask(&[("Accept", "*/*"), ("Accept", protobuf)]), (text.clone(), None));
    assert_ne!(ask(&[("Accept", protobuf), ("Accept", "text/plain")]).0, text);
    assert_eq!(
        ask(&[("Accept-Encoding", "br"), ("Accept-Encoding", "gzip")]),
        (text.clone(), gzip)
    );
    for headers in [
        [("Accept-Encoding", "identity"), ("Accept-Encoding", "gzip")],
        [("Accept-Encoding", "gzip;foo=1"), ("Accept-Encoding", "br")],
    ] {
        assert_eq!(ask(&headers), (text.clone(), None), "{headers:?}");
    }
}

#[test]
fn head_responses_have_the_correct_length() {
    let exporter = exporter(&["--web.enable-lifecycle"]);
    for (path, length) in [
        ("/metrics", None),
        ("/-/reload", None),
        ("/-/quit", None),
        ("/-/healthy", None),
        ("//metrics", None),
        ("/nope", Some("19")),
    ] {
        let answer = request(exporter.web, "HEAD", path, &[("Accept-Encoding", "gzip")]);
        let answer = answer.expect("answer");
        assert_eq!(answer.header("content-length"), length, "{path}");
        assert!(answer.body.is_empty(), "{path}");
    }
}

#[test]
fn a_reload_changes_times_to_live_and_buckets_of_new_series() {
    let rules = |ttl: &str, bound: u32| {
        format!(
            "mappings:\n- {{match: c.*, name: c, labels: {{p: $1}}, ttl: {ttl}}}\n\
             - {{match: t.*, name: t, labels: {{p: $1}}, observer_type: histogram, \
             histogram_options: {{buckets: [{bound}]}}}}\n"
        )
    };
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(file.path(), rules("1h", 1)).expect("write");
    let exporter = exporter(&[
        "--web.enable-lifecycle",
        &format!("--statsd.mapping-config={}", file.path().display()),
    ]);
    let send = |text: &str, lines: f64| {
        let mut stream = TcpStream::connect(exporter.tcp).expect("connect");
        stream.write_all(text.as_bytes()).expect("send");
        drop(stream);
        exporter.wait_for("statsd_exporter_lines_total", lines);
    };
    send("c.old:1|c\nt.old:3|h\n", 2.0);
    std::fs::write(file.path(), rules("1s", 5)).expect("write");
    request(exporter.web, "POST", "/-/reload", &[]).expect("answer");
    let loads = "statsd_exporter_config_reloads_total{outcome=\"success\"}";
    exporter.wait_for(loads, 1.0);
    send("c.old:1|c\nt.old:3|h\nc.new:1|c\nt.new:3|h\n", 6.0);
    assert_eq!(exporter.value("t_bucket{p=\"old\",le=\"1\"}"), Some(0.0));
    assert_eq!(exporter.value("t_bucket{p=\"new\",le=\"1\"}"), None);
    assert_eq!(exporter.value("t_bucket{p=\"new\",le=\"5\"}"), Some(1.0));
    until("the new series expires", || exporter.value("c{p=\"new\"}").is_none().then_some(()));
    assert_eq!(exporter.value("c{p=\"old\"}"), Some(2.0));
}

#[test]
fn own_metrics_beyond_the_original_come_in_every_format() {
    let exporter = exporter(&[]);
    let ask = |accept| {
        let headers = [("Accept", accept)];
        request(exporter.web, "GET", "/kstatd/metrics", &headers).expect("answer")
    };
    let open = ask("application/openmetrics-text;version=1.0.0");
    let kind = open.header("content-type").expect("type").to_owned();
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
    let text = open.text();
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    assert!(text.contains("# TYPE kstatd_statsd_expired_series counter\n"), "{text}");
    assert!(ask("*/*").header("content-type").expect("type").starts_with("text/plain"));
}

#[test]
fn signals_that_a_go_program_ignores() {
    let mut exporter = exporter(&[]);
    for signal in ["ALRM", "VTALRM", "PROF", "IO", "PWR", "XCPU", "USR1", "USR2"] {
        exporter.program.signal(signal);
    }
    assert_eq!(get(exporter.web, "/-/healthy").status, 200);
    exporter.program.signal("HUP");
    exporter.program.line(&["no mapping config to reload", "signal=hangup"]);
    exporter.program.signal("TERM");
    assert_eq!(exporter.program.ended().code(), Some(0));
}

#[test]
fn profiles_as_text_and_unknown_ones() {
    let exporter = exporter(&[]);
    let unknown = request(exporter.web, "GET", "/debug/pprof/nope", &[]).expect("answer");
    assert_eq!((unknown.status, unknown.header("x-go-pprof")), (404, Some("1")));
    let heap = request(exporter.web, "GET", "/debug/pprof/heap?debug=1", &[]).expect("answer");
    assert_eq!(
        (heap.status, heap.header("content-type")),
        (200, Some("text/plain; charset=utf-8"))
    );
    assert!(heap.text().starts_with("heap_v2/"), "{}", heap.text());
    let heap = request(exporter.web, "GET", "/debug/pprof/heap", &[]).expect("answer");
    assert_eq!(heap.header("content-disposition"), Some("attachment; filename=\"heap\""));
    assert_eq!(heap.body.get(..2), Some(&[0x1f, 0x8b][..]), "gzip");
}

#[test]
fn metrics_may_use_any_free_path() {
    for (flag, path) in [
        ("/-/reload", "/-/reload"),
        ("/-/quit", "/-/quit"),
        ("/%6d", "/m"),
        ("/m%6d/", "/mm/"),
        ("/kstatd/metrics", "/kstatd/metrics"),
        ("/kstatd/status", "/kstatd/status"),
    ] {
        let exporter = exporter(&[&format!("--web.telemetry-path={flag}")]);
        let text = get(exporter.web, path).text();
        assert!(text.contains("statsd_exporter_lines_total 0"), "{flag}: {text}");
    }
    let output = run(NAME, ["--web.enable-lifecycle", "--web.telemetry-path=/-/quit"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("'--web.telemetry-path'"), "{}", output.stderr);
}

#[test]
fn a_relay_target_may_name_its_port_or_none() {
    for target in ["127.0.0.1:domain", "127.0.0.1:"] {
        let exporter = exporter(&[&format!("--statsd.relay.address={target}")]);
        let text = get(exporter.web, "/metrics").text();
        let series = format!("statsd_exporter_relay_lines_relayed_total{{target=\"{target}\"}} 0");
        assert!(text.contains(&series), "{text}");
    }
}

#[test]
fn lines_that_are_too_long_for_the_relay_are_logged() {
    let flags = ["--statsd.relay.address=127.0.0.1:9", "--statsd.relay.packet-length=8"];
    let exporter = exporter(&flags);
    let mut stream = TcpStream::connect(exporter.tcp).expect("connect");
    stream.write_all(b"a:1|c\nlong:1|c\nlonger:1|c\n").expect("send");
    let line = exporter.program.line(&["Lines are too long to be relayed"]);
    assert!(line.contains("lines=1") && line.contains("packet_length=8"), "{line}");
    let long = "statsd_exporter_relay_long_lines_total{target=\"127.0.0.1:9\"}";
    exporter.wait_for(long, 2.0);
    let lines = exporter.program.log();
    assert_eq!(lines.iter().filter(|line| line.contains("too long")).count(), 1, "{lines:?}");
}

#[test]
fn lines_of_relay_datagrams_that_cannot_be_sent_are_counted_as_dropped() {
    let flags = ["--statsd.relay.address=127.0.0.1:9", "--statsd.relay.packet-length=100000"];
    let exporter = exporter(&flags);
    // 70 lines of 1 KiB make a datagram that is too long for UDP.
    let line = format!("{}:1|c\n", "n".repeat(1_000));
    let mut stream = TcpStream::connect(exporter.tcp).expect("connect");
    stream.write_all(line.repeat(70).as_bytes()).expect("send");
    drop(stream);
    let dropped = "kstatd_statsd_relay_dropped_lines_total{target=\"127.0.0.1:9\"} 70";
    until("the lines are counted", || {
        let text = get(exporter.web, "/kstatd/metrics").text();
        text.lines().any(|line| line == dropped).then_some(())
    });
}
