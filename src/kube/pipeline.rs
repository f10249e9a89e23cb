//! The Kubernetes side as a whole: what is to be followed, and how it is doing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::client::{Client, ClientError};
use super::config::PipelineConfig;
use super::facts::{self, Facts};
use super::follow::following::Plan;
use super::follow::progress::{ListWatch, Progress, Pulse, Status};
use super::follow::reconcile::{Reconciler, Situation, Wanted};
use super::follow::watch::{Shared, Timing};
use super::follow::worker::{Pace, Worker};
use crate::cache::Catalog;
use crate::exposition::family::{Collect, Family};
use crate::telemetry::KubeMetrics;

/// The running list/watches. Dropping it ends them.
pub struct Pipeline {
    worker: Worker,
    wanted: watch::Sender<Wanted>,
    handle: PipelineHandle,
}

/// What can be asked of a running pipeline; cheap to clone.
#[derive(Clone)]
pub struct PipelineHandle {
    situation: watch::Receiver<Situation>,
    progress: Arc<Mutex<Vec<Arc<Progress>>>>,
    missing_namespaces: Arc<Mutex<Vec<String>>>,
}

impl Pipeline {
    /// Registers the stores of all resources with `catalog` and begins to fill them, on a thread of its
    /// own: one task for each resource, or for each resource in each namespace.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        client: &Client,
        config: &PipelineConfig,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        Self::follow(&Arc::new(client.clone()), config, catalog, metrics)
    }

    /// The same with a client that can be told from others when the [configuration
    /// changes](Pipeline::change).
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(
        client: &Arc<Client>,
        config: &PipelineConfig,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        let wanted = Wanted { number: 1, plans: plans(client, config) };
        Self::begin(wanted, &config.timing, catalog, metrics)
    }

    /// Follows nothing until the first [change](Pipeline::change), which has the number 1, and is not ready until then.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn idle(
        timing: &Timing,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        Self::begin(Wanted { number: 0, plans: Arc::default() }, timing, catalog, metrics)
    }

    /// The same as [`Pipeline::start`] on the event loop of the caller, and so in its time.
    ///
    /// # Errors
    /// None.
    #[cfg(any(test, fuzzing))]
    pub(super) fn start_here(
        client: &Client,
        config: &PipelineConfig,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        let wanted = Wanted { number: 1, plans: plans(&Arc::new(client.clone()), config) };
        Self::on(wanted, &config.timing, catalog, metrics, |reconciler, pace| {
            Ok(Worker::here(reconciler.run(), pace))
        })
    }

    fn begin(
        wanted: Wanted,
        timing: &Timing,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        Self::on(wanted, timing, catalog, metrics, |reconciler, pace| {
            Worker::start(reconciler.run(), pace)
        })
    }

    fn on(
        wanted: Wanted,
        timing: &Timing,
        catalog: &Catalog,
        metrics: &KubeMetrics,
        launch: impl FnOnce(Reconciler, Arc<Pace>) -> std::io::Result<Worker>,
    ) -> Result<Self, ClientError> {
        let pace = Arc::new(Pace::new(timing.gather));
        let (wanted, orders) = watch::channel(wanted);
        let (sender, situation) = watch::channel(Situation::default());
        let progress = Arc::default();
        let reconciler = Reconciler::new(
            catalog.clone(),
            metrics.clone(),
            Arc::clone(&pace),
            Arc::new(Shared::new(timing)),
            orders,
            sender,
            Arc::clone(&progress),
        );
        let worker = launch(reconciler, pace).map_err(ClientError::Thread)?;
        let missing_namespaces = Arc::default();
        let handle = PipelineHandle { situation, progress, missing_namespaces };
        Ok(Self { worker, wanted, handle })
    }

    /// Follows this from here on; the number of the change is returned, for
    /// [`PipelineHandle::is_in_force`]. Kinds for which nothing has changed (the client neither: it must
    /// be the same `Arc`) go on untouched, others are listed aside, one after the other, and swapped in
    /// when they are complete. Until then the old state of a kind stays and is kept up to date. A later
    /// change takes the place of an earlier one that is still on its way.
    pub fn change(&self, client: &Arc<Client>, config: &PipelineConfig) -> u64 {
        let plans = plans(client, config);
        self.wanted.send_modify(|wanted| *wanted = Wanted { number: wanted.number + 1, plans });
        self.worker.rouse();
        self.wanted.borrow().number
    }

    /// What can be asked of it.
    #[must_use]
    pub fn handle(&self) -> PipelineHandle {
        self.handle.clone()
    }

    /// Ends all list/watches and waits until their connections are given up. The stores keep what they
    /// have.
    pub async fn stop(self) {
        self.worker.stop().await;
    }
}

fn plans(client: &Arc<Client>, config: &PipelineConfig) -> Arc<[Plan]> {
    config.resources.iter().map(|watched| Plan::new(client, config, watched)).collect()
}

/// What own metrics say of the side.
impl Collect for PipelineHandle {
    fn collect(&self, out: &mut Vec<Family>) {
        out.extend(self.facts().families());
        let lists: Vec<Arc<Progress>> = self.progress().clone();
        let totals: Vec<_> = lists.iter().filter_map(|progress| progress.totals()).collect();
        if !totals.is_empty() {
            out.push(facts::totals(&totals));
        }
    }
}

impl PipelineHandle {
    /// Whether every list/watch had a complete state once, or the server has refused to give it one.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let (ready, number) = {
            let situation = self.situation.borrow();
            (situation.ready, situation.number)
        };
        // The situation is told a moment after the last of them has settled.
        ready || number > 0 && self.progress().iter().all(|progress| progress.is_settled())
    }

    /// Waits until [`PipelineHandle::is_ready`], or until the pipeline has ended.
    pub async fn ready(&self) {
        let mut situation = self.situation.clone();
        // An error means that nobody is left to settle anything.
        let _ = situation.wait_for(|situation| situation.ready).await;
    }

    /// Whether what is served is what the change of this number asked for; the start is number 1. Kinds
    /// that the server refuses to list do not count, unless an older state of them is still being served.
    #[must_use]
    pub fn is_in_force(&self, number: u64) -> bool {
        let situation = self.situation.borrow();
        situation.number >= number && situation.pending.is_empty()
    }

    /// Whether the change of this number was heard of: what is shown of what is followed is as it says.
    pub(super) fn is_taken(&self, number: u64) -> bool {
        self.situation.borrow().number >= number
    }

    /// Whether it is in force, but for kinds that the server refuses to list.
    pub(super) fn is_in_force_where_allowed(&self, number: u64) -> bool {
        let situation = self.situation.borrow();
        situation.number >= number && situation.refused
    }

    /// The kinds for which the latest change is not in force yet.
    #[must_use]
    pub fn pending(&self) -> Arc<[String]> {
        Arc::clone(&self.situation.borrow().pending)
    }

    /// What has changed until now is known to this handle.
    pub(super) fn mark_unchanged(&mut self) {
        self.situation.mark_unchanged();
    }

    /// Waits until something about [`PipelineHandle::is_in_force`] has changed since the last call on
    /// this handle; for ever when the pipeline has ended.
    pub async fn changed(&mut self) {
        if self.situation.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// All list/watches, in the order of the configuration; those that wait for their turn are not among
    /// them.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        self.progress().iter().map(|progress| progress.status()).collect()
    }

    /// What changes of each list/watch all the time.
    pub(crate) fn pulses(&self) -> Vec<Pulse> {
        self.progress().iter().map(|progress| progress.pulse()).collect()
    }

    /// All that is known of the side now.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let lists: Vec<Arc<Progress>> = self.progress().clone();
        let ready = self.is_ready();
        // What takes a while is not done under the lock.
        let lists: Vec<ListWatch> = lists.iter().map(|progress| progress.facts()).collect();
        let missing =
            self.missing_namespaces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // One that came to be later has objects.
        let is_empty = |namespace: &String| {
            let mut own =
                lists.iter().filter(|list| list.status.namespace.as_ref() == Some(namespace));
            own.all(|list| list.status.objects == 0)
        };
        let missing_namespaces = missing.into_iter().filter(is_empty).collect();
        Facts { lists, ready, pending: self.pending(), missing_namespaces }
    }

    /// Objects that have no series because of a budget: the kind as own metrics call it, the namespace, how many.
    pub(crate) fn left_out(&self) -> Vec<(String, String, u64)> {
        let lists: Vec<Arc<Progress>> = self.progress().clone();
        let named = |progress: &Arc<Progress>| {
            let (resource, left_out) = progress.left_out()?;
            let named = left_out.into_iter().map(move |(namespace, count)| {
                (resource.clone(), String::from_utf8_lossy(&namespace).into_owned(), count)
            });
            Some(named)
        };
        lists.iter().filter_map(named).flatten().collect()
    }

    /// These namespaces are to be followed, and are not there.
    pub(super) fn note_missing(&self, namespaces: Vec<String>) {
        *self.missing_namespaces.lock().unwrap_or_else(PoisonError::into_inner) = namespaces;
    }

    /// All list/watches of the first configuration; `None` before they are known.
    pub(crate) fn first_lists(&self) -> Option<Vec<Status>> {
        let known = self.situation.borrow().number > 0;
        known.then(|| self.status())
    }

    fn progress(&self) -> MutexGuard<'_, Vec<Arc<Progress>>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
