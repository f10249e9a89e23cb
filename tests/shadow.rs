//! `kstatd shadow` through the command line, next to originals that are equal, differ, fail or answer garbage.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::cluster::Cluster;
use common::{Output, Program, Reserved, get, run, until};
use serde_json::Value;

/// Short enough for originals that answer immediately.
const SHORT: [&str; 2] = ["--for=1s", "--every=100ms"];

/// Flags that change what is exposed and how.
const FLAGS: [&str; 5] = [
    "--total-shards=2",
    "--shard=0",
    "--metric-labels-allowlist=pods=[*]",
    "--metric-denylist=^kube_node_",
    "--enable-gzip-encoding",
];

/// Runs `kstatd shadow` and returns its JSON and exit code.
fn shadow(args: &[&str], line: &[&str]) -> (Value, Option<i32>) {
    let output = run("kstatd", [&["shadow", "-o", "json"], args, &["--"], line].concat());
    let report = serde_json::from_str(&output.stdout);
    let report =
        report.unwrap_or_else(|error| panic!("{error}: {}{}", output.stdout, output.stderr));
    assert_eq!(output.stderr, "", "JSON must not be mixed with progress");
    (report, output.status.code())
}

/// A kstatd under the name of an original.
struct Original {
    _program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Original {
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        let server = cluster.flag();
        let fixed = [
            server.as_str(),
            "--port=0",
            "--telemetry-port=0",
            "--host=127.0.0.1",
            "--telemetry-host=127.0.0.1",
            "--gate-metrics-until-synced",
        ];
        let program = Program::start("kube-state-metrics", [&fixed[..], flags].concat());
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        until("everything is listed", || (get(main, "/metrics").status == 200).then_some(()));
        Self { _program: program, main, telemetry }
    }

    fn flags(&self) -> [String; 2] {
        [
            format!("--original=http://{}", self.main),
            format!("--original-telemetry=http://{}", self.telemetry),
        ]
    }
}

/// A server that answers its n-th request for metrics with a body; `None` hangs.
fn server(
    answer: impl Fn(usize) -> Option<String> + Send + 'static,
) -> (String, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let requests = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&requests);
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            lines.find(String::is_empty);
            let mut number = counted.lock().expect("requests");
            *number += 1;
            match answer(*number - 1) {
                Some(body) => reply(&stream, &body),
                None => held.push(stream),
            }
        }
    });
    (url, requests)
}

fn reply(mut stream: &TcpStream, body: &str) {
    let kind = if body.starts_with('<') { "text/html" } else { "text/plain; version=0.0.4" };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

/// Returns a figure of both sides.
fn cost(report: &Value, name: &str) -> [Option<f64>; 2] {
    let costs = report["costs"].as_array().expect("costs");
    let cost =
        costs.iter().find(|cost| cost["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    [cost["original"].as_f64(), cost["kstatd"].as_f64()]
}

/// Returns the families with undocumented differences, and their kinds.
fn undocumented(report: &Value) -> Vec<String> {
    let families = report["differences"]["families"].as_array().expect("families").iter();
    families
        .flat_map(|family| {
            let differences = family["differences"].as_array().expect("differences").iter();
            let unexplained = differences.filter(|one| one["explained"].is_null());
            unexplained.map(|one| {
                format!(
                    "{} {}",
                    family["family"].as_str().expect("name"),
                    one["what"].as_str().expect("what")
                )
            })
        })
        .collect()
}

fn events(report: &Value) -> String {
    report["events"].to_string()
}

#[test]
fn equal_original_has_no_difference_and_both_costs() {
    let cluster = Cluster::new(300);
    let original = Original::start(&cluster, &FLAGS);
    let [metrics, telemetry] = original.flags();
    let server = cluster.flag();
    let ports = ["--port=8080", "--telemetry-port", "8081", "--auth-filter", "--host=::"];
    let line = [&["/kube-state-metrics", &server], &FLAGS[..], &ports].concat();
    let (report, code) = shadow(&[&SHORT[..], &[&metrics, &telemetry]].concat(), &line);
    assert_eq!((code, &report["verdict"]), (Some(0), &"equal".into()), "{report:#}");
    assert!(report["comparisons"].as_u64() >= Some(2), "{report:#}");
    assert_eq!(report["differences"]["families"], Value::Array(Vec::new()));
    assert_eq!(report["events"], Value::Array(Vec::new()));
    for (name, low, high) in [
        ("memory, last", 2e6, 1e9),
        ("memory, highest", 2e6, 1e9),
        ("CPU", 0.0, 8.0),
        ("scrape time, plain", 0.0, 60.0),
        ("scrape time, gzip", 0.0, 60.0),
        ("scrape size, plain", 1e5, 1e8),
        ("scrape size, gzip", 1e3, 1e6),
        ("API requests since the start", 20.0, 1e4),
        ("API bytes since the start", 1e4, 1e9),
        ("API requests while comparing", 0.0, 1e3),
        ("age of the process", 0.0, 1e4),
    ] {
        for value in cost(&report, name) {
            let value = value.unwrap_or_else(|| panic!("{name} is not reported"));
            assert!((low..=high).contains(&value), "{name}: {value}");
        }
    }
    let sizes = ["scrape size, plain", "scrape size, gzip"].map(|name| cost(&report, name));
    assert_eq!(sizes[0][0], sizes[0][1], "both have the same text");
    assert!(sizes[1][0] < sizes[0][0].map(|plain| plain / 5.0), "{sizes:?}");
    assert!(report["commands"]["swap"].to_string().contains("kubectl set image"), "{report:#}");
}

#[test]
fn planted_differences_are_the_only_ones() {
    let cluster = Cluster::new(300);
    let original = Original::start(&cluster, &[]);
    let main = original.main;
    // A family less, another value, another label.
    let (url, _) = server(move |_| {
        let text = get(main, "/metrics").text();
        let lines = text.lines().filter(|line| !line.contains("kube_pod_created"));
        let mut changed = 0;
        let edited = lines.map(|line| match line {
            line if line.starts_with("kube_pod_info{") && changed < 2 => {
                changed += 1;
                line.replacen("pod_ip=", "address=", 1)
            }
            line if line.starts_with("kube_node_status_capacity{") => line.to_owned() + "7",
            line => line.to_owned(),
        });
        Some(edited.map(|line| line + "\n").collect())
    });
    let args = [&SHORT[..], &["--original", &url]].concat();
    let (report, code) = shadow(&args, &[&cluster.flag()]);
    assert_eq!((code, &report["verdict"]), (Some(1), &"different".into()), "{report:#}");
    let planted = [
        "kube_node_status_capacity value",
        "kube_pod_created only_in_b",
        "kube_pod_info only_in_a",
        "kube_pod_info only_in_b",
        "kube_pod_info labels",
    ];
    assert_eq!(undocumented(&report), planted, "{report:#}");
    assert_eq!(report["differences"]["differing_families"], 3);
    assert!(events(&report).contains("there are differences"), "{report:#}");
    // Its own metrics are unknown.
    assert_eq!(cost(&report, "memory, last")[0], None);
    assert!(cost(&report, "memory, last")[1].is_some());
    // The text says the same.
    let output = run("kstatd", [&["shadow"], &args[..], &["--", &cluster.flag()]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for part in [
        "\nkube_pod_created\n  only in B: 300 series, seen from ",
        "  memory, last                    not reported",
        "\nRoll back\n  kubectl rollout undo -n NAMESPACE deployment/kube-state-metrics\n  or\n  helm rollback RELEASE",
        "\nVerdict: 3 families differ in ",
    ] {
        assert!(output.stdout.contains(part), "{part:?} in {}", output.stdout);
    }
    assert!(output.stderr.contains("comparing every 0.1 s for 1 s\n"), "{}", output.stderr);
}

#[test]
fn temporary_differences_and_failures_of_the_original_are_reported() {
    let cluster = Cluster::new(10);
    let original = Original::start(&cluster, &[]);
    let main = original.main;
    // Of every round, the original is asked once for the comparison, and once for its costs.
    let (url, requests) = server(move |n| match n {
        12 => None,
        13 => Some("<html>login</html>".to_owned()),
        14 => Some("half a line".to_owned()),
        // A difference in a single comparison.
        20 => Some(get(main, "/metrics").text() + "planted 1\n"),
        _ => Some(get(main, "/metrics").text()),
    });
    let args = ["--for=1h", "--every=50ms", "--timeout=2s", "--original", &url];
    let child = Child::start(&[&["-o", "json"], &args[..]].concat(), &[&cluster.flag()]);
    until("it was compared again", || (*requests.lock().expect("requests") > 40).then_some(()));
    let candidate = child.candidate();
    let output = child.interrupt();
    assert!(!Path::new(&format!("/proc/{candidate}")).exists(), "the child process remains");
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(report["verdict"], "equal", "{report:#}");
    let events = events(&report);
    for part in [
        "no whole answer within 2 s",
        "not an exposition: its Content-Type is",
        "the exposition ends in the middle of it",
        "both sides respond again",
    ] {
        assert!(events.contains(part), "{part:?} in {events}");
    }
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let cluster = Cluster::new(1);
    let closed = Reserved::new();
    let url = format!("http://user:secret@{}", closed.address);
    let (report, code) = shadow(&[&SHORT[..], &["--original", &url]].concat(), &[&cluster.flag()]);
    assert_eq!((code, &report["verdict"]), (Some(2), &"not_compared".into()), "{report:#}");
    let reason = report["reason"].as_str().expect("a reason");
    assert!(reason.contains("refused") && !report.to_string().contains("secret"), "{report:#}");
    assert!(cost(&report, "memory, last")[0].is_none());
    let dead = format!("--apiserver=http://{}", closed.address);
    for (args, part) in [
        (&["shadow"][..], "--original"),
        (
            &["shadow", "--original=http://a", "--", "--wrong"],
            "error: flags of kube-state-metrics: unknown flag: --wrong",
        ),
        (
            &["shadow", "--original=a", "--", &dead],
            "error: \"a\" is neither a URL nor NAMESPACE/POD",
        ),
        (&["shadow", "--original=http://a", "--", &dead], "\" err=\"API server http://127.0.0.1"),
        (&["shadow", "--original=http://a", "--", "other"], "error: \"other\" is not an original"),
        (&["shadow", "--original=http://a", "--for=0s"], "must be a duration above 0"),
    ] {
        let output = run("kstatd", args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(part), "{part:?} in {}", output.stderr);
    }
}

#[test]
fn page_is_well_formed_and_escapes_values() {
    let cluster = Cluster::new(10);
    let original = Original::start(&cluster, &[]);
    let main = original.main;
    let hostile = "planted{x=\"<script>alert(1)</script>\u{202e}&\"} 1\n# HELP other </pre><img src=x>\n# TYPE other gauge\nother 1\n";
    let (url, _) = server(move |_| Some(get(main, "/metrics").text() + hostile));
    let telemetry = format!("--original-telemetry=http://{}", original.telemetry);
    let args = [
        &["shadow", "-o", "html"],
        &SHORT[..],
        &["--original", &url, &telemetry, "--", &cluster.flag()],
    ];
    let output = run("kstatd", args.concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let page = output.stdout;
    assert_well_formed(&page);
    for part in ["<script", "<img", "src=", "href=", "url(", "javascript:", "\u{202e}", "onload"] {
        assert!(!page.contains(part), "{part}");
    }
    for part in [
        "DIFFERENT",
        "planted{x=&quot;&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}&amp;&quot;} 1",
        "prefers-color-scheme:dark",
        "<svg class=\"plot\"",
        "<h3>Memory</h3>",
        "kubectl set image",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Four plots with two lines each.
    assert_eq!(page.matches("<path class=\"l1\"").count(), 4);
}

/// Asserts that each tag is closed in order.
fn assert_well_formed(page: &str) {
    let mut open = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
    while let Some((_, tag)) = rest.split_once('<') {
        let (tag, behind) = tag.split_once('>').expect("the end of a tag");
        rest = behind;
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !["meta"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn statsd_lines_are_relayed_to_the_original() {
    let folder = tempfile::tempdir().expect("folder");
    let mapping = folder.path().join("mapping.yml");
    std::fs::write(&mapping, "mappings:\n- match: a.*.b\n  name: mapped\n  labels: {x: $1}\n")
        .expect("write");
    let mapping = format!("--statsd.mapping-config={}", mapping.display());
    let original = Program::start(
        "statsd_exporter",
        [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=127.0.0.1:0",
            &mapping,
        ],
    );
    let direct = original.address(&["Accepting StatsD Traffic"], "tcp");
    let udp = original.address(&["Accepting StatsD Traffic"], "udp");
    let web = original.address(&["Accepting Prometheus Requests"], "addr");
    let front = Reserved::new();
    let [listen, relay] =
        [format!("--statsd.listen-tcp={}", front.address), format!("--statsd.relay.address={udp}")];
    let line =
        ["statsd_exporter", "--web.listen-address=:9102", "--statsd.listen-udp=", &listen, &relay];
    let url = format!("--original=http://{web}");
    // With the same mapping both are equal, although the original is older, and lines come to it later.
    let mut old = TcpStream::connect(direct).expect("connect");
    old.write_all(b"a.old.b:7|c\nold:1|g\n").expect("send");
    until("the original knows them", || {
        get(web, "/metrics").text().contains("mapped{x=\"old\"} 7").then_some(())
    });
    for (flags, want) in [(&[mapping.as_str()][..], 0), (&[], 1)] {
        let args = ["-o", "json", "--for=13s", "--every=3s", &url];
        let mut child = Child::start(&args, &[&line[..], flags].concat());
        let mut sender = until("it listens", || TcpStream::connect(front.address).ok());
        until("the comparison ends", || {
            // The last lines are not received.
            let _ = sender.write_all(b"a.one.b:1|c\na.two.b:5|g\ntimes:3|ms\n");
            child.0.try_wait().expect("wait").map(drop)
        });
        let output = child.output();
        let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
        assert_eq!(output.status.code(), Some(want), "{report:#}");
        let mapped = undocumented(&report).iter().any(|of| of.starts_with("mapped "));
        assert_eq!(mapped, want == 1, "{report:#}");
        let [theirs, ours] = cost(&report, "memory, last");
        assert!(theirs > Some(1e6) && ours > Some(1e6), "{report:#}");
        assert!(!report["costs"].to_string().contains("API"), "{report:#}");
        let swap = report["commands"]["swap"].to_string();
        assert!(swap.contains("kstatd/statsd-exporter"), "{swap}");
    }
}

/// A running `kstatd shadow`.
struct Child(std::process::Child);

impl Child {
    fn start(args: &[&str], line: &[&str]) -> Self {
        let words = [&["shadow"], args, &["--"], line].concat();
        let mut command = common::command("kstatd", words);
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start"))
    }

    /// Returns the process ID of the kstatd that it started.
    fn candidate(&self) -> u32 {
        let id = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        children.expect("children").trim().parse().expect("one child")
    }

    /// Sends the signal of Ctrl-C and waits for the report.
    fn interrupt(self) -> Output {
        let kill = ["-c", &format!("kill -INT {}", self.0.id())];
        assert!(Command::new("sh").args(kill).status().expect("kill").success());
        self.output()
    }

    /// Waits for the report.
    fn output(self) -> Output {
        let output = self.0.wait_with_output().expect("end");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Output { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}
