//! The simulated API server of a [`Cluster`], with injected faults.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use http::header::{ACCEPT, AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_rustls::TlsAcceptor;

use super::body::{ChannelBody, ChunkSender, build_response, complete_response};
use super::cluster::{Cluster, EventType, KINDS, Kind, Object};
use super::encode::{self, ObjectForm, ResponseFormat};
use super::faults::{Fault, Flap};
use super::journal::{Entry, Topic};
use super::signal::Signal;
use super::wire::{self, ConnectionHandle, Endpoint};
use crate::tests::hash;

/// The maximum latency in milliseconds.
const LATENCY: u64 = 30;
/// The number of objects on a page, regardless of the requested limit.
const PAGE: usize = 4;

/// The server and its network.
pub struct Server {
    pub cluster: Mutex<Cluster>,
    state: Mutex<State>,
    /// Notified when faults begin and end.
    fault_changes: Signal,
    /// Serves HTTP/2 over TLS; plain HTTP/1.1 if `None`.
    tls: Option<TlsAcceptor>,
    start: Instant,
    /// Prints requests and faults.
    trace: bool,
    journal: Mutex<Vec<Entry>>,
}

/// The number of requests for a namespace, and of those that start a list.
#[derive(Clone, Copy, Default)]
pub struct RequestCounts {
    pub requests: u64,
    pub lists: u64,
}

struct State {
    rng: Rng,
    faults: Vec<ActiveFault>,
    /// All connections ever opened.
    connections: Vec<ConnectionHandle>,
    /// Watches with lower numbers than these have been silenced, broken and so on.
    watches: u64,
    silent: u64,
    /// The server behind connections with lower numbers is gone.
    gone: usize,
    broken: u64,
    ended: u64,
    expired: u64,
    goaways: u64,
    token: u64,
    /// The number of requests, without further pages of lists, and of failed connection attempts.
    requests: u64,
    /// The namespace to which access is forbidden, if any.
    forbidden: Option<&'static str>,
    /// The number of requests, by namespace.
    counts: BTreeMap<String, RequestCounts>,
    /// The number of requests that start a list, streaming or not.
    lists: u64,
    /// True if the server sends bookmarks on watches.
    bookmarks: bool,
    /// The number of connection probes.
    probes: u64,
}

struct ActiveFault {
    id: usize,
    fault: Fault,
}

/// A request for a list or a watch.
struct ApiRequest {
    kind: Kind,
    namespace: Option<String>,
    format: ResponseFormat,
    query: Vec<(String, String)>,
}

impl ApiRequest {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn is(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// Returns true for a streaming list and for the first page of a list, but not for a version check.
    fn starts_list(&self) -> bool {
        let is_partial = self.get("limit") == Some("1") || self.get("continue").is_some();
        self.is("sendInitialEvents") || !self.is("watch") && !is_partial
    }
}

impl Server {
    pub fn new(kinds: &[Kind], rng: &mut Rng, tls: Option<TlsAcceptor>, trace: bool) -> Arc<Self> {
        let state = State {
            rng: rng.fork(),
            faults: Vec::new(),
            connections: Vec::new(),
            watches: 0,
            silent: 0,
            gone: 0,
            bookmarks: true,
            probes: 0,
            broken: 0,
            ended: 0,
            expired: 0,
            goaways: 0,
            token: 1,
            requests: 0,
            forbidden: None,
            counts: BTreeMap::new(),
            lists: 0,
        };
        let cluster = Mutex::new(Cluster::new(kinds, rng));
        let (state, fault_changes, start) = (Mutex::new(state), Signal::default(), Instant::now());
        let journal = Mutex::default();
        Arc::new(Self { cluster, state, fault_changes, tls, start, trace, journal })
    }

    /// Adds an entry to the journal.
    pub fn note(&self, topic: Topic, text: String) {
        let at = self.start.elapsed();
        if self.trace && topic != Topic::Response {
            println!("{:7.2} s, version {}: {text}", at.as_secs_f64(), self.cluster().version);
        }
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.push(Entry { at, topic, text });
    }

    /// Takes the journal.
    pub fn take_journal(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.journal.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of requests so far, including failed connection attempts, without further pages of lists.
    pub fn requests(&self) -> u64 {
        self.state().requests
    }

    /// Forbids a namespace, or none.
    pub fn forbid(&self, namespace: Option<&'static str>) {
        self.state().forbidden = namespace;
    }

    /// Returns and resets the number of requests for a namespace, and of those that started a list.
    pub fn take_request_counts(&self, namespace: &str) -> RequestCounts {
        self.state().counts.remove(namespace).unwrap_or_default()
    }

    /// Returns the number of lists started so far, streaming or not.
    pub fn lists(&self) -> u64 {
        self.state().lists
    }

    /// Returns the number of connection probes so far.
    pub fn probes(&self) -> u64 {
        self.state().probes
    }

    /// Sends no more bookmarks, except the one at the end of a streaming list.
    pub fn stop_bookmarks(&self) {
        self.state().bookmarks = false;
    }

    /// Counts a failed connection attempt as a request.
    pub(super) fn count_failed_connection(&self) {
        self.state().requests += 1;
        self.note(Topic::Request, "failed connection".to_owned());
    }

    /// Returns the flapping fault of a kind, if there is one.
    fn flap(&self, kind: Kind) -> Option<Flap> {
        self.find_fault(|fault| match fault {
            Fault::Flapping(flap) if flap.breaks(kind) => Some(flap.clone()),
            _ => None,
        })
    }

    /// Starts to inject a fault.
    pub fn begin_fault(&self, id: usize, fault: &Fault) {
        self.note(Topic::Begin(id), format!("{fault:?} begins"));
        let mut state = self.state();
        state.faults.push(ActiveFault { id, fault: fault.clone() });
        match fault {
            Fault::Reset => state.connections.iter().for_each(ConnectionHandle::reset),
            Fault::Closed => state.connections.iter().for_each(ConnectionHandle::end),
            Fault::GoAway => state.goaways += 1,
            Fault::WatchesBroken | Fault::Flapping(_) => state.broken = state.watches,
            Fault::WatchesEnded => state.ended = state.watches,
            Fault::Compacted => {
                self.cluster().compact();
                state.expired = state.watches;
            }
            Fault::Frozen { .. } | Fault::Suspended => {
                state.connections.iter().for_each(|connection| connection.freeze(true));
            }
            Fault::WatchesSilent => state.silent = state.watches,
            Fault::BackendGone => {
                (state.silent, state.gone) = (state.watches, state.connections.len());
            }
            Fault::Restarted { .. } | Fault::Restored { .. } => {
                let reset = state.rng.bool();
                state.connections.iter().for_each(|connection| {
                    if reset { connection.reset() } else { connection.end() }
                });
                match fault {
                    Fault::Restored { .. } => self.cluster().restore(),
                    Fault::Restarted { forgets: true } => self.cluster().compact(),
                    _ => {}
                }
                // Their later output is discarded.
                state.broken = state.watches;
            }
            Fault::TokenReplaced => state.token += 1,
            Fault::Slow => state.connections.iter().for_each(|connection| connection.slow(true)),
            _ => {}
        }
        drop(state);
        self.fault_changes.announce();
    }

    /// Stops injecting a fault.
    pub fn end_fault(&self, id: usize) {
        let mut state = self.state();
        let Some(at) = state.faults.iter().position(|other| other.id == id) else { return };
        let ActiveFault { fault, .. } = state.faults.remove(at);
        drop(state);
        self.note(Topic::End(id), format!("{fault:?} ends"));
        let state = self.state();
        let is_active =
            |fault: fn(&Fault) -> bool| state.faults.iter().any(|other| fault(&other.fault));
        match fault {
            Fault::Suspended => {
                state.connections.iter().for_each(|connection| connection.freeze(false))
            }
            Fault::Slow if !is_active(|fault| *fault == Fault::Slow) => {
                state.connections.iter().for_each(|connection| connection.slow(false));
            }
            _ => {}
        }
        drop(state);
        self.fault_changes.announce();
    }

    /// Returns the number of the valid token.
    pub fn token(&self) -> u64 {
        self.state().token
    }

    pub(super) fn has_fault(&self, wanted: impl Fn(&Fault) -> bool) -> bool {
        self.state().faults.iter().any(|active| wanted(&active.fault))
    }

    fn find_fault<T>(&self, wanted: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        self.state().faults.iter().find_map(|active| wanted(&active.fault))
    }

    fn is_chosen(&self, share: f64) -> bool {
        self.state().rng.f64() < share
    }

    fn random_below(&self, below: usize) -> usize {
        self.state().rng.usize(..below.max(1))
    }

    /// Waits until no such fault is active.
    pub(super) async fn wait_for_end_of(&self, wanted: impl Fn(&Fault) -> bool) {
        let mut fault_changes = self.fault_changes.observe();
        while self.has_fault(&wanted) {
            fault_changes.changed().await;
        }
    }

    async fn serve(self: Arc<Self>, end: Endpoint, number: usize) {
        let service = Arc::clone(&self);
        let service = service_fn(move |request| {
            let server = Arc::clone(&service);
            async move { Ok::<_, Infallible>(server.answer(request, number).await) }
        });
        let mut fault_changes = self.fault_changes.observe();
        let before = self.state().goaways;
        let goaway = async {
            while self.state().goaways == before {
                fault_changes.changed().await;
            }
        };
        // Connection errors are the client's concern.
        match &self.tls {
            Some(tls) => {
                let Ok(stream) = tls.accept(end).await else { return };
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let mut connection =
                    std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
                tokio::select! {
                    biased;
                    _ = connection.as_mut() => return,
                    () = goaway => connection.as_mut().graceful_shutdown(),
                }
                let _ = connection.await;
            }
            None => {
                let http = hyper::server::conn::http1::Builder::new();
                let mut connection =
                    std::pin::pin!(http.serve_connection(TokioIo::new(end), service));
                tokio::select! {
                    biased;
                    _ = connection.as_mut() => return,
                    () = goaway => connection.as_mut().graceful_shutdown(),
                }
                let _ = connection.await;
            }
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: usize,
    ) -> Response<ChannelBody> {
        self.state().requests += 1;
        if connection < self.state().gone {
            std::future::pending::<()>().await;
        }
        if let Some(late) = self.find_fault(|fault| match fault {
            Fault::Delayed(late) => Some(*late),
            _ => None,
        }) {
            tokio::select! {
                biased;
                () = sleep(late) => {}
                () = self.wait_for_end_of(|fault| matches!(fault, Fault::Delayed(_))) => {}
            }
        }
        self.wait_for_end_of(|fault| *fault == Fault::Stalled).await;
        if request.uri().path() == "/version" {
            self.state().probes += 1;
            self.note(Topic::Request, "probe".to_owned());
            return complete_response(200, "application/json", b"{}".to_vec());
        }
        let Some(req) = self.parse_request(&request) else {
            return complete_response(404, "text/plain", b"?".to_vec());
        };
        if req.starts_list() {
            self.state().lists += 1;
        }
        if req.get("continue").is_some() {
            // Their number follows from the size of a list.
            self.state().requests -= 1;
        }
        if !req.is("watch")
            && req.get("continue").is_none()
            && let Some(flap) = self.flap(req.kind)
        {
            sleep(flap.list).await;
        }
        let refusal = self.refusal(&req, request.headers());
        let code = refusal.as_ref().map(|response| response.status().as_u16());
        self.note(Topic::Request, format!("{} {code:?}", request.uri()));
        match refusal {
            Some(response) => response,
            None if req.is("watch") => self.watch(req),
            None => self.list(&req),
        }
    }

    fn parse_request(&self, request: &Request<Incoming>) -> Option<ApiRequest> {
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
        let form = match accept {
            _ if self.has_fault(|fault| matches!(fault, Fault::NoRepresentations { .. })) => {
                ObjectForm::Complete
            }
            accept if accept.contains("as=Table") => ObjectForm::Table,
            accept if accept.contains("as=Partial") => ObjectForm::Metadata,
            _ => ObjectForm::Complete,
        };
        let protobuf = form != ObjectForm::Table
            && accept.contains("protobuf")
            && !self.has_fault(|fault| *fault == Fault::NoProtobuf);
        let query = request.uri().query().unwrap_or_default();
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(ApiRequest { kind, namespace, format: ResponseFormat { protobuf, form }, query })
    }

    /// Returns an error response or an unrelated body, if a fault demands one.
    fn refusal(&self, req: &ApiRequest, headers: &HeaderMap) -> Option<Response<ChannelBody>> {
        let status = |code, reason: &str| {
            let body = encode::status(req.format.protobuf, code, reason);
            Some(complete_response(code, req.format.content_type(false), body))
        };
        let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if token != Some(&format!("Bearer token-{}", self.token())) {
            return status(401, "Unauthorized");
        }
        if let Some(namespace) = &req.namespace {
            let mut state = self.state();
            let counts = state.counts.entry(namespace.clone()).or_default();
            counts.requests += 1;
            counts.lists += u64::from(req.starts_list());
            if state.forbidden == Some(namespace) {
                return status(403, "Forbidden");
            }
        }
        let faults: Vec<Fault> =
            self.state().faults.iter().map(|active| active.fault.clone()).collect();
        for fault in faults {
            match fault {
                Fault::Status { code, retry_after, share } if self.is_chosen(share) => {
                    let mut response = status(code, "Trouble")?;
                    if let Some(seconds) = retry_after {
                        response.headers_mut().insert(RETRY_AFTER, seconds.into());
                    }
                    return Some(response);
                }
                Fault::Denied(kind) if kind == req.kind => return status(403, "Forbidden"),
                Fault::Absent(kind) if kind == req.kind => return status(404, "NotFound"),
                Fault::Flapping(flap) if !flap.breaks(req.kind) => {
                    return status(403, "Forbidden");
                }
                Fault::NoStreaming if req.is("sendInitialEvents") => return status(422, "Invalid"),
                Fault::NoRepresentations { refuses: true }
                    if headers[ACCEPT].as_bytes().contains(&b'=') =>
                {
                    return status(406, "NotAcceptable");
                }
                Fault::PagesExpired if req.get("continue").is_some() => {
                    return status(410, "Expired");
                }
                Fault::NotAList(number) => {
                    let (content_type, body) = encode::unrelated_body(number, req.kind);
                    return Some(complete_response(200, content_type, body));
                }
                _ => {}
            }
        }
        None
    }

    /// Responds with one page of a list.
    fn list(&self, req: &ApiRequest) -> Response<ChannelBody> {
        let token = req.get("continue").and_then(|token| token.split_once('.'));
        let token = token.map(|(version, from)| (version.parse().ok(), from.parse().ok()));
        let (at, from): (Option<u64>, usize) = match token {
            Some((Some(version), Some(from))) => (Some(version), from),
            _ => (None, 0),
        };
        let mut cluster = self.cluster();
        let Some(objects) = cluster.list(req.kind, req.namespace.as_deref(), at) else {
            let body = encode::status(req.format.protobuf, 410, "Expired");
            return complete_response(410, req.format.content_type(false), body);
        };
        let version = at.unwrap_or(cluster.version);
        drop(cluster);
        let limited = req.get("limit").is_some();
        let end = if limited { objects.len().min(from + PAGE) } else { objects.len() };
        let next = if end < objects.len() { format!("{version}.{end}") } else { String::new() };
        let body = encode::list(req.format, req.kind, version, &next, &objects[from.min(end)..end]);
        let (chunks, receiver) = mpsc::unbounded_channel();
        self.send(&chunks, body, 0.7);
        build_response(200, req.format.content_type(false), self.compressed(), receiver)
    }

    fn compressed(&self) -> bool {
        self.has_fault(|fault| *fault == Fault::Gzip)
    }

    /// Sends a piece of a body, possibly corrupted by a fault. Returns false if the body ends there. `share` is the
    /// share of pieces to corrupt.
    fn send(&self, chunks: &ChunkSender, piece: Vec<u8>, share: f64) -> bool {
        let sent = format!("{} bytes with hash {:016x}", piece.len(), hash(&piece));
        self.note(Topic::Response, sent);
        let truncated = self.find_fault(|fault| match fault {
            Fault::Truncated { clean } => Some(*clean),
            _ => None,
        });
        if let Some(clean) = truncated
            && self.is_chosen(share)
        {
            let _ = chunks.send(Ok(piece[..self.random_below(piece.len())].to_vec().into()));
            if !clean {
                let _ = chunks.send(Err("truncated"));
            }
            return false;
        }
        if self.has_fault(|fault| *fault == Fault::Garbage) && self.is_chosen(share) {
            let mut piece = piece[..self.random_below(piece.len())].to_vec();
            // Longer than the rest of any object, so it cannot complete one.
            piece.extend([0xff; 4096]);
            let _ = chunks.send(Ok(piece.into()));
            return false;
        }
        let piece = if self.compressed() {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            let written = gzip.write_all(&piece).and_then(|()| gzip.finish());
            written.expect("memory takes it")
        } else {
            piece
        };
        chunks.send(Ok(piece.into())).is_ok()
    }

    fn watch(self: Arc<Self>, req: ApiRequest) -> Response<ChannelBody> {
        let (chunks, body) = mpsc::unbounded_channel();
        let (content_type, gzip) = (req.format.content_type(true), self.compressed());
        tokio::spawn(async move { self.events(&req, &chunks).await });
        build_response(200, content_type, gzip, body)
    }

    /// Writes a watch until it ends.
    async fn events(&self, req: &ApiRequest, chunks: &ChunkSender) {
        let number = {
            let mut state = self.state();
            state.watches += 1;
            state.watches - 1
        };
        let seconds = req.get("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(60);
        let opened = Instant::now();
        let end = opened + Duration::from_secs(seconds);
        if let Some(flap) = self.flap(req.kind)
            && flap.after.is_zero()
        {
            return fail_watch(req, &flap, chunks);
        }
        let (mut cluster_changes, mut fault_changes) =
            (self.cluster().observe(), self.fault_changes.observe());
        let mut has_columns = true;
        let wanted = |object: &Object| {
            object.scope.kind == req.kind
                && req
                    .namespace
                    .as_deref()
                    .is_none_or(|namespace| namespace == object.scope.namespace)
        };
        let mut cursor = if req.is("sendInitialEvents") {
            let (version, objects) = {
                let mut cluster = self.cluster();
                let objects = cluster.list(req.kind, req.namespace.as_deref(), None);
                (cluster.version, objects.unwrap_or_default())
            };
            for object in &objects {
                let event = encode::event(
                    req.format,
                    EventType::Added,
                    object,
                    std::mem::take(&mut has_columns),
                );
                if !self.send(chunks, event, 0.1) {
                    return;
                }
            }
            let event = encode::bookmark(
                req.format,
                req.kind,
                &encode::Bookmark {
                    version,
                    ends_initial_events: true,
                    has_columns: std::mem::take(&mut has_columns),
                },
            );
            if !self.send(chunks, event, 0.1) {
                return;
            }
            version
        } else {
            req.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        let mut bookmark = Instant::now() + Duration::from_millis(self.random_below(60_000) as u64);
        loop {
            let (silent, broken, ended, expired, stalled) = {
                let state = self.state();
                let stalled = state.faults.iter().any(|active| active.fault == Fault::Stalled);
                let old = |limit| number < limit;
                (
                    old(state.silent),
                    old(state.broken),
                    old(state.ended),
                    old(state.expired),
                    stalled,
                )
            };
            if broken {
                let _ = chunks.send(Err("broken"));
                return;
            }
            if silent {
                return chunks.closed().await;
            }
            if ended {
                return;
            }
            let flap = self.flap(req.kind);
            let fails_at = flap.as_ref().map(|flap| opened + flap.after);
            if let Some(flap) = flap.filter(|_| fails_at.is_some_and(|at| Instant::now() >= at)) {
                return fail_watch(req, &flap, chunks);
            }
            if !stalled {
                let changes: Option<Vec<_>> = {
                    let cluster = self.cluster();
                    let since = cluster.changes_since(cursor);
                    since.filter(|_| !expired).map(|changes| changes.cloned().collect())
                };
                let Some(changes) = changes else {
                    let _ = chunks.send(Ok(encode::error(req.format, 410, "Expired").into()));
                    return;
                };
                for change in changes {
                    cursor = change.version;
                    if !wanted(&change.object) {
                        continue;
                    }
                    let event = encode::event(
                        req.format,
                        change.event_type,
                        &change.object,
                        std::mem::take(&mut has_columns),
                    );
                    if !self.send(chunks, event, 0.2) {
                        return;
                    }
                }
                let now = Instant::now();
                let version = self.cluster().version;
                let due = now >= bookmark || now >= end;
                if due {
                    bookmark = now + Duration::from_secs(60);
                }
                // A watch from a future version gets no bookmarks either.
                if due && cursor <= version && self.state().bookmarks {
                    let event = encode::bookmark(
                        req.format,
                        req.kind,
                        &encode::Bookmark {
                            version,
                            ends_initial_events: false,
                            has_columns: std::mem::take(&mut has_columns),
                        },
                    );
                    if !self.send(chunks, event, 0.2) {
                        return;
                    }
                }
                if now >= end {
                    return;
                }
            }
            tokio::select! {
                biased;
                () = chunks.closed() => return,
                () = cluster_changes.changed() => {}
                () = fault_changes.changed() => {}
                () = sleep_until(end.min(bookmark).min(fails_at.unwrap_or(end))), if !stalled => {}
            }
        }
    }

    pub(super) fn connect(self: &Arc<Self>) -> Endpoint {
        let mut state = self.state();
        let latency = Duration::from_micros(state.rng.u64(100..LATENCY * 1000));
        let wire::Pair { server, client, handle } = wire::pair(latency);
        let has =
            |wanted: fn(&Fault) -> bool| state.faults.iter().any(|active| wanted(&active.fault));
        handle.freeze(has(|fault| matches!(fault, Fault::Frozen { .. } | Fault::Suspended)));
        handle.slow(has(|fault| *fault == Fault::Slow));
        let number = state.connections.len();
        state.connections.push(handle);
        drop(state);
        tokio::spawn(Arc::clone(self).serve(server, number));
        client
    }
}

/// Fails a flapping watch.
fn fail_watch(req: &ApiRequest, flap: &Flap, chunks: &ChunkSender) {
    let _ = chunks.send(match flap.code {
        0 => Err("cut"),
        code => Ok(encode::flap_error(req.format, code).into()),
    });
}
