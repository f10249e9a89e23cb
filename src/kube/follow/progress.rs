//! What can be known from outside about a list/watch while it runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;

use crate::cache::Store;
use crate::kube::frame::Encoding;
use crate::kube::target::Scope;

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

/// A failure and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it happened.
    pub at: SystemTime,
    /// What happened.
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
    /// The encoding that the server chose.
    pub encoding: Option<Encoding>,
    /// Objects in the store.
    pub objects: usize,
    /// Objects of the state that is on its way.
    pub coming: usize,
    /// The latest failure, until a list or watch succeeds.
    pub failure: Option<Failure>,
}

#[derive(Debug, Default)]
struct Situation {
    phase: Phase,
    listed: Option<SystemTime>,
    encoding: Option<Encoding>,
    failure: Option<Failure>,
}

/// Shared between a list/watch, which writes, and a status page, which reads.
#[derive(Debug)]
pub(crate) struct Progress {
    resource: String,
    namespace: Option<String>,
    store: Arc<Store>,
    situation: Mutex<Situation>,
    settled: AtomicBool,
    coming: AtomicUsize,
    pending: watch::Sender<usize>,
}

impl Progress {
    /// A list/watch that has to settle before the pipeline is ready.
    pub(crate) fn new(scope: &Scope, store: Arc<Store>, pending: watch::Sender<usize>) -> Self {
        let (resource, namespace) = (scope.target.plural.clone(), scope.namespace.clone());
        pending.send_modify(|pending| *pending += 1);
        let (situation, settled) = (Mutex::default(), AtomicBool::new(false));
        Self { resource, namespace, store, situation, settled, coming: 0.into(), pending }
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

    /// So many objects of a new state are there.
    pub(crate) fn coming(&self, objects: usize) {
        self.coming.store(objects, Ordering::Relaxed);
    }

    /// The state is complete.
    pub(crate) fn listed(&self) {
        let mut situation = self.lock();
        situation.phase = Phase::Watching;
        situation.listed = Some(SystemTime::now());
        situation.failure = None;
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

    /// Notes a failure.
    pub(crate) fn failed(&self, message: &str) {
        let failure = Failure { at: SystemTime::now(), message: message.to_owned() };
        self.lock().failure = Some(failure);
    }

    /// There is a state, or the server has refused to give one: nothing to wait for.
    pub(crate) fn settle(&self) {
        if !self.settled.swap(true, Ordering::Relaxed) {
            self.pending.send_modify(|pending| *pending = pending.saturating_sub(1));
        }
    }

    pub(crate) fn status(&self) -> Status {
        let situation = self.lock();
        Status {
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            phase: situation.phase,
            listed: situation.listed,
            encoding: situation.encoding,
            objects: self.store.len(),
            coming: self.coming.load(Ordering::Relaxed),
            failure: situation.failure.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Situation> {
        self.situation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
