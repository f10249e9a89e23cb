//! The listeners of the Kubernetes personalities, tested from outside with the API double.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

use common::cluster::Cluster;
use common::{DEADLINE, Program, get, replace, request, until, valid_text};

struct Exporter {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

/// Starts the program under the name kube-state-metrics on free ports and waits for its first lists.
fn exporter(cluster: &Cluster, flags: &[&str]) -> Exporter {
    let fixed =
        ["--port=0", "--telemetry-port=0", "--host=127.0.0.1", "--telemetry-host=127.0.0.1"];
    let flag = cluster.flag();
    let args = [&[flag.as_str()], &fixed[..], flags].concat();
    let program = Program::start("kube-state-metrics", &args);
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    until("all kinds are listed", || {
        get(telemetry, "/metrics").text().contains("\nkstatd_ready 1\n").then_some(())
    });
    assert_eq!(get(main, "/metrics").status, 200);
    Exporter { program, main, telemetry }
}

#[test]
fn paths_of_kube_state_metrics() {
    let cluster = Cluster::new(20);
    let exporter = exporter(&cluster, &["--resources=pods,nodes"]);
    let plain = Some("text/plain; charset=utf-8");
    for (path, status, body, kind) in [
        ("/healthz", 200, "OK", plain),
        ("/livez", 200, "OK", plain),
        ("/readyz", 404, "404 page not found\n", plain),
        ("/metrics/", 404, "404 page not found\n", plain),
        ("/debug/pprof/", 404, "404 page not found\n", plain),
        (
            "//metrics",
            307,
            "<a href=\"/metrics\">Temporary Redirect</a>.\n\n",
            Some("text/html; charset=utf-8"),
        ),
    ] {
        let response = get(exporter.main, path);
        assert_eq!((response.status, response.text().as_str()), (status, body), "{path}");
        assert_eq!(response.header("content-type"), kind, "{path}");
    }
    let page = get(exporter.main, "/").text();
    for part in ["<title>kube-state-metrics</title>", "href=\"/metrics\"", "href=\"/livez\""] {
        assert!(page.contains(part), "{part} in {page}");
    }
    for (path, status) in [
        ("/metrics", 200),
        ("/readyz", 200),
        ("/", 200),
        ("/healthz", 404),
        ("/livez", 404),
        ("/debug/pprof/", 200),
        ("/debug/pprof/cmdline", 200),
        ("/debug/pprof/nope", 404),
    ] {
        assert_eq!(get(exporter.telemetry, path).status, status, "{path}");
    }
    // The request of `pprof -symbolize=remote`.
    let posted = request(exporter.telemetry, "POST", "/debug/pprof/symbol?0x1", &[]);
    assert_eq!(posted.expect("an answer").text(), "num_symbols: 1\n");
    let own = get(exporter.telemetry, "/metrics");
    assert_eq!(
        own.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8; escaping=underscores")
    );
    let own = own.text();
    valid_text(&own);
    for line in [
        "kube_state_metrics_total_shards 1",
        "kube_state_metrics_shard_ordinal{shard_ordinal=\"0\"} 0",
        "kube_state_metrics_watch_total{resource=\"*v1.Pod\",result=\"success\"} 1",
        "kube_state_metrics_custom_resource_state_cache 0",
    ] {
        assert!(own.lines().any(|own| own == line), "{line} in {own}");
    }
    for part in [
        "http_request_duration_seconds_bucket{handler=\"metrics\",method=\"get\",le=\"0.005\"}",
        "process_resident_memory_bytes ",
        "kube_state_metrics_build_info{branch=",
    ] {
        assert!(own.contains(part), "{part} in {own}");
    }
}

#[test]
fn formats_filters_and_compression() {
    let cluster = Cluster::new(50);
    let exporter = exporter(&cluster, &["--enable-gzip-encoding"]);
    let plain = get(exporter.main, "/metrics");
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(plain.header("content-encoding"), None);
    valid_text(&plain.text());
    let ask = |path: &str, headers: &[(&str, &str)]| {
        request(exporter.main, "GET", path, headers).expect("answer")
    };
    let open = ask("/metrics", &[("Accept", "application/openmetrics-text; version=1.0.0")]);
    assert_eq!(
        open.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores")
    );
    assert_eq!(open.text(), format!("{}# EOF\n", plain.text()));
    for (accept, expected) in
        [("*/*", plain.text()), ("application/openmetrics-text; version=1.0.0", open.text())]
    {
        let gzip = ask("/metrics", &[("Accept-Encoding", "br, gzip;q=0.5"), ("Accept", accept)]);
        assert_eq!(gzip.header("content-encoding"), Some("gzip"));
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(gzip.body.as_slice());
        decoder.read_to_string(&mut text).expect("one valid member");
        assert_eq!(text, expected);
        assert!(decoder.into_inner().is_empty(), "bytes after the member");
        assert!(gzip.body.len() * 3 < text.len());
    }
    let only = ask("/metrics?resources=nodes,pods&exclude_resources=pods", &[]).text();
    assert!(only.contains("kube_node_info{") && !only.contains("kube_pod"), "{only}");
    assert_eq!(ask("/metrics?resources=", &[]).text(), "");
    // Invalid UTF-8 matches no name.
    assert_eq!(ask("/metrics?resources=%ff", &[]).text(), "");
    assert_eq!(ask("/metrics?exclude_resources=%ff", &[]).text(), plain.text());
    for method in ["POST", "DELETE"] {
        let response = request(exporter.main, method, "/metrics", &[]).expect("answer");
        assert_eq!(response.text(), plain.text(), "{method}");
    }
    let head = request(exporter.main, "HEAD", "/metrics", &[]).expect("answer");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

/// Sends a request and does not read the response.
fn request_without_reading(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
    let head = b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(head).expect("request");
    stream
}

/// Pods with a body of 14 MB, which exceeds every socket buffer and is sent within the grace period of a shutdown.
const MANY_PODS: u32 = 2_000;

#[test]
fn shutdown_finishes_open_scrapes() {
    let cluster = Cluster::new(MANY_PODS);
    let mut exporter = exporter(&cluster, &["--resources=pods"]);
    let whole = get(exporter.main, "/metrics").body;
    let mut slow = request_without_reading(exporter.main);
    let mut first = [0; 1024];
    slow.read_exact(&mut first).expect("the answer has begun");
    exporter.program.signal("TERM");
    exporter.program.line(&["Received os signal, exiting", "signal=\"terminated\""]);
    until("new connections are refused", || TcpStream::connect(exporter.main).err());
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).expect("the rest");
    let received = [&first[..], &rest].concat();
    assert!(received.ends_with(b"\r\n0\r\n\r\n"), "the chunked body has its end");
    assert!(received.len() > whole.len());
    assert_eq!(exporter.program.ended().code(), Some(0));
}

#[test]
fn second_signal_ends_immediately() {
    let cluster = Cluster::new(MANY_PODS);
    let mut exporter = exporter(&cluster, &["--resources=pods"]);
    let mut slow = request_without_reading(exporter.main);
    slow.read_exact(&mut [0; 1024]).expect("the answer has begun");
    exporter.program.signal("INT");
    exporter.program.line(&["Received os signal, exiting"]);
    exporter.program.signal("TERM");
    exporter.program.line(&["Exiting immediately"]);
    assert_eq!(exporter.program.ended().code(), Some(0));
}

/// Returns whether a process on this machine has an established connection from port `local` to port `remote`.
fn is_open(local: u16, remote: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| {
        let table = std::fs::read_to_string(file).expect("connections");
        table.lines().any(|line| {
            // Number, local address:port, remote address:port, state (01 is established).
            let fields: Vec<&str> = line.split_whitespace().take(4).collect();
            matches!(fields[..], [_, here, there, "01"]
                if here.ends_with(&format!(":{local:04X}")) && there.ends_with(&format!(":{remote:04X}")))
        })
    })
}

#[test]
fn deadlines_of_connections() {
    let cluster = Cluster::new(MANY_PODS);
    let exporter = exporter(
        &cluster,
        &[
            "--resources=pods",
            "--server-read-header-timeout=3s",
            "--server-idle-timeout=5s",
            "--server-write-timeout=15s",
        ],
    );
    let connect = || {
        let stream = TcpStream::connect(exporter.main).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        stream
    };
    // A client that stops reading, checked below.
    let mut slow = request_without_reading(exporter.main);
    let mut silent = connect();
    assert_eq!(silent.read(&mut [0; 1]).expect("closed"), 0);
    let mut half = connect();
    half.write_all(b"GET /healthz HT").expect("write");
    assert_eq!(half.read(&mut [0; 1]).expect("closed"), 0);
    // A keep-alive connection serves several requests and outlives the header timeout.
    let mut kept = connect();
    let mut before = std::time::Instant::now();
    for _ in 0..2 {
        before = std::time::Instant::now();
        kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").expect("write");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nOK") {
            let mut byte = [0; 1];
            kept.read_exact(&mut byte).expect("answer");
            answer.push(byte[0]);
        }
    }
    assert_eq!(kept.read(&mut [0; 1]).expect("closed"), 0);
    assert!(before.elapsed().as_millis() >= 4_500, "closed after {:?}", before.elapsed());
    // A client that stops reading is disconnected: the server closes the socket although the response is unread.
    let client = slow.local_addr().expect("address").port();
    until("the server gives it up", || (!is_open(exporter.main.port(), client)).then_some(()));
    let mut rest = Vec::new();
    // A reset counts as an end.
    let _ = slow.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"\r\n0\r\n\r\n"), "the answer was cut");
}

#[test]
fn oversized_heads_are_rejected() {
    let cluster = Cluster::new(5);
    let exporter = exporter(&cluster, &[]);
    let huge = "x".repeat(100 << 10);
    let response = request(exporter.main, "GET", "/healthz", &[("X", &huge)]).expect("answer");
    assert_eq!(response.status, 431);
    // Proxies add many short lines.
    for (number, status) in [(1_000, 200), (1_100, 431)] {
        let many: Vec<(&str, &str)> = vec![("X", "y"); number];
        let response = request(exporter.main, "GET", "/healthz", &many).expect("answer");
        assert_eq!(response.status, status, "{number}");
    }
    assert_eq!(get(exporter.main, "/healthz").status, 200);
}

#[test]
fn occupied_port_error_names_address_and_flag() {
    let cluster = Cluster::new(5);
    let busy = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = busy.local_addr().expect("address");
    let (port, flag) = (address.port(), cluster.flag());
    for (args, parts) in [
        (
            vec![
                "kube-state-metrics".to_owned(),
                flag.clone(),
                "--host=127.0.0.1".into(),
                format!("--port={port}"),
                "--telemetry-port=0".into(),
            ],
            ["--host and --port", "Address already in use"],
        ),
        (
            vec![
                format!("--listen={address}"),
                "--telemetry-listen=:0".into(),
                "--statsd.listen-udp=127.0.0.1:0".into(),
                "--statsd.listen-tcp=127.0.0.1:0".into(),
            ],
            ["--listen", "Address already in use"],
        ),
    ] {
        let output = common::run("kstatd", &args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        for part in parts.iter().chain(&[address.to_string().as_str()]) {
            assert!(output.stderr.contains(part), "{part} in {}", output.stderr);
        }
    }
}

/// Starts the same program with a limit of open files.
fn exporter_with_open_files(cluster: &Cluster, limit: u32) -> (Program, [SocketAddr; 2]) {
    let binary = env!("CARGO_BIN_EXE_kstatd");
    let command = format!(
        "ulimit -n {limit}; exec {binary} kube-state-metrics {} --host=127.0.0.1 --port=0 \
         --telemetry-host=127.0.0.1 --telemetry-port=0 --resources=pods",
        cluster.flag()
    );
    let program = Program::spawn(
        std::process::Command::new("sh").args(["-c", &command]).stdin(Stdio::null()),
    );
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    (program, [main, telemetry])
}

/// Sends one request on a connection that stays open.
fn request_on(stream: &mut TcpStream) {
    stream.write_all(b"GET /nothing HTTP/1.1\r\nHost: test\r\n\r\n").expect("request");
    let mut answer = Vec::new();
    while !answer.ends_with(b"404 page not found\n") {
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).expect("answer");
        answer.push(byte[0]);
    }
}

#[test]
fn idle_connections_are_closed_for_new_ones() {
    let cluster = Cluster::new(5);
    let (program, listeners) = exporter_with_open_files(&cluster, 64);
    let mut open = Vec::new();
    for round in 0..90 {
        for address in listeners {
            let mut stream = TcpStream::connect(address).expect("connect");
            stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
            match round % 3 {
                0 => request_on(&mut stream),
                1 => stream.write_all(b"GET /metrics HT").expect("half a head"),
                _ => {}
            }
            open.push(stream);
        }
        let [main, telemetry] = listeners;
        assert_eq!(get(main, "/healthz").status, 200, "round {round}");
        assert_eq!(get(telemetry, "/readyz").status, 200, "round {round}");
    }
    program.line(&["HTTP connection limit reached"]);
    let own = get(listeners[1], "/metrics").text();
    let closed = own
        .lines()
        .find_map(|line| line.strip_prefix("kstatd_http_connections_closed_for_another_total "));
    let closed: u32 = closed.expect("counter").parse().expect("number");
    assert!(closed > 100, "{closed}");
    assert!(own.contains("kstatd_http_connections_refused_total 0\n"), "{own}");
    let said =
        program.log().iter().filter(|line| line.contains("connection limit reached")).count();
    assert!(said <= 2, "once a minute: {:#?}", program.log());
}

#[test]
fn two_hundred_scrapes_at_once_are_all_answered() {
    let cluster = Cluster::new(50);
    let (_program, listeners) = exporter_with_open_files(&cluster, 64);
    until("all pods are there", || {
        let text = get(listeners[0], "/metrics").text();
        (text.matches("\nkube_pod_info{").count() == cluster.double.objects_of("pods"))
            .then_some(())
    });
    std::thread::scope(|scope| {
        for address in listeners {
            for _ in 0..200 {
                scope.spawn(move || {
                    let answer = get(address, "/metrics");
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    valid_text(&answer.text());
                });
            }
        }
    });
}

#[test]
fn silent_peers_get_keepalive_probes() {
    let cluster = Cluster::new(5);
    let exporter = exporter(&cluster, &["--resources=pods"]);
    for address in [exporter.main, exporter.telemetry] {
        let stream = TcpStream::connect(address).expect("connect");
        let client = stream.local_addr().expect("address").port();
        // Timer 02 of an established connection is the keepalive timer.
        let asked = || {
            let table = std::fs::read_to_string("/proc/net/tcp").expect("connections");
            table.lines().any(|line| {
                let fields: Vec<&str> = line.split_whitespace().take(6).collect();
                matches!(fields[..], [_, here, there, "01", _, timer]
                    if here.ends_with(&format!(":{:04X}", address.port()))
                        && there.ends_with(&format!(":{client:04X}"))
                        && timer.starts_with("02:"))
            })
        };
        until("a timer runs", || asked().then_some(()));
    }
}

#[test]
fn header_timeout_starts_with_the_next_request() {
    let cluster = Cluster::new(5);
    // The idle timeout is minutes.
    let exporter = exporter(&cluster, &["--resources=pods", "--server-read-header-timeout=3s"]);
    for address in [exporter.main, exporter.telemetry] {
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        stream
            .write_all(b"GET /nothing HTTP/1.1\r\nHost: test\r\n\r\nGET /nothing HTT")
            .expect("one request and a half");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the end");
        let answer = String::from_utf8(answer).expect("UTF-8");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
}

#[test]
fn every_form_of_request_is_answered() {
    let cluster = Cluster::new(5);
    let exporter = exporter(&cluster, &["--resources=pods"]);
    let exchange = |address: SocketAddr, request: &str, half_close: bool| {
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
        stream.write_all(request.as_bytes()).expect("request");
        if half_close {
            stream.shutdown(std::net::Shutdown::Write).expect("half close");
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answer");
        String::from_utf8(answer).expect("UTF-8")
    };
    for address in [exporter.main, exporter.telemetry] {
        let one = "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n";
        let half_closed = exchange(address, one, true);
        assert!(half_closed.starts_with("HTTP/1.1 200 OK\r\n"), "{half_closed}");
        assert!(half_closed.ends_with("\r\n0\r\n\r\n"), "{half_closed}");
        let old = exchange(address, "GET /metrics HTTP/1.0\r\n\r\n", false);
        assert!(old.starts_with("HTTP/1.0 200 OK\r\n") && old.ends_with('\n'), "{old}");
        let head = exchange(address, "HEAD /nothing HTTP/1.0\r\n\r\n", false);
        assert!(head.contains("content-length: 19\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let three = exchange(address, &one.replace("metrics", "nothing").repeat(3), true);
        assert_eq!(three.matches("HTTP/1.1 404 ").count(), 3, "{three}");
        let body = "POST /nothing HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc";
        let after_body = exchange(address, &format!("{body}{one}"), true);
        assert_eq!(after_body.matches("HTTP/1.1 404 ").count(), 1, "{after_body}");
        assert!(after_body.contains("HTTP/1.1 200 OK\r\n"), "{after_body}");
        let huge = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100 << 10));
        assert!(exchange(address, &huge, false).starts_with("HTTP/1.1 431 "));
        assert_eq!(exchange(address, "", true), "");
        assert_eq!(exchange(address, "GET /metr", true).matches("HTTP/1.1 200").count(), 0);
        assert_eq!(get(address, "/metrics").status, 200);
    }
}

/// `<` is escaped in the first line of a request, and nowhere in a body: a longer body would end with another request.
#[test]
fn bodies_stay_as_they_are() {
    let cluster = Cluster::new(5);
    let exporter = exporter(&cluster, &["--resources=pods"]);
    let inner = "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n";
    let body = format!("{}\n{inner}", "<".repeat(inner.len() / 2));
    let head = format!("GET /nothing HTTP/1.1\r\nHost: test\r\nContent-Length: {}", body.len());
    let next = "GET /nothing?a=b HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    for address in [exporter.main, exporter.telemetry] {
        for (parts, answers) in [
            (vec![format!("{head}\r\n\r\n{body}{next}")], 2),
            // The second part comes when the first request has been answered, which may be the end of the connection.
            (vec![format!("{head}\r\n\r\n<"), format!("{}{next}", &body[1..])], 1),
            (vec![format!("{head}\r\nExpect: 100-continue\r\n\r\n"), format!("{body}{next}")], 1),
        ] {
            let mut stream = TcpStream::connect(address).expect("connect");
            stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
            let mut answer = Vec::new();
            for (at, part) in parts.iter().enumerate() {
                if at > 0 {
                    let mut some = [0; 4096];
                    let count = stream.read(&mut some).expect("an answer");
                    answer.extend_from_slice(&some[..count]);
                }
                // It fails if the connection has been closed.
                drop(stream.write_all(part.as_bytes()));
            }
            drop(stream.read_to_end(&mut answer));
            let answer = String::from_utf8(answer).expect("UTF-8");
            assert!(!answer.contains("HTTP/1.1 200 "), "{parts:?}: {answer}");
            assert!(answer.matches("HTTP/1.1 404 ").count() >= answers, "{parts:?}: {answer}");
        }
    }
}

#[test]
fn kstatd_serves_both_sides() {
    let cluster = Cluster::new(20);
    let flag = cluster.flag();
    let mut program = Program::start(
        "kstatd",
        [
            "run",
            &flag,
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=127.0.0.1:0",
        ],
    );
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    until("ready", || (get(main, "/readyz").status == 200).then_some(()));
    let body = get(main, "/metrics/kubernetes").text();
    valid_text(&body);
    assert!(body.contains("kube_pod_info{"));
    assert!(get(main, "/metrics").text().starts_with(&body));
    for (address, path) in [
        (main, "/healthz"),
        (main, "/livez"),
        (main, "/"),
        (main, "/api/v1/status/tsdb"),
        (main, "/api/v1/status/cardinality"),
        (telemetry, "/healthz"),
        (telemetry, "/readyz"),
        (telemetry, "/metrics"),
    ] {
        assert_eq!(get(address, path).status, 200, "{path}");
    }
    assert_eq!(get(main, "/debug/pprof/").status, 404);
    program.signal("TERM");
    assert_eq!(program.ended().code(), Some(0));
}

#[test]
fn kstatd_without_a_cluster_serves_statsd() {
    let mut program = Program::start(
        "kstatd",
        [
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=127.0.0.1:0",
            "--log-format=json",
        ],
    );
    program.line(&["The Kubernetes side is disabled", "--kubeconfig", "\"level\":\"info\""]);
    let line = program.line(&["Started metrics server"]);
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let main: SocketAddr = line["address"].as_str().expect("address").parse().expect("address");
    assert_eq!(get(main, "/readyz").status, 200);
    assert_eq!(get(main, "/metrics").status, 200);
    assert_eq!(get(main, "/metrics/kubernetes").status, 404);
    program.signal("INT");
    assert_eq!(program.ended().code(), Some(0));
}

#[test]
fn valid_options_file_is_applied_and_invalid_one_is_not() {
    let cluster = Cluster::new(20);
    let options = tempfile::NamedTempFile::new().expect("file");
    let write = |text: &str| replace(options.path(), text);
    write("resources: {pods: {}}\n");
    let path = options.path().display().to_string();
    let exporter = exporter(&cluster, &[&format!("--config={path}")]);
    let families = || get(exporter.main, "/metrics").text();
    let own = || get(exporter.telemetry, "/metrics").text();
    assert!(!families().contains("kube_node_info"));
    let result = format!(
        "kube_state_metrics_last_config_reload_successful{{filename=\"{path}\",type=\"config\"}} "
    );
    assert!(own().contains(&format!("{result}1\n")));
    write("resources: {nodes: {}}\n");
    until("nodes instead of pods", || {
        let body = families();
        // Never both, never neither: the new state replaces the old one when it is complete.
        assert!(body.contains("kube_pod_info{") != body.contains("kube_node_info{"), "{body}");
        body.contains("kube_node_info{").then_some(())
    });
    write("resources: [nodes]\n");
    until("the failure is counted", || own().contains(&format!("{result}0\n")).then_some(()));
    assert!(families().contains("kube_node_info{"));
}

#[test]
fn shutdown_answers_accepted_connections() {
    let cluster = Cluster::new(5);
    let mut exporter = exporter(&cluster, &["--resources=pods"]);
    let mut waiting = TcpStream::connect(exporter.main).expect("connect");
    waiting.set_read_timeout(Some(DEADLINE)).expect("timeout");
    // Connections are accepted in order.
    assert_eq!(get(exporter.main, "/healthz").status, 200);
    // Both requests reach a stopped program, so the result does not depend on other load.
    exporter.program.freeze();
    exporter.program.signal("TERM");
    waiting
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("request");
    exporter.program.signal("CONT");
    let mut answer = Vec::new();
    waiting.read_to_end(&mut answer).expect("answer");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("kube_pod_info{"), "{answer}");
    assert_eq!(exporter.program.ended().code(), Some(0));
}
