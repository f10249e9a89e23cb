//! The responses of the simulated API server: lists, watches, errors and bodies that faults corrupt.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::body::{ChannelBody, ChunkSender, build_response, complete_response};
use super::cluster::{ALL_KINDS, BOOKMARK_INTERVAL, DEFINED_KINDS, EventType, Kind, Object};
use super::encode::{self, ObjectForm, ResponseFormat};
use super::faults::{Fault, Flap};
use super::journal::Topic;
use super::server::Server;
use crate::tests::hash;

/// The number of objects on a page, regardless of the requested limit.
pub const PAGE: u64 = 4;

/// The time within which an event has certainly been received, without faults.
const RECEIVED: Duration = Duration::from_secs(2);

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

    /// Returns the kind and namespace, unless it is a version check, which another list/watch may send.
    fn list_watch(&self) -> Option<(Kind, Option<String>)> {
        let is_check = self.get("limit") == Some("1");
        (!is_check).then(|| (self.kind, self.namespace.clone()))
    }

    /// Returns true for a streaming list and for the first page of a list, but not for a version check.
    fn starts_list(&self) -> bool {
        let is_partial = self.get("limit") == Some("1") || self.get("continue").is_some();
        self.is("sendInitialEvents") || !self.is("watch") && !is_partial
    }
}

impl Server {
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: usize,
    ) -> Response<ChannelBody> {
        self.state().requests += 1;
        self.state().rejected_tokens.arrived(request.uri());
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
        if let Some(list_watch) = req.list_watch() {
            self.state().retry_after.arrived(&list_watch, req.get("continue"));
        }
        if req.starts_list() {
            *self.state().lists.entry(req.kind).or_default() += 1;
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
        if code == Some(401) {
            let is_answering = self.is_answering();
            let mut state = self.state();
            let has_other_token = is_answering && state.plugin.may_run();
            state.rejected_tokens.note(request.uri(), request.headers(), has_other_token);
        }
        if let Some(response) = &refusal {
            self.note_retry_after(&req, response.headers());
        }
        if let Some(token) = req.get("continue")
            && code.is_some_and(|code| code == 429 || code >= 500)
            && let Some(list_watch) = req.list_watch()
            && self.delivers_refusals()
        {
            self.state().retry_after.refused_page(list_watch, token);
        }
        self.note(Topic::Request, format!("{} {code:?}", request.uri()));
        if refusal.is_none() && req.starts_list() {
            *self.state().answered_lists.entry(req.kind).or_default() += 1;
        }
        match refusal {
            Some(response) => response,
            None if req.is("watch") => self.watch(req),
            None => {
                // A small part of the time for a page, because most lists have few.
                self.wait_for_piece(5).await;
                self.list(&req)
            }
        }
    }

    /// Notes how long a refused request has to wait, if the response reaches the client for sure.
    fn note_retry_after(&self, req: &ApiRequest, headers: &HeaderMap) {
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        if let Some(seconds) = seconds.and_then(|seconds| seconds.parse().ok())
            && let Some(list_watch) = req.list_watch()
            && self.delivers_refusals()
        {
            self.state().retry_after.refused(list_watch, Duration::from_secs(seconds));
        }
    }

    fn parse_request(&self, request: &Request<Incoming>) -> Option<ApiRequest> {
        let path = request.uri().path();
        let path = path.strip_prefix("/api/").or_else(|| path.strip_prefix("/apis/"))?;
        let (kind, rest) = ALL_KINDS.into_iter().chain(DEFINED_KINDS).find_map(|kind| {
            let path = path.strip_prefix(kind.api_version())?.strip_suffix(kind.plural())?;
            Some((kind, path))
        })?;
        let namespace = match rest.split('/').collect::<Vec<_>>()[..] {
            ["", ""] => None,
            ["", "namespaces", namespace, ""] => Some(namespace.to_owned()),
            _ => return None,
        };
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
        let token = token.and_then(|token| token.strip_prefix("Bearer "));
        if !token.is_some_and(|token| self.accepts(token)) {
            return status(401, "Unauthorized");
        }
        *self.state().kind_counts.entry(req.kind).or_default() += 1;
        if !self.cluster().serves(req.kind) {
            return status(404, "NotFound");
        }
        if self.state().forbidden == Some("") && req.kind.namespaced() && req.namespace.is_none() {
            return status(403, "Forbidden");
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
        let is_uncached = req.kind == Kind::Event && self.state().has_uncached_events;
        if is_uncached && req.is("sendInitialEvents") {
            return status(422, "Invalid");
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
                Fault::Overloaded { longest } => {
                    let seconds = self.random_below(longest as usize) as u64 + 1;
                    let mut response = status(429, "TooManyRequests")?;
                    response.headers_mut().insert(RETRY_AFTER, seconds.into());
                    return Some(response);
                }
                Fault::Denied(kind) if kind == req.kind => return status(403, "Forbidden"),
                Fault::Absent(kind) if kind == req.kind => return status(404, "NotFound"),
                Fault::Flapping(flap) if !flap.breaks(req.kind) => {
                    return status(403, "Forbidden");
                }
                Fault::WatchesRefused { code, streaming }
                    if req.is("watch") && (streaming || !req.is("sendInitialEvents")) =>
                {
                    return status(code, "Trouble");
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
        let is_old = req.get("resourceVersion") == Some("0")
            && self.state().is_lagging
            && self.is_chosen(0.5);
        let mut cluster = self.cluster();
        let at = at.or_else(|| cluster.cached().filter(|_| is_old));
        let Some(objects) = cluster.list(req.kind, req.namespace.as_deref(), at) else {
            let body = encode::status(req.format.protobuf, 410, "Expired");
            return complete_response(410, req.format.content_type(false), body);
        };
        let version = at.unwrap_or(cluster.version);
        drop(cluster);
        let limited = req.get("limit").is_some();
        let end = if limited { objects.len().min(from + PAGE as usize) } else { objects.len() };
        let next = if end < objects.len() { format!("{version}.{end}") } else { String::new() };
        let rest = objects.len() - end;
        let rest = (rest > 0 && self.state().counts_rest).then_some(rest);
        let page = &objects[from.min(end)..end];
        let body = encode::list(req.format, req.kind, version, (&next, rest), page);
        let (chunks, receiver) = mpsc::unbounded_channel();
        self.send_list(&chunks, body, 0.7);
        build_response(200, req.format.content_type(false), self.compressed(), receiver)
    }

    /// Waits before one of this number of pieces of a list, while lists are slow.
    async fn wait_for_piece(&self, pieces: usize) {
        let time = self.find_fault(|fault| match fault {
            Fault::SlowLists(time) => Some(*time),
            _ => None,
        });
        if let Some(time) = time {
            tokio::select! {
                biased;
                () = sleep(time / pieces.max(1) as u32) => {}
                () = self.wait_for_end_of(|fault| matches!(fault, Fault::SlowLists(_))) => {}
            }
        }
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
        let mut rest = Bytes::from(piece);
        if self.state().is_fragmenting {
            for _ in 0..self.random_below(4) {
                // Not an empty piece: h2 ends a connection after 100 empty frames, which Go does not send.
                let length = self.random_below(rest.len());
                if length > 0 {
                    let _ = chunks.send(Ok(rest.split_to(length)));
                }
            }
        }
        chunks.send(Ok(rest)).is_ok()
    }

    /// Sends a piece of a list like [`Server::send`], or only a part of it if lists hang.
    fn send_list(&self, chunks: &ChunkSender, piece: Vec<u8>, share: f64) -> bool {
        if self.has_fault(|fault| *fault == Fault::ListsHang) && self.is_chosen(share) {
            let _ = chunks.send(Ok(piece[..self.random_below(piece.len())].to_vec().into()));
            let open = chunks.clone();
            tokio::spawn(async move { open.closed().await });
            return false;
        }
        self.send(chunks, piece, share)
    }

    fn watch(self: Arc<Self>, req: ApiRequest) -> Response<ChannelBody> {
        let (chunks, body) = mpsc::unbounded_channel();
        let (content_type, gzip) = (req.format.content_type(true), self.compressed());
        tokio::spawn(async move { self.events(&req, &chunks).await });
        build_response(200, content_type, gzip, body)
    }

    /// Notes a watch of Events that asks again for what was sent long ago.
    fn note_watch_from(&self, req: &ApiRequest, version: u64) {
        let (now, mut state) = (Instant::now(), self.state());
        let sent = state.sent_events.get(&req.namespace).copied();
        if req.kind == Kind::Event
            && let Some((at, sent)) = sent
            && version < sent
            && now - at > RECEIVED
        {
            let why = format!("Events are watched from version {version}, after {sent} was sent");
            state.repeated_events = Some((now, why));
        }
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
            object.scope.kind == req.kind.stored()
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
            let pause = self.state().initial_state / objects.len().max(1) as u32;
            for object in &objects {
                let event = encode::event(
                    req.format,
                    EventType::Added,
                    object,
                    std::mem::take(&mut has_columns),
                );
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                self.wait_for_piece(objects.len()).await;
                if Instant::now() >= end || !self.send_list(chunks, event, 0.1) {
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
            if !self.send_list(chunks, event, 0.1) {
                return;
            }
            version
        } else {
            let version = req.get("resourceVersion").and_then(|text| text.parse().ok());
            self.note_watch_from(req, version.unwrap_or_default());
            version.unwrap_or_default()
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
            // The server ends the watches of a kind that it does not serve any more.
            if ended || !self.cluster().serves(req.kind) {
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
                        &change.object.shown_as(req.kind),
                        std::mem::take(&mut has_columns),
                    );
                    if !self.send(chunks, event, 0.2) {
                        return;
                    }
                    if req.kind == Kind::Event {
                        let sent = (Instant::now(), cursor);
                        self.state().sent_events.insert(req.namespace.clone(), sent);
                    }
                }
                let now = Instant::now();
                let version = self.cluster().version;
                let due = now >= bookmark || now >= end;
                if due {
                    bookmark = now + BOOKMARK_INTERVAL;
                }
                // A watch from a future version gets no bookmarks either.
                let has_bookmarks = {
                    let state = self.state();
                    state.bookmarks && !(req.kind == Kind::Event && state.has_uncached_events)
                };
                if due && cursor <= version && has_bookmarks {
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
}

/// Fails a flapping watch.
fn fail_watch(req: &ApiRequest, flap: &Flap, chunks: &ChunkSender) {
    let _ = chunks.send(match flap.code {
        0 => Err("cut"),
        code => Ok(encode::flap_error(req.format, code).into()),
    });
}
