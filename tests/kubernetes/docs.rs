//! The reference of all metrics in `docs/metrics/`, generated from the tables of the resources.
//!
//!     cargo test --test kubernetes docs                  checks that the pages are current
//!     DOCS_UPDATE=1 cargo test --test kubernetes docs    writes them

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use kstatd::exposition::Format;
use kstatd::kube::workloads::{FAMILIES, ledger};
use kstatd::resources::{FamilyInfo, Resource, Stability, registry};

use crate::families::other_labels;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics")
}

#[test]
fn pages_are_current() {
    let folder = folder();
    let pages = pages();
    if std::env::var_os("DOCS_UPDATE").is_some_and(|value| !value.is_empty()) {
        std::fs::create_dir_all(&folder).expect("docs/metrics");
        for (name, text) in &pages {
            std::fs::write(folder.join(name), text).expect(name);
        }
    }
    for (name, want) in &pages {
        let got = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            got == *want,
            "docs/metrics/{name} is not what the tables say; write it with `DOCS_UPDATE=1 cargo test --test kubernetes docs`"
        );
    }
    let known: BTreeSet<_> = pages.into_iter().map(|(name, _)| name).collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "docs/metrics/{name} is of no resource");
    }
}

/// Checks the generated pages, because another test may be writing those in the folder.
#[test]
fn every_family_has_a_row() {
    for resource in registry() {
        let name = resource.name();
        let page = page(*resource);
        for family in resource.families() {
            let row = format!("| `{}` | ", family.name);
            let row = page.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("{name}.md has no row for {}", family.name));
            for label in family.labels.iter().chain(other_labels(family.name).unwrap_or_default()) {
                assert!(row.contains(&format!("`{label}`")), "{row} lacks label {label}");
            }
            let meaning = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
            assert_eq!(meaning, family.help(), "{name}.md");
        }
    }
}

const ORIGIN: &str =
    "<!-- Generated from the tables in src/resources by tests/kubernetes/docs.rs. -->\n\n";

/// Returns the pages: file name and text, the index `README.md` first.
fn pages() -> Vec<(String, String)> {
    let resources = registry();
    let pages = resources.iter().map(|resource| {
        let name = format!("{}.md", resource.name());
        (name, page(*resource))
    });
    let workloads = ("workloads.md".to_owned(), workloads_page());
    let events = ("events.md".to_owned(), events_page());
    let first = [("README.md".to_owned(), index(resources)), workloads, events];
    first.into_iter().chain(pages).collect()
}

fn index(resources: &[&'static dyn Resource]) -> String {
    let mut out = format!("# Metrics of Kubernetes objects\n\n{ORIGIN}");
    out.push_str(
        "One page for each resource that `--resources` can name. HELP of a stable metric begins with\n\
         `[STABLE]`: its name and labels stay. Resources marked *off* are watched only if named.\n\n\
         | Resource | Kind | Metrics | Default |\n|---|---|---|---|\n",
    );
    line(
        &mut out,
        format_args!(
            "| [workloads](workloads.md) | of pods | {} | on in `kstatd run` |",
            FAMILIES.len()
        ),
    );
    let events: usize = ledger::RESOURCES.iter().map(|resource| resource.families.len()).sum();
    line(
        &mut out,
        format_args!(
            "| [events](events.md) | of pods, jobs, nodes and Kubernetes Events | {events} | on in `kstatd run` |"
        ),
    );
    for resource in resources {
        let name = resource.name();
        let api = resource.api();
        let default = if api.default_enabled { "on" } else { "*off*" };
        let families = resource.families().len();
        line(
            &mut out,
            format_args!(
                "| [{name}]({name}.md) | `{}` {} | {families} | {default} |",
                group_version(*resource),
                api.kind
            ),
        );
    }
    out
}

const WORKLOADS: &str = "\
# workloads

<!-- Generated from the table in src/kube/workloads by tests/kubernetes/docs.rs. -->

The workload of each pod, and totals over the pods of workloads, namespaces and nodes. They are on in `kstatd run`, and off under the
name kube-state-metrics unless `--metric-opt-in-list` names them. All are alpha gauges. They need `pods`, and are off with `--node` and
`--track-unscheduled-pods`, which watch only a part of the pods.

**Workload.** The owner that controls a pod; through a ReplicaSet or Job, the owner of that. `workload_type` is the kind in lower case,
such as `deployment`, `cronjob`, `statefulset` or `rollout`; `barepod` and `staticpod` are workloads of one pod, named after it. Labels are
those of kubernetes-mixin's `namespace_workload_pod:kube_pod_owner:relabel`, which [deploy/mixin](../../deploy/mixin) replaces by one rule.
Unlike there, pods of CronJobs and of custom owners of ReplicaSets belong to those instead of the Job or ReplicaSet. ReplicaSets and
Jobs are needed for this: they are watched with `pods`, as metadata if `--resources` omits them or their own families are denied. A
pod whose ReplicaSet or Job is unknown, as it cannot be listed, has no workload, but counts for its namespace and node;
the status page names the kind that cannot be listed.

**Totals** equal the sums of the families of pods in every scrape, completed pods included: `kube_pod_status_phase`,
`kube_pod_status_ready{condition=\"true\"}`, `kube_pod_container_resource_requests` and `…_limits`. A pod counts once for each reason
in `pods_waiting`, whatever the number of its containers, init containers included. Pods that a budget leaves without series count
nevertheless. `pods_desired` is `spec.replicas`, or `status.desiredNumberScheduled` of a DaemonSet, of watched kinds. A workload,
namespace or node has totals of `cpu`, `memory`, `ephemeral_storage` and the first 500 resources by name; others are left out.
One whose totals outgrow `--limit.series-per-kind` has none until there is room.

**Labels on the families of pods.** `--pod-workload-labels=workload,workload_type,labels=[team],pod_labels=[track]` adds labels to every
series of `kube_pod_*` and `kstatd_pod_*`, for queries without joins; off by default, also under the original's name. They follow `uid`: `pod_label_*`
for labels of the pod itself, `workload`, `workload_type`, and `workload_label_*` for labels of the workload's object, of the kinds Deployment, StatefulSet,
DaemonSet, ReplicaSet, ReplicationController, Job and CronJob, which are then watched as metadata if `--resources` omits them. In
`kstatd_pod_workload_info` they follow `workload_type`. Names and values are made as those of `kube_pod_labels`, with
`--metric-labels-normalise`; values over `--limit.values-per-label` are folded. A pod has other series as
soon as its workload or one of the labels changes. A pod whose workload is unknown yet, or cannot be listed, has no labels of it until it is
known. With `--node`, each process watches the owners of the whole cluster for these labels. A custom owner, such as an Argo Rollout, is known from
owner references alone: its name and kind are shown, but not its labels, because these would need a list/watch, and the right to it, for each
kind of custom owner. Its pods usually have the same labels, which `pod_labels` selects. Families of a custom resource configuration keep their labels.

**Reloads.** While a namespace cannot be listed for new options, its objects count as before. Their `pod_label_*`, `workload_label_*` and
`pods_desired` are still those for which the former options asked.

**Shards.** Every shard watches all pods. A pod's info is served by the shard of the pod, totals of a workload by the shard of the
workload's UID, and those of namespaces and nodes by the shard of the name's hash.

| Metric | Labels | Meaning | Example |
|---|---|---|---|
";

/// A query with each family.
const EXAMPLES: [(&str, &str); 18] = [
    (
        "kstatd_pod_workload_info",
        "sum by (namespace, workload, workload_type) (kube_pod_container_status_restarts_total * on (namespace, pod, uid) group_left (workload, workload_type) kstatd_pod_workload_info)",
    ),
    ("kstatd_workload_info", "count by (namespace, workload_type) (kstatd_workload_info)"),
    ("kstatd_workload_pods", "kstatd_workload_pods{phase=\"Pending\"} > 0"),
    ("kstatd_workload_pods_ready", "kstatd_workload_pods_ready < kstatd_workload_pods_desired"),
    (
        "kstatd_workload_pods_desired",
        "kstatd_workload_pods_desired - on (namespace, workload, workload_type) kstatd_workload_pods_ready",
    ),
    ("kstatd_workload_pods_waiting", "kstatd_workload_pods_waiting{reason=\"CrashLoopBackOff\"}"),
    (
        "kstatd_workload_resource_requests",
        "topk(10, kstatd_workload_resource_requests{resource=\"cpu\"})",
    ),
    (
        "kstatd_workload_resource_limits",
        "sum by (namespace) (kstatd_workload_resource_limits{resource=\"memory\"})",
    ),
    ("kstatd_namespace_pods", "sum(kstatd_namespace_pods{phase=\"Running\"})"),
    ("kstatd_namespace_pods_ready", "topk(10, kstatd_namespace_pods_ready)"),
    ("kstatd_namespace_pods_waiting", "sum by (reason) (kstatd_namespace_pods_waiting)"),
    (
        "kstatd_namespace_resource_requests",
        "kstatd_namespace_resource_requests{resource=\"memory\"}",
    ),
    ("kstatd_namespace_resource_limits", "kstatd_namespace_resource_limits{resource=\"cpu\"}"),
    ("kstatd_kube_node_pods", "sum by (node) (kstatd_kube_node_pods{phase=~\"Pending|Running\"})"),
    ("kstatd_kube_node_pods_ready", "bottomk(3, kstatd_kube_node_pods_ready)"),
    ("kstatd_kube_node_pods_waiting", "sum by (node) (kstatd_kube_node_pods_waiting) > 5"),
    (
        "kstatd_kube_node_resource_requests",
        "kstatd_kube_node_resource_requests{resource=\"cpu\"} / on (node) kube_node_status_allocatable{resource=\"cpu\"}",
    ),
    (
        "kstatd_kube_node_resource_limits",
        "kstatd_kube_node_resource_limits{resource=\"memory\"} / on (node) kube_node_status_allocatable{resource=\"memory\"}",
    ),
];

fn workloads_page() -> String {
    let mut out = WORKLOADS.to_owned();
    for family in &FAMILIES {
        let example = EXAMPLES.iter().find(|(name, _)| *name == family.name);
        let (_, example) = example.unwrap_or_else(|| panic!("{} has no example", family.name));
        assert!(example.contains(family.name), "{example}");
        line(
            &mut out,
            format_args!(
                "| `{}` | {} | {} | `{}` |",
                family.name,
                labels(&family.labels()),
                family.help,
                example.replace('|', "\\|")
            ),
        );
    }
    out
}

const EVENTS: &str = "\
# events

<!-- Generated from the table in src/kube/workloads/ledger by tests/kubernetes/docs.rs. -->

Counters of what happens to pods, jobs and nodes, derived from the differences between their successive states. An OOM kill between two
scrapes is counted. They are on in `kstatd run`, and off under the name kube-state-metrics unless `--metric-opt-in-list` names them. All
are alpha counters. Workloads and labels are those of [workloads](workloads.md).

**Kubernetes Events** are counted only with `--kubernetes-events`, under either name. The counts are those of the API (`count` and
`series.count`): each occurrence counts once, over updates, relists and lost events, and the events of the first list are old. An event that
happens again after it expired or was deleted is created anew with its former count; this counts as one occurrence. An event
about a pod, ReplicaSet or Job counts for its workload if pods are watched; a workload that becomes known up to 10 s after the event is enough. Other objects,
such as nodes, have an empty `workload`. `namespace` is that of the event. These counters appear with their first occurrence. They cost one
list/watch of `events` and no other requests; about 150 bytes are kept for each event until the API deletes it.

**Exactness.** Each termination that the API reports counts once: over lost events, relists, reloads and restored backups. `restartCount`
proves terminations that were not seen; they count with `reason=\"unknown\"` and an empty `exit_code`. Terminations of a pod that was
created and deleted while events were lost are not counted, because the API does not report them. The same applies to ends of pods and jobs
that were deleted after they had been dropped because their kind was refused for longer than `--staleness-limit`. All containers count: init
containers, sidecars and ephemeral ones.

**Start.** What the first list of a kind reports is old and does not count, nor does what happens while no process runs. A pod that
appears later, and was created later, starts with what its status proves. A reload keeps the counters; a restart resets them.

**`increase()`** does not see a counter that appears with the value 1. Therefore counters of a workload exist at 0 from its first pod or
job: `OOMKilled`, `Error` and `Completed` for each container; `Succeeded`, `Failed` and `Evicted` of pods; `Complete`,
`BackoffLimitExceeded` and `DeadlineExceeded` of jobs. Counters of a node's condition exist at 0 from its first appearance. Other reasons,
and counters of pods, appear with their first event.

**Reasons.** Terminations have the reason of the container runtime; without one, `Completed` or `Error` by exit code. A pod ends with its
`status.reason` (`Evicted`, `NodeLost`, …), else the reason of its DisruptionTarget condition (`DeletionByTaintManager`,
`EvictionByEvictionAPI`, …), else `Deleted` if it was being deleted, else its phase. `Preempted` stands for `PreemptionByScheduler` and the
kubelet's `Preempting`. A pod that was deleted before it had a final phase ends with `Deleted`, and one that is missing after lost events
with `unknown`. The same applies to jobs, whose reasons are `Complete` and those of the Failed condition. A transition counts for the
status that it leads to.

**Removal.** Counters of a pod or node end with it. Counters of a workload are removed `--workload-counter-retention` (1h) after the
workload and its last pod or job are gone. Beyond 500 label sets of one workload, pod or node in a family, the reason is `other`, and
beyond 1,000 all labels but those of the owner; beyond `--limit.series-per-kind` new series are omitted and counted; Kubernetes
Events have a budget of their own. Counters of Kubernetes Events without a workload are removed after the same time without events in
the namespace.

**Shards.** The UID of the workload decides which shard serves its counters and those of its pods, and the node's UID those of the node.
A workload that moves to another shard starts at 0 there. If a new workload has the name of an old one and belongs to another shard, the
old one's counters end, and later events of its remaining pods are missing in the counters of workloads. Kubernetes Events about objects
without a workload are divided by the UIDs of those objects: add up the shards.

| Metric | Labels | Meaning | Example |
|---|---|---|---|
";

/// A query with each family of events.
const EVENT_EXAMPLES: [(&str, &str); 6] = [
    (
        "kstatd_kube_events_total",
        "topk(10, sum by (namespace, workload, reason) (increase(kstatd_kube_events_total{type=\"Warning\"}[1h])))",
    ),
    (
        "kstatd_kube_node_condition_transitions_total",
        "increase(kstatd_kube_node_condition_transitions_total{condition=\"Ready\",status!=\"true\"}[1h]) > 2",
    ),
    (
        "kstatd_pod_container_terminations_total",
        "topk(10, sum by (namespace, pod) (kstatd_pod_container_terminations_total{reason=\"OOMKilled\"}))",
    ),
    (
        "kstatd_workload_container_terminations_total",
        "increase(kstatd_workload_container_terminations_total{reason=\"OOMKilled\"}[1h]) > 0",
    ),
    (
        "kstatd_workload_pods_finished_total",
        "sum by (namespace, workload) (increase(kstatd_workload_pods_finished_total{reason=\"Evicted\"}[1d])) > 0",
    ),
    (
        "kstatd_jobs_finished_total",
        "increase(kstatd_jobs_finished_total{reason!=\"Complete\",workload_type=\"cronjob\"}[1d]) > 0",
    ),
];

fn events_page() -> String {
    let mut out = EVENTS.to_owned();
    for resource in ledger::RESOURCES {
        for family in resource.families {
            let example = EVENT_EXAMPLES.iter().find(|(name, _)| *name == family.name);
            let (_, example) = example.unwrap_or_else(|| panic!("{} has no example", family.name));
            assert!(example.contains(family.name), "{example}");
            let labels = labels(&[resource.owner, family.labels].concat());
            let (name, help) = (family.name, family.help);
            line(&mut out, format_args!("| `{name}` | {labels} | {help} | `{example}` |"));
        }
    }
    out
}

fn page(resource: &'static dyn Resource) -> String {
    let api = resource.api();
    let mut out = format!("# {}\n\n{ORIGIN}", resource.name());
    let scope = if api.namespaced { "namespaced" } else { "cluster-wide" };
    let default = if api.default_enabled {
        "watched by default"
    } else {
        "watched if `--resources` names it"
    };
    line(&mut out, format_args!("`{}` {}, {scope}, {default}.", group_version(resource), api.kind));
    let identity = labels(&resource.identity_labels());
    line(
        &mut out,
        format_args!(
            "Every series begins with {identity}; the labels below follow in this order.\n"
        ),
    );
    out.push_str("| Metric | Type | Stability | Labels | Meaning |\n|---|---|---|---|---|\n");
    for family in resource.families() {
        row(&mut out, &family);
    }
    if resource
        .families()
        .iter()
        .any(|family| family.labels.iter().any(|label| label.ends_with('*')))
    {
        out.push_str(
            "\nA label that ends in `*` stands for one label for each key of the object's map: the key in\n\
             lower case, with `_` for what a label name cannot hold.\n",
        );
    }
    out
}

fn row(out: &mut String, family: &FamilyInfo) {
    let stability = match family.stability {
        Stability::Stable => "stable",
        Stability::Alpha => "alpha",
    };
    let opt_in = if family.opt_in { ", opt-in" } else { "" };
    let deprecated =
        family.deprecated.map_or(String::new(), |since| format!(", deprecated since {since}"));
    let alternative = match other_labels(family.name) {
        Some([]) => " or none".to_owned(),
        Some(other) => format!(" or {}", labels(other)),
        None => String::new(),
    };
    line(
        out,
        format_args!(
            "| `{}` | {} | {stability}{opt_in}{deprecated} | {}{alternative} | {} |",
            family.name,
            family.kind.text(Format::OpenMetrics),
            labels(family.labels),
            family.help(),
        ),
    );
}

fn labels(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn group_version(resource: &'static dyn Resource) -> String {
    let api = resource.api();
    let slash = if api.group.is_empty() { "" } else { "/" };
    format!("{}{slash}{}", api.group, api.version)
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
