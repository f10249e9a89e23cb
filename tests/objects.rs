//! `kstatd explain object`, `/api/v1/explain/object`: why an object has its series, or none.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::{Output, Program, get, request, run, until};
use serde_json::Value;

struct Kstatd {
    _program: Program,
    main: SocketAddr,
}

impl Kstatd {
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        let own = [
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=",
            "--statsd.listen-tcp=",
            &cluster.flag(),
        ];
        let program = Program::start("kstatd", [&own[..], flags].concat());
        let main = program.address(&["Started metrics server"], "address");
        Self { _program: program, main }
    }

    fn ready(self) -> Self {
        until("the lists", || (get(self.main, "/readyz").status == 200).then_some(()));
        self
    }

    fn explain(&self, resource: &str, object: &str) -> Output {
        run("kstatd", ["explain", "object", resource, object, &format!("--addr={}", self.main)])
    }

    /// Asserts that there are no series, for this reason.
    fn has_none(&self, resource: &str, object: &str, reason: &str) {
        let output = self.explain(resource, object);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            output.stdout.starts_with(&format!("{resource} {object}: no series\n")),
            "{output:?}"
        );
        let failed = output.stdout.lines().filter(|line| line.trim_start().starts_with('×'));
        let failed: Vec<_> = failed.collect();
        assert!(failed.len() == 1 && failed[0].contains(reason), "{reason}: {output:?}");
    }
}

/// Returns the namespaces and names of pods with series.
fn pods(main: SocketAddr) -> Vec<String> {
    let text = get(main, "/metrics").text();
    let lines = text.lines().filter(|line| line.starts_with("kube_pod_info{"));
    let label = |line: &str, name: &str| -> String {
        let (_, rest) = line.split_once(&format!("{name}=\"")).expect(name);
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    lines.map(|line| format!("{}/{}", label(line, "namespace"), label(line, "pod"))).collect()
}

#[test]
fn an_object_with_series() {
    let cluster = Cluster::new(20);
    let denied = "--metric-denylist=kube_pod_info_nothing,kube_pod_owner";
    let kstatd = Kstatd::start(&cluster, &["--resources=pods", denied]).ready();
    let pod = pods(kstatd.main).pop().expect("a pod");
    let output = kstatd.explain("pods", &pod);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // The number is that of the exposition.
    let (namespace, name) = pod.split_once('/').expect("a namespace");
    let labels = format!("{{namespace=\"{namespace}\",pod=\"{name}\"");
    let text = get(kstatd.main, "/metrics").text();
    let own = text.lines().filter(|line| line.starts_with("kube_") && line.contains(&labels));
    let series = own.count();
    assert!(output.stdout.starts_with(&format!("pods {pod}: {series} series\n")), "{output:?}");
    for part in ["√ kind: pods is watched", "√ namespace: ", "√ API server: ", "kube_pod_info: 1\n"]
    {
        assert!(output.stdout.contains(part), "{part}: {output:?}");
    }
    let (_, disabled) = output.stdout.split_once("disabled by ").expect("disabled metrics");
    assert!(disabled.contains("    kube_pod_owner\n"), "{output:?}");

    let addr = format!("--addr={}", kstatd.main);
    let output = run("kstatd", ["explain", "object", "Pod", &pod, &addr, "-o", "json"]);
    let told: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(told["series"], series);
    let families = told["families"].as_array().expect("families").iter();
    assert_eq!(families.map(|of| of["series"].as_u64().unwrap_or(0)).sum::<u64>(), series as u64);
    assert!(told["checks"].as_array().is_some_and(|checks| checks.len() >= 4), "{told}");
}

#[test]
fn an_object_without_series_has_one_reason() {
    let cluster = Cluster::new(60);
    let labels = "--metric-labels-allowlist=pods=[app]";
    let all = Kstatd::start(&cluster, &["--resources=pods", labels]).ready();
    let everything = pods(all.main);
    let pod = &everything[0];
    let (namespace, _) = pod.split_once('/').expect("a namespace");
    let other = everything.iter().find(|pod| !pod.starts_with(&format!("{namespace}/")));
    let other = other.expect("another namespace");

    all.has_none("services", "default/a", "kind: services is not watched");
    all.has_none("pods", "a", "are named NAMESPACE/NAME");
    all.has_none("pods", "default/missing", "API server: it has no such object");
    let scoped = Kstatd::start(&cluster, &["--resources=pods", "--namespaces", namespace]).ready();
    scoped.has_none("pods", other, "is not one of --namespaces: ");
    let denying = ["--resources=pods", "--namespaces-denylist", namespace];
    let denying = Kstatd::start(&cluster, &denying).ready();
    denying.has_none("pods", pod, "is in --namespaces-denylist");
    let elsewhere = Kstatd::start(&cluster, &["--resources=pods", "--node=elsewhere"]).ready();
    elsewhere.has_none("pods", pod, "selector: spec.nodeName=elsewhere excludes it");
    let app = pod.split_once('/').map(|(_, name)| name).expect("a name");
    let text = get(all.main, "/metrics").text();
    let line = text.lines().find(|line| {
        line.starts_with("kube_pod_labels{") && line.contains(&format!("pod=\"{app}\""))
    });
    let (_, app) = line.and_then(|line| line.split_once("label_app=\"")).expect("a label");
    let app = app.split('"').next().expect("a value");
    let unselected =
        Kstatd::start(&cluster, &["--resources=pods", &format!("--selector=pods=app!={app}")]);
    unselected.ready().has_none(
        "pods",
        pod,
        &format!("selector: app!={app} excludes it (--selector)"),
    );
    let phase = "--field-selector=pods=status.phase=None";
    let unselected = Kstatd::start(&cluster, &["--resources=pods", phase]).ready();
    unselected.has_none("pods", pod, "status.phase=None excludes it");
    let limited =
        Kstatd::start(&cluster, &["--resources=pods", "--limit.series-per-kind=50"]).ready();
    let kept = pods(limited.main);
    let rejected = everything.iter().find(|pod| !kept.contains(pod)).expect("a rejected pod");
    limited.has_none("pods", rejected, "budgets: a limit leaves it without series");
    let few = Kstatd::start(&cluster, &["--resources=pods", "--object-limit=5"]).ready();
    let kept = pods(few.main);
    let rejected = everything.iter().find(|pod| !kept.contains(pod)).expect("a rejected pod");
    few.has_none("pods", rejected, "--object-limit is 5");

    let shard =
        Kstatd::start(&cluster, &["--resources=pods", "--total-shards=2", "--shard=1"]).ready();
    let kept = pods(shard.main);
    let foreign = everything.iter().find(|pod| !kept.contains(pod)).expect("a pod of shard 0");
    shard.has_none("pods", foreign, "shard: it belongs to shard 0 of 2, and this is shard 1");
    assert!(
        shard
            .explain("pods", &kept[0])
            .stdout
            .contains("√ shard: it belongs to this shard, 1 of 2")
    );
}

#[test]
fn a_denied_kind_and_a_silent_server() {
    let cluster = Cluster::new(20);
    cluster.double.refuse("pods", Some(403));
    let kstatd = Kstatd::start(&cluster, &["--resources=pods"]);
    let output = until("the refusal", || {
        let output = kstatd.explain("pods", "default/a");
        output.stdout.contains("403").then_some(output)
    });
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("× list/watch: "), "{output:?}");
    assert!(output.stdout.contains("? API server: cannot be asked: "), "{output:?}");
}

/// Each question costs requests to the API server, and anybody may ask.
#[test]
fn questions_load_the_api_server_little() {
    let cluster = Cluster::new(5);
    let kstatd = Kstatd::start(&cluster, &["--resources=pods"]).ready();
    let start = Instant::now();
    for number in 0..14 {
        let path = format!("/api/v1/explain/object?resource=pods&namespace=a&name=p{number}");
        assert_eq!(get(kstatd.main, &path).status, 200);
    }
    // Ten at once, and then two a second.
    assert!(start.elapsed() >= Duration::from_millis(1_900), "{:?}", start.elapsed());
}

#[test]
fn questions_are_checked_and_answers_escaped() {
    let cluster = Cluster::new(5);
    let kstatd = Kstatd::start(&cluster, &["--resources=pods"]).ready();
    let path = "/api/v1/explain/object?format=json";
    for (query, part) in [
        ("", "must be given"),
        ("&resource=pods", "must be given"),
        ("&resource=pods&namespace=a/b&name=c", "namespace=\\\"a/b\\\""),
        ("&resource=pods&namespace=..&name=c", "namespace=\\\"..\\\""),
        ("&resource=pods&namespace=a&name=c%1b%5b2J", "u{1b}[2J"),
        ("&resource=%3Cscript%3E&name=c", "resource="),
    ] {
        let answer = get(kstatd.main, &format!("{path}{query}"));
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
        assert!(answer.text().contains(part), "{query}: {}", answer.text());
    }
    assert_eq!(get(kstatd.main, "/api/v1/explain/object?resource=p&name=a&format=xml").status, 400);
    let post = request(kstatd.main, "POST", "/api/v1/explain/object?resource=pods&name=a", &[]);
    assert_eq!(post.expect("an answer").status, 404);

    // Under the name of the original it is below /kstatd; access is that of the metrics.
    let flags =
        ["--host=127.0.0.1", "--port=0", "--telemetry-host=127.0.0.1", "--telemetry-port=0"];
    let program = Program::start(
        "kube-state-metrics",
        [&flags[..], &["--auth-filter", "--resources=pods", &cluster.flag()]].concat(),
    );
    let main = program.address(&["Started metrics server"], "address");
    let query = "api/v1/explain/object?resource=pods&namespace=a&name=b";
    assert_eq!(get(main, &format!("/kstatd/{query}")).status, 401);
    let program = Program::start(
        "kube-state-metrics",
        [&flags[..], &["--resources=pods", &cluster.flag()]].concat(),
    );
    let main = program.address(&["Started metrics server"], "address");
    let output = run("kstatd", ["explain", "object", "pods", "a/b", &format!("--addr={main}")]);
    assert!(output.stdout.starts_with("pods a/b: no series\n"), "{output:?}");
    assert_eq!(get(main, &format!("/{query}")).status, 404);
}
