//! What can be known from outside about a list/watch while it runs.
//!
//! The list/watch writes into its [`Progress`]; whoever wants to know takes a [`Status`], which is cheap, or a
//! [`ListWatch`] with all there is. How they are put together for the whole side is in [`kube::facts`](crate::kube::facts).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::left_out::{LeftOut, Namespaces};
use crate::cache::{Size, Store};
use crate::kube::frame::Encoding;
use crate::kube::target::{Scope, Target};
use crate::telemetry::kube::Reason;

/// What a list/watch is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Getting the state.
    #[default]
    Listing,
    /// Following changes.
    Watching,
    /// Waiting to try again.
    Waiting,
}

/// What keeps a list/watch from succeeding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it failed first; it has not succeeded since.
    pub since: SystemTime,
    /// When it failed last.
    pub at: SystemTime,
    /// Why; `None` for a fault of this program.
    pub reason: Option<Reason>,
    /// What happened last, in words.
    pub message: String,
}

/// What has failed for one reason, since the list/watch began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    /// Why.
    pub reason: Reason,
    /// How often.
    pub count: u64,
    /// When it did so last.
    pub at: SystemTime,
    /// What happened then, in words.
    pub message: String,
}

/// One list/watch at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Plural name of the resource.
    pub resource: String,
    /// The namespace, `None` for all.
    pub namespace: Option<String>,
    /// What it is doing.
    pub phase: Phase,
    /// When the state was complete for the last time.
    pub listed: Option<SystemTime>,
    /// When anything came from the API server for it.
    pub heard: Option<SystemTime>,
    /// The encoding that the server chose.
    pub encoding: Option<Encoding>,
    /// Objects in the store.
    pub objects: usize,
    /// Objects of the state that is on its way.
    pub coming: usize,
    /// The present failure, until a list or watch succeeds.
    pub failure: Option<Failure>,
    /// Whether its objects were given up because the server has refused them for long.
    pub given_up: bool,
    /// Whether it has ended by a fault of this program and waits to be started again.
    pub stopped: bool,
}

/// Until when a state was kept up to date: what fails may well be heard of.
fn current(heard: Option<SystemTime>, fails_since: Option<SystemTime>) -> Option<SystemTime> {
    let heard = heard?;
    Some(fails_since.map_or(heard, |since| since.min(heard)))
}

impl Status {
    /// Until when what is shown was kept up to date.
    #[must_use]
    pub fn current(&self) -> Option<SystemTime> {
        let since = self.failure.as_ref().map(|failure| failure.since);
        current(self.heard, since).filter(|_| self.listed.is_some())
    }

    /// Whether what is shown is a complete state, however old.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.listed.is_some() && !self.given_up
    }
}

/// What changes of a list/watch all the time.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    /// What it is called.
    pub(crate) kind: String,
    /// Objects in the store.
    pub(crate) objects: usize,
    /// As [`ListWatch::events`].
    pub(crate) events: u64,
    /// As [`Status::current`].
    pub(crate) current: Option<SystemTime>,
    /// As [`ListWatch::shown`].
    pub(crate) shown: bool,
}

/// All that is known of one list/watch at one moment.
#[derive(Clone, Debug)]
pub struct ListWatch {
    /// How it is doing.
    pub status: Status,
    /// What is listed.
    pub target: Target,
    /// How large the text of its objects is.
    pub size: Size,
    /// Changes that came since it began, streaming lists included.
    pub events: u64,
    /// What has failed since it began, by reason.
    pub errors: Vec<Errors>,
    /// Whether it is shown; else it is listed aside to take the place of an older one.
    pub shown: bool,
    /// Objects that have no series because of a budget.
    pub left_out: u64,
}

/// How many objects there are of each namespace.
pub(crate) struct Totals {
    /// The kind.
    pub(crate) resource: String,
    /// With series.
    pub(crate) shown: BTreeMap<Vec<u8>, u64>,
    /// Without, because of a budget.
    pub(crate) left_out: Namespaces,
}

#[derive(Debug, Default)]
struct Situation {
    phase: Phase,
    listed: Option<SystemTime>,
    encoding: Option<Encoding>,
    failure: Option<Failure>,
    given_up: bool,
    stopped: bool,
    errors: Vec<Errors>,
}

/// Shared between a list/watch, which writes, and those who want to know.
#[derive(Debug)]
pub(crate) struct Progress {
    target: Target,
    namespace: Option<String>,
    store: Arc<Store>,
    /// Where there are budgets.
    left_out: Option<Arc<LeftOut>>,
    situation: Mutex<Situation>,
    settled: AtomicBool,
    shown: AtomicBool,
    coming: AtomicUsize,
    events: AtomicU64,
    /// In microseconds of Unix time, 0 for never.
    heard: AtomicU64,
    pending: watch::Sender<usize>,
}

impl Progress {
    /// A list/watch that has to settle before the pipeline is ready.
    pub(crate) fn new(
        scope: &Scope,
        store: Arc<Store>,
        left_out: Option<Arc<LeftOut>>,
        pending: watch::Sender<usize>,
    ) -> Self {
        pending.send_modify(|pending| *pending += 1);
        Self {
            target: scope.target.clone(),
            namespace: scope.namespace.clone(),
            store,
            left_out,
            situation: Mutex::default(),
            settled: AtomicBool::new(false),
            shown: AtomicBool::new(false),
            coming: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            pending,
        }
    }

    pub(crate) fn phase(&self, phase: Phase) {
        self.lock().phase = phase;
        // Whoever looks after the list/watch has to know that it waits.
        self.pending.send_modify(|_| ());
    }

    /// Whether there was a complete state, or the server has refused to give one.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Whether there was a complete state.
    pub(crate) fn is_listed(&self) -> bool {
        self.lock().listed.is_some()
    }

    /// Whether it waits before it tries again.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lock().phase == Phase::Waiting
    }

    pub(crate) fn encoding(&self, encoding: Encoding) {
        self.lock().encoding = Some(encoding);
    }

    /// Something has come from the API server.
    pub(crate) fn heard(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.heard.store(now.as_micros() as u64, Ordering::Relaxed);
    }

    /// A change has come.
    pub(crate) fn event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// So many objects of a new state are there.
    pub(crate) fn coming(&self, objects: usize) {
        self.coming.store(objects, Ordering::Relaxed);
    }

    /// Its objects are shown from here on.
    pub(crate) fn show(&self) {
        self.shown.store(true, Ordering::Relaxed);
    }

    /// The state is complete.
    pub(crate) fn listed(&self) {
        let mut situation = self.lock();
        situation.phase = Phase::Watching;
        situation.listed = Some(SystemTime::now());
        situation.failure = None;
        situation.given_up = false;
        drop(situation);
        self.settle();
        // It may have been settled by a refusal.
        self.pending.send_modify(|_| ());
    }

    /// A watch goes on from a known state.
    pub(crate) fn resumed(&self) {
        let mut situation = self.lock();
        situation.phase = Phase::Watching;
        situation.failure = None;
    }

    /// Counts what failed, whether it matters or not.
    pub(crate) fn count(&self, reason: Reason, message: &str) {
        let mut situation = self.lock();
        let errors = &mut situation.errors;
        let at = errors.binary_search_by_key(&reason, |errors| errors.reason);
        let at = at.unwrap_or_else(|at| {
            let (at_time, message) = (SystemTime::UNIX_EPOCH, String::new());
            errors.insert(at, Errors { reason, count: 0, at: at_time, message });
            at
        });
        if let Some(errors) = errors.get_mut(at) {
            errors.count += 1;
            errors.at = SystemTime::now();
            message.clone_into(&mut errors.message);
        }
    }

    /// Notes a failure; without a reason it is a fault of this program.
    pub(crate) fn failed(&self, reason: Option<Reason>, message: &str) {
        let (at, message) = (SystemTime::now(), message.to_owned());
        let mut situation = self.lock();
        let since = situation.failure.as_ref().map_or(at, |failure| failure.since);
        situation.failure = Some(Failure { since, at, reason, message });
    }

    /// The objects are shown no more, because the server has refused them for long.
    pub(crate) fn given_up(&self) {
        self.lock().given_up = true;
    }

    /// It has ended by a fault of this program, or runs again.
    pub(crate) fn stopped(&self, stopped: bool) {
        self.lock().stopped = stopped;
    }

    /// There is a state, or the server has refused to give one: nothing to wait for.
    pub(crate) fn settle(&self) {
        if !self.settled.swap(true, Ordering::Relaxed) {
            self.pending.send_modify(|pending| *pending = pending.saturating_sub(1));
        }
    }

    /// How it is doing.
    pub(crate) fn status(&self) -> Status {
        self.status_of(&self.lock())
    }

    fn last_heard(&self) -> Option<SystemTime> {
        let heard = self.heard.load(Ordering::Relaxed);
        (heard > 0).then(|| UNIX_EPOCH + Duration::from_micros(heard))
    }

    /// What changes all the time, for little.
    pub(crate) fn pulse(&self) -> Pulse {
        let since = self.lock().failure.as_ref().map(|failure| failure.since);
        Pulse {
            kind: self.target.name(),
            objects: self.store.len(),
            events: self.events.load(Ordering::Relaxed),
            current: current(self.last_heard(), since),
            shown: self.shown.load(Ordering::Relaxed),
        }
    }

    /// All that is known of it; see [`Store::size`] for what that takes.
    pub(crate) fn facts(&self) -> ListWatch {
        let situation = self.lock();
        let (status, errors) = (self.status_of(&situation), situation.errors.clone());
        drop(situation);
        ListWatch {
            status,
            target: self.target.clone(),
            size: self.store.size(),
            events: self.events.load(Ordering::Relaxed),
            errors,
            shown: self.shown.load(Ordering::Relaxed),
            left_out: self.left_out.as_ref().map_or(0, |left_out| left_out.len()),
        }
    }

    /// The objects of each namespace that are shown, and those that have no series because of a budget; `None` where
    /// there is none, or where it is not shown itself.
    pub(crate) fn totals(&self) -> Option<Totals> {
        let (resource, left_out) = self.left_out()?;
        let mut shown = BTreeMap::new();
        self.store.namespaces(&mut shown);
        Some(Totals { resource, shown, left_out })
    }

    /// The kind, and what of it has no series because of a budget, likewise.
    pub(crate) fn left_out(&self) -> Option<(String, Namespaces)> {
        let left_out = self.left_out.as_ref().filter(|_| self.shown.load(Ordering::Relaxed))?;
        Some((self.target.own_label(), left_out.namespaces()))
    }

    fn status_of(&self, situation: &Situation) -> Status {
        Status {
            resource: self.target.plural.clone(),
            namespace: self.namespace.clone(),
            phase: situation.phase,
            listed: situation.listed,
            heard: self.last_heard(),
            encoding: situation.encoding,
            objects: self.store.len(),
            coming: self.coming.load(Ordering::Relaxed),
            failure: situation.failure.clone(),
            given_up: situation.given_up,
            stopped: situation.stopped,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Situation> {
        self.situation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
