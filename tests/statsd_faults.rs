//! Tests of exhausted resources, failing components and shutdown.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{DEADLINE, Program, get, until};
use kstatd::exposition::{Format, ScrapeQuery, Source as _};
use kstatd::statsd::{Pipeline, PipelineConfig, SelfMetrics};

/// The limit of open file descriptors.
const DESCRIPTORS: usize = 256;

/// Returns the sum of the samples of `path` that begin with `series`.
fn sum(web: SocketAddr, series: &str) -> f64 {
    let ours = series.starts_with("kstatd_");
    let body = get(web, if ours { "/kstatd/metrics" } else { "/metrics" }).text();
    sum_of(&body, series)
}

fn sum_of(body: &str, series: &str) -> f64 {
    let lines = body.lines().filter(|line| line.starts_with(series));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<f64>().ok()).sum()
}

/// Starts the program with a limit on file descriptors. Returns its web, UDP and TCP addresses.
fn limited(descriptors: usize, more: &[&str]) -> (Program, SocketAddr, SocketAddr, SocketAddr) {
    limited_by(Program::spawn, descriptors, more)
}

fn limited_by(
    spawn: impl FnOnce(&mut Command) -> Program,
    descriptors: usize,
    more: &[&str],
) -> (Program, SocketAddr, SocketAddr, SocketAddr) {
    let script = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    let program = spawn(
        Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_kstatd"), "statsd_exporter"])
            .args(["--web.listen-address=127.0.0.1:0", "--statsd.listen-udp=127.0.0.1:0"])
            .args(["--statsd.listen-tcp=127.0.0.1:0"])
            .args(more)
            .stdin(Stdio::null()),
    );
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let traffic = ["Accepting StatsD Traffic"];
    let (udp, tcp) = (program.address(&traffic, "udp"), program.address(&traffic, "tcp"));
    (program, web, udp, tcp)
}

#[test]
fn idle_senders_leave_descriptors_for_scrapes_and_make_room_for_others() {
    for descriptors in [64, DESCRIPTORS] {
        let (program, web, udp, tcp) = limited(descriptors, &[]);
        let senders = descriptors * 3 / 2;
        let mut connections: Vec<TcpStream> = (0..senders)
            .map(|number| {
                let mut stream = TcpStream::connect(tcp).expect("connect");
                // Only some of them send data.
                if number % 2 == 0 {
                    stream.write_all(b"hello:1|c\n").expect("sent");
                }
                stream
            })
            .collect();
        // Every request uses its own connection.
        for path in ["/metrics", "/-/healthy", "/-/ready"] {
            assert_eq!(get(web, path).status, 200, "{path}");
        }
        until("each sender is heard", || {
            (sum(web, "hello ") == senders.div_ceil(2) as f64).then_some(())
        });
        assert_eq!(sum(web, "statsd_exporter_tcp_connections_total "), senders as f64);
        let displaced = "kstatd_statsd_tcp_closed_connections_total{reason=\"displaced\"}";
        let open = sum(web, "kstatd_statsd_tcp_open_connections ");
        assert!(open > 0.0 && open < descriptors as f64);
        assert_eq!(sum(web, displaced), senders as f64 - open);
        assert_eq!(sum(web, "kstatd_statsd_accept_errors_total "), 0.0);
        program.line(&["the limit of open files", &format!("limit={descriptors}")]);
        // The longest silent connections have been closed, the last one has not.
        let first = connections.first_mut().expect("connection");
        first.set_read_timeout(Some(DEADLINE)).expect("timeout");
        assert_eq!(first.read(&mut [0; 1]).expect("closed"), 0);
        let last = connections.last_mut().expect("connection");
        last.write_all(b"last:1|c\n").expect("sent");
        until("the last one is heard", || (sum(web, "last ") == 1.0).then_some(()));
        UdpSocket::bind("127.0.0.1:0").expect("bind").send_to(b"over_udp:1|c", udp).expect("sent");
        until("UDP goes on", || (sum(web, "over_udp ") == 1.0).then_some(()));
        drop(connections);
        until("none is open", || {
            (sum(web, "kstatd_statsd_tcp_open_connections ") == 0.0).then_some(())
        });
    }
}

#[test]
fn idle_connections_are_closed_after_the_configured_time() {
    let (_program, web, _, tcp) = limited(DESCRIPTORS, &["--statsd.tcp-idle-timeout=200ms"]);
    let mut stream = TcpStream::connect(tcp).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
    stream.write_all(b"said:1|c\nunfinished:1|c").expect("sent");
    assert_eq!(stream.read(&mut [0; 1]).expect("closed"), 0);
    assert_eq!(sum(web, "said "), 1.0);
    assert_eq!(sum(web, "unfinished "), 1.0);
    let idle = "kstatd_statsd_tcp_closed_connections_total{reason=\"idle\"}";
    until("it is counted", || (sum(web, idle) == 1.0).then_some(()));
}

#[test]
fn a_panic_loses_only_its_line_and_is_counted() {
    let local = Some(([127, 0, 0, 1], 0).into());
    let pipeline = Pipeline::start(PipelineConfig {
        udp: local,
        tcp: local,
        reserved: Arc::new(|name| {
            assert_ne!(name, "boom");
            false
        }),
        self_metrics: SelfMetrics::All,
        ..PipelineConfig::default()
    })
    .expect("started");
    let text = || {
        let frames = pipeline.frames(Format::Text, &ScrapeQuery::default());
        String::from_utf8(frames.flat_map(|frame| frame.to_vec()).collect()).expect("UTF-8")
    };
    let mut stream = TcpStream::connect(pipeline.tcp_address().expect("address")).expect("connect");
    stream.write_all(b"before:1|c\n").expect("sent");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let udp = pipeline.udp_address().expect("address");
    for line in ["boom:1|c", "after:1|c", "boom:1|c", "after:1|c"] {
        sender.send_to(line.as_bytes(), udp).expect("sent");
    }
    until("the datagrams after it are counted", || {
        (sum_of(&text(), "after ") == 2.0).then_some(())
    });
    let restarts = "kstatd_statsd_thread_restarts_total{thread=\"intake\"}";
    assert_eq!(sum_of(&text(), restarts), 2.0);
    // Existing connections survive the panic.
    stream.write_all(b"before:1|c\n").expect("sent");
    until("the connection goes on", || (sum_of(&text(), "before ") == 2.0).then_some(()));
    assert_eq!(sum_of(&text(), "statsd_exporter_udp_packets_total "), 4.0);
}

#[test]
fn kernel_drops_are_counted_in_the_metric_of_statsd_exporter() {
    let (program, web, udp, _) = limited(1_024, &["--statsd.read-buffer=4096"]);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    const SENT: u64 = 5_000;
    // The stopped program cannot read from the socket.
    program.freeze();
    for _ in 0..SENT {
        sender.send_to(b"a:1|c", udp).expect("sent");
    }
    program.signal("CONT");
    until("each datagram is received or dropped", || {
        let body = get(web, "/metrics").text();
        let of = |name| sum_of(&body, name);
        let received = of("statsd_exporter_udp_packets_total ");
        let dropped = of("statsd_exporter_udp_packet_drops_total ");
        (dropped > 0.0 && received + dropped == SENT as f64).then_some(())
    });
}

#[test]
fn statsd_exporter_metrics_without_a_counterpart_keep_their_names() {
    // The flags of the queue and of the cache are accepted and have no effect.
    let (_program, web, udp, _) = limited(
        1_024,
        &[
            "--statsd.event-flush-interval=1h",
            "--statsd.event-flush-threshold=10",
            "--statsd.cache-size=0",
        ],
    );
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    for _ in 0..25 {
        sender.send_to(b"a:1|c\nb:1|g|#x:y|c:z\nc:1:2:3|ms", udp).expect("sent");
    }
    until("all is counted", || (sum(web, "statsd_exporter_events_total") == 125.0).then_some(()));
    assert_eq!(sum(web, "statsd_exporter_event_queue_flushed_total "), 0.0);
    // Lines with several values are mapped once per line, others once per name.
    assert_eq!(sum(web, "statsd_metric_mapper_cache_gets_total "), 125.0);
    assert_eq!(sum(web, "statsd_metric_mapper_cache_hits_total "), 125.0 - 2.0 - 25.0);
    assert_eq!(sum(web, "statsd_metric_mapper_cache_length "), 2.0);
}

/// A start that fails after binding the socket removes its file, but not a file of another process.
#[test]
fn a_failed_start_leaves_no_socket_behind() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let busy = listener.local_addr().expect("address");
    let directory = tempfile::tempdir().expect("directory");
    let socket = directory.path().join("socket");
    let unixgram = format!("--statsd.listen-unixgram={}", socket.display());
    let (web, listen) = (format!("--web.listen-address={busy}"), format!("--listen={busy}"));
    let telemetry = format!("--telemetry-listen={busy}");
    let off = ["--statsd.listen-udp=", "--statsd.listen-tcp="];
    let cases: [(&str, Vec<&str>); 4] = [
        ("statsd_exporter", vec![&web]),
        ("kstatd", vec![&listen, "--telemetry-listen=127.0.0.1:0"]),
        ("kstatd", vec![&telemetry, "--listen=127.0.0.1:0"]),
        ("kstatd", vec!["--listen=127.0.0.1:0", "--kubeconfig=/nonexistent"]),
    ];
    for (name, args) in cases {
        // Threads and tasks end in any order.
        for _ in 0..5 {
            let output = common::run(name, [&[&*unixgram][..], &off, &args].concat());
            assert_eq!(output.status.code(), Some(1), "{name} {args:?}: {output:?}");
            assert!(!socket.exists(), "{name} {args:?}: {output:?}");
        }
    }
    let other = UnixDatagram::bind(&socket).expect("bind");
    let output = common::run("statsd_exporter", [&[&*unixgram][..], &off, &[&web]].concat());
    assert!(output.stderr.contains("already exists"), "{output:?}");
    assert!(socket.exists());
    drop(other);
}

/// A killed process leaves its socket file, which does not prevent the next start.
#[test]
fn the_socket_of_a_killed_process_is_replaced() {
    let directory = tempfile::tempdir().expect("directory");
    let socket = directory.path().join("socket");
    let unixgram = format!("--statsd.listen-unixgram={}", socket.display());
    let (mut program, ..) = limited(DESCRIPTORS, &[&unixgram]);
    program.signal("KILL");
    program.ended();
    assert!(socket.exists());
    let (program, web, ..) = limited(DESCRIPTORS, &[&unixgram]);
    program.line(&["Removed a Unix socket that no process uses", &socket.display().to_string()]);
    let sender = UnixDatagram::unbound().expect("socket");
    sender.send_to(b"a:1|c", &socket).expect("sent");
    until("the line is counted", || (sum(web, "statsd_exporter_lines_total") == 1.0).then_some(()));
    // Files that are no sockets, and sockets in use, stay.
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("written");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path().join("missing"), &link).expect("linked");
    for path in [&socket, &file, &link] {
        let unixgram = format!("--statsd.listen-unixgram={}", path.display());
        let off = ["--statsd.listen-udp=", "--statsd.listen-tcp="];
        let output = common::run("statsd_exporter", [&[&*unixgram][..], &off].concat());
        assert!(output.stderr.contains("already exists"), "{output:?}");
        assert!(path.symlink_metadata().is_ok());
    }
}

/// At exit, a process does not remove a socket that has replaced its own.
#[test]
fn the_socket_of_another_process_stays() {
    let directory = tempfile::tempdir().expect("directory");
    let socket = directory.path().join("socket");
    let unixgram = format!("--statsd.listen-unixgram={}", socket.display());
    let (mut program, ..) = limited(DESCRIPTORS, &[&unixgram]);
    std::fs::remove_file(&socket).expect("removed");
    let other = UnixDatagram::bind(&socket).expect("bind");
    program.signal("TERM");
    assert_eq!(program.ended().code(), Some(0));
    let sender = UnixDatagram::unbound().expect("socket");
    assert_eq!(sender.send_to(b"a:1|c", &socket).expect("sent"), 5);
    assert_eq!(other.recv(&mut [0; 9]).expect("received"), 5);
}

#[test]
fn a_second_signal_always_ends_the_process() {
    let directory = tempfile::tempdir().expect("directory");
    let mapping = directory.path().join("mapping.yml");
    std::fs::write(&mapping, "mappings: []").expect("written");
    let flag = format!("--statsd.mapping-config={}", mapping.display());
    let (mut program, web, _, _) = limited(1_024, &[&flag]);
    assert_eq!(get(web, "/metrics").status, 200);
    // Reading a FIFO without a writer blocks the reload.
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    std::fs::rename(&pipe, &mapping).expect("renamed");
    program.signal("HUP");
    program.line(&["attempting reload"]);
    program.signal("TERM");
    // The kernel may merge two pending signals of the same kind.
    program.signal("INT");
    assert_eq!(program.ended().code(), Some(0));
}

/// A pipe holds 64 KiB. Each thread that logs would wait for its reader: those that receive lines and those that answer.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    a_log_without_reader_stops_nothing(Program::spawn);
}

/// A terminal holds 15 KiB, and has room for less than a line as a rule.
#[test]
fn a_terminal_that_nobody_reads_stops_nothing() {
    a_log_without_reader_stops_nothing(Program::spawn_on_terminal);
}

fn a_log_without_reader_stops_nothing(spawn: impl FnOnce(&mut Command) -> Program) {
    const LINES: usize = 3_000;
    let (mut program, web, _, tcp) = limited_by(spawn, DESCRIPTORS, &["--log.level=debug"]);
    program.leave_log_unread();
    let line = format!("hits.{}:1|c\n", "x".repeat(200));
    let mut sender = TcpStream::connect(tcp).expect("connect");
    sender.write_all(line.repeat(LINES).as_bytes()).expect("sent");
    until("all lines are applied", || (sum(web, "hits_") == LINES as f64).then_some(()));
    for path in ["/metrics", "/-/healthy", "/kstatd/status", "/"] {
        assert_eq!(get(web, path).status, 200, "{path}");
    }
    program.read_log();
    let mut further = 0;
    let reports = || -> Vec<String> {
        let is_report = |line: &String| line.contains("Log lines were lost because nobody read");
        program.log().into_iter().filter(is_report).collect()
    };
    until("the loss is reported", || {
        // The report precedes a line that has room.
        sender.write_all(line.as_bytes()).expect("sent");
        further += 1;
        (!reports().is_empty()).then_some(())
    });
    let sent = LINES + further;
    until("the others are applied", || (sum(web, "hits_") == sent as f64).then_some(()));
    program.signal("TERM");
    program.line(&["exiting"]);
    let lost = |report: String| report.rsplit_once(" lines=")?.1.parse::<usize>().ok();
    let lost: usize = reports().into_iter().filter_map(lost).sum();
    let logged = program.log().iter().filter(|line| line.contains("Incoming line")).count();
    assert!(logged < sent && logged + lost >= sent, "{sent} sent, {logged} logged, {lost} lost");
    assert_eq!(program.ended().code(), Some(0));
}
