//! `/readyz?verbose` and `/livez?verbose`: the format of Kubernetes components, with a check for each kind.

#[path = "common/api_server.rs"]
mod api_server;
mod common;

use std::net::SocketAddr;
use std::time::Instant;

use api_server::ApiServer;
use common::cluster::Cluster;
use common::{Gate, NO_LINKS, Passage, Program, Response, get, run, until};
use serde_json::json;

/// Starts a program; returns its main and telemetry listeners.
fn start(name: &str, server: SocketAddr, flags: &[&str]) -> (Program, SocketAddr, SocketAddr) {
    let here: &[&str] = match name {
        "kstatd" => &["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"],
        _ => &["--port=0", "--telemetry-port=0", "--host=127.0.0.1", "--telemetry-host=127.0.0.1"],
    };
    let server = format!("--apiserver=http://{server}");
    let program = Program::start(name, [here, &[&server], flags].concat());
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    (program, main, telemetry)
}

const STATSD: [&str; 2] = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=127.0.0.1:0"];

fn status_and_checks(response: &Response) -> (u16, String) {
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    (response.status, response.text())
}

/// Waits for this response.
fn answers(address: SocketAddr, path: &str, status: u16, text: &str) {
    let mut last = (0, String::new());
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until(path, || {
            last = status_and_checks(&get(address, path));
            (last.0 == status && last.1 == text).then_some(())
        });
    }));
    assert!(found.is_ok(), "{path} answers {last:?}, not {status} {text:?}");
}

#[test]
fn verbose_health_has_a_check_for_each_kind() {
    let cluster = Cluster::new(50);
    let gate = Gate::new(cluster.double.address(), Passage::Silent);
    let flags = [&STATSD[..], &["--resources=pods,nodes", NO_LINKS]].concat();
    let (_program, main, telemetry) = start("kstatd", gate.address(), &flags);
    let statsd = "[+]statsd/udp ok\n[+]statsd/tcp ok\n";
    let waiting = format!(
        "[+]ping ok\n[-]kubernetes/first-lists failed: initial lists are incomplete\n\
         [-]kubernetes/nodes failed: not listed yet\n[-]kubernetes/pods failed: not listed yet\n{statsd}\
         readyz check failed\n"
    );
    answers(main, "/readyz?verbose", 503, &waiting);
    let well = format!(
        "[+]kubernetes/first-lists ok\n[+]kubernetes/nodes ok\n[+]kubernetes/pods ok\n{statsd}readyz check passed\n"
    );
    // The process is live regardless of pending lists.
    let lives = "[+]ping ok\n[+]kubernetes/nodes ok\n[+]kubernetes/pods ok\nlivez check passed\n";
    answers(main, "/livez?verbose", 200, lives);
    gate.set(Passage::Open);
    answers(main, "/readyz?verbose", 200, &format!("[+]ping ok\n{well}"));
    answers(telemetry, "/readyz?verbose", 200, &format!("[+]ping ok\n{well}"));
    answers(telemetry, "/livez?verbose", 200, lives);
    answers(main, "/readyz?exclude=kubernetes/pods", 200, "OK");
    let response = get(main, "/readyz?verbose");
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
}

/// Probes of manifests do not depend on single kinds, because an unready pod would lose lines and scrapes of all
/// others. The verbose form reports them.
#[test]
fn failing_kind_is_reported_and_can_be_excluded() {
    let cluster = Cluster::new(50);
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let flags =
        [&STATSD[..], &["--resources=pods,nodes", NO_LINKS, "--namespaces=default,kube-system"]]
            .concat();
    let (program, main, _) = start("kstatd", gate.address(), &flags);
    program.line(&["First lists complete"]);
    cluster.double.refuse("pods", Some(403));
    gate.set(Passage::Cut);
    program.line(&["The API server fails"]);
    gate.set(Passage::Open);
    let text = until("pods are forbidden", || {
        let (status, text) = status_and_checks(&get(main, "/readyz?verbose"));
        let forbidden = text.lines().any(|line| {
            line.contains("pods failed: forbidden") && line.ends_with("in 2 of 2 namespaces")
        });
        (status == 503 && text.contains("[+]kubernetes/nodes ok\n") && forbidden).then_some(text)
    });
    let line = text.lines().find(|line| line.starts_with("[-]")).expect("a failure");
    assert!(line.starts_with("[-]kubernetes/pods failed: forbidden since 20"), "{line}");
    assert!(line.ends_with("Z, in 2 of 2 namespaces"), "{line}");
    assert!(text.ends_with("\nreadyz check failed\n"), "{text}");
    assert_eq!(status_and_checks(&get(main, "/readyz")), (200, "OK".to_owned()));
    let (status, text) =
        status_and_checks(&get(main, "/readyz?verbose&exclude=kubernetes/pods&exclude=cheese"));
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("\n[+]kubernetes/pods excluded: ok\n"), "{text}");
    assert!(
        text.contains("\nwarn: some health checks cannot be excluded: no matches for \"cheese\"\n"),
        "{text}"
    );
    assert_eq!(
        status_and_checks(&get(main, "/readyz?exclude=kubernetes/pods")),
        (200, "OK".to_owned())
    );
    // Failing checks are always listed.
    let (status, text) = status_and_checks(&get(main, "/readyz?exclude=kubernetes/nodes"));
    assert!(status == 503 && text.contains("[-]kubernetes/pods failed: forbidden"), "{text}");
    cluster.double.refuse("pods", None);
    until("all is well again", || (get(main, "/readyz?verbose").status == 200).then_some(()));
}

#[test]
fn a_kind_that_the_server_lacks_is_no_failure() {
    let cluster = Cluster::new(20);
    cluster.double.refuse("nodes", Some(404));
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let flags = [&STATSD[..], &["--resources=pods,services,nodes", NO_LINKS]].concat();
    let (program, main, _) = start("kstatd", gate.address(), &flags);
    until("pods are listed, and there are no nodes", || {
        let text = get(main, "/status?format=text").text();
        let is_noted = text.contains("the API server does not serve nodes\n");
        (is_noted && get(main, "/readyz").status == 200).then_some(())
    });
    let (status, text) = status_and_checks(&get(main, "/readyz?verbose"));
    assert!(status == 200 && text.contains("[+]kubernetes/nodes ok\n"), "{text}");
    let text = get(main, "/status?format=text").text();
    assert!(text.starts_with("OK "), "{text}");
    let output = run("kstatd", ["check", &format!("--addr={main}")]);
    assert!(output.status.code() == Some(0), "{output:?}");
    assert!(output.stdout.contains("2 of 2 kinds are synced"), "{output:?}");
    gate.set(Passage::Cut);
    program.line(&["The API server fails"]);
    gate.set(Passage::Open);
    program.line(&["The API server works again"]);
}

#[test]
fn a_server_that_lacks_every_kind_is_a_failure() {
    let cluster = Cluster::new(20);
    cluster.double.refuse("nodes", Some(404));
    cluster.double.refuse("pods", Some(404));
    let flags = [&STATSD[..], &["--resources=pods,nodes", NO_LINKS]].concat();
    let (_program, main, _) = start("kstatd", cluster.double.address(), &flags);
    until("both fail", || {
        let (status, text) = status_and_checks(&get(main, "/readyz?verbose"));
        (status == 503 && text.matches("failed: not_found since ").count() == 2).then_some(())
    });
    let text = get(main, "/status?format=text").text();
    assert!(text.contains("DEGRADED"), "{text}");
}

#[test]
fn only_verbose_health_differs_from_the_original() {
    let cluster = Cluster::new(20);
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let (program, main, telemetry) =
        start("kube-state-metrics", gate.address(), &["--resources=pods,nodes"]);
    let kinds = "[+]kubernetes/first-lists ok\n[+]kubernetes/nodes ok\n[+]kubernetes/pods ok\n";
    answers(
        telemetry,
        "/readyz?verbose",
        200,
        &format!("[+]ping ok\n{kinds}readyz check passed\n"),
    );
    answers(
        main,
        "/livez?verbose",
        200,
        "[+]ping ok\n[+]kubernetes/apiserver ok\n[+]kubernetes/nodes ok\n[+]kubernetes/pods ok\nlivez check passed\n",
    );
    for (address, path, status) in [
        (main, "/readyz?verbose", 404),
        (telemetry, "/livez?verbose", 404),
        (telemetry, "/readyz?exclude=kubernetes/pods", 200),
        (main, "/livez?exclude=kubernetes/pods", 200),
        (main, "/healthz?verbose", 200),
    ] {
        let response = get(address, path);
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.text(), if status == 200 { "OK" } else { "404 page not found\n" });
    }
    gate.set(Passage::Cut);
    program.line(&["The API server fails"]);
    answers(
        main,
        "/livez?verbose",
        503,
        "[+]ping ok\n[-]kubernetes/apiserver failed: its livez check failed\n[+]kubernetes/nodes ok\n[+]kubernetes/pods ok\nlivez check failed\n",
    );
    assert_eq!(status_and_checks(&get(main, "/livez")), (503, "Service Unavailable".to_owned()));
    assert_eq!(status_and_checks(&get(telemetry, "/readyz")), (200, "OK".to_owned()));
    let (status, text) = status_and_checks(&get(telemetry, "/readyz?verbose"));
    assert!(status == 503 && text.contains("[-]kubernetes/pods failed: broken since 20"), "{text}");
}

#[test]
fn strangers_share_a_request_to_the_api_server() {
    let server = ApiServer::start();
    server.serve("/version", json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}));
    server.serve("/api/v1/pods", api_server::list(&[]));
    server.serve("/livez", json!("ok"));
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let here = ["--port=0", "--telemetry-port=0", "--host=127.0.0.1", "--telemetry-host=127.0.0.1"];
    let args = [&here[..], &[&kubeconfig, "--resources=pods"]].concat();
    let program = Program::start("kube-state-metrics", args);
    let main = program.address(&["Started metrics server"], "address");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert_eq!(get(main, "/livez").status, 200));
        }
    });
    let asked = server.requests().iter().filter(|path| *path == "/livez").count() as u64;
    // One, and another for each second.
    let expected = 1..=1 + began.elapsed().as_secs();
    assert!(expected.contains(&asked), "{asked}, not {expected:?}");
}
