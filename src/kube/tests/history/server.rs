//! The simulated API server of a [`Cluster`], with injected faults.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::cluster::{Cluster, Kind};
use super::faults::{Fault, Flap};
use super::journal::{Entry, Topic};
use super::plugin::PluginRuns;
use super::rejected_tokens::RejectedTokens;
use super::retry_after::RetryAfter;
use super::signal::Signal;
use super::wire::{self, ConnectionHandle, Endpoint};
use crate::kube::client::connection::Stream;

/// The maximum latency in milliseconds.
const LATENCY: u64 = 30;

/// The server and its network.
pub struct Server {
    pub cluster: Mutex<Cluster>,
    state: Mutex<State>,
    /// Notified when faults begin and end.
    pub(super) fault_changes: Signal,
    /// Serves HTTP/2 over TLS; plain HTTP/1.1 if `None`.
    tls: Option<TlsAcceptor>,
    start: Instant,
    /// Prints requests and faults.
    trace: bool,
    /// Servers that follow one another share it.
    journal: Arc<Mutex<Vec<Entry>>>,
}

/// The number of requests for a namespace, and of those that start a list.
#[derive(Clone, Copy, Default)]
pub struct RequestCounts {
    pub requests: u64,
    pub lists: u64,
}

pub(super) struct State {
    pub(super) rng: Rng,
    pub(super) faults: Vec<ActiveFault>,
    /// All connections ever opened.
    pub(super) connections: Vec<ConnectionHandle>,
    /// Watches with lower numbers than these have been silenced, broken and so on.
    pub(super) watches: u64,
    pub(super) silent: u64,
    /// The server behind connections with lower numbers is gone.
    pub(super) gone: usize,
    pub(super) broken: u64,
    pub(super) ended: u64,
    pub(super) expired: u64,
    pub(super) goaways: u64,
    pub(super) token: u64,
    /// The number of requests, without further pages of lists, and of failed connection attempts.
    pub(super) requests: u64,
    /// The namespace to which access is forbidden, if any; the empty name is that of requests for all of them at once.
    pub(super) forbidden: Option<&'static str>,
    /// The number of requests, by namespace.
    pub(super) counts: BTreeMap<String, RequestCounts>,
    /// The number of requests, by kind.
    pub(super) kind_counts: BTreeMap<Kind, u64>,
    /// The number of requests that start a list, streaming or not, by kind.
    pub(super) lists: BTreeMap<Kind, u64>,
    /// The number of lists, streaming or not, that are not refused, by kind.
    pub(super) answered_lists: BTreeMap<Kind, u64>,
    /// The server sends events and lists in several chunks.
    pub(super) is_fragmenting: bool,
    /// Pages of lists have the number of objects that follow.
    pub(super) counts_rest: bool,
    /// Lists that may come from the cache are often old.
    pub(super) is_lagging: bool,
    /// True if the server sends bookmarks on watches.
    pub(super) bookmarks: bool,
    /// The time that the initial state of a streaming list takes.
    pub(super) initial_state: Duration,
    /// The number of connection probes.
    pub(super) probes: u64,
    pub(super) rejected_tokens: RejectedTokens,
    pub(super) retry_after: RetryAfter,
    pub(super) plugin: PluginRuns,
    /// Events are not in the server's cache, so that their watches have no bookmarks.
    pub(super) has_uncached_events: bool,
    /// The version of the last Event that was sent on a watch, by namespace, and its time.
    pub(super) sent_events: BTreeMap<Option<String>, (Instant, u64)>,
    pub(super) repeated_events: Option<(Instant, String)>,
}

impl State {
    fn new(rng: &mut Rng) -> Self {
        Self {
            rng: rng.fork(),
            faults: Vec::new(),
            connections: Vec::new(),
            watches: 0,
            silent: 0,
            gone: 0,
            bookmarks: true,
            is_fragmenting: false,
            counts_rest: false,
            is_lagging: false,
            initial_state: Duration::ZERO,
            probes: 0,
            rejected_tokens: RejectedTokens::default(),
            retry_after: RetryAfter::default(),
            plugin: PluginRuns::default(),
            has_uncached_events: false,
            sent_events: BTreeMap::new(),
            repeated_events: None,
            broken: 0,
            ended: 0,
            expired: 0,
            goaways: 0,
            token: 1,
            requests: 0,
            forbidden: None,
            counts: BTreeMap::new(),
            kind_counts: BTreeMap::new(),
            lists: BTreeMap::new(),
            answered_lists: BTreeMap::new(),
        }
    }
}

pub(super) struct ActiveFault {
    id: usize,
    pub(super) fault: Fault,
}

impl Server {
    pub fn new(kinds: &[Kind], rng: &mut Rng, tls: Option<TlsAcceptor>, trace: bool) -> Arc<Self> {
        let state = State::new(rng);
        let cluster = Mutex::new(Cluster::new(kinds, rng));
        let (state, fault_changes, start) = (Mutex::new(state), Signal::default(), Instant::now());
        let journal = Arc::default();
        Arc::new(Self { cluster, state, fault_changes, tls, start, trace, journal })
    }

    /// Returns the server of another cluster of these kinds, which continues the counts of requests.
    pub fn successor(&self, kinds: &[Kind], rng: &mut Rng) -> Arc<Self> {
        let cluster = self.cluster().successor(kinds, rng);
        let state = {
            let before = self.state();
            State {
                bookmarks: before.bookmarks,
                is_fragmenting: before.is_fragmenting,
                counts_rest: before.counts_rest,
                is_lagging: before.is_lagging,
                has_uncached_events: before.has_uncached_events,
                requests: before.requests,
                lists: before.lists.clone(),
                ..State::new(rng)
            }
        };
        Arc::new(Self {
            cluster: Mutex::new(cluster),
            state: Mutex::new(state),
            fault_changes: Signal::default(),
            tls: self.tls.clone(),
            journal: Arc::clone(&self.journal),
            start: self.start,
            trace: self.trace,
        })
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of requests so far, including failed connection attempts, without further pages of lists.
    pub fn requests(&self) -> u64 {
        self.state().requests
    }

    /// Forbids a namespace, with the empty name only requests for all namespaces at once, or nothing.
    pub fn forbid(&self, namespace: Option<&'static str>) {
        self.state().forbidden = namespace;
    }

    /// Returns and resets the number of requests for a namespace, and of those that started a list.
    pub fn take_request_counts(&self, namespace: &str) -> RequestCounts {
        self.state().counts.remove(namespace).unwrap_or_default()
    }

    /// Returns the number of requests for a kind so far.
    pub fn requests_for(&self, kind: Kind) -> u64 {
        self.state().kind_counts.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the number of lists started so far, streaming or not.
    pub fn lists(&self) -> u64 {
        self.state().lists.values().sum()
    }

    /// Returns the number of lists of a kind started so far, streaming or not.
    pub fn lists_of(&self, kind: Kind) -> u64 {
        self.state().lists.get(&kind).copied().unwrap_or_default()
    }

    /// Sends no bookmarks on watches of Kubernetes Events from now on, and no streaming lists of them, as an API server without a
    /// cache of them.
    pub fn serve_events_uncached(&self) {
        self.state().has_uncached_events = true;
    }

    /// Returns the last watch of Events from a version before one that had been sent long before, with its time.
    pub fn repeated_events(&self) -> Option<(Instant, String)> {
        self.state().repeated_events.clone()
    }

    /// Returns the number of lists of a kind so far that were not refused, streaming or not.
    pub fn answered_lists(&self, kind: Kind) -> u64 {
        self.state().answered_lists.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the number of connection probes so far.
    pub fn probes(&self) -> u64 {
        self.state().probes
    }

    /// Sends events and lists in several chunks from now on.
    pub fn fragment(&self) {
        self.state().is_fragmenting = true;
    }

    /// Tells with each page of a list how many objects follow, from now on.
    pub fn count_rest(&self) {
        self.state().counts_rest = true;
    }

    /// Lets lists that may come from the cache be old from now on.
    pub fn lag(&self) {
        self.state().is_lagging = true;
    }

    /// Sends no more bookmarks, except the one at the end of a streaming list.
    pub fn stop_bookmarks(&self) {
        self.state().bookmarks = false;
    }

    /// Sends the initial states of streaming lists within this time, from now on.
    pub fn stretch_initial_states(&self, time: Duration) {
        self.state().initial_state = time;
    }

    /// Counts a failed connection attempt as a request.
    pub(super) fn count_failed_connection(&self) {
        self.state().requests += 1;
        self.note(Topic::Request, "failed connection".to_owned());
    }

    /// Returns the flapping fault of a kind, if there is one.
    pub(super) fn flap(&self, kind: Kind) -> Option<Flap> {
        self.find_fault(|fault| match fault {
            Fault::Flapping(flap) if flap.breaks(kind) => Some(flap.clone()),
            _ => None,
        })
    }

    /// Starts to inject a fault.
    pub fn begin_fault(&self, id: usize, fault: &Fault) {
        self.note(Topic::Begin(id), format!("{fault:?} begins"));
        let mut state = self.state();
        state.retry_after.excuse();
        if !matches!(fault, Fault::TokenRotated) {
            state.rejected_tokens.excuse();
        }
        state.faults.push(ActiveFault { id, fault: fault.clone() });
        match fault {
            Fault::OldCompacted => {
                self.cluster().compact_old();
                state.connections.iter().for_each(ConnectionHandle::reset);
            }
            Fault::Reset => state.connections.iter().for_each(ConnectionHandle::reset),
            Fault::Closed => state.connections.iter().for_each(ConnectionHandle::end),
            Fault::GoAway => state.goaways += 1,
            Fault::WatchesBroken | Fault::Flapping(_) => state.broken = state.watches,
            Fault::WatchesExpired => state.expired = state.watches,
            Fault::WatchesEnded => state.ended = state.watches,
            Fault::Compacted => {
                self.cluster().upgrade_definition();
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
            Fault::TokenReplaced | Fault::TokenRotated => state.token += 1,
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
        let mut state = self.state();
        if fault == Fault::Suspended {
            // Requests arrive for whose responses nobody may wait any more.
            state.rejected_tokens.replaced();
        }
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

    /// Describes a request that has come again too early after the server had rejected its token, or not at once although there
    /// was another token, before the time in `Retry-After`, or a run of the plugin that came too early.
    pub fn wrong_retry(&self) -> Option<String> {
        let state = self.state();
        let of_requests = state.rejected_tokens.violation().or(state.retry_after.violation());
        of_requests.or(state.plugin.violation())
    }

    /// Returns the milliseconds from the start to a time.
    pub(super) fn millis(&self, at: Instant) -> u128 {
        (at - self.start).as_millis()
    }

    /// Notes that list/watches are replaced.
    pub fn note_replacement(&self) {
        let mut state = self.state();
        state.rejected_tokens.replaced();
        state.rejected_tokens.replacing(true);
        state.retry_after.replacing(true);
    }

    /// Notes whether the last replacement of list/watches is complete.
    pub fn note_applied(&self, is_applied: bool) {
        if is_applied {
            let mut state = self.state();
            state.rejected_tokens.replacing(false);
            state.retry_after.replacing(false);
        }
    }

    /// Returns true if requests with a valid token get a response, though perhaps a late one.
    pub(super) fn is_answering(&self) -> bool {
        !self.has_fault(|fault| !lets_answer(fault))
    }

    /// Returns true if each response that refuses a request reaches the client.
    pub(super) fn delivers_refusals(&self) -> bool {
        let refuses =
            |fault: &Fault| matches!(fault, Fault::Status { .. } | Fault::Overloaded { .. });
        !self.has_fault(|fault| !lets_answer(fault) && !refuses(fault))
    }

    /// Returns the number of the valid token.
    pub fn token(&self) -> u64 {
        self.state().token
    }

    pub(super) fn has_fault(&self, wanted: impl Fn(&Fault) -> bool) -> bool {
        self.state().faults.iter().any(|active| wanted(&active.fault))
    }

    pub(super) fn find_fault<T>(&self, wanted: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        self.state().faults.iter().find_map(|active| wanted(&active.fault))
    }

    pub(super) fn is_chosen(&self, share: f64) -> bool {
        self.state().rng.f64() < share
    }

    pub(super) fn random_below(&self, below: usize) -> usize {
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
        let (stream, is_http2): (Box<dyn Stream>, bool) = match &self.tls {
            None => (Box::new(end), false),
            Some(tls) => {
                let is_old = self.has_fault(|fault| *fault == Fault::OldProtocol);
                let tls = if is_old { with_old_protocol(tls) } else { tls.clone() };
                let Ok(stream) = tls.accept(end).await else { return };
                (Box::new(stream), !is_old)
            }
        };
        let stream = TokioIo::new(stream);
        // Connection errors are the client's concern. Responses have no date, which is that of the wall clock.
        if is_http2 {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.auto_date_header(false);
            let goodbye = http2::Connection::graceful_shutdown;
            run(http.serve_connection(stream, service), goodbye, goaway).await;
        } else {
            let mut http = http1::Builder::new();
            http.auto_date_header(false);
            let goodbye = http1::Connection::graceful_shutdown;
            run(http.serve_connection(stream, service), goodbye, goaway).await;
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

/// Serves a connection until its end, and announces that end after `goaway`.
async fn run<C: Future>(
    connection: C,
    goodbye: impl FnOnce(Pin<&mut C>),
    goaway: impl Future<Output = ()>,
) {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = goaway => goodbye(connection.as_mut()),
    }
    let _ = connection.await;
}

/// Returns a configuration for connections that negotiate HTTP/1.1.
fn with_old_protocol(tls: &TlsAcceptor) -> TlsAcceptor {
    let mut config = ServerConfig::clone(tls.config());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Returns true if requests with a valid token get a response during the fault.
fn lets_answer(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Delayed(_)
            | Fault::SlowLists(_)
            | Fault::TokenRotated
            | Fault::OldProtocol
            | Fault::NoStreaming
            | Fault::NoProtobuf
            | Fault::NoRepresentations { .. }
    )
}
