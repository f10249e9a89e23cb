//! Stories told to a ledger, and random ones compared with the truth.

mod containers;
mod kube_events;
mod shards;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::counters::LedgerOptions;
use super::families::RESOURCES;
use super::objects::ScopeId;
use super::state::{EXPIRY_INTERVAL, Ledger, LedgerKind};
use crate::cache::Catalog;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::shard::Shard;
use crate::kube::workloads::objects::{Workload, WorkloadId};
use crate::resources::ObjectBytes;
use crate::telemetry::KubeMetrics;
use crate::util::work_counter;
use crate::wire::view::{Field, decode};

const HOUR: Duration = Duration::from_secs(3600);

fn decoded<'a, T: Field<'a>>(object: &'a str) -> T {
    decode(ObjectBytes::Json(object.as_bytes())).expect("an object")
}

/// A ledger with its exposition.
struct World {
    ledger: Ledger,
    catalog: Catalog,
    now: Instant,
}

fn workload(name: &str) -> Workload {
    let uid = format!("uid-of-{name}").as_bytes().into();
    let id = WorkloadId { namespace: "n".into(), kind: "deployment".into(), name: name.into() };
    Workload { id: Arc::new(id), uid }
}

/// Returns the options with these families.
fn options(families: impl Fn(&str) -> bool, budget: &Arc<Budget>) -> LedgerOptions {
    let all = RESOURCES.iter().flat_map(|resource| resource.families);
    let families = all.map(|family| family.name).filter(|name| families(name)).collect();
    LedgerOptions { families, budget: Arc::clone(budget), retention: HOUR }
}

/// Returns a pod created at this second of the day.
fn pod(uid: &str, created: u32, rest: &str) -> String {
    let (hour, minute, second) = (created / 3600, created / 60 % 60, created % 60);
    format!(
        r#"{{"metadata":{{"name":"{uid}","namespace":"n","uid":"{uid}","creationTimestamp":"2026-01-01T{hour:02}:{minute:02}:{second:02}Z"}},
            "spec":{{"containers":[{{"name":"c"}}]}},{rest}}}"#
    )
}

/// Returns the status of a pod with one container.
fn status(restarts: i32, state: &str, last: &str) -> String {
    format!(
        r#""status":{{"phase":"Running","containerStatuses":[{{"name":"c","restartCount":{restarts},"containerID":"id-{restarts}",
            "state":{{{state}}},"lastState":{{{last}}}}}]}}"#
    )
}

/// Returns the status after this number of runs, of which the last ended with `reason`.
fn running(runs: i32, reason: &str) -> String {
    let last = if runs > 0 { ended(runs - 1, reason) } else { String::new() };
    status(runs, RUNNING, &last)
}

/// Returns the end of the run with this number.
fn ended(run: i32, reason: &str) -> String {
    let (minute, second) = ((run + 1) / 60, (run + 1) % 60);
    format!(
        r#""terminated":{{"exitCode":137,"reason":"{reason}","containerID":"id-{run}","finishedAt":"2026-01-02T00:{minute:02}:{second:02}Z"}}"#
    )
}

const RUNNING: &str = r#""running":{}"#;
const WAITING: &str = r#""waiting":{"reason":"CrashLoopBackOff"}"#;

impl World {
    /// Returns a ledger whose first list of pods, by the list/watch 1, was empty.
    fn new() -> Self {
        let mut world = Self::unsynced(&Arc::default());
        world.ledger.show(LedgerKind::Pod, 1);
        world.list(1, &[]);
        world
    }

    fn unsynced(budget: &Arc<Budget>) -> Self {
        let ledger = Ledger::new(&options(|_| true, budget), &KubeMetrics::default());
        let mut world = Self { ledger, catalog: Catalog::new(), now: Instant::now() };
        world.register();
        world
    }

    fn register(&mut self) {
        for store in self.ledger.stores() {
            self.catalog.register(Arc::clone(store.schema()), vec![store]);
        }
    }

    fn put(&mut self, scope: ScopeId, pod: &str) {
        self.ledger.put_pod(scope, &decoded(pod), self.now);
    }

    /// Puts a pod of the workload `web`.
    fn see(&mut self, uid: &str, pod: &str) {
        self.put(1, pod);
        self.ledger.assign_pod(uid.as_bytes(), &workload("web"), self.now);
    }

    fn list(&mut self, scope: ScopeId, pods: &[&str]) {
        self.ledger.begin_list(LedgerKind::Pod, scope);
        pods.iter().for_each(|pod| self.put(scope, pod));
        self.ledger.end_list(LedgerKind::Pod, scope, true, self.now);
    }

    fn delete(&mut self, uid: &str) {
        self.ledger.delete(LedgerKind::Pod, uid.as_bytes(), self.now);
    }

    fn series(&self) -> BTreeMap<String, f64> {
        let body: Vec<u8> =
            self.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
        let body = String::from_utf8(body).expect("text");
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| line.rsplit_once(' ').expect("a value"));
        series.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
    }

    /// Returns the counters of `web` that are not 0, by reason.
    fn counts(&self, family: &str) -> Vec<(String, f64)> {
        let series = self.series().into_iter().filter(|(name, value)| {
            name.starts_with(family) && *value > 0.0 && name.contains("workload=\"web\"")
        });
        let reason = |name: String| {
            let (_, reason) = name.split_once("reason=\"").expect("a reason");
            reason.trim_end_matches("\"}").to_owned()
        };
        series.map(|(name, value)| (reason(name), value)).collect()
    }

    fn terminations(&self) -> Vec<(String, f64)> {
        self.counts("kstatd_workload_container_terminations_total")
    }

    fn ends(&self) -> Vec<(String, f64)> {
        self.counts("kstatd_workload_pods_finished_total")
    }
}

fn counted(counts: &[(&str, f64)]) -> Vec<(String, f64)> {
    counts.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
}

/// A container as the kubelet reports it: it ends, waits, restarts, and ends again; then three runs are unseen.
#[test]
fn every_termination_counts_once() {
    let mut world = World::new();
    let oom = ended(0, "OOMKilled");
    world.see("p", &pod("p", 0, &status(0, RUNNING, "")));
    assert_eq!(world.terminations(), []);
    for (state, last, restarts) in
        [(&*oom, "", 0), (WAITING, &*oom, 0), (RUNNING, &*oom, 1), (RUNNING, &*oom, 1)]
    {
        world.see("p", &pod("p", 0, &status(restarts, state, last)));
        assert_eq!(world.terminations(), counted(&[("OOMKilled", 1.0)]), "{state}");
    }
    world.see("p", &pod("p", 0, &status(1, &ended(1, "Error"), &oom)));
    world.see("p", &pod("p", 0, &status(5, RUNNING, &ended(4, "Completed"))));
    let all = [("Completed", 1.0), ("Error", 1.0), ("OOMKilled", 1.0), ("unknown", 2.0)];
    assert_eq!(world.terminations(), counted(&all));
    let series = world.series();
    let of_pod = r#"kstatd_pod_container_terminations_total{namespace="n",pod="p",uid="p",container="c",reason="#;
    assert_eq!(series[&format!(r#"{of_pod}"OOMKilled",exit_code="137"}}"#)], 1.0);
    assert_eq!(series[&format!(r#"{of_pod}"unknown",exit_code=""}}"#)], 2.0);
    // The counters of the workload stay, those of the pod end with it.
    world.delete("p");
    assert_eq!(world.terminations(), counted(&all));
    assert!(!world.series().keys().any(|name| name.starts_with("kstatd_pod_")));
    assert_eq!(world.ends(), counted(&[("Deleted", 1.0)]));
}

/// Startup invents nothing. What is created later starts with what its status proves.
#[test]
fn the_first_list_is_old() {
    let mut world = World::unsynced(&Arc::default());
    let crashed = status(3, RUNNING, &ended(2, "Error"));
    let failed = r#""status":{"phase":"Failed"}"#;
    let (old, done) = (pod("old", 4000, &crashed), pod("done", 4000, failed));
    world.list(1, &[&old, &done]);
    for uid in ["old", "done"] {
        world.ledger.assign_pod(uid.as_bytes(), &workload("web"), world.now);
    }
    assert_eq!((world.terminations(), world.ends()), (vec![], vec![]));
    // After a gap: a new pod, and one that must have been there before, as after the restore of a backup.
    let (new, older) = (pod("new", 4010, &crashed), pod("older", 100, &crashed));
    world.list(1, &[&old, &done, &new, &older]);
    for uid in ["new", "older"] {
        world.ledger.assign_pod(uid.as_bytes(), &workload("web"), world.now);
    }
    assert_eq!(world.terminations(), counted(&[("Error", 1.0), ("unknown", 2.0)]));
    world.see("old", &pod("old", 4000, &status(3, &ended(3, "OOMKilled"), "")));
    world.delete("done");
    assert_eq!(world.terminations()[1], ("OOMKilled".to_owned(), 1.0));
    assert_eq!(world.ends(), vec![]);
}

/// A list that ends early, after a pod that is younger than those it has not reached, says nothing about these.
#[test]
fn pods_created_before_an_incomplete_list_are_news() {
    let mut world = World::new();
    world.see("old", &pod("old", 1000, &status(0, RUNNING, "")));
    let younger = pod("younger", 2000, &status(0, RUNNING, ""));
    world.ledger.begin_list(LedgerKind::Pod, 1);
    world.see("younger", &younger);
    world.ledger.end_list(LedgerKind::Pod, 1, false, world.now);
    let failed = pod("failed", 1500, r#""status":{"phase":"Failed"}"#);
    world.list(1, &[&pod("old", 1000, &status(0, RUNNING, "")), &failed, &younger]);
    world.ledger.assign_pod(b"failed", &workload("web"), world.now);
    assert_eq!(world.ends(), counted(&[("Failed", 1.0)]));
}

/// A pod that begins to match the selectors is added by an event, too.
#[test]
fn old_pods_that_appear_in_a_watch_are_no_news() {
    let mut world = World::new();
    world.see("young", &pod("young", 7200, &status(0, RUNNING, "")));
    world.see("old", &pod("old", 1000, &running(57, "OOMKilled")));
    assert_eq!(world.terminations(), counted(&[]));
    world.see("new", &pod("new", 7150, &running(1, "OOMKilled")));
    assert_eq!(world.terminations(), counted(&[("OOMKilled", 1.0)]));
}

#[test]
fn ends_of_pods_have_the_reasons_of_the_api() {
    let disrupted = |reason: &str, phase: &str| {
        format!(
            r#""status":{{"phase":"{phase}","conditions":[{{"type":"DisruptionTarget","status":"True","reason":"{reason}"}}]}}"#
        )
    };
    for (rest, is_deleted, reason) in [
        (r#""status":{"phase":"Succeeded"}"#.to_owned(), false, "Succeeded"),
        (r#""status":{"phase":"Failed"}"#.to_owned(), true, "Failed"),
        (r#""status":{"phase":"Failed","reason":"Evicted"}"#.to_owned(), true, "Evicted"),
        (r#""status":{"phase":"Failed","reason":"Preempting"}"#.to_owned(), false, "Preempted"),
        (disrupted("DeletionByTaintManager", "Running"), true, "DeletionByTaintManager"),
        (disrupted("PreemptionByScheduler", "Failed"), true, "Preempted"),
        (r#""status":{"phase":"Running"}"#.to_owned(), true, "Deleted"),
    ] {
        let mut world = World::new();
        world.see("p", &pod("p", 0, &rest));
        world.see("p", &pod("p", 0, &rest));
        if is_deleted {
            world.delete("p");
        }
        assert_eq!(world.ends(), counted(&[(reason, 1.0)]), "{rest}");
    }
    // It has not failed, but was stopped.
    let mut world = World::new();
    let stopped = pod("p", 0, r#""status":{"phase":"Failed"}"#)
        .replace(r#""uid":"p""#, r#""uid":"p","deletionTimestamp":"2026-01-01T00:00:00Z""#);
    world.see("p", &stopped);
    assert_eq!(world.ends(), counted(&[("Deleted", 1.0)]));
}

/// A pod that vanishes during a gap, and appears again, as after the restore of a backup.
#[test]
fn vanished_and_restored_pods_count_once() {
    let mut world = World::new();
    let before = pod("p", 0, &status(1, RUNNING, &ended(0, "Error")));
    let after = pod("p", 0, &status(2, RUNNING, &ended(1, "OOMKilled")));
    world.see("p", &before);
    world.see("p", &after);
    world.list(1, &[]);
    let (all, end) = (counted(&[("Error", 1.0), ("OOMKilled", 1.0)]), counted(&[("unknown", 1.0)]));
    assert_eq!((world.terminations(), world.ends()), (all.clone(), end.clone()));
    world.list(1, &[&before]);
    world.see("p", &before);
    world.see("p", &after);
    world.delete("p");
    assert_eq!((world.terminations(), world.ends()), (all, end));
}

/// The list/watches of a new configuration overlap with the old ones.
#[test]
fn overlapping_list_watches_count_once() {
    let mut world = World::new();
    let states: Vec<String> = (0..4).map(|run| pod("p", 0, &running(run, "Error"))).collect();
    world.see("p", &states[0]);
    world.list(2, &[&states[2]]);
    // The old one is behind.
    states[..3].iter().for_each(|state| world.put(1, state));
    world.put(2, &states[3]);
    world.put(1, &states[3]);
    world.ledger.show(LedgerKind::Pod, 2);
    world.ledger.forget(LedgerKind::Pod, 1, world.now);
    assert_eq!(world.terminations(), counted(&[("Error", 2.0), ("unknown", 1.0)]));
    assert!(world.series().keys().any(|name| name.starts_with("kstatd_pod_")));
    world.list(2, &[]);
    assert_eq!(world.ends(), counted(&[("unknown", 1.0)]));
}

/// A second new configuration is listed while the first one waits to be served.
#[test]
fn list_watches_may_be_served_in_any_order() {
    for [first, last] in [[2, 3], [3, 3]] {
        let mut world = World::new();
        let state = pod("p", 0, &running(1, "Error"));
        world.see("p", &pod("p", 0, &running(0, "Error")));
        world.list(2, &[&state]);
        world.list(3, &[&state]);
        world.put(2, &state);
        world.ledger.show(LedgerKind::Pod, first);
        world.ledger.forget(LedgerKind::Pod, 1, world.now);
        world.ledger.show(LedgerKind::Pod, last);
        assert!(world.series().keys().any(|name| name.starts_with("kstatd_pod_")), "{first}");
        world.list(last, &[]);
        assert_eq!(world.ends(), counted(&[("unknown", 1.0)]), "{first}");
    }
}

/// A list/watch that has ended says nothing about its pods.
#[test]
fn closed_list_watches_end_no_pods() {
    let mut world = World::new();
    world.see("p", &pod("p", 0, &status(0, &ended(0, "Error"), "")));
    world.ledger.forget(LedgerKind::Pod, 1, world.now);
    assert_eq!((world.terminations().len(), world.ends()), (1, vec![]));
    assert!(!world.series().keys().any(|name| name.starts_with("kstatd_pod_")));
}

/// Two objects that take turns in having one UID.
#[test]
fn reused_uids_invent_nothing() {
    let mut world = World::new();
    let one = pod("p", 0, &status(3, RUNNING, &ended(2, "Error")));
    let other = one.replace(r#""name":"p""#, r#""name":"q""#);
    world.see("p", &one);
    let before = world.terminations();
    for _ in 0..5 {
        world.see("p", &other);
        world.see("p", &one);
    }
    assert_eq!((world.terminations(), world.ends()), (before, vec![]));
}

#[test]
fn transitions_of_nodes() {
    let mut world = World::new();
    let node = |status: &str, since: u32| {
        format!(
            r#"{{"metadata":{{"name":"a","uid":"a"}},"status":{{"conditions":[{{"type":"Ready","status":"{status}","lastTransitionTime":"2026-01-01T00:00:{since:02}Z"}}]}}}}"#
        )
    };
    let put = |world: &mut World, status: &str, since: u32, is_listed: bool| {
        let text = node(status, since);
        world.ledger.put_node(9, &decoded(&text), is_listed, world.now);
        ["true", "false", "unknown"].map(|status| {
            let name = format!(
                r#"kstatd_kube_node_condition_transitions_total{{node="a",condition="Ready",status="{status}"}}"#
            );
            world.series()[&name]
        })
    };
    assert_eq!(put(&mut world, "True", 10, true), [0.0, 0.0, 0.0]);
    assert_eq!(put(&mut world, "False", 11, false), [0.0, 1.0, 0.0]);
    assert_eq!(put(&mut world, "False", 11, true), [0.0, 1.0, 0.0]);
    // Away and back, unseen.
    assert_eq!(put(&mut world, "False", 13, true), [0.0, 2.0, 0.0]);
    assert_eq!(put(&mut world, "Unknown", 14, false), [0.0, 2.0, 1.0]);
    // The state of a backup, and the node's report after it.
    assert_eq!(put(&mut world, "True", 10, true), [0.0, 2.0, 1.0]);
    assert_eq!(put(&mut world, "True", 10, false), [0.0, 2.0, 1.0]);
    assert_eq!(put(&mut world, "Unknown", 15, false), [0.0, 2.0, 1.0]);
    // The same, but only a list shows the report.
    assert_eq!(put(&mut world, "True", 10, true), [0.0, 2.0, 1.0]);
    assert_eq!(put(&mut world, "Unknown", 16, true), [0.0, 2.0, 1.0]);
    // The clock of the node is set back.
    assert_eq!(put(&mut world, "True", 2, false), [1.0, 2.0, 1.0]);
    let shown = [0, 1].map(|index| {
        world.ledger.set_shard(Shard::new(index, 2));
        world.series().len()
    });
    assert_eq!(shown.iter().sum::<usize>(), 3, "{shown:?}");
    world.ledger.set_shard(Shard::ALL);
    assert_eq!(put(&mut world, "True", 2, false), [1.0, 2.0, 1.0]);
    world.ledger.delete(LedgerKind::Node, b"a", world.now);
    assert!(!world.series().keys().any(|name| name.contains("node")));
}

/// A list that finds another node of the same name shows its counters, also before it tells that the former one is gone.
#[test]
fn a_node_may_replace_one_of_the_same_name() {
    let mut world = World::new();
    let node = |uid: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","uid":"{uid}"}},"status":{{"conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:10Z"}}]}}}}"#
        )
    };
    let put = |world: &mut World, uid: &str, is_listed: bool| {
        world.ledger.put_node(9, &decoded(&node(uid)), is_listed, world.now);
    };
    let count = |world: &World| {
        let series = world.series();
        series.keys().filter(|name| name.starts_with("kstatd_kube_node_")).count()
    };
    world.ledger.show(LedgerKind::Node, 9);
    world.ledger.begin_list(LedgerKind::Node, 9);
    put(&mut world, "one", true);
    world.ledger.end_list(LedgerKind::Node, 9, true, world.now);
    assert_eq!(count(&world), 3);
    world.ledger.begin_list(LedgerKind::Node, 9);
    put(&mut world, "two", true);
    world.ledger.end_list(LedgerKind::Node, 9, true, world.now);
    assert_eq!(count(&world), 3);
    // Both are known, and the second one goes first.
    put(&mut world, "three", false);
    world.ledger.delete(LedgerKind::Node, b"three", world.now);
    put(&mut world, "two", false);
    world.ledger.delete(LedgerKind::Node, b"two", world.now);
    assert_eq!(count(&world), 0);
}

/// A pod that cannot be decoded still exists.
#[test]
fn malformed_pods_have_not_ended() {
    let mut world = World::new();
    world.see("p", &pod("p", 0, &running(1, "Error")));
    world.ledger.begin_list(LedgerKind::Pod, 1);
    world.ledger.keep(LedgerKind::Pod, 1, b"p");
    world.ledger.end_list(LedgerKind::Pod, 1, true, world.now);
    assert_eq!(world.ends(), vec![]);
    world.list(1, &[]);
    assert_eq!(world.ends().len(), 1);
}

#[test]
fn ends_of_jobs() {
    let mut world = World::new();
    let job = |uid: &str, condition: &str| {
        format!(
            r#"{{"metadata":{{"name":"{uid}","namespace":"n","uid":"{uid}"}},"status":{{"conditions":[{condition}]}}}}"#
        )
    };
    let put = |world: &mut World, uid: &str, condition: &str| {
        let text = job(uid, condition);
        world.ledger.put_job(5, &decoded(&text), &workload("web"), world.now);
    };
    let complete = r#"{"type":"Complete","status":"True","reason":"CompletionsReached"}"#;
    let failed = r#"{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}"#;
    world.ledger.begin_list(LedgerKind::Job, 5);
    put(&mut world, "old", complete);
    world.ledger.end_list(LedgerKind::Job, 5, true, world.now);
    let ends = |world: &World| world.counts("kstatd_jobs_finished_total");
    assert_eq!(ends(&world), []);
    for uid in ["a", "b", "c", "d"] {
        put(&mut world, uid, "");
    }
    for _ in 0..2 {
        put(&mut world, "a", complete);
        put(&mut world, "b", failed);
    }
    world.ledger.delete(LedgerKind::Job, b"c", world.now);
    world.ledger.begin_list(LedgerKind::Job, 5);
    world.ledger.end_list(LedgerKind::Job, 5, true, world.now);
    let all =
        [("BackoffLimitExceeded", 1.0), ("Complete", 1.0), ("Deleted", 1.0), ("unknown", 1.0)];
    assert_eq!(ends(&world), counted(&all));
}

#[test]
fn counters_outlive_their_workload_for_an_hour() {
    let mut world = World::new();
    world.ledger.set_exists(&workload("web"), true, world.now);
    world.see("p", &pod("p", 0, &status(0, &ended(0, "Error"), "")));
    world.delete("p");
    world.now += 2 * HOUR;
    world.ledger.expire(world.now);
    assert_eq!(world.terminations().len(), 1, "it exists without pods");
    world.ledger.set_exists(&workload("web"), false, world.now);
    world.now += HOUR - Duration::from_secs(1);
    world.ledger.expire(world.now);
    assert_eq!(world.terminations().len(), 1);
    world.now += EXPIRY_INTERVAL;
    world.ledger.expire(world.now);
    assert!(world.series().is_empty());
}

/// A reload changes the families. What stays keeps its counts.
#[test]
fn families_can_change() {
    let mut world = World::new();
    world.see("p", &pod("p", 0, &status(0, &ended(0, "Error"), "")));
    let all = world.series();
    let only = |text: &str| all.iter().filter(|(name, _)| name.contains(text)).count();
    for (pattern, count) in
        [("workload", only("workload_")), ("terminations", only("workload_container"))]
    {
        let options = options(|name| name.contains(pattern), &Arc::default());
        assert!(world.ledger.configure(&options, &KubeMetrics::default()));
        assert!(!world.ledger.configure(&options, &KubeMetrics::default()));
        world.register();
        assert_eq!(world.series().len(), count, "{pattern}");
        assert_eq!(world.terminations(), counted(&[("Error", 1.0)]));
    }
}

/// A reload with a smaller budget hides counters, and one with a larger budget shows all of them again.
#[test]
fn counters_return_with_a_larger_budget() {
    let mut world = World::new();
    for number in 0..8 {
        let uid = format!("p{number}");
        world.put(1, &pod(&uid, 0, &status(0, RUNNING, "")));
        world.ledger.assign_pod(uid.as_bytes(), &workload(&uid), world.now);
        world.put(1, &pod(&uid, 0, &status(1, RUNNING, &ended(0, "Error"))));
        world.ledger.delete(LedgerKind::Pod, uid.as_bytes(), world.now);
    }
    let all = world.series();
    let mode = BudgetMode::Enforce;
    for (limit, is_less) in [(4, true), (0, false), (5, true), (1_000, false)] {
        let budget = Budget { mode, series_per_kind: limit, ..Budget::default() };
        world.ledger.configure(&options(|_| true, &Arc::new(budget)), &KubeMetrics::default());
        world.register();
        assert_eq!(world.series().len() < all.len(), is_less, "{limit}");
    }
    assert_eq!(world.series(), all);
}

/// Counters of a family that a reload adds exist at 0, for what is known already.
#[test]
fn counters_of_new_families_begin_at_zero() {
    const NODE: &str = r#"{"metadata":{"name":"a","uid":"a"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    let family = |name: &str| name.split('{').next().expect("a name").to_owned();
    let families = |world: &World| -> BTreeSet<String> {
        world.series().keys().map(|name| family(name)).collect()
    };
    let usual = [
        "kstatd_kube_node_condition_transitions_total",
        "kstatd_workload_container_terminations_total",
        "kstatd_workload_pods_finished_total",
    ];
    for missing in usual {
        let mut world = World::new();
        let metrics = KubeMetrics::default();
        world.ledger.configure(&options(|name| name != missing, &Arc::default()), &metrics);
        world.register();
        world.ledger.show(LedgerKind::Node, 9);
        world.ledger.put_node(9, &decoded(NODE), true, world.now);
        world.see("p", &pod("p", 0, &status(0, RUNNING, "")));
        let others: BTreeSet<String> = families(&world);
        assert!(!others.contains(missing) && others.len() >= 2, "{others:?}");
        world.ledger.configure(&options(|_| true, &Arc::default()), &metrics);
        world.register();
        let all = families(&world);
        assert!(usual.iter().all(|name| all.contains(*name)), "{missing}: {all:?}");
    }
}

#[test]
fn series_are_bounded() {
    // The reasons of one workload.
    let mut world = World::new();
    for run in 0..60 {
        world.see("p", &pod("p", 0, &running(run, &format!("r{run}"))));
    }
    let counts = world.terminations();
    assert!(counts.len() <= 13, "{counts:?}");
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<f64>(), 59.0);
    assert!(counts.iter().any(|(reason, _)| reason == "other"));
    // The containers of one workload, which may be as many.
    let mut world = World::new();
    for number in 0..60 {
        let pod = pod(&format!("p{number}"), 0, &running(0, "r"));
        world.see(
            &format!("p{number}"),
            &pod.replace(r#""name":"c""#, &format!(r#""name":"c{number}""#)),
        );
    }
    let series = world.series();
    let is_of_it = |name: &&String| name.starts_with("kstatd_workload_container_terminations");
    let containers: Vec<&String> = series.keys().filter(is_of_it).collect();
    assert!((24..=25).contains(&containers.len()), "{containers:?}");
    // All workloads.
    let mode = BudgetMode::Enforce;
    let budget = Budget { mode, series_per_kind: 30, ..Budget::default() };
    let mut world = World::unsynced(&Arc::new(budget));
    for number in 0..50 {
        let uid = format!("p{number}");
        world.put(1, &pod(&uid, 0, &status(0, RUNNING, "")));
        world.ledger.assign_pod(uid.as_bytes(), &workload(&uid), world.now);
    }
    let series = world.series().len();
    assert!((30..40).contains(&series), "{series}");
    // Workloads that are counted before they are shown are within the budget when they are.
    let mut world =
        World::unsynced(&Arc::new(Budget { mode, series_per_kind: 30, ..Budget::default() }));
    world.ledger.set_shard(Shard::ALL.replacing(Shard::NONE));
    for number in 0..50 {
        let uid = format!("p{number}");
        world.put(1, &pod(&uid, 0, &status(0, RUNNING, "")));
        world.ledger.assign_pod(uid.as_bytes(), &workload(&uid), world.now);
    }
    assert_eq!(world.series().len(), 0);
    world.ledger.set_shard(Shard::ALL);
    let series = world.series().len();
    assert!((30..40).contains(&series), "{series}");
}

/// Pods whose owner references state any number of workloads of one name take linear work, and all count.
#[test]
fn workloads_of_one_name_are_bounded() {
    let mut world = World::new();
    work_counter::take();
    for number in 0..500 {
        let (uid, now) = (format!("p{number}"), world.now);
        world.put(1, &pod(&uid, 0, &status(0, RUNNING, "")));
        let any = Workload { uid: uid.as_bytes().into(), ..workload("web") };
        world.ledger.assign_pod(uid.as_bytes(), &any, now);
        world.put(1, &pod(&uid, 0, &status(1, RUNNING, &ended(0, "Error"))));
    }
    let work = work_counter::take();
    assert!(work < 500 * 100, "{work} steps");
    assert_eq!(world.terminations(), counted(&[("Error", 500.0)]));
}

/// A state of a container, of which a list/watch may show a part.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The container ends, waits, runs again.
    Crash,
    Wait,
    Restart,
    /// Events are lost until the next list.
    Gap,
    /// An older state is shown again by another list/watch.
    Stale(usize),
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Crash),
        2 => Just(Step::Wait),
        4 => Just(Step::Restart),
        1 => Just(Step::Gap),
        1 => (0usize..8).prop_map(Step::Stale),
        1 => Just(Step::Relist),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// In any sequence of states, gaps, relists and stale states, the sum of all counters is the number of terminations,
    /// and none but `unknown` exceeds the truth.
    #[test]
    fn counts_equal_the_truth(steps in steps()) {
        let mut world = World::new();
        let (mut run, mut has_ended, mut waits) = (0, false, false);
        let reason = |run: i32| ["Error", "OOMKilled", "Completed"][run as usize % 3];
        let (mut is_watching, mut past, mut truth) = (true, Vec::new(), BTreeMap::<&str, f64>::new());
        world.see("p", &pod("p", 0, &status(0, RUNNING, "")));
        for step in steps {
            match step {
                Step::Crash if !has_ended => {
                    (has_ended, waits) = (true, false);
                    *truth.entry(reason(run)).or_default() += 1.0;
                }
                Step::Wait if has_ended => waits = true,
                Step::Restart if has_ended => {
                    run += 1;
                    (has_ended, waits) = (false, false);
                }
                Step::Gap => is_watching = false,
                _ => {}
            }
            let (now, before) = (ended(run, reason(run)), ended(run - 1, reason((run - 1).max(0))));
            let (state, last) = match (has_ended, waits) {
                (true, false) => (&*now, &*before),
                (true, true) => (WAITING, &*now),
                (false, _) => (RUNNING, &*before),
            };
            let last = if run == 0 && !waits { "" } else { last };
            let state = pod("p", 0, &status(run, state, last));
            match step {
                Step::Stale(back) => {
                    let old = past.iter().rev().nth(back).unwrap_or(&state).clone();
                    world.put(0, &old);
                }
                Step::Relist => {
                    world.list(1, &[&state]);
                    is_watching = true;
                }
                _ if is_watching => world.put(1, &state),
                _ => {}
            }
            past.push(state.clone());
            if is_watching {
                let counts = world.terminations();
                let sum: f64 = counts.iter().map(|(_, count)| count).sum();
                prop_assert_eq!(sum, truth.values().sum::<f64>(), "{:?} {}", step, state);
                for (reason, count) in counts.iter().filter(|(reason, _)| reason != "unknown") {
                    prop_assert!(*count <= truth[&**reason], "{}", reason);
                }
            }
        }
    }
}
