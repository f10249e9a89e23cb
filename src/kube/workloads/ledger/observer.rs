//! The ledger as an observer of list/watches, its stores in the catalog, and its timer.

use std::sync::{Arc, MutexGuard};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::counters::LedgerOptions;
use super::families::RESOURCES;
use super::jobs::Job;
use super::kube_events::Event;
use super::objects::ScopeId;
use super::state::{Ledger, LedgerKind};
use crate::cache::Catalog;
use crate::kube::observed::ObservedObject;
use crate::kube::observer::ObjectObserver;
use crate::kube::shard::Shard;
use crate::kube::workloads::objects::{self, Workload};
use crate::telemetry::KubeMetrics;
use crate::util::lock::Lock;
use crate::util::waiting::until;
use crate::wire::view::decode;

/// A ledger that survives changes of the configuration.
pub struct SharedLedger {
    ledger: Lock<Ledger>,
    catalog: Catalog,
    /// Notifies of an earlier deadline.
    earlier: Notify,
}

impl SharedLedger {
    /// Returns a ledger that is served by the catalog.
    #[must_use]
    pub fn new(options: &LedgerOptions, catalog: &Catalog, metrics: &KubeMetrics) -> Arc<Self> {
        let ledger = Lock::new(Ledger::new(options, metrics));
        let shared = Arc::new(Self { ledger, catalog: catalog.clone(), earlier: Notify::new() });
        shared.register();
        shared
    }

    /// Serves other families. Those that were served before keep their counts.
    pub fn configure(&self, options: &LedgerOptions, metrics: &KubeMetrics) {
        if self.lock().configure(options, metrics) {
            self.register();
        }
    }

    fn register(&self) {
        for (resource, store) in RESOURCES.iter().zip(self.lock().stores()) {
            let schema = Arc::clone(store.schema());
            let is_served = !schema.families.is_empty();
            let gone = if is_served { Vec::new() } else { vec![resource.name.to_owned()] };
            self.catalog.exchange(is_served.then_some((schema, vec![store])), &gone);
        }
    }

    /// Serves the workloads of another shard, or of another stage of a shard change.
    pub fn set_shard(&self, shard: Shard) {
        self.lock().set_shard(shard);
    }

    /// Notes the workload of a pod.
    pub(in crate::kube::workloads) fn assign_pod(&self, uid: &[u8], workload: &Workload) {
        self.update(|ledger, now| ledger.assign_pod(uid, workload, now));
    }

    /// Replaces the labels of a pod and of its workload on the pod's own counters.
    pub(in crate::kube::workloads) fn relabel_pod(&self, uid: &[u8], labels: &[u8]) {
        self.lock().relabel_pod(uid, labels);
    }

    /// Notes the workload of an object that Kubernetes Events may be about.
    pub(in crate::kube::workloads) fn assign_owner(&self, uid: &[u8], workload: &Workload) {
        self.update(|ledger, now| ledger.resolve_events(uid, workload, now));
    }

    /// Notes that a workload exists or is gone.
    pub(in crate::kube::workloads) fn set_exists(&self, workload: &Workload, exists: bool) {
        self.update(|ledger, now| ledger.set_exists(workload, exists, now));
    }

    /// Removes counters when their time has come, until it is dropped. It wakes for nothing else.
    pub async fn expire_in_time(&self) {
        loop {
            let deadline = self.lock().deadline();
            tokio::select! {
                biased;
                () = until(deadline) => self.lock().expire(Instant::now()),
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Makes a change, and lets the timer know of an earlier deadline.
    pub(super) fn update(&self, change: impl FnOnce(&mut Ledger, Instant)) {
        let mut ledger = self.lock();
        let before = ledger.deadline();
        change(&mut ledger, Instant::now());
        let after = ledger.deadline();
        drop(ledger);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.earlier.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }
}

/// Returns the workload of the object with this UID, if known.
pub(in crate::kube::workloads) type WorkloadLookup =
    Arc<dyn Fn(&[u8]) -> Option<Workload> + Send + Sync>;

/// The observer of one list/watch.
pub(in crate::kube::workloads) struct LedgerObserver {
    ledger: Arc<SharedLedger>,
    kind: LedgerKind,
    workload_of: WorkloadLookup,
    scope: ScopeId,
}

impl LedgerObserver {
    pub(in crate::kube::workloads) fn new(
        ledger: &Arc<SharedLedger>,
        kind: LedgerKind,
        workload_of: &WorkloadLookup,
    ) -> Self {
        let scope = ledger.lock().add_scope();
        Self { ledger: Arc::clone(ledger), kind, workload_of: Arc::clone(workload_of), scope }
    }
}

impl ObjectObserver for LedgerObserver {
    fn begin_list(&self) {
        self.ledger.lock().begin_list(self.kind, self.scope);
    }

    fn end_list(&self, commit: bool) {
        self.ledger.update(|ledger, now| ledger.end_list(self.kind, self.scope, commit, now));
    }

    fn put(&self, object: &ObservedObject<'_>, fresh: bool) {
        let (ledger, scope) = (&self.ledger, self.scope);
        // A malformed object is reported when it is rendered.
        match self.kind {
            LedgerKind::Pod => {
                let Some(pod) = object.pod() else { return };
                ledger.update(|ledger, now| ledger.put_pod(scope, pod, now));
            }
            LedgerKind::Node => {
                let Ok(node) = decode(object.bytes) else { return };
                ledger.update(|ledger, now| ledger.put_node(scope, &node, fresh, now));
            }
            LedgerKind::Job => {
                let Ok(job) = decode::<Job<'_>>(object.bytes) else { return };
                let (_, owner) = objects::owner_facts("Job", &job.metadata, None);
                ledger.update(|ledger, now| ledger.put_job(scope, &job, &owner.workload, now));
            }
            LedgerKind::Event => {
                let Ok(event) = decode::<Event<'_>>(object.bytes) else { return };
                let workload = (self.workload_of)(event.involved.uid.as_bytes());
                ledger.update(|ledger, now| ledger.put_event(scope, &event, workload, now));
            }
        }
    }

    fn delete(&self, uid: &[u8], _: bool) {
        self.ledger.update(|ledger, now| ledger.delete(self.kind, uid, now));
    }

    fn malformed(&self, uid: &[u8], _: bool) {
        self.ledger.lock().keep(self.kind, self.scope, uid);
    }

    fn purge(&self) {
        self.close();
    }

    fn show(&self) {
        self.ledger.lock().show(self.kind, self.scope);
    }

    fn close(&self) {
        self.ledger.update(|ledger, now| ledger.forget(self.kind, self.scope, now));
    }
}

impl Drop for LedgerObserver {
    fn drop(&mut self) {
        self.ledger.update(|ledger, now| ledger.drop_scope(self.kind, self.scope, now));
    }
}
