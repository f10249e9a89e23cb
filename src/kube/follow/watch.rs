//! One watch: opens it, applies its events to the store, and detects dead connections.
//!
//! A watch over a shared HTTP/2 connection lasts for 5 to 10 minutes, as in client-go. The client probes the connection. If
//! only the stream is dead, as may happen behind a proxy, no bookmarks arrive: it is cut and resumed from its last version.
//!
//! Two sorts of watches are short. One has an HTTP/1.1 connection to itself, which cannot be probed: if the watch does not end
//! in time, the connection is dead. The other follows an interruption: a server that was restored from a backup sends
//! nothing to a client whose version it has not reached. All short watches of a process end at the same time, which saves
//! wake-ups. Watches of kinds without bookmarks end before their silence looks like that of a dead stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::chunks::{Bounds, Chunks, ReadError};
use super::machine::{Machine, Outcome, State};
use super::progress::Phase;
use super::reflector::Reflector;
use super::request_result::{DEAD, RequestResult};
use super::timing::{Timing, longest_silence, span};
use crate::kube::frame::{Bookmark, Encoding, Event, EventKind, Status, WatchReader};
use crate::telemetry::kube::Reason;
use crate::util::waiting::until;
use crate::wire::view::decode;

#[cfg(test)]
mod tests;

/// The time by which a watch may end early and still count as ended on time.
const EARLY_END: Duration = Duration::from_secs(1);
/// The duration from which a watch is stable, so that its next backoff may end early again.
const STABLE: Duration = DEAD;
/// The duration from which reopening a watch takes no token.
const LASTING: Duration = Duration::from_secs(30);
/// The time before the end of a watch in which the server sends a bookmark anyway.
const LAST_BOOKMARK: Duration = Duration::from_secs(10);

/// The parameters of one watch request.
#[derive(Debug)]
struct WatchRequest {
    opened: Instant,
    /// The requested duration (`timeoutSeconds`).
    seconds: u64,
    /// Other requests use its connection too.
    is_shared: bool,
    /// The request is a streaming list.
    streaming: bool,
    /// The server sends bookmarks.
    has_bookmarks: bool,
}

impl WatchRequest {
    /// Returns whether the client ends it before the server would.
    fn ends_by_client(&self, timing: &Timing) -> bool {
        let long = timing.watch_cycle + timing.watch_cycle / 8 + EARLY_END;
        let is_long = self.streaming || Duration::from_secs(self.seconds) > long;
        !self.is_shared && is_long || self.streaming && !self.has_bookmarks
    }

    /// Returns whether a bookmark received now may be the final one of the watch.
    fn ends_soon(&self) -> bool {
        self.opened.elapsed() + LAST_BOOKMARK >= Duration::from_secs(self.seconds)
    }
}

impl Reflector {
    /// Opens a watch and follows it to its end.
    pub(super) async fn watch(&mut self, machine: &mut Machine) -> RequestResult {
        let (streaming, version) = match machine.state() {
            State::Watching { version } => (false, version.clone()),
            _ => (true, String::new()),
        };
        let seconds = if streaming {
            self.begin_state();
            fastrand::u64(self.timing.watch_seconds.clone())
        } else {
            self.watch_seconds()
        };
        let sent = self.send(machine, seconds).await;
        self.calls.watch(&self.scope.api.label, sent.is_ok());
        let (encoding, body) = match sent {
            Ok(answer) => answer,
            Err(result) => {
                self.health.is_verified = false;
                return result;
            }
        };
        let opened = Instant::now();
        let (is_shared, has_bookmarks) = (body.is_shared(), self.scope.api.has_bookmarks());
        let request = WatchRequest { opened, seconds, is_shared, streaming, has_bookmarks };
        self.health.watching = (!streaming).then_some((opened, version));
        let mut chunks = if streaming {
            Chunks::whole(body, self.timing.list_idle)
        } else {
            self.answered();
            Chunks::events(body, self.bounds(&request))
        };
        let mut result = match self.follow(machine, encoding, &mut chunks, &request).await {
            Ok(()) => RequestResult::ok(Outcome::Closed, "server ended the watch"),
            Err(result) => result,
        };
        let in_time = result.outcome == Outcome::Closed
            && (result.is_planned || opened.elapsed() + EARLY_END >= Duration::from_secs(seconds));
        // After a long silence, the server may have been replaced by one that was restored from a backup, which sends nothing
        // to a client whose version it has not reached.
        let is_ordinary = matches!(result.outcome, Outcome::Closed | Outcome::Broken { .. });
        let is_known = in_time && self.health.is_verified;
        if is_ordinary && !is_known && chunks.heard().elapsed() >= DEAD {
            result.outcome = Outcome::Lost;
        }
        self.health.is_verified = is_known;
        self.health.cuts += u32::from(result.is_cut);
        if let State::Watching { version: seen } = machine.state()
            && let Some((since, version)) = self.health.watching.take()
        {
            let lasted = since.elapsed();
            result.useful = match result.outcome {
                Outcome::Closed | Outcome::Broken { .. } | Outcome::Lost => {
                    *seen != version || lasted >= self.timing.short_watch
                }
                _ => lasted >= self.timing.short_relist,
            };
            result.lasted = in_time || lasted >= LASTING && !result.is_cut;
            if lasted >= STABLE {
                self.health.woken = None;
            }
        }
        result
    }

    /// Returns the duration of a watch over a shared connection, in seconds.
    fn long_watch_seconds(&self) -> u64 {
        let Timing { watch_seconds, unmarked_watch_seconds, .. } = &self.timing;
        let range =
            if self.scope.api.has_bookmarks() { watch_seconds } else { unmarked_watch_seconds };
        fastrand::u64(range.clone())
    }

    /// Returns the requested duration of the next watch, in seconds.
    fn watch_seconds(&self) -> u64 {
        if self.health.is_verified && self.client.shares_connections() {
            return self.long_watch_seconds();
        }
        // 0 would mean no limit.
        (self.span().as_secs_f64().round() as u64).max(1)
    }

    /// Returns the time limits of a watch that begins now. The client ends a long one with a connection to itself like a short
    /// one, and a streaming list without bookmarks like other watches without them.
    fn bounds(&self, request: &WatchRequest) -> Bounds {
        if request.ends_by_client(&self.timing) {
            let lasts = if request.is_shared {
                Duration::from_secs(self.long_watch_seconds())
            } else {
                self.span()
            };
            return Bounds { end: Instant::now().checked_add(lasts), heartbeat: None };
        }
        let lasts = Duration::from_secs(request.seconds) + self.timing.watch_slack;
        let end = request.opened.checked_add(lasts);
        let (cuts, has_heartbeat) = (self.health.cuts, self.health.has_heartbeat);
        let silence =
            || longest_silence(self.timing.heartbeat, cuts, has_heartbeat, fastrand::f64());
        Bounds { end, heartbeat: request.is_shared.then(silence) }
    }

    /// Returns the duration of a short watch that begins now.
    fn span(&self) -> Duration {
        span(self.shared.origin.elapsed(), self.timing.watch_cycle)
    }

    /// Reads and applies events until the watch ends. All events of a chunk are applied before the next chunk is awaited.
    async fn follow(
        &mut self,
        machine: &mut Machine,
        encoding: Encoding,
        chunks: &mut Chunks,
        request: &WatchRequest,
    ) -> Result<(), RequestResult> {
        let mut reader = WatchReader::new(encoding).with_table(self.column());
        self.sink.forget_version();
        let streaming = *machine.state() == State::Streaming;
        let mut no_batching = streaming.then(|| self.batcher.no_batching());
        let mut works_at = if streaming { None } else { self.opened() };
        // Room for rejected objects may appear while the watch is open.
        let is_limited = self.sink.is_limited();
        let mut next_room_check = is_limited.then(|| Instant::now() + self.span().max(EARLY_END));
        let versions = Arc::clone(&self.versions);
        loop {
            let is_set_back = versions.set_back_since(self.health.setbacks);
            let next = tokio::select! {
                biased;
                next = chunks.next() => next,
                () = until(works_at) => {
                    works_at = None;
                    self.works();
                    continue;
                }
                () = until(next_room_check) => {
                    next_room_check = Some(Instant::now() + self.span().max(EARLY_END));
                    if no_batching.is_none() && self.sink.claim_room() {
                        return Err(RequestResult::planned("there is room for objects that were left out"));
                    }
                    continue;
                }
                () = is_set_back, if no_batching.is_none() => {
                    return Err(RequestResult::planned("the server was set back"));
                }
            };
            let next = match next {
                // The client ends the watch and reopens it.
                Err(ReadError::Overdue(_))
                    if no_batching.is_none() && request.ends_by_client(&self.timing) =>
                {
                    let mut result = RequestResult::planned("the client renews the watch");
                    // A connection that has been silent may be dead, unless it is probed.
                    if !request.is_shared {
                        result.dead_since = Some(chunks.heard());
                        if chunks.heard().elapsed() >= DEAD {
                            result.outcome = Outcome::Lost;
                        }
                    }
                    return Err(result);
                }
                next => next.map_err(|error| RequestResult::body_failed(error, chunks.heard()))?,
            };
            let Some(chunk) = next else {
                break;
            };
            self.received(&chunk);
            reader.feed(chunk);
            let (mut any, mut changed) = (false, false);
            self.health.bookmarked = false;
            while let Some(event) = reader.next()? {
                any = true;
                changed |= event.kind != EventKind::Bookmark;
                self.event(machine, event)?;
            }
            if self.health.bookmarked && no_batching.is_none() && !request.ends_soon() {
                let is_known = self.health.has_heartbeat && self.health.cuts == 0;
                (self.health.has_heartbeat, self.health.cuts) = (true, 0);
                if !is_known && !request.ends_by_client(&self.timing) {
                    // A longer silence was tolerated before.
                    chunks.become_watch(self.bounds(request));
                }
            }
            machine.saw(self.sink.version());
            self.saw(self.sink.version());
            if let State::Watching { version } = machine.state() {
                self.progress.reached(version, changed);
                self.health.is_verified |= any;
                if any {
                    chunks.set_incomplete(false);
                }
                if no_batching.take().is_some() {
                    self.answered();
                    self.health.watching = Some((Instant::now(), version.clone()));
                    works_at = self.opened();
                    chunks.become_watch(self.bounds(request));
                } else if any && works_at.take().is_some() {
                    self.works();
                }
                chunks.set_incomplete(reader.is_within_event());
            }
        }
        Ok(reader.finish()?)
    }

    /// Applies one event; an error ends the watch.
    fn event(&mut self, machine: &mut Machine, event: Event<'_>) -> Result<(), RequestResult> {
        if matches!(event.kind, EventKind::Added | EventKind::Modified | EventKind::Deleted) {
            self.batcher.changed();
            self.progress.event();
        }
        match event.kind {
            EventKind::Added => {
                self.metrics.added.inc();
                self.sink.put(event.object);
            }
            EventKind::Modified => {
                self.metrics.modified.inc();
                self.sink.put(event.object);
            }
            EventKind::Deleted => {
                self.metrics.deleted.inc();
                self.sink.remove(event.object);
            }
            EventKind::Bookmark => {
                self.metrics.bookmarks.inc();
                self.health.bookmarked = true;
                let bookmark: Bookmark<'_> = decode(event.object).map_err(|error| {
                    RequestResult::garbled(format!("malformed bookmark: {error}"))
                })?;
                let version = &bookmark.metadata.resource_version;
                if version.is_empty() {
                    return Err(RequestResult::garbled("bookmark without a version".to_owned()));
                }
                self.sink.bookmark(version);
                if *machine.state() == State::Streaming && bookmark.ends_initial_events() {
                    let version = version.to_string();
                    self.progress.reached(&version, true);
                    let order = machine.step(Outcome::Synced { version });
                    self.settle(order.collected);
                }
            }
            EventKind::Error => {
                let status: Status<'_> = decode(event.object).map_err(|error| {
                    RequestResult::garbled(format!("malformed error event: {error}"))
                })?;
                let code = match (u16::try_from(status.code), &*status.reason) {
                    (_, "Expired" | "Gone") => 410,
                    (Ok(code), _) => code,
                    (Err(_), _) => 0,
                };
                let message = format!("server ends the watch with {code}: {}", &*status.message);
                let reason = Reason::of_status(code);
                return Err(RequestResult::failed(Outcome::ErrorEvent { code }, reason, message));
            }
        }
        Ok(())
    }

    /// Records that a watch is open. After a failure, returns the time at which it counts as working unless an event or
    /// bookmark arrives before.
    fn opened(&mut self) -> Option<Instant> {
        if self.health.failing {
            self.progress.phase(Phase::Watching);
            return Instant::now().checked_add(self.timing.short_watch);
        }
        self.works();
        None
    }
}
