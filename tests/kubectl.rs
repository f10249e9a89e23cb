//! `kubectl-kstatd`: commands that find a pod of kstatd and ask it through the proxy of the API server, which this
//! test stands in for.

#[path = "common/api_server.rs"]
mod api_server;
mod common;

use api_server::{ApiServer, deployment, forbidden, list, pod};
use common::{Output, Program, command, get, run, until};
use serde_json::{Value, json};

/// A kstatd without a cluster, and an API server that knows it as a pod of a Deployment.
fn installed() -> (Program, ApiServer) {
    let program = Program::start(
        "kstatd",
        [
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=",
        ],
    );
    let address = program.address(&["Started metrics server"], "address");
    until("it is ready", || (get(address, "/readyz").status == 200).then_some(()));
    let server = ApiServer::start();
    let args = json!([format!("--listen=[::]:{}", address.port())]);
    server
        .serve("/apis/apps/v1/deployments", list(&[deployment("kstatd", "corp/kstatd:1", &args)]));
    let namespaced = "/apis/apps/v1/namespaces/monitoring/deployments";
    server.serve(namespaced, list(&[deployment("kstatd", "corp/kstatd:1", &args)]));
    server.serve("/apis/apps/v1/statefulsets", list(&[]));
    server.serve("/apis/apps/v1/daemonsets", list(&[]));
    server.serve("/api/v1/namespaces/monitoring/pods", list(&[pod("kstatd-5d4-x", &args)]));
    server.serve("/api/v1/namespaces/monitoring/pods/kstatd-5d4-x", pod("kstatd-5d4-x", &args));
    server.forward(
        &format!("/api/v1/namespaces/monitoring/pods/kstatd-5d4-x:{}/proxy", address.port()),
        address,
    );
    (program, server)
}

/// Runs the plugin with a kubeconfig for this server.
fn plugin(server: &ApiServer, args: &[&str]) -> Output {
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    run("kubectl-kstatd", [args, &[&kubeconfig]].concat())
}

#[test]
fn every_command_reaches_the_only_pod() {
    let (_program, server) = installed();
    let status = plugin(&server, &["status"]);
    assert_eq!(status.status.code(), Some(0), "{status:?}");
    assert!(status.stdout.starts_with("OK"), "{status:?}");
    // Three lists of workloads, one of pods, and the request itself under both names of its path.
    assert_eq!(server.requests().len(), 6, "{:?}", server.requests());
    let json: Value =
        serde_json::from_str(&plugin(&server, &["status", "-o", "json"]).stdout).expect("JSON");
    assert_eq!(json["program"]["name"], "kstatd");
    let top = plugin(&server, &["top", "--once"]);
    assert!(top.status.success() && top.stdout.contains("pod monitoring/kstatd-5d4-x"), "{top:?}");
    let explained = plugin(&server, &["explain", "a.b:1|c"]);
    assert!(explained.status.success() && explained.stdout.contains("a_b"), "{explained:?}");
    let object = plugin(&server, &["explain", "object", "pods", "a/b"]);
    assert_eq!(object.status.code(), Some(1), "{object:?}");
    assert!(object.stderr.contains("pod monitoring/kstatd-5d4-x"), "{object:?}");
    // The same by the names of the pod and of its workload, and under kstatd's own name.
    for args in [
        &["status", "-n", "monitoring", "--target", "kstatd-5d4-x"][..],
        &["status", "--target", "deploy/kstatd"],
        &["status", "--namespace=monitoring", "--target=kstatd"],
    ] {
        let output = plugin(&server, args);
        assert!(output.stdout.starts_with("OK"), "{args:?}: {output:?}");
    }
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    assert!(run("kstatd", ["status", &kubeconfig]).stdout.starts_with("OK"));
    assert!(run("kubectl_kstatd", ["status", &kubeconfig]).stdout.starts_with("OK"));
}

/// Pods that have ended, or that another workload owns, may have the labels of the selector.
#[test]
fn other_pods_with_the_labels_are_not_asked() {
    let (_program, server) = installed();
    let pods = "/api/v1/namespaces/monitoring/pods";
    let args = json!([]);
    let owned = |name: &str, kind: &str, owner: &str| {
        let mut pod = pod(name, &args);
        pod["metadata"]["ownerReferences"] =
            json!([{"controller": true, "kind": kind, "name": owner}]);
        pod
    };
    let mut evicted = owned("kstatd-5d4-y", "ReplicaSet", "kstatd-5d4");
    evicted["status"]["phase"] = json!("Failed");
    let own = owned("kstatd-5d4-x", "ReplicaSet", "kstatd-5d4");
    let of_node = owned("kstatd-node-z", "DaemonSet", "kstatd-node");
    let of_other = owned("kstatd-b-5d4-x", "ReplicaSet", "kstatd-b-5d4");
    server.serve(pods, list(&[own, evicted, of_node, of_other]));
    let status = plugin(&server, &["status", "--target", "deploy/kstatd"]);
    assert!(status.stdout.starts_with("OK"), "{status:?}");
    let check = plugin(&server, &["check"]);
    let names: Vec<&str> = ["kstatd-5d4-x", "kstatd-5d4-y", "kstatd-node-z", "kstatd-b-5d4-x"]
        .into_iter()
        .filter(|name| check.stdout.contains(&format!("pod {name}: ")))
        .collect();
    assert_eq!(names, ["kstatd-5d4-x"], "{check:?}");
}

#[test]
fn what_is_missing_is_named() {
    let (_program, server) = installed();
    let failed = |args: &[&str], parts: &[&str]| {
        let output = plugin(&server, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(parts.iter().all(|part| output.stderr.contains(part)), "{args:?}: {output:?}");
    };
    failed(&["status", "--target", "absent"], &["no pod or workload named absent", "-n NAMESPACE"]);
    failed(&["status", "--target", "cronjob/x"], &["the kind must be deployment"]);
    failed(&["status", "--target", "deploy/x%2f"], &["x%2f"]);
    let proxied = server.paths().into_iter().find(|path| path.contains("/proxy"));
    let proxied = proxied.expect("the path of the proxy");
    server.serve(
        &proxied,
        forbidden(
            "pods \"kstatd-5d4-x\" is forbidden: User \"u\" cannot get resource \"pods/proxy\"",
        ),
    );
    failed(&["status"], &["the verb get on the resource pods/proxy", "User \"u\""]);
    failed(&["top", "--once"], &["pods/proxy"]);
    server.serve(
        "/api/v1/namespaces/monitoring/pods",
        list(&[pod("a", &json!([])), pod("b", &json!([]))]),
    );
    failed(&["status"], &["several pods", "-n monitoring --target", "a, b"]);
    server.serve("/api/v1/namespaces/monitoring/pods", list(&[]));
    failed(&["status"], &["Deployment monitoring/kstatd has no running pod"]);
    let two =
        [deployment("one", "kstatd:1", &json!([])), deployment("two", "kstatd:1", &json!([]))];
    server.serve("/apis/apps/v1/deployments", list(&two));
    failed(
        &["status"],
        &["several workloads", "Deployment monitoring/one, Deployment monitoring/two"],
    );
    server.serve("/apis/apps/v1/deployments", list(&[deployment("x", "nginx:1", &json!([]))]));
    failed(&["status"], &["no pod or workload that runs kstatd's image"]);
    server.serve(
        "/apis/apps/v1/deployments",
        forbidden("deployments.apps is forbidden: cannot list"),
    );
    failed(&["status"], &["no pod found", "deployments.apps is forbidden"]);
    let conflict = plugin(&server, &["status", "--addr=h:1"]);
    assert!(
        !conflict.status.success() && conflict.stderr.contains("cannot be used with"),
        "{conflict:?}"
    );
}

#[test]
fn it_only_asks() {
    for args in [&[][..], &["run"], &["demo"], &["kube-state-metrics"]] {
        let output = command("kubectl-kstatd", args).output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("kubectl kstatd"), "{args:?}: {text}");
    }
    let output = run("kubectl-kstatd", ["explain", "a:1|c", "--statsd.mapping-config=x"]);
    assert!(!output.status.success(), "{output:?}");
}
