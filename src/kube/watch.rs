//! One list/watch: asks what the state machine says, and moves what comes to the store.
//!
//! A body is read chunk by chunk; all events in a chunk are applied before the next is waited for. The
//! only timer while nothing happens is one alarm for each open watch, which notices a dead connection.

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::backoff::{Backoff, BackoffConfig};
use super::client::{Body, Client, Refusal, causes};
use super::intake::Intake;
use super::machine::{Collected, ListOptions, Machine, Outcome, State};
use super::progress::{Phase, Progress};
use super::target::Scope;
use super::wire::{
    Bookmark, Encoding, Event, EventKind, ListReader, Status, WatchReader, WireError,
};
use super::worker::Pace;
use crate::resources::view::decode;
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::ReflectorMetrics;

/// The longest that a server's `Retry-After` is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// How long things may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Waiting times after failures.
    pub backoff: BackoffConfig,
    /// Until the head of an answer is there. A server sends that of a list when the whole list is
    /// encoded, and gives up after a minute itself.
    pub answer: Duration,
    /// Between two chunks of a list.
    pub list_idle: Duration,
    /// Between two chunks of a watch, from a server that sends bookmarks (Go's do each minute).
    pub watch_idle: Duration,
    /// What a watch is asked to last, in seconds; random, so that watches do not end all at once.
    pub watch_seconds: RangeInclusive<u64>,
    /// How much longer than asked for it may last.
    pub watch_slack: Duration,
    /// When events come at shorter intervals than twice this, they are looked at so often only, to take
    /// several with one wake-up. What is shown is behind by as much.
    pub gather: Duration,
    /// A watch that ends sooner, without an event, counts as a failure.
    pub short_watch: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            backoff: BackoffConfig::default(),
            answer: Duration::from_secs(90),
            list_idle: Duration::from_secs(60),
            watch_idle: Duration::from_secs(150),
            watch_seconds: 300..=600,
            watch_slack: Duration::from_secs(30),
            gather: Duration::from_millis(50),
            short_watch: Duration::from_secs(1),
        }
    }
}

/// How a request came to its end.
#[derive(Debug)]
struct Ended {
    outcome: Outcome,
    message: String,
    retry_after: Option<Duration>,
}

impl Ended {
    fn new(outcome: Outcome, message: String) -> Self {
        Self { outcome, message, retry_after: None }
    }

    fn broken(message: String) -> Self {
        Self::new(Outcome::Broken, message)
    }
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, retry_after } = refusal;
        let message = format!("server answers {code}: {message}");
        Self { outcome: Outcome::Refused { code }, message, retry_after }
    }
}

impl From<WireError> for Ended {
    fn from(error: WireError) -> Self {
        let outcome = match error {
            WireError::Truncated { .. } => Outcome::Broken,
            _ => Outcome::Garbled,
        };
        Self::new(outcome, error.to_string())
    }
}

/// How long to wait when we would wait for `wait` and the server asks for `asked`.
fn pause(wait: Duration, asked: Option<Duration>) -> Duration {
    wait.max(asked.unwrap_or_default().min(MAX_RETRY_AFTER))
}

/// Everything that one list/watch needs.
pub(super) struct Reflector {
    pub(super) client: Client,
    pub(super) scope: Arc<Scope>,
    pub(super) options: ListOptions,
    /// `--object-limit`: how many objects of a page are taken.
    pub(super) object_limit: Option<u64>,
    pub(super) timing: Timing,
    pub(super) pace: Arc<Pace>,
    pub(super) intake: Intake,
    pub(super) progress: Arc<Progress>,
    pub(super) calls: KubeMetrics,
    pub(super) metrics: ReflectorMetrics,
}

impl Reflector {
    /// Lists and watches until the task is aborted.
    pub(super) async fn run(mut self) {
        let mut machine = Machine::new(self.options);
        let mut backoff = Backoff::new(self.timing.backoff);
        loop {
            let ended = match machine.state() {
                State::Listing { .. } => self.list(&machine).await,
                State::Streaming | State::Watching { .. } => self.watch(&mut machine).await,
            };
            self.report(machine.state(), &ended);
            let order = machine.step(ended.outcome);
            self.settle(order.collected);
            if order.wait {
                let jitter = fastrand::f64();
                let wait = backoff.failed(std::time::Instant::now(), jitter);
                self.progress.phase(Phase::Waiting);
                tokio::time::sleep(pause(wait, ended.retry_after)).await;
            }
        }
    }

    /// Gets one page.
    async fn list(&mut self, machine: &Machine) -> Ended {
        self.progress.phase(Phase::Listing);
        self.intake.collect();
        let ended = match self.page(machine).await {
            Ok(outcome) => Ended::new(outcome, String::new()),
            Err(ended) => ended,
        };
        let succeeded = matches!(ended.outcome, Outcome::Page { .. });
        self.calls.list(&self.scope.target.label, succeeded);
        ended
    }

    async fn page(&mut self, machine: &Machine) -> Result<Outcome, Ended> {
        let _hurry = self.pace.hurry();
        let (encoding, body) = self.send(machine, 0).await?;
        let mut reader = ListReader::new(encoding);
        let mut chunks = Chunks::new(body, self.timing.list_idle);
        let limit = self.object_limit.unwrap_or(u64::MAX);
        let mut kept = 0;
        while let Some(chunk) = chunks.next().await? {
            self.received(&chunk);
            reader.feed(chunk);
            while let Some(item) = reader.next()? {
                if kept < limit {
                    kept += 1;
                    self.intake.put(item);
                }
            }
        }
        let meta = reader.finish()?;
        if let Some(limit) = self.object_limit {
            self.calls.listed(&self.scope.target.label, kept, limit);
        }
        Ok(Outcome::Page { version: meta.resource_version, token: meta.continue_token })
    }

    /// Opens a watch and follows it to its end.
    async fn watch(&mut self, machine: &mut Machine) -> Ended {
        let seconds = fastrand::u64(self.timing.watch_seconds.clone());
        let streaming = *machine.state() == State::Streaming;
        if streaming {
            self.progress.phase(Phase::Listing);
            self.intake.collect();
        }
        let opened = self.send(machine, seconds).await;
        self.calls.watch(&self.scope.target.label, opened.is_ok());
        match opened {
            Ok((encoding, body)) => {
                if !streaming {
                    self.progress.resumed();
                }
                self.follow(machine, encoding, body, seconds).await.unwrap_or_else(|ended| ended)
            }
            Err(ended) => ended,
        }
    }

    async fn follow(
        &mut self,
        machine: &mut Machine,
        encoding: Encoding,
        body: Body,
        seconds: u64,
    ) -> Result<Ended, Ended> {
        let opened = Instant::now();
        let mut reader = WatchReader::new(encoding);
        let mut chunks = Chunks::new(body, self.timing.watch_idle);
        chunks.end = opened.checked_add(Duration::from_secs(seconds) + self.timing.watch_slack);
        chunks.idle_ends = false;
        let mut events = false;
        self.intake.forget_version();
        let mut hurry = (*machine.state() == State::Streaming).then(|| self.pace.hurry());
        while let Some(chunk) = chunks.next().await? {
            self.received(&chunk);
            reader.feed(chunk);
            while let Some(event) = reader.next()? {
                events = true;
                if event.kind == EventKind::Bookmark {
                    chunks.idle_ends = true;
                }
                self.event(machine, event)?;
            }
            machine.saw(self.intake.version());
            if *machine.state() != State::Streaming {
                drop(hurry.take());
            }
        }
        reader.finish()?;
        let useful = events || opened.elapsed() >= self.timing.short_watch;
        Ok(Ended::new(Outcome::Closed { useful }, "server ended the watch".to_owned()))
    }

    /// Applies one event; an error ends the watch.
    fn event(&mut self, machine: &mut Machine, event: Event<'_>) -> Result<(), Ended> {
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
                let bookmark: Bookmark<'_> = decode(event.object).map_err(|error| {
                    Ended::new(Outcome::Garbled, format!("malformed bookmark: {error}"))
                })?;
                self.intake.bookmark(&bookmark.metadata.resource_version);
                if *machine.state() == State::Streaming && bookmark.ends_initial_events() {
                    let version = bookmark.metadata.resource_version.to_string();
                    let order = machine.step(Outcome::Synced { version });
                    self.settle(order.collected);
                }
            }
            EventKind::Error => {
                let status: Status<'_> = decode(event.object).map_err(|error| {
                    Ended::new(Outcome::Garbled, format!("malformed error event: {error}"))
                })?;
                let code = match (u16::try_from(status.code), &*status.reason) {
                    (_, "Expired" | "Gone") => 410,
                    (Ok(code), _) => code,
                    (Err(_), _) => 0,
                };
                let message = format!("server ends the watch with {code}: {}", &*status.message);
                return Err(Ended::new(Outcome::ErrorEvent { code }, message));
            }
        }
        Ok(())
    }

    fn received(&self, chunk: &Bytes) {
        self.metrics.received.inc_by(chunk.len() as u64);
        self.pace.received(chunk.len());
    }

    fn settle(&mut self, order: Collected) {
        self.intake.settle(order);
        if order == Collected::Commit {
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

    /// Sends the request for the machine's state, and waits for the head of the answer.
    async fn send(&self, machine: &Machine, seconds: u64) -> Result<(Encoding, Body), Ended> {
        let _hurry = self.pace.hurry();
        let path = self.scope.request(machine.state(), machine.limit(), seconds);
        let answer = self.client.get(&path, self.scope.target.accept(), None);
        let limit = self.timing.answer;
        let response = timeout(limit, answer)
            .await
            .map_err(|_| Ended::broken(format!("no answer within {limit:?}")))?
            .map_err(Ended::broken)?;
        if !response.status().is_success() {
            let refusal = timeout(limit, Refusal::read(response)).await;
            return Err(refusal.map_or_else(
                |_| Ended::broken(format!("no answer within {limit:?}")),
                Ended::from,
            ));
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let encoding = Encoding::from_content_type(content_type)?;
        self.progress.encoding(encoding);
        Ok((encoding, response.into_body()))
    }

    /// Logs what ended, and keeps it for the status page.
    fn report(&self, state: &State, ended: &Ended) {
        let (resource, namespace) = (&self.scope.target.plural, self.scope.namespace.as_deref());
        let error = &ended.message;
        match (&ended.outcome, state) {
            (Outcome::Page { .. } | Outcome::Synced { .. }, _) => {}
            (Outcome::Closed { .. }, _) => {
                tracing::debug!(%resource, namespace, "{error}");
            }
            (Outcome::Refused { .. }, State::Streaming) => {
                tracing::debug!(%resource, namespace, error, "no streaming list, listing in pages");
            }
            (outcome, state) => {
                // Asked again and again, the server gives the same reason again and again.
                if self.progress.failed(error) {
                    tracing::warn!(%resource, namespace, error, "failed to list or watch");
                } else {
                    tracing::debug!(%resource, namespace, error, "failed to list or watch again");
                }
                if let (Outcome::Refused { code }, State::Listing { .. }) = (outcome, state)
                    && matches!(code, 400 | 403..=406 | 422)
                {
                    self.progress.settle();
                }
            }
        }
    }
}

/// The chunks of a body, with an alarm for the time when none comes.
struct Chunks {
    body: Body,
    idle: Duration,
    /// Whether silence means that the connection is dead.
    idle_ends: bool,
    /// When the body should have ended.
    end: Option<Instant>,
    heard: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl Chunks {
    fn new(body: Body, idle: Duration) -> Self {
        let heard = Instant::now();
        let alarm = Box::pin(sleep_until(heard + idle));
        Self { body, idle, idle_ends: true, end: None, heard, alarm }
    }

    /// The next chunk, `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Ended> {
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = &mut self.alarm => {
                    self.alarmed()?;
                    continue;
                }
            };
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| Ended::broken(causes(&error)))?;
            // Trailers mean nothing here.
            if let Ok(data) = frame.into_data() {
                self.heard = Instant::now();
                return Ok(Some(data));
            }
        }
    }

    /// The alarm is set once, not for each chunk: when it goes off it may be too early.
    fn alarmed(&mut self) -> Result<(), Ended> {
        let now = Instant::now();
        if self.end.is_some_and(|end| now >= end) {
            let outcome = Outcome::Closed { useful: true };
            return Err(Ended::new(outcome, "watch lasts longer than asked for".to_owned()));
        }
        let silence = self.heard + self.idle;
        if self.idle_ends && now >= silence {
            return Err(Ended::broken(format!("nothing received for {:?}", self.idle)));
        }
        let silence = if now < silence { silence } else { now + self.idle };
        let next = self.end.map_or(silence, |end| end.min(silence));
        self.alarm.as_mut().reset(next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_may_ask_for_a_longer_pause() {
        let pause = |wait, asked: Option<u64>| {
            pause(Duration::from_secs(wait), asked.map(Duration::from_secs)).as_secs()
        };
        assert_eq!(pause(2, None), 2);
        assert_eq!(pause(2, Some(1)), 2);
        assert_eq!(pause(2, Some(5)), 5);
        assert_eq!(pause(2, Some(u64::MAX)), 120);
    }
}
