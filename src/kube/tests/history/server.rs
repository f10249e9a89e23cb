//! The API server in front of a [`Cluster`], and the network in front of it, both of which misbehave as they are told.

use std::convert::Infallible;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_rustls::TlsAcceptor;

use super::cluster::{Cluster, KINDS, Kind, Object, Verb};
use super::encode::{self, Form, Part};
use super::faults::Fault;
use super::wire::{self, End, Handle};
use crate::kube::client::connection::{Connecting, Network, Stream};

/// The longest that anything is on its way, in milliseconds.
const LATENCY: u64 = 30;
/// Objects on a page, whatever is asked for.
const PAGE: usize = 4;

/// The server and its network.
pub struct Server {
    pub cluster: Mutex<Cluster>,
    state: Mutex<State>,
    /// Told when faults begin and end.
    told: watch::Sender<u64>,
    /// TLS with HTTP/2, plain HTTP/1.1 otherwise.
    tls: Option<TlsAcceptor>,
    start: Instant,
    /// Whether to tell of requests and faults.
    trace: bool,
}

struct State {
    rng: Rng,
    faults: Vec<(usize, Fault)>,
    /// All connections there were.
    lines: Vec<Handle>,
    /// What watches with a lower number have come to.
    watches: u64,
    deaf: u64,
    broken: u64,
    ended: u64,
    expired: u64,
    goodbyes: u64,
    token: u64,
    requests: u64,
}

/// A body that a task writes.
struct Script(mpsc::UnboundedReceiver<Result<Bytes, &'static str>>);

type Writer = mpsc::UnboundedSender<Result<Bytes, &'static str>>;

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

/// What a request is about.
struct Ask {
    kind: Kind,
    namespace: Option<String>,
    form: Form,
    query: Vec<(String, String)>,
}

impl Ask {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn is(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

impl Server {
    pub fn new(kinds: &[Kind], rng: &mut Rng, tls: Option<TlsAcceptor>, trace: bool) -> Arc<Self> {
        let state = State {
            rng: rng.fork(),
            faults: Vec::new(),
            lines: Vec::new(),
            watches: 0,
            deaf: 0,
            broken: 0,
            ended: 0,
            expired: 0,
            goodbyes: 0,
            token: 1,
            requests: 0,
        };
        let cluster = Mutex::new(Cluster::new(kinds, rng));
        let (state, told, start) = (Mutex::new(state), watch::Sender::new(0), Instant::now());
        Arc::new(Self { cluster, state, told, tls, start, trace })
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.trace {
            let (after, version) = (self.start.elapsed().as_secs_f64(), self.cluster().version);
            println!("{after:7.2} s, version {version}: {}", what());
        }
    }

    pub fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.state().requests
    }

    /// A fault begins.
    pub fn begin(&self, id: usize, fault: &Fault) {
        self.tell(|| format!("{fault:?} begins"));
        let mut state = self.state();
        state.faults.push((id, fault.clone()));
        match fault {
            Fault::Reset => state.lines.iter().for_each(Handle::reset),
            Fault::Closed => state.lines.iter().for_each(Handle::end),
            Fault::GoAway => state.goodbyes += 1,
            Fault::WatchesBroken => state.broken = state.watches,
            Fault::WatchesEnded => state.ended = state.watches,
            Fault::Compacted => {
                self.cluster().compact();
                state.expired = state.watches;
            }
            Fault::Frozen { .. } | Fault::Suspended => {
                state.lines.iter().for_each(|line| line.freeze(true));
            }
            Fault::Deaf => state.deaf = state.watches,
            Fault::Restarted { .. } | Fault::Restored { .. } => {
                let reset = state.rng.bool();
                state.lines.iter().for_each(|line| if reset { line.reset() } else { line.end() });
                match fault {
                    Fault::Restored { .. } => self.cluster().restore(),
                    Fault::Restarted { forgets: true } => self.cluster().compact(),
                    _ => {}
                }
                // What they wrote meanwhile is nobody's.
                state.broken = state.watches;
            }
            Fault::TokenReplaced => state.token += 1,
            Fault::Slow => state.lines.iter().for_each(|line| line.slow(true)),
            _ => {}
        }
        drop(state);
        self.told.send_modify(|count| *count += 1);
    }

    /// It ends.
    pub fn end(&self, id: usize) {
        let mut state = self.state();
        let Some(at) = state.faults.iter().position(|(other, _)| *other == id) else { return };
        let (_, fault) = state.faults.remove(at);
        if self.trace {
            let after = self.start.elapsed().as_secs_f64();
            println!("{after:7.2} s: {fault:?} ends");
        }
        let lasts = |fault: fn(&Fault) -> bool| state.faults.iter().any(|(_, other)| fault(other));
        match fault {
            Fault::Suspended => state.lines.iter().for_each(|line| line.freeze(false)),
            Fault::Slow if !lasts(|fault| *fault == Fault::Slow) => {
                state.lines.iter().for_each(|line| line.slow(false));
            }
            _ => {}
        }
        drop(state);
        self.told.send_modify(|count| *count += 1);
    }

    /// The token that is good now.
    pub fn token(&self) -> u64 {
        self.state().token
    }

    fn has(&self, which: impl Fn(&Fault) -> bool) -> bool {
        self.state().faults.iter().any(|(_, fault)| which(fault))
    }

    fn find<T>(&self, which: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        self.state().faults.iter().find_map(|(_, fault)| which(fault))
    }

    fn dice(&self, share: f64) -> bool {
        self.state().rng.f64() < share
    }

    fn random(&self, below: usize) -> usize {
        self.state().rng.usize(..below.max(1))
    }

    /// Waits until there is no such fault.
    async fn without(&self, which: impl Fn(&Fault) -> bool) {
        let mut told = self.told.subscribe();
        while self.has(&which) {
            if told.changed().await.is_err() {
                return;
            }
        }
    }

    async fn serve(self: Arc<Self>, end: End) {
        let service = Arc::clone(&self);
        let service = service_fn(move |request| {
            let server = Arc::clone(&service);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let mut told = self.told.subscribe();
        let before = self.state().goodbyes;
        let goodbye = async {
            while self.state().goodbyes == before {
                if told.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        // How a connection ends is the client's affair.
        match &self.tls {
            Some(tls) => {
                let Ok(stream) = tls.accept(end).await else { return };
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let mut connection =
                    std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
                tokio::select! {
                    _ = connection.as_mut() => return,
                    () = goodbye => connection.as_mut().graceful_shutdown(),
                }
                let _ = connection.await;
            }
            None => {
                let http = hyper::server::conn::http1::Builder::new();
                let mut connection =
                    std::pin::pin!(http.serve_connection(TokioIo::new(end), service));
                tokio::select! {
                    _ = connection.as_mut() => return,
                    () = goodbye => connection.as_mut().graceful_shutdown(),
                }
                let _ = connection.await;
            }
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Script> {
        self.state().requests += 1;
        if let Some(late) = self.find(|fault| match fault {
            Fault::Late(late) => Some(*late),
            _ => None,
        }) {
            tokio::select! {
                () = sleep(late) => {}
                () = self.without(|fault| matches!(fault, Fault::Late(_))) => {}
            }
        }
        self.without(|fault| *fault == Fault::Stalled).await;
        let Some(ask) = self.ask(&request) else { return whole(404, "text/plain", b"?".to_vec()) };
        let refusal = self.refusal(&ask, request.headers());
        self.tell(|| {
            let code = refusal.as_ref().map(|response| response.status().as_u16());
            format!("{} {code:?}", request.uri())
        });
        match refusal {
            Some(response) => response,
            None if ask.is("watch") => self.watch(ask),
            None => self.list(&ask),
        }
    }

    fn ask(&self, request: &Request<Incoming>) -> Option<Ask> {
        let parts: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let (namespace, plural) = match parts[..] {
            ["api", "v1", plural] | ["apis", "example.com", "v1", plural] => (None, plural),
            ["api", "v1", "namespaces", namespace, plural]
            | ["apis", "example.com", "v1", "namespaces", namespace, plural] => {
                (Some(namespace.to_owned()), plural)
            }
            _ => return None,
        };
        let kind = KINDS.into_iter().find(|kind| kind.plural() == plural)?;
        let accept = request.headers().get(ACCEPT)?.to_str().ok()?;
        let part = match accept {
            _ if self.has(|fault| matches!(fault, Fault::NoParts { .. })) => Part::Whole,
            accept if accept.contains("as=Table") => Part::Table,
            accept if accept.contains("as=Partial") => Part::Metadata,
            _ => Part::Whole,
        };
        let protobuf = part != Part::Table
            && accept.contains("protobuf")
            && !self.has(|fault| *fault == Fault::NoProtobuf);
        let query = request.uri().query().unwrap_or_default();
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(Ask { kind, namespace, form: Form { protobuf, part }, query })
    }

    /// An answer that has nothing of what was asked for.
    fn refusal(&self, ask: &Ask, headers: &HeaderMap) -> Option<Response<Script>> {
        let status = |code, reason: &str| {
            let body = encode::status(ask.form.protobuf, code, reason);
            Some(whole(code, ask.form.content_type(false), body))
        };
        let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if token != Some(&format!("Bearer token-{}", self.token())) {
            return status(401, "Unauthorized");
        }
        let faults: Vec<Fault> =
            self.state().faults.iter().map(|(_, fault)| fault.clone()).collect();
        for fault in faults {
            match fault {
                Fault::Status { code, retry_after, share } if self.dice(share) => {
                    let mut response = status(code, "Trouble")?;
                    if let Some(seconds) = retry_after {
                        response.headers_mut().insert(RETRY_AFTER, seconds.into());
                    }
                    return Some(response);
                }
                Fault::Denied(kind) if kind == ask.kind => return status(403, "Forbidden"),
                Fault::NoStreaming if ask.is("sendInitialEvents") => return status(422, "Invalid"),
                Fault::NoParts { refuses: true } if headers[ACCEPT].as_bytes().contains(&b'=') => {
                    return status(406, "NotAcceptable");
                }
                Fault::PagesExpired if ask.get("continue").is_some() => {
                    return status(410, "Expired");
                }
                Fault::NoList(number) => {
                    let other = Form { protobuf: true, part: Part::Whole };
                    let protobuf = other.content_type(false);
                    let (content_type, body) = match number {
                        0 => ("application/json", encode::status(false, 500, "InternalError")),
                        1 => (protobuf, encode::status(true, 500, "InternalError")),
                        2 => ("application/json", b"{}".to_vec()),
                        3 => ("application/json", b"[]".to_vec()),
                        4 => ("text/html", b"<html>log in</html>".to_vec()),
                        5 => ("application/json", b"<html>log in</html>".to_vec()),
                        6 => {
                            let kind = if ask.kind == Kind::Pod { Kind::Node } else { Kind::Pod };
                            (protobuf, encode::list(other, kind, 5000, "", &[]))
                        }
                        7 => ("application/json", br#"{"items":[],"metadata":{}}"#.to_vec()),
                        _ => (protobuf, Vec::new()),
                    };
                    return Some(whole(200, content_type, body));
                }
                _ => {}
            }
        }
        None
    }

    /// One page.
    fn list(&self, ask: &Ask) -> Response<Script> {
        let token = ask.get("continue").and_then(|token| token.split_once('.'));
        let token = token.map(|(version, from)| (version.parse().ok(), from.parse().ok()));
        let (at, from): (Option<u64>, usize) = match token {
            Some((Some(version), Some(from))) => (Some(version), from),
            _ => (None, 0),
        };
        let mut cluster = self.cluster();
        let Some(objects) = cluster.list(ask.kind, ask.namespace.as_deref(), at) else {
            let body = encode::status(ask.form.protobuf, 410, "Expired");
            return whole(410, ask.form.content_type(false), body);
        };
        let version = at.unwrap_or(cluster.version);
        drop(cluster);
        let limited = ask.get("limit").is_some();
        let end = if limited { objects.len().min(from + PAGE) } else { objects.len() };
        let next = if end < objects.len() { format!("{version}.{end}") } else { String::new() };
        let body = encode::list(ask.form, ask.kind, version, &next, &objects[from.min(end)..end]);
        let (writer, script) = mpsc::unbounded_channel();
        self.send(&writer, body, 0.7);
        respond(200, ask.form.content_type(false), self.compressed(), script)
    }

    fn compressed(&self) -> bool {
        self.has(|fault| *fault == Fault::Gzip)
    }

    /// Sends a piece of a body, or what becomes of it; whether more may follow. Of pieces that can be spoilt this share is.
    fn send(&self, writer: &Writer, piece: Vec<u8>, share: f64) -> bool {
        let torn = self.find(|fault| match fault {
            Fault::Torn { clean } => Some(*clean),
            _ => None,
        });
        if let Some(clean) = torn
            && self.dice(share)
        {
            let _ = writer.send(Ok(piece[..self.random(piece.len())].to_vec().into()));
            if !clean {
                let _ = writer.send(Err("torn"));
            }
            return false;
        }
        if self.has(|fault| *fault == Fault::Garbage) && self.dice(share) {
            let mut piece = piece[..self.random(piece.len())].to_vec();
            // More than what any object lacks: it cannot be taken for the rest of one.
            piece.extend([0xff; 4096]);
            let _ = writer.send(Ok(piece.into()));
            return false;
        }
        let piece = if self.compressed() {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            let written = gzip.write_all(&piece).and_then(|()| gzip.finish());
            written.expect("memory takes it")
        } else {
            piece
        };
        writer.send(Ok(piece.into())).is_ok()
    }

    fn watch(self: Arc<Self>, ask: Ask) -> Response<Script> {
        let (writer, script) = mpsc::unbounded_channel();
        let (content_type, gzip) = (ask.form.content_type(true), self.compressed());
        tokio::spawn(async move { self.events(&ask, &writer).await });
        respond(200, content_type, gzip, script)
    }

    /// Writes a watch to its end.
    async fn events(&self, ask: &Ask, writer: &Writer) {
        let number = {
            let mut state = self.state();
            state.watches += 1;
            state.watches - 1
        };
        let seconds = ask.get("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(60);
        let end = Instant::now() + Duration::from_secs(seconds);
        let (mut news, mut told) = (self.cluster().news(), self.told.subscribe());
        let mut first = true;
        let wanted = |object: &Object| {
            object.scope.kind == ask.kind
                && ask
                    .namespace
                    .as_deref()
                    .is_none_or(|namespace| namespace == object.scope.namespace)
        };
        let mut cursor = if ask.is("sendInitialEvents") {
            let (version, objects) = {
                let mut cluster = self.cluster();
                let objects = cluster.list(ask.kind, ask.namespace.as_deref(), None);
                (cluster.version, objects.unwrap_or_default())
            };
            for object in &objects {
                let event =
                    encode::event(ask.form, Verb::Added, object, std::mem::take(&mut first));
                if !self.send(writer, event, 0.1) {
                    return;
                }
            }
            let event =
                encode::bookmark(ask.form, ask.kind, version, true, std::mem::take(&mut first));
            if !self.send(writer, event, 0.1) {
                return;
            }
            version
        } else {
            ask.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        let mut bookmark = Instant::now() + Duration::from_millis(self.random(20_000) as u64);
        loop {
            let (deaf, broken, ended, expired, stalled) = {
                let state = self.state();
                let stalled = state.faults.iter().any(|(_, fault)| *fault == Fault::Stalled);
                let old = |limit| number < limit;
                (old(state.deaf), old(state.broken), old(state.ended), old(state.expired), stalled)
            };
            if broken {
                let _ = writer.send(Err("broken"));
                return;
            }
            if deaf {
                return writer.closed().await;
            }
            if ended {
                return;
            }
            if !stalled {
                let changes: Option<Vec<_>> = {
                    let cluster = self.cluster();
                    let since = cluster.since(cursor);
                    since.filter(|_| !expired).map(|changes| changes.cloned().collect())
                };
                let Some(changes) = changes else {
                    let _ = writer.send(Ok(encode::error(ask.form, 410, "Expired").into()));
                    return;
                };
                for change in changes {
                    cursor = change.version;
                    if !wanted(&change.object) {
                        continue;
                    }
                    let event = encode::event(
                        ask.form,
                        change.verb,
                        &change.object,
                        std::mem::take(&mut first),
                    );
                    if !self.send(writer, event, 0.2) {
                        return;
                    }
                }
                let now = Instant::now();
                let version = self.cluster().version;
                let due = now >= bookmark || now >= end;
                if due {
                    bookmark = now + Duration::from_secs(30);
                }
                // Nor is anything said to who asks from a version of the future.
                if due && cursor <= version {
                    let event = encode::bookmark(
                        ask.form,
                        ask.kind,
                        version,
                        false,
                        std::mem::take(&mut first),
                    );
                    if !self.send(writer, event, 0.2) {
                        return;
                    }
                }
                if now >= end {
                    return;
                }
            }
            tokio::select! {
                () = writer.closed() => return,
                _ = news.changed() => {}
                _ = told.changed() => {}
                () = sleep_until(end.min(bookmark)), if !stalled => {}
            }
        }
    }

    fn line(self: &Arc<Self>) -> End {
        let mut state = self.state();
        let latency = Duration::from_micros(state.rng.u64(100..LATENCY * 1000));
        let (server, client, handle) = wire::pair(latency);
        let has = |which: fn(&Fault) -> bool| state.faults.iter().any(|(_, fault)| which(fault));
        handle.freeze(has(|fault| matches!(fault, Fault::Frozen { .. } | Fault::Suspended)));
        handle.slow(has(|fault| *fault == Fault::Slow));
        state.lines.push(handle);
        drop(state);
        tokio::spawn(Arc::clone(self).serve(server));
        client
    }
}

/// The way to the server.
pub struct Way(pub Arc<Server>);

impl Network for Way {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            if self.0.has(|fault| *fault == Fault::NoName) {
                return Err(format!("no address of {host}: Name or service not known"));
            }
            // The first question is asked again after a while only, so that it is answered at the end at once.
            let held =
                |fault: &Fault| matches!(fault, Fault::NoAnswer | Fault::Restored { held: true });
            self.0.without(held).await;
            let refused = |fault: &Fault| {
                matches!(fault, Fault::Refused | Fault::Restarted { .. } | Fault::Restored { .. })
            };
            if self.0.has(refused) {
                return Err(format!("{host}:{port}: Connection refused"));
            }
            Ok(Box::new(self.0.line()) as Box<dyn Stream>)
        })
    }
}

fn respond(
    code: u16,
    content_type: &str,
    gzip: bool,
    script: mpsc::UnboundedReceiver<Result<Bytes, &'static str>>,
) -> Response<Script> {
    let mut response = Response::builder().status(code).header(CONTENT_TYPE, content_type);
    if gzip {
        response = response.header(CONTENT_ENCODING, "gzip");
    }
    response.body(Script(script)).expect("a response")
}

fn whole(code: u16, content_type: &str, body: Vec<u8>) -> Response<Script> {
    let (writer, script) = mpsc::unbounded_channel();
    let _ = writer.send(Ok(body.into()));
    respond(code, content_type, false, script)
}
