//! The double compared with the published definitions of its objects, and over HTTP.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;

use super::encode::Encoding;
use super::layout::Layout;
use super::source::Source;
use super::world::World;
use super::{Double, Options};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Decodes the objects of a resource with the published definitions.
fn decodes<T: prost::Message + Default>(world: &World, resource: &str) -> Vec<T> {
    let collection = world.named(resource).unwrap();
    let mut objects = Vec::new();
    for item in collection.items() {
        let mut bytes = Vec::new();
        collection.encode(&world.source, &item, Encoding::Protobuf, false, &mut bytes);
        objects.push(T::decode(bytes.as_slice()).unwrap());
    }
    objects
}

#[test]
fn published_definitions_read_the_objects() {
    let world = World::new(Source::Synthetic(Box::new(Layout::new(400, 3, 1_800_000_000))), 10);
    let pods: Vec<k8s_pb::api::core::v1::Pod> = decodes(&world, "pods");
    assert_eq!(pods.len(), 400);
    for pod in &pods {
        let spec = pod.spec.as_ref().unwrap();
        let term = &spec
            .affinity
            .as_ref()
            .unwrap()
            .pod_anti_affinity
            .as_ref()
            .unwrap()
            .preferred_during_scheduling_ignored_during_execution[0];
        assert_eq!(term.weight, Some(100));
        let probe = spec.containers[0].liveness_probe.as_ref().unwrap();
        let port = probe.handler.as_ref().unwrap().http_get.as_ref().unwrap().port.as_ref();
        assert_eq!(port.unwrap().int_val, Some(8080));
        assert_eq!(
            spec.volumes[2]
                .volume_source
                .as_ref()
                .unwrap()
                .projected
                .as_ref()
                .unwrap()
                .sources
                .len(),
            3
        );
        assert_eq!(pod.metadata.as_ref().unwrap().owner_references.len(), 1);
    }
    let nodes: Vec<k8s_pb::api::core::v1::Node> = decodes(&world, "nodes");
    assert_eq!(nodes[0].status.as_ref().unwrap().capacity.len(), 6);
    let secrets: Vec<k8s_pb::api::core::v1::Secret> = decodes(&world, "secrets");
    assert_eq!(secrets[0].data["username"], b"app");
}

async fn open(double: &Double, path: &str, accept: &str) -> http::Response<hyper::body::Incoming> {
    let stream = tokio::net::TcpStream::connect(double.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", "double").header("accept", accept);
    sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
}

async fn get(double: &Double, path: &str) -> (u16, serde_json::Value) {
    let response = open(double, path, "application/json").await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

fn names(list: &serde_json::Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_list_is_of_the_present_though_nothing_changed_in_it() {
    let double = Double::start(&Options { pods: 90, ..Options::default() }).await.unwrap();
    let version = |list: &serde_json::Value| {
        list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap()
    };
    let path = "/apis/storage.k8s.io/v1/storageclasses";
    let (_, before) = get(&double, path).await;
    double.set_events_per_second(1e6);
    while double.changes() < 1_000 {
        tokio::task::yield_now().await;
    }
    double.set_events_per_second(0.0);
    let (_, after) = get(&double, path).await;
    assert_eq!(names(&before), names(&after));
    assert!(version(&after) >= version(&before) + 1_000);
}

#[tokio::test]
async fn pages_are_of_one_version_and_expire() {
    let double = Double::start(&Options { pods: 90, ..Options::default() }).await.unwrap();
    let (_, all) = get(&double, "/api/v1/pods").await;
    let version = all["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let (_, first) = get(&double, "/api/v1/pods?limit=40").await;
    assert_eq!(first["metadata"]["remainingItemCount"], 50);
    double.set_events_per_second(1e6);
    while double.changes() < 1_000 {
        tokio::task::yield_now().await;
    }
    double.set_events_per_second(0.0);
    let mut seen = names(&first);
    let mut token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    while !token.is_empty() {
        let (_, page) = get(&double, &format!("/api/v1/pods?limit=40&continue={token}")).await;
        assert_eq!(page["metadata"]["resourceVersion"], version.as_str());
        seen.extend(names(&page));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(seen, names(&all));
    let token = first["metadata"]["continue"].as_str().unwrap();
    double.forget_history();
    let (code, gone) = get(&double, &format!("/api/v1/pods?limit=40&continue={token}")).await;
    assert_eq!((code, &gone["reason"]), (410, &serde_json::json!("Expired")));
    let token = gone["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = get(&double, &format!("/api/v1/pods?limit=99&continue={token}")).await;
    assert_eq!(code, 200);
    assert!(names(&rest)[0] > names(&first)[39] || rest["items"].as_array().unwrap().len() < 60);
    let (code, _) = get(&double, &format!("/api/v1/pods?resourceVersion={version}&limit=5")).await;
    assert_eq!(code, 410);
    let (code, _) = get(&double, "/api/v1/pods?resourceVersion=999999999999").await;
    assert_eq!(code, 504);
}

#[tokio::test]
async fn selectors_and_paths() {
    let double = Double::start(&Options { pods: 300, ..Options::default() }).await.unwrap();
    let (_, all) = get(&double, "/api/v1/pods").await;
    let pod = &all["items"][7];
    let namespace = pod["metadata"]["namespace"].as_str().unwrap();
    let (_, some) = get(&double, &format!("/api/v1/namespaces/{namespace}/pods?limit=1")).await;
    let inside = all["items"].as_array().unwrap().iter();
    let inside = inside.filter(|item| item["metadata"]["namespace"] == namespace).count();
    assert_eq!(some["metadata"]["remainingItemCount"].as_u64().unwrap() as usize, inside - 1);
    let name = pod["metadata"]["name"].as_str().unwrap();
    let (_, one) =
        get(&double, &format!("/api/v1/pods?fieldSelector=metadata.name%3D{name}")).await;
    assert_eq!(names(&one), [name]);
    let (_, none) = get(&double, "/api/v1/pods?fieldSelector=spec.nodeName%3Dnone").await;
    assert_eq!(none["items"], serde_json::json!([]));
    assert_eq!(get(&double, "/api/v1/namespaces/a/nodes").await.0, 404);
    assert_eq!(get(&double, "/apis/apps/v1/pods").await.0, 404);
    assert_eq!(get(&double, "/version").await.1["minor"], "36");
    assert_eq!(open(&double, "/api/v1/pods", "text/html").await.status(), 406);
}

/// The events of a protobuf watch: type and version of each.
struct Events {
    body: hyper::body::Incoming,
    buffer: BytesMut,
}

impl Events {
    async fn open(double: &Double, query: &str) -> Self {
        let response = open(double, &format!("/api/v1/pods?watch=1&{query}"), PROTOBUF).await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), buffer: BytesMut::new() }
    }

    async fn next(&mut self) -> Option<k8s_pb::apimachinery::pkg::apis::meta::v1::WatchEvent> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<4>() {
                let len = u32::from_be_bytes(*head) as usize;
                if self.buffer.len() >= 4 + len {
                    self.buffer.advance(4);
                    return Some(prost::Message::decode(self.buffer.split_to(len)).unwrap());
                }
            }
            let wait = tokio::time::timeout(Duration::from_secs(120), self.body.frame());
            let frame = wait.await.expect("an event in time")?;
            self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }
}

fn raw(event: &k8s_pb::apimachinery::pkg::apis::meta::v1::WatchEvent) -> &[u8] {
    event.object.as_ref().unwrap().raw.as_deref().unwrap()
}

#[tokio::test]
async fn watch_list_then_changes_then_the_end() {
    let options =
        Options { pods: 90, bookmark_interval: Duration::from_millis(200), ..Options::default() };
    let double = Double::start(&options).await.unwrap();
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=true&timeoutSeconds=2";
    let mut events = Events::open(&double, query).await;
    for _ in 0..90 {
        let event = events.next().await.unwrap();
        assert_eq!(event.r#type.as_deref(), Some("ADDED"));
        assert!(raw(&event).starts_with(b"k8s\0"));
    }
    let mark = events.next().await.unwrap();
    assert_eq!(mark.r#type.as_deref(), Some("BOOKMARK"));
    let initial = b"k8s.io/initial-events-end";
    assert!(raw(&mark).windows(initial.len()).any(|part| part == initial));
    double.set_events_per_second(500.0);
    let (mut changes, mut bookmarks) = (0, 0);
    while let Some(event) = events.next().await {
        match event.r#type.as_deref() {
            Some("BOOKMARK") => bookmarks += 1,
            Some("ADDED" | "MODIFIED" | "DELETED") => changes += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(changes > 100, "{changes}");
    assert!((1..=10).contains(&bookmarks), "{bookmarks}");
}

#[tokio::test]
async fn watches_see_every_change_from_their_version_on() {
    let double = Double::start(&Options { pods: 50, history: 1_000_000, ..Options::default() })
        .await
        .unwrap();
    let (_, list) = get(&double, "/api/v1/pods?limit=1").await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    double.set_events_per_second(1e6);
    while double.changes() < 200 {
        tokio::task::yield_now().await;
    }
    double.set_events_per_second(0.0);
    let mut events = Events::open(&double, &format!("resourceVersion={version}")).await;
    let first = events.next().await.unwrap();
    assert_ne!(first.r#type.as_deref(), Some("ERROR"));
    double.forget_history();
    let mut events = Events::open(&double, &format!("resourceVersion={version}")).await;
    let error = events.next().await.unwrap();
    assert_eq!(error.r#type.as_deref(), Some("ERROR"));
    assert!(raw(&error).windows(7).any(|part| part == b"Expired"));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn watch_list_can_be_refused() {
    let double = Double::start(&Options { watch_list: false, ..Options::default() }).await.unwrap();
    let path = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    assert_eq!(get(&double, path).await.0, 422);
    let address = double.address();
    double.stop().await;
    tokio::net::TcpListener::bind(address).await.unwrap();
}
