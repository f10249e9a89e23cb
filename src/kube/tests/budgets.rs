//! Tests of series and label budgets: what exceeds them is rejected or folded into `other`, named and counted, and
//! restored once there is room.

mod offline;

use std::collections::BTreeMap;

use super::stub::BodyWriter;
use super::*;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::resources::custom::resolve::ResolveOptions;
use crate::resources::custom::{Definition, ValueError, ValueErrors, load, resolve};
use crate::resources::select::selection::Selection;
use crate::resources::{RenderOptions, find};

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
        errors: Arc::new(IgnoredErrors),
    };
    let definition = Definition {
        group: "e.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Gadget".to_owned(),
        list_kind: String::new(),
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

/// An object that can never fit is no reason for another list.
#[tokio::test]
async fn an_object_larger_than_the_limit_causes_no_lists() {
    let budget = Budget { series_per_metric: 3, values_per_label: 5, ..Budget::default() };
    let (budget, resources) = (enforced(budget), vec![gadgets()]);
    // With an object limit there are no streaming lists.
    let config = PipelineConfig { resources, budget, object_limit: 9, ..config() };
    let mut fixture = Fixture::new(&config).await;
    let sizes: Vec<_> = (0..9).map(|part| format!(r#"{{"part":"p{part}","value":1}}"#)).collect();
    let loads: Vec<_> = (0..9).map(|url| format!(r#"{{"url":"/{url}"}}"#)).collect();
    let all = format!(r#","sizes":[{}],"load":[{}]"#, sizes.join(","), loads.join(","));
    let large = object("a", 1, &all);
    let meta = r#""kind":"GadgetList","metadata":{"resourceVersion":"5"}"#;
    let request = fixture.stub.next_request().await;
    request.respond(200, JSON, format!(r#"{{{meta},"items":[{large}]}}"#));
    for version in ["5", "6"] {
        let body = fixture.stub.expect_watch(version).await.start_response(200, JSON);
        body.send(event_line("ADDED", &object("b", 6, r#","labels":{"url":"/"}"#)));
        let about = LabelNames { object: "name", label: "url" };
        wait_for_labels(&fixture, "gadget_about", about, &[("b", "/")]).await;
    }
}
