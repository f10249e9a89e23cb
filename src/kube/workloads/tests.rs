//! Workloads and totals over random histories of pods and owners, compared with the families of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::timeout;

use super::ledger::{LedgerOptions, SharedLedger};
use super::{FAMILIES, PodLabels, WorkloadOptions, Workloads};
use crate::cache::{Catalog, Rendered, Store};
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::follow::handover::ServedObjects;
use crate::kube::observed::ObservedObject;
use crate::kube::observer::ObjectObserver;
use crate::kube::shard::Shard;
use crate::resources::{ObjectBytes, RenderOptions, Renderer, find};
use crate::telemetry::KubeMetrics;

mod bounds;

/// A series: its name, and its labels by name.
type Series = (String, BTreeMap<String, String>);

fn observed(object: &str) -> ObservedObject<'_> {
    ObservedObject::new(ObjectBytes::Json(object.as_bytes()))
}

/// The list/watches of a cluster, without a server.
struct World {
    catalog: Catalog,
    workloads: Workloads,
    /// The rendered pods.
    pods: Arc<dyn Renderer>,
    store: Arc<Store>,
    observers: BTreeMap<&'static str, Arc<dyn ObjectObserver>>,
}

impl World {
    fn new(shard: Shard) -> Self {
        let labels = PodLabels::parse("workload,workload_type").expect("valid");
        Self::with(shard, labels, Budget::default())
    }

    fn with(shard: Shard, pod_labels: PodLabels, budget: Budget) -> Self {
        let ledger = LedgerOptions { budget: Arc::new(budget), ..LedgerOptions::default() };
        let families = FAMILIES.iter().collect();
        Self::of(
            shard,
            &WorkloadOptions { families, ledger, pod_labels, ..WorkloadOptions::default() },
        )
    }

    fn of(shard: Shard, options: &WorkloadOptions) -> Self {
        let catalog = Catalog::new();
        let metrics = KubeMetrics::default();
        let ledger = SharedLedger::new(&options.ledger, &catalog, &metrics);
        let workloads = Workloads::new(options, &catalog, &metrics, &ledger, None, shard);
        let pods = find("pods").expect("a kind").renderer(&RenderOptions::default());
        let store = Arc::new(Store::new(pods.schema()));
        catalog.register(pods.schema(), vec![Arc::clone(&store)]);
        let observe = |(name, factory): (&&'static str, &Arc<_>)| {
            let factory: &Arc<dyn super::ObserverFactory> = factory;
            let observer = Arc::clone(factory).observe();
            observer.attach(series_of(&store));
            observer.show();
            (*name, observer)
        };
        let observers = workloads.observers.iter().map(observe).collect();
        Self { catalog, workloads, pods, store, observers }
    }

    fn put(&self, kind: &str, object: &str) {
        if kind == "pods" {
            self.store.apply(&self.render(object, &*self.observers[kind]));
        }
        self.observers[kind].put(&observed(object), false);
    }

    fn render(&self, object: &str, observer: &dyn ObjectObserver) -> Rendered {
        let mut rendered = Rendered::default();
        self.pods.render(ObjectBytes::Json(object.as_bytes()), &mut rendered).expect("valid");
        observer.identify(&observed(object), &mut rendered.identity);
        rendered
    }

    fn delete(&self, kind: &str, uid: &str) {
        if kind == "pods" {
            self.store.delete(uid.as_bytes());
        }
        self.observers[kind].delete(uid.as_bytes(), false);
    }

    /// Lists a kind anew, over another list/watch if `other`.
    fn relist(&mut self, kind: &'static str, objects: &[String], other: bool) {
        let observer = if other {
            let observer = Arc::clone(&self.workloads.observers[kind]).observe();
            observer.attach(series_of(&self.store));
            observer
        } else {
            Arc::clone(&self.observers[kind])
        };
        observer.begin_list();
        for object in objects {
            observer.put(&observed(object), true);
        }
        if kind == "pods" {
            let mut replacement = self.store.replace();
            objects.iter().for_each(|object| replacement.push(&self.render(object, &*observer)));
            replacement.commit();
        }
        observer.end_list(true);
        if other {
            observer.show();
            self.observers.insert(kind, observer).expect("one before").close();
        }
    }

    /// Returns the series of a scrape, without those that are 0.
    fn series(&self) -> BTreeMap<Series, f64> {
        let body = self.catalog.frames(Format::Text, &ScrapeQuery::default());
        let body = String::from_utf8(body.flatten().collect()).expect("text");
        let mut all = BTreeMap::new();
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.trim_end_matches('}').split_once('{').expect("labels");
            let labels = labels.split(',').map(|label| {
                let (name, value) = label.split_once('=').expect("a label");
                (name.to_owned(), value.trim_matches('"').to_owned())
            });
            let value: f64 = value.parse().expect("a number");
            let old = all.insert((name.to_owned(), labels.collect()), value);
            assert!(old.is_none(), "twice: {line}");
        }
        all.retain(|_, value| *value != 0.0);
        all
    }
}

/// Returns the series of a list/watch over all namespaces.
fn series_of(store: &Arc<Store>) -> Arc<ServedObjects> {
    Arc::new(ServedObjects::new(None, Arc::clone(store), Shard::ALL))
}

/// Returns the sums of series by some of their labels, under another name.
fn sums(
    series: &BTreeMap<Series, f64>,
    (from, to): (&str, &str),
    by: &[&str],
) -> BTreeMap<Series, f64> {
    let mut sums = BTreeMap::new();
    for ((name, labels), value) in series.iter().filter(|((name, _), _)| name == from) {
        let _ = name;
        let labels = labels.iter().filter(|(label, _)| by.contains(&label.as_str()));
        let labels = labels.map(|(label, value)| (label.clone(), value.clone())).collect();
        *sums.entry((to.to_owned(), labels)).or_insert(0.0) += value;
    }
    sums
}

/// Checks that all totals equal the sums over the families of pods, and that each pod has the workload `expected`.
fn check(world: &World, expected: &BTreeMap<String, Option<(String, String)>>) {
    let mut series = world.series();
    let label = |labels: &BTreeMap<String, String>, name: &str| labels.get(name).cloned();
    let mut workload_of = BTreeMap::new();
    for (name, labels) in series.keys() {
        if name == "kstatd_pod_workload_info" {
            let of = (label(labels, "workload_type").unwrap(), label(labels, "workload").unwrap());
            workload_of.insert(label(labels, "uid").expect("a uid"), of);
        }
    }
    let expected = expected.iter().filter_map(|(uid, of)| Some((uid.clone(), of.clone()?)));
    assert_eq!(workload_of, expected.collect());
    let node_of: BTreeMap<String, String> = series
        .keys()
        .filter(|(name, _)| name == "kube_pod_info")
        .map(|(_, labels)| (label(labels, "uid").unwrap(), label(labels, "node").unwrap()))
        .collect();
    // Joins each series of a pod with its workload and node.
    let mut joined = BTreeMap::new();
    for ((name, labels), value) in &series {
        let Some(uid) = labels.get("uid") else { continue };
        let mut labels = labels.clone();
        labels.insert("node".to_owned(), node_of[uid].clone());
        if name.starts_with("kube_pod_") {
            let named = label(&labels, "workload_type").zip(label(&labels, "workload"));
            assert_eq!(named.as_ref(), workload_of.get(uid), "{name} {labels:?}");
        }
        if let Some((kind, workload)) = workload_of.get(uid) {
            labels.insert("workload_type".to_owned(), kind.clone());
            labels.insert("workload".to_owned(), workload.clone());
        }
        if name == "kube_pod_status_ready" && labels["condition"] != "true" {
            continue;
        }
        if name == "kube_pod_container_status_waiting_reason" {
            labels.remove("container");
        }
        joined.insert((name.clone(), labels), *value);
    }
    let mut totals = BTreeMap::new();
    for (subject, by) in [
        ("workload", &["namespace", "workload", "workload_type"][..]),
        ("namespace", &["namespace"]),
        ("kube_node", &["node"]),
    ] {
        let by_subject = joined.iter().filter(|((_, labels), _)| {
            by.iter().all(|name| labels.get(*name).is_some_and(|value| !value.is_empty()))
        });
        let by_subject: BTreeMap<_, _> =
            by_subject.map(|(series, value)| (series.clone(), *value)).collect();
        for (from, to, own) in [
            ("kube_pod_status_phase", "pods", &["phase"][..]),
            ("kube_pod_status_ready", "pods_ready", &[]),
            ("kube_pod_container_status_waiting_reason", "pods_waiting", &["reason"]),
            ("kube_pod_container_resource_requests", "resource_requests", &["resource", "unit"]),
            ("kube_pod_container_resource_limits", "resource_limits", &["resource", "unit"]),
        ] {
            let to = format!("kstatd_{subject}_{to}");
            totals.extend(sums(&by_subject, (from, &to), &[by, own].concat()));
        }
    }
    series.retain(|(name, _), _| {
        name.starts_with("kstatd_")
            && !name.ends_with("_info")
            && name != "kstatd_workload_pods_desired"
    });
    let names = |all: &BTreeMap<Series, f64>| all.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&series), names(&totals));
    for (series, value) in &series {
        let want = totals[series];
        assert!((value - want).abs() <= want.abs() * 1e-12, "{series:?}: {value}, not {want}");
    }
}

/// An owner reference: kind, name and UID.
fn reference(kind: &str, name: &str, uid: &str) -> String {
    let version = match kind {
        "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Deployment" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        "Rollout" => "argoproj.io/v1alpha1",
        _ => "v1",
    };
    format!(
        r#"{{"apiVersion":"{version}","kind":"{kind}","name":"{name}","uid":"{uid}","controller":true}}"#
    )
}

fn metadata(name: &str, uid: &str, owner: &str) -> String {
    format!(
        r#""metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"1","ownerReferences":[{owner}]}}"#
    )
}

/// A pod in one of a few states.
fn pod(number: u8, state: u8, owner: &str) -> String {
    let phase = ["Pending", "Running", "Running", "Succeeded", "Failed"][usize::from(state % 5)];
    let ready = if state % 5 == 1 { "True" } else { "False" };
    let node = if phase == "Pending" { "" } else { ["node-a", "node-b"][usize::from(state % 2)] };
    let waiting = if state.is_multiple_of(3) {
        r#"{"name":"c","state":{"waiting":{"reason":"CrashLoopBackOff"}}}"#
    } else {
        r#"{"name":"c","state":{"running":{}}}"#
    };
    format!(
        r#"{{{},"spec":{{"nodeName":"{node}","containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{}m","memory":"64Mi"}},"limits":{{"memory":"{}Mi"}}}}}},{{"name":"d","resources":{{"requests":{{"cpu":"7m"}}}}}}]}},"status":{{"phase":"{phase}","conditions":[{{"type":"Ready","status":"{ready}"}}],"containerStatuses":[{waiting}]}}}}"#,
        metadata(&format!("pod-{number}"), &format!("p{number}"), owner),
        50 + u32::from(state) * 13,
        32 << (state % 4),
    )
}

/// The owners that a pod can have, by number.
fn pod_owner(number: u8) -> String {
    match number % 7 {
        0 => String::new(),
        1 => reference("Node", "node-a", "node"),
        2 => reference("StatefulSet", "db", "s"),
        3 => reference("Kafka", "broker", "k"),
        4 => reference("Job", "job", "j"),
        _ => reference("ReplicaSet", &format!("rs-{}", number % 3), &format!("r{}", number % 3)),
    }
}

/// The owners that a ReplicaSet or Job can have. Number 3 is a cycle.
fn link_owner(kind: &str, number: u8, uid: &str) -> String {
    match number % 4 {
        0 => String::new(),
        1 => reference(if kind == "Job" { "CronJob" } else { "Deployment" }, "web", "d"),
        2 => reference("Rollout", "canary", "o"),
        _ => reference(kind, "itself", uid),
    }
}

#[derive(Clone, Debug)]
enum Op {
    Pod(u8, u8, u8),
    DeletePod(u8),
    ReplicaSet(u8, u8),
    DeleteReplicaSet(u8),
    Job(Option<u8>),
    Relist(&'static str, bool),
    Shards,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let kinds = prop::sample::select(vec!["pods", "replicasets", "jobs"]);
    let op = prop_oneof![
        12 => (0..12u8, any::<u8>(), 0..14u8).prop_map(|(pod, state, owner)| Op::Pod(pod, state, owner)),
        4 => (0..12u8).prop_map(Op::DeletePod),
        4 => (0..3u8, 0..4u8).prop_map(|(set, owner)| Op::ReplicaSet(set, owner)),
        2 => (0..3u8).prop_map(Op::DeleteReplicaSet),
        2 => prop::option::of(0..4u8).prop_map(Op::Job),
        2 => (kinds, any::<bool>()).prop_map(|(kind, other)| Op::Relist(kind, other)),
        1 => Just(Op::Shards),
    ];
    prop::collection::vec(op, 1..60)
}

/// The objects of the cluster: the texts by kind and UID.
#[derive(Default)]
struct Model {
    pods: BTreeMap<String, (String, u8)>,
    /// The number of the owner of each ReplicaSet and Job.
    links: BTreeMap<&'static str, BTreeMap<String, (String, u8)>>,
}

impl Model {
    /// Returns type and name of each pod's workload.
    fn expected(&self) -> BTreeMap<String, Option<(String, String)>> {
        let link = |kind: &'static str, plural, uid: &str, name: String| {
            let (_, owner) = self.links.get(plural)?.get(uid)?;
            let (of, name) = match owner % 4 {
                0 => (kind.to_lowercase(), name),
                1 => {
                    (if kind == "Job" { "cronjob" } else { "deployment" }.to_owned(), "web".into())
                }
                2 => ("rollout".to_owned(), "canary".to_owned()),
                _ => (kind.to_lowercase(), "itself".to_owned()),
            };
            Some((of, name))
        };
        let workload = |uid: &str, owner: u8| match owner % 7 {
            0 => Some(("barepod".to_owned(), uid.replace('p', "pod-"))),
            1 => Some(("staticpod".to_owned(), uid.replace('p', "pod-"))),
            2 => Some(("statefulset".to_owned(), "db".to_owned())),
            3 => Some(("kafka".to_owned(), "broker".to_owned())),
            4 => link("Job", "jobs", "j", "job".to_owned()),
            _ => {
                let (uid, name) = (format!("r{}", owner % 3), format!("rs-{}", owner % 3));
                link("ReplicaSet", "replicasets", &uid, name)
            }
        };
        self.pods.iter().map(|(uid, (_, owner))| (uid.clone(), workload(uid, *owner))).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Totals equal the sums of the families of pods after every change, and every pod has the workload that its owners
    /// say: over changed owners, cycles, relists and replaced list/watches.
    #[test]
    fn totals_equal_the_sums_of_the_families_of_pods(ops in ops()) {
        let mut world = World::new(Shard::ALL);
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Pod(number, state, owner) => {
                    let object = pod(number, state, &pod_owner(owner));
                    world.put("pods", &object);
                    model.pods.insert(format!("p{number}"), (object, owner));
                }
                Op::DeletePod(number) => {
                    world.delete("pods", &format!("p{number}"));
                    model.pods.remove(&format!("p{number}"));
                }
                Op::ReplicaSet(number, owner) => {
                    let uid = format!("r{number}");
                    let owner_text = link_owner("ReplicaSet", owner, &uid);
                    let object = format!("{{{}}}", metadata(&format!("rs-{number}"), &uid, &owner_text));
                    world.put("replicasets", &object);
                    model.links.entry("replicasets").or_default().insert(uid, (object, owner));
                }
                Op::DeleteReplicaSet(number) => {
                    world.delete("replicasets", &format!("r{number}"));
                    model.links.entry("replicasets").or_default().remove(&format!("r{number}"));
                }
                Op::Job(owner) => {
                    let jobs = model.links.entry("jobs").or_default();
                    if let Some(owner) = owner {
                        let object = format!("{{{}}}", metadata("job", "j", &link_owner("Job", owner, "j")));
                        world.put("jobs", &object);
                        jobs.insert("j".to_owned(), (object, owner));
                    } else {
                        world.delete("jobs", "j");
                        jobs.clear();
                    }
                }
                Op::Relist(kind, other) => {
                    let objects: Vec<String> = if kind == "pods" {
                        model.pods.values().map(|(object, _)| object.clone()).collect()
                    } else {
                        let links = model.links.entry(kind).or_default();
                        links.values().map(|(object, _)| object.clone()).collect()
                    };
                    world.relist(kind, &objects, other);
                }
                Op::Shards => {
                    let whole = world.series();
                    let of_workloads = |series: BTreeMap<Series, f64>| -> Vec<_> {
                        series.into_iter().filter(|((name, _), _)| name.starts_with("kstatd_")).collect()
                    };
                    let mut parts = Vec::new();
                    for index in 0..3 {
                        world.workloads.set_shard(Shard::new(index, 3));
                        parts.extend(of_workloads(world.series()));
                    }
                    parts.sort_by(|a, b| a.0.cmp(&b.0));
                    world.workloads.set_shard(Shard::ALL);
                    prop_assert_eq!(parts, of_workloads(whole));
                }
            }
            check(&world, &model.expected());
        }
    }
}

/// Returns the values of a family by workload.
fn by_workload(world: &World, family: &str) -> BTreeMap<String, f64> {
    let of = world.series().into_iter().filter(|((name, _), _)| name == family);
    of.map(|((_, labels), value)| (labels["workload"].clone(), value)).collect()
}

#[test]
fn workloads_exist_with_their_objects() {
    let world = World::new(Shard::ALL);
    let deployment = |uid: &str, replicas: u32| {
        format!(r#"{{{},"spec":{{"replicas":{replicas}}}}}"#, metadata("web", uid, ""))
    };
    world.put("deployments", &deployment("d", 3));
    assert_eq!(by_workload(&world, "kstatd_workload_pods_desired")["web"], 3.0);
    assert_eq!(by_workload(&world, "kstatd_workload_info")["web"], 1.0);
    world.put(
        "daemonsets",
        &format!(
            r#"{{{},"status":{{"desiredNumberScheduled":5}}}}"#,
            metadata("agent", "a", &reference("Operator", "op", "x"))
        ),
    );
    assert_eq!(by_workload(&world, "kstatd_workload_pods_desired")["agent"], 5.0);
    // A successor of the same name is the same workload.
    world.put("deployments", &deployment("e", 4));
    world.delete("deployments", "d");
    assert_eq!(by_workload(&world, "kstatd_workload_pods_desired")["web"], 4.0);
    world.delete("deployments", "e");
    assert!(!by_workload(&world, "kstatd_workload_info").contains_key("web"));
}

/// A pod cannot be counted for a workload in another namespace.
#[test]
fn owners_of_other_namespaces_are_not_followed() {
    let world = World::new(Shard::ALL);
    let set = metadata("rs", "r", &reference("Deployment", "web", "d"));
    world.put("replicasets", &format!("{{{}}}", set.replace(r#""n""#, r#""other""#)));
    world.put("pods", &pod(1, 1, &reference("ReplicaSet", "rs", "r")));
    assert_eq!(by_workload(&world, "kstatd_workload_pods"), BTreeMap::new());
    world.put("replicasets", &format!("{{{set}}}"));
    assert_eq!(by_workload(&world, "kstatd_workload_pods")["web"], 1.0);
}

/// Labels on the series of a pod follow its own labels and those of its workload, whichever is seen first, and values over
/// the budget are folded until there is room.
#[test]
fn labels_of_pods_follow_their_workloads() {
    let labels = PodLabels::parse("labels=[app.kubernetes.io/team],pod_labels=[track]");
    let budget = Budget { mode: BudgetMode::Enforce, values_per_label: 1, ..Budget::default() };
    let mut world = World::with(Shard::ALL, labels.expect("valid"), budget);
    let labelled = |object: String, labels: &str| {
        object.replacen(
            r#""resourceVersion""#,
            &format!(r#""labels":{{{labels}}},"resourceVersion""#),
            1,
        )
    };
    let deployment = |name: &str, team: &str| {
        let team = format!(r#""app.kubernetes.io/team":"{team}","other":"x""#);
        labelled(format!("{{{}}}", metadata(name, name, "")), &team)
    };
    let labels_of = |world: &World, number: u8| {
        let series = world.series();
        let of_pod = |labels: &BTreeMap<String, String>| labels["pod"] == format!("pod-{number}");
        let of_pod =
            series.keys().filter(|(name, labels)| name.contains("_pod_") && of_pod(labels));
        let labels: BTreeSet<[Option<String>; 2]> = of_pod
            .map(|(_, labels)| {
                ["pod_label_track", "workload_label_app_kubernetes_io_team"]
                    .map(|name| labels.get(name).cloned())
            })
            .collect();
        let all: Vec<_> = labels.into_iter().collect();
        let [[own, of_workload]] = &all[..] else { panic!("{all:?}") };
        format!("{} {}", own.as_deref().unwrap_or("-"), of_workload.as_deref().unwrap_or("-"))
    };
    let owned = pod(1, 1, &reference("ReplicaSet", "web-1", "r"));
    world.put("pods", &owned);
    assert_eq!(labels_of(&world, 1), "- -");
    world.put("deployments", &deployment("web", "red"));
    assert_eq!(labels_of(&world, 1), "- -");
    let set = |owner: &str| {
        format!("{{{}}}", metadata("web-1", "r", &reference("Deployment", owner, owner)))
    };
    world.put("replicasets", &set("web"));
    assert_eq!(labels_of(&world, 1), "- red");
    world.put("pods", &labelled(owned.clone(), r#""track":"a","x":"y""#));
    assert_eq!(labels_of(&world, 1), "a red");
    world.put("deployments", &deployment("web", "green"));
    assert_eq!(labels_of(&world, 1), "a green");
    // The second value of a label is over the budget.
    let second = labelled(pod(2, 1, &reference("Deployment", "db", "db")), r#""track":"b""#);
    world.put("pods", &second);
    world.put("deployments", &deployment("db", "blue"));
    assert_eq!(labels_of(&world, 2), "other other");
    // Nothing has changed that a total or a label depends on.
    world.put("pods", &second.replacen(r#""labels""#, r#""annotations":{"a":"b"},"labels""#, 1));
    assert_eq!(labels_of(&world, 2), "other other");
    // Another list shows values for which there is room.
    world.delete("pods", "p1");
    world.delete("deployments", "web");
    world.relist("pods", &[second], false);
    world.relist("deployments", &[deployment("db", "blue")], true);
    world.put("deployments", &deployment("web", "green"));
    assert_eq!(labels_of(&world, 2), "b blue");
    world.put("pods", &owned);
    assert_eq!(labels_of(&world, 1), "- other");
    world.put("replicasets", &set("db"));
    assert_eq!(labels_of(&world, 1), "- blue");
    world.delete("replicasets", "r");
    assert_eq!(labels_of(&world, 1), "- -");
}

/// A workload that still exists after a change of the options keeps its counters for longer than one that is gone, also
/// without pods.
#[tokio::test(start_paused = true)]
async fn counters_of_workloads_outlive_other_options() {
    const HOUR: Duration = Duration::from_secs(3600);
    let ledger = LedgerOptions {
        families: vec!["kstatd_workload_container_terminations_total"],
        retention: HOUR,
        ..LedgerOptions::default()
    };
    let mut options = WorkloadOptions { ledger, ..WorkloadOptions::default() };
    let mut world = World::of(Shard::ALL, &options);
    let events = Arc::clone(&world.workloads.ledger_observers["pods"]).observe();
    events.show();
    let set = format!("{{{}}}", metadata("db", "s", ""));
    world.put("statefulsets", &set);
    let pod = pod(1, 1, &reference("StatefulSet", "db", "s"));
    events.put(&observed(&pod), false);
    world.put("pods", &pod);
    events.delete(b"p1", false);
    world.delete("pods", "p1");
    let is_counted = |world: &World| {
        let body = world.catalog.frames(Format::Text, &ScrapeQuery::default());
        let body = String::from_utf8(body.flatten().collect()).expect("text");
        body.contains("kstatd_workload_container_terminations_total{")
    };
    assert!(is_counted(&world));
    options.families = FAMILIES.iter().collect();
    world.workloads = world.workloads.renewed(&options, &KubeMetrics::default(), Shard::ALL);
    world.relist("statefulsets", std::slice::from_ref(&set), true);
    world.relist("pods", &[], true);
    let ledger = Arc::clone(&world.workloads.ledger);
    let _ = timeout(3 * HOUR, ledger.expire_in_time()).await;
    assert!(is_counted(&world));
    world.delete("statefulsets", "s");
    let _ = timeout(3 * HOUR, ledger.expire_in_time()).await;
    assert!(!is_counted(&world));
}

/// A list/watch may be replaced before it is served: its objects are then not watched any more.
#[test]
fn list_watches_that_were_never_served_leave_no_counters() {
    const NODE: &str = r#"{"metadata":{"name":"a","uid":"a"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    let families = vec!["kstatd_kube_node_condition_transitions_total"];
    let ledger = LedgerOptions { families, ..LedgerOptions::default() };
    let options = WorkloadOptions { ledger, ..WorkloadOptions::default() };
    let world = World::of(Shard::ALL, &options);
    let is_counted = || {
        let body = world.catalog.frames(Format::Text, &ScrapeQuery::default());
        let body = String::from_utf8(body.flatten().collect()).expect("text");
        body.contains("kstatd_kube_node_condition_transitions_total{")
    };
    let factory = &world.workloads.ledger_observers["nodes"];
    let [served, candidate] = [(); 2].map(|()| Arc::clone(factory).observe());
    candidate.begin_list();
    candidate.put(&observed(NODE), true);
    assert!(is_counted());
    drop(candidate);
    assert!(!is_counted());
    served.show();
    let candidate = Arc::clone(factory).observe();
    [&candidate, &served].iter().for_each(|observer| observer.put(&observed(NODE), false));
    drop(candidate);
    assert!(is_counted());
    served.close();
    assert!(!is_counted());
}
