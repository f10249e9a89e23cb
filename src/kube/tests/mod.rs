//! The list/watches against a scripted server: each path through the protocol, seen from the requests
//! on one side and the stores on the other.

mod budgets;
mod history;
mod lists;
mod parts;
mod reload;
mod stub;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use stub::{DEADLINE, JSON, PROTOBUF, Stub, bookmark, error, event, json_pod, list, pod};

use super::follow::turns;
use super::frame::{Encoding, Identified};
use super::shard::Shard;
use super::{
    BackoffConfig, Client, ClientOptions, Pipeline, PipelineConfig, PipelineHandle, Target, Timing,
    Watched,
};
use crate::cache::{Catalog, Family, MetricKind, Rendered, Schema};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::resources::{Needs, ObjectBytes, Renderer};
use crate::telemetry::{KubeMetrics, Recorder};
use crate::wire::view::{DecodeError, decode};

/// One series for each object: its name and version. `bad` does not render, `panic` panics,
/// `torn` is nothing that a store can hold.
struct Names(Arc<Schema>, Needs);

impl Renderer for Names {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.0)
    }

    fn needs(&self) -> Needs {
        self.1
    }

    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError> {
        out.clear();
        let view: Identified<'_> = decode(object)?;
        let metadata = &view.metadata;
        match &*metadata.name {
            "bad" => return Err(DecodeError::Truncated(vec!["spec"])),
            "panic" => panic!("an odd object"),
            _ => {}
        }
        out.uid.extend_from_slice(metadata.uid.as_bytes());
        out.resource_version.push_str(&metadata.resource_version);
        out.namespace.extend_from_slice(metadata.namespace.as_bytes());
        out.series = 1;
        out.identity.extend(format!("{{name=\"{}\"", &*metadata.name).bytes());
        out.lines.extend(format!("}} {}\n", &*metadata.resource_version).bytes());
        let torn = &*metadata.name == "torn";
        out.ends.push(if torn { u32::MAX } else { out.lines.len() as u32 });
        Ok(())
    }
}

fn watched(plural: &str, namespaced: bool) -> Watched {
    let target = Target {
        group: String::new(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: "Pod".to_owned(),
        namespaced,
        protobuf: true,
        label: format!("*v1.{plural}"),
    };
    let family = Family { name: plural.to_owned(), help: String::new(), kind: MetricKind::Gauge };
    let schema = Schema { resource: plural.to_owned(), families: vec![family] };
    Watched { target, renderer: Arc::new(Names(Arc::new(schema), Needs::Object)) }
}

fn config() -> PipelineConfig {
    let millis = Duration::from_millis;
    let backoff = BackoffConfig {
        initial: millis(1),
        cap: millis(4),
        denied_cap: millis(4),
        lasting_cycle: millis(4),
        spacing: millis(1),
        spread: Duration::ZERO,
        ..BackoffConfig::default()
    };
    PipelineConfig {
        resources: vec![watched("pods", true)],
        namespaces: Vec::new(),
        selector: String::new(),
        shard: Shard::WHOLE,
        object_limit: 0,
        budget: Arc::default(),
        use_apiserver_cache: false,
        timing: Timing {
            backoff,
            short_watch: Duration::ZERO,
            short_relist: Duration::ZERO,
            watch_cycle: LONG,
            ..Timing::default()
        },
    }
}

/// A pipeline on a scripted server.
struct Bench {
    stub: Stub,
    pipeline: Pipeline,
    handle: PipelineHandle,
    catalog: Catalog,
    metrics: KubeMetrics,
}

impl Bench {
    async fn new(config: &PipelineConfig) -> Self {
        let stub = Stub::start().await;
        let options = ClientOptions {
            apiserver: Some(stub.url.clone()),
            user_agent: "kstatd/test".to_owned(),
            ..ClientOptions::default()
        };
        let client = Client::new(&options).await.expect("a client");
        let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
        let pipeline = Pipeline::start(&client, config, &catalog, &metrics).expect("a thread");
        let handle = pipeline.handle();
        Self { stub, pipeline, handle, catalog, metrics }
    }

    /// The series as `name version`, sorted.
    fn series(&self) -> Vec<String> {
        let body: Vec<u8> =
            self.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
        let text = String::from_utf8(body).expect("UTF-8");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| line.replace("pods{name=\"", "").replace("\"}", ""));
        let mut series: Vec<String> = series.collect();
        series.sort();
        series
    }

    /// Waits until these are the series.
    async fn shows(&self, expected: &[&str]) {
        eventually(|| self.series() == expected, || format!("{:?}", self.series())).await;
    }

    async fn ready(&self) {
        tokio::time::timeout(DEADLINE, self.handle.ready()).await.expect("ready");
    }

    fn failure(&self) -> String {
        self.handle.status()[0].failure.as_ref().map(|f| f.message.clone()).unwrap_or_default()
    }

    /// Waits until our own metrics have this line.
    async fn counts(&self, line: &str) {
        let body = || {
            let mut recorder = Recorder::default();
            self.metrics.register(&mut recorder);
            recorder.finish().encode(Format::Text)
        };
        eventually(|| body().lines().any(|own| own == line), body).await;
    }
}

async fn eventually(condition: impl Fn() -> bool, describe: impl Fn() -> String) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{}", describe());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A bench whose store has `a` and `b`, and whose watch from version 5 is open.
async fn watching(config: &PipelineConfig) -> (Bench, stub::Writer) {
    let mut bench = Bench::new(config).await;
    let body = bench.stub.streaming().await.protobuf();
    body.send([event("ADDED", &pod("a", "1")), event("ADDED", &pod("b", "2"))].concat());
    body.send(bookmark("5", true));
    bench.ready().await;
    (bench, body)
}

#[tokio::test]
async fn malformed_objects_cost_nobody_else_anything() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.refuse(422);
    let items = [pod("a", "1"), pod("bad", "2"), vec![0xff], pod("panic", "3"), pod("b", "4")];
    bench.stub.next().await.answer(200, PROTOBUF, list("5", "", &items));
    let body = bench.stub.watch("5").await.protobuf();
    assert_eq!(bench.series(), ["a 1", "b 4"]);
    bench.counts("kstatd_kubernetes_malformed_objects_total{resource=\"*v1.pods\"} 3").await;
    body.send([event("ADDED", &pod("bad", "6")), event("ADDED", &pod("c", "7"))].concat());
    bench.shows(&["a 1", "b 4", "c 7"]).await;
    // An object that turns bad: what its series said is no longer true.
    let mut turned = k8s_pb::api::core::v1::Pod::default();
    let metadata = turned.metadata.get_or_insert_default();
    metadata.uid = Some("c".to_owned());
    metadata.name = Some("bad".to_owned());
    metadata.resource_version = Some("8".to_owned());
    body.send(event("MODIFIED", &prost::Message::encode_to_vec(&turned)));
    bench.shows(&["a 1", "b 4"]).await;
    drop(body);
    bench.stub.watch("8").await;
}

#[tokio::test]
async fn each_object_is_in_one_shard() {
    let names: Vec<String> = (0..40).map(|number| format!("pod{number}")).collect();
    let items: Vec<Vec<u8>> = names.iter().map(|name| pod(name, "1")).collect();
    let mut all = Vec::new();
    for index in 0..3 {
        let shard = Shard::new(index, 3);
        let mut bench = Bench::new(&PipelineConfig { shard, ..config() }).await;
        bench.stub.streaming().await.refuse(422);
        bench.stub.next().await.answer(200, PROTOBUF, list("7", "", &items));
        let body = bench.stub.watch("7").await.protobuf();
        let listed = bench.series();
        assert!((5..25).contains(&listed.len()), "{listed:?}");
        let changed: Vec<Vec<u8>> =
            names.iter().map(|name| event("MODIFIED", &pod(name, "8"))).collect();
        body.send(changed.concat());
        let listed: Vec<String> = listed.iter().map(|line| line.replace(" 1", " 8")).collect();
        bench.shows(&listed.iter().map(String::as_str).collect::<Vec<_>>()).await;
        all.extend(listed);
        // Nothing of what belongs to others is looked at but its metadata.
        body.send(event("ADDED", &pod("bad", "8")));
        // It moves the version too.
        body.send(event("ADDED", &pod("pod0", "9")));
        drop(body);
        bench.stub.watch("9").await;
        let bad = u8::from(shard.keeps(b"bad"));
        let malformed = "kstatd_kubernetes_malformed_objects_total{resource=\"*v1.pods\"}";
        bench.counts(&format!("{malformed} {bad}")).await;
    }
    all.sort();
    let mut expected: Vec<String> = names.iter().map(|name| format!("{name} 8")).collect();
    expected.sort();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn one_list_watch_for_each_namespace() {
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        namespaces: vec!["one".to_owned(), "two".to_owned(), "one".to_owned()],
        selector: "spec.nodeName=n".to_owned(),
        ..config()
    };
    let mut bench = Bench::new(&config).await;
    let mut starts = Vec::new();
    for _ in 0..4 {
        let call = bench.stub.next().await;
        let start = call.path.split("&resourceVersionMatch").next().expect("a start");
        starts.push(start.to_owned());
        let body = call.protobuf();
        assert!(!bench.handle.is_ready());
        body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
        std::mem::forget(body);
    }
    bench.ready().await;
    starts.sort();
    let selected = "pods?allowWatchBookmarks=true&fieldSelector=spec.nodeName%3Dn";
    assert_eq!(
        starts,
        [
            "/api/v1/namespaces/one/".to_owned() + selected,
            "/api/v1/namespaces/one/".to_owned() + selected,
            "/api/v1/namespaces/two/".to_owned() + selected,
            "/api/v1/nodes?allowWatchBookmarks=true".to_owned(),
        ]
    );
    // A namespace that is named twice doubles its series.
    assert_eq!(bench.series(), ["a 1", "a 1", "a 1", "nodes{name=\"a 1"]);
    assert!(bench.stub.is_quiet());
}

const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"odd","reason":"InternalError","code":500}"#;

#[tokio::test]
async fn objects_that_may_not_be_listed_any_more_go_after_a_while() {
    for code in [401, 403, 404] {
        let timing = Timing { staleness_limit: Some(Duration::ZERO), ..config().timing };
        let (mut bench, body) = watching(&PipelineConfig { timing, ..config() }).await;
        drop(body);
        bench.stub.watch("5").await.refuse(code);
        bench.shows(&[]).await;
        loop {
            let call = bench.stub.next().await;
            if !call.path.contains("watch=true") {
                call.answer(200, PROTOBUF, list("20", "", &[pod("c", "19")]));
                break;
            }
            // 401 says nothing of lists: only another refusal leads to an ordinary one.
            let streaming = call.path.contains("sendInitialEvents");
            call.refuse(if code == 401 && streaming { 422 } else { code });
        }
        bench.shows(&["c 19"]).await;
    }
    // Without a limit they stay, and so they do where the server is in trouble.
    for (code, staleness_limit) in [(403, None), (503, Some(Duration::ZERO))] {
        let timing = Timing { staleness_limit, ..config().timing };
        let (mut bench, body) = watching(&PipelineConfig { timing, ..config() }).await;
        drop(body);
        for _ in 0..8 {
            bench.stub.next().await.refuse(code);
        }
        bench.stub.next().await;
        assert_eq!(bench.series(), ["a 1", "b 2"]);
    }
}

/// An object that has too much of one family has none of it; it is counted, and the rest of it is there.
#[tokio::test]
async fn an_object_with_too_many_series_costs_nobody_else_anything() {
    use crate::resources::{RenderOptions, find};
    let endpoints = find("endpoints").expect("a resource");
    let mut config = config();
    config.resources = vec![Watched::built_in(endpoints, &RenderOptions::default())];
    config.resources[0].target.label = "*v1.Endpoints".to_owned();
    let mut bench = Bench::new(&config).await;
    bench.stub.streaming().await.refuse(422);
    let items = [stub::endpoints("many", 10_000, 10_000), stub::endpoints("few", 2, 3)];
    let call = bench.stub.next().await;
    call.answer(200, PROTOBUF, list("5", "", &items));
    bench.ready().await;
    let series = bench.series();
    let count = |family: &str, name: &str| {
        let start = format!("{family}{{namespace=\"space\",endpoint=\"{name}\"");
        series.iter().filter(|line| line.starts_with(&start.replace("\"}", ""))).count()
    };
    assert_eq!(count("kube_endpoint_address", "few"), 6);
    assert_eq!(count("kube_endpoint_address", "many"), 0);
    assert_eq!(count("kube_endpoint_ports", "many"), 10_000);
    bench.counts("kstatd_kubernetes_oversized_objects_total{resource=\"*v1.Endpoints\"} 1").await;
}

#[tokio::test]
async fn stopping_gives_up_connections_and_keeps_stores() {
    let (bench, body) = watching(&config()).await;
    let Bench { pipeline, catalog, .. } = bench;
    tokio::time::timeout(DEADLINE, pipeline.stop()).await.expect("stopped");
    body.gone().await;
    assert_eq!(catalog.objects(), [("pods".to_owned(), 2)]);
}

/// How long a thread rests that would be noticed in a test: longer than the deadline.
const LONG: Duration = Duration::from_secs(3600);
