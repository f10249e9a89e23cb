//! Workloads of pods and totals over them: through the program, over a cluster that changes, in shards and with refused
//! kinds.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use common::cluster::Cluster;
use common::{Program, get, replace, run, until, valid_text};

const HERE: [&str; 4] = [
    "--listen=127.0.0.1:0",
    "--telemetry-listen=127.0.0.1:0",
    "--statsd.listen-udp=",
    "--statsd.listen-tcp=",
];

/// A program with the addresses of its ports.
struct Running {
    _program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Running {
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        let running = Self::unready(cluster, flags);
        until("the first lists", || {
            get(running.telemetry, "/metrics").text().contains("\nkstatd_ready 1\n").then_some(())
        });
        running
    }

    fn unready(cluster: &Cluster, flags: &[&str]) -> Self {
        Self::named("kstatd", [&HERE[..], flags, &[&cluster.flag()]].concat())
    }

    /// Starts the program under the name of the original.
    fn original(cluster: &Cluster, flags: &[&str]) -> Self {
        let here =
            ["--host=127.0.0.1", "--port=0", "--telemetry-host=127.0.0.1", "--telemetry-port=0"];
        Self::named("kube-state-metrics", [&here, flags, &[&cluster.flag()]].concat())
    }

    fn named(name: &str, flags: Vec<&str>) -> Self {
        let program = Program::start(name, flags);
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { _program: program, main, telemetry }
    }

    fn series(&self, path: &str) -> Vec<Series> {
        let text = get(self.main, path).text();
        valid_text(&text);
        text.lines().filter(|line| !line.starts_with('#')).map(series).collect()
    }
}

/// A line of the exposition.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Series {
    fn pick(&self, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| self.labels.get(*name).cloned().unwrap_or_default()).collect()
    }
}

fn series(line: &str) -> Series {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
    let labels = rest.trim_end_matches('}').split("\",").filter_map(|label| {
        let (name, value) = label.split_once("=\"")?;
        Some((name.to_owned(), value.trim_end_matches('"').to_owned()))
    });
    let value = value.parse().expect("a number");
    Series { name: name.to_owned(), labels: labels.collect(), value }
}

/// Returns the sums of a family by these labels, without sums of 0.
fn sums(all: &[Series], name: &str, by: &[&str]) -> BTreeMap<Vec<String>, f64> {
    let mut sums = BTreeMap::new();
    for series in all.iter().filter(|series| series.name == name) {
        *sums.entry(series.pick(by)).or_insert(0.0) += series.value;
    }
    sums.retain(|_, sum| *sum != 0.0);
    sums
}

fn assert_same(have: &BTreeMap<Vec<String>, f64>, want: &BTreeMap<Vec<String>, f64>, of: &str) {
    assert_eq!(have.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{of}");
    for (key, value) in have {
        let want = want[key];
        assert!((value - want).abs() <= want.abs() * 1e-9, "{of} {key:?}: {value}, not {want}");
    }
}

/// Checks that the totals of a scrape equal the sums over its pods.
fn check_totals(mut all: Vec<Series>) {
    let info = |name: &str| all.iter().filter(|series| series.name == name).cloned().collect();
    let (infos, pods): (Vec<Series>, Vec<Series>) =
        (info("kstatd_pod_workload_info"), info("kube_pod_info"));
    assert_eq!(infos.len(), pods.len());
    let infos: BTreeMap<_, _> =
        infos.into_iter().map(|series| (series.labels["uid"].clone(), series.labels)).collect();
    for pod in &pods {
        let info = &infos[&pod.labels["uid"]];
        for label in ["namespace", "pod", "node"] {
            assert_eq!(pod.labels[label], info[label], "{pod:?}");
        }
    }
    all.retain(|series| {
        series.name != "kube_pod_status_ready" || series.labels["condition"] == "true"
    });
    for series in &mut all {
        if let Some(info) = series.labels.get("uid").and_then(|uid| infos.get(uid)) {
            series.labels.extend(info.clone());
        }
    }
    for (subject, by) in [
        ("workload", &["namespace", "workload", "workload_type"][..]),
        ("namespace", &["namespace"]),
        ("kube_node", &["node"]),
    ] {
        for (from, to, own) in [
            ("kube_pod_status_phase", "pods", &["phase"][..]),
            ("kube_pod_status_ready", "pods_ready", &[]),
            ("kube_pod_container_resource_requests", "resource_requests", &["resource", "unit"]),
            ("kube_pod_container_resource_limits", "resource_limits", &["resource", "unit"]),
        ] {
            let (to, by) = (format!("kstatd_{subject}_{to}"), [by, own].concat());
            let mut want = sums(&all, from, &by);
            if subject == "kube_node" {
                want.retain(|key, _| !key[0].is_empty());
            }
            let have = sums(&all, &to, &by);
            assert!(!have.is_empty(), "{to}");
            assert_same(&have, &want, &to);
        }
    }
}

/// Returns the number of series by family of workloads.
fn own(all: &[Series]) -> BTreeMap<&str, usize> {
    let mut own = BTreeMap::new();
    for series in all.iter().filter(|series| series.name.starts_with("kstatd_")) {
        *own.entry(series.name.as_str()).or_default() += 1;
    }
    own
}

/// In every scrape of a cluster that changes quickly, also over expired watches, totals equal the sums over pods.
#[test]
fn totals_equal_sums_in_every_scrape() {
    let cluster = Cluster::new(300);
    let program = Running::start(&cluster, &[]);
    cluster.double.set_events_per_second(300.0);
    for round in 0..25 {
        if round % 8 == 3 {
            cluster.double.forget_history();
        }
        let before = cluster.double.changes();
        check_totals(program.series("/metrics"));
        until("changes", || (cluster.double.changes() > before + 20).then_some(()));
    }
    cluster.double.set_events_per_second(0.0);
    let all = program.series("/metrics");
    let types: BTreeSet<_> = all
        .iter()
        .filter(|series| series.name == "kstatd_pod_workload_info")
        .map(|series| series.labels["workload_type"].clone())
        .collect();
    assert!(types.contains("deployment") && types.contains("statefulset"), "{types:?}");
    assert!(!types.contains("replicaset"), "{types:?}");
    let desired =
        sums(&all, "kstatd_workload_pods_desired", &["namespace", "workload", "workload_type"]);
    let replicas = sums(&all, "kube_deployment_spec_replicas", &["namespace", "deployment"]);
    for (key, replicas) in replicas {
        let key = vec![key[0].clone(), key[1].clone(), "deployment".to_owned()];
        assert_eq!(desired[&key], replicas, "{key:?}");
    }
}

/// Without any families of pods and their owners, totals are the same.
#[test]
fn totals_need_no_families_of_pods() {
    let cluster = Cluster::new(200);
    let whole = Running::start(&cluster, &[]);
    let flags = [
        "--resources=pods,replicasets,jobs",
        "--metric-denylist=^kube_,^kstatd_pod_workload_info$",
    ];
    let totals = Running::start(&cluster, &flags);
    let (whole, totals) = (whole.series("/metrics"), totals.series("/metrics"));
    assert!(totals.iter().all(|series| series.name.starts_with("kstatd_")), "{:?}", own(&totals));
    let by = ["namespace", "node", "workload", "workload_type", "phase", "resource", "unit"];
    for name in own(&totals).keys() {
        let (have, mut want) = (sums(&totals, name, &by), sums(&whole, name, &by));
        if *name == "kstatd_workload_info" {
            // Workloads without pods are known from their own kinds, which are not watched here.
            want.retain(|key, _| have.contains_key(key));
        }
        assert_same(&have, &want, name);
    }
    assert!(own(&totals).len() > 10);
}

#[test]
fn allow_lists_namespaces_and_names_of_the_program() {
    let cluster = Cluster::new(150);
    let some =
        Running::start(&cluster, &["--metric-allowlist=^kstatd_workload_pods$,^kube_pod_info$"]);
    let all = some.series("/metrics");
    assert_eq!(own(&all).into_keys().collect::<Vec<_>>(), ["kstatd_workload_pods"]);
    let namespace = all[0].labels["namespace"].clone();
    let one = some.series(&format!("/metrics?namespace={namespace}"));
    assert!(own(&one)["kstatd_workload_pods"] > 0);
    assert!(one.iter().all(|series| series.labels["namespace"] == namespace));
    let scoped = Running::start(&cluster, &[&format!("--namespaces={namespace}")[..]]);
    let scoped = scoped.series("/metrics");
    check_totals(scoped.clone());
    let by = ["namespace", "workload", "workload_type", "phase"];
    assert_same(
        &sums(&scoped, "kstatd_workload_pods", &by),
        &sums(&one, "kstatd_workload_pods", &by),
        "kstatd_workload_pods",
    );
    let node = Running::start(&cluster, &["--resources=pods", "--node=none"]);
    assert!(own(&node.series("/metrics")).is_empty());
    let original = |flags: &[&str]| {
        let here =
            ["--host=127.0.0.1", "--port=0", "--telemetry-host=127.0.0.1", "--telemetry-port=0"];
        let server = cluster.flag();
        let program = Program::start("kube-state-metrics", [&here[..], flags, &[&server]].concat());
        let main = program.address(&["Started metrics server"], "address");
        let text = until("the pods", || {
            let text = get(main, "/metrics").text();
            (text.matches("\nkube_pod_info{").count() == 150).then_some(text)
        });
        (program, text)
    };
    assert!(!original(&["--resources=pods"]).1.contains("kstatd_"));
    let opted_in = original(&["--metric-opt-in-list=^kstatd_namespace_pods$"]).1;
    assert!(opted_in.contains("\nkstatd_namespace_pods{"));
    assert!(!opted_in.contains("kstatd_workload"));
}

/// Each row is served by one shard, real or virtual, with the value of the whole.
#[test]
fn shards_divide_rows() {
    let cluster = Cluster::new(200);
    let whole = Running::start(&cluster, &[]);
    let own_lines = |all: Vec<Series>| {
        let mut lines: Vec<String> = all
            .into_iter()
            .filter(|series| series.name.starts_with("kstatd_"))
            .map(|series| format!("{} {:?} {}", series.name, series.labels, series.value))
            .collect();
        lines.sort();
        lines
    };
    let want = own_lines(whole.series("/metrics"));
    let mut real = Vec::new();
    for shard in 0..3 {
        let shard = format!("--shard={shard}");
        let process = Running::start(&cluster, &[&shard, "--total-shards=3"]);
        let part = process.series("/metrics");
        for family in ["kstatd_workload_pods", "kstatd_pod_workload_info"] {
            assert!(own(&part)[family] > 0, "{shard} {family}");
        }
        // The shard of a pod serves its info.
        let uids = |name: &str| -> BTreeSet<String> {
            let named = part.iter().filter(|series| series.name == name);
            named.map(|series| series.labels["uid"].clone()).collect()
        };
        assert_eq!(uids("kstatd_pod_workload_info"), uids("kube_pod_info"));
        real.extend(part);
    }
    assert_eq!(own_lines(real), want);
    let parts =
        (0..3).flat_map(|shard| whole.series(&format!("/metrics?shard={shard}&total_shards=3")));
    assert_eq!(own_lines(parts.collect()), want);
}

/// While ReplicaSets cannot be listed, pods of other workloads are resolved, all pods count for namespaces and nodes, and
/// the status names the kind. The chain is complete as soon as they can be listed.
#[test]
fn a_refused_kind_costs_only_its_pods() {
    let cluster = Cluster::new(200);
    cluster.double.refuse("replicasets", Some(403));
    let program = Running::start(
        &cluster,
        &["--metric-denylist=^kube_replicaset", "--gate-metrics-until-synced=false"],
    );
    let all = program.series("/metrics");
    let infos =
        |all: &[Series]| all.iter().filter(|s| s.name == "kstatd_pod_workload_info").count();
    assert!((1..200).contains(&infos(&all)), "{}", infos(&all));
    assert!(
        all.iter()
            .all(|series| series.labels.get("workload_type").is_none_or(|of| of != "replicaset"))
    );
    assert_same(
        &sums(&all, "kstatd_namespace_pods", &["namespace", "phase"]),
        &sums(&all, "kube_pod_status_phase", &["namespace", "phase"]),
        "kstatd_namespace_pods",
    );
    let status = get(program.main, "/?format=text").text();
    let status = if status.contains("replicasets") {
        status
    } else {
        run("kstatd", ["status", &format!("--addr={}", program.main)]).stdout
    };
    assert!(status.contains("replicasets") && status.contains("403"), "{status}");
    cluster.double.refuse("replicasets", None);
    until("the ReplicaSets", || (infos(&program.series("/metrics")) == 200).then_some(()));
    check_totals(program.series("/metrics"));
}

/// ReplicaSets and jobs are watched for pods even if they are not among the resources, for two list/watches more. Without
/// the right to list them, other pods are resolved, and requests are few.
#[test]
fn links_of_pods_are_watched_by_themselves() {
    let cluster = Cluster::new(200);
    let flags = ["--resources=pods,deployments", "--gate-metrics-until-synced=false"];
    let lists = |running: &Running| -> BTreeMap<Vec<String>, f64> {
        let text = get(running.telemetry, "/metrics").text();
        let all: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).map(series).collect();
        sums(&all, "kube_state_metrics_watch_total", &["resource"])
    };
    let program = Running::start(&cluster, &flags);
    let all = program.series("/metrics");
    let infos = |all: &[Series]| sums(all, "kstatd_pod_workload_info", &["workload_type"]);
    assert!(infos(&all).contains_key(&vec!["deployment".to_owned()]), "{:?}", infos(&all));
    assert!(!infos(&all).contains_key(&vec!["replicaset".to_owned()]));
    assert_eq!(infos(&all).values().sum::<f64>(), 200.0);
    assert!(!all.iter().any(|series| series.name.starts_with("kube_replicaset")));
    assert_eq!(lists(&program).len(), 4, "{:?}", lists(&program));
    let without = [&flags[..], &["--metric-denylist=^kstatd_"]].concat();
    assert_eq!(lists(&Running::start(&cluster, &without)).len(), 2);
    cluster.double.refuse("replicasets", Some(403));
    let refused = Running::start(&cluster, &flags);
    let infos = infos(&refused.series("/metrics"));
    assert!((1.0..200.0).contains(&infos.values().sum::<f64>()), "{infos:?}");
    let status = get(refused.main, "/status?format=text").text();
    assert!(status.contains("replicasets"), "{status}");
    let attempts = lists(&refused).values().sum::<f64>();
    assert!(attempts <= 20.0, "{:?}", lists(&refused));
    cluster.double.refuse("replicasets", None);
    let is_complete = |running: &Running| {
        let all = running.series("/metrics");
        sums(&all, "kstatd_pod_workload_info", &[]).values().sum::<f64>() == 200.0
    };
    until("the ReplicaSets", || is_complete(&refused).then_some(()));
    check_totals(refused.series("/metrics"));
}

/// While a namespace's pods or their owners cannot be listed for new options, what is served of them still counts: in every
/// scrape totals equal the sums over pods, and each series of a pod has its workload. All follow their changes. So it is if
/// the former options had no totals.
#[test]
fn objects_of_refused_namespaces_count_over_a_reload() {
    for (denied, kinds) in [
        ("^kstatd_workload_info$", &["pods"][..]),
        ("^kstatd_workload_info$", &["replicasets"]),
        ("^kstatd_workload_info$", &["pods", "replicasets", "deployments"]),
        ("^kstatd_", &["pods", "replicasets"]),
    ] {
        let cluster = Cluster::new(200);
        let probe = Running::start(&cluster, &["--resources=pods"]);
        let namespaces = sums(&probe.series("/metrics"), "kube_pod_info", &["namespace"]);
        drop(probe);
        let names: Vec<String> = namespaces.keys().map(|key| key[0].clone()).collect();
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("options.yml");
        let deny = |denied| replace(&file, &format!("metric_denylist: {{\"{denied}\": {{}}}}\n"));
        deny(denied);
        let program = Running::start(
            &cluster,
            &[
                &format!("--config={}", file.display()),
                &format!("--namespaces={}", names.join(",")),
                "--pod-workload-labels=workload,workload_type",
            ],
        );
        let scrape = || {
            let all = program.series("/metrics");
            if denied != "^kstatd_" || own(&all).contains_key("kstatd_workload_info") {
                check_totals(all.clone());
            }
            for series in all.iter().filter(|series| series.name.starts_with("kube_pod_")) {
                assert!(series.labels.contains_key("workload"), "{kinds:?} {series:?}");
            }
            all
        };
        let pods = |all: &[Series]| sums(all, "kube_pod_info", &[])[&vec![]];
        assert_eq!(pods(&scrape()), 200.0);
        let refused: Vec<String> =
            kinds.iter().map(|kind| format!("{}/{kind}", names[0])).collect();
        refused.iter().for_each(|path| cluster.double.refuse(path, Some(403)));
        deny("^kstatd_workload_pods_waiting$");
        let applied = until("the new configuration", || {
            let all = scrape();
            own(&all).contains_key("kstatd_workload_info").then_some(all)
        });
        assert_eq!(pods(&applied), 200.0, "{kinds:?}");
        assert!(!own(&applied).contains_key("kstatd_workload_pods_waiting"));
        // The watches of the former configuration continue.
        cluster.double.set_events_per_second(200.0);
        let before = cluster.double.changes();
        until("changes", || {
            scrape();
            (cluster.double.changes() > before + 200).then_some(())
        });
        cluster.double.set_events_per_second(0.0);
        let is_refused = || {
            let status = get(program.main, "/status?format=text").text();
            // A port may contain 403, too.
            status.contains("403 Forbidden")
        };
        // Kinds are listed one after the other.
        until("the refusal", || is_refused().then_some(()));
        refused.iter().for_each(|path| cluster.double.refuse(path, None));
        until("the refused lists", || {
            scrape();
            (!is_refused()).then_some(())
        });
        scrape();
    }
}

/// With `--pod-workload-labels` every series of a pod, counters included, has the labels of its workload and the selected ones of its own, in
/// every scrape of a cluster that changes, in shards, in each format and under the original's name. Nothing else changes,
/// and two list/watches more are needed under that name.
#[test]
fn series_of_pods_have_the_labels_of_workloads() {
    let cluster = Cluster::new(150);
    let flags = [
        "--pod-workload-labels=workload,workload_type,labels=[app,missing],pod_labels=[app]",
        "--metric-labels-allowlist=pods=[app],deployments=[app],statefulsets=[app]",
    ];
    let plain = Running::start(&cluster, &flags[1..]);
    let labelled = Running::start(&cluster, &flags);
    let opted_in = "--metric-opt-in-list=^kstatd_pod_workload_info$";
    let original = Running::original(&cluster, &[&flags[..], &[opted_in]].concat());
    let check = |all: &[Series]| {
        let named = |name: &'static str| all.iter().filter(move |series| series.name == name);
        let infos: BTreeMap<_, _> = named("kstatd_pod_workload_info")
            .map(|series| (series.pick(&["uid"]), series.pick(&["workload", "workload_type"])))
            .collect();
        let own: BTreeMap<_, _> = named("kube_pod_labels")
            .map(|series| (series.pick(&["uid"]), series.pick(&["label_app"])))
            .collect();
        let apps = ["deployment", "statefulset"].into_iter().flat_map(|kind| {
            named(if kind == "deployment" {
                "kube_deployment_labels"
            } else {
                "kube_statefulset_labels"
            })
            .map(move |series| {
                let [namespace, name] = ["namespace", kind].map(|name| series.labels[name].clone());
                (vec![namespace, name, kind.to_owned()], series.pick(&["label_app"]))
            })
        });
        let apps: BTreeMap<_, _> = apps.collect();
        let mut seen = 0;
        let is_of_pod = |series: &&Series| {
            ["kube_pod_", "kstatd_pod_"].iter().any(|start| series.name.starts_with(start))
        };
        for series in all.iter().filter(is_of_pod) {
            let uid = series.pick(&["uid"]);
            assert_eq!(
                Some(&series.pick(&["workload", "workload_type"])),
                infos.get(&uid),
                "{series:?}"
            );
            assert_eq!(Some(&series.pick(&["pod_label_app"])), own.get(&uid), "{series:?}");
            let workload = series.pick(&["namespace", "workload", "workload_type"]);
            if let Some(app) = apps.get(&workload) {
                assert_eq!(&series.pick(&["workload_label_app"]), app, "{series:?}");
                seen += 1;
            }
        }
        assert!(seen > 1_000, "{seen}");
    };
    cluster.double.set_events_per_second(200.0);
    for round in 0..10 {
        if round % 4 == 3 {
            cluster.double.forget_history();
        }
        let before = cluster.double.changes();
        check(&labelled.series("/metrics"));
        until("changes", || (cluster.double.changes() > before + 20).then_some(()));
    }
    until("terminations", || {
        let all = labelled.series("/metrics");
        check(&all);
        own(&all).contains_key("kstatd_pod_container_terminations_total").then_some(())
    });
    cluster.double.set_events_per_second(0.0);
    let without = |all: Vec<Series>| -> BTreeSet<String> {
        let all = all.into_iter().filter(|series| series.name.starts_with("kube_"));
        all.map(|mut series| {
            series
                .labels
                .retain(|name, _| !name.starts_with("workload") && name != "pod_label_app");
            format!("{} {:?} {}", series.name, series.labels, series.value)
        })
        .collect()
    };
    for running in [&labelled, &original] {
        until("the same series", || {
            let all = running.series("/metrics");
            (without(all.clone()) == without(plain.series("/metrics"))).then(|| check(&all))
        });
    }
    let all = without(labelled.series("/metrics"));
    let parts: Vec<Series> = (0..3)
        .flat_map(|shard| labelled.series(&format!("/metrics?shard={shard}&total_shards=3")))
        .collect();
    check(&parts);
    assert_eq!(without(parts), all);
    let text = get(labelled.main, "/metrics").text();
    let line = text.lines().find(|line| line.starts_with("kube_pod_status_phase{"));
    let names: Vec<_> =
        line.expect("a line").split(['{', ',']).filter_map(|label| label.split_once('=')).collect();
    let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    let order = [
        "namespace",
        "pod",
        "uid",
        "pod_label_app",
        "workload",
        "workload_type",
        "workload_label_app",
        "phase",
    ];
    assert_eq!(names, order, "{line:?}");
}

#[test]
fn invalid_workload_labels_are_refused() {
    for (value, error) in [
        ("workload,kind", "column 10: \"kind\" must be workload, workload_type, labels=[KEY,KEY]"),
        ("labels=[a", "column 1: the list of labels needs a ]"),
        ("workload,labels=[*a*]", "column 10: each label is a key with at most one *"),
        ("pod_labels=[]", "column 1: each label is a key with at most one *"),
        ("labels=[a]b", "column 11: a comma must follow ]"),
    ] {
        let flags = [&format!("--pod-workload-labels={value}"), "--apiserver=http://127.0.0.1:1"];
        for (name, command) in [("kstatd", &["run"][..]), ("kube-state-metrics", &[])] {
            let output = run(name, [command, &flags].concat());
            assert!(
                !output.status.success() && output.stderr.contains(error),
                "{value}: {output:?}"
            );
        }
    }
}

/// Returns the restarts of each container by the UID of its pod.
fn restarts(all: &[Series]) -> BTreeMap<Vec<String>, f64> {
    let mut restarts = sums(all, "kube_pod_container_status_restarts_total", &["uid", "container"]);
    restarts.extend(sums(
        all,
        "kube_pod_init_container_status_restarts_total",
        &["uid", "container"],
    ));
    restarts
}

/// While a cluster changes quickly, also over expired watches, counters of events never go back and are never behind the
/// restarts of containers. In the end they equal those since the start of the program.
#[test]
fn terminations_equal_restarts() {
    let cluster = Cluster::new(200);
    let program = Running::start(&cluster, &[]);
    let first = program.series("/metrics");
    let name = "kstatd_workload_container_terminations_total";
    assert!(first.iter().any(|series| series.name == name));
    assert!(first.iter().all(|series| !is_counter(series) || series.value == 0.0));
    let before = restarts(&first);
    let since_start = |all: &[Series]| {
        let mut want = restarts(all);
        for (container, restarts) in &mut want {
            *restarts -= before.get(container).unwrap_or(&0.0);
        }
        want.retain(|_, terminations| *terminations > 0.0);
        want
    };
    let of_pods = |all: &[Series]| {
        sums(all, "kstatd_pod_container_terminations_total", &["uid", "container"])
    };
    cluster.double.set_events_per_second(300.0);
    let by = ["namespace", "workload", "workload_type", "container", "reason"];
    let mut last = BTreeMap::new();
    for round in 0..20 {
        if round % 6 == 3 {
            cluster.double.forget_history();
        }
        let changes = cluster.double.changes();
        let all = program.series("/metrics");
        let have = of_pods(&all);
        // A list in progress counts at once, and its pods are shown when it is complete.
        for (container, restarts) in since_start(&all) {
            assert!(have.get(&container) >= Some(&restarts), "{container:?}: {have:?}");
        }
        let totals = sums(&all, name, &by);
        for (key, value) in &last {
            assert!(totals.get(key) >= Some(value), "{key:?}: {totals:?}");
        }
        last = totals;
        until("changes", || (cluster.double.changes() > changes + 20).then_some(()));
    }
    until("OOM kills, errors and deleted pods", || {
        let all = program.series("/metrics");
        let reasons = |name: &str| -> BTreeSet<String> {
            sums(&all, name, &["reason"]).into_keys().flatten().collect()
        };
        let (terminations, ends) = (reasons(name), reasons("kstatd_workload_pods_finished_total"));
        let all = ["OOMKilled", "Error"].iter().all(|reason| terminations.contains(*reason));
        (all && ends.contains("Deleted")).then_some(())
    });
    cluster.double.set_events_per_second(0.0);
    until("equal terminations", || {
        let all = program.series("/metrics");
        (of_pods(&all) == since_start(&all)).then_some(())
    });
}

/// Returns whether a series is a counter of events.
fn is_counter(series: &Series) -> bool {
    series.name.starts_with("kstatd_") && series.name.ends_with("_total")
}

/// Counters of events can be selected like other families, and are off under the original's name.
#[test]
fn counters_of_events_are_selected_by_name() {
    let cluster = Cluster::new(100);
    let names = |flags: &[&str]| -> BTreeSet<String> {
        let all = Running::start(&cluster, flags).series("/metrics");
        all.into_iter().filter(is_counter).map(|series| series.name).collect()
    };
    let all = [
        "kstatd_kube_node_condition_transitions_total",
        "kstatd_workload_container_terminations_total",
        "kstatd_workload_pods_finished_total",
    ];
    assert_eq!(names(&[]), all.map(str::to_owned).into());
    assert_eq!(
        names(&["--metric-denylist=_finished_total,_terminations_total"]),
        [all[0].to_owned()].into()
    );
    assert_eq!(names(&["--metric-allowlist=^kstatd_kube_node_cond"]), [all[0].to_owned()].into());
    assert!(names(&["--metric-denylist=^kstatd_"]).is_empty());
}
