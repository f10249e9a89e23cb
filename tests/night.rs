//! Faults that call an engineer at night: the first screen of the status names the cause and the runbook page.

#[path = "common/api_server.rs"]
mod api_server;
mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use api_server::ApiServer;
use common::cluster::Cluster;
use common::{DEADLINE, Gate, Passage, Program, command, get, replace, run, until};

const HERE: [&str; 2] = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"];
const NO_STATSD: [&str; 2] = ["--statsd.listen-udp=", "--statsd.listen-tcp="];

/// The lines of a terminal that are read first.
const FIRST_LINES: usize = 10;

fn start(flags: &[&[&str]]) -> Program {
    Program::start("kstatd", [&HERE[..]].into_iter().chain(flags.iter().copied()).flatten())
}

fn main_address(program: &Program) -> SocketAddr {
    program.address(&["Started metrics server"], "address")
}

/// Waits until the first lines of `kstatd status`, the top of the page and the JSON name the state, the cause and the
/// runbook page, and checks the exit code.
fn shows(program: &Program, state: &str, page: &str, cause: &[&str]) {
    let main = main_address(program);
    let output = until(&format!("{state}, {cause:?}"), || {
        let output = run("kstatd", ["status", &format!("--addr={main}")]);
        let lines: Vec<&str> = output.stdout.lines().take(FIRST_LINES).collect();
        let named = cause.iter().all(|part| lines.iter().any(|line| line.contains(part)));
        let linked = lines.iter().any(|line| line.ends_with(&format!("/docs/runbook/{page}.md")));
        (output.stdout.starts_with(state) && named && linked).then_some(output)
    });
    assert!(Path::new("docs/runbook").join(format!("{page}.md")).exists(), "{page}");
    let code = if state == "DEGRADED" { 1 } else { 0 };
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let top = get(main, "/status").text();
    let banner = top.split_once("<div class=\"grid\">").map_or("", |(banner, _)| banner);
    for part in [&[state, &format!("/{page}.md\">{page}</a>")], cause].concat() {
        assert!(banner.contains(part), "{part} in {banner}");
    }
    let json = run("kstatd", ["status", "-o", "json", &format!("--addr={main}")]);
    assert_eq!(json.status.code(), Some(code), "{json:?}");
    let facts: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(facts["state"], state.to_lowercase());
}

#[test]
fn api_server_that_does_not_answer() {
    let cluster = Cluster::new(50);
    let gate = Gate::new(cluster.double.address(), Passage::Silent);
    let server = format!("--apiserver=http://{}", gate.address());
    let program = start(&[&NO_STATSD, &[&server]]);
    // All kinds share one line.
    shows(&program, "DEGRADED", "KstatdListWatchErrors", &[" kinds: no answer within 15 s since "]);
}

#[test]
fn revoked_permission() {
    let cluster = Cluster::new(50);
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let server = format!("--apiserver=http://{}", gate.address());
    let program = start(&[&NO_STATSD, &[&server, "--resources=pods,ingresses,nodes"]]);
    let main = main_address(&program);
    until("the lists", || (get(main, "/readyz").status == 200).then_some(()));
    cluster.double.refuse("ingresses", Some(403));
    // Open watches continue; the next ones are refused.
    gate.set(Passage::Cut);
    gate.set(Passage::Open);
    let cause = ["ingresses: 403 Forbidden, an RBAC rule is missing, since "];
    shows(&program, "DEGRADED", "KstatdKindForbidden", &cause);
}

#[test]
fn broken_mapping() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mapping.yml");
    replace(&file, "mappings: [{match: web.*, name: web}]\n");
    let flag = format!("--statsd.mapping-config={}", file.display());
    let program = start(&[&["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp="], &[&flag]]);
    let _ = main_address(&program);
    replace(&file, "mappings:\n- match: web.*\n  nmae: web\n");
    program.signal("HUP");
    let name = file.display().to_string();
    shows(&program, "DEGRADED", "KstatdConfigReloadFailed", &[&name, "line 3, column 3", "nmae"]);
}

#[test]
fn label_explosion_within_the_budget() {
    let flags = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=127.0.0.1:0"];
    let program = start(&[&flags, &["--limit.values-per-label=10"]]);
    let lines: String = (0..500).map(|n| format!("hits:1|c|#user:u{n}\n")).collect();
    let address = program.address(&["Accepting StatsD Traffic"], "tcp");
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.write_all(lines.as_bytes()).expect("send");
    let cause = ["user of hits exceeds --limit.values-per-label (490 label sets folded)"];
    shows(&program, "WARN", "KstatdOverBudget", &cause);
    // Objects: an allow-listed label.
    let cluster = Cluster::new(300);
    let label = "--metric-labels-allowlist=pods=[*]";
    let flags = ["--resources=pods", label, "--limit.values-per-label=2"];
    let program = start(&[&NO_STATSD, &[&cluster.flag()], &flags]);
    shows(&program, "WARN", "KstatdOverBudget", &["kube_pod", "exceed --limit.values-per-label"]);
}

#[test]
fn udp_drops() {
    let flags = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp="];
    let program = start(&[&flags, &["--statsd.read-buffer=4096"]]);
    let main = main_address(&program);
    let is_sampled = || get(main, "/status?format=json").text().contains("\"what\":\"drops\"");
    until("the first sample", || is_sampled().then_some(()));
    let udp = program.address(&["Accepting StatsD Traffic"], "udp");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    // The stopped program cannot read from the socket.
    program.freeze();
    for _ in 0..5_000 {
        sender.send_to(b"a:1|c", udp).expect("sent");
    }
    program.signal("CONT");
    let cause = ["StatsD: the kernel dropped ", " in the last 5 min, receive buffer 8.19 kB"];
    shows(&program, "WARN", "KstatdUdpDrops", &cause);
}

#[test]
fn custom_resource_with_a_typo() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("custom.yml");
    let config = "kind: CustomResourceStateMetrics
spec:
  resources:
  - groupVersionKind: {group: apps, version: v1, kind: Deployment}
    metrics:
    - name: replicas
      each: {type: Gauge, gauge: {path: [spec, replcas]}}
    - name: real
      each: {type: Gauge, gauge: {path: [spec, replicas]}}
  - groupVersionKind: {group: example.io, version: v1, kind: Wigdet}
    metrics:
    - name: size
      each: {type: Gauge, gauge: {path: [spec, size]}}
";
    replace(&file, config);
    let cluster = Cluster::new(50);
    let flag = format!("--custom-resource-state-config-file={}", file.display());
    let program = start(&[&NO_STATSD, &[&cluster.flag(), "--resources=nodes", &flag]]);
    let cause = [
        "kube_customresource_replicas has no series: no object of deployments.v1.apps has a value at [spec,replcas]",
        "does not serve the configured custom resources Wigdet of example.io/v1",
    ];
    shows(&program, "WARN", "KstatdCustomResourceMetricEmpty", &cause);
    assert!(
        !get(main_address(&program), "/status").text().contains("kube_customresource_real has")
    );
    // The corrected path is applied without a restart.
    replace(
        &file,
        &config.replace("replcas", "replicas").replace(
            "    - name: real\n      each: {type: Gauge, gauge: {path: [spec, replicas]}}\n",
            "",
        ),
    );
    let main = main_address(&program);
    until("no warning", || get(main, "/status?format=text").text().starts_with("OK").then_some(()));
}

/// A path that replaces another one is taken back while one of two namespaces has been listed with it. Nothing is listed again.
#[test]
fn custom_resource_with_a_typo_that_is_replaced_for_a_moment() {
    let server = ApiServer::start();
    server.define_widgets();
    let widgets = ["one", "two"].map(|of| format!("/apis/example.io/v1/namespaces/{of}/widgets"));
    for (path, namespace) in widgets.iter().zip(["one", "two"]) {
        let metadata = json!({"namespace": namespace, "name": "w", "uid": namespace});
        server.serve_one(path, "Widget", &json!({"metadata": metadata, "spec": {}}));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("custom.yml");
    let configure = |path: &str| {
        let metric =
            format!("{{name: size, each: {{type: Gauge, gauge: {{path: [spec, {path}]}}}}}}");
        let of = "groupVersionKind: {group: example.io, version: v1, kind: Widget}";
        replace(&file, &format!("spec: {{resources: [{{{of}, metrics: [{metric}]}}]}}\n"));
    };
    configure("first");
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let flag = format!("--custom-resource-state-config-file={}", file.display());
    let only = ["--custom-resource-state-only", "--namespaces=one,two"];
    let program = start(&[&NO_STATSD, &[&kubeconfig, &flag], &only]);
    let telemetry = program.address(&["Started self metrics server"], "address");
    let main = main_address(&program);
    let says = |path: &str| {
        let cause = format!("no object of widgets.v1.example.io has a value at [spec,{path}]");
        let status = || get(main, "/status?format=text").text();
        until(&cause, || status().contains(&cause).then_some(()));
    };
    let rendered = |objects: u32| {
        let count = format!("reason=\"nothing\",resource=\"widgets.v1.example.io\"}} {objects}\n");
        let own = || get(telemetry, "/metrics").text();
        until(&count, || own().contains(&count).then_some(()));
    };
    says("first");
    rendered(2);
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    server.forward(&widgets[1], silent.local_addr().expect("address"));
    configure("second");
    rendered(3);
    says("second");
    configure("first");
    says("first");
    rendered(3);
}

/// The limit is that of the cgroup file system that the process sees, which a mount namespace replaces.
#[test]
fn memory_near_the_limit() {
    let kstatd = command("kstatd", [""]);
    let script = "mount -t tmpfs none /sys/fs/cgroup && echo 16000000 >/sys/fs/cgroup/memory.max && exec \"$0\" \"$@\"";
    let mut confined = std::process::Command::new("unshare");
    confined.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    confined.arg(kstatd.get_program()).args(HERE).args(NO_STATSD).stdin(Stdio::null());
    let cluster = Cluster::new(500);
    confined.args([&cluster.flag(), "--resources=pods"]);
    let program = Program::spawn(&mut confined);
    let cause = ["memory is at ", "% of the cgroup limit (", " of 16.0 MB)"];
    shows(&program, "WARN", "KstatdMemoryNearLimit", &cause);
    let text = get(main_address(&program), "/status?format=text").text();
    assert!(text.contains(" MB of 16.0 MB   CPU") || text.contains(" of 16.0 MB\n"), "{text}");
}

#[test]
fn slow_scraper() {
    let cluster = Cluster::new(2_000);
    let program = start(&[&NO_STATSD, &[&cluster.flag(), "--resources=pods"]]);
    let main = main_address(&program);
    until("the pods are listed", || (get(main, "/readyz").status == 200).then_some(()));
    let mut stream = TcpStream::connect(main).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
    let head = "GET /metrics HTTP/1.1\r\nHost: test\r\nUser-Agent: Prometheus/3.0\r\n\
                X-Prometheus-Scrape-Timeout-Seconds: 0.5\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("request");
    stream.read_exact(&mut [0; 1024]).expect("the response has begun");
    let cause =
        ["prometheus at 127.0.0.1 did not take all of /metrics", "the scraper read too slowly"];
    shows(&program, "WARN", "KstatdScrapesIncomplete", &cause);
    drop(stream);
}
