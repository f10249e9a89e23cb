//! Budgets of kinds and of labels that people choose: what is beyond them is left out or folds, is named and counted, and
//! comes back when there is room.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::stub::Writer;
use super::*;
use crate::cache::Store;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::kube::follow::budget::KindBudget;
use crate::kube::follow::handover::Handover;
use crate::kube::follow::intake::Intake;
use crate::kube::follow::left_out::LeftOut;
use crate::kube::follow::machine::Collected;
use crate::kube::target::Scope;
use crate::resources::custom::resolve::Manner;
use crate::resources::custom::{Definition, Twice, ValueError, ValueErrors, load, resolve};
use crate::resources::select::selection::Selection;
use crate::resources::{RenderOptions, find};

fn enforced(budget: Budget) -> Arc<Budget> {
    Arc::new(Budget { mode: BudgetMode::Enforce, ..budget })
}

/// An object of the namespace `space` whose uid is its name.
fn object(name: &str, version: u32, rest: &str) -> String {
    let about = format!(r#""name":"{name}","namespace":"space","uid":"{name}""#);
    format!(r#"{{"metadata":{{{about},"resourceVersion":"{version}"{rest}}}}}"#)
}

fn labelled(name: &str, version: u32, labels: &[(&str, &str)]) -> String {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    let labels = serde_json::to_string(&labels).expect("JSON");
    object(name, version, &format!(r#","labels":{labels}"#))
}

fn line(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// The end of a streaming list.
fn end(version: u32) -> String {
    let annotation = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
    let metadata = format!(r#"{{"metadata":{{"resourceVersion":"{version}",{annotation}}}}}"#);
    line("BOOKMARK", &metadata)
}

/// Answers the next request, a streaming list, with these objects.
async fn listed(bench: &mut Bench, version: u32, objects: &[String]) -> Writer {
    let body = bench.stub.streaming().await.open(200, JSON);
    objects.iter().for_each(|object| body.send(line("ADDED", object)));
    body.send(end(version));
    body
}

/// The lines of a scrape that begin so, sorted.
fn lines(bench: &Bench, beginning: &str) -> Vec<String> {
    let body = bench.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten();
    let text = String::from_utf8(body.collect()).expect("UTF-8");
    let lines = text.lines().filter(|line| line.starts_with(beginning));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Waits until these are the values of a label in the lines that begin so, with the names of the objects.
async fn has(bench: &Bench, beginning: &str, [name, label]: [&str; 2], wanted: &[(&str, &str)]) {
    let value = |line: &str, label: &str| {
        let (_, rest) = line.split_once(&format!("{label}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let found = || -> Vec<(String, String)> {
        let lines = lines(bench, beginning).into_iter();
        let pair = |line: String| Some((value(&line, name)?, value(&line, label)?));
        lines.filter_map(pair).collect()
    };
    let wanted: Vec<_> =
        wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    eventually(|| found() == wanted, || format!("{:?} instead of {wanted:?}", found())).await;
}

/// Waits until what the pipeline tells of itself has this line.
async fn tells(bench: &Bench, line: &str) {
    let body = || {
        let mut recorder = Recorder::default();
        recorder.add(bench.handle.clone());
        recorder.finish().encode(Format::Text)
    };
    eventually(|| body().lines().any(|own| own == line), body).await;
}

/// A kind that runs away keeps what it had; what is left out is counted by namespace, and comes without a restart.
#[tokio::test]
async fn a_kind_is_bounded_and_its_totals_stay_exact() {
    let budget = enforced(Budget { series_per_kind: 3, ..Budget::default() });
    let (mut bench, body) = watching(&PipelineConfig { budget, ..config() }).await;
    let added = |name: &str, version: &str| event("ADDED", &pod(name, version));
    body.send([added("c", "6"), added("d", "7"), added("e", "8")].concat());
    bench.shows(&["a 1", "b 2", "c 6"]).await;
    let over = |action: &str, times: u32| {
        let labels =
            format!("action=\"{action}\",label=\"\",limit=\"series-per-kind\",metric_name=\"\"");
        format!("kstatd_kubernetes_over_budget_total{{{labels},resource=\"*v1.pods\"}} {times}")
    };
    bench.counts(&over("refused", 2)).await;
    let kind = "resource=\"*v1.pods\"";
    tells(&bench, &format!("kstatd_kube_objects{{namespace=\"space\",{kind}}} 5")).await;
    tells(&bench, &format!("kstatd_kubernetes_left_out_objects{{namespace=\"\",{kind}}} 2")).await;
    // What changes keeps its place; what was left out and goes is forgotten.
    body.send([event("MODIFIED", &pod("a", "9")), event("DELETED", &pod("e", "10"))].concat());
    bench.shows(&["a 9", "b 2", "c 6"]).await;
    tells(&bench, &format!("kstatd_kube_objects{{namespace=\"space\",{kind}}} 4")).await;
    // There is room: the end of the watch leads to a new list.
    body.send(event("DELETED", &pod("b", "11")));
    bench.shows(&["a 9", "c 6"]).await;
    drop(body);
    let body = bench.stub.streaming().await.protobuf();
    // What is known goes before what is new, wherever it stands.
    body.send([added("0", "12"), added("a", "9"), added("c", "6"), added("d", "7")].concat());
    body.send(bookmark("13", true));
    tells(&bench, &format!("kstatd_kube_objects{{namespace=\"space\",{kind}}} 4")).await;
    bench.shows(&["0 12", "a 9", "c 6"]).await;
    // There is none: the watch goes on.
    body.send(bookmark("14", false));
    drop(body);
    let body = bench.stub.watch("14").await.protobuf();
    body.send(event("DELETED", &pod("0", "15")));
    bench.shows(&["a 9", "c 6"]).await;
    drop(body);
    let body = bench.stub.streaming().await.protobuf();
    body.send([added("a", "9"), added("c", "6"), added("d", "7"), bookmark("16", true)].concat());
    bench.shows(&["a 9", "c 6", "d 7"]).await;
    tells(&bench, &format!("kstatd_kubernetes_left_out_objects{{namespace=\"\",{kind}}} 0")).await;
}

#[tokio::test]
async fn what_is_tracked_is_shown() {
    let budget = Budget { mode: BudgetMode::Track, series_per_kind: 1, ..Budget::default() };
    let (mut bench, body) = watching(&PipelineConfig { budget: budget.into(), ..config() }).await;
    body.send(event("ADDED", &pod("c", "6")));
    bench.shows(&["a 1", "b 2", "c 6"]).await;
    let labels = "action=\"tracked\",label=\"\",limit=\"series-per-kind\",metric_name=\"\"";
    let over = format!("kstatd_kubernetes_over_budget_total{{{labels},resource=\"*v1.pods\"}} 2");
    bench.counts(&over).await;
    body.send(bookmark("7", false));
    drop(body);
    bench.stub.watch("7").await;
}

fn pods(keys: &[&str]) -> Watched {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let options = RenderOptions { labels: Selection::new(&keys), ..RenderOptions::default() };
    Watched::built_in(find("pods").expect("a kind"), &options)
}

/// One label that explodes folds alone; its values give room when they go.
#[tokio::test]
async fn an_allow_listed_label_folds_alone() {
    let budget = Budget { values_per_label: 2, value_bytes: 12, ..Budget::default() };
    let resources = vec![pods(&["app", "url"])];
    let config = PipelineConfig { resources, budget: enforced(budget), ..config() };
    let mut bench = Bench::new(&config).await;
    let one = |name: &str, version, url: &str| {
        labelled(name, version, &[("app", "web"), ("url", url), ("unlisted", name)])
    };
    let body = listed(&mut bench, 5, &[one("a", 1, "/1"), one("b", 2, "/2")]).await;
    let urls = ["pod", "label_url"];
    has(&bench, "kube_pod_labels", urls, &[("a", "/1"), ("b", "/2")]).await;
    let added = |name: &str, version, url: &str| line("ADDED", &one(name, version, url));
    body.send(added("c", 6, "/3") + &added("d", 7, "/1") + &added("e", 8, "/a-long-value"));
    let all = [("a", "/1"), ("b", "/2"), ("c", "other"), ("d", "/1"), ("e", "other")];
    has(&bench, "kube_pod_labels", urls, &all).await;
    let apps: Vec<_> = all.iter().map(|(name, _)| (*name, "web")).collect();
    has(&bench, "kube_pod_labels", ["pod", "label_app"], &apps).await;
    // Nothing else of the objects is left out.
    assert_eq!(lines(&bench, "kube_pod_info").len(), 5);
    for (limit, times) in [("value-bytes", 1), ("values-per-label", 1)] {
        let labels =
            format!("label=\"label_url\",limit=\"{limit}\",metric_name=\"kube_pod_labels\"");
        let labels = format!("action=\"folded\",{labels},resource=\"*v1.Pod\"");
        bench.counts(&format!("kstatd_kubernetes_over_budget_total{{{labels}}} {times}")).await;
    }
    // A value is there as long as one object has it.
    body.send(line("DELETED", &one("a", 9, "/1")) + &line("MODIFIED", &one("c", 10, "/3")));
    let all = [("b", "/2"), ("c", "other"), ("d", "/1"), ("e", "other")];
    has(&bench, "kube_pod_labels", urls, &all).await;
    // A fold stays until its object changes.
    body.send(line("MODIFIED", &one("d", 11, "/2")) + &added("f", 12, "/2"));
    let all = [("b", "/2"), ("c", "other"), ("d", "/2"), ("e", "other"), ("f", "/2")];
    has(&bench, "kube_pod_labels", urls, &all).await;
    body.send(line("MODIFIED", &one("c", 13, "/3")));
    let all = [("b", "/2"), ("c", "/3"), ("d", "/2"), ("e", "other"), ("f", "/2")];
    has(&bench, "kube_pod_labels", urls, &all).await;
    // A new list folds the same, in whichever order it comes.
    body.send(line("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired"}"#));
    let again = [one("g", 14, "/4"), one("f", 12, "/2"), one("c", 13, "/3"), one("b", 2, "/2")];
    let _body = listed(&mut bench, 15, &again).await;
    let all = [("b", "/2"), ("c", "/3"), ("f", "/2"), ("g", "other")];
    has(&bench, "kube_pod_labels", urls, &all).await;
}

struct Silent;

impl ValueErrors for Silent {
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

fn gadgets() -> Watched {
    let loaded = load(GADGETS);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let manner = Manner {
        families: Arc::default(),
        keep_duplicates: false,
        twice: Twice::Both,
        errors: Arc::new(Silent),
    };
    let definition = Definition {
        group: "e.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Gadget".to_owned(),
        plural: "gadgets".to_owned(),
        namespaced: true,
    };
    let resolution = resolve(&loaded.config, &[definition], &manner).expect("metrics");
    Watched::custom(resolution.resources.into_iter().next().expect("a kind"))
}

/// Labels of custom resources fold where a series still says whose it is; otherwise the series is left out.
#[tokio::test]
async fn labels_of_custom_resources_fold_where_series_stay_apart() {
    let budget = Budget { values_per_label: 3, ..Budget::default() };
    let config =
        PipelineConfig { resources: vec![gadgets()], budget: enforced(budget), ..config() };
    let mut bench = Bench::new(&config).await;
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
    let body = listed(&mut bench, 5, &first).await;
    let urls = ["name", "url"];
    has(&bench, "gadget_about", urls, &[("a", "/1"), ("b", "/2")]).await;
    body.send(line("ADDED", &gadget("c", 6, "/3", &["x", "u", "v"])));
    has(&bench, "gadget_about", urls, &[("a", "/1"), ("b", "/2"), ("c", "/3")]).await;
    // Two parts of one gadget would be one: the second is left out.
    let parts = [("a", "x"), ("b", "y"), ("b", "z"), ("c", "other"), ("c", "x")];
    has(&bench, "gadget_size", ["name", "part"], &parts).await;
    // The name is one of its labels too, without which nothing tells its series from those of others.
    body.send(line("ADDED", &gadget("d", 7, "/4", &["x"])));
    let refused = |metric: &str, label: &str| {
        let labels =
            format!("label=\"{label}\",limit=\"values-per-label\",metric_name=\"{metric}\"");
        let resource = "resource=\"gadgets.v1.e.io\"";
        format!("kstatd_kubernetes_over_budget_total{{action=\"refused\",{labels},{resource}}} 1")
    };
    bench.counts(&refused("gadget_about", "name")).await;
    bench.counts(&refused("gadget_size", "name")).await;
    // This one never says whose it is.
    bench.counts(&refused("gadget_load", "url")).await;
    assert_eq!(lines(&bench, "gadget_load{").len(), 3);
    has(&bench, "gadget_about", urls, &[("a", "/1"), ("b", "/2"), ("c", "/3")]).await;
    tells(&bench, "kstatd_kube_objects{namespace=\"space\",resource=\"gadgets.v1.e.io\"} 4").await;
    // Room for a name: the next list brings what was left out.
    body.send(line("DELETED", &gadget("a", 8, "/1", &["x"])));
    has(&bench, "gadget_about", urls, &[("b", "/2"), ("c", "/3")]).await;
    drop(body);
    let rest = [
        gadget("b", 2, "/2", &["y", "z"]),
        gadget("c", 6, "/3", &["x", "u", "v"]),
        gadget("d", 7, "/4", &["x"]),
    ];
    let _body = listed(&mut bench, 9, &rest).await;
    has(&bench, "gadget_about", urls, &[("b", "/2"), ("c", "/3"), ("d", "/4")]).await;
}

/// A family of custom resources has a budget of its own: the others of an object stay.
#[tokio::test]
async fn a_family_of_custom_resources_is_bounded() {
    let budget = Budget { series_per_metric: 3, ..Budget::default() };
    let config =
        PipelineConfig { resources: vec![gadgets()], budget: enforced(budget), ..config() };
    let mut bench = Bench::new(&config).await;
    let gadget = |name: &str, version, parts: u32| {
        let sizes: Vec<_> =
            (0..parts).map(|part| format!(r#"{{"part":"p{part}","value":1}}"#)).collect();
        let rest = format!(r#","labels":{{"url":"/"}},"sizes":[{}]"#, sizes.join(","));
        object(name, version, &rest)
    };
    let body = listed(&mut bench, 5, &[gadget("a", 1, 2), gadget("b", 2, 2)]).await;
    let sizes = ["name", "part"];
    has(&bench, "gadget_size", sizes, &[("a", "p0"), ("a", "p1")]).await;
    has(&bench, "gadget_about", ["name", "url"], &[("a", "/"), ("b", "/")]).await;
    let labels = "label=\"\",limit=\"series-per-metric\",metric_name=\"gadget_size\"";
    let labels = format!("action=\"refused\",{labels},resource=\"gadgets.v1.e.io\"");
    bench.counts(&format!("kstatd_kubernetes_over_budget_total{{{labels}}} 1")).await;
    body.send(line("MODIFIED", &gadget("a", 6, 1)));
    has(&bench, "gadget_size", sizes, &[("a", "p0")]).await;
    drop(body);
    let _body = listed(&mut bench, 7, &[gadget("a", 6, 1), gadget("b", 2, 2)]).await;
    has(&bench, "gadget_size", sizes, &[("a", "p0"), ("b", "p0"), ("b", "p1")]).await;
}

/// What may happen to one of two list/watches of a kind.
#[derive(Clone, Debug)]
enum Step {
    Put(usize, u8, u8, u8),
    Delete(usize, u8),
    Begin(usize),
    Settle(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..2usize, 0..10u8, 0..6u8, 0..4u8);
    prop_oneof![
        20 => put.prop_map(|(member, name, url, parts)| Step::Put(member, name, url, parts)),
        6 => (0..2usize, 0..10u8).prop_map(|(member, name)| Step::Delete(member, name)),
        1 => (0..2usize).prop_map(Step::Begin),
        2 => (0..2usize, prop::bool::weighted(0.8)).prop_map(|(at, commits)| Step::Settle(at, commits)),
    ]
}

/// One list/watch without a server, and what there is by the events that it got.
struct Follows {
    intake: Intake,
    store: Arc<Store>,
    left_out: Arc<LeftOut>,
    objects: BTreeMap<u8, (u8, u8)>,
    coming: Option<BTreeMap<u8, (u8, u8)>>,
}

fn bytes(member: usize, name: u8, (url, parts): (u8, u8)) -> String {
    let sizes: Vec<_> =
        (0..parts).map(|part| format!(r#"{{"part":"{}","value":1}}"#, url / 2 + part)).collect();
    let long = "x".repeat(usize::from(url / 5) * 8);
    let rest = format!(r#","labels":{{"url":"/{url}{long}"}},"sizes":[{}]"#, sizes.join(","));
    object(&format!("n{member}-{name}"), 1, &rest)
}

impl Follows {
    fn both(watched: &Watched, budget: &Budget) -> Vec<Self> {
        let metrics = KubeMetrics::default();
        let kind = KindBudget::new(budget, &*watched.renderer, (String::new(), &metrics), 2);
        let follows = |number| {
            let scope =
                Scope { target: watched.target.clone(), namespace: None, selector: String::new() };
            let store = Arc::new(Store::new(watched.renderer.schema()));
            let handover = Arc::new(Handover::new(Shard::WHOLE));
            let left_out = Arc::new(LeftOut::default());
            let allowance =
                kind.as_ref().map(|kind| kind.allowance(number, (&store, &handover), &left_out));
            let intake = Intake::new(
                Arc::new(scope),
                Arc::clone(&watched.renderer),
                Arc::clone(&store),
                handover,
                (None, allowance),
                metrics.reflector(""),
            );
            Self { intake, store, left_out, objects: BTreeMap::new(), coming: None }
        };
        (0..2).map(follows).collect()
    }

    fn current(&mut self) -> &mut BTreeMap<u8, (u8, u8)> {
        self.coming.as_mut().unwrap_or(&mut self.objects)
    }

    fn put(&mut self, member: usize, name: u8, what: (u8, u8)) {
        self.intake.put(ObjectBytes::Json(bytes(member, name, what).as_bytes()));
        self.current().insert(name, what);
    }

    fn delete(&mut self, member: usize, name: u8) {
        self.intake.remove(ObjectBytes::Json(bytes(member, name, (0, 0)).as_bytes()));
        self.current().remove(&name);
    }

    fn begin(&mut self) {
        self.intake.collect();
        self.coming.get_or_insert_default();
    }

    fn settle(&mut self, commits: bool) {
        if let Some(coming) = self.coming.take() {
            self.intake.settle(if commits { Collected::Commit } else { Collected::Discard });
            if commits {
                self.objects = coming;
            }
        }
    }

    /// A new list of what there is.
    fn list_anew(&mut self, member: usize) {
        self.settle(false);
        self.begin();
        for (name, what) in self.objects.clone() {
            self.put(member, name, what);
        }
        self.settle(true);
    }
}

/// The lines of all families, without values: each once.
fn shown(follows: &[Follows]) -> Vec<String> {
    let catalog = Catalog::new();
    let schema = Arc::clone(follows[0].store.schema());
    catalog.register(schema, follows.iter().map(|follows| Arc::clone(&follows.store)).collect());
    let body = catalog.frames(Format::Text, &ScrapeQuery::default()).flatten();
    let text = String::from_utf8(body.collect()).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

fn assert_bounds(follows: &[Follows], budget: &Budget, open: &[&str]) {
    let lines = shown(follows);
    let series: u64 = follows.iter().map(|follows| follows.store.series()).sum();
    assert_eq!(series, lines.len() as u64);
    assert!(budget.series_per_kind == 0 || series <= budget.series_per_kind);
    let different: BTreeSet<&String> = lines.iter().collect();
    assert_eq!(different.len(), lines.len(), "a series twice: {lines:#?}");
    for follows in follows {
        let counted = follows.store.len() as u64 + follows.left_out.len();
        assert_eq!(counted, follows.objects.len() as u64);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever comes and goes: every bound holds, every object is shown or counted, no series is there twice, and when all
    /// that is too much has gone, everything else is shown as it is.
    #[test]
    fn bounds_hold_and_nothing_is_lost(
        steps in prop::collection::vec(step(), 0..120),
        series_per_kind in prop_oneof![Just(0), 20..120u64],
        values_per_label in prop_oneof![1 => Just(0), 3 => 1..5u64],
        series_per_metric in prop_oneof![1 => Just(0), 2 => 1..12u64],
        value_bytes in prop_oneof![1 => Just(0), 1 => Just(9u64)],
        custom in any::<bool>(),
    ) {
        let watched = if custom { gadgets() } else { pods(&["url"]) };
        let open = ["kube_pod_labels", "gadget_"];
        let budget = Budget { series_per_kind, values_per_label, series_per_metric, value_bytes, ..Budget::default() };
        let budget = enforced(budget);
        let mut both = Follows::both(&watched, &budget);
        both.iter_mut().for_each(|follows| {
            follows.begin();
            follows.settle(true);
        });
        for step in steps {
            match step {
                Step::Put(at, name, url, parts) => both[at].put(at, name, (url, parts)),
                Step::Delete(at, name) => both[at].delete(at, name),
                Step::Begin(at) => both[at].begin(),
                Step::Settle(at, commits) => both[at].settle(commits),
            }
            assert_bounds(&both, &budget, &open);
        }
        // One object alone is within any budget that it can be within.
        for (at, follows) in both.iter_mut().enumerate() {
            follows.settle(true);
            for name in follows.objects.keys().copied().collect::<Vec<_>>() {
                follows.delete(at, name);
            }
        }
        both[0].put(0, 0, (0, 1));
        both[0].list_anew(0);
        let mut alone = Follows::both(&watched, &enforced(Budget::default()));
        alone[0].put(0, 0, (0, 1));
        if series_per_kind == 0 || alone[0].store.series() <= series_per_kind {
            prop_assert_eq!(shown(&both), shown(&alone));
        }
    }
}
