//! `kstatd check` on manifests: planted differences, the recorded charts, malformed and hostile manifests; on an API
//! server that does not answer, and on running processes.

#[path = "common/api_server.rs"]
mod api_server;
mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use api_server::{ApiServer, deployment, forbidden, list};
use common::cluster::Cluster;
use common::{Output, Program, run, run_with_input};
use serde_json::{Value, json};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).expect(path)
}

/// Runs `kstatd check -f -` on a manifest.
fn check(manifest: &str, args: &[&str]) -> Output {
    run_with_input("kstatd", [&["check", "-f", "-"], args].concat(), manifest.as_bytes())
}

/// Returns the checks with a result other than ok, as one line each.
fn objections(manifest: &str) -> (i32, Vec<(String, String)>) {
    let output = check(manifest, &["-o", "json"]);
    let report: Value =
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let sections = report["sections"].as_array().expect("sections");
    let checks = sections.iter().flat_map(|section| section["checks"].as_array().expect("checks"));
    let found = checks.filter(|check| check["result"] != "ok").map(|check| {
        let result = check["result"].as_str().expect("a result");
        (result.to_owned(), check.to_string().replace("\\\"", "\""))
    });
    let found: Vec<_> = found.collect();
    let worst =
        ["failed", "warning"].into_iter().find(|worst| found.iter().any(|one| one.0 == *worst));
    assert_eq!(report["result"], worst.unwrap_or("ok"));
    (output.status.code().expect("a code"), found)
}

/// A difference that is planted in the manifest of the originals.
struct Planted {
    name: String,
    from: String,
    to: String,
    result: String,
    parts: Vec<String>,
}

fn planted() -> Vec<Planted> {
    let all: Vec<Value> =
        serde_json::from_str(&read("tests/data/check/planted.json")).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let planted = |one: &Value| Planted {
        name: text(&one["name"]),
        from: text(&one["from"]),
        to: text(&one["to"]),
        result: text(&one["result"]),
        parts: one["parts"].as_array().expect("parts").iter().map(text).collect(),
    };
    all.iter().map(planted).collect()
}

impl Planted {
    fn plant(&self, manifest: &str) -> String {
        assert_eq!(manifest.matches(&self.from).count(), 1, "{}", self.name);
        manifest.replace(&self.from, &self.to)
    }

    fn is_reported_by(&self, (result, text): &(String, String)) -> bool {
        *result == self.result && self.parts.iter().all(|part| text.contains(part))
    }
}

#[test]
fn clean_originals_have_no_objections() {
    let (code, found) = objections(&read("tests/data/check/original.yaml"));
    assert_eq!((code, found), (0, vec![]));
    let output = check(&read("tests/data/check/original.yaml"), &[]);
    for line in [
        "√ --port=8080: same",
        "√ has all 10 rights that these flags need (by its bindings)",
        "√ ServiceMonitor kube-state-metrics: scrapes /metrics on port 8081",
        "√ /etc/statsd/mapping.yml: valid, rules: 1",
        "√ livenessProbe: GET /livez on port 8080",
        "√ Service statsd-exporter, port statsd-udp: UDP 9125 reaches port 9125 of the pods",
        "√ Deployment monitoring/kube-state-metrics: not sharded",
    ] {
        assert!(output.stdout.lines().any(|found| found == line), "{line}\n{}", output.stdout);
    }
    assert!(output.stdout.contains("√ --config /etc/kube-state-metrics/options.yaml: better: "));
    assert!(output.stdout.ends_with(" passed, 0 warnings, 0 failed\n"), "{}", output.stdout);
}

#[test]
fn each_planted_difference_is_reported_alone() {
    let original = read("tests/data/check/original.yaml");
    for planted in planted() {
        let (code, found) = objections(&planted.plant(&original));
        let [one] = found.as_slice() else { panic!("{}: {found:#?}", planted.name) };
        assert!(planted.is_reported_by(one), "{}: {one:?}", planted.name);
        assert_eq!(code, i32::from(planted.result == "failed"), "{}", planted.name);
    }
}

#[test]
fn planted_differences_are_reported_together_and_nothing_else() {
    let mut manifest = read("tests/data/check/original.yaml");
    for planted in planted() {
        manifest = planted.plant(&manifest);
    }
    let (code, found) = objections(&manifest);
    assert_eq!((code, found.len()), (1, planted().len()), "{found:#?}");
    for planted in planted() {
        let reported = found.iter().filter(|one| planted.is_reported_by(one)).count();
        assert_eq!(reported, 1, "{}: {found:#?}", planted.name);
    }
}

/// The community charts' manifests work after a swap: only their own settings without effect are reported.
#[test]
fn recorded_charts_have_no_failures() {
    for chart in ["autoshard", "default", "full"] {
        let (code, found) =
            objections(&read(&format!("tests/conformance/charts/kube-state-metrics-{chart}.yaml")));
        assert_eq!(code, 0, "{chart}: {found:#?}");
        let is_known = |text: &str| text.contains("its custom resource definition");
        assert!(found.iter().all(|(_, text)| is_known(text)), "{chart}: {found:#?}");
    }
    let (code, found) = objections(&read("tests/conformance/charts/statsd-exporter.yaml"));
    assert_eq!(code, 0, "{found:#?}");
    let texts: Vec<_> =
        found.iter().filter(|(_, text)| !text.contains("--statsd.cache-size=2000")).collect();
    assert!(texts.is_empty(), "{found:#?}");
}

/// The objections to the recorded value sets, by chart and case. Each is true of the original too, or a flag without
/// effect.
const RECORDED: [(&str, &str, &[&str]); 8] = [
    ("kube-state-metrics", "replicas", &["2 pods without shards"]),
    ("kube-state-metrics", "collectors-extra", &["resource verticalpodautoscalers does not exist"]),
    // The chart gives the ports of the probes to the proxy.
    (
        "kube-state-metrics",
        "rbac-proxy",
        &[
            "livenessProbe: the container has no port http",
            "readinessProbe: the container has no port metrics",
        ],
    ),
    ("kube-state-metrics", "rbac-off", &["not known: the input has no bindings"]),
    ("kube-state-metrics", "kubeconfig", &["the exporter uses a kubeconfig"]),
    (
        "kube-state-metrics",
        "custom-resources",
        &["custom resources of t.io: list, watch is not granted"],
    ),
    (
        "kube-state-metrics",
        "custom-resources-no-rules",
        &["may not list, watch customresourcedefinitions"],
    ),
    (
        "prometheus-statsd-exporter",
        "ports",
        &[
            "cache-size=5",
            "event-queue-size=6",
            "event-flush-threshold=7",
            "event-flush-interval=1s",
        ],
    ),
];

#[test]
fn recorded_value_sets_have_only_their_own_objections() {
    let cases: Value =
        serde_json::from_str(&read("tests/conformance/charts/values.json")).expect("JSON");
    let cases = cases["cases"].as_array().expect("cases");
    assert!(cases.len() >= 50);
    for case in cases {
        let list =
            serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": case["manifests"] });
        let (_, found) = objections(&list.to_string());
        let known = RECORDED
            .iter()
            .find(|(chart, name, _)| case["chart"] == *chart && case["name"] == *name);
        let parts = known.map_or(&[][..], |(_, _, parts)| parts);
        let all_known = parts.len() == found.len()
            && parts.iter().zip(&found).all(|(part, (_, text))| text.contains(part));
        assert!(all_known, "{}: {found:#?}", case["name"]);
    }
}

#[test]
fn a_workload_with_another_image_is_found_by_name() {
    let manifest = read("tests/data/check/original.yaml")
        .replace("registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.20.0", "corp/ksm:1")
        .replace("app.kubernetes.io/name: kube-state-metrics", "team: platform")
        .replace("- name: kube-state-metrics\n        image", "- name: main\n        image");
    let without = check(&manifest, &["-n", "monitoring"]).stdout;
    assert!(!without.contains("kube-state-metrics: Deployment"), "{without}");
    for name in ["kube-state-metrics", "deploy/kube-state-metrics"] {
        let output = check(&manifest, &["-n", "monitoring", name]);
        let title = "kube-state-metrics: Deployment monitoring/kube-state-metrics\n---";
        assert!(output.stdout.contains(title), "{}", output.stdout);
        assert!(!output.stdout.contains("statsd_exporter: "), "{}", output.stdout);
    }
    for args in [&["-n", "other"][..], &["sts/kube-state-metrics"], &["-n", "monitoring", "absent"]]
    {
        let output = check(&manifest, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(output.stdout.contains("× no Deployment, StatefulSet or DaemonSet"), "{args:?}");
    }
}

#[test]
fn the_program_is_the_first_argument_of_kstatd() {
    let manifest = read("tests/data/check/original.yaml");
    let image =
        "image: registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.20.0\n        args:";
    for start in [
        "image: registry.example/kstatd/kstatd:0.1.0\n        command: [/kstatd, kube-state-metrics]\n        args:",
        "image: registry.example/team/metrics:1\n        command: [/kstatd]\n        args:\n        - kube-state-metrics",
        "image: registry.example/kstatd:0.1.0\n        args:\n        - kube-state-metrics",
    ] {
        assert_eq!(manifest.matches(image).count(), 1);
        let swapped = manifest.replace(image, start);
        assert_eq!(objections(&swapped), (0, vec![]), "{start}");
        let output = check(&swapped, &["-n", "monitoring", "kube-state-metrics"]).stdout;
        let title = "kube-state-metrics: Deployment monitoring/kube-state-metrics\n---";
        assert!(output.contains(title), "{start}: {output}");
    }
}

/// Senders of StatsD lines are recognised by pods and their owners, which the roles must allow.
#[test]
fn rights_to_recognise_senders_are_checked() {
    let roles = |flag: &str| {
        run("kstatd", ["rbac", "--resources=nodes", "--service-account=m/kstatd", flag]).stdout
    };
    let senders = "--statsd.enrich=workload";
    let workload = format!(
        "---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{namespace: m, name: kstatd}}}}\n---\n\
         {{apiVersion: apps/v1, kind: Deployment, metadata: {{namespace: m, name: kstatd}}, spec: {{template: {{spec: \
         {{serviceAccountName: kstatd, containers: [{{name: kstatd, image: kstatd, args: [--resources=nodes, {senders}]}}]}}}}}}}}\n"
    );
    let (_, lacking) = objections(&(roles("--total-shards=1") + &workload));
    for kind in ["pods", "replicasets.apps", "jobs.batch"] {
        let is_about = |text: &str| text.contains(&format!("may not list, watch {kind} "));
        assert!(lacking.iter().any(|(_, text)| is_about(text)), "{kind}: {lacking:#?}");
    }
    let (_, found) = objections(&(roles(senders) + &workload));
    assert!(!found.iter().any(|(_, text)| text.contains("may not")), "{found:#?}");
}

#[test]
fn the_flags_of_kstatd_node_are_checked() {
    let workload = |flag: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{namespace: kstatd-node, name: kstatd-node}}, spec: {{template: \
             {{spec: {{containers: [{{name: kstatd, image: kstatd, args: [node, {flag}]}}]}}}}}}}}\n"
        )
    };
    let output = check(&workload("--listen=:9090"), &[]);
    assert!(output.stdout.contains("√ 2 arguments of kstatd node are valid"), "{output:?}");
    assert!(!output.stdout.contains("is not checked"), "{output:?}");
    let output = check(&workload("--interval=soon"), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn standbys_are_not_taken_for_duplicates() {
    let workload = |more: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{namespace: m, name: kstatd}}, spec: {{replicas: 2, template: {{spec: \
             {{containers: [{{name: kstatd, image: kstatd, args: [--resources=nodes{more}]}}]}}}}}}}}\n"
        )
    };
    let twice = "expose every series 2 times";
    let has_objection =
        |more: &str| objections(&workload(more)).1.iter().any(|(_, text)| text.contains(twice));
    assert!(has_objection(""));
    assert!(!has_objection(", --standby, '--standby-peers=kstatd-replicas:8081'"));
}

/// Objects that would be exposed twice, or not at all.
#[test]
fn wrong_shards_are_reported() {
    let workload = |kind: &str, name: &str, replicas: u32, args: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: {kind}, metadata: {{namespace: m, name: {name}}}, spec: {{replicas: {replicas}, template: \
             {{spec: {{containers: [{{name: kstatd, image: kstatd, args: [--resources=nodes{args}]}}]}}}}}}}}\n---\n"
        )
    };
    let shard = |name, replicas, shard| {
        let args = format!(", --total-shards=2, --shard={shard}");
        workload("Deployment", name, replicas, &args)
    };
    for (workloads, wanted) in [
        (shard("a", 1, 0) + &shard("b", 1, 1), None),
        (shard("a", 1, 1) + &shard("b", 1, 2), Some("m/b: shard 2 of 2: shards are 0 to 1")),
        (shard("a", 2, 0) + &shard("b", 1, 1), Some("2 pods of one shard")),
        (
            shard("a", 1, 0) + &shard("b", 1, 1) + &shard("c", 1, 1),
            Some("m/c: shard 1 of 2, which 2 workloads expose"),
        ),
        (shard("a", 1, 0), Some("m/a: shard 0 of 2, but only 1 of 2 shards run")),
        (
            shard("a", 1, 0)
                + &shard("b", 1, 1)
                + &(shard("c", 1, 0) + &shard("d", 1, 1)).replace("nodes", "pods"),
            None,
        ),
        (workload("DaemonSet", "a", 1, ""), Some("each pod of the DaemonSet exposes")),
        (workload("DaemonSet", "a", 1, ", --node=$(NODE_NAME)"), None),
    ] {
        let (_, found) = objections(&workloads);
        let about_shards = |text: &&String| text.contains("shard") || text.contains("every series");
        let texts: Vec<_> = found.iter().map(|(_, text)| text).filter(about_shards).collect();
        match wanted {
            Some(wanted) => {
                assert!(texts.iter().any(|text| text.contains(wanted)), "{wanted}: {texts:#?}")
            }
            None => assert!(texts.is_empty(), "{texts:#?}"),
        }
    }
}

/// An alert about one exporter is no fault of another one with another job.
#[test]
fn alerts_may_select_one_of_several_exporters() {
    let exporter = |name: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{namespace: m, name: {name}, labels: {{app: {name}}}}}, spec: {{template: \
             {{metadata: {{labels: {{app: {name}}}}}, spec: {{containers: [{{name: k, image: 'x/kube-state-metrics:v2.20.0', \
             args: [--resources=nodes], ports: [{{name: http, containerPort: 8080}}]}}]}}}}}}}}\n---\n\
             {{apiVersion: v1, kind: Service, metadata: {{namespace: m, name: {name}, labels: {{app: {name}}}}}, spec: {{selector: \
             {{app: {name}}}, ports: [{{name: http, port: 8080, targetPort: http}}]}}}}\n---\n\
             {{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {{namespace: m, name: {name}}}, spec: {{selector: \
             {{matchLabels: {{app: {name}}}}}, endpoints: [{{port: http, honorLabels: true}}]}}}}\n---\n"
        )
    };
    let rule = |job: &str| {
        format!(
            "{{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {{namespace: m, name: r}}, spec: {{groups: [{{name: g, \
             rules: [{{alert: A, expr: 'kube_node_info{{job=\"{job}\"}} > 0'}}]}}]}}}}\n"
        )
    };
    let manifest = exporter("a") + &exporter("b") + &rule("b");
    let named = check(&manifest, &["-n", "m", "a"]);
    assert!(!named.stdout.contains("but the job is"), "{}", named.stdout);
    for (job, is_right) in [("a", true), ("b", true), ("c", false)] {
        let (_, found) = objections(&(exporter("a") + &exporter("b") + &rule(job)));
        let is_about = found.iter().any(|(_, text)| text.contains("but the job is"));
        assert_eq!(is_about, !is_right, "{job}: {found:#?}");
    }
}

/// Relabelling may set the label `job`.
#[test]
fn alerts_select_the_job_that_relabelling_sets() {
    let manifest = |relabelling: &str, job: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{namespace: m, name: k, labels: {{app: k}}}}, spec: {{template: \
             {{metadata: {{labels: {{app: k}}}}, spec: {{containers: [{{name: k, image: 'x/kube-state-metrics:v2.20.0', \
             args: [--resources=nodes], ports: [{{name: http, containerPort: 8080}}]}}]}}}}}}}}\n---\n\
             {{apiVersion: v1, kind: Service, metadata: {{namespace: m, name: k, labels: {{app: k}}}}, spec: {{selector: \
             {{app: k}}, ports: [{{name: http, port: 8080, targetPort: http}}]}}}}\n---\n\
             {{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {{namespace: m, name: k}}, spec: {{selector: \
             {{matchLabels: {{app: k}}}}, endpoints: [{{port: http, honorLabels: true{relabelling}}}]}}}}\n---\n\
             {{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {{namespace: m, name: r}}, spec: {{groups: [{{name: g, \
             rules: [{{alert: A, expr: 'kube_node_info{{job=\"{job}\"}} > 0'}}]}}]}}}}\n"
        )
    };
    let constant = ", relabelings: [{targetLabel: job, replacement: ksm}]";
    let computed =
        ", relabelings: [{sourceLabels: [__meta_kubernetes_pod_name], targetLabel: job}]";
    let dropped = ", metricRelabelings: [{sourceLabels: [job], regex: x, action: drop}]";
    for (relabelling, job, is_right) in [
        ("", "k", true),
        ("", "ksm", false),
        (constant, "ksm", true),
        (constant, "k", false),
        (computed, "anything", true),
        (dropped, "k", true),
        (dropped, "ksm", false),
    ] {
        let (_, found) = objections(&manifest(relabelling, job));
        let is_about = found.iter().any(|(_, text)| text.contains("but the job is"));
        assert_eq!(is_about, !is_right, "{relabelling} {job}: {found:#?}");
    }
}

/// A controller fills the rules of an aggregated ClusterRole.
#[test]
fn rights_of_aggregated_roles_are_those_of_their_parts() {
    let workload = "---\n{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: m, name: kstatd}}\n---\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: m, name: kstatd}, spec: {template: {spec: \
         {serviceAccountName: kstatd, containers: [{name: k, image: kstatd/kube-state-metrics, \
         env: [{name: LEVEL, valueFrom: {configMapKeyRef: {name: c, key: l}}}], args: [--resources=nodes, --port=$(LEVEL)]}]}}}}\n---\n\
         {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: all}, rules: [], \
         aggregationRule: {clusterRoleSelectors: [{matchLabels: {to: all}}]}}\n---\n\
         {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: all}, \
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}, \
         subjects: [{kind: ServiceAccount, namespace: m, name: kstatd}]}\n---\n";
    let part = |label: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: part, labels: {{to: {label}}}}}, \
             rules: [{{apiGroups: [''], resources: [nodes], verbs: [list, watch]}}]}}\n"
        )
    };
    let about = |manifest: &str, part: &str| {
        let (_, found) = objections(manifest);
        found.into_iter().any(|(result, text)| result == "failed" && text.contains(part))
    };
    let [known, unknown] = ["all", "none"].map(|label| workload.to_owned() + &part(label));
    assert!(!about(&known, "may not list"));
    // Which other roles there are is not known.
    let (_, found) = objections(&unknown);
    assert!(
        found.iter().any(|(_, text)| text.contains("the role all is not in the")),
        "{found:#?}"
    );
    // The value of a flag that is not known is no wrong one.
    assert!(!about(&known, "invalid argument"));
}

/// A family that is switched on needs rights beyond those of the kinds.
#[test]
fn rights_of_families_that_are_switched_on_are_checked() {
    let workload = "---\n{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: m, name: kstatd}}\n---\n\
         {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: m, name: kstatd}, spec: {template: {spec: \
         {serviceAccountName: kstatd, containers: [{name: k, image: kstatd/kube-state-metrics, \
         args: [--resources=pods, --metric-opt-in-list=kstatd_pod_workload_info]}]}}}}\n";
    let flags = ["rbac", "--resources=nodes", "--service-account=m/kstatd"];
    let (_, lacking) = objections(&(run("kstatd", flags).stdout + workload));
    for kind in ["replicasets.apps", "jobs.batch"] {
        let is_about = |text: &str| text.contains(&format!("may not list, watch {kind} "));
        assert!(lacking.iter().any(|(_, text)| is_about(text)), "{kind}: {lacking:#?}");
    }
}

#[test]
fn missing_pieces_are_reported_as_such() {
    let original = read("tests/data/check/original.yaml");
    let workloads: Vec<&str> =
        original.split("---\n").filter(|part| part.contains("kind: Deployment")).collect();
    let (code, found) = objections(&workloads.join("---\n"));
    assert_eq!(code, 0, "{found:#?}");
    for part in [
        "options.yaml (--config): not checked: the config map kube-state-metrics is not in the input",
        "custom.yaml (--custom-resource-state-config-file): not checked",
        "mapping.yml (--statsd.mapping-config): not checked",
        "not known: the input has no bindings",
    ] {
        assert!(found.iter().any(|(_, text)| text.contains(part)), "{part}: {found:#?}");
    }
    assert_eq!(found.len(), 4, "{found:#?}");
}

#[test]
fn malformed_input_cannot_be_checked() {
    for (text, part) in [
        ("a: b: c\n", "standard input, document 1"),
        ("[1]\n", "standard input, document 1: not an object"),
        ("apiVersion: v1\n", "kind is missing"),
    ] {
        let output = check(text, &[]);
        assert_eq!(output.status.code(), Some(2), "{text:?}");
        assert!(output.stderr.contains(part) && output.stdout.is_empty(), "{output:?}");
    }
    for args in [
        &["check", "-f", "/absent.yaml"][..],
        &["check", "--nonsense"],
        &["check", "-f", "-", "pod/x"],
        &["check", "-f", "-", "--context=x"],
        &["check", "--kubeconfig=/absent"],
    ] {
        let output = run("kstatd", args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{output:?}");
    }
}

/// Names of objects and flags come from strangers.
#[test]
fn hostile_text_is_escaped() {
    let manifest = read("tests/data/check/original.yaml")
        .replace("- --port=8080\n", "- \"--port=8080\\e[2J\\u202E\"\n")
        .replace("  name: dashboard\n", "  name: \"dash\\u0007board\"\n")
        .replace("sum(kube_node_info{job=", "sum(go_goroutines{job=");
    let text = check(&manifest, &[]).stdout;
    assert!(text.contains("\\u{1b}[2J") && text.contains("dash\\u{7}board"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    assert!(!text.contains('\u{202e}'), "{text}");
    // Wrong types where the API has others, and references to nothing.
    let deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: kube-state-metrics}, spec: {template: {metadata: \
                      {labels: [1]}, spec: {volumes: 5, containers: [{image: kube-state-metrics, args: [5, null, \
                      {a: b}, $(X), $$(Y), $], env: {}, ports: x, readinessProbe: {httpGet: {port: {}}}}]}}}}";
    let output = check(deployment, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("readinessProbe: "), "{}", output.stdout);
}

/// Files named by flags are those of the container, never of this host.
#[test]
fn files_of_this_host_are_not_read() {
    let secret = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(secret.path(), "mysecret: [\n").expect("write");
    let path = secret.path().display().to_string();
    let original = read("tests/data/check/original.yaml");
    let manifest = original
        .replace("/etc/kube-state-metrics/options.yaml", &path)
        .replace(
            "--custom-resource-state-config-file=/etc/kube-state-metrics/custom.yaml",
            &format!("--tls-config={path}"),
        )
        .replace("- --web.listen-address=:9102\n", &format!("- '@{path}'\n"));
    let output = check(&manifest, &[]);
    assert!(!output.stdout.contains("mysecret"), "{}", output.stdout);
    assert!(output.stdout.contains("not checked: no volume shows it"), "{}", output.stdout);
    assert!(
        output.stdout.contains("a file with arguments, which is not read"),
        "{}",
        output.stdout
    );
}

#[test]
fn the_health_of_a_process_is_reported() {
    let cluster = Cluster::new(20);
    let program = Program::start(
        "kstatd",
        [
            &*cluster.flag(),
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=",
        ],
    );
    let address = program.address(&["Started metrics server"], "address");
    common::until("all kinds are synced", || {
        (common::get(address, "/readyz").status == 200).then_some(())
    });
    let addr = format!("--addr={address}");
    let output = run("kstatd", ["check", &addr]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in [
        "√ its state is OK",
        "√ its version is ",
        " kinds are synced",
        "√ datagrams dropped by the kernel since the start: 0",
    ] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
    let json = run("kstatd", ["check", &addr, "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&json.stdout).expect("JSON")["result"], "ok");
    drop(program);
    let output = run("kstatd", ["check", &addr]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("× no status: "), "{output:?}");
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// An API server with a kube-state-metrics that needs 244 rights: for 120 custom kinds, pods and their definitions. A
/// role grants those for the first kinds, and each review has the same answer.
fn with_custom_kinds(args: &[&str], bound: usize, review: Value) -> ApiServer {
    let server = ApiServer::start();
    let custom = json!({"kind": "CustomResourceStateMetrics", "spec": {"resources": [
        {"groupVersionKind": {"group": "example.io", "version": "v1", "kind": "*"}, "metrics": []},
    ]}});
    let custom = format!("--custom-resource-state-config={custom}");
    let args = [&["--resources=pods", custom.as_str()], args].concat();
    let image = "registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.20.0";
    let workload = deployment("kube-state-metrics", image, &json!(args));
    server.serve("/apis/apps/v1/deployments", list(&[workload]));
    let definition = |kind: usize| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("kind{kind}s.example.io")},
            "spec": {
                "group": "example.io",
                "names": {"kind": format!("Kind{kind}"), "plural": format!("kind{kind}s")},
                "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        })
    };
    let definitions: Vec<Value> = (0..120).map(definition).collect();
    server.serve("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", list(&definitions));
    let kinds: Vec<String> = (0..bound).map(|kind| format!("kind{kind}s")).collect();
    let rule = |group: &str, resources: Value| json!({"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kube-state-metrics"},
        "rules": [
            rule("", json!(["pods"])),
            rule("apiextensions.k8s.io", json!(["customresourcedefinitions"])),
            rule("example.io", json!(kinds)),
        ],
    });
    server.serve(&format!("{RBAC}/clusterroles"), list(&[role]));
    let binding = |kind: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": role, "namespace": "monitoring"},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "name": "system:authenticated"}],
        })
    };
    let bound = binding("ClusterRoleBinding", "kube-state-metrics");
    server.serve(&format!("{RBAC}/clusterrolebindings"), list(&[bound]));
    server.serve(&format!("{RBAC}/rolebindings"), list(&[binding("RoleBinding", "absent")]));
    server.serve(&format!("{RBAC}/roles"), list(&[]));
    server.serve(REVIEWS, review);
    server
}

fn review(allowed: bool) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {},
        "status": {"allowed": allowed},
    })
}

/// Runs `kstatd check --pre` and returns its exit code and what it prints about rights.
fn rights(server: &ApiServer) -> (i32, String) {
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let output = run("kstatd", ["check", "--pre", &kubeconfig]);
    let sections = output.stdout.split("\n\n");
    let mut rights = sections.filter(|section| section.contains(": rights of the service account"));
    let rights = rights.next().unwrap_or_else(|| panic!("{output:?}"));
    (output.status.code().expect("a code"), rights.to_owned())
}

#[test]
fn bindings_tell_about_many_rights_if_reviews_are_forbidden() {
    let server = with_custom_kinds(&[], 119, forbidden("no reviews"));
    let (code, text) = rights(&server);
    assert_eq!(code, 1, "{text}");
    let missing = "× may not list, watch kind119s.example.io (by its bindings)";
    assert!(text.contains(missing), "{text}");
    assert!(text.contains("! the role absent is not in the cluster"), "{text}");
    // Neither is known.
    server.serve(&format!("{RBAC}/rolebindings"), forbidden("no bindings"));
    let (code, text) = rights(&server);
    assert_eq!(code, 0, "{text}");
    let reasons = ["! not known: ", "no reviews; ", "/rolebindings: 403 no bindings"];
    assert!(reasons.iter().all(|reason| text.contains(reason)), "{text}");
}

#[test]
fn bindings_that_grant_all_of_many_rights_are_named_as_the_source() {
    let server = with_custom_kinds(&[], 120, review(false));
    let (code, text) = rights(&server);
    let all = "√ has all 244 rights that these flags need (by its bindings)";
    assert!(text.ends_with(all) && !text.contains("the role absent"), "{text}");
    assert_eq!((code, server.bodies()), (0, vec![]));
}

#[test]
fn reviews_tell_about_what_bindings_do_not_grant() {
    for allowed in [true, false] {
        let server = with_custom_kinds(&[], 119, review(allowed));
        let (code, text) = rights(&server);
        assert_eq!((code, server.bodies().len()), (i32::from(!allowed), 2), "{text}");
        let how = "(by its bindings and reviews by the API server)";
        assert!(text.contains(how), "{text}");
        assert!(!text.contains("the role absent"), "{text}");
    }
}

#[test]
fn no_right_is_reviewed_twice() {
    let server = with_custom_kinds(&["--namespaces=a,b,c"], 120, review(false));
    server.serve(&format!("{RBAC}/rolebindings"), forbidden("no bindings"));
    let (code, text) = rights(&server);
    assert_eq!(code, 1, "{text}");
    let missing =
        "× may not list, watch kind7s.example.io in the namespace b (reviewed by the API server)";
    assert!(text.contains(missing), "{text}");
    let asked = server.bodies();
    let distinct: BTreeSet<&String> = asked.iter().collect();
    // The rights in all namespaces, and in each of the three, besides those on the definitions.
    assert_eq!((asked.len(), distinct.len()), (242 * 4 + 2, 242 * 4 + 2));
}
