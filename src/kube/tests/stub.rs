//! A scripted API server: a test receives each request and decides on the response.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_pb::api::core::v1::Pod;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::history::body::ChannelBody;

/// The time that a test waits for an expected event.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const JSON: &str = "application/json";

/// The server. Requests are received one by one.
pub struct StubServer {
    pub url: String,
    requests: mpsc::UnboundedReceiver<StubRequest>,
}

/// A request that waits for a response.
pub struct StubRequest {
    /// The path and query.
    pub path: String,
    pub headers: HeaderMap,
    answer: oneshot::Sender<Response<ChannelBody>>,
}

/// Writes a response body piece by piece. Dropping it ends the body.
pub struct BodyWriter(mpsc::UnboundedSender<Result<Bytes, &'static str>>);

impl StubServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let sender = sender.clone();
                    async move {
                        let (answer, answered) = oneshot::channel();
                        let path = request.uri().to_string();
                        let headers = request.headers().clone();
                        let _ = sender.send(StubRequest { path, headers, answer });
                        Ok::<_, Infallible>(answered.await.expect("the test answers every request"))
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, requests }
    }

    /// Returns the next request.
    pub async fn next_request(&mut self) -> StubRequest {
        let request = tokio::time::timeout(DEADLINE, self.requests.recv()).await;
        request.expect("a request within the deadline").expect("the server runs")
    }

    /// Returns the next request, which must have this path and query.
    pub async fn expect_request(&mut self, path: &str) -> StubRequest {
        let request = self.next_request().await;
        assert_eq!(request.path, path);
        request
    }

    /// Returns the next request, which must be a streaming list.
    pub async fn expect_streaming_list(&mut self) -> StubRequest {
        let request = self.next_request().await;
        assert!(request.path.contains("sendInitialEvents=true"), "{}", request.path);
        request
    }

    /// Returns the next request, which must be a watch from this version.
    pub async fn expect_watch(&mut self, version: &str) -> StubRequest {
        let request = self.next_request().await;
        let expected = format!("&resourceVersion={version}&timeoutSeconds=");
        assert!(request.path.contains(&expected), "{} has no {expected}", request.path);
        assert!(request.path.ends_with("&watch=true"), "{}", request.path);
        request
    }

    /// Returns true if no request is waiting.
    pub fn is_idle(&mut self) -> bool {
        self.requests.is_empty()
    }
}

impl StubRequest {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Responds with a complete body.
    pub fn respond(self, code: u16, content_type: &str, body: impl Into<Bytes>) {
        self.start_response(code, content_type).send(body);
    }

    /// Responds with a JSON `Status`.
    pub fn refuse(self, code: u16) {
        let body = format!("{{\"kind\":\"Status\",\"message\":\"because of {code}\"}}");
        self.respond(code, JSON, body);
    }

    /// Responds with a status code and a `Retry-After` header.
    pub fn refuse_with_retry_after(self, code: u16, seconds: u64) {
        let (writer, script) = mpsc::unbounded_channel();
        let response = Response::builder().status(code).header("retry-after", seconds);
        let _ = self.answer.send(response.body(ChannelBody(script)).expect("a response"));
        drop(writer);
    }

    /// Starts a response with this status and content type.
    pub fn start_response(self, code: u16, content_type: &str) -> BodyWriter {
        let (writer, script) = mpsc::unbounded_channel();
        let response = Response::builder().status(code).header("content-type", content_type);
        let _ = self.answer.send(response.body(ChannelBody(script)).expect("a response"));
        BodyWriter(writer)
    }

    /// Starts a response with `Content-Encoding: gzip`. The test compresses the body.
    pub fn start_gzip_response(self, content_type: &str) -> BodyWriter {
        let (writer, script) = mpsc::unbounded_channel();
        let response = Response::builder().header("content-type", content_type);
        let response = response.header("content-encoding", "gzip");
        let _ = self.answer.send(response.body(ChannelBody(script)).expect("a response"));
        BodyWriter(writer)
    }

    /// Starts a protobuf watch.
    pub fn start_watch(self) -> BodyWriter {
        self.start_response(200, &format!("{PROTOBUF};stream=watch"))
    }
}

impl BodyWriter {
    pub fn send(&self, chunk: impl Into<Bytes>) {
        let _ = self.0.send(Ok(chunk.into()));
    }

    /// Breaks the connection within the body.
    pub fn abort(self) {
        let _ = self.0.send(Err("aborted"));
    }

    /// Waits until the client closes the connection.
    pub async fn closed(&self) {
        tokio::time::timeout(DEADLINE, self.0.closed()).await.expect("the client leaves");
    }
}

/// Returns the metadata of an object whose UID is its name.
fn metadata(name: &str, version: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("space".to_owned()),
        uid: Some(name.to_owned()),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    }
}

/// Returns a pod whose UID is its name.
pub fn pod(name: &str, version: &str) -> Vec<u8> {
    Pod { metadata: Some(metadata(name, version)), ..Pod::default() }.encode_to_vec()
}

/// Returns the same pod in JSON.
pub fn json_pod(name: &str, version: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}},"spec":{{}}}}"#
    )
}

fn field(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    prost::encoding::encode_varint(payload.len() as u64, &mut out);
    out.extend_from_slice(payload);
    out
}

fn envelope(raw: &[u8]) -> Vec<u8> {
    [b"k8s\0".to_vec(), field(1, b""), field(2, raw), field(3, b""), field(4, b"")].concat()
}

fn encoded_status(code: i32, reason: &str) -> Vec<u8> {
    let status = k8s_pb::apimachinery::pkg::apis::meta::v1::Status {
        code: Some(code),
        status: Some("Failure".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(format!("because of {reason}")),
        ..Default::default()
    };
    status.encode_to_vec()
}

/// Returns a protobuf `Status` as a response body.
pub fn status(code: i32, reason: &str) -> Vec<u8> {
    let kind = field(1, &[field(1, b"v1"), field(2, b"Status")].concat());
    [b"k8s\0".to_vec(), kind, field(2, &encoded_status(code, reason))].concat()
}

/// Returns an empty protobuf list with an explicit kind.
pub fn typed_list(kind: &str, version: &str) -> Vec<u8> {
    let kind = field(1, &[field(1, b"v1"), field(2, kind.as_bytes())].concat());
    [b"k8s\0".to_vec(), kind, field(2, &field(1, &field(2, version.as_bytes())))].concat()
}

/// Returns Endpoints of one subset with this number of addresses and ports.
pub fn endpoints(name: &str, addresses: u32, ports: i32) -> Vec<u8> {
    use k8s_pb::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
    let address = |n: u32| EndpointAddress {
        ip: Some(std::net::Ipv4Addr::from(n).to_string()),
        ..EndpointAddress::default()
    };
    let port = |n| EndpointPort { port: Some(n), ..EndpointPort::default() };
    let subset = EndpointSubset {
        addresses: (0..addresses).map(address).collect(),
        ports: (0..ports).map(port).collect(),
        ..EndpointSubset::default()
    };
    Endpoints { metadata: Some(metadata(name, "1")), subsets: vec![subset] }.encode_to_vec()
}

/// Returns a protobuf list.
pub fn list(version: &str, token: &str, items: &[Vec<u8>]) -> Vec<u8> {
    let mut raw = field(1, &[field(2, version.as_bytes()), field(3, token.as_bytes())].concat());
    for item in items {
        raw.extend(field(2, item));
    }
    envelope(&raw)
}

/// Returns a protobuf watch event.
pub fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    let object = field(2, &field(1, &envelope(object)));
    let frame = [field(1, kind.as_bytes()), object].concat();
    [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
}

/// Returns a protobuf bookmark; `end` marks the end of the initial state.
pub fn bookmark(version: &str, end: bool) -> Vec<u8> {
    let mut metadata =
        ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() };
    if end {
        let key = "k8s.io/initial-events-end".to_owned();
        metadata.annotations.insert(key, "true".to_owned());
    }
    let pod = Pod { metadata: Some(metadata), ..Pod::default() };
    event("BOOKMARK", &pod.encode_to_vec())
}

/// Returns a protobuf error event.
pub fn error(code: i32, reason: &str) -> Vec<u8> {
    event("ERROR", &encoded_status(code, reason))
}
