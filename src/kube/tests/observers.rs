//! Tests of what observers of a kind are told, and when.

use std::sync::{Mutex, MutexGuard};

use super::*;
use crate::kube::observed::ObservedObject;
use crate::kube::observer::{ObjectObserver, ObjectSeries, ObserverFactory};

/// The calls that the observers of a kind have received.
#[derive(Default)]
struct Calls(Mutex<Vec<String>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("no panic")
    }

    /// Waits until these are the calls since the last time.
    async fn wait_for(&self, expected: &[&str]) {
        eventually(|| *self.lock() == expected, || format!("{:?}", self.lock())).await;
        self.lock().clear();
    }
}

impl ObserverFactory for Calls {
    fn representation(&self) -> Representation {
        Representation::Object
    }

    fn observe(self: Arc<Self>) -> Arc<dyn ObjectObserver> {
        Arc::new(CallRecorder(self))
    }
}

struct CallRecorder(Arc<Calls>);

impl CallRecorder {
    fn add(&self, call: &str) {
        self.0.lock().push(call.to_owned());
    }

    fn add_object(&self, call: &str, uid: &[u8], fresh: bool) {
        let fresh = if fresh { " fresh" } else { "" };
        self.add(&format!("{call} {}{fresh}", str::from_utf8(uid).expect("UTF-8")));
    }
}

impl ObjectObserver for CallRecorder {
    fn begin_list(&self) {
        self.add("begin");
    }

    fn end_list(&self, commit: bool) {
        self.add(if commit { "commit" } else { "discard" });
    }

    fn put(&self, object: &ObservedObject<'_>, fresh: bool) {
        let view: IdentifiedObject<'_> = decode(object.bytes).expect("an object");
        self.add_object("put", view.metadata.uid.as_bytes(), fresh);
    }

    fn delete(&self, uid: &[u8], fresh: bool) {
        self.add_object("delete", uid, fresh);
    }

    fn attach(&self, series: Arc<dyn ObjectSeries>) {
        self.add(&format!("attach {}", series.namespace()));
    }

    fn identify(&self, _: &ObservedObject<'_>, identity: &mut Vec<u8>) {
        identity.extend(b",observed=\"yes\"");
    }

    fn malformed(&self, uid: &[u8], fresh: bool) {
        self.add_object("malformed", uid, fresh);
    }

    fn purge(&self) {
        self.add("purge");
    }

    fn show(&self) {
        self.add("show");
    }

    fn close(&self) {
        self.add("close");
    }
}

/// Returns a configuration with pods that are observed, and the calls of the observers.
fn observed() -> (PipelineConfig, Arc<Calls>) {
    let calls = Arc::new(Calls::default());
    let observers: Vec<Arc<dyn ObserverFactory>> = vec![calls.clone()];
    let pods = WatchedResource { observers, ..watched("pods", true) };
    (PipelineConfig { resources: vec![pods], ..config() }, calls)
}

const START: [&str; 4] = ["attach ", "discard", "show", "begin"];

#[tokio::test]
async fn observers_receive_all_objects_and_changes() {
    let (config, calls) = observed();
    let (mut fixture, client) = Fixture::with_client(&config).await;
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    calls.wait_for(&START).await;
    body.send([event("ADDED", &pod("a", "1")), event("ADDED", &pod("b", "2"))].concat());
    calls.wait_for(&["put a fresh", "put b fresh"]).await;
    body.send(bookmark("5", true));
    calls.wait_for(&["commit"]).await;
    let both = [r#"a",observed="yes 1"#, r#"b",observed="yes 2"#];
    fixture.wait_for_series(&both).await;
    body.send([event("MODIFIED", &pod("a", "6")), event("DELETED", &pod("b", "7"))].concat());
    calls.wait_for(&["put a", "delete b"]).await;
    let mut bad = k8s_pb::api::core::v1::Pod::default();
    let metadata = bad.metadata.get_or_insert_default();
    (metadata.uid, metadata.name) = (Some("a".to_owned()), Some("bad".to_owned()));
    body.send(event("MODIFIED", &prost::Message::encode_to_vec(&bad)));
    calls.wait_for(&["malformed a"]).await;
    // A changed configuration is listed by other observers, which replace these.
    let selected = PipelineConfig { selector: "x=y".to_owned(), ..config };
    fixture.pipeline.reconfigure(&client, &selected);
    let next = fixture.stub.next_request().await.start_watch();
    calls.wait_for(&["attach ", "discard", "begin"]).await;
    next.send([event("ADDED", &pod("c", "8")), bookmark("9", true)].concat());
    calls.wait_for(&["put c fresh", "commit", "show", "close"]).await;
    fixture.wait_for_series(&[r#"c",observed="yes 8"#]).await;
    // Other kinds replace it.
    let others = PipelineConfig { resources: vec![watched("nodes", false)], ..selected };
    fixture.pipeline.reconfigure(&client, &others);
    let nodes = fixture.stub.next_request().await.start_watch();
    nodes.send([event("ADDED", &pod("n", "1")), bookmark("9", true)].concat());
    calls.wait_for(&["close"]).await;
}

#[tokio::test]
async fn observers_of_a_denied_kind_drop_its_objects() {
    let (config, calls) = observed();
    let timing = Timing { staleness_limit: Some(Duration::ZERO), ..config.timing };
    let (mut fixture, body) = synced_pods(&PipelineConfig { timing, ..config }).await;
    let listed = ["put a fresh", "put b fresh", "commit"];
    calls.wait_for(&[&START[..], &listed].concat()).await;
    drop(body);
    fixture.stub.expect_watch("5").await.refuse(403);
    fixture.stub.expect_streaming_list().await.refuse(403);
    fixture.stub.expect_request("/api/v1/pods?limit=500").await.refuse(403);
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    eventually(|| calls.lock().contains(&"purge".to_owned()), || format!("{:?}", calls.lock()))
        .await;
    calls.lock().retain(|call| call != "discard");
    calls.wait_for(&["begin", "begin", "purge", "begin"]).await;
    body.send([event("ADDED", &pod("c", "8")), bookmark("9", true)].concat());
    calls.wait_for(&["put c fresh", "commit"]).await;
    fixture.wait_for_series(&[r#"c",observed="yes 8"#]).await;
}

/// Observers need the objects that a limit leaves out, so all pages are read, and they are not as small as the limit.
#[tokio::test]
async fn observers_receive_objects_over_the_limit() {
    let (config, calls) = observed();
    let mut fixture = Fixture::new(&PipelineConfig { object_limit: 1, ..config }).await;
    let request = fixture.stub.expect_request("/api/v1/pods?limit=500&resourceVersion=0").await;
    request.respond(200, PROTOBUF, list("6", "t", &[pod("a", "1")]));
    let request = fixture.stub.expect_request("/api/v1/pods?continue=t&limit=500").await;
    request.respond(200, PROTOBUF, list("6", "", &[pod("b", "2")]));
    let _body = fixture.stub.expect_watch("6").await.start_watch();
    let (start, rest) = (&START[..], ["put a fresh", "begin", "put b fresh", "commit"]);
    calls.wait_for(&[start, &rest[..]].concat()).await;
    fixture.wait_for_series(&[r#"a",observed="yes 1"#]).await;
    fixture
        .wait_for_metric("kstatd_kubernetes_objects_over_limit_total{resource=\"*v1.pods\"} 1")
        .await;
}
