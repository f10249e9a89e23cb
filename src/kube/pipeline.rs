//! The running pipeline and the handle to query it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

use super::client::{Client, ClientError};
use super::config::PipelineConfig;
use super::follow::following::Plan;
use super::follow::progress::{ListWatch, Progress, Pulse, Status};
use super::follow::reconcile::{ProgressByKind, ReconcileStatus, Reconciler, Wanted};
use super::follow::shared::Shared;
use super::follow::timing::Timing;
use super::follow::worker::{WakeupBatcher, Worker};
use super::snapshot::{self, PipelineSnapshot};
use crate::cache::Catalog;
use crate::exposition::family::{Collect, Family};
use crate::telemetry::KubeMetrics;
use crate::util::lock::Lock;
use crate::util::waiting;

/// Objects without series because of a budget.
pub(crate) struct RejectedObjects {
    /// The `resource` label of own metrics.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) count: u64,
}

/// The running list/watches. They stop when this is dropped.
pub struct Pipeline {
    worker: Worker,
    wanted: watch::Sender<Wanted>,
    handle: PipelineHandle,
}

/// A handle to query a running pipeline; cheap to clone.
#[derive(Clone)]
pub struct PipelineHandle {
    situation: watch::Receiver<ReconcileStatus>,
    progress: Arc<Lock<ProgressByKind>>,
    missing_namespaces: Arc<Lock<Vec<String>>>,
}

impl Pipeline {
    /// Registers the stores of all resources with `catalog` and starts to fill them on a separate thread, with one task
    /// for each resource, or for each resource in each namespace. [`Pipeline::reconfigure`] recognizes the client by
    /// its `Arc`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        client: &Arc<Client>,
        config: &PipelineConfig,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        let wanted = Wanted { number: 1, plans: plans(client, config) };
        Self::launch(wanted, &config.timing, catalog, metrics, |reconciler, batcher| {
            Worker::start(reconciler.run(), batcher)
        })
    }

    /// Watches nothing, and is not ready, until the first [change](Pipeline::reconfigure), which gets number 1.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start_idle(
        timing: &Timing,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        let wanted = Wanted { number: 0, plans: Arc::default() };
        Self::launch(wanted, timing, catalog, metrics, |reconciler, batcher| {
            Worker::start(reconciler.run(), batcher)
        })
    }

    /// Like [`Pipeline::start`], but on the caller's event loop and with its clock.
    ///
    /// # Errors
    /// Never fails.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_on_this_thread(
        client: &Arc<Client>,
        config: &PipelineConfig,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        let wanted = Wanted { number: 1, plans: plans(client, config) };
        Self::launch(wanted, &config.timing, catalog, metrics, |reconciler, batcher| {
            Ok(Worker::here(reconciler.run(), batcher))
        })
    }

    fn launch(
        wanted: Wanted,
        timing: &Timing,
        catalog: &Catalog,
        metrics: &KubeMetrics,
        start_worker: impl FnOnce(Reconciler, Arc<WakeupBatcher>) -> std::io::Result<Worker>,
    ) -> Result<Self, ClientError> {
        let batcher = Arc::new(WakeupBatcher::new(timing.gather));
        let (wanted, configurations) = watch::channel(wanted);
        let (sender, situation) = watch::channel(ReconcileStatus::default());
        let progress = Arc::default();
        let reconciler = Reconciler::new(
            catalog.clone(),
            metrics.clone(),
            Arc::clone(&batcher),
            Arc::new(Shared::new(timing)),
            configurations,
            sender,
            Arc::clone(&progress),
        );
        let worker = start_worker(reconciler, batcher).map_err(|error| {
            let what = "cannot start the thread that follows the API server";
            ClientError::Other(format!("{what}: {error}"))
        })?;
        let missing_namespaces = Arc::default();
        let handle = PipelineHandle { situation, progress, missing_namespaces };
        Ok(Self { worker, wanted, handle })
    }

    /// Applies a new configuration and returns the number of the change for [`PipelineHandle::is_applied`]. Kinds that
    /// have not changed are left alone, provided that the client is the same `Arc`. Others are listed into separate
    /// stores, one kind after another, and exchanged once complete; until then their old state stays exposed and up to
    /// date. A new change supersedes an unfinished one.
    pub fn reconfigure(&self, client: &Arc<Client>, config: &PipelineConfig) -> u64 {
        let plans = plans(client, config);
        self.wanted.send_modify(|wanted| *wanted = Wanted { number: wanted.number + 1, plans });
        self.worker.rouse();
        self.wanted.borrow().number
    }

    /// Returns a handle to query the pipeline.
    pub fn handle(&self) -> PipelineHandle {
        self.handle.clone()
    }

    /// Stops all list/watches and waits until their connections are closed. The stores keep their contents.
    pub async fn stop(self) {
        self.worker.stop().await;
    }
}

fn plans(client: &Arc<Client>, config: &PipelineConfig) -> Arc<[Plan]> {
    config.resources.iter().map(|watched| Plan::new(client, config, watched)).collect()
}

/// Own metrics of the pipeline.
impl Collect for PipelineHandle {
    fn collect(&self, out: &mut Vec<Family>) {
        out.extend(self.snapshot().families());
        let lists = self.lists();
        let totals: Vec<_> = lists.iter().filter_map(|progress| progress.totals()).collect();
        if !totals.is_empty() {
            out.push(snapshot::object_totals(&totals));
        }
    }

    fn may_have(&self, names: &BTreeSet<String>) -> bool {
        names.iter().any(|name| snapshot::is_own_name(name))
    }
}

impl PipelineHandle {
    /// Returns true once every list/watch has been complete or was denied by the server.
    pub fn is_ready(&self) -> bool {
        let (ready, number) = {
            let situation = self.situation.borrow();
            (situation.ready, situation.number)
        };
        // `ready` is updated shortly after the last list/watch has settled.
        ready || number > 0 && self.lists().iter().all(|progress| progress.is_settled())
    }

    /// Waits until [`PipelineHandle::is_ready`] or the pipeline has ended.
    pub async fn ready(&self) {
        let mut situation = self.situation.clone();
        // An error means that the pipeline has ended.
        let _ = situation.wait_for(|situation| situation.ready).await;
    }

    /// Returns true if the configuration change with this number is fully applied; the start has number 1. Kinds that
    /// the server denies do not count, unless an older state of them is still exposed.
    pub fn is_applied(&self, number: u64) -> bool {
        let situation = self.situation.borrow();
        situation.number >= number && situation.pending.is_empty()
    }

    /// Returns true if the pipeline has received the change with this number and exposes objects according to its
    /// shard.
    pub(super) fn has_observed(&self, number: u64) -> bool {
        self.situation.borrow().number >= number
    }

    /// Returns true if the change with this number is applied except for kinds that the server denies.
    pub(super) fn is_applied_where_allowed(&self, number: u64) -> bool {
        let situation = self.situation.borrow();
        situation.number >= number && situation.refused
    }

    /// Returns the kinds to which the latest change is not applied yet.
    pub fn pending(&self) -> Arc<[String]> {
        Arc::clone(&self.situation.borrow().pending)
    }

    /// Marks all changes so far as seen by [`PipelineHandle::changed`].
    pub(super) fn mark_unchanged(&mut self) {
        self.situation.mark_unchanged();
    }

    /// Waits until the result of [`PipelineHandle::is_applied`] may have changed since the last call on this handle.
    /// Never returns once the pipeline has ended.
    pub async fn changed(&mut self) {
        waiting::changed(&mut self.situation).await;
    }

    /// Returns the status of all list/watches in configuration order, without those that are still queued.
    pub fn status(&self) -> Vec<Status> {
        self.lists().iter().map(|progress| progress.status()).collect()
    }

    /// Returns the activity of each list/watch.
    pub(crate) fn pulses(&self) -> Vec<Pulse> {
        self.lists().iter().map(|progress| progress.pulse()).collect()
    }

    /// Returns a snapshot of the pipeline.
    pub fn snapshot(&self) -> PipelineSnapshot {
        let lists = self.lists();
        let ready = self.is_ready();
        // Computed without holding the lock.
        let lists: Vec<ListWatch> = lists.iter().map(|progress| progress.facts()).collect();
        let missing = self.missing_namespaces.lock().clone();
        let missing_namespaces = snapshot::without_objects(missing, &lists);
        PipelineSnapshot { lists, ready, pending: self.pending(), missing_namespaces }
    }

    /// Returns the objects rejected by a budget, by kind and namespace.
    pub(crate) fn rejected(&self) -> Vec<RejectedObjects> {
        let lists = self.lists();
        let named = |progress: &Arc<Progress>| {
            let (resource, rejected) = progress.rejected()?;
            let named = rejected.into_iter().map(move |(namespace, count)| {
                let namespace = String::from_utf8_lossy(&namespace).into_owned();
                RejectedObjects { resource: resource.clone(), namespace, count }
            });
            Some(named)
        };
        lists.iter().filter_map(named).flatten().collect()
    }

    /// Records configured namespaces that do not exist.
    pub(super) fn set_missing_namespaces(&self, namespaces: Vec<String>) {
        *self.missing_namespaces.lock() = namespaces;
    }

    /// Returns the list/watches of the first configuration, or `None` before it was received.
    pub(crate) fn first_lists(&self) -> Option<Vec<Status>> {
        let known = self.situation.borrow().number > 0;
        known.then(|| self.status())
    }

    /// Returns the list/watches.
    pub(super) fn lists(&self) -> Vec<Arc<Progress>> {
        let parts = self.progress.lock();
        parts.iter().flat_map(|part| part.iter().cloned()).collect()
    }
}
