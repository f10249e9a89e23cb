//! Tests of list/watches against a scripted server: each path through the protocol, observed in the requests and in the
//! stores.

mod autosharding;
mod budgets;
pub(crate) mod history;
mod lists;
mod many_namespaces;
mod observers;
mod peers;
mod reload;
mod representations;
mod stub;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use stub::{DEADLINE, JSON, PROTOBUF, StubServer, bookmark, error, event, json_pod, list, pod};

use super::follow::list_permits;
use super::frame::{Encoding, IdentifiedObject};
use super::shard::Shard;
use super::{
    ApiResource, BackoffConfig, Client, ClientOptions, Pipeline, PipelineConfig, PipelineHandle,
    Timing, WatchedResource,
};
use crate::cache::{Catalog, Family, MetricKind, Rendered, Schema};
use crate::exposition::family::Collect as _;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::resources::{ObjectBytes, Renderer, Representation};
use crate::telemetry::{KubeMetrics, Recorder};
use crate::wire::view::{DecodeError, decode};

/// Renders one series per object, with its name and version. The object `bad` cannot be rendered, `panic` panics, and
/// `torn` yields output that a store rejects.
struct NameRenderer {
    schema: Arc<Schema>,
    representation: Representation,
}

impl Renderer for NameRenderer {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    fn representation(&self) -> Representation {
        self.representation
    }

    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError> {
        out.clear();
        let view: IdentifiedObject<'_> = decode(object)?;
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

fn watched(plural: &str, namespaced: bool) -> WatchedResource {
    let api = ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: "Pod".to_owned(),
        list_kind: String::new(),
        namespaced,
        protobuf: true,
        label: format!("*v1.{plural}"),
    };
    let family = Family { name: plural.to_owned(), help: String::new(), kind: MetricKind::Gauge };
    let schema = Schema { resource: plural.to_owned(), families: vec![family] };
    let representation = Representation::Object;
    let renderer = NameRenderer { schema: Arc::new(schema), representation };
    WatchedResource { api, renderer: Arc::new(renderer), observers: Vec::new() }
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
        timing: Timing {
            backoff,
            short_watch: Duration::ZERO,
            short_relist: Duration::ZERO,
            watch_cycle: BEYOND_DEADLINE,
            ..Timing::default()
        },
        ..PipelineConfig::default()
    }
}

/// A pipeline connected to a scripted server.
struct Fixture {
    stub: StubServer,
    pipeline: Pipeline,
    handle: PipelineHandle,
    catalog: Catalog,
    metrics: KubeMetrics,
}

impl Fixture {
    async fn new(config: &PipelineConfig) -> Self {
        Self::with_client(config).await.0
    }

    /// Also returns the client, for changes of the configuration.
    async fn with_client(config: &PipelineConfig) -> (Self, Arc<Client>) {
        let stub = StubServer::start().await;
        let client = Arc::new(connect(&stub).await);
        let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
        let pipeline = Pipeline::start(&client, config, &catalog, &metrics).expect("a thread");
        let handle = pipeline.handle();
        (Self { stub, pipeline, handle, catalog, metrics }, client)
    }

    /// Returns the series as `name version`, sorted.
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

    /// Waits until the exposed series are these.
    async fn wait_for_series(&self, expected: &[&str]) {
        eventually(|| self.series() == expected, || format!("{:?}", self.series())).await;
    }

    async fn ready(&self) {
        tokio::time::timeout(DEADLINE, self.handle.ready()).await.expect("ready");
    }

    fn failure(&self) -> String {
        self.handle.status()[0].failure.as_ref().map(|f| f.message.clone()).unwrap_or_default()
    }

    /// Waits until own metrics contain this line.
    async fn wait_for_metric(&self, line: &str) {
        let body = || {
            let mut recorder = Recorder::default();
            self.metrics.register(&mut recorder);
            recorder.finish().encode(Format::Text)
        };
        eventually(|| body().lines().any(|own| own == line), body).await;
    }
}

async fn connect(stub: &StubServer) -> Client {
    let options = ClientOptions {
        apiserver: Some(stub.url.clone()),
        user_agent: "kstatd/test".to_owned(),
        ..ClientOptions::default()
    };
    Client::new(&options).await.expect("a client")
}

async fn eventually(condition: impl Fn() -> bool, describe: impl Fn() -> String) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{}", describe());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns a pipeline whose store has `a` and `b`, and whose watch from version 5 is open.
async fn synced_pods(config: &PipelineConfig) -> (Fixture, stub::BodyWriter) {
    let mut fixture = Fixture::new(config).await;
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    body.send([event("ADDED", &pod("a", "1")), event("ADDED", &pod("b", "2"))].concat());
    body.send(bookmark("5", true));
    fixture.ready().await;
    (fixture, body)
}

#[tokio::test]
async fn malformed_objects_do_not_affect_others() {
    let mut fixture = Fixture::new(&config()).await;
    fixture.stub.expect_streaming_list().await.refuse(422);
    let items = [pod("a", "1"), pod("bad", "2"), vec![0xff], pod("panic", "3"), pod("b", "4")];
    fixture.stub.next_request().await.respond(200, PROTOBUF, list("5", "", &items));
    let body = fixture.stub.expect_watch("5").await.start_watch();
    assert_eq!(fixture.series(), ["a 1", "b 4"]);
    fixture
        .wait_for_metric("kstatd_kubernetes_malformed_objects_total{resource=\"*v1.pods\"} 3")
        .await;
    body.send([event("ADDED", &pod("bad", "6")), event("ADDED", &pod("c", "7"))].concat());
    fixture.wait_for_series(&["a 1", "b 4", "c 7"]).await;
    // An object that can no longer be rendered loses its series, which are out of date.
    let mut turned = k8s_pb::api::core::v1::Pod::default();
    let metadata = turned.metadata.get_or_insert_default();
    metadata.uid = Some("c".to_owned());
    metadata.name = Some("bad".to_owned());
    metadata.resource_version = Some("8".to_owned());
    body.send(event("MODIFIED", &prost::Message::encode_to_vec(&turned)));
    fixture.wait_for_series(&["a 1", "b 4"]).await;
    drop(body);
    fixture.stub.expect_watch("8").await;
}

#[tokio::test]
async fn each_object_is_in_one_shard() {
    let names: Vec<String> = (0..40).map(|number| format!("pod{number}")).collect();
    let items: Vec<Vec<u8>> = names.iter().map(|name| pod(name, "1")).collect();
    let mut all = Vec::new();
    for index in 0..3 {
        let shard = Shard::new(index, 3);
        let mut fixture = Fixture::new(&PipelineConfig { shard, ..config() }).await;
        fixture.stub.expect_streaming_list().await.refuse(422);
        fixture.stub.next_request().await.respond(200, PROTOBUF, list("7", "", &items));
        let body = fixture.stub.expect_watch("7").await.start_watch();
        let listed = fixture.series();
        assert!((5..25).contains(&listed.len()), "{listed:?}");
        let changed: Vec<Vec<u8>> =
            names.iter().map(|name| event("MODIFIED", &pod(name, "8"))).collect();
        body.send(changed.concat());
        let listed: Vec<String> = listed.iter().map(|line| line.replace(" 1", " 8")).collect();
        fixture.wait_for_series(&listed.iter().map(String::as_str).collect::<Vec<_>>()).await;
        all.extend(listed);
        // Of other shards' objects only the metadata is read.
        body.send(event("ADDED", &pod("bad", "8")));
        // It advances the resource version, too.
        body.send(event("ADDED", &pod("pod0", "9")));
        drop(body);
        fixture.stub.expect_watch("9").await;
        let bad = u8::from(shard.keeps(b"bad"));
        let malformed = "kstatd_kubernetes_malformed_objects_total{resource=\"*v1.pods\"}";
        fixture.wait_for_metric(&format!("{malformed} {bad}")).await;
    }
    all.sort();
    let mut expected: Vec<String> = names.iter().map(|name| format!("{name} 8")).collect();
    expected.sort();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn each_namespace_has_a_list_watch() {
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        namespaces: vec!["one".to_owned(), "two".to_owned(), "one".to_owned()],
        selector: "spec.nodeName=n".to_owned(),
        ..config()
    };
    let mut fixture = Fixture::new(&config).await;
    let mut starts = Vec::new();
    for _ in 0..4 {
        let request = fixture.stub.next_request().await;
        let start = request.path.split("&resourceVersionMatch").next().expect("a start");
        starts.push(start.to_owned());
        let body = request.start_watch();
        assert!(!fixture.handle.is_ready());
        body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
        std::mem::forget(body);
    }
    fixture.ready().await;
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
    // A namespace that is configured twice has its series twice.
    assert_eq!(fixture.series(), ["a 1", "a 1", "a 1", "nodes{name=\"a 1"]);
    assert!(fixture.stub.is_idle());
    // Other pods that ask for the stage of this one do not wait for figures of each list/watch.
    let asks = |name: &str| fixture.handle.may_have(&[name.to_owned()].into());
    assert!(!asks("kstatd_kubernetes_shard_stage") && asks("kstatd_kubernetes_objects"));
}

const ERROR_STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"odd","reason":"InternalError","code":500}"#;

#[tokio::test]
async fn denied_objects_are_dropped_after_the_staleness_limit() {
    for code in [401, 403, 404] {
        let timing = Timing { staleness_limit: Some(Duration::ZERO), ..config().timing };
        let (mut fixture, body) = synced_pods(&PipelineConfig { timing, ..config() }).await;
        drop(body);
        fixture.stub.expect_watch("5").await.refuse(code);
        let list_request = async |fixture: &mut Fixture| loop {
            let request = fixture.stub.next_request().await;
            if !request.path.contains("watch=true") {
                return request;
            }
            // A 401 is not about lists; only other refusals of a streaming list lead to a paged one.
            let streaming = request.path.contains("sendInitialEvents");
            request.refuse(if code == 401 && streaming { 422 } else { code });
        };
        // Lists might work.
        let request = list_request(&mut fixture).await;
        assert_eq!(fixture.series(), ["a 1", "b 2"]);
        request.refuse(code);
        fixture.wait_for_series(&[]).await;
        let request = list_request(&mut fixture).await;
        request.respond(200, PROTOBUF, list("20", "", &[pod("c", "19")]));
        fixture.wait_for_series(&["c 19"]).await;
    }
    // Without a limit they stay, and also while the server is failing.
    for (code, staleness_limit) in [(403, None), (503, Some(Duration::ZERO))] {
        let timing = Timing { staleness_limit, ..config().timing };
        let (mut fixture, body) = synced_pods(&PipelineConfig { timing, ..config() }).await;
        drop(body);
        for _ in 0..8 {
            fixture.stub.next_request().await.refuse(code);
        }
        fixture.stub.next_request().await;
        assert_eq!(fixture.series(), ["a 1", "b 2"]);
    }
}

/// A family with too many series for one object is dropped for that object and counted; its other families remain.
#[tokio::test]
async fn oversized_families_are_dropped_for_one_object() {
    use crate::resources::{RenderOptions, find};
    let endpoints = find("endpoints").expect("a resource");
    let mut config = config();
    config.resources = vec![WatchedResource::built_in(endpoints, &RenderOptions::default())];
    config.resources[0].api.label = "*v1.Endpoints".to_owned();
    let mut fixture = Fixture::new(&config).await;
    fixture.stub.expect_streaming_list().await.refuse(422);
    let items = [stub::endpoints("many", 10_000, 10_000), stub::endpoints("few", 2, 3)];
    let request = fixture.stub.next_request().await;
    request.respond(200, PROTOBUF, list("5", "", &items));
    fixture.ready().await;
    let series = fixture.series();
    let count = |family: &str, name: &str| {
        let start = format!("{family}{{namespace=\"space\",endpoint=\"{name}\"");
        series.iter().filter(|line| line.starts_with(&start.replace("\"}", ""))).count()
    };
    assert_eq!(count("kube_endpoint_address", "few"), 6);
    assert_eq!(count("kube_endpoint_address", "many"), 0);
    assert_eq!(count("kube_endpoint_ports", "many"), 10_000);
    fixture
        .wait_for_metric("kstatd_kubernetes_oversized_objects_total{resource=\"*v1.Endpoints\"} 1")
        .await;
}

#[tokio::test]
async fn stop_closes_connections_and_keeps_stores() {
    let (fixture, body) = synced_pods(&config()).await;
    let Fixture { pipeline, catalog, .. } = fixture;
    tokio::time::timeout(DEADLINE, pipeline.stop()).await.expect("stopped");
    body.closed().await;
    assert_eq!(catalog.objects(), [("pods".to_owned(), 2)]);
}

/// A pause that a test would notice: longer than the deadline.
const BEYOND_DEADLINE: Duration = Duration::from_secs(3600);
