//! `--gate-metrics-until-synced`: no metrics of the cluster before its first lists are complete, and log lines
//! meanwhile.

#[path = "common/api_server.rs"]
mod api_server;
mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use api_server::{ApiServer, list};
use common::cluster::Cluster;
use common::{Gate, NO_LINKS, Passage, Program, Reserved, get, until};
use serde_json::json;

const HERE: [&str; 4] = [
    "--listen=127.0.0.1:0",
    "--telemetry-listen=127.0.0.1:0",
    "--statsd.listen-udp=127.0.0.1:0",
    "--statsd.listen-tcp=",
];

fn kstatd(server: SocketAddr, flags: &[&str]) -> (Program, SocketAddr) {
    let server = format!("--apiserver=http://{server}");
    let program = Program::start("kstatd", [&[server.as_str()], &HERE[..], flags].concat());
    let main = program.address(&["Started metrics server"], "address");
    (program, main)
}

fn address(cluster: &Cluster) -> SocketAddr {
    cluster
        .double
        .url()
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .parse()
        .expect("address")
}

/// Starts an API server that answers `/version` and refuses everything else.
fn refusing_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || refuse(&stream));
        }
    });
    address
}

fn refuse(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut line) = (String::new(), String::new());
        reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        }
        let (status, body) = if first.contains(" /version ") {
            (200, r#"{"gitVersion":"v1.34.0"}"#)
        } else {
            (
                403,
                r#"{"kind":"Status","apiVersion":"v1","code":403,"reason":"Forbidden","message":"not for you"}"#,
            )
        };
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = stream;
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

#[test]
fn metrics_are_503_until_every_kind_is_listed() {
    let cluster = Cluster::new(2_000);
    let gate = Gate::new(address(&cluster), Passage::Silent);
    let flags = ["--resources=pods,nodes,services", NO_LINKS];
    let (program, main) = kstatd(gate.address(), &flags);
    until("what is missing is known", || {
        let answer = get(main, "/metrics");
        assert_eq!(answer.status, 503);
        let text = answer.text();
        ["waiting for:\n", "pods", "nodes", "services"]
            .iter()
            .all(|part| text.contains(part))
            .then_some(())
    });
    assert_eq!(get(main, "/metrics/kubernetes").status, 503);
    // Paths without data of the cluster do not wait.
    for path in ["/metrics/statsd", "/healthz", "/livez", "/"] {
        assert_eq!(get(main, path).status, 200, "{path}");
    }
    let line = program.line(&["First lists in progress", "complete=0", "missing="]);
    assert!(line.contains("pods"), "{line}");
    gate.set(Passage::Open);
    let mut bodies = 0;
    until("it is shown", || {
        let answer = get(main, "/metrics");
        if answer.status == 503 {
            return None;
        }
        let text = answer.text();
        let count = |family: &str| text.lines().filter(|line| line.starts_with(family)).count();
        assert_eq!(count("kube_pod_info{"), cluster.double.objects_of("pods"));
        assert_eq!(count("kube_node_info{"), cluster.double.objects_of("nodes"));
        assert_eq!(count("kube_service_info{"), cluster.double.objects_of("services"));
        bodies += 1;
        (bodies > 1).then_some(())
    });
    let line = program.line(&["First lists complete", "complete=3"]);
    assert!(!line.contains("objects=0"), "{line}");
    // The gate stays open: an outage does not hide known data.
    gate.set(Passage::Cut);
    assert_eq!(get(main, "/metrics").status, 200);
}

#[test]
fn unlistable_kinds_are_waited_for() {
    // An unreachable server, and one that refuses.
    let nobody = Reserved::new();
    for (server, reason) in [(refusing_server(), "not for you"), (nobody.address, "refused")] {
        let (_program, main) = kstatd(server, &["--resources=pods"]);
        until("the reason is named", || {
            let answer = get(main, "/metrics");
            assert_eq!(answer.status, 503);
            let text = answer.text();
            (text.contains("pods: ") && text.contains(reason)).then_some(())
        });
    }
    let (_program, main) = kstatd(nobody.address, &["--gate-metrics-until-synced=false"]);
    assert_eq!(get(main, "/metrics").status, 200);
}

/// Custom resources are known only after their definitions, but belong to the first lists: without them a replica is not ready to take
/// over, its configuration is not in force, and other pods of its StatefulSet keep the objects that it gains.
#[test]
fn custom_resources_belong_to_the_first_lists() {
    let server = ApiServer::start();
    server.serve("/version", json!({"gitVersion": "v1.36.0"}));
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "ksm", "uid": "s", "controller": true});
    let metadata = json!({"name": "ksm-0", "ownerReferences": [owner]});
    server.serve("/api/v1/namespaces/m/pods/ksm-0", json!({"metadata": metadata}));
    let set = json!({"metadata": {"name": "ksm"}, "spec": {"replicas": 1}});
    server.serve("/apis/apps/v1/namespaces/m/statefulsets/ksm", set.clone());
    server.serve_one("/apis/apps/v1/namespaces/m/statefulsets", "StatefulSet", &set);
    server.define_widgets();
    let widgets = "/apis/example.io/v1/widgets";
    let failure = "conversion webhook failed";
    server.serve(
        widgets,
        json!({"kind": "Status", "apiVersion": "v1", "code": 500, "message": failure}),
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("custom.yml");
    let metric = "{name: size, each: {type: Gauge, gauge: {path: [spec, size]}}}";
    let of = "groupVersionKind: {group: example.io, version: v1, kind: Widget}";
    std::fs::write(&file, format!("spec: {{resources: [{{{of}, metrics: [{metric}]}}]}}\n"))
        .expect("written");
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let custom = format!("--custom-resource-state-config-file={}", file.display());
    let flags = ["--custom-resource-state-only", "--gate-metrics-until-synced=false"];
    let pod = ["--pod=ksm-0", "--pod-namespace=m"];
    let args = [&[kubeconfig.as_str(), &custom], &flags[..], &pod, &HERE].concat();
    let program = Program::start("kstatd", args);
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    let own = |name: &str, labels: &str| {
        let text = get(telemetry, "/metrics").text();
        let mut lines = text.lines().filter(|line| line.starts_with(name) && line.contains(labels));
        lines.find_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
    };
    let gauge = "kube_state_metrics_last_config_reload_successful";
    let state = || {
        let is_in_force = own(gauge, "type=\"customresourceconfig\"");
        let stage = own("kstatd_kubernetes_shard_stage", "total=\"1\"");
        (get(main, "/readyz").status, is_in_force, stage)
    };
    let is_requested = || server.requests().iter().any(|path| path.starts_with(widgets));
    until("custom resources are requested", || is_requested().then_some(()));
    assert_eq!(state(), (503, Some(0.0), Some(-1.0)));
    let metadata = json!({"namespace": "n", "name": "w", "uid": "w"});
    server.serve_one(widgets, "Widget", &json!({"metadata": metadata, "spec": {"size": 7}}));
    until("they are listed", || (state() == (200, Some(1.0), Some(3.0))).then_some(()));
    let text = get(main, "/metrics").text();
    assert!(text.lines().any(|line| line.starts_with("kube_customresource_size{")), "{text}");
}

/// In a rollout a replica that has not listed anything must not replace one that has.
#[test]
fn a_standby_is_not_ready_before_its_first_lists() {
    let server = ApiServer::start();
    server.serve("/version", json!({"gitVersion": "v1.36.0"}));
    let failure = json!({"kind": "Status", "apiVersion": "v1", "code": 503, "message": "busy"});
    server.serve("/api/v1/pods", failure);
    let reserved = Reserved::new();
    let telemetry = reserved.address;
    let (port, peers) = (telemetry.port(), format!("--standby-peers={telemetry}"));
    let port = format!("--telemetry-port={port}");
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let here = ["--host=127.0.0.1", "--telemetry-host=127.0.0.1", "--port=0", "--resources=pods"];
    let args = [&here[..], &["--standby", &peers, &port, &kubeconfig]].concat();
    let program = Program::start("kube-state-metrics", args);
    program.line(&["Started self metrics server"]);
    let is_requested = || server.requests().iter().any(|path| path.starts_with("/api/v1/pods"));
    until("pods are requested", || is_requested().then_some(()));
    assert_eq!(get(telemetry, "/readyz").status, 503);
    let mut pods = list(&[]);
    pods["kind"] = "PodList".into();
    server.serve("/api/v1/pods", pods);
    until("it is ready", || (get(telemetry, "/readyz").status == 200).then_some(()));
}

#[test]
fn gate_is_opt_in_under_the_original_name() {
    let start = |flags: &[&str]| {
        let server = format!("--apiserver=http://{}", refusing_server());
        let fixed =
            ["--port=0", "--telemetry-port=0", "--host=127.0.0.1", "--telemetry-host=127.0.0.1"];
        let program =
            Program::start("kube-state-metrics", [&[server.as_str()], &fixed[..], flags].concat());
        let main = program.address(&["Started metrics server"], "address");
        (program, main)
    };
    let (_program, main) = start(&[]);
    assert_eq!(get(main, "/metrics").status, 200);
    let (_program, main) = start(&["--gate-metrics-until-synced", "--resources=pods"]);
    until("the reason is named", || {
        let answer = get(main, "/metrics");
        assert_eq!(answer.status, 503);
        answer.text().contains("not for you").then_some(())
    });
    assert_eq!(get(main, "/healthz").status, 200);
}

#[test]
fn occupied_port_is_reported_first() {
    let cluster = Cluster::new(5);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = taken.local_addr().expect("address");
    let (here, port) = (format!("--listen={address}"), format!("--port={}", address.port()));
    let ports = ["--telemetry-listen=127.0.0.1:0", "--statsd.listen-udp=", "--statsd.listen-tcp="];
    let flag = cluster.flag();
    let native = [&[flag.as_str(), &here][..], &ports].concat();
    let original =
        [&flag, "--host=127.0.0.1", &port, "--telemetry-host=127.0.0.1", "--telemetry-port=0"];
    for (name, args) in [("kstatd", &native[..]), ("kube-state-metrics", &original)] {
        let output = common::run(name, args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stderr.contains(&address.to_string()), "{output:?}");
        assert!(!output.stderr.contains("First lists"), "{output:?}");
    }
}
