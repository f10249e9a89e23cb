//! One list/watch: asks what the state machine says, and moves what comes to the store.
//!
//! A body is read chunk by chunk; all events in a chunk are applied before the next is waited for.
//!
//! A connection that is open but dead looks like one on which nothing happens, also to the keep-alive of
//! TCP and HTTP/2 where a proxy answers it. So a watch is asked to last for a short time only: the server
//! ends it with a bookmark, and a watch that does not end is dead. All watches of a process end together,
//! so that it wakes up seldom.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use tokio::time::{Instant, timeout};

use super::backoff::{Backoff, BackoffConfig, Failure};
use super::chunks::{Chunks, Trouble};
use super::intake::Intake;
use super::journal::{Journal, Member};
use super::machine::{Collected, ListOptions, Machine, Outcome, State};
use super::progress::{Phase, Progress};
use super::retries::Retries;
use super::turns::{Turn, Turns};
use super::versions::Versions;
use super::worker::Pace;
use crate::allocator;
use crate::kube::client::{Body, Client, Refusal};
use crate::kube::frame::{
    Bookmark, Encoding, Event, EventKind, ListReader, Status, WatchReader, WireError,
};
use crate::kube::target::Scope;
use crate::resources::{Column, Needs};
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::{Reason, ReflectorMetrics};
use crate::wire::view::decode;

/// The longest that a server's `Retry-After` is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);
/// The longest wait for the sake of a list that took long and was lost at once.
const MAX_RELIST_WAIT: Duration = Duration::from_secs(30);
/// A dead watch has been silent for at least so long: one that only ends late has had its bookmark.
const DEAD: Duration = Duration::from_secs(15);

/// How long things may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Waiting times after failures.
    pub backoff: BackoffConfig,
    /// Until the head of a list's answer is there. A server sends it when the whole list is encoded, and
    /// gives up after a minute itself.
    pub list_answer: Duration,
    /// Until the head of a watch's answer is there, which needs no work.
    pub watch_answer: Duration,
    /// Between two chunks of a list.
    pub list_idle: Duration,
    /// How long a list has its turn; another one begins beside it then.
    pub list_turn: Duration,
    /// What a streaming list is asked to last, in seconds: it may be long in coming.
    pub streaming_seconds: RangeInclusive<u64>,
    /// How far apart the times are at which all watches end. Together with `watch_slack` and
    /// `watch_answer` it bounds how long a dead connection goes unnoticed.
    pub watch_cycle: Duration,
    /// How much longer than asked for a watch may last.
    pub watch_slack: Duration,
    /// When events come at shorter intervals than twice this, they are looked at so often only, to take
    /// several with one wake-up. What is shown is behind by as much, and by six times as much when nothing
    /// but bookmarks and ends of watches came before.
    pub gather: Duration,
    /// A watch that ends sooner, without news, counts as a failure.
    pub short_watch: Duration,
    /// A watch that ends sooner and leads to a new list counts as a failure, with news or without: a list
    /// is dear.
    pub short_relist: Duration,
    /// How long objects are shown although the server refuses (401, 403, 404) to list them; `None` for
    /// ever.
    pub staleness_limit: Option<Duration>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            backoff: BackoffConfig::default(),
            list_answer: Duration::from_secs(55),
            watch_answer: Duration::from_secs(15),
            list_idle: Duration::from_secs(30),
            list_turn: Duration::from_secs(1),
            streaming_seconds: 300..=600,
            watch_cycle: Duration::from_secs(36),
            watch_slack: Duration::from_secs(5),
            gather: Duration::from_millis(50),
            short_watch: Duration::from_secs(1),
            short_relist: Duration::from_secs(5),
            staleness_limit: Some(Duration::from_secs(600)),
        }
    }
}

/// What all list/watches of one server share.
#[derive(Debug)]
pub(crate) struct Shared {
    retries: Retries,
    turns: Turns,
    journal: Arc<Journal>,
    /// From when the times at which watches end are counted.
    origin: Instant,
    /// Clients and their connections, as far as something came of one; 0 before the first.
    reached: AtomicU64,
    /// How often something said that the server may have other kinds.
    signs: AtomicU64,
    versions: Versions,
}

impl Shared {
    /// For list/watches that begin from now on.
    pub(crate) fn new(timing: &Timing) -> Self {
        Self {
            retries: Retries::new(&timing.backoff),
            turns: Turns::new(timing.list_turn),
            journal: Arc::default(),
            origin: Instant::now(),
            reached: AtomicU64::new(0),
            signs: AtomicU64::new(0),
            versions: Versions::default(),
        }
    }

    /// Something says that the server may have other kinds than before: whoever waits need not wait any longer.
    pub(crate) fn look_again(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
        self.retries.succeeded();
    }

    /// The server has given something over its latest connection. Behind a new one there may be another server, or the
    /// same with other kinds: it is the only sign of a server that was replaced without a fault.
    fn reached(&self, client: &Client) {
        let latest = client.number() << 32 | client.opened() & u64::from(u32::MAX);
        let before = self.reached.swap(latest, Ordering::Relaxed);
        if before != 0 && before != latest {
            self.look_again();
        }
    }

    /// One more list/watch of which the log tells.
    pub(crate) fn enrol(&self, scope: &Scope) -> Member {
        self.journal.enrol(scope.name())
    }
}

/// How long a watch lasts that begins `since` the origin: to the next multiple of `cycle`, or to the one
/// after it where that is near.
fn span(since: Duration, cycle: Duration) -> Duration {
    let cycle_nanos = cycle.as_nanos().max(1);
    let into = Duration::from_nanos((since.as_nanos() % cycle_nanos) as u64);
    let left = cycle.saturating_sub(into);
    if left < cycle / 8 { left + cycle } else { left }
}

/// How long to wait after a failure. What is refused for long is asked for together, at times that are
/// counted from the origin as well.
fn pause(
    backoff: &mut Backoff,
    config: &BackoffConfig,
    now: Instant,
    failure: Failure,
    since: Duration,
) -> Duration {
    let own = backoff.failed(now, failure, fastrand::f64());
    match failure {
        Failure::Denied if backoff.is_lasting(now) => span(since, config.lasting_cycle),
        Failure::Absent if backoff.is_lasting(now) => span(since, config.absent_cycle),
        _ => own,
    }
}

/// How a request came to its end.
#[derive(Debug)]
struct Ended {
    outcome: Outcome,
    /// Why it failed, if it did.
    reason: Option<Reason>,
    message: String,
    retry_after: Option<Duration>,
    /// Whether it did some good: the next one may follow at once.
    useful: bool,
    /// When something came over its connection for the last time, if it seems dead.
    dead_since: Option<Instant>,
    /// Whether the server will not give a part of the objects, or gives another one.
    unfit: bool,
}

impl Ended {
    fn well(outcome: Outcome, message: &str) -> Self {
        let message = message.to_owned();
        Self {
            outcome,
            reason: None,
            message,
            retry_after: None,
            useful: false,
            dead_since: None,
            unfit: false,
        }
    }

    fn failed(outcome: Outcome, reason: Reason, message: String) -> Self {
        Self { reason: Some(reason), ..Self::well(outcome, &message) }
    }

    fn garbled(message: String) -> Self {
        Self::failed(Outcome::Garbled, Reason::Garbled, message)
    }

    /// Something is wrong with a body, which was last `heard` of then.
    fn troubled(trouble: Trouble, heard: Instant) -> Self {
        let torn = if heard.elapsed() >= DEAD {
            Outcome::Lost
        } else {
            Outcome::Broken { answered: true }
        };
        let (reason, message) = match trouble {
            Trouble::Broken(message) => return Self::failed(torn, Reason::Broken, message),
            Trouble::Over(silence) if silence < DEAD => {
                return Self::well(Outcome::Closed, "watch lasts longer than asked for");
            }
            Trouble::Over(silence) => (
                Reason::Frozen,
                format!("watch does not end and has been silent for {} s", silence.as_secs()),
            ),
            Trouble::Silent(idle) => (Reason::Frozen, format!("nothing received for {idle:?}")),
            Trouble::Slow => (Reason::Slow, "less than 1 KiB/s received".to_owned()),
        };
        Self { dead_since: Some(heard), ..Self::failed(torn, reason, message) }
    }
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, retry_after } = refusal;
        let message = format!("server answers {code}: {message}");
        let reason = Reason::of_status(code);
        let unfit = matches!(code, 406 | 415);
        Self { retry_after, unfit, ..Self::failed(Outcome::Refused { code }, reason, message) }
    }
}

impl From<WireError> for Ended {
    fn from(error: WireError) -> Self {
        let (outcome, reason) = match error {
            WireError::Truncated { .. } => (Outcome::Broken { answered: true }, Reason::Broken),
            WireError::Status { code: code @ 400..=599, .. } => {
                (Outcome::Refused { code }, Reason::of_status(code))
            }
            _ => (Outcome::Garbled, Reason::Garbled),
        };
        let unfit = matches!(error, WireError::NoTable { .. });
        Self { unfit, ..Self::failed(outcome, reason, error.to_string()) }
    }
}

/// Whether a list is refused for good, or until somebody changes rights or what the server has.
fn failure(outcome: &Outcome) -> Failure {
    match outcome {
        Outcome::Refused { code: 401 | 408 | 410 | 429 } => Failure::Passing,
        Outcome::Refused { code: 404 } => Failure::Absent,
        Outcome::Refused { code: 400..=499 } => Failure::Denied,
        _ => Failure::Passing,
    }
}

/// Everything that one list/watch needs.
pub(crate) struct Reflector {
    pub(crate) client: Client,
    pub(crate) scope: Arc<Scope>,
    pub(crate) options: ListOptions,
    /// What of the objects is asked for.
    pub(crate) needs: Needs,
    pub(crate) timing: Timing,
    pub(crate) pace: Arc<Pace>,
    pub(crate) intake: Intake,
    pub(crate) progress: Arc<Progress>,
    pub(crate) calls: KubeMetrics,
    pub(crate) metrics: ReflectorMetrics,
    /// What the log tells of it.
    pub(crate) member: Member,
    pub(crate) shared: Arc<Shared>,
    pub(crate) health: Health,
    /// While a new state is being made.
    pub(crate) turn: Option<Turn>,
}

/// How a list/watch has fared.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Whether the last request failed.
    failing: bool,
    /// Since when the server has refused to list.
    denied_since: Option<Instant>,
    /// Whether the objects were given up for it.
    given_up: bool,
    /// When the last new state was begun, and how long it took until it was complete.
    list_began: Option<Instant>,
    list_took: Duration,
    /// Connections opened before are not to be trusted.
    dead_since: Option<Instant>,
    /// How often the server had been set back when the last new state was begun.
    setbacks: u64,
    /// Whether the watch has told nothing so far.
    silent: bool,
}

impl Reflector {
    /// Lists and watches until the task is aborted.
    pub(crate) async fn run(mut self) {
        let mut machine = Machine::new(self.options);
        let mut backoff = Backoff::new(self.timing.backoff);
        loop {
            let known = matches!(machine.state(), State::Watching { .. } | State::Checking { .. });
            if known && self.health.setbacks != self.shared.versions.setbacks() {
                // Found out by another.
                machine.begin_anew();
            }
            let lists = matches!(machine.state(), State::Streaming | State::Listing { .. });
            if self.turn.is_none() && lists {
                self.progress.phase(Phase::Listing);
                self.turn = Some(self.shared.turns.take().await);
            }
            let signs = self.shared.signs.load(Ordering::Relaxed);
            let ended = match machine.state() {
                State::Listing { .. } => self.list(&machine).await,
                State::Checking { .. } => self.check(&machine).await,
                State::Streaming | State::Watching { .. } => self.watch(&mut machine).await,
            };
            if self.needs != Needs::Object && ended.unfit {
                let (resource, error) = (self.member.name(), &ended.message);
                tracing::debug!(resource, error, "objects are asked for as a whole");
                self.needs = Needs::Object;
                self.settle(Collected::Discard);
                machine.begin_anew();
                continue;
            }
            let gave_up = self.report(machine.state(), &ended);
            let watched = matches!(machine.state(), State::Watching { .. });
            let failure = match failure(&ended.outcome) {
                Failure::Absent if self.is_expected() => Failure::Denied,
                failure => failure,
            };
            let order = machine.step(ended.outcome);
            self.settle(order.collected);
            if gave_up {
                machine.begin_anew();
                self.settle(Collected::Discard);
            }
            if ended.useful {
                backoff.succeeded();
            }
            if matches!(machine.state(), State::Watching { .. }) && self.intake.wants_list() {
                machine.begin_anew();
            }
            if ended.retry_after.is_none() && (ended.useful || !order.wait) {
                continue;
            }
            let now = Instant::now();
            let mut wait = pause(
                &mut backoff,
                &self.timing.backoff,
                now,
                failure,
                self.shared.origin.elapsed(),
            );
            if watched && order.collected == Collected::Discard {
                // A state that is lost again and again: making it anew must not be all that happens.
                wait = wait.max(self.health.list_took.min(MAX_RELIST_WAIT));
            }
            if failure == Failure::Absent && signs != self.shared.signs.load(Ordering::Relaxed) {
                // There was a sign while it was being asked for, for which nobody could wake it.
                wait = self.timing.backoff.spread;
            }
            let asked = ended.retry_after.map(|asked| asked.min(MAX_RETRY_AFTER));
            self.progress.phase(Phase::Waiting);
            self.turn = None;
            self.shared.retries.wait(wait, asked, failure != Failure::Passing).await;
        }
    }

    /// Gets one page.
    async fn list(&mut self, machine: &Machine) -> Ended {
        self.begin_state();
        let ended = match self.page(machine).await {
            Ok(outcome) => Ended::well(outcome, ""),
            Err(ended) => ended,
        };
        let succeeded = matches!(ended.outcome, Outcome::Page { .. });
        self.calls.list(&self.scope.target.label, succeeded);
        if succeeded {
            self.succeeded();
        }
        ended
    }

    /// Looks how far the server has come.
    async fn check(&mut self, machine: &Machine) -> Ended {
        let ended = match self.page(machine).await {
            Ok(outcome) => Ended::well(outcome, ""),
            Err(ended) => ended,
        };
        if matches!(ended.outcome, Outcome::Current | Outcome::SetBack) {
            self.succeeded();
        } else {
            // It is asked in place of the watch, which would have failed likewise.
            self.calls.watch(&self.scope.target.label, false);
        }
        if ended.outcome == Outcome::SetBack {
            let resource = self.member.name();
            tracing::warn!(
                resource,
                "the server shows an older state than before, as after a restore: listed anew"
            );
        }
        ended
    }

    /// Gets a page, or of the smallest one how far the server has come.
    async fn page(&mut self, machine: &Machine) -> Result<Outcome, Ended> {
        let _hurry = self.pace.hurry();
        let (encoding, body) = self.send(machine, 0).await?;
        let mut reader = ListReader::new(encoding).or_table(self.column());
        let mut chunks = Chunks::whole(body, self.timing.list_idle);
        loop {
            let next = chunks.next().await;
            let Some(chunk) = next.map_err(|trouble| Ended::troubled(trouble, chunks.heard()))?
            else {
                break;
            };
            self.received(&chunk);
            reader.feed(chunk);
            while let Some(item) = reader.next()? {
                if !matches!(machine.state(), State::Checking { .. }) {
                    self.intake.put(item);
                }
            }
        }
        let meta = reader.finish()?;
        if !self.scope.target.is_list(&meta.kind, self.needs) {
            let expected = self.scope.target.kind.clone();
            return Err(WireError::OtherKind { found: meta.kind, expected }.into());
        }
        if let State::Checking { version } = machine.state() {
            let (versions, built_in) = (&self.shared.versions, self.scope.target.protobuf);
            let behind = versions.is_behind(&meta.resource_version, version, built_in);
            return Ok(if behind { Outcome::SetBack } else { Outcome::Current });
        }
        self.saw(&meta.resource_version);
        let mut token = meta.continue_token;
        if !token.is_empty() && self.intake.is_full() {
            // There is no room for any of the pages that follow.
            self.intake.leave_out(meta.remaining.unwrap_or(1));
            token.clear();
        }
        if let Some((kept, limit)) = self.intake.bound() {
            self.calls.listed(&self.scope.target.label, kept, limit);
        }
        Ok(Outcome::Page { version: meta.resource_version, token })
    }

    /// Something came with this version.
    fn saw(&self, version: &str) {
        if self.scope.target.protobuf {
            self.shared.versions.saw(version);
        }
    }

    /// From here on objects belong to a new state.
    fn begin_state(&mut self) {
        if self.health.list_began.is_none() {
            self.health.setbacks = self.shared.versions.setbacks();
        }
        self.progress.phase(Phase::Listing);
        self.intake.collect();
        self.health.list_began.get_or_insert_with(Instant::now);
    }

    /// Opens a watch and follows it to its end.
    async fn watch(&mut self, machine: &mut Machine) -> Ended {
        let (streaming, version) = match machine.state() {
            State::Watching { version } => (false, version.clone()),
            _ => (true, String::new()),
        };
        let seconds = if streaming {
            self.begin_state();
            fastrand::u64(self.timing.streaming_seconds.clone())
        } else {
            // A server takes 0 for no bound.
            (self.span().as_secs_f64().round() as u64).max(1)
        };
        let sent = self.send(machine, seconds).await;
        self.calls.watch(&self.scope.target.label, sent.is_ok());
        let (encoding, body) = match sent {
            Ok(answer) => answer,
            Err(ended) => return ended,
        };
        let opened = Instant::now();
        let chunks = if streaming {
            Chunks::whole(body, self.timing.list_idle)
        } else {
            self.progress.resumed();
            self.succeeded();
            let lasts = Duration::from_secs(seconds) + self.timing.watch_slack;
            Chunks::events(body, opened.checked_add(lasts))
        };
        self.health.silent = !streaming;
        let mut ended = match self.follow(machine, encoding, chunks).await {
            Ok(()) => Ended::well(Outcome::Closed, "server ended the watch"),
            Err(ended) => ended,
        };
        // Not even a bookmark came: a server that was set back tells nothing to who asks from a version that it has
        // not reached.
        let ordinary = matches!(ended.outcome, Outcome::Closed | Outcome::Broken { .. });
        if self.health.silent && ordinary && opened.elapsed() >= DEAD {
            ended.outcome = Outcome::Lost;
        }
        if let State::Watching { version: seen } = machine.state() {
            let lasted = opened.elapsed();
            ended.useful = match ended.outcome {
                Outcome::Closed | Outcome::Broken { .. } | Outcome::Lost => {
                    streaming || *seen != version || lasted >= self.timing.short_watch
                }
                _ => lasted >= self.timing.short_relist,
            };
        }
        ended
    }

    /// How long a watch that begins now lasts.
    fn span(&self) -> Duration {
        span(self.shared.origin.elapsed(), self.timing.watch_cycle)
    }

    /// Applies what comes, until the server ends it.
    async fn follow(
        &mut self,
        machine: &mut Machine,
        encoding: Encoding,
        mut chunks: Chunks,
    ) -> Result<(), Ended> {
        let mut reader = WatchReader::new(encoding).or_table(self.column());
        self.intake.forget_version();
        let mut streaming = *machine.state() == State::Streaming;
        let mut hurry = streaming.then(|| self.pace.hurry());
        loop {
            let next = match chunks.next().await {
                // The watch that began as a list has lasted as long as any: it is opened anew, for which
                // its connection is as good as any, unless it is dead.
                Err(Trouble::Over(_)) if hurry.is_none() && streaming => {
                    let lost = chunks.heard().elapsed() >= DEAD;
                    let outcome = if lost { Outcome::Lost } else { Outcome::Closed };
                    let ended = Ended::well(outcome, "list has become a watch");
                    return Err(Ended { dead_since: Some(chunks.heard()), ..ended });
                }
                next => next.map_err(|trouble| Ended::troubled(trouble, chunks.heard()))?,
            };
            let Some(chunk) = next else {
                break;
            };
            self.received(&chunk);
            reader.feed(chunk);
            let mut any = false;
            while let Some(event) = reader.next()? {
                any = true;
                self.health.silent = false;
                self.event(machine, event)?;
            }
            machine.saw(self.intake.version());
            self.saw(self.intake.version());
            if hurry.is_some() && *machine.state() != State::Streaming {
                hurry = None;
                self.succeeded();
                chunks.owes(false);
                chunks.lasts_until(Instant::now().checked_add(self.span()));
            }
            if hurry.is_none() {
                if any {
                    chunks.owes(false);
                }
                chunks.owes(reader.is_within_event());
            }
        }
        streaming = *machine.state() == State::Streaming;
        let ended = reader.finish();
        if streaming && ended.is_ok() {
            tracing::debug!(resource = %self.scope.target.plural, "streaming list ends before its time");
        }
        Ok(ended?)
    }

    /// Applies one event; an error ends the watch.
    fn event(&mut self, machine: &mut Machine, event: Event<'_>) -> Result<(), Ended> {
        if matches!(event.kind, EventKind::Added | EventKind::Modified | EventKind::Deleted) {
            self.pace.changed();
            self.progress.event();
        }
        match event.kind {
            EventKind::Added => {
                self.metrics.added.inc();
                self.intake.put(event.object);
            }
            EventKind::Modified => {
                self.metrics.modified.inc();
                self.intake.put(event.object);
            }
            EventKind::Deleted => {
                self.metrics.deleted.inc();
                self.intake.remove(event.object);
            }
            EventKind::Bookmark => {
                self.metrics.bookmarks.inc();
                let bookmark: Bookmark<'_> = decode(event.object)
                    .map_err(|error| Ended::garbled(format!("malformed bookmark: {error}")))?;
                let version = &bookmark.metadata.resource_version;
                if version.is_empty() {
                    return Err(Ended::garbled("bookmark without a version".to_owned()));
                }
                self.intake.bookmark(version);
                if *machine.state() == State::Streaming && bookmark.ends_initial_events() {
                    let version = version.to_string();
                    let order = machine.step(Outcome::Synced { version });
                    self.settle(order.collected);
                }
            }
            EventKind::Error => {
                let status: Status<'_> = decode(event.object)
                    .map_err(|error| Ended::garbled(format!("malformed error event: {error}")))?;
                let code = match (u16::try_from(status.code), &*status.reason) {
                    (_, "Expired" | "Gone") => 410,
                    (Ok(code), _) => code,
                    (Err(_), _) => 0,
                };
                let message = format!("server ends the watch with {code}: {}", &*status.message);
                let reason = Reason::of_status(code);
                return Err(Ended::failed(Outcome::ErrorEvent { code }, reason, message));
            }
        }
        Ok(())
    }

    fn received(&self, chunk: &Bytes) {
        self.metrics.received.inc_by(chunk.len() as u64);
        self.pace.received(chunk.len());
        self.progress.heard();
        self.progress.coming(self.intake.collecting());
    }

    fn settle(&mut self, order: Collected) {
        self.intake.settle(order);
        if order != Collected::Keep {
            self.turn = None;
            // The state before this one, or what was collected of it.
            allocator::freed();
        }
        if order == Collected::Discard {
            self.health.list_began = None;
        }
        if order == Collected::Commit {
            let began = self.health.list_began.take();
            self.health.list_took = began.map(|began| began.elapsed()).unwrap_or_default();
            self.progress.listed();
            let status = self.progress.status();
            tracing::debug!(
                resource = %self.scope.target.plural,
                namespace = self.scope.namespace,
                objects = status.objects,
                encoding = ?status.encoding,
                "listed"
            );
        }
    }

    /// The column of a table that is needed.
    fn column(&self) -> Option<Column> {
        match self.needs {
            Needs::Column(column) => Some(column),
            Needs::Metadata | Needs::Object => None,
        }
    }

    /// Sends the request for the machine's state, and waits for the head of the answer.
    async fn send(&self, machine: &Machine, seconds: u64) -> Result<(Encoding, Body), Ended> {
        // A watch that goes on shows nothing new by being answered sooner; many do so at a time.
        let goes_on = matches!(machine.state(), State::Watching { .. });
        let _hurry = (!goes_on).then(|| self.pace.hurry());
        let path = self.scope.request(machine.state(), machine.limit(), seconds);
        let after = self.health.dead_since;
        let limit = match machine.state() {
            State::Listing { .. } => self.timing.list_answer,
            State::Streaming | State::Watching { .. } | State::Checking { .. } => {
                self.timing.watch_answer
            }
        };
        let unanswered = Outcome::Broken { answered: false };
        let sent = Instant::now();
        let silent = || {
            let message = format!("no answer within {limit:?}");
            let ended = Ended::failed(unanswered.clone(), Reason::Timeout, message);
            Ended { dead_since: Some(sent), ..ended }
        };
        let watch = matches!(machine.state(), State::Streaming | State::Watching { .. });
        let accept = self.scope.target.accept(self.needs, watch);
        let answer = self.client.get(&path, accept, after);
        let response = timeout(limit, answer)
            .await
            .map_err(|_| silent())?
            .map_err(|error| Ended::failed(unanswered.clone(), Reason::Broken, error))?;
        self.progress.heard();
        if !response.status().is_success() {
            let refusal = timeout(limit, Refusal::read(response)).await;
            return Err(refusal.map_or_else(|_| silent(), Ended::from));
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let encoding = Encoding::from_content_type(content_type)?;
        self.progress.encoding(encoding);
        Ok((encoding, response.into_body()))
    }

    /// A list is complete or a watch is open: what failed before does not any more.
    fn succeeded(&mut self) {
        self.shared.reached(&self.client);
        self.health.denied_since = None;
        self.health.dead_since = None;
        if std::mem::take(&mut self.health.failing) {
            self.member.works();
            self.shared.retries.succeeded();
        }
        if std::mem::take(&mut self.health.given_up) {
            let resource = self.member.name();
            tracing::info!(
                resource,
                "listed again after it was refused for long, the objects are shown"
            );
        }
    }

    /// Counts what failed, and tells the log and the status page. Tells whether the objects that were known
    /// have been given up.
    fn report(&mut self, state: &State, ended: &Ended) -> bool {
        let (resource, error) = (self.member.name(), &ended.message);
        if let Some(since) = ended.dead_since {
            self.health.dead_since = Some(since);
        }
        let Some(reason) = ended.reason else {
            if !error.is_empty() {
                tracing::debug!(resource, "{error}");
            }
            return false;
        };
        let namespace = self.scope.namespace.as_deref().unwrap_or_default();
        self.calls.failed(&self.scope.target.own_label(), namespace, reason);
        self.progress.count(reason, error);
        tracing::debug!(resource, reason = reason.label(), error, "failed to list or watch");
        if ended.useful {
            // It goes on at once, with the same version or with a list in its place.
            if !matches!(ended.outcome, Outcome::Broken { .. } | Outcome::Lost) {
                self.progress.failed(Some(reason), error);
            }
            return false;
        }
        if let (Outcome::Refused { code }, State::Streaming) = (&ended.outcome, state)
            && matches!(code, 400..=499)
            && !matches!(code, 401 | 429)
        {
            // An ordinary list follows, which may well succeed.
            return false;
        }
        self.health.failing = true;
        self.progress.failed(Some(reason), error);
        self.member.failed(reason, error);
        if let Outcome::Refused { code } = ended.outcome {
            if *state != State::Streaming && matches!(code, 400 | 403..=406 | 422) {
                self.progress.settle();
            }
            return matches!(code, 401 | 403 | 404) && self.deny();
        }
        false
    }

    /// Whether the kind is to be there, although the server says that it is not: it is being shown, or the server says the
    /// same of every kind, as a proxy does that cannot reach it.
    fn is_expected(&self) -> bool {
        self.progress.is_listed() && !self.health.given_up || self.shared.journal.is_all_failing()
    }

    /// The server refuses to list: what is shown may be long gone, and goes after a while. Tells whether it
    /// goes now.
    fn deny(&mut self) -> bool {
        let since = *self.health.denied_since.get_or_insert_with(Instant::now);
        let due = self.timing.staleness_limit.is_some_and(|limit| since.elapsed() >= limit);
        if !due || self.health.given_up {
            return false;
        }
        self.health.given_up = true;
        self.progress.given_up();
        let (objects, seconds) = (self.intake.purge(), since.elapsed().as_secs());
        if objects > 0 {
            let resource = self.member.name();
            tracing::warn!(
                resource,
                objects,
                seconds,
                "refused for long, the objects are shown no more"
            );
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_end_together() {
        let span = |since, cycle| {
            let millis = span(Duration::from_millis(since), Duration::from_millis(cycle));
            millis.as_millis()
        };
        assert_eq!(span(0, 40_000), 40_000);
        assert_eq!(span(10_000, 40_000), 30_000);
        assert_eq!(span(399_000, 40_000), 41_000);
        assert_eq!(span(400_010, 40_000), 39_990);
        assert_eq!(span(7, 0), 0);
    }

    /// Rights that return are noticed within eight seconds, also after weeks, and what is refused for long is
    /// asked for with one wake-up.
    #[test]
    fn what_is_refused_for_long_is_asked_for_together_and_soon() {
        let config = BackoffConfig::default();
        let (now, begun) = (Instant::now(), Duration::from_millis(12_345));
        let mut one = Backoff::new(config);
        let mut other = Backoff::new(config);
        let denied = Failure::Denied;
        pause(&mut other, &config, now, denied, begun);
        for hour in 0..1_000 {
            let later = Duration::from_millis(3_600_100 * hour);
            let (now, since) = (now + later, begun + later);
            let wait = pause(&mut one, &config, now, denied, since);
            assert!(wait <= Duration::from_secs(8), "{wait:?}");
            if hour > 0 {
                // A little later than the first.
                let late = Duration::from_millis(3);
                let second = pause(&mut other, &config, now + late, denied, since + late);
                assert_eq!(since + wait, since + late + second);
            }
        }
        // A server that is away for long is another matter.
        let away = pause(&mut one, &config, now + config.lasting, Failure::Passing, begun);
        assert!(away <= 2 * config.cap);
    }

    /// Nor is a kind that no server has asked for more often than by the original, which does so every 30 to 60 s, and
    /// one that comes without a sign is found within 2¼ minutes.
    #[test]
    fn what_the_server_does_not_have_is_asked_for_seldom() {
        let config = BackoffConfig::default();
        let (start, mut backoff) = (Instant::now(), Backoff::new(config));
        let (mut since, mut asked) = (Duration::ZERO, 0);
        while since < Duration::from_secs(24 * 3600) {
            let wait = pause(&mut backoff, &config, start + since, Failure::Absent, since);
            assert!(wait <= Duration::from_secs(135), "{wait:?}");
            (since, asked) = (since + wait, asked + 1);
        }
        assert!(asked < 24 * 3600 / 60, "{asked} times a day");
        // Something else in its way makes it no slower than others.
        let away = pause(&mut backoff, &config, start + since, Failure::Passing, since);
        assert!(away <= 2 * config.cap);
    }

    /// The sum that the promise of a minute rests on.
    #[test]
    fn a_dead_connection_is_noticed_within_a_minute_in_every_phase() {
        let timing = Timing::default();
        let minute = Duration::from_secs(60);
        let longest = timing.watch_cycle + timing.watch_cycle / 8 + timing.watch_slack;
        assert!(longest < minute, "{longest:?}");
        // A list that has become a watch is opened anew first, over a connection that may be dead too.
        let anew = timing.watch_cycle + timing.watch_cycle / 8 + timing.watch_answer;
        assert!(anew < minute, "{anew:?}");
        assert!(timing.list_answer < minute && timing.list_idle < minute);
    }
}
