//! A scripted API server: a test takes each request as it comes and says what is answered.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_pb::api::core::v1::Pod;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// How long a test waits for what must happen.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const JSON: &str = "application/json";

/// The server; requests come out of it one by one.
pub struct Stub {
    pub url: String,
    calls: mpsc::UnboundedReceiver<Call>,
}

/// A request that waits for its answer.
pub struct Call {
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    answer: oneshot::Sender<Response<Script>>,
}

/// A body that a test writes piece by piece; dropping it ends the body.
pub struct Writer(mpsc::UnboundedSender<Result<Bytes, &'static str>>);

pub struct Script(mpsc::UnboundedReceiver<Result<Bytes, &'static str>>);

impl hyper::body::Body for Script {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

impl Stub {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, calls) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let sender = sender.clone();
                    async move {
                        let (answer, answered) = oneshot::channel();
                        let path = request.uri().to_string();
                        let headers = request.headers().clone();
                        let _ = sender.send(Call { path, headers, answer });
                        Ok::<_, Infallible>(answered.await.expect("the test answers every call"))
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, calls }
    }

    /// The next request.
    pub async fn next(&mut self) -> Call {
        let call = tokio::time::timeout(DEADLINE, self.calls.recv()).await;
        call.expect("a request within the deadline").expect("the server runs")
    }

    /// The next request, which must be for this path and query.
    pub async fn expect(&mut self, path: &str) -> Call {
        let call = self.next().await;
        assert_eq!(call.path, path);
        call
    }

    /// The next request, which must be a streaming list.
    pub async fn streaming(&mut self) -> Call {
        let call = self.next().await;
        assert!(call.path.contains("sendInitialEvents=true"), "{}", call.path);
        call
    }

    /// The next request, which must be a watch from this version.
    pub async fn watch(&mut self, version: &str) -> Call {
        let call = self.next().await;
        let expected = format!("&resourceVersion={version}&timeoutSeconds=");
        assert!(call.path.contains(&expected), "{} has no {expected}", call.path);
        assert!(call.path.ends_with("&watch=true"), "{}", call.path);
        call
    }

    /// Whether a request has come that nobody has taken.
    pub fn is_quiet(&mut self) -> bool {
        self.calls.is_empty()
    }
}

impl Call {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Answers with a whole body.
    pub fn answer(self, code: u16, content_type: &str, body: impl Into<Bytes>) {
        self.open(code, content_type).send(body);
    }

    /// Answers with a `Status` in JSON.
    pub fn refuse(self, code: u16) {
        let body = format!("{{\"kind\":\"Status\",\"message\":\"because of {code}\"}}");
        self.answer(code, JSON, body);
    }

    /// Answers with a `Status` in JSON, and says after how many seconds to ask again.
    pub fn refuse_for(self, code: u16, seconds: u64) {
        let (writer, script) = mpsc::unbounded_channel();
        let response = Response::builder().status(code).header("retry-after", seconds);
        let _ = self.answer.send(response.body(Script(script)).expect("a response"));
        drop(writer);
    }

    /// Begins an answer.
    pub fn open(self, code: u16, content_type: &str) -> Writer {
        let (writer, script) = mpsc::unbounded_channel();
        let response = Response::builder().status(code).header("content-type", content_type);
        let _ = self.answer.send(response.body(Script(script)).expect("a response"));
        Writer(writer)
    }

    /// Begins an answer that is compressed, with what the test writes as it is.
    pub fn compressed(self, content_type: &str) -> Writer {
        let (writer, script) = mpsc::unbounded_channel();
        let response = Response::builder().header("content-type", content_type);
        let response = response.header("content-encoding", "gzip");
        let _ = self.answer.send(response.body(Script(script)).expect("a response"));
        Writer(writer)
    }

    /// Begins a watch in protobuf.
    pub fn protobuf(self) -> Writer {
        self.open(200, &format!("{PROTOBUF};stream=watch"))
    }
}

impl Writer {
    pub fn send(&self, chunk: impl Into<Bytes>) {
        let _ = self.0.send(Ok(chunk.into()));
    }

    /// Breaks the connection.
    pub fn abort(self) {
        let _ = self.0.send(Err("aborted"));
    }

    /// Waits until the client has gone.
    pub async fn gone(&self) {
        tokio::time::timeout(DEADLINE, self.0.closed()).await.expect("the client leaves");
    }
}

/// A pod whose uid is its name.
pub fn pod(name: &str, version: &str) -> Vec<u8> {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("space".to_owned()),
        uid: Some(name.to_owned()),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    };
    Pod { metadata: Some(metadata), ..Pod::default() }.encode_to_vec()
}

/// The same in JSON.
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

/// A `Status` in protobuf, as the body of an answer.
pub fn status(code: i32, reason: &str) -> Vec<u8> {
    let status = k8s_pb::apimachinery::pkg::apis::meta::v1::Status {
        code: Some(code),
        status: Some("Failure".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(format!("because of {reason}")),
        ..Default::default()
    };
    let kind = field(1, &[field(1, b"v1"), field(2, b"Status")].concat());
    [b"k8s\0".to_vec(), kind, field(2, &status.encode_to_vec())].concat()
}

/// An empty list in protobuf that says what kind it is.
pub fn typed_list(kind: &str, version: &str) -> Vec<u8> {
    let kind = field(1, &[field(1, b"v1"), field(2, kind.as_bytes())].concat());
    [b"k8s\0".to_vec(), kind, field(2, &field(1, &field(2, version.as_bytes())))].concat()
}

/// Endpoints of one subset with so many addresses and ports.
pub fn endpoints(name: &str, addresses: u32, ports: i32) -> Vec<u8> {
    use k8s_pb::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("space".to_owned()),
        uid: Some(name.to_owned()),
        resource_version: Some("1".to_owned()),
        ..ObjectMeta::default()
    };
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
    Endpoints { metadata: Some(metadata), subsets: vec![subset] }.encode_to_vec()
}

/// A list in protobuf.
pub fn list(version: &str, token: &str, items: &[Vec<u8>]) -> Vec<u8> {
    let mut raw = field(1, &[field(2, version.as_bytes()), field(3, token.as_bytes())].concat());
    for item in items {
        raw.extend(field(2, item));
    }
    envelope(&raw)
}

/// A watch event in protobuf.
pub fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    let object = field(2, &field(1, &envelope(object)));
    let frame = [field(1, kind.as_bytes()), object].concat();
    [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
}

/// A bookmark in protobuf; `end` marks the end of the initial state.
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

/// An error event in protobuf.
pub fn error(code: i32, reason: &str) -> Vec<u8> {
    let status = k8s_pb::apimachinery::pkg::apis::meta::v1::Status {
        code: Some(code),
        reason: Some(reason.to_owned()),
        message: Some(format!("because of {reason}")),
        ..Default::default()
    };
    event("ERROR", &status.encode_to_vec())
}
