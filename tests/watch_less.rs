//! Watching less: selectors of kinds at the API server, completed pods without series, and states without samples that are 0.

mod common;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::SocketAddr;

use common::cluster::Cluster;
use common::{Gate, Passage, Program, get, replace, request, run, until, valid_text};
use support::exposition::{any_protobuf_samples, text_samples};

/// A program with the addresses of its ports.
struct Running {
    _program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Running {
    /// Starts `kstatd run`.
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        let here = [
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=",
            "--statsd.listen-tcp=",
            "--gate-metrics-until-synced=false",
        ];
        Self::named("kstatd", &here, cluster, flags)
    }

    /// Starts the program under the name of the original.
    fn original(cluster: &Cluster, flags: &[&str]) -> Self {
        let here =
            ["--host=127.0.0.1", "--port=0", "--telemetry-host=127.0.0.1", "--telemetry-port=0"];
        Self::named("kube-state-metrics", &here, cluster, flags)
    }

    fn named(name: &str, here: &[&str], cluster: &Cluster, flags: &[&str]) -> Self {
        let program = Program::start(name, [here, &[&cluster.flag()], flags].concat());
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { _program: program, main, telemetry }
    }

    fn ready(self) -> Self {
        until("the first lists", || {
            get(self.telemetry, "/metrics").text().contains("\nkstatd_ready 1\n").then_some(())
        });
        self
    }

    fn lines(&self, path: &str) -> BTreeSet<String> {
        let text = get(self.main, path).text();
        valid_text(&text);
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    /// Returns an own metric, summed over its labels.
    fn own(&self, name: &str) -> f64 {
        let text = get(self.telemetry, "/metrics").text();
        let of = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        of.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }
}

fn label<'l>(line: &'l str, name: &str) -> &'l str {
    let (_, rest) = line.split_once(&format!("{name}=\"")).expect(name);
    rest.split('"').next().unwrap_or_default()
}

/// Returns the values of a label of a family.
fn values(lines: &BTreeSet<String>, family: &str, name: &str) -> BTreeSet<String> {
    let of = lines.iter().filter(|line| line.starts_with(&format!("{family}{{")));
    of.map(|line| label(line, name).to_owned()).collect()
}

/// The server selects pods by their labels and fields, under both names of the program, in shards and over expired watches
/// while the cluster changes. In the end the series are those of a program without selectors, as far as they are selected.
#[test]
fn selected_objects_have_the_same_series() {
    let cluster = Cluster::new(200);
    let resources = "--resources=pods";
    let labels = "--metric-labels-allowlist=pods=[app]";
    let whole = Running::original(&cluster, &[resources, labels]).ready();
    let all = whole.lines("/metrics");
    let app = values(&all, "kube_pod_labels", "label_app").pop_first().expect("an app");
    let (label_flag, field_flag) =
        (format!("--selector=pods=app!={app}"), "--field-selector=pods=status.phase!=Succeeded");
    let flags = [resources, labels, &label_flag, field_flag, "--metric-denylist=^kstatd_"];
    let selected = Running::start(&cluster, &flags).ready();
    let original = Running::original(&cluster, &flags).ready();
    let shards = [0, 1].map(|shard| {
        let shard = format!("--shard={shard}");
        Running::original(&cluster, &[&flags[..], &["--total-shards=2", &shard]].concat()).ready()
    });
    cluster.double.set_events_per_second(200.0);
    let before = cluster.double.changes();
    until("changes", || (cluster.double.changes() > before + 150).then_some(()));
    cluster.double.forget_history();
    until("changes", || (cluster.double.changes() > before + 300).then_some(()));
    cluster.double.set_events_per_second(0.0);
    let wanted = || {
        let all = whole.lines("/metrics");
        let of_app = all.iter().filter(|line| line.contains(&format!("label_app=\"{app}\"")));
        let succeeded = all.iter().filter(|line| {
            line.starts_with("kube_pod_status_phase{") && line.ends_with("phase=\"Succeeded\"} 1")
        });
        let out: BTreeSet<&str> = of_app.chain(succeeded).map(|line| label(line, "uid")).collect();
        let is_in = |line: &&String| !out.contains(label(line, "uid"));
        let lines: BTreeSet<String> = all.iter().filter(is_in).cloned().collect();
        assert!(lines.len() > 1_000 && lines.len() < all.len());
        lines
    };
    until("the same series", || {
        let wanted = wanted();
        let both = shards.iter().flat_map(|shard| shard.lines("/metrics")).collect();
        (selected.lines("/metrics") == wanted
            && original.lines("/metrics") == wanted
            && wanted == both)
            .then_some(())
    });
    let status = get(selected.main, "/status?format=text").text();
    let said = format!(
        "pods as selected by --field-selector pods=status.phase!=Succeeded --selector pods=app!={app}"
    );
    assert!(status.contains(&said), "{status}");
}

/// Invalid selectors are refused at startup, with their place.
#[test]
fn invalid_selectors_are_refused() {
    for (flag, error) in [
        (
            "--selector=pods=app=a b",
            "selector of pods, column 5: \"a b\" is not the value of a label",
        ),
        ("--selector=pods", "\"pods\" must be RESOURCE=SELECTOR"),
        ("--field-selector=pods=status.phase", "column 1: \"status.phase\" must be FIELD=VALUE"),
        ("--selector=pod=a=b", "resource pod does not exist"),
    ] {
        for (name, command) in [("kstatd", &["run"][..]), ("kube-state-metrics", &[])] {
            let output = run(name, [command, &[flag, "--apiserver=http://127.0.0.1:1"]].concat());
            assert!(!output.status.success(), "{flag}");
            assert!(output.stderr.contains(error), "{flag}: {output:?}");
        }
    }
}

/// A field that the server does not select by costs its kind only, and few requests; the status names the flag.
#[test]
fn a_rejected_field_costs_its_kind_only() {
    let cluster = Cluster::new(50);
    let flag = "--field-selector=pods=spec.schedulerName=a";
    let program =
        Running::start(&cluster, &["--resources=pods,nodes", flag, "--metric-denylist=^kstatd_"]);
    until("the nodes", || {
        (!values(&program.lines("/metrics"), "kube_node_info", "node").is_empty()).then_some(())
    });
    let started = std::time::Instant::now();
    let status = until("the reason", || {
        let status = get(program.main, "/status?format=text").text();
        status.contains("400").then_some(status)
    });
    assert!(status.contains("with --field-selector pods=spec.schedulerName=a"), "{status}");
    until("several attempts", || {
        (program.own("kstatd_kubernetes_errors_total") >= 3.0).then_some(())
    });
    let bound = 6.0 + started.elapsed().as_secs_f64();
    assert!(program.own("kstatd_kubernetes_errors_total") <= bound);
}

/// Pods that have completed long ago have no series, but count in totals. Their memory is released, and the reason is named.
#[test]
fn completed_pods_leave_their_series() {
    let cluster = Cluster::new(300);
    cluster.double.set_events_per_second(200.0);
    let before = cluster.double.changes();
    until("changes", || (cluster.double.changes() > before + 300).then_some(()));
    cluster.double.set_events_per_second(0.0);
    let resources = "--resources=pods,replicasets,jobs";
    let whole = Running::start(&cluster, &[resources]).ready();
    let all = whole.lines("/metrics");
    let is_done = |line: &&String| {
        line.starts_with("kube_pod_status_phase{")
            && ["Succeeded", "Failed"]
                .iter()
                .any(|phase| line.ends_with(&format!("phase=\"{phase}\"}} 1")))
    };
    let done: BTreeSet<&str> = all.iter().filter(is_done).map(|line| label(line, "uid")).collect();
    assert!(!done.is_empty());
    let rest = |line: &&String| !done.iter().any(|uid| line.contains(uid));
    let flags = [resources, "--drop-completed-pods-after=1ms"];
    let less = Running::start(&cluster, &flags).ready();
    let wanted: BTreeSet<String> = all.iter().filter(rest).cloned().collect();
    // The clock of the cluster may be a little ahead.
    until("the other pods", || (less.lines("/metrics") == wanted).then_some(()));
    assert!(wanted.iter().any(|line| line.starts_with("kstatd_workload_pods{")));
    assert!(less.own("kstatd_kubernetes_bytes") < whole.own("kstatd_kubernetes_bytes"));
    let line = all
        .iter()
        .find(|line| line.starts_with("kube_pod_info{") && done.contains(label(line, "uid")));
    let line = line.expect("a completed pod");
    let pod = format!("{}/{}", label(line, "namespace"), label(line, "pod"));
    let said = run("kstatd", ["explain", "object", "pods", &pod, &format!("--addr={}", less.main)]);
    assert!(said.stdout.contains("(--drop-completed-pods-after)"), "{said:?}");
    // Pods that complete and change while they are watched, also over a relist.
    cluster.double.set_events_per_second(300.0);
    let before = cluster.double.changes();
    until("changes", || (cluster.double.changes() > before + 200).then_some(()));
    cluster.double.forget_history();
    until("changes", || (cluster.double.changes() > before + 400).then_some(()));
    cluster.double.set_events_per_second(0.0);
    let totals = |running: &Running| -> BTreeSet<String> {
        let lines = running.lines("/metrics").into_iter();
        lines.filter(|line| line.starts_with("kstatd_namespace_")).collect()
    };
    until("the same totals, and no completed pod", || {
        let lines = less.lines("/metrics");
        (totals(&less) == totals(&whole) && !lines.iter().any(|line| is_done(&line))).then_some(())
    });
    let original = Running::original(&cluster, &["--resources=pods", flags[1]]).ready();
    assert!(!original.lines("/metrics").iter().any(|line| is_done(&line)));
    let long =
        Running::original(&cluster, &["--resources=pods", "--drop-completed-pods-after=100000h"])
            .ready();
    assert!(long.lines("/metrics").iter().any(|line| is_done(&line)));
}

/// Flags that decide which objects are watched, and which series and labels they have.
const FLAGS: [&[&str]; 6] = [
    &["--selector=pods=app!=none"],
    &["--field-selector=pods=status.phase=Running"],
    &["--drop-completed-pods-after=1ms"],
    &["--skip-zero-states"],
    &["--pod-workload-labels=workload,workload_type,labels=[app],pod_labels=[*]"],
    &["--kubernetes-events"],
];

/// Each flag together with a reload of the options file, gzip and a budget: after the reload the series are those of a process
/// that was started with the new file, the compressed body is that of the text, and a budget admits whole objects.
#[test]
fn flags_with_reloads_gzip_and_budgets() {
    let cluster = Cluster::new(100);
    let (old, new) =
        ("metric_denylist: {kube_pod_info: {}}\n", "metric_denylist: {kube_pod_created: {}}\n");
    let dir = tempfile::tempdir().expect("directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        replace(&path, text);
        (format!("--config={}", path.display()), path)
    };
    for flags in FLAGS {
        let start = |config: &str, more: &[&str]| {
            let flags = [
                &[
                    "--resources=pods,deployments,replicasets,jobs",
                    "--enable-gzip-encoding",
                    config,
                ],
                flags,
                more,
            ];
            Running::start(&cluster, &flags.concat()).ready()
        };
        let (config, path) = file("changed.yaml", old);
        let (program, fresh) = (start(&config, &[]), start(&file("new.yaml", new).0, &[]));
        let is_pod = |line: &&String| line.starts_with("kube_pod_");
        let before = program.lines("/metrics");
        assert!(values(&before, "kube_pod_info", "uid").is_empty(), "{flags:?}");
        replace(&path, new);
        until("the new file is in force", || {
            (program.lines("/metrics") == fresh.lines("/metrics")).then_some(())
        });
        let all = program.lines("/metrics");
        assert!(all.iter().filter(is_pod).count() > 500, "{flags:?}");
        let answer = request(program.main, "GET", "/metrics", &[("Accept-Encoding", "gzip")]);
        let mut text = String::new();
        let body = answer.expect("answer").body;
        flate2::read::GzDecoder::new(&body[..])
            .read_to_string(&mut text)
            .expect("one valid member");
        assert_eq!(text, get(program.main, "/metrics").text(), "{flags:?}");
        let bound = start(&file("bound.yaml", new).0, &["--limit.series-per-kind=1000"]);
        let bound: BTreeSet<String> =
            bound.lines("/metrics").into_iter().filter(|line| is_pod(&line)).collect();
        assert!((500..=1_000).contains(&bound.len()), "{flags:?}: {}", bound.len());
        let uids = values(&bound, "kube_pod_info", "uid");
        let of_these = |line: &&String| is_pod(line) && uids.contains(label(line, "uid"));
        assert_eq!(bound, all.iter().filter(of_these).cloned().collect(), "{flags:?}");
    }
}

/// Each flag together with a shard that changes, watches and objects that expire, and protobuf: the shards have the series of an
/// unsharded process; what may not be listed any more is dropped, and comes back; protobuf has the samples of the text.
#[test]
fn flags_with_shards_expiry_and_protobuf() {
    std::thread::scope(|scope| {
        for flags in FLAGS {
            scope.spawn(move || check_shards_expiry_and_protobuf(flags));
        }
    });
}

fn check_shards_expiry_and_protobuf(flags: &[&str]) {
    const PROTOBUF: &str = "application/vnd.google.protobuf; \
        proto=io.prometheus.client.MetricFamily; encoding=delimited";
    let cluster = Cluster::new(100);
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("shard.yaml");
    let share = |shards: u32| replace(&file, &format!("shard: 0\ntotal_shards: {shards}\n"));
    share(1);
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let cut = || [Passage::Cut, Passage::Open].map(|passage| gate.set(passage));
    let start = |more: &[&str]| {
        let resources = ["--resources=pods,deployments,replicasets,jobs"];
        Running::start(&cluster, &[&resources[..], flags, more].concat()).ready()
    };
    let config = format!("--config={}", file.display());
    let server = format!("--apiserver=http://{}", gate.address());
    let program = start(&[&config, "--staleness-limit=1s", &server]);
    let (whole, other) = (start(&[]), start(&["--shard=1", "--total-shards=2"]));
    // Counters of events begin with the process, and again with each change of the shard.
    let lines = |all: &[&Running]| -> Vec<String> {
        let lines = all.iter().flat_map(|running| running.lines("/metrics"));
        let is_counter = |line: &String| line.starts_with("kstatd_") && line.contains("_total{");
        let mut lines: Vec<String> = lines.filter(|line| !is_counter(line)).collect();
        lines.sort();
        lines
    };
    for (shards, parts) in [(2, &[&program, &other][..]), (1, &[&program])] {
        cluster.double.set_events_per_second(300.0);
        share(shards);
        for _ in 0..2 {
            let before = cluster.double.changes();
            until("changes", || (cluster.double.changes() > before + 60).then_some(()));
            cluster.double.forget_history();
            cut();
        }
        cluster.double.set_events_per_second(0.0);
        until("the series of all shards", || (lines(parts) == lines(&[&whole])).then_some(()));
    }
    let body = |accept| {
        request(program.main, "GET", "/metrics", &[("Accept", accept)]).expect("answer").body
    };
    let text = String::from_utf8(body("text/plain")).expect("text");
    let samples = text_samples(&text).expect("valid");
    assert!(any_protobuf_samples(&body(PROTOBUF)) == samples, "{flags:?}");
    cluster.double.refuse("pods", Some(403));
    cut();
    until("no pods", || {
        let all = program.lines("/metrics");
        (!all.iter().any(|line| line.starts_with("kube_pod_"))).then_some(())
    });
    cluster.double.refuse("pods", None);
    until("the pods", || (lines(&[&program]) == lines(&[&whole])).then_some(()));
}

/// The families with states that do not apply, which docs/watching-less.md lists.
const STATES: [&str; 15] = [
    "kube_deployment_status_condition",
    "kube_horizontalpodautoscaler_status_condition",
    "kube_job_complete",
    "kube_job_failed",
    "kube_job_status_failed",
    "kube_namespace_status_condition",
    "kube_namespace_status_phase",
    "kube_node_status_condition",
    "kube_persistentvolume_status_phase",
    "kube_persistentvolumeclaim_status_condition",
    "kube_persistentvolumeclaim_status_phase",
    "kube_pod_status_phase",
    "kube_pod_status_qos_class",
    "kube_pod_status_ready",
    "kube_pod_status_scheduled",
];

/// Only families of states lose samples, and only those that are 0. The response is smaller.
#[test]
fn states_without_zeros() {
    let cluster = Cluster::new(300);
    let whole = Running::original(&cluster, &[]).ready();
    let less = Running::original(&cluster, &["--skip-zero-states"]).ready();
    let page = std::fs::read_to_string("docs/watching-less.md").expect("the page");
    for family in STATES {
        assert!(page.contains(&format!("`{family}`")), "{family}");
    }
    let (all, some) = (whole.lines("/metrics"), less.lines("/metrics"));
    assert!(some.is_subset(&all));
    let mut omitted: BTreeMap<&str, usize> = BTreeMap::new();
    for line in all.difference(&some) {
        assert!(line.ends_with(" 0"), "{line}");
        *omitted.entry(line.split('{').next().unwrap_or_default()).or_default() += 1;
    }
    for family in omitted.keys() {
        assert!(STATES.contains(family), "{family}");
    }
    for family in ["kube_pod_status_phase", "kube_pod_status_ready", "kube_node_status_condition"] {
        assert!(omitted.contains_key(family), "{omitted:?}");
        // Every other sample is left.
        assert!(
            some.iter()
                .filter(|line| line.starts_with(&format!("{family}{{")))
                .all(|line| line.ends_with(" 1"))
        );
    }
    let size = |running: &Running| get(running.main, "/metrics").text().len() as f64;
    let ratio = size(&less) / size(&whole);
    println!("{ratio:.3} of the text");
    assert!(ratio < 0.9, "{ratio}");
    let shards: BTreeSet<String> = (0..3)
        .flat_map(|shard| less.lines(&format!("/metrics?shard={shard}&total_shards=3")))
        .collect();
    assert_eq!(shards, some);
}
