//! The progress of a list/watch, for metrics, the status page and the reconciler.
//!
//! The list/watch updates its [`Progress`]. Readers take a [`Status`], which is cheap, or a complete [`ListWatch`].
//! [`kube::snapshot`](crate::kube::snapshot) combines them for the whole pipeline.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::Instant;

use super::handover::ServedObjects;
use super::quota::Quota;
use super::rejected_set::{Namespaces, RejectedSet};
use crate::cache::{ObjectView, Schema, Size};
use crate::kube::api_resource::{ApiResource, Scope};
use crate::kube::frame::Encoding;
use crate::kube::shard::{Ownership, Shard};
use crate::telemetry::kube::Reason;
use crate::util::lock::Lock;

#[cfg(test)]
mod tests;

/// The current activity of a list/watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Listing objects.
    #[default]
    Listing,
    /// Watching for changes.
    Watching,
    /// Waiting before a retry.
    Waiting,
}

/// A continuing failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The time of the first failure since the last success.
    pub since: SystemTime,
    /// The time of the last failure.
    pub at: SystemTime,
    /// The reason; `None` for a bug in this program.
    pub reason: Option<Reason>,
    /// The last error message.
    pub message: String,
}

/// The failures for one reason since the list/watch started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    /// The reason.
    pub reason: Reason,
    /// The number of failures.
    pub count: u64,
    /// The time of the last failure.
    pub at: SystemTime,
    /// The last error message.
    pub message: String,
}

/// A snapshot of the status of one list/watch.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The plural name of the resource.
    pub resource: String,
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
    /// The current activity.
    pub phase: Phase,
    /// The time of the last complete list.
    pub listed: Option<SystemTime>,
    /// The time of the last data from the API server.
    pub heard: Option<SystemTime>,
    /// The encoding that the server chose.
    pub encoding: Option<Encoding>,
    /// The number of objects in the store.
    pub objects: usize,
    /// The number of objects received so far by the list in progress.
    pub coming: usize,
    /// The current failure, until a list or watch succeeds.
    pub failure: Option<Failure>,
    /// Its objects were dropped because the server refused to list them for longer than the staleness limit.
    pub given_up: bool,
    /// It ended because of a bug in this program and will be restarted.
    pub stopped: bool,
}

/// Returns the time until which the data was up to date. A failing list/watch may still receive data.
fn current(heard: Option<SystemTime>, fails_since: Option<SystemTime>) -> Option<SystemTime> {
    let heard = heard?;
    Some(fails_since.map_or(heard, |since| since.min(heard)))
}

impl Status {
    /// Returns the time until which the served data was up to date.
    #[must_use]
    pub fn current(&self) -> Option<SystemTime> {
        let since = self.failure.as_ref().map(|failure| failure.since);
        current(self.heard, since).filter(|_| self.listed.is_some())
    }

    /// Returns whether a complete state is served, however old.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.listed.is_some() && !self.given_up
    }
}

/// The frequently changing figures of a list/watch.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    /// The resource name.
    pub(crate) kind: String,
    /// The number of objects in the store.
    pub(crate) objects: usize,
    /// The number of changes received; see [`ListWatch::events`].
    pub(crate) events: u64,
    /// The time until which the data was up to date; also set before the first list, unlike [`Status::current`].
    pub(crate) current: Option<SystemTime>,
    /// Its objects are served; see [`ListWatch::shown`].
    pub(crate) shown: bool,
}

/// A snapshot of one list/watch with its status, size and error counts.
#[derive(Clone, Debug)]
pub struct ListWatch {
    /// The status.
    pub status: Status,
    /// The resource.
    pub api: ApiResource,
    /// The flags that select its objects, as given.
    pub selectors: Option<String>,
    /// The size of the rendered objects.
    pub size: Size,
    /// The number of changes received since it started, including those of streaming lists.
    pub events: u64,
    /// The failures since it started, by reason.
    pub errors: Vec<Errors>,
    /// Its objects are served. Otherwise it will replace an older list/watch when it is complete.
    pub shown: bool,
    /// The number of objects that have no series because of a budget.
    pub rejected: u64,
}

/// The number of objects of a kind by namespace.
pub(crate) struct Totals {
    /// The resource name.
    pub(crate) resource: String,
    /// Objects with series.
    pub(crate) shown: BTreeMap<Vec<u8>, u64>,
    /// Objects without series because of a budget.
    pub(crate) rejected: Namespaces,
}

/// The place of an object.
pub(crate) struct Placement {
    /// The shard of the list/watch.
    pub(crate) shard: Shard,
    /// A budget leaves it without series.
    pub(crate) rejected: bool,
    /// The number of objects of the kind and the object limit, if there is one.
    pub(crate) quota: Option<(usize, usize)>,
    /// Its number of series by family; `None` if it is not served.
    pub(crate) families: Option<Vec<u64>>,
}

/// The part of a [`Progress`] that is guarded by its lock.
#[derive(Debug, Default)]
struct ProgressState {
    /// The status, but for what is counted elsewhere; see [`Progress::status`].
    status: Status,
    errors: BTreeMap<Reason, Errors>,
    /// The version of its state; `None` before the first list, and if versions are not numbers.
    version: Option<u64>,
    /// The version at its last change. Bookmarks do not change it.
    changed: Option<u64>,
    /// The reconciler waits for a newer version.
    awaited: bool,
    /// The end of its last wait, as far as the server has asked for it.
    asked_until: Option<Instant>,
}

/// The progress of a list/watch, shared between the list/watch and readers.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(super) scope: Arc<Scope>,
    pub(super) served: Arc<ServedObjects>,
    /// The objects rejected by budgets; `None` without budgets.
    pub(super) rejected: Option<Arc<RejectedSet>>,
    /// The object limit, if there is one.
    pub(super) quota: Option<Arc<Quota>>,
    state: Lock<ProgressState>,
    settled: AtomicBool,
    shown: AtomicBool,
    coming: AtomicUsize,
    events: AtomicU64,
    /// The time of the last data, in microseconds of Unix time; 0 for never.
    heard: AtomicU64,
    /// The number of list/watches that have not settled; notified of every change of phase.
    pending: watch::Sender<usize>,
    /// The number of questions about its state.
    #[cfg(test)]
    visits: AtomicUsize,
}

impl Progress {
    /// Creates the progress of a list/watch, which has to settle before the pipeline is ready.
    pub(crate) fn new(
        scope: Arc<Scope>,
        served: ServedObjects,
        (rejected, quota): (Option<Arc<RejectedSet>>, Option<Arc<Quota>>),
        pending: watch::Sender<usize>,
    ) -> Self {
        pending.send_modify(|pending| *pending += 1);
        let (resource, namespace) = (scope.api.plural.clone(), scope.namespace.clone());
        let status = Status { resource, namespace, ..Status::default() };
        Self {
            scope,
            served: Arc::new(served),
            rejected,
            quota,
            state: Lock::new(ProgressState { status, ..ProgressState::default() }),
            settled: AtomicBool::new(false),
            shown: AtomicBool::new(false),
            coming: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            pending,
            #[cfg(test)]
            visits: AtomicUsize::new(0),
        }
    }

    /// Sets the current activity.
    pub(crate) fn phase(&self, phase: Phase) {
        self.lock().status.phase = phase;
        // The reconciler has to know about list/watches in backoff.
        self.pending.send_modify(|_| ());
    }

    /// Records the beginning of a backoff, which the server may have asked to last until `asked_until`.
    pub(crate) fn waits(&self, asked_until: Option<Instant>) {
        self.lock().asked_until = asked_until;
        self.phase(Phase::Waiting);
    }

    /// Returns whether a list was complete, or the server refused to list.
    pub(crate) fn is_settled(&self) -> bool {
        #[cfg(test)]
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.settled.load(Ordering::Relaxed)
    }

    /// Returns how often its state was asked for.
    #[cfg(test)]
    pub(crate) fn visits(&self) -> usize {
        self.visits.load(Ordering::Relaxed)
    }

    /// Returns whether a list was complete.
    pub(crate) fn is_listed(&self) -> bool {
        self.lock().status.listed.is_some()
    }

    /// Returns whether there is a complete state, however old.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().status.is_complete()
    }

    /// Returns whether its objects were dropped because the server refused to list them for longer than the staleness limit.
    pub(crate) fn is_given_up(&self) -> bool {
        self.lock().status.given_up
    }

    /// Returns whether it is in backoff.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lock().status.phase == Phase::Waiting
    }

    /// Returns the time until which the server has asked to wait with `Retry-After`, if its last backoff has one.
    pub(crate) fn asked_until(&self) -> Option<Instant> {
        self.lock().asked_until
    }

    pub(crate) fn encoding(&self, encoding: Encoding) {
        self.lock().status.encoding = Some(encoding);
    }

    /// Records that data was received from the API server.
    pub(crate) fn heard(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.heard.store(now.as_micros() as u64, Ordering::Relaxed);
    }

    /// Counts a received change.
    pub(crate) fn event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of objects received by the list in progress.
    pub(crate) fn coming(&self, objects: usize) {
        self.coming.store(objects, Ordering::Relaxed);
    }

    /// Marks its objects as served.
    pub(crate) fn show(&self) {
        self.shown.store(true, Ordering::Relaxed);
    }

    /// Records a complete list.
    pub(crate) fn listed(&self) {
        let mut state = self.lock();
        state.status.phase = Phase::Watching;
        state.status.listed = Some(SystemTime::now());
        state.status.failure = None;
        state.status.given_up = false;
        drop(state);
        self.settle();
        // It may have been settled by a refusal.
        self.pending.send_modify(|_| ());
    }

    /// Records the version of its state, which differs from an earlier one if it has `changed`.
    pub(crate) fn reached(&self, version: &str, changed: bool) {
        let mut state = self.lock();
        state.version = version.parse().ok();
        if changed {
            state.changed = state.version;
        }
        if std::mem::take(&mut state.awaited) {
            drop(state);
            self.pending.send_modify(|_| ());
        }
    }

    /// Returns whether its state is at least as new as that of `old`, a list/watch of the same kind. Otherwise the
    /// reconciler is notified when it is newer.
    pub(crate) fn has_reached(&self, old: &Self) -> bool {
        let changed = old.lock().changed;
        let mut state = self.lock();
        let is_behind = state.status.listed.is_some()
            && changed.zip(state.version).is_some_and(|(changed, version)| version < changed);
        state.awaited |= is_behind;
        !is_behind
    }

    /// Records a working watch.
    pub(crate) fn resumed(&self) {
        let mut state = self.lock();
        state.status.phase = Phase::Watching;
        state.status.failure = None;
    }

    /// Counts a failure by reason, also one that is handled without backoff.
    pub(crate) fn count(&self, reason: Reason, message: &str) {
        let (at, message) = (SystemTime::now(), message.to_owned());
        let mut state = self.lock();
        let count = state.errors.get(&reason).map_or(0, |errors| errors.count) + 1;
        state.errors.insert(reason, Errors { reason, count, at, message });
    }

    /// Records a failure; `reason` is `None` for a bug in this program.
    pub(crate) fn failed(&self, reason: Option<Reason>, message: &str) {
        let (at, message) = (SystemTime::now(), message.to_owned());
        let mut state = self.lock();
        let since = state.status.failure.as_ref().map_or(at, |failure| failure.since);
        state.status.failure = Some(Failure { since, at, reason, message });
    }

    /// Records that its objects were dropped because the server refused to list them for too long.
    pub(crate) fn given_up(&self) {
        self.lock().status.given_up = true;
    }

    /// Sets whether it has ended because of a bug in this program.
    pub(crate) fn stopped(&self, stopped: bool) {
        self.lock().status.stopped = stopped;
    }

    /// Marks it as settled: a list is complete, or the server has refused to list.
    pub(crate) fn settle(&self) {
        if !self.settled.swap(true, Ordering::Relaxed) {
            self.pending.send_modify(|pending| *pending = pending.saturating_sub(1));
        }
    }

    /// Returns the subject of the list/watch.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns whether its objects are served.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown.load(Ordering::Relaxed)
    }

    /// Returns the families of its objects.
    pub(crate) fn schema(&self) -> &Schema {
        self.served.store.schema()
    }

    /// Returns where the object with this uid is.
    pub(crate) fn place(&self, uid: &[u8]) -> Placement {
        let store = &self.served.store;
        let families = store.schema().families.len();
        let series = |object: ObjectView<'_>| {
            let lines = (0..families).map(|family| object.family(family));
            lines.map(|lines| memchr::memchr_iter(b'\n', lines).count() as u64).collect()
        };
        let key = store.key(uid);
        Placement {
            shard: self.served.shard(),
            rejected: self.rejected.as_ref().is_some_and(|rejected| rejected.contains(key)),
            quota: self.quota.as_ref().map(|quota| (quota.total(), quota.limit())),
            families: store.look(uid, series),
        }
    }

    /// Returns its status.
    pub(crate) fn status(&self) -> Status {
        self.status_of(&self.lock())
    }

    fn last_heard(&self) -> Option<SystemTime> {
        let heard = self.heard.load(Ordering::Relaxed);
        (heard > 0).then(|| UNIX_EPOCH + Duration::from_micros(heard))
    }

    /// Returns the frequently changing figures. It is cheap.
    pub(crate) fn pulse(&self) -> Pulse {
        let since = self.lock().status.failure.as_ref().map(|failure| failure.since);
        Pulse {
            kind: self.scope.api.name(),
            objects: self.served.store.len(),
            events: self.events.load(Ordering::Relaxed),
            current: current(self.last_heard(), since),
            shown: self.shown.load(Ordering::Relaxed),
        }
    }

    /// Returns a complete snapshot. See [`Store::size`](crate::cache::Store::size) for its cost.
    pub(crate) fn facts(&self) -> ListWatch {
        let state = self.lock();
        let (status, errors) = (self.status_of(&state), state.errors.values().cloned().collect());
        drop(state);
        ListWatch {
            status,
            api: self.scope.api.clone(),
            selectors: self.scope.selectors(),
            size: self.served.store.size(),
            events: self.events.load(Ordering::Relaxed),
            errors,
            shown: self.shown.load(Ordering::Relaxed),
            rejected: self.rejected.as_ref().map_or(0, |rejected| rejected.len()),
        }
    }

    /// Returns the number of objects by namespace, with and without series; `None` if there is no budget or its objects
    /// are not served.
    pub(crate) fn totals(&self) -> Option<Totals> {
        let (resource, rejected) = self.rejected()?;
        let mut shown = BTreeMap::new();
        self.served.store.namespaces(&mut shown);
        Some(Totals { resource, shown, rejected })
    }

    /// Switches to another shard or to another stage of a shard change. Objects of other shards are neither served nor rejected.
    pub(crate) fn reshard(&self, shard: Shard) {
        self.served.show(shard);
        if let Some(rejected) = &self.rejected {
            rejected.retain(|hash| shard.ownership_of_hash(hash) != Ownership::Foreign);
        }
    }

    /// Returns the resource name and the number of objects without series by namespace; `None` if there is no budget or its
    /// objects are not served.
    pub(crate) fn rejected(&self) -> Option<(String, Namespaces)> {
        let rejected = self.rejected.as_ref().filter(|_| self.shown.load(Ordering::Relaxed))?;
        Some((self.scope.api.unique_label(), rejected.namespaces()))
    }

    fn status_of(&self, state: &ProgressState) -> Status {
        Status {
            heard: self.last_heard(),
            objects: self.served.store.len(),
            coming: self.coming.load(Ordering::Relaxed),
            ..state.status.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        #[cfg(test)]
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.state.lock()
    }
}
