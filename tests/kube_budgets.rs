//! Budgets for kinds and labels of Kubernetes objects, and the reports on them.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use common::cluster::Cluster;
use common::{Program, get, run, run_with_input, until, valid_text};
use serde_json::Value;

/// A program with a cluster of 150 pods and without a StatsD side.
struct Running {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
    cluster: Cluster,
}

impl Running {
    fn kstatd(flags: &[&str]) -> Self {
        let here = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"];
        let off = ["--statsd.listen-udp=", "--statsd.listen-tcp="];
        Self::start("kstatd", &[&here[..], &off, flags].concat())
    }

    fn original(flags: &[&str]) -> Self {
        let here = ["--host=127.0.0.1", "--port=0", "--telemetry-host=127.0.0.1"];
        Self::start("kube-state-metrics", &[&here[..], &["--telemetry-port=0"], flags].concat())
    }

    fn start(name: &str, flags: &[&str]) -> Self {
        let cluster = Cluster::new(150);
        let server = cluster.flag();
        let program = Program::start(name, [flags, &[&server]].concat());
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        let running = Self { program, main, telemetry, cluster };
        until("the first lists", || {
            (running.own("kstatd_ready") == ["kstatd_ready 1"]).then_some(())
        });
        running
    }

    /// Returns the series of a scrape whose names begin with this prefix.
    fn series(&self, beginning: &str) -> Vec<String> {
        let text = get(self.main, "/metrics").text();
        valid_text(&text);
        let lines = text.lines().filter(|line| line.starts_with(beginning));
        lines.map(str::to_owned).collect()
    }

    fn own(&self, beginning: &str) -> Vec<String> {
        let text = get(self.telemetry, "/metrics").text();
        valid_text(&text);
        let lines = text.lines().filter(|line| line.starts_with(beginning));
        lines.map(str::to_owned).collect()
    }

    fn json(&self, path: &str) -> Value {
        let answer = get(self.main, path);
        assert_eq!(answer.status, 200, "{path}");
        serde_json::from_str::<Value>(&answer.text()).expect("JSON")["data"].take()
    }
}

fn number(line: &str) -> f64 {
    line.rsplit_once(' ').and_then(|(_, number)| number.parse().ok()).expect("a number")
}

fn label<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// Returns the sum of a kind over all namespaces.
fn total(lines: &[String], resource: &str) -> f64 {
    let own = lines.iter().filter(|line| label(line, "resource") == Some(resource));
    own.map(|line| number(line)).sum()
}

#[test]
fn objects_over_the_budget_are_dropped_and_counted() {
    let running = Running::kstatd(&["--resources=pods,nodes", "--limit.series-per-kind=2000"]);
    let pods = running.series("kube_pod_");
    assert!(pods.len() > 1_000 && pods.len() <= 2_000, "{}", pods.len());
    // An object has all of its series or none.
    let shown = running.series("kube_pod_info{");
    let uids: BTreeSet<&str> = shown.iter().filter_map(|line| label(line, "uid")).collect();
    assert!(pods.iter().all(|line| label(line, "uid").is_some_and(|uid| uids.contains(uid))));
    let all = running.cluster.double.objects_of("pods");
    let totals = running.own("kstatd_kube_objects{");
    assert_eq!(total(&totals, "*v1.Pod"), all as f64);
    assert_eq!(total(&totals, "*v1.Node"), running.cluster.double.objects_of("nodes") as f64);
    let left_out = total(&running.own("kstatd_kubernetes_left_out_objects{"), "*v1.Pod");
    assert_eq!(left_out, (all - shown.len()) as f64);
    assert!(left_out > 0.0);
    running.program.line(&["Objects go beyond a budget", "limit.series-per-kind", "pod="]);
    let report = running.json("/api/v1/status/cardinality?limit=1000");
    let budget = &report["budgets"][0];
    assert_eq!((&budget["mode"], &budget["seriesPerKind"]), (&"enforce".into(), &2_000.into()));
    assert_eq!(
        (&budget["beyond"][0]["metric"], &budget["beyond"][0]["limit"]),
        (&"*v1.Pod".into(), &"series-per-kind".into())
    );
    let named = budget["leftOut"].as_array().expect("a list").iter();
    let named: f64 = named.filter_map(|entry| entry["objects"].as_f64()).sum();
    assert_eq!(named, left_out);
    let page = get(running.main, "/status?format=text").text();
    let note = format!("pods: {left_out} objects have no series because of a limit");
    assert!(page.contains(&note), "{page}");
    assert!(page.contains(" exceed --limit.series-per-kind ("), "{page}");
}

#[test]
fn allow_listed_label_values_fold() {
    let flags = ["--resources=pods", "--metric-labels-allowlist=pods=[*]"];
    let free = Running::kstatd(&flags);
    let values = |running: &Running| -> BTreeMap<String, BTreeSet<String>> {
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in running.series("kube_pod_labels{") {
            let (_, labels) = line.split_once('{').expect("labels");
            for pair in labels.trim_end_matches("} 1").split("\",") {
                let (name, value) = pair.split_once("=\"").expect("a label");
                let value = value.trim_end_matches('"').to_owned();
                values.entry(name.to_owned()).or_default().insert(value);
            }
        }
        values
    };
    let all = values(&free);
    let largest = all.iter().filter(|(name, _)| name.starts_with("label_"));
    let (name, most) = largest.max_by_key(|(_, values)| values.len()).expect("labels");
    assert!(most.len() > 6, "{name} has {most:?}");
    let budget = ["--limit.values-per-label=5"];
    let bound = Running::kstatd(&[&flags[..], &budget].concat());
    let kept = values(&bound);
    for (label, values) in &all {
        let is_open = label.starts_with("label_");
        let want = if is_open && values.len() > 5 { 6 } else { values.len() };
        assert_eq!(kept[label].len(), want, "{label}");
        assert!(!is_open || values.len() <= 5 || kept[label].contains("other"));
    }
    assert_eq!(bound.series("kube_").len(), free.series("kube_").len());
    // The status page reports that an allow-listed label does not exist in the cluster.
    let page = get(bound.main, "/status?format=text").text();
    let note = " of kube_pod_labels exceed --limit.values-per-label (";
    assert!(page.contains("values of label_") && page.contains(note), "{page}");
    let beyond = bound.own("kstatd_kubernetes_over_budget_total{action=\"folded\"");
    assert!(beyond.iter().any(|line| label(line, "label") == Some(name)), "{beyond:?}");
    // Counted, but still exposed.
    let tracked = Running::kstatd(&[&flags[..], &budget, &["--limit.mode=track"]].concat());
    assert_eq!(values(&tracked), all);
    assert!(!tracked.own("kstatd_kubernetes_over_budget_total{action=\"tracked\"").is_empty());
}

/// Under the name of the original there are no budgets unless a flag sets them, and its paths do not change.
#[test]
fn budgets_are_opt_in_under_the_original_name() {
    let flags = ["--resources=pods", "--limit.series-per-kind=2000"];
    let free = Running::original(&flags);
    assert_eq!(free.series("kube_pod_info{").len(), 150);
    assert!(free.own("kstatd_kube_objects").is_empty());
    for path in ["/api/v1/status/tsdb", "/api/v1/status/cardinality"] {
        assert_eq!(get(free.main, path).status, get(free.main, "/no-such-path").status);
        assert!(!get(free.main, path).text().contains("headStats"));
        assert_eq!(get(free.main, &format!("/kstatd{path}")).status, 200);
    }
    let output = run("kstatd", ["top", &format!("--addr={}", free.main)]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.contains("\n  kube_pod_status_phase "), "{output:?}");
    let bound = Running::original(&[&flags[..], &["--limit.mode=enforce"]].concat());
    let pods = bound.series("kube_pod_").len();
    assert!(pods > 1_000 && pods <= 2_000, "{pods}");
    assert_eq!(total(&bound.own("kstatd_kube_objects{"), "*v1.Pod"), 150.0);
}

#[test]
fn reports_match_the_scrape() {
    let running = Running::kstatd(&["--resources=pods,nodes,services"]);
    let lines = running.series("k");
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        *names.entry(line.split(['{', ' ']).next().expect("a name")).or_default() += 1;
    }
    let tsdb = running.json("/api/v1/status/tsdb?limit=10000");
    assert_eq!(tsdb["headStats"]["numSeries"], lines.len());
    let counted = tsdb["seriesCountByMetricName"].as_array().expect("a list").iter();
    let counted: BTreeMap<&str, u64> = counted
        .filter_map(|entry| Some((entry["name"].as_str()?, entry["value"].as_u64()?)))
        .collect();
    assert_eq!(counted, names);
    let report = running.json("/api/v1/status/cardinality?limit=10000");
    assert_eq!(report["series"], lines.len());
    assert!(report["bytes"].as_u64().is_some_and(|bytes| bytes > 10_000));
    let minutes = report["newByMinute"].as_array().expect("a list").iter();
    assert_eq!(minutes.filter_map(Value::as_u64).sum::<u64>(), lines.len() as u64);
    let metrics = report["metrics"].as_array().expect("a list");
    let info = metrics.iter().find(|metric| metric["name"] == "kube_pod_info").expect("a metric");
    assert_eq!(info["series"], 150);
    let labels = info["labels"].as_array().expect("a list").iter();
    let label = labels.clone().find(|label| label["name"] == "uid").expect("a label");
    assert_eq!((&label["values"], &label["exact"]), (&150.into(), &true.into()));
    let restarts = "kube_pod_container_status_restarts_total";
    let restarts = metrics.iter().find(|metric| metric["name"] == restarts).expect("a metric");
    assert_eq!(restarts["type"], "counter");
}

/// Allow-listed labels and annotations are normalised before all other processing; others are unchanged.
#[test]
fn allow_listed_label_values_are_normalised() {
    let pod = |number: u32| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p{number}\n  namespace: a\n  uid: u{number}\n  labels: \
             {{example.com/url: /item/{number}?q=1, plain: v{number}-{number}}}\n  annotations: \
             {{trace: 00000000-0000-4000-8000-00000000000{number}}}\n---\n"
        )
    };
    let flags = [
        "render",
        "kube",
        "-f",
        "-",
        "--metric-labels-allowlist=pods=[*]",
        "--metric-annotations-allowlist=pods=[*]",
        "--metric-labels-normalise=example.com/url=url+truncate:100,trace=uuid",
    ];
    let query = pod(3).replace("/item/3?q=1", "?q=1");
    let output = run_with_input("kstatd", flags, (pod(1) + &pod(2) + &query).as_bytes());
    assert!(output.status.success(), "{output:?}");
    // Normalisation empties the value, so the label is omitted.
    let line = "kube_pod_labels{namespace=\"a\",pod=\"p3\",uid=\"u3\",label_plain=\"v3-3\"} 1\n";
    assert!(output.stdout.contains(line), "{}", output.stdout);
    for number in 1..=2 {
        for line in [
            format!(
                "kube_pod_labels{{namespace=\"a\",pod=\"p{number}\",uid=\"u{number}\",label_example_com_url=\"/item/<id>\",label_plain=\"v{number}-{number}\"}} 1"
            ),
            format!(
                "kube_pod_annotations{{namespace=\"a\",pod=\"p{number}\",uid=\"u{number}\",annotation_trace=\"<uuid>\"}} 1"
            ),
        ] {
            assert!(output.stdout.contains(&line), "{line} is not in {}", output.stdout);
        }
    }
    for (wrong, named) in [
        ("url", "\"url\" is no LABEL=STEP"),
        ("a=url,=uuid", "\"=uuid\" has no label"),
        ("a=url+lower", "step \"lower\" of label \"a\" is none of uuid, hex,"),
        ("a=truncate:0", "step \"truncate:0\" of label \"a\""),
        ("a=url,a=uuid", "label \"a\" is there twice"),
    ] {
        for program in ["kstatd", "kube-state-metrics"] {
            let flag = format!("--metric-labels-normalise={wrong}");
            let words: &[&str] = if program == "kstatd" { &["run", &flag] } else { &[&flag] };
            let output = run(program, words.iter().copied());
            assert!(!output.status.success(), "{wrong}");
            assert!(output.stderr.contains(named), "{wrong}: {output:?}");
        }
    }
}
