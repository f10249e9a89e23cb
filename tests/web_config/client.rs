//! A client that observes the recorded facts: alerts, the phase of a failure, negotiated parameters.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::{self, AlertDescription, ClientConfig, ProtocolVersion, version};

#[path = "../common/any_certificate.rs"]
mod any_certificate;

use super::pki::Pki;

/// Longer than any case takes.
const DEADLINE: Duration = Duration::from_secs(120);

/// A connection for requests.
pub struct Connection {
    sender: Sender,
    /// The task that drives it; it returns the reason for the end.
    task: Option<JoinHandle<Result<(), hyper::Error>>>,
    heard: RecordedAlert,
    /// Facts observed since it was opened.
    facts: Map<String, Value>,
}

/// A stream that records alerts: HTTP/2 reports only that a connection failed.
struct AlertRecorder {
    stream: TlsStream<TcpStream>,
    alert: RecordedAlert,
}

type RecordedAlert = Arc<Mutex<Option<AlertDescription>>>;

impl AlertRecorder {
    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result
            && let Some(inner) = error.get_ref()
            && let Some(rustls::Error::AlertReceived(alert)) = inner.downcast_ref()
        {
            *self.alert.lock().expect("lock") = Some(*alert);
        }
        result
    }
}

impl AsyncRead for AlertRecorder {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.note(result)
    }
}

impl AsyncWrite for AlertRecorder {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.note(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.note(result)
    }
}

enum Sender {
    One(http1::SendRequest<Empty<Bytes>>),
    Many(http2::SendRequest<Empty<Bytes>>),
}

/// A probe that rustls deliberately does not support.
#[derive(Debug)]
pub struct Unsupported;

/// OpenSSL's names and IANA's numbers.
const SUITES: [(&str, u16); 13] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", 0xc02b),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", 0xc02c),
    ("ECDHE-RSA-AES128-GCM-SHA256", 0xc02f),
    ("ECDHE-RSA-AES256-GCM-SHA384", 0xc030),
    ("ECDHE-RSA-CHACHA20-POLY1305", 0xcca8),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", 0xcca9),
    ("ECDHE-ECDSA-AES128-SHA256", 0xc023),
    ("ECDHE-ECDSA-AES128-SHA", 0xc009),
    ("ECDHE-ECDSA-AES256-SHA", 0xc00a),
    ("ECDHE-RSA-AES128-SHA", 0xc013),
    ("AES128-GCM-SHA256", 0x009c),
    ("AES256-SHA", 0x0035),
    ("DHE-RSA-AES128-GCM-SHA256", 0x009e),
];

const GROUPS: [(&str, u16); 5] =
    [("P-256", 23), ("P-384", 24), ("P-521", 25), ("X25519", 29), ("X448", 30)];

/// The TLS parameters that a probe offers.
struct Offer {
    min: u8,
    max: u8,
    alpn: Vec<Vec<u8>>,
    /// Up to TLS 1.2; `None` for all.
    suites: Option<Vec<u16>>,
    groups: Option<Vec<u16>>,
}

impl Offer {
    fn of(request: &Value) -> Self {
        let version = |key: &str, usual: &str| match request[key].as_str().unwrap_or(usual) {
            "TLS10" => 10,
            "TLS11" => 11,
            "TLS12" => 12,
            _ => 13,
        };
        let number = |table: &[(&str, u16)], name: &str| {
            let found = table.iter().find(|(known, _)| *known == name);
            found.unwrap_or_else(|| panic!("{name} is not in the table")).1
        };
        let alpn = request.get("alpn").map(strings);
        let suites = request["ciphers"].as_str().filter(|list| *list != "ALL");
        let groups = request.get("curves").map(strings);
        // As recorded: a probe of curves offers no protocol.
        let usual = if groups.is_some() { vec![] } else { vec!["h2".into(), "http/1.1".into()] };
        Self {
            min: version("tls_min", "TLS12"),
            max: version("tls_max", "TLS13"),
            alpn: alpn.unwrap_or(usual).into_iter().map(String::into_bytes).collect(),
            suites: suites.map(|list| list.split(':').map(|name| number(&SUITES, name)).collect()),
            groups: groups.map(|list| list.iter().map(|name| number(&GROUPS, name)).collect()),
        }
    }
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().expect("list").iter();
    items.map(|item| item.as_str().expect("text").to_owned()).collect()
}

/// The result of connecting.
// One of the programs that share this file uses only connections.
#[allow(dead_code)]
pub enum ConnectOutcome {
    Connection(Box<Connection>),
    Failure(Map<String, Value>),
}

/// Connects with the parameters of a probe. `succeeds` is true if the original accepted it.
pub async fn connect(
    address: SocketAddr,
    request: &Value,
    pki: &Pki,
    succeeds: bool,
) -> Result<ConnectOutcome, Unsupported> {
    let socket = TcpStream::connect(address).await.expect("connect");
    if request["scheme"] == "http" {
        return Ok(ConnectOutcome::Connection(Box::new(plain(socket).await)));
    }
    let offer = Offer::of(request);
    let provider = ring::default_provider();
    let known_suite = |number: &u16| {
        provider.cipher_suites.iter().any(|suite| u16::from(suite.suite()) == *number)
    };
    let known_group =
        |number: &u16| provider.kx_groups.iter().any(|group| u16::from(group.name()) == *number);
    let all_known = offer.max >= 12
        && offer.suites.iter().flatten().all(known_suite)
        && offer.groups.iter().flatten().all(known_group);
    if !all_known {
        if succeeds {
            // TLS 1.1, CBC and P-521.
            return Err(Unsupported);
        }
        return Ok(ConnectOutcome::Failure(raw_handshake(socket, &offer).await));
    }
    let config = config(&offer, request, provider, pki);
    let name = any_certificate::server_name();
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, socket);
    let stream = match tokio::time::timeout(DEADLINE, handshake).await.expect("in time") {
        Ok(stream) => stream,
        Err(error) => return Ok(ConnectOutcome::Failure(failure(&error, "handshake"))),
    };
    let session = stream.get_ref().1;
    let mut facts = Map::new();
    let tls = match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLS13",
        Some(ProtocolVersion::TLSv1_2) => "TLS12",
        _ => "another",
    };
    let alpn = session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
    let suite = session.negotiated_cipher_suite().expect("suite").suite();
    let cipher = SUITES.iter().find(|(_, number)| *number == u16::from(suite));
    let cipher = cipher.map_or_else(
        || format!("{suite:?}").replace("TLS13_", "TLS_"),
        |(name, _)| (*name).to_owned(),
    );
    let group = session.negotiated_key_exchange_group().map(|group| u16::from(group.name()));
    let curve = GROUPS.iter().find(|(_, number)| Some(*number) == group).map(|(name, _)| *name);
    let certificate = &session.peer_certificates().expect("certificate")[0];
    let is_http2 = alpn.as_deref() == Some("h2");
    for (key, value) in [
        ("tls", json!(tls)),
        ("alpn", json!(alpn)),
        ("cipher", json!(cipher)),
        ("curve", json!(curve)),
        ("server_cert", json!(pki.name_of(certificate))),
        ("old", json!(tls == "TLS12")),
    ] {
        facts.insert(key.to_owned(), value);
    }
    let heard = RecordedAlert::default();
    let io = TokioIo::new(AlertRecorder { stream, alert: Arc::clone(&heard) });
    let (sender, task) = if is_http2 {
        let begun = http2::handshake(TokioExecutor::new(), io).await;
        let (sender, connection) = match begun {
            Ok(begun) => begun,
            Err(error) => return Ok(ConnectOutcome::Failure(late(&error, &heard, facts))),
        };
        (Sender::Many(sender), tokio::spawn(connection))
    } else {
        let (sender, connection) = http1::handshake(io).await.expect("HTTP/1");
        (Sender::One(sender), tokio::spawn(connection))
    };
    Ok(ConnectOutcome::Connection(Box::new(Connection { sender, task: Some(task), heard, facts })))
}

async fn plain(socket: TcpStream) -> Connection {
    let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.expect("HTTP/1");
    let task = Some(tokio::spawn(connection));
    Connection {
        sender: Sender::One(sender),
        task,
        heard: RecordedAlert::default(),
        facts: Map::new(),
    }
}

fn config(offer: &Offer, request: &Value, mut provider: CryptoProvider, pki: &Pki) -> ClientConfig {
    if let Some(wanted) = &offer.suites {
        let all = provider.cipher_suites.clone();
        let find =
            |number: &u16| all.iter().find(|suite| u16::from(suite.suite()) == *number).copied();
        let newest = all.iter().filter(|suite| suite.version() == &version::TLS13).copied();
        provider.cipher_suites = newest.chain(wanted.iter().filter_map(find)).collect();
    }
    if let Some(wanted) = &offer.groups {
        let all = provider.kx_groups.clone();
        let find =
            |number: &u16| all.iter().find(|group| u16::from(group.name()) == *number).copied();
        provider.kx_groups = wanted.iter().filter_map(find).collect();
    }
    let versions: Vec<_> = [(12, &version::TLS12), (13, &version::TLS13)]
        .into_iter()
        .filter(|(number, _)| (offer.min..=offer.max).contains(number))
        .map(|(_, version)| version)
        .collect();
    let builder = any_certificate::client(provider, &versions);
    let mut config = match request["client_cert"].as_str() {
        Some(name) => {
            let chain = vec![pki.first_certificate(&format!("{name}.crt")).into()];
            let key = PrivateKeyDer::from_pem_slice(pki.text(&format!("{name}.key")).as_bytes());
            builder.with_client_auth_cert(chain, key.expect("key")).expect("client certificate")
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = offer.alpn.clone();
    config
}

/// Offers parameters that the TLS library does not support, and reads the refusal.
async fn raw_handshake(mut socket: TcpStream, offer: &Offer) -> Map<String, Value> {
    fn with_length(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).expect("short").to_be_bytes()[..], bytes].concat()
    }
    fn words(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }
    let extension =
        |kind: u16, content: Vec<u8>| [kind.to_be_bytes().to_vec(), with_length(&content)].concat();
    let usual: Vec<u16> = SUITES.iter().map(|(_, number)| *number).collect();
    let mut suites = offer.suites.clone().unwrap_or(usual);
    let groups = offer.groups.clone().unwrap_or_else(|| vec![29, 23, 24]);
    let mut extensions = extension(10, with_length(&words(&groups)));
    extensions.extend(extension(11, vec![1, 0]));
    if offer.max >= 12 {
        extensions.extend(extension(13, with_length(&words(&[0x0403, 0x0804, 0x0401]))));
    }
    if offer.max >= 13 {
        suites.extend([0x1301, 0x1302, 0x1303]);
        let versions: Vec<u8> = (offer.min..=13).rev().flat_map(|v| [3, v - 9]).collect();
        let count = u8::try_from(versions.len()).expect("short");
        extensions.extend(extension(43, [&[count][..], &versions].concat()));
        extensions.extend(extension(51, with_length(&[])));
    }
    let newest = [3, offer.max.min(12) - 9];
    let mut hello = [&newest[..], &[7; 32], &[0]].concat();
    hello.extend(with_length(&words(&suites)));
    hello.extend([1, 0]);
    hello.extend(with_length(&extensions));
    let length = u32::try_from(hello.len()).expect("short").to_be_bytes();
    let message = [&[1][..], &length[1..], &hello].concat();
    let record = [&[22, 3, 1][..], &with_length(&message)].concat();
    socket.write_all(&record).await.expect("hello");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(DEADLINE, socket.read_to_end(&mut answer)).await;
    drop(read.expect("in time"));
    match answer[..] {
        [21, _, _, 0, 2, 2, alert] => alert_seen(AlertDescription::from(alert), "handshake"),
        _ => {
            Map::from_iter([("failure".into(), json!("closed")), ("at".into(), json!("handshake"))])
        }
    }
}

fn alert_seen(alert: AlertDescription, at: &str) -> Map<String, Value> {
    // RFC 8446 writes them with underscores.
    let mut name = String::new();
    for (index, letter) in format!("{alert:?}").replace("CA", "Ca").char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    [("failure", json!("tls_alert")), ("alert", json!(name)), ("at", json!(at))]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

fn failure(error: &(dyn Error + 'static), at: &str) -> Map<String, Value> {
    let mut cause = Some(error);
    while let Some(one) = cause {
        let inner = one.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = one
            .downcast_ref::<rustls::Error>()
            .or_else(|| inner.and_then(|inner| inner.downcast_ref()));
        match tls {
            Some(rustls::Error::AlertReceived(alert)) => return alert_seen(*alert, at),
            Some(rustls::Error::InvalidMessage(_)) => {
                return Map::from_iter([
                    ("failure".into(), json!("tls_error")),
                    ("at".into(), json!(at)),
                ]);
            }
            _ => {}
        }
        cause = match inner {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => one.source(),
        };
    }
    Map::from_iter([("failure".into(), json!("closed")), ("at".into(), json!(at))])
}

/// Describes a failure after the client's part of the handshake was complete.
fn late(
    error: &(dyn Error + 'static),
    heard: &RecordedAlert,
    facts: Map<String, Value>,
) -> Map<String, Value> {
    // Up to TLS 1.2 the client waits for the server.
    let at = if facts["old"] == json!(true) { "handshake" } else { "after_handshake" };
    let mut seen = facts;
    let heard = *heard.lock().expect("lock");
    seen.extend(heard.map_or_else(|| failure(error, at), |alert| alert_seen(alert, at)));
    seen
}

impl Connection {
    /// Sends a request and returns the observed facts.
    pub async fn send(&mut self, request: &Value) -> Map<String, Value> {
        let path = request["path"].as_str().unwrap_or("/healthz");
        let is_http2 = matches!(self.sender, Sender::Many(_));
        let scheme = request["scheme"].as_str().unwrap_or("https");
        let uri = if is_http2 { format!("{scheme}://localhost{path}") } else { path.to_owned() };
        let mut builder =
            hyper::Request::builder().method(request["method"].as_str().unwrap_or("GET")).uri(uri);
        if !is_http2 {
            builder = builder.header("host", "localhost");
        }
        if let Some(value) = request["authorization"].as_str() {
            builder = builder.header("authorization", value.as_bytes());
        }
        if let Some(user) = request["user"].as_str() {
            use base64::Engine;
            let password = request["password"].as_str().unwrap_or_default();
            let plain = format!("{user}:{password}");
            let encoded = base64::engine::general_purpose::STANDARD.encode(plain);
            builder = builder.header("authorization", format!("Basic {encoded}"));
        }
        for (name, value) in request["headers"].as_object().into_iter().flatten() {
            builder = builder.header(name, value.as_str().expect("text"));
        }
        let request = builder.body(Empty::<Bytes>::new()).expect("request");
        let sent = async {
            match &mut self.sender {
                Sender::One(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Many(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        let response = match tokio::time::timeout(DEADLINE, sent).await.expect("in time") {
            Ok(response) => response,
            Err(error) => {
                let task = self.task.take().expect("fails once");
                let ended = tokio::time::timeout(DEADLINE, task).await.expect("in time");
                let cause = ended.expect("no panic").err().unwrap_or(error);
                return late(&cause, &self.heard, self.facts.clone());
            }
        };
        let mut seen = self.facts.clone();
        let status = response.status().as_u16();
        let mut headers = Map::new();
        for (name, value) in response.headers() {
            let hidden = ["date", "content-length", "transfer-encoding", "connection"];
            if !hidden.contains(&name.as_str()) {
                let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
                headers.insert(name.to_string(), json!(text));
            }
        }
        let body = response.into_body().collect().await.expect("body").to_bytes();
        seen.insert("status".into(), json!(status));
        seen.insert("headers".into(), Value::Object(headers));
        seen.insert("body".into(), json!(String::from_utf8_lossy(&body)));
        seen
    }
}
