//! The ledger as an observer of list/watches, and its stores in the catalog.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::counters::LedgerOptions;
use super::families::RESOURCES;
use super::objects::ScopeId;
use super::state::{Ledger, LedgerKind};
use super::view::Job;
use crate::cache::Catalog;
use crate::kube::observed::ObservedObject;
use crate::kube::observer::{ObjectObserver, ObserverFactory};
use crate::kube::shard::Shard;
use crate::kube::workloads::objects::{self, Workload};
use crate::resources::Representation;
use crate::telemetry::KubeMetrics;
use crate::wire::view::decode;

/// A ledger that survives changes of the configuration.
pub struct SharedLedger {
    ledger: Mutex<Ledger>,
    catalog: Catalog,
}

impl SharedLedger {
    /// Returns a ledger that is served by the catalog.
    #[must_use]
    pub fn new(options: &LedgerOptions, catalog: &Catalog, metrics: &KubeMetrics) -> Arc<Self> {
        let ledger = Mutex::new(Ledger::new(options, metrics));
        let shared = Arc::new(Self { ledger, catalog: catalog.clone() });
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
        self.lock().assign_pod(uid, workload, Instant::now());
    }

    /// Notes that a workload exists or is gone.
    pub(in crate::kube::workloads) fn set_exists(&self, workload: &Workload, exists: bool) {
        self.lock().set_exists(workload, exists, Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates the observers of one kind.
pub(in crate::kube::workloads) struct LedgerFactory {
    pub(in crate::kube::workloads) ledger: Arc<SharedLedger>,
    pub(in crate::kube::workloads) kind: LedgerKind,
}

impl ObserverFactory for LedgerFactory {
    fn representation(&self) -> Representation {
        Representation::Object
    }

    fn observe(self: Arc<Self>) -> Arc<dyn ObjectObserver> {
        let scope = self.ledger.lock().add_scope();
        Arc::new(LedgerObserver { ledger: Arc::clone(&self.ledger), kind: self.kind, scope })
    }
}

/// The observer of one list/watch.
struct LedgerObserver {
    ledger: Arc<SharedLedger>,
    kind: LedgerKind,
    scope: ScopeId,
}

impl ObjectObserver for LedgerObserver {
    fn begin_list(&self) {
        self.ledger.lock().begin_list(self.kind, self.scope);
    }

    fn end_list(&self, commit: bool) {
        self.ledger.lock().end_list(self.kind, self.scope, commit, Instant::now());
    }

    fn put(&self, object: &ObservedObject<'_>, fresh: bool) {
        let (scope, now) = (self.scope, Instant::now());
        // A malformed object is reported when it is rendered.
        match self.kind {
            LedgerKind::Pod => {
                let Some(pod) = object.pod() else { return };
                self.ledger.lock().put_pod(scope, pod, now);
            }
            LedgerKind::Node => {
                let Ok(node) = decode(object.bytes) else { return };
                self.ledger.lock().put_node(scope, &node, fresh);
            }
            LedgerKind::Job => {
                let Ok(job) = decode::<Job<'_>>(object.bytes) else { return };
                let (_, owner) = objects::owner_facts("Job", &job.metadata, None);
                self.ledger.lock().put_job(scope, &job, &owner.workload, now);
            }
        }
    }

    fn delete(&self, uid: &[u8], _: bool) {
        self.ledger.lock().delete(self.kind, uid, Instant::now());
    }

    fn purge(&self) {
        self.close();
    }

    fn show(&self) {
        self.ledger.lock().show(self.kind, self.scope);
    }

    fn close(&self) {
        self.ledger.lock().forget(self.kind, self.scope, Instant::now());
    }
}
