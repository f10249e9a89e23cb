//! Memory used by scrapes, lists and senders is returned to the system.

mod common;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use common::cluster::Cluster;
use common::{Program, get, request, until};

/// Number of concurrent scrapes.
const SCRAPES: usize = 20;

/// Returns a number of kB in a file of `/proc/PID`.
fn kilobytes(program: &Program, file: &str, field: &str) -> usize {
    let path = format!("/proc/{}/{file}", program.id());
    let text = std::fs::read_to_string(path).expect("memory");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("a number");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Returns the process's anonymous memory in kB.
fn own_memory(program: &Program) -> usize {
    kilobytes(program, "smaps_rollup", "Anonymous:")
}

fn scrape_at_once(address: SocketAddr, headers: &'static [(&str, &str)]) {
    let scrape = || request(address, "GET", "/metrics", headers).expect("answer").status;
    std::thread::scope(|scope| {
        let scrapes = Vec::from_iter((0..SCRAPES).map(|_| scope.spawn(scrape)));
        for scrape in scrapes {
            assert_eq!(scrape.join().expect("no panic"), 200);
        }
    });
}

#[test]
fn memory_of_scrapes_is_returned() {
    let cluster = Cluster::new(300);
    let flag = cluster.flag();
    let fixed =
        ["--host=127.0.0.1", "--port=0", "--telemetry-host=127.0.0.1", "--telemetry-port=0"];
    let args = [&[flag.as_str(), "--enable-gzip-encoding"], &fixed[..]].concat();
    let program = Program::start("kube-state-metrics", args);
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    until("all kinds are listed", || {
        get(telemetry, "/metrics").text().contains("\nkstatd_ready 1\n").then_some(())
    });
    // Builds the compression codes, which stay in memory.
    scrape_at_once(main, &[("Accept-Encoding", "gzip")]);
    let heap = || get(telemetry, "/debug/pprof/heap").body.len();
    assert!(heap() > 0);
    // A heap profile releases all free memory.
    let steady = own_memory(&program);
    for headers in [&[][..], &[("Accept-Encoding", "gzip")]] {
        scrape_at_once(main, headers);
        until("memory is what it was", || {
            (own_memory(&program) <= steady + steady / 4).then_some(())
        });
    }
}

/// A second after a scrape, only the pages of the program that an idle process uses are mapped.
#[test]
fn pages_of_the_program_are_unmapped_after_a_scrape() {
    let program = Program::start(
        "statsd_exporter",
        [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=",
        ],
    );
    let address = program.address(&["Accepting Prometheus Requests"], "addr");
    let mapped = || kilobytes(&program, "status", "RssFile:");
    let mut highest = 0;
    until("pages of scrapes are unmapped", || {
        let now = mapped();
        highest = highest.max(now);
        // It maps the pages again.
        assert_eq!(request(address, "GET", "/metrics", &[]).expect("answer").status, 200);
        (now < highest * 3 / 4).then_some(())
    });
}

/// Anybody may ask for reports on ten thousand metrics, which have up to 7 MB.
#[test]
fn large_reports_take_little_memory() {
    let program = Program::start(
        "kstatd",
        [
            "run",
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=",
            "--statsd.listen-tcp=127.0.0.1:0",
        ],
    );
    let address = program.address(&["Started metrics server"], "address");
    let lines = program.address(&["Accepting StatsD Traffic"], "tcp");
    let mut sender = TcpStream::connect(lines).expect("connect");
    for metric in 0..10_000 {
        let line = |series| {
            format!("metric_{metric}:1|c|#a:{series},b:{metric},c:v{series},d:w{metric},e:1\n")
        };
        sender.write_all((0..4).map(line).collect::<String>().as_bytes()).expect("lines");
    }
    let report = |path: &str, limit: u32| {
        let answer = get(address, &format!("/api/v1/status/{path}?limit={limit}"));
        assert_eq!(answer.status, 200);
        answer.text()
    };
    until("all metrics", || {
        report("cardinality", 1).contains("\"metricNames\":10000").then_some(())
    });
    // From here on the system notes another peak.
    std::fs::write(format!("/proc/{}/clear_refs", program.id()), "5").expect("a new peak");
    let before = own_memory(&program);
    for path in ["tsdb", "cardinality"] {
        report(path, 10_000);
    }
    let peak = kilobytes(&program, "status", "VmHWM:") - kilobytes(&program, "status", "RssFile:");
    assert!(peak < before + (64 << 10), "{before} kB, then {peak} kB");
}
