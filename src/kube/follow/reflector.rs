//! One list/watch: sends the requests of the state machine and puts the received objects into the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use tokio::time::{Instant, sleep_until, timeout};

use super::backoff::{Backoff, Failure};
use super::chunks::Chunks;
use super::journal::Member;
use super::list_permits::ListPermit;
use super::machine::{Collected, ListOptions, Machine, Outcome, State};
use super::object_sink::ObjectSink;
use super::progress::{Phase, Progress};
use super::request_result::{RequestResult, failure};
use super::retries::{MAX_RETRY_AFTER, Signals, Woken};
use super::shared::Shared;
use super::timing::{Timing, pause};
use super::versions::Versions;
use super::worker::WakeupBatcher;
use crate::kube::api_resource::Scope;
use crate::kube::client::{Body, Client, Refusal};
use crate::kube::frame::{Encoding, ListReader, WireError};
use crate::resources::{Column, Representation};
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::{Reason, ReflectorMetrics};
use crate::util::allocator;

/// The longest wait before a slow list is repeated.
const MAX_RELIST_WAIT: Duration = Duration::from_secs(30);
/// The interval of the lists of a kind that cannot be watched, as after failures in client-go. The attempts to watch in between
/// cost little.
const UNWATCHED: Duration = Duration::from_secs(30);
/// The minimum time between two early ends of the backoff of a list/watch.
const WOKEN: Duration = Duration::from_secs(60);

/// One list/watch with its client, sink and metrics.
pub(crate) struct Reflector {
    pub(crate) client: Client,
    pub(crate) scope: Arc<Scope>,
    pub(crate) options: ListOptions,
    /// The requested representation of the objects.
    pub(crate) representation: Representation,
    pub(crate) timing: Timing,
    pub(crate) batcher: Arc<WakeupBatcher>,
    pub(crate) sink: ObjectSink,
    /// Its status, for metrics and the status page.
    pub(crate) progress: Arc<Progress>,
    /// Metrics of requests and failures.
    pub(crate) calls: KubeMetrics,
    /// Metrics of received data and events.
    pub(crate) metrics: ReflectorMetrics,
    /// Its entry in the log of failures.
    pub(crate) member: Member,
    pub(crate) shared: Arc<Shared>,
    /// The resource versions of the client's server.
    pub(crate) versions: Arc<Versions>,
    pub(crate) health: Health,
    /// The permit to list, while a new state is being collected.
    pub(crate) list_permit: Option<ListPermit>,
}

/// The history of one list/watch that affects later requests.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The last request failed.
    pub(super) failing: bool,
    /// The time of the first refusal since the last success.
    denied_since: Option<Instant>,
    /// The time of the first other failure since the last refusal.
    failed_otherwise_since: Option<Instant>,
    /// The objects were dropped because of refusals.
    given_up: bool,
    /// The start of the list in progress.
    list_began: Option<Instant>,
    /// The earliest time of a list after a failed watch, as long after the last list as that took.
    relist_from: Option<Instant>,
    /// The time of the last complete list.
    listed_at: Option<Instant>,
    /// Connections opened before this time may be dead and are not reused.
    pub(super) dead_since: Option<Instant>,
    /// The number of setbacks of the server at the start of the last list.
    pub(super) setbacks: u64,
    /// The server has shown since the last interruption that it is not behind the known version.
    pub(super) is_verified: bool,
    /// The server sends periodic bookmarks, not only one at the end of a watch.
    pub(super) has_heartbeat: bool,
    /// The current chunk contains a bookmark.
    pub(super) bookmarked: bool,
    /// The number of consecutive streams that were cut because no bookmark arrived.
    pub(super) cuts: u32,
    /// The start of the watch, or of the watch phase of a streaming list: its time and version.
    pub(super) watching: Option<(Instant, String)>,
    /// The time of the last early end of a backoff; reset by a stable watch.
    pub(super) woken: Option<Instant>,
    /// The newest version of any built-in kind before the last check of the server's version.
    newest: u64,
    /// The version of a watch expired, and no watch has been useful since.
    expired: bool,
    /// A retry token was already taken for the next request.
    paid: bool,
}

impl Reflector {
    /// Lists and watches until the task is aborted.
    pub(crate) async fn run(mut self) {
        let mut machine = Machine::new(self.options);
        let mut backoff = Backoff::new(self.timing.backoff);
        if let Some(until) = self.progress.asked_until() {
            // Former list/watches of the kind were asked to wait.
            sleep_until(until).await;
        }
        loop {
            let known = matches!(machine.state(), State::Watching { .. } | State::Checking { .. });
            if known && self.health.setbacks != self.versions.setbacks() {
                // Another list/watch has detected a setback of the server.
                machine.restart_list();
            }
            let lists = matches!(machine.state(), State::Streaming | State::Listing { .. });
            if self.list_permit.is_none() && lists {
                self.progress.phase(Phase::Listing);
                self.list_permit = Some(self.shared.list_permits.take().await);
            }
            let signs = self.shared.signs.load(Ordering::Relaxed);
            let result = match machine.state() {
                State::Listing { .. } => self.list(&machine).await,
                State::Checking { .. } => self.check(&machine).await,
                State::Streaming | State::Watching { .. } => self.watch(&mut machine).await,
            };
            if self.representation != Representation::Object && result.is_unsupported {
                let (resource, error) = (self.member.name(), &result.message);
                tracing::debug!(resource, error, "Objects are asked for as a whole");
                self.representation = Representation::Object;
                self.settle(Collected::Discard);
                machine.restart_list();
                continue;
            }
            let gave_up = self.report(machine.state(), &result);
            let watched = matches!(machine.state(), State::Watching { .. });
            let failure = match failure(&result.outcome) {
                Failure::Absent if self.is_expected() => Failure::Denied,
                failure => failure,
            };
            let expired = watched
                && matches!(
                    result.outcome,
                    Outcome::ErrorEvent { code: 410 } | Outcome::Refused { code: 410 }
                );
            // The relist after an expired version has no backoff, unless the previous one did not lead to a useful watch.
            let lists_at_once = expired && !self.health.expired;
            let since_list = self.health.listed_at.filter(|_| expired).map(|at| at.elapsed());
            if result.reason.is_some() && failure == Failure::Transient && !lists_at_once {
                self.shared.retries.failed();
            }
            self.health.expired = expired || self.health.expired && !result.useful;
            let is_unwatchable = watched && Machine::is_unwatchable(&result.outcome);
            let order = machine.step(result.outcome);
            if let State::Watching { version } = machine.state()
                && order.collected == Collected::Commit
            {
                self.progress.reached(version, true);
            }
            self.settle(order.collected);
            if gave_up {
                machine.restart_list();
                self.settle(Collected::Discard);
            }
            if result.useful {
                backoff.succeeded();
            }
            // What a list has just left out would not fit into the next one either.
            if matches!(machine.state(), State::Watching { .. })
                && order.collected != Collected::Commit
                && self.sink.claim_room()
            {
                machine.restart_list();
            }
            if result.retry_after.is_none() && (result.useful || lists_at_once || !order.wait) {
                if result.useful && !result.lasted {
                    self.shared.retries.take().await;
                    self.health.paid = true;
                }
                continue;
            }
            let now = Instant::now();
            let mut wait = pause(
                &mut backoff,
                &self.timing.backoff,
                now,
                failure,
                self.shared.origin.elapsed(),
                || self.shared.journal.refused(),
            );
            // The pause is one between two lists.
            wait = wait.saturating_sub(since_list.unwrap_or_default());
            if watched && order.collected == Collected::Discard {
                // Keeps repeated relists from taking more than about half of the time.
                let from = self.health.relist_from.unwrap_or(now);
                wait = wait.max(from.saturating_duration_since(now));
            }
            let may_wake = self.health.woken.is_none_or(|woken| woken.elapsed() >= WOKEN);
            let signals = Signals {
                recovery: may_wake && failure != Failure::Denied,
                change: may_wake && failure == Failure::Absent,
            };
            if signals.change && signs != self.shared.signs.load(Ordering::Relaxed) {
                // The sign came during the request, when nothing was waiting for it.
                wait = self.timing.backoff.spread;
                self.health.woken = Some(now);
            }
            self.progress.waits(result.retry_after.map(|asked| now + asked.min(MAX_RETRY_AFTER)));
            self.list_permit = None;
            // Denied requests have their own backoff and take no tokens.
            let token = failure != Failure::Denied;
            let woken = self.shared.retries.wait(wait, result.retry_after, signals, token).await;
            self.health.paid = woken == Woken::No && token;
            if woken != Woken::No {
                self.health.woken = Some(Instant::now());
            }
            if woken == Woken::Change {
                // Earlier failures do not apply to the server's new kinds.
                backoff.succeeded();
            }
            if is_unwatchable && self.is_list_old() {
                machine.restart_list();
            }
        }
    }

    /// Requests one page of a list and adds its objects to the state being collected.
    async fn list(&mut self, machine: &Machine) -> RequestResult {
        self.begin_state();
        let result = match self.page(machine).await {
            Ok(outcome) => RequestResult::ok(outcome, ""),
            Err(result) => result,
        };
        let succeeded = matches!(result.outcome, Outcome::Page { .. });
        self.calls.list(&self.scope.api.label, succeeded);
        if succeeded {
            self.answered();
            self.shared.retries.answered();
        }
        result
    }

    /// Checks with a one-object list that the server is not behind the known version.
    async fn check(&mut self, machine: &Machine) -> RequestResult {
        // Read before the request: later events need not be in the answer.
        self.health.newest = self.versions.newest();
        let result = match self.page(machine).await {
            Ok(outcome) => RequestResult::ok(outcome, ""),
            Err(result) => result,
        };
        if matches!(result.outcome, Outcome::Current | Outcome::SetBack) {
            self.health.is_verified = true;
            self.answered();
            self.shared.retries.answered();
        } else {
            // The check replaces the start of a watch, which would have failed too.
            self.calls.watch(&self.scope.api.label, false);
        }
        if result.outcome == Outcome::SetBack {
            let resource = self.member.name();
            tracing::warn!(
                resource,
                "The server shows an older state than before, as after a restore: listed anew"
            );
        }
        result
    }

    /// Requests a page. For a check, only its version is used.
    async fn page(&mut self, machine: &Machine) -> Result<Outcome, RequestResult> {
        let _no_batching = self.batcher.no_batching();
        let (encoding, body) = self.send(machine, 0).await?;
        let mut reader = ListReader::new(encoding).with_table(self.column());
        let mut chunks = Chunks::whole(body, self.timing.list_idle);
        loop {
            let next = chunks.next().await;
            let Some(chunk) =
                next.map_err(|error| RequestResult::body_failed(error, chunks.heard()))?
            else {
                break;
            };
            self.received(&chunk);
            reader.feed(chunk);
            while let Some(item) = reader.next()? {
                if !matches!(machine.state(), State::Checking { .. }) {
                    self.sink.put(item);
                }
            }
        }
        let meta = reader.finish()?;
        if !self.scope.api.is_list(&meta.kind, self.representation) {
            let expected = self.scope.api.kind.clone();
            return Err(WireError::UnexpectedKind { found: meta.kind, expected }.into());
        }
        if let State::Checking { version } = machine.state() {
            let (versions, built_in) = (&self.versions, self.scope.api.protobuf);
            let behind =
                versions.is_behind(&meta.resource_version, version, self.health.newest, built_in);
            return Ok(if behind { Outcome::SetBack } else { Outcome::Current });
        }
        self.saw(&meta.resource_version);
        let mut token = meta.continue_token;
        if !token.is_empty() && self.sink.is_full() && !self.sink.is_observed() {
            // The object limit is reached: further pages are not requested. They have objects of all shards.
            let shards = u64::try_from(self.progress.served.shard().total).unwrap_or(1).max(1);
            self.sink.reject(meta.remaining.unwrap_or(1).div_ceil(shards));
            token.clear();
        }
        Ok(Outcome::Page { version: meta.resource_version, token })
    }

    /// Records the version of a list, object or bookmark of a built-in kind.
    pub(super) fn saw(&self, version: &str) {
        if self.scope.api.protobuf {
            self.versions.saw(version);
        }
    }

    /// Starts to collect a new state, unless one is being collected already.
    pub(super) fn begin_state(&mut self) {
        if self.health.list_began.is_none() {
            self.health.setbacks = self.versions.setbacks();
        }
        self.progress.phase(Phase::Listing);
        if let Some((_, limit)) = self.sink.limit_usage() {
            self.calls.limited(&self.scope.api.label, limit);
        }
        self.sink.collect();
        self.health.list_began.get_or_insert_with(Instant::now);
    }

    /// Updates metrics and progress after a received chunk.
    pub(super) fn received(&self, chunk: &Bytes) {
        self.metrics.received.inc_by(chunk.len() as u64);
        self.batcher.received(chunk.len());
        self.progress.heard();
        self.progress.coming(self.sink.collecting());
    }

    /// Commits, discards or keeps the objects collected by a list.
    pub(super) fn settle(&mut self, order: Collected) {
        self.sink.settle(order);
        if order != Collected::Keep {
            self.list_permit = None;
            // The old state or the collected objects were freed.
            allocator::schedule_purge();
        }
        if order == Collected::Discard {
            self.health.list_began = None;
        }
        if order == Collected::Commit {
            if let Some((kept, _)) = self.sink.limit_usage() {
                self.calls.listed(&self.scope.api.label, kept);
            }
            self.health.is_verified = true;
            let began = self.health.list_began.take();
            let took = began.map(|began| began.elapsed()).unwrap_or_default();
            let now = Instant::now();
            self.health.relist_from = now.checked_add(took.min(MAX_RELIST_WAIT));
            self.health.listed_at = Some(now);
            self.progress.listed();
            let status = self.progress.status();
            tracing::debug!(
                resource = %self.scope.api.plural,
                namespace = self.scope.namespace,
                objects = status.objects,
                encoding = ?status.encoding,
                "Listed"
            );
        }
    }

    /// Returns the required column, if tables are requested.
    pub(super) fn column(&self) -> Option<Column> {
        match self.representation {
            Representation::Column(column) => Some(column),
            Representation::Metadata | Representation::Object => None,
        }
    }

    /// Sends the request for the machine's state and waits for the response headers.
    pub(super) async fn send(
        &mut self,
        machine: &Machine,
        seconds: u64,
    ) -> Result<(Encoding, Body), RequestResult> {
        // Resumed watches are batched: a faster answer brings no new data, and many are reopened at the same time.
        let goes_on = matches!(machine.state(), State::Watching { .. });
        let _no_batching = (!goes_on).then(|| self.batcher.no_batching());
        let path = self.scope.request(machine.state(), machine.limit(), seconds);
        let after = self.health.dead_since;
        // Further pages of a list are no retries: a list of many pages would make all others wait.
        let continues =
            matches!(machine.state(), State::Listing { token, .. } if !token.is_empty());
        if self.health.failing && !self.health.paid && !continues {
            self.shared.retries.spend();
        }
        self.health.paid = false;
        let limit = match machine.state() {
            State::Listing { .. } => self.timing.list_answer,
            State::Streaming | State::Watching { .. } | State::Checking { .. } => {
                self.timing.watch_answer
            }
        };
        let unanswered = Outcome::Broken { answered: false };
        let sent = Instant::now();
        let silent = || {
            let message = format!("no answer within {} s", limit.as_secs_f64());
            let result = RequestResult::failed(unanswered.clone(), Reason::Timeout, message);
            RequestResult { dead_since: Some(sent), ..result }
        };
        let watch = matches!(machine.state(), State::Streaming | State::Watching { .. });
        let accept = self.scope.api.accept(self.representation, watch);
        let answer = self.client.get(&path, accept, after);
        let response = timeout(limit, answer).await.map_err(|_| silent())?.map_err(|error| {
            RequestResult::failed(unanswered.clone(), Reason::Broken, error.to_string())
        })?;
        self.progress.heard();
        if !response.status().is_success() {
            let refusal = timeout(limit, Refusal::read(response)).await;
            return Err(refusal.map_or_else(|_| silent(), RequestResult::from));
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let encoding = Encoding::from_content_type(content_type)?;
        self.progress.encoding(encoding);
        Ok((encoding, response.into_body()))
    }

    /// Records that a watch works: earlier failures are over.
    pub(super) fn works(&mut self) {
        self.progress.resumed();
        self.shared.reached(&self.client);
        self.shared.retries.answered();
        if std::mem::take(&mut self.health.failing) {
            self.shared.retries.works();
            self.member.works();
        }
    }

    /// Records that the server has accepted a list or watch, which may still fail later.
    pub(super) fn answered(&mut self) {
        self.health.denied_since = None;
        self.health.dead_since = None;
        if std::mem::take(&mut self.health.given_up) {
            let resource = self.member.name();
            tracing::info!(
                resource,
                "Listed again after it was refused for long, the objects are shown"
            );
        }
    }

    /// Records a failure in metrics, log and status. Returns whether the known objects were dropped because of it.
    fn report(&mut self, state: &State, result: &RequestResult) -> bool {
        let (resource, error) = (self.member.name(), &result.message);
        if let Some(since) = result.dead_since {
            self.health.dead_since = Some(since);
        }
        let Some(reason) = result.reason else {
            if !error.is_empty() {
                tracing::debug!(resource, error, "The watch ended");
            }
            return false;
        };
        let namespace = self.scope.namespace.as_deref().unwrap_or_default();
        self.calls.failed(&self.scope.api.unique_label(), namespace, reason);
        self.progress.count(reason, error);
        tracing::debug!(resource, reason = reason.as_str(), error, "Failed to list or watch");
        if result.useful {
            // The next request follows at once: the same watch or a relist.
            if !matches!(result.outcome, Outcome::Broken { .. } | Outcome::Lost) {
                self.progress.failed(Some(reason), error);
            }
            return false;
        }
        if let (Outcome::Refused { code }, State::Streaming) = (&result.outcome, state)
            && matches!(code, 400..=499)
            && !matches!(code, 401 | 429)
        {
            // A paged list follows, which may succeed.
            return false;
        }
        self.health.failing = true;
        self.progress.failed(Some(reason), error);
        self.member.failed(reason, error);
        if let Outcome::Refused { code } = result.outcome {
            if *state != State::Streaming && matches!(code, 400 | 403..=406 | 422) {
                self.progress.settle();
            }
            // Lists may work while watches are refused, so only a refused list leads to the end of the objects.
            let is_watch = matches!(state, State::Watching { .. });
            if matches!(code, 401 | 403 | 404) {
                return self.handle_refusal(is_watch);
            }
        }
        self.health.failed_otherwise_since.get_or_insert_with(Instant::now);
        false
    }

    /// Returns whether a kind that cannot be watched has to be listed again.
    fn is_list_old(&self) -> bool {
        let limit = self.timing.staleness_limit.map_or(UNWATCHED, |limit| limit / 2);
        self.health.listed_at.is_none_or(|at| at.elapsed() >= limit.min(UNWATCHED))
    }

    /// Returns whether a 404 is unexpected: the kind is being served, or every list/watch fails, as when a proxy cannot
    /// reach the server.
    fn is_expected(&self) -> bool {
        self.progress.is_listed() && !self.health.given_up || self.shared.journal.is_all_failing()
    }

    /// Handles a refused request: drops the objects if the server has refused for longer than the staleness limit, and not only
    /// to watch. Refusals before and after an outage of half that time do not count as one that lasted. Returns whether they
    /// were dropped now.
    fn handle_refusal(&mut self, is_watch: bool) -> bool {
        let outage = self.health.failed_otherwise_since.take().map(|since| since.elapsed());
        if outage > self.timing.staleness_limit.map(|limit| limit / 2) {
            self.health.denied_since = None;
        }
        let since = *self.health.denied_since.get_or_insert_with(Instant::now);
        let due = self.timing.staleness_limit.is_some_and(|limit| since.elapsed() >= limit);
        if !due || is_watch || self.health.given_up {
            return false;
        }
        self.health.given_up = true;
        self.progress.given_up();
        let (objects, seconds) = (self.sink.purge(), since.elapsed().as_secs());
        if objects > 0 {
            let resource = self.member.name();
            tracing::warn!(
                resource,
                objects,
                seconds,
                "Refused for long, the objects are shown no more"
            );
        }
        true
    }
}
