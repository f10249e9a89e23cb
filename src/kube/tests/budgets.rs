//! Tests of series and label budgets: what exceeds them is rejected or folded into `other`, named and counted, and
//! restored once there is room.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::stub::BodyWriter;
use super::*;
use crate::cache::Store;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::kube::api_resource::Scope;
use crate::kube::follow::budget::KindBudget;
use crate::kube::follow::handover::Handover;
use crate::kube::follow::machine::Collected;
use crate::kube::follow::object_sink::ObjectSink;
use crate::kube::follow::quota::Quota;
use crate::kube::follow::rejected_set::RejectedSet;
use crate::resources::custom::resolve::ResolveOptions;
use crate::resources::custom::{
    Definition, DuplicatePolicy, ValueError, ValueErrors, load, resolve,
};
use crate::resources::select::selection::Selection;
use crate::resources::{RenderOptions, find};
use crate::telemetry::metric::Counter;

fn enforced(budget: Budget) -> Arc<Budget> {
    Arc::new(Budget { mode: BudgetMode::Enforce, ..budget })
}

/// Returns an object in namespace `space` whose UID is its name.
fn object(name: &str, version: u32, rest: &str) -> String {
    let about = format!(r#""name":"{name}","namespace":"space","uid":"{name}""#);
    format!(r#"{{"metadata":{{{about},"resourceVersion":"{version}"{rest}}}}}"#)
}

fn labelled(name: &str, version: u32, labels: &[(&str, &str)]) -> String {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    let labels = serde_json::to_string(&labels).expect("JSON");
    object(name, version, &format!(r#","labels":{labels}"#))
}

fn event_line(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// Returns the bookmark at the end of a streaming list.
fn end_of_initial_events(version: u32) -> String {
    let annotation = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
    let metadata = format!(r#"{{"metadata":{{"resourceVersion":"{version}",{annotation}}}}}"#);
    event_line("BOOKMARK", &metadata)
}

/// Responds to the next request, a streaming list, with these objects.
async fn stream_list(fixture: &mut Fixture, version: u32, objects: &[String]) -> BodyWriter {
    let body = fixture.stub.expect_streaming_list().await.start_response(200, JSON);
    objects.iter().for_each(|object| body.send(event_line("ADDED", object)));
    body.send(end_of_initial_events(version));
    body
}

/// Returns the lines of a scrape with this prefix, sorted.
fn lines_with_prefix(fixture: &Fixture, prefix: &str) -> Vec<String> {
    let body = fixture.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten();
    let text = String::from_utf8(body.collect()).expect("UTF-8");
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The labels with the name of the object and with the value to check.
#[derive(Clone, Copy)]
struct LabelNames {
    object: &'static str,
    label: &'static str,
}

/// Waits until the lines with this prefix have these pairs of object name and label value.
async fn wait_for_labels(
    fixture: &Fixture,
    prefix: &str,
    names: LabelNames,
    wanted: &[(&str, &str)],
) {
    let value = |line: &str, label: &str| {
        let (_, rest) = line.split_once(&format!("{label}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let found = || -> Vec<(String, String)> {
        let lines = lines_with_prefix(fixture, prefix).into_iter();
        let pair = |line: String| Some((value(&line, names.object)?, value(&line, names.label)?));
        lines.filter_map(pair).collect()
    };
    let wanted: Vec<_> =
        wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    eventually(|| found() == wanted, || format!("{:?} instead of {wanted:?}", found())).await;
}

/// Waits until the pipeline's own metrics contain this line.
async fn wait_for_pipeline_metric(fixture: &Fixture, line: &str) {
    let body = || {
        let mut recorder = Recorder::default();
        recorder.add(fixture.handle.clone());
        recorder.finish().encode(Format::Text)
    };
    eventually(|| body().lines().any(|own| own == line), body).await;
}

/// A kind that grows without limit keeps its existing series. Rejected objects are counted by namespace and added
/// without a restart.
#[tokio::test]
async fn series_per_kind_is_enforced_and_totals_are_exact() {
    let budget = enforced(Budget { series_per_kind: 3, ..Budget::default() });
    let (mut fixture, body) = synced_pods(&PipelineConfig { budget, ..config() }).await;
    let added = |name: &str, version: &str| event("ADDED", &pod(name, version));
    body.send([added("c", "6"), added("d", "7"), added("e", "8")].concat());
    fixture.wait_for_series(&["a 1", "b 2", "c 6"]).await;
    let over = |action: &str, times: u32| {
        let labels =
            format!("action=\"{action}\",label=\"\",limit=\"series-per-kind\",metric_name=\"\"");
        format!("kstatd_kubernetes_over_budget_total{{{labels},resource=\"*v1.pods\"}} {times}")
    };
    fixture.wait_for_metric(&over("refused", 2)).await;
    let kind = "resource=\"*v1.pods\"";
    wait_for_pipeline_metric(
        &fixture,
        &format!("kstatd_kube_objects{{namespace=\"space\",{kind}}} 5"),
    )
    .await;
    wait_for_pipeline_metric(
        &fixture,
        &format!("kstatd_kubernetes_left_out_objects{{namespace=\"\",{kind}}} 2"),
    )
    .await;
    // Updated objects keep their series; a rejected object that is deleted is forgotten.
    body.send([event("MODIFIED", &pod("a", "9")), event("DELETED", &pod("e", "10"))].concat());
    fixture.wait_for_series(&["a 9", "b 2", "c 6"]).await;
    wait_for_pipeline_metric(
        &fixture,
        &format!("kstatd_kube_objects{{namespace=\"space\",{kind}}} 4"),
    )
    .await;
    // There is room, so the end of the watch leads to a relist.
    body.send(event("DELETED", &pod("b", "11")));
    fixture.wait_for_series(&["a 9", "c 6"]).await;
    drop(body);
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    // Known objects take precedence over new ones, regardless of their order.
    body.send([added("0", "12"), added("a", "9"), added("c", "6"), added("d", "7")].concat());
    body.send(bookmark("13", true));
    wait_for_pipeline_metric(
        &fixture,
        &format!("kstatd_kube_objects{{namespace=\"space\",{kind}}} 4"),
    )
    .await;
    fixture.wait_for_series(&["0 12", "a 9", "c 6"]).await;
    // There is no room, so the watch continues.
    body.send(bookmark("14", false));
    drop(body);
    let body = fixture.stub.expect_watch("14").await.start_watch();
    body.send(event("DELETED", &pod("0", "15")));
    fixture.wait_for_series(&["a 9", "c 6"]).await;
    drop(body);
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    body.send([added("a", "9"), added("c", "6"), added("d", "7"), bookmark("16", true)].concat());
    fixture.wait_for_series(&["a 9", "c 6", "d 7"]).await;
    wait_for_pipeline_metric(
        &fixture,
        &format!("kstatd_kubernetes_left_out_objects{{namespace=\"\",{kind}}} 0"),
    )
    .await;
}

#[tokio::test]
async fn tracked_excess_is_exposed() {
    let budget = Budget { mode: BudgetMode::Track, series_per_kind: 1, ..Budget::default() };
    let (mut fixture, body) =
        synced_pods(&PipelineConfig { budget: budget.into(), ..config() }).await;
    body.send(event("ADDED", &pod("c", "6")));
    fixture.wait_for_series(&["a 1", "b 2", "c 6"]).await;
    let labels = "action=\"tracked\",label=\"\",limit=\"series-per-kind\",metric_name=\"\"";
    let over = format!("kstatd_kubernetes_over_budget_total{{{labels},resource=\"*v1.pods\"}} 2");
    fixture.wait_for_metric(&over).await;
    body.send(bookmark("7", false));
    drop(body);
    fixture.stub.expect_watch("7").await;
}

fn pods(keys: &[&str]) -> WatchedResource {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let options = RenderOptions { labels: Selection::new(&keys), ..RenderOptions::default() };
    WatchedResource::built_in(find("pods").expect("a kind"), &options)
}

/// A label with too many values is folded alone. Values that disappear make room.
#[tokio::test]
async fn label_over_budget_is_folded_alone() {
    let budget = Budget { values_per_label: 2, value_bytes: 12, ..Budget::default() };
    let resources = vec![pods(&["app", "url"])];
    let config = PipelineConfig { resources, budget: enforced(budget), ..config() };
    let mut fixture = Fixture::new(&config).await;
    let one = |name: &str, version, url: &str| {
        labelled(name, version, &[("app", "web"), ("url", url), ("unlisted", name)])
    };
    let body = stream_list(&mut fixture, 5, &[one("a", 1, "/1"), one("b", 2, "/2")]).await;
    let urls = LabelNames { object: "pod", label: "label_url" };
    wait_for_labels(&fixture, "kube_pod_labels", urls, &[("a", "/1"), ("b", "/2")]).await;
    let added = |name: &str, version, url: &str| event_line("ADDED", &one(name, version, url));
    body.send(added("c", 6, "/3") + &added("d", 7, "/1") + &added("e", 8, "/a-long-value"));
    let all = [("a", "/1"), ("b", "/2"), ("c", "other"), ("d", "/1"), ("e", "other")];
    wait_for_labels(&fixture, "kube_pod_labels", urls, &all).await;
    let apps: Vec<_> = all.iter().map(|(name, _)| (*name, "web")).collect();
    wait_for_labels(
        &fixture,
        "kube_pod_labels",
        LabelNames { object: "pod", label: "label_app" },
        &apps,
    )
    .await;
    // All other series of the objects remain.
    assert_eq!(lines_with_prefix(&fixture, "kube_pod_info").len(), 5);
    for (limit, times) in [("value-bytes", 1), ("values-per-label", 1)] {
        let labels =
            format!("label=\"label_url\",limit=\"{limit}\",metric_name=\"kube_pod_labels\"");
        let labels = format!("action=\"folded\",{labels},resource=\"*v1.Pod\"");
        fixture
            .wait_for_metric(&format!("kstatd_kubernetes_over_budget_total{{{labels}}} {times}"))
            .await;
    }
    // A value is in use as long as one object has it.
    body.send(
        event_line("DELETED", &one("a", 9, "/1")) + &event_line("MODIFIED", &one("c", 10, "/3")),
    );
    let all = [("b", "/2"), ("c", "other"), ("d", "/1"), ("e", "other")];
    wait_for_labels(&fixture, "kube_pod_labels", urls, &all).await;
    // A folded label stays folded until its object changes.
    body.send(event_line("MODIFIED", &one("d", 11, "/2")) + &added("f", 12, "/2"));
    let all = [("b", "/2"), ("c", "other"), ("d", "/2"), ("e", "other"), ("f", "/2")];
    wait_for_labels(&fixture, "kube_pod_labels", urls, &all).await;
    body.send(event_line("MODIFIED", &one("c", 13, "/3")));
    let all = [("b", "/2"), ("c", "/3"), ("d", "/2"), ("e", "other"), ("f", "/2")];
    wait_for_labels(&fixture, "kube_pod_labels", urls, &all).await;
    // A relist folds the same values, regardless of the order of the objects.
    body.send(event_line("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired"}"#));
    let again = [one("g", 14, "/4"), one("f", 12, "/2"), one("c", 13, "/3"), one("b", 2, "/2")];
    let _body = stream_list(&mut fixture, 15, &again).await;
    let all = [("b", "/2"), ("c", "/3"), ("f", "/2"), ("g", "other")];
    wait_for_labels(&fixture, "kube_pod_labels", urls, &all).await;
}

/// Objects that a shard gains count before they are shown, in lists too.
#[test]
fn hidden_objects_of_a_shard_change_count() {
    let watched = pods(&["app"]);
    let alone = |budget: &Budget| {
        let mut models = ListWatchModel::pair(&watched, budget);
        models[0].put(0, 0, Content::default());
        models[0].store.series()
    };
    let series = alone(&Budget::default());
    let budget = enforced(Budget { series_per_kind: 3 * series, ..Budget::default() });
    let gaining = Shard::ALL.replacing(Shard::new(1, 2));
    for lists in [false, true] {
        let mut models = ListWatchModel::pair_of_shard(&watched, &budget, None, gaining);
        if lists {
            models[0].begin_list();
        }
        (0..6).for_each(|name| models[0].put(0, name, Content::default()));
        assert_eq!(models[0].rejected.len(), if lists { 0 } else { 3 });
        models[0].end_list(true);
        assert_eq!(models[0].rejected.len(), 3);
        let shown = models[0].store.series();
        assert!(shown < 3 * series, "some objects are hidden");
        // The other list/watch has no room, whether objects are hidden or not.
        models[1].put(1, 0, Content::default());
        assert_eq!(models[1].rejected.len(), 1);
        models[0].delete(0, 0);
        models[1].put(1, 0, Content::default());
        assert_eq!(models[1].rejected.len(), 0);
    }
}

/// The same for the object limit.
#[test]
fn hidden_objects_of_a_shard_change_count_for_the_object_limit() {
    let (watched, quota) = (pods(&["app"]), Quota::new(3, 2));
    let gaining = Shard::ALL.replacing(Shard::new(1, 2));
    let mut models =
        ListWatchModel::pair_of_shard(&watched, &Budget::default(), Some(&quota), gaining);
    for lists in [false, true] {
        if lists {
            models[0].begin_list();
        }
        for name in 0..6 {
            models[0].put(0, name, Content::default());
            let used = if lists { 3 } else { usize::from(name + 1).min(3) };
            assert_eq!(models[0].sink.limit_usage(), Some((used, 3)), "{name}, lists: {lists}");
        }
        models[0].end_list(true);
        assert!(models[0].store.len() < 3, "some objects are hidden");
        models[1].put(1, 0, Content::default());
        assert_eq!(models[0].sink.limit_usage(), Some((3, 3)), "the other one has no room");
    }
}

struct IgnoredErrors;

impl ValueErrors for IgnoredErrors {
    fn value_error(&self, _: &ValueError<'_>) {}
}

const GADGETS: &str = r"
spec:
  resources:
  - groupVersionKind: {group: e.io, version: v1, kind: Gadget}
    metricNamePrefix: gadget
    labelsFromPath: {name: [metadata, name], namespace: [metadata, namespace]}
    metrics:
    - name: about
      help: H
      each: {type: Info, info: {labelsFromPath: {url: [metadata, labels, url]}}}
    - name: size
      help: H
      each: {type: Gauge, gauge: {path: [metadata, sizes], valueFrom: [value], labelsFromPath: {part: [part]}}}
  - groupVersionKind: {group: e.io, version: v1, kind: Gadget}
    metricNamePrefix: gadget
    metrics:
    - name: load
      help: H
      each: {type: Gauge, gauge: {path: [metadata, load], labelsFromPath: {url: [url]}}}
";

fn gadgets() -> WatchedResource {
    let loaded = load(GADGETS);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let manner = ResolveOptions {
        families: Arc::default(),
        keep_duplicates: false,
        duplicates: DuplicatePolicy::Merge,
        errors: Arc::new(IgnoredErrors),
    };
    let definition = Definition {
        group: "e.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Gadget".to_owned(),
        plural: "gadgets".to_owned(),
        namespaced: true,
    };
    let resolution = resolve(&loaded.config, &[definition], &manner).expect("metrics");
    WatchedResource::custom(resolution.resources.into_iter().next().expect("a kind"))
}

/// Labels of custom resources are folded if the series remain distinct; otherwise the series is rejected.
#[tokio::test]
async fn custom_resource_labels_are_folded_if_series_stay_distinct() {
    let budget = Budget { values_per_label: 3, ..Budget::default() };
    let config =
        PipelineConfig { resources: vec![gadgets()], budget: enforced(budget), ..config() };
    let mut fixture = Fixture::new(&config).await;
    let gadget = |name: &str, version, url: &str, parts: &[&str]| {
        let sizes: Vec<_> =
            parts.iter().map(|part| format!(r#"{{"part":"{part}","value":1}}"#)).collect();
        let rest = format!(
            r#","labels":{{"url":"{url}"}},"sizes":[{}],"load":{{"url":"{url}","value":2}}"#,
            sizes.join(",")
        );
        object(name, version, &rest)
    };
    let first = [gadget("a", 1, "/1", &["x"]), gadget("b", 2, "/2", &["y", "z"])];
    let body = stream_list(&mut fixture, 5, &first).await;
    let urls = LabelNames { object: "name", label: "url" };
    wait_for_labels(&fixture, "gadget_about", urls, &[("a", "/1"), ("b", "/2")]).await;
    let refused = |metric: &str, label: &str| {
        let labels =
            format!("label=\"{label}\",limit=\"values-per-label\",metric_name=\"{metric}\"");
        let resource = "resource=\"gadgets.v1.e.io\"";
        format!("kstatd_kubernetes_over_budget_total{{action=\"refused\",{labels},{resource}}} 1")
    };
    let sizes = LabelNames { object: "name", label: "part" };
    let parts = [("a", "x"), ("b", "y"), ("b", "z"), ("c", "other"), ("c", "x")];
    body.send(event_line("ADDED", &gadget("c", 6, "/3", &["x", "u"])));
    wait_for_labels(&fixture, "gadget_size", sizes, &parts).await;
    body.send(event_line("MODIFIED", &gadget("c", 6, "/3", &["x", "u", "v"])));
    wait_for_labels(&fixture, "gadget_about", urls, &[("a", "/1"), ("b", "/2"), ("c", "/3")]).await;
    // Two folded parts of one gadget would be the same series: the second is rejected.
    fixture.wait_for_metric(&refused("gadget_size", "part")).await;
    wait_for_labels(&fixture, "gadget_size", sizes, &parts).await;
    // The name is a budgeted label as well, and without it the series of different objects are not distinct.
    body.send(event_line("ADDED", &gadget("d", 7, "/4", &["x"])));
    fixture.wait_for_metric(&refused("gadget_about", "name")).await;
    fixture.wait_for_metric(&refused("gadget_size", "name")).await;
    // This metric has no label that identifies the object.
    fixture.wait_for_metric(&refused("gadget_load", "url")).await;
    assert_eq!(lines_with_prefix(&fixture, "gadget_load{").len(), 3);
    wait_for_labels(&fixture, "gadget_about", urls, &[("a", "/1"), ("b", "/2"), ("c", "/3")]).await;
    wait_for_pipeline_metric(
        &fixture,
        "kstatd_kube_objects{namespace=\"space\",resource=\"gadgets.v1.e.io\"} 4",
    )
    .await;
    // There is no room, so the watch continues.
    body.send(event_line("BOOKMARK", r#"{"metadata":{"resourceVersion":"7"}}"#));
    drop(body);
    let body = fixture.stub.expect_watch("7").await.start_response(200, JSON);
    // There is room for a name: the next list restores what was rejected.
    body.send(event_line("DELETED", &gadget("a", 8, "/1", &["x"])));
    wait_for_labels(&fixture, "gadget_about", urls, &[("b", "/2"), ("c", "/3")]).await;
    drop(body);
    let rest = [
        gadget("b", 2, "/2", &["y", "z"]),
        gadget("c", 6, "/3", &["x", "u", "v"]),
        gadget("d", 7, "/4", &["x"]),
    ];
    let _body = stream_list(&mut fixture, 9, &rest).await;
    wait_for_labels(&fixture, "gadget_about", urls, &[("b", "/2"), ("c", "/3"), ("d", "/4")]).await;
}

/// A family of custom resources has its own budget: the other families of an object remain.
#[tokio::test]
async fn series_per_metric_is_enforced() {
    let budget = Budget { series_per_metric: 3, ..Budget::default() };
    let config =
        PipelineConfig { resources: vec![gadgets()], budget: enforced(budget), ..config() };
    let mut fixture = Fixture::new(&config).await;
    let gadget = |name: &str, version, parts: u32| {
        let sizes: Vec<_> =
            (0..parts).map(|part| format!(r#"{{"part":"p{part}","value":1}}"#)).collect();
        let rest = format!(r#","labels":{{"url":"/"}},"sizes":[{}]"#, sizes.join(","));
        object(name, version, &rest)
    };
    let body = stream_list(&mut fixture, 5, &[gadget("a", 1, 2), gadget("b", 2, 2)]).await;
    let sizes = LabelNames { object: "name", label: "part" };
    wait_for_labels(&fixture, "gadget_size", sizes, &[("a", "p0"), ("a", "p1")]).await;
    wait_for_labels(
        &fixture,
        "gadget_about",
        LabelNames { object: "name", label: "url" },
        &[("a", "/"), ("b", "/")],
    )
    .await;
    let labels = "label=\"\",limit=\"series-per-metric\",metric_name=\"gadget_size\"";
    let labels = format!("action=\"refused\",{labels},resource=\"gadgets.v1.e.io\"");
    fixture.wait_for_metric(&format!("kstatd_kubernetes_over_budget_total{{{labels}}} 1")).await;
    body.send(event_line("MODIFIED", &gadget("a", 6, 1)));
    wait_for_labels(&fixture, "gadget_size", sizes, &[("a", "p0")]).await;
    drop(body);
    let _body = stream_list(&mut fixture, 7, &[gadget("a", 6, 1), gadget("b", 2, 2)]).await;
    wait_for_labels(&fixture, "gadget_size", sizes, &[("a", "p0"), ("b", "p0"), ("b", "p1")]).await;
}

/// The content of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    url: u8,
    parts: u8,
}

/// An operation on one of two list/watches of a kind.
#[derive(Clone, Debug)]
enum Step {
    Put { at: usize, name: u8, content: Content },
    Delete { at: usize, name: u8 },
    BeginList { at: usize },
    EndList { at: usize, commits: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..2usize, 0..10u8, 0..6u8, 0..4u8);
    prop_oneof![
        20 => put.prop_map(|(at, name, url, parts)| Step::Put { at, name, content: Content { url, parts } }),
        6 => (0..2usize, 0..10u8).prop_map(|(at, name)| Step::Delete { at, name }),
        1 => (0..2usize).prop_map(|at| Step::BeginList { at }),
        2 => (0..2usize, prop::bool::weighted(0.8)).prop_map(|(at, commits)| Step::EndList { at, commits }),
    ]
}

/// A list/watch without a server, and the objects according to the events that it received.
struct ListWatchModel {
    sink: ObjectSink,
    store: Arc<Store>,
    rejected: Arc<RejectedSet>,
    objects: BTreeMap<u8, Content>,
    collected: Option<BTreeMap<u8, Content>>,
}

fn content_json(at: usize, name: u8, Content { url, parts }: Content) -> String {
    let sizes: Vec<_> =
        (0..parts).map(|part| format!(r#"{{"part":"{}","value":1}}"#, url / 2 + part)).collect();
    let long = "x".repeat(usize::from(url / 5) * 8);
    let rest = format!(r#","labels":{{"url":"/{url}{long}"}},"sizes":[{}]"#, sizes.join(","));
    object(&format!("n{at}-{name}"), 1, &rest)
}

impl ListWatchModel {
    fn pair(watched: &WatchedResource, budget: &Budget) -> Vec<Self> {
        Self::pair_of_shard(watched, budget, None, Shard::ALL)
    }

    fn pair_of_shard(
        watched: &WatchedResource,
        budget: &Budget,
        quota: Option<&Arc<Quota>>,
        shard: Shard,
    ) -> Vec<Self> {
        Self::several(watched, budget, quota, shard, 2)
    }

    /// Returns list/watches of one kind in this number of namespaces.
    fn several(
        watched: &WatchedResource,
        budget: &Budget,
        quota: Option<&Arc<Quota>>,
        shard: Shard,
        count: usize,
    ) -> Vec<Self> {
        let metrics = KubeMetrics::default();
        let kind = KindBudget::new(budget, &*watched.renderer, (String::new(), &metrics), count);
        let model = |number| {
            let scope = Scope {
                api: watched.api.clone(),
                namespace: None,
                selector: String::new(),
                labels: String::new(),
                drop_completed_after: None,
            };
            let store = Arc::new(Store::new(watched.renderer.schema()));
            let handover = Arc::new(Handover::new(shard));
            let rejected = Arc::new(RejectedSet::default());
            let allowance =
                kind.as_ref().map(|kind| kind.allowance(number, (&store, &handover), &rejected));
            let share = quota.map(|quota| quota.share(number, 0, Counter::default()));
            let sink = ObjectSink::new(
                Arc::new(scope),
                Arc::clone(&watched.renderer),
                (Arc::clone(&store), handover),
                None,
                (share, allowance),
                metrics.reflector(""),
            );
            Self { sink, store, rejected, objects: BTreeMap::new(), collected: None }
        };
        (0..count).map(model).collect()
    }

    fn current(&mut self) -> &mut BTreeMap<u8, Content> {
        self.collected.as_mut().unwrap_or(&mut self.objects)
    }

    fn put(&mut self, at: usize, name: u8, content: Content) {
        self.sink.put(ObjectBytes::Json(content_json(at, name, content).as_bytes()));
        self.current().insert(name, content);
    }

    fn delete(&mut self, at: usize, name: u8) {
        self.sink.remove(ObjectBytes::Json(content_json(at, name, Content::default()).as_bytes()));
        self.current().remove(&name);
    }

    fn begin_list(&mut self) {
        self.sink.collect();
        self.collected.get_or_insert_default();
    }

    fn end_list(&mut self, commits: bool) {
        if let Some(collected) = self.collected.take() {
            self.sink.settle(if commits { Collected::Commit } else { Collected::Discard });
            if commits {
                self.objects = collected;
            }
        }
    }

    /// Relists the current objects.
    fn relist(&mut self, at: usize) {
        self.end_list(false);
        self.begin_list();
        for (name, content) in self.objects.clone() {
            self.put(at, name, content);
        }
        self.end_list(true);
    }
}

/// Returns the lines of all families without values, each once.
fn exposed(models: &[ListWatchModel]) -> Vec<String> {
    let catalog = Catalog::new();
    let schema = Arc::clone(models[0].store.schema());
    catalog.register(schema, models.iter().map(|model| Arc::clone(&model.store)).collect());
    let body = catalog.frames(Format::Text, &ScrapeQuery::default()).flatten();
    let text = String::from_utf8(body.collect()).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

fn assert_bounds(models: &[ListWatchModel], budget: &Budget, open: &[&str]) {
    let lines = exposed(models);
    let series: u64 = models.iter().map(|model| model.store.series()).sum();
    assert_eq!(series, lines.len() as u64);
    assert!(budget.series_per_kind == 0 || series <= budget.series_per_kind);
    let different: BTreeSet<&String> = lines.iter().collect();
    assert_eq!(different.len(), lines.len(), "a series twice: {lines:#?}");
    for model in models {
        let counted = model.store.len() as u64 + model.rejected.len();
        assert_eq!(counted, model.objects.len() as u64);
    }
    let mut values: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        let (family, labels) = line.split_once('{').expect("labels");
        if !open.iter().any(|open| family.starts_with(open)) {
            continue;
        }
        *counts.entry(family).or_default() += 1;
        for pair in labels.trim_end_matches('}').split("\",") {
            let (name, value) = pair.split_once("=\"").expect("a label");
            let value = value.trim_end_matches('"');
            let chosen = !family.starts_with("kube_pod") || name.starts_with("label_");
            if chosen && value != "other" {
                assert!(budget.value_bytes == 0 || value.len() as u64 <= budget.value_bytes);
                values.entry((family, name)).or_default().insert(value);
            }
        }
    }
    for (label, values) in values {
        let most = budget.values_per_label;
        assert!(most == 0 || values.len() as u64 <= most, "{label:?} has {values:?}");
    }
    for (family, count) in counts {
        let most = budget.series_per_metric;
        let bounded = family.starts_with("gadget") && most > 0;
        assert!(!bounded || count <= most, "{family} has {count}");
    }
}

/// A list may have new objects before those that it has in common with the old state, whose values keep their places.
#[test]
fn a_relist_with_new_values_stays_within_the_budget() {
    for custom in [false, true] {
        let watched = if custom { gadgets() } else { pods(&["url"]) };
        let budget = enforced(Budget { values_per_label: 3, ..Budget::default() });
        let mut models = ListWatchModel::several(&watched, &budget, None, Shard::ALL, 1);
        let _ = [0, 1].map(|name| models[0].put(0, name, Content { url: name, parts: 0 }));
        models[0].begin_list();
        let _ = [2, 3, 0, 1].map(|name| models[0].put(0, name, Content { url: name, parts: 0 }));
        models[0].end_list(true);
        assert_bounds(&models, &budget, &["kube_pod_labels", "gadget_"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// For any sequence of operations all bounds hold, every object is exposed or counted, and no series is duplicated.
    /// Once the excess is gone, everything else is exposed unchanged.
    #[test]
    fn bounds_hold_and_nothing_is_lost(
        steps in prop::collection::vec(step(), 0..120),
        series_per_kind in prop_oneof![Just(0), 20..120u64],
        values_per_label in prop_oneof![1 => Just(0), 3 => 1..5u64],
        series_per_metric in prop_oneof![1 => Just(0), 2 => 1..12u64],
        value_bytes in prop_oneof![1 => Just(0), 1 => Just(9u64)],
        custom in any::<bool>(),
        count in 1..3usize,
    ) {
        let watched = if custom { gadgets() } else { pods(&["url"]) };
        let open = ["kube_pod_labels", "gadget_"];
        let budget = Budget { series_per_kind, values_per_label, series_per_metric, value_bytes, ..Budget::default() };
        let budget = enforced(budget);
        let mut models = ListWatchModel::several(&watched, &budget, None, Shard::ALL, count);
        models.iter_mut().for_each(|model| {
            model.begin_list();
            model.end_list(true);
        });
        for step in steps {
            match step {
                Step::Put { at, name, content } => models[at % count].put(at % count, name, content),
                Step::Delete { at, name } => models[at % count].delete(at % count, name),
                Step::BeginList { at } => models[at % count].begin_list(),
                Step::EndList { at, commits } => models[at % count].end_list(commits),
            }
            assert_bounds(&models, &budget, &open);
        }
        // A single object is within any budget that it fits in.
        for (at, model) in models.iter_mut().enumerate() {
            model.end_list(true);
            for name in model.objects.keys().copied().collect::<Vec<_>>() {
                model.delete(at, name);
            }
        }
        models[0].put(0, 0, Content { url: 0, parts: 1 });
        models[0].relist(0);
        let mut alone = ListWatchModel::pair(&watched, &enforced(Budget::default()));
        alone[0].put(0, 0, Content { url: 0, parts: 1 });
        if series_per_kind == 0 || alone[0].store.series() <= series_per_kind {
            prop_assert_eq!(exposed(&models), exposed(&alone));
        }
    }
}
