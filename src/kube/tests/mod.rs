//! The list/watches against a scripted server: each path through the protocol, seen from the requests
//! on one side and the stores on the other.

mod reload;
mod stub;

use std::sync::Arc;
use std::time::{Duration, Instant};

use stub::{DEADLINE, JSON, PROTOBUF, Stub, bookmark, error, event, json_pod, list, pod};

use super::frame::{Encoding, Identified};
use super::shard::Shard;
use super::{
    BackoffConfig, Client, ClientOptions, Pipeline, PipelineConfig, PipelineHandle, Target, Timing,
    Watched,
};
use crate::cache::{Catalog, Family, MetricKind, Rendered, Schema};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::resources::{ObjectBytes, Renderer};
use crate::telemetry::{KubeMetrics, Recorder};
use crate::wire::view::{DecodeError, decode};

/// One series for each object: its name and version. `bad` does not render, `panic` panics,
/// `torn` is nothing that a store can hold.
struct Names(Arc<Schema>);

impl Renderer for Names {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.0)
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
    Watched { target, renderer: Arc::new(Names(Arc::new(schema))) }
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

#[tokio::test]
async fn streaming_list_becomes_the_watch() {
    let mut bench = Bench::new(&config()).await;
    let call = bench.stub.next().await;
    let (start, rest) = call.path.split_once("&timeoutSeconds=").expect("a timeout");
    assert_eq!(
        start,
        "/api/v1/pods?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
    );
    let (seconds, rest) = rest.split_once('&').expect("more");
    assert!((300..=600).contains(&seconds.parse().expect("a number")), "{seconds}");
    assert_eq!(rest, "watch=true");
    assert_eq!(call.header("accept"), "application/vnd.kubernetes.protobuf,application/json");
    assert_eq!(call.header("accept-encoding"), "identity");
    assert_eq!(call.header("user-agent"), "kstatd/test");
    let body = call.protobuf();
    body.send([event("ADDED", &pod("a", "1")), event("ADDED", &pod("b", "2"))].concat());
    body.send([event("ADDED", &pod("c", "4")), event("DELETED", &pod("a", "5"))].concat());
    bench.counts("kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"deleted\"} 1").await;
    assert_eq!(bench.series(), [""; 0]);
    assert!(!bench.handle.is_ready());
    body.send(bookmark("9", true));
    bench.ready().await;
    assert_eq!(bench.series(), ["b 2", "c 4"]);
    body.send([event("MODIFIED", &pod("b", "10")), event("ADDED", &pod("d", "11"))].concat());
    bench.shows(&["b 10", "c 4", "d 11"]).await;
    body.send([event("DELETED", &pod("c", "12")), bookmark("20", false)].concat());
    bench.shows(&["b 10", "d 11"]).await;
    drop(body);
    let body = bench.stub.watch("20").await.protobuf();
    body.send(event("MODIFIED", &pod("d", "21")));
    bench.shows(&["b 10", "d 21"]).await;
    drop(body);
    bench.stub.watch("21").await;
    bench
        .counts("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"success\"} 2")
        .await;
    let status = &bench.handle.status()[0];
    assert_eq!((status.encoding, status.objects), (Some(Encoding::Protobuf), 2));
    assert!(status.listed.is_some() && status.failure.is_none());
}

#[tokio::test]
async fn refused_streaming_list_becomes_pages_and_a_watch() {
    for code in [400, 403, 404, 422, 500] {
        let mut bench = Bench::new(&config()).await;
        bench.stub.streaming().await.refuse(code);
        let call = bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await;
        call.answer(200, PROTOBUF, list("7", "next/page=", &[pod("a", "1"), pod("b", "2")]));
        let call = bench.stub.expect("/api/v1/pods?continue=next%2Fpage%3D&limit=500").await;
        assert!(bench.series().is_empty() && !bench.handle.is_ready());
        let body = call.open(200, PROTOBUF);
        let bytes = list("7", "", &[pod("c", "3")]);
        for chunk in bytes.chunks(5) {
            body.send(chunk.to_vec());
        }
        drop(body);
        let body = bench.stub.watch("7").await.protobuf();
        assert!(bench.handle.is_ready());
        assert_eq!(bench.series(), ["a 1", "b 2", "c 3"]);
        body.send(event("MODIFIED", &pod("c", "8")));
        bench.shows(&["a 1", "b 2", "c 8"]).await;
        bench
            .counts("kube_state_metrics_list_total{resource=\"*v1.pods\",result=\"success\"} 2")
            .await;
        bench
            .counts("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"error\"} 1")
            .await;
    }
}

#[tokio::test]
async fn expired_token_becomes_one_whole_list() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.refuse(422);
    let call = bench.stub.next().await;
    call.answer(200, PROTOBUF, list("7", "t", &[pod("gone", "1"), pod("a", "2")]));
    bench.stub.expect("/api/v1/pods?continue=t&limit=500").await.refuse(410);
    let call = bench.stub.expect("/api/v1/pods").await;
    call.answer(200, PROTOBUF, list("20", "", &[pod("a", "2")]));
    bench.stub.watch("20").await;
    assert_eq!(bench.series(), ["a 2"]);
}

#[tokio::test]
async fn broken_page_is_asked_for_again() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.refuse(422);
    let first = list("7", "t", &[pod("a", "1")]);
    let mut received = first.len();
    bench.stub.next().await.answer(200, PROTOBUF, first);
    let body = bench.stub.next().await.open(200, PROTOBUF);
    let page = list("7", "", &[pod("b", "2"), pod("c", "3")]);
    body.send(page[..page.len() - 10].to_vec());
    received += page.len() - 10;
    let name = "kstatd_kubernetes_received_bytes_total{resource=\"*v1.pods\"}";
    bench.counts(&format!("{name} {received}")).await;
    body.abort();
    bench.stub.expect("/api/v1/pods?continue=t&limit=500").await.refuse(503);
    let call = bench.stub.expect("/api/v1/pods?continue=t&limit=500").await;
    call.answer(200, PROTOBUF, page);
    bench.stub.watch("7").await;
    assert_eq!(bench.series(), ["a 1", "b 2", "c 3"]);
    bench.counts("kube_state_metrics_list_total{resource=\"*v1.pods\",result=\"error\"} 2").await;
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
async fn expired_watch_is_replaced_as_a_whole() {
    let (mut bench, body) = watching(&config()).await;
    body.send(error(410, "Expired"));
    let body = bench.stub.streaming().await.protobuf();
    body.send(event("ADDED", &pod("c", "9")));
    bench.counts("kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"added\"} 3").await;
    // Until the new state is complete, everybody sees the old one.
    assert_eq!(bench.series(), ["a 1", "b 2"]);
    body.send(bookmark("10", true));
    bench.shows(&["c 9"]).await;
    body.send(event("MODIFIED", &pod("c", "11")));
    bench.shows(&["c 11"]).await;
    drop(body);
    // The same as an HTTP status, and from a server that no longer streams lists.
    bench.stub.watch("11").await.refuse(410);
    bench.stub.streaming().await.refuse(422);
    let call = bench.stub.expect("/api/v1/pods?limit=500").await;
    call.answer(200, PROTOBUF, list("30", "", &[]));
    bench.stub.watch("30").await;
    assert_eq!(bench.series(), [""; 0]);
}

#[tokio::test]
async fn other_errors_in_a_watch_lead_to_a_new_list() {
    for (code, reason) in [(500, "InternalError"), (0, "Gone"), (403, "Forbidden")] {
        let (mut bench, body) = watching(&config()).await;
        body.send(error(code, reason));
        bench.stub.streaming().await;
        assert_eq!(bench.series(), ["a 1", "b 2"]);
        assert!(bench.failure().contains(&format!("because of {reason}")), "{}", bench.failure());
    }
}

#[tokio::test]
async fn json_where_the_server_has_no_protobuf() {
    let mut bench = Bench::new(&config()).await;
    let body = bench.stub.streaming().await.open(200, JSON);
    let line = |kind, object: String| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    body.send(line("ADDED", json_pod("a", "1")));
    body.send(line(
        "BOOKMARK",
        r#"{"metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}"#
            .to_owned(),
    ));
    bench.ready().await;
    let text = line("MODIFIED", json_pod("a", "4")) + &line("ADDED", json_pod("b", "5"));
    let (start, end) = text.split_at(70);
    body.send(start.to_owned());
    body.send(end.to_owned());
    bench.shows(&["a 4", "b 5"]).await;
    body.send(line("DELETED", json_pod("a", "6")));
    bench.shows(&["b 5"]).await;
    body.send(line("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired"}"#.to_owned()));
    bench.stub.streaming().await.refuse(400);
    let text = format!(
        r#"{{"items":[{},{}],"metadata":{{"resourceVersion":"8"}}}}"#,
        json_pod("c", "7"),
        json_pod("d", "8")
    );
    bench.stub.expect("/api/v1/pods?limit=500").await.answer(200, JSON, text);
    bench.stub.watch("8").await;
    assert_eq!(bench.series(), ["c 7", "d 8"]);
    assert_eq!(bench.handle.status()[0].encoding, Some(Encoding::Json));
}

#[tokio::test]
async fn custom_resources_are_asked_for_in_json() {
    let mut config = config();
    config.resources[0].target.protobuf = false;
    config.resources[0].target.group = "example.com".to_owned();
    let mut bench = Bench::new(&config).await;
    let call = bench.stub.streaming().await;
    assert_eq!(call.header("accept"), "application/json");
    assert!(call.path.starts_with("/apis/example.com/v1/pods?"), "{}", call.path);
    call.refuse(400);
    let call = bench.stub.next().await;
    call.answer(200, JSON, r#"{"items":null,"metadata":{"resourceVersion":"1"}}"#);
    bench.ready().await;
    bench.stub.watch("1").await;
}

#[tokio::test]
async fn connection_lost_within_a_frame() {
    let mut bench = Bench::new(&config()).await;
    let body = bench.stub.streaming().await.protobuf();
    let added = event("ADDED", &pod("a", "1"));
    body.send(added.clone());
    body.send(added[..20].to_vec());
    body.abort();
    let body = bench.stub.streaming().await.protobuf();
    assert_eq!(bench.series(), [""; 0]);
    body.send([event("ADDED", &pod("b", "2")), bookmark("5", true)].concat());
    bench.shows(&["b 2"]).await;
    let modified = event("MODIFIED", &pod("b", "6"));
    body.send([&modified[..], &modified[..20]].concat());
    bench.shows(&["b 6"]).await;
    body.abort();
    let body = bench.stub.watch("6").await.protobuf();
    // A body that ends regularly, but within a frame.
    body.send(modified[..20].to_vec());
    drop(body);
    let body = bench.stub.watch("6").await.protobuf();
    body.send(event("DELETED", &pod("b", "7")));
    bench.shows(&[]).await;
    assert!(bench.handle.is_ready());
}

#[tokio::test]
async fn watch_that_ends_at_once_is_a_failure() {
    let timing = Timing { short_watch: Duration::from_secs(60), ..config().timing };
    let (mut bench, body) = watching(&PipelineConfig { timing, ..config() }).await;
    drop(body);
    drop(bench.stub.watch("5").await.protobuf());
    drop(bench.stub.watch("5").await.protobuf());
    bench.stub.watch("5").await;
    assert_eq!(bench.series(), ["a 1", "b 2"]);
}

#[tokio::test]
async fn garbage_instead_of_lists_and_watches() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.answer(200, PROTOBUF, "<html>no</html>");
    let call = bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await;
    call.answer(200, "text/html", "<html>");
    let call = bench.stub.streaming().await;
    assert!(bench.failure().contains("\"text/html\""), "{}", bench.failure());
    call.answer(200, JSON, "");
    let call = bench.stub.next().await;
    call.answer(200, JSON, "[]");
    let body = bench.stub.streaming().await.protobuf();
    assert!(bench.failure().contains("expected a JSON object"), "{}", bench.failure());
    assert!(!bench.handle.is_ready());
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    bench.ready().await;
    body.send(event("RENAMED", &pod("a", "1")));
    bench.stub.streaming().await;
    assert!(bench.failure().contains("\"RENAMED\""), "{}", bench.failure());
    assert_eq!(bench.series(), ["a 1"]);
}

#[tokio::test]
async fn forbidden_is_ready_but_tried_again() {
    let mut bench = Bench::new(&config()).await;
    for _ in 0..3 {
        bench.stub.streaming().await.refuse(403);
        bench.stub.next().await.refuse(403);
        bench.ready().await;
    }
    assert_eq!(bench.failure(), "server answers 403: because of 403");
    let body = bench.stub.streaming().await.protobuf();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    bench.shows(&["a 1"]).await;
    assert_eq!(bench.failure(), "");
}

#[tokio::test]
async fn bad_credentials_and_outages_are_not_ready() {
    for code in [401, 429, 500, 503] {
        let mut bench = Bench::new(&config()).await;
        for _ in 0..2 {
            bench.stub.streaming().await.refuse(code);
            if code >= 500 {
                bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await.refuse(code);
            }
        }
        let call = bench.stub.streaming().await;
        assert!(!bench.handle.is_ready());
        let body = call.protobuf();
        body.send(bookmark("5", true));
        bench.ready().await;
        drop(body);
        bench.stub.watch("5").await.refuse(code);
        bench.stub.watch("5").await.refuse(code);
        bench.stub.watch("5").await;
        assert!(bench.handle.is_ready());
    }
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
async fn object_limit_cuts_pages() {
    let mut bench = Bench::new(&PipelineConfig { object_limit: 2, ..config() }).await;
    let call = bench.stub.expect("/api/v1/pods?limit=2&resourceVersion=0").await;
    let items = [pod("a", "1"), pod("b", "2"), pod("c", "3")];
    call.answer(200, PROTOBUF, list("7", "t", &items));
    let call = bench.stub.expect("/api/v1/pods?continue=t&limit=2").await;
    call.answer(200, PROTOBUF, list("7", "", &[pod("d", "4")]));
    let body = bench.stub.watch("7").await.protobuf();
    assert_eq!(bench.series(), ["a 1", "b 2", "d 4"]);
    bench.counts("kube_state_metrics_list_objects{resource=\"*v1.pods\"} 1").await;
    bench.counts("kube_state_metrics_list_objects_limit{resource=\"*v1.pods\"} 2").await;
    body.send(event("ADDED", &pod("e", "8")));
    bench.shows(&["a 1", "b 2", "d 4", "e 8"]).await;
    body.send(error(410, "Expired"));
    let call = bench.stub.expect("/api/v1/pods?limit=2").await;
    call.answer(200, PROTOBUF, list("9", "t", &[pod("a", "1")]));
    bench.stub.next().await.refuse(410);
    bench.stub.expect("/api/v1/pods?limit=2").await;
}

#[tokio::test]
async fn lists_from_the_servers_cache() {
    let config = PipelineConfig { use_apiserver_cache: true, ..config() };
    let (mut bench, body) = watching(&config).await;
    body.send(error(410, "Expired"));
    bench.stub.streaming().await.refuse(422);
    bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await;
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
        // What belongs to others moves the version too.
        body.send(event("ADDED", &pod("pod0", "9")));
        drop(body);
        bench.stub.watch("9").await;
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

#[tokio::test]
async fn lists_that_come_no_further_are_noticed() {
    let timing = Timing {
        list_answer: Duration::from_millis(500),
        watch_answer: Duration::from_millis(500),
        list_idle: Duration::from_millis(500),
        ..config().timing
    };
    let mut bench = Bench::new(&PipelineConfig { timing, ..config() }).await;
    let unanswered = bench.stub.streaming().await;
    let call = bench.stub.streaming().await;
    assert!(bench.failure().contains("no answer within 500ms"), "{}", bench.failure());
    call.refuse(422);
    let body = bench.stub.next().await.open(200, PROTOBUF);
    body.send(list("7", "t", &[])[..9].to_vec());
    body.gone().await;
    let silent = bench.stub.streaming().await.protobuf();
    assert!(bench.failure().contains("nothing received for 500ms"), "{}", bench.failure());
    silent.gone().await;
    let name = "kstatd_kubernetes_errors_total{namespace=\"\"";
    bench.counts(&format!("{name},reason=\"timeout\",resource=\"*v1.pods\"}} 1")).await;
    bench.counts(&format!("{name},reason=\"frozen\",resource=\"*v1.pods\"}} 2")).await;
    drop(unanswered);
}

/// What says that a watch is dead is that it does not end.
#[tokio::test]
async fn a_watch_that_does_not_end_is_opened_anew_at_once_and_elsewhere() {
    let timing = Timing {
        watch_cycle: Duration::ZERO,
        watch_slack: Duration::ZERO,
        // Would be noticed: it is never waited for.
        backoff: BackoffConfig { initial: LONG, cap: LONG, ..config().timing.backoff },
        ..config().timing
    };
    let mut bench = Bench::new(&PipelineConfig { timing, ..config() }).await;
    let body = bench.stub.streaming().await.protobuf();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    // The list has become a watch of unknown length: it is opened anew, for which nothing has failed.
    body.gone().await;
    let call = bench.stub.watch("5").await;
    assert!(call.path.contains("&timeoutSeconds=1&"), "{}", call.path);
    let body = call.protobuf();
    body.gone().await;
    // Of this one nothing was heard for a second only, which may be the server's delay.
    let body = bench.stub.watch("5").await.protobuf();
    body.send(event("ADDED", &pod("b", "6")));
    body.gone().await;
    bench.stub.watch("6").await;
    bench.shows(&["a 1", "b 6"]).await;
    assert_eq!(bench.failure(), "");
}

/// A balancer that cuts streams now and then leaves no gap, however often it does.
#[tokio::test]
async fn a_watch_that_is_cut_goes_on_at_once() {
    let backoff = BackoffConfig { initial: LONG, cap: LONG, ..config().timing.backoff };
    let timing = Timing { backoff, short_watch: LONG, ..config().timing };
    let (mut bench, mut body) = watching(&PipelineConfig { timing, ..config() }).await;
    for version in 6..40 {
        let version = version.to_string();
        body.send(event("MODIFIED", &pod("a", &version)));
        bench.shows(&[&format!("a {version}"), "b 2"]).await;
        body.abort();
        body = bench.stub.watch(&version).await.protobuf();
    }
    body.send(bookmark("50", false));
    bench.counts("kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"bookmark\"} 2").await;
    drop(body);
    // Cut before anything came of it, it is a failure, which is waited after.
    body = bench.stub.watch("50").await.protobuf();
    bench
        .counts("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"success\"} 36")
        .await;
    body.abort();
    bench
        .counts("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"broken\",resource=\"*v1.pods\"} 35")
        .await;
    assert!(bench.stub.is_quiet());
}

/// Two list/watches that wait for a server; when it answers the one, the other does not wait any longer.
#[tokio::test]
async fn the_first_that_succeeds_wakes_the_others() {
    let backoff = BackoffConfig { initial: LONG, cap: LONG, ..config().timing.backoff };
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        timing: Timing { backoff, ..config().timing },
        ..config()
    };
    let mut bench = Bench::new(&config).await;
    let (one, two) = (bench.stub.streaming().await, bench.stub.streaming().await);
    one.refuse(503);
    let failures = || bench.handle.status().iter().filter(|s| s.failure.is_some()).count();
    eventually(|| failures() == 1, || format!("{} failures", failures())).await;
    let body = two.protobuf();
    drop(body);
    // It ended before it began: an ordinary list follows at once, which succeeds without having failed.
    let call = bench.stub.next().await;
    assert!(call.path.contains("limit=500"), "{}", call.path);
    // The server says when to come back: then it counts, not the time of our own.
    call.refuse_for(429, 1);
    let call = bench.stub.next().await;
    let body = call.protobuf();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    let call = bench.stub.next().await;
    assert!(call.path.contains("limit=500"), "{}", call.path);
}

/// What the server says about the time to come back is obeyed, for streaming lists too, and is visible.
#[tokio::test]
async fn throttled_lists_are_counted_and_come_back_when_the_server_says() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.refuse_for(429, 3600);
    bench
        .counts("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"throttled\",resource=\"*v1.pods\"} 1")
        .await;
    bench.counts("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"error\"} 1").await;
    assert!(bench.failure().contains("429"), "{}", bench.failure());
    assert!(bench.stub.is_quiet());
}

const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"odd","reason":"InternalError","code":500}"#;

/// Whatever stands where a list should be, what is known stays.
#[tokio::test]
async fn what_is_no_list_replaces_none() {
    let status = stub::status(500, "InternalError");
    let foreign = stub::typed_list("NodeList", "9");
    let bodies: [(&str, Vec<u8>); 13] = [
        (JSON, STATUS.into()),
        (JSON, "{}".into()),
        (JSON, r#"{"kind":"PodList","items":[]}"#.into()),
        (JSON, r#"{"kind":"PodList","items":[],"metadata":{"resourceVersion":""}}"#.into()),
        (JSON, r#"{"kind":"PodList","metadata":{"resourceVersion":"9"}}"#.into()),
        (JSON, r#"{"kind":"NodeList","metadata":{"resourceVersion":"9"},"items":[]}"#.into()),
        (JSON, r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":["#.into()),
        (JSON, "<html>log in</html>".into()),
        (JSON, "".into()),
        ("text/html", "<html>log in</html>".into()),
        (PROTOBUF, status.clone()),
        (PROTOBUF, foreign),
        (PROTOBUF, list("", "", &[])),
    ];
    for (content_type, body) in bodies {
        let (mut bench, watch) = watching(&config()).await;
        watch.send(error(410, "Expired"));
        bench.stub.streaming().await.refuse(422);
        bench.stub.expect("/api/v1/pods?limit=500").await.answer(200, content_type, body.clone());
        let call = bench.stub.streaming().await;
        let what = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(bench.series(), ["a 1", "b 2"], "{what}");
        assert!(!bench.failure().is_empty(), "{what}");
        // The same in place of a streaming list.
        call.answer(200, content_type, body.clone());
        let call = bench.stub.expect("/api/v1/pods?limit=500").await;
        assert_eq!(bench.series(), ["a 1", "b 2"], "{what}");
        call.answer(200, PROTOBUF, list("20", "", &[pod("c", "19")]));
        // And of a watch.
        bench.stub.watch("20").await.answer(200, content_type, body);
        let call = bench.stub.next().await;
        assert_eq!(bench.series(), ["c 19"], "{what}");
        assert!(call.path.contains("/api/v1/pods?"));
    }
}

/// A status in the body of a success counts as if it were the answer's own.
#[tokio::test]
async fn a_status_in_a_success_is_taken_for_what_it_says() {
    for (content_type, body) in
        [(JSON, STATUS.replace("500", "410").into_bytes()), (PROTOBUF, stub::status(410, "Gone"))]
    {
        let (mut bench, watch) = watching(&config()).await;
        drop(watch);
        bench.stub.watch("5").await.answer(200, content_type, body);
        bench.stub.streaming().await;
        bench
            .counts("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"expired\",resource=\"*v1.pods\"} 1")
            .await;
    }
}

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

#[tokio::test]
async fn events_that_gather_all_arrive_in_order() {
    let (mut bench, body) = watching(&config()).await;
    for version in 6..=1000 {
        let (even, version) = (version % 2 == 0, version.to_string());
        body.send(event("MODIFIED", &pod("a", &version)));
        body.send(event(if even { "ADDED" } else { "DELETED" }, &pod("c", &version)));
    }
    let total =
        |kind| format!("kstatd_kubernetes_events_total{{resource=\"*v1.pods\",type=\"{kind}\"}}");
    bench.counts(&format!("{} 995", total("modified"))).await;
    bench.shows(&["a 1000", "b 2", "c 1000"]).await;
    bench.counts(&format!("{} 497", total("deleted"))).await;
    drop(body);
    bench.stub.watch("1000").await;
}

#[tokio::test]
async fn nothing_rests_while_something_is_listed() {
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        timing: Timing { gather: LONG, ..config().timing },
        ..config()
    };
    let mut bench = Bench::new(&config).await;
    let (one, two) = (bench.stub.streaming().await, bench.stub.streaming().await);
    let nodes_first = one.path.contains("nodes");
    let (nodes, pods) = if nodes_first { (one, two) } else { (two, one) };
    let (nodes, pods) = (nodes.protobuf(), pods.protobuf());
    nodes.send(bookmark("5", true));
    for n in 1..=20 {
        let version = n.to_string();
        pods.send(event("ADDED", &pod(&version, &version)));
        nodes.send(event("MODIFIED", &pod("n", &version)));
        for (resource, kind) in [("pods", "added"), ("nodes", "modified")] {
            let name = "kstatd_kubernetes_events_total";
            let labels = format!("resource=\"*v1.{resource}\",type=\"{kind}\"");
            bench.counts(&format!("{name}{{{labels}}} {n}")).await;
        }
    }
    assert!(!bench.handle.is_ready());
    pods.send(bookmark("30", true));
    bench.ready().await;
}

#[tokio::test]
async fn a_rest_does_not_delay_the_end() {
    let config = PipelineConfig { timing: Timing { gather: LONG, ..config().timing }, ..config() };
    let (bench, body) = watching(&config).await;
    body.send(event("MODIFIED", &pod("a", "6")));
    tokio::time::timeout(DEADLINE, bench.pipeline.stop()).await.expect("an end");
    body.gone().await;
}
