//! The state machine: it passes each object to the rules of its kind.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;
use tokio::time::Instant;

use super::counters::{Counters, LedgerOptions};
use super::families::RESOURCES;
use super::jobs::{Job, JobRecord};
use super::kube_events::{Event, KubeEvents, RECORD_RETENTION};
use super::nodes::{Node, NodeRecord};
use super::objects::{Objects, ScopeId};
use super::pods::PodRecord;
use super::totals::Totals;
use crate::cache::Store;
use crate::kube::observed::Pod;
use crate::kube::shard::Shard;
use crate::kube::workloads::objects::Workload;
use crate::telemetry::KubeMetrics;
use crate::util::shrink::Shrink as _;

/// The minimum time between two removals of counters.
pub(super) const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);

/// The kind of the objects of a list/watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kube::workloads) enum LedgerKind {
    Pod,
    Job,
    Node,
    Event,
}

/// The events of a cluster.
pub(super) struct Ledger {
    pods: Objects<PodRecord>,
    jobs: Objects<JobRecord>,
    nodes: Objects<NodeRecord>,
    events: KubeEvents,
    totals: Totals,
    /// The names of containers.
    names: HashSet<Arc<str>>,
    options: LedgerOptions,
    /// The number of list/watches so far.
    scopes: ScopeId,
    next_expiry: Instant,
}

/// Calls a method of the objects of a kind.
macro_rules! of_kind {
    ($kind:expr, $ledger:ident.$method:ident($($argument:expr),*)) => {
        match $kind {
            LedgerKind::Pod => $ledger.pods.$method($($argument),*),
            LedgerKind::Job => $ledger.jobs.$method($($argument),*),
            LedgerKind::Node => $ledger.nodes.$method($($argument),*),
            LedgerKind::Event => $ledger.events.records.$method($($argument),*),
        }
    };
}

impl Ledger {
    /// Creates an empty ledger.
    pub(super) fn new(options: &LedgerOptions, metrics: &KubeMetrics) -> Self {
        Self {
            pods: Objects::default(),
            jobs: Objects::default(),
            nodes: Objects::default(),
            events: KubeEvents::default(),
            totals: Totals::new(options, metrics),
            names: HashSet::new(),
            options: options.clone(),
            scopes: 0,
            next_expiry: Instant::now(),
        }
    }

    /// Applies other options and returns whether they differ: there are other [stores](Self::stores) then.
    pub(super) fn configure(&mut self, options: &LedgerOptions, metrics: &KubeMetrics) -> bool {
        if self.options == *options {
            return false;
        }
        self.options = options.clone();
        for (resource, counters) in RESOURCES.iter().zip(self.totals.all()) {
            let mut new = Counters::new(resource, options, metrics);
            new.take_over(counters);
            *counters = new;
        }
        // Counters of families that were off do not exist yet.
        self.totals.resets += 1;
        self.declare();
        self.nodes.each(|node| node.declare(&mut self.totals));
        // There may be room for counters that were hidden.
        self.totals.show_all();
        self.pods.each(|pod| pod.reshard(&mut self.totals));
        true
    }

    /// Returns the stores with the series, in the order of [`RESOURCES`].
    pub(super) fn stores(&mut self) -> [Arc<Store>; 4] {
        self.totals.all().map(|counters| Arc::clone(counters.store()))
    }

    /// Returns the number of a new list/watch.
    pub(super) fn add_scope(&mut self) -> ScopeId {
        self.scopes += 1;
        self.scopes
    }

    /// Begins or continues a list.
    pub(super) fn begin_list(&mut self, kind: LedgerKind, scope: ScopeId) {
        of_kind!(kind, self.begin_list(scope));
    }

    /// Ends a list. If it is `complete`, objects that it does not contain are gone.
    pub(super) fn end_list(
        &mut self,
        kind: LedgerKind,
        scope: ScopeId,
        complete: bool,
        now: Instant,
    ) {
        let resets = self.totals.resets;
        of_kind!(kind, self.end_list(scope, complete, &mut self.totals, now));
        if self.totals.resets != resets {
            self.declare();
        }
    }

    /// Notes that a list/watch is served. One that is not served yet may have the same objects as another one.
    pub(super) fn show(&mut self, kind: LedgerKind, scope: ScopeId) {
        of_kind!(kind, self.show(scope));
    }

    /// Forgets the objects of a list/watch, which may still exist.
    pub(super) fn forget(&mut self, kind: LedgerKind, scope: ScopeId, now: Instant) {
        of_kind!(kind, self.forget(scope, &mut self.totals, now));
    }

    /// Drops a list/watch that has ended. Forgets its objects if it was never served.
    pub(super) fn drop_scope(&mut self, kind: LedgerKind, scope: ScopeId, now: Instant) {
        of_kind!(kind, self.drop_scope(scope, &mut self.totals, now));
    }

    /// Takes a new or changed pod. It counts for its workload as soon as that is [known](Ledger::assign_pod).
    pub(super) fn put_pod(&mut self, scope: ScopeId, pod: &Pod<'_>, now: Instant) {
        let Self { pods, totals, names, .. } = self;
        let (is_news, record) = pods.put(scope, &pod.metadata, false, totals, now);
        record.observe(pod, is_news, names, totals);
    }

    /// Notes the workload of a pod.
    pub(super) fn assign_pod(&mut self, uid: &[u8], workload: &Workload, now: Instant) {
        if let Some(record) = self.pods.get(uid) {
            record.assign(workload, &mut self.totals, now);
        }
        self.resolve_events(uid, workload, now);
    }

    /// Replaces the labels on a pod's own counters.
    pub(super) fn relabel_pod(&mut self, uid: &[u8], labels: &[u8]) {
        if let Some(record) = self.pods.get(uid) {
            record.relabel(labels, &mut self.totals);
        }
    }

    /// Notes the workload of an object that events may be about.
    pub(super) fn resolve_events(&mut self, uid: &[u8], workload: &Workload, now: Instant) {
        self.events.resolve(uid, workload, &mut self.totals, now);
    }

    /// Takes a new or changed event, with the workload of the object that it is about, if known.
    pub(super) fn put_event(
        &mut self,
        scope: ScopeId,
        event: &Event<'_>,
        workload: Option<Workload>,
        now: Instant,
    ) {
        let Self { events, pods, totals, .. } = self;
        let former = pods.former(event.involved.uid.as_bytes()).and_then(PodRecord::workload);
        events.put(scope, event, (workload, former), totals, now);
    }

    /// Takes a new or changed job, with the workload that it belongs to.
    pub(super) fn put_job(
        &mut self,
        scope: ScopeId,
        job: &Job<'_>,
        workload: &Workload,
        now: Instant,
    ) {
        let Self { jobs, totals, .. } = self;
        let (is_news, record) = jobs.put(scope, &job.metadata, false, totals, now);
        record.observe(job, workload, is_news, totals, now);
    }

    /// Takes a new or changed node, which is part of a list if `is_listed`.
    pub(super) fn put_node(
        &mut self,
        scope: ScopeId,
        node: &Node<'_>,
        is_listed: bool,
        now: Instant,
    ) {
        let Self { nodes, totals, .. } = self;
        let (_, record) = nodes.put(scope, &node.metadata, false, totals, now);
        record.observe(node, is_listed, totals);
    }

    /// Notes that an object still exists, whatever its state is.
    pub(super) fn keep(&mut self, kind: LedgerKind, scope: ScopeId, uid: &[u8]) {
        of_kind!(kind, self.keep(scope, uid));
    }

    /// Removes a deleted object.
    pub(super) fn delete(&mut self, kind: LedgerKind, uid: &[u8], now: Instant) {
        of_kind!(kind, self.delete(uid, &mut self.totals, now));
    }

    /// Notes that a workload exists or is gone. One with pods or jobs exists anyway.
    pub(super) fn set_exists(&mut self, workload: &Workload, exists: bool, now: Instant) {
        self.totals.set_exists(workload, exists, now);
    }

    /// Serves the workloads of another shard, or of another stage of a shard change. Counters of gained workloads start
    /// at 0.
    pub(super) fn set_shard(&mut self, shard: Shard) {
        if self.totals.set_shard(shard) {
            self.declare();
            self.nodes.each(|node| node.show(&mut self.totals));
            self.pods.each(|pod| pod.reshard(&mut self.totals));
        }
    }

    /// Lets the usual counters of all workloads begin to exist again.
    fn declare(&mut self) {
        self.jobs.each(|job| job.declare(&mut self.totals));
        self.pods.each(|pod| pod.settle(&mut self.totals));
    }

    /// Returns the time at which [`Ledger::expire`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Self { pods, jobs, nodes, events, totals, .. } = self;
        let retention = self.options.retention;
        let gone = [totals.gone_since(), pods.gone_since(), jobs.gone_since(), nodes.gone_since()];
        let gone = gone.into_iter().flatten().min().map(|since| since + retention);
        let of_events = events.records.gone_since();
        let of_events = of_events.map(|since| since + RECORD_RETENTION.min(retention));
        let removal = gone.into_iter().chain(of_events).min();
        let removal = removal.map(|at| at.max(self.next_expiry));
        removal.into_iter().chain(events.deadline()).min()
    }

    /// Removes the counters of workloads that have been gone for long, at most every [`EXPIRY_INTERVAL`], and counts
    /// events that wait no longer.
    pub(super) fn expire(&mut self, now: Instant) {
        self.events.end_waits(&mut self.totals, now);
        if now < self.next_expiry {
            return;
        }
        self.next_expiry = now + EXPIRY_INTERVAL;
        let retention = self.options.retention;
        self.totals.expire(now, retention);
        self.pods.expire(now, retention);
        self.jobs.expire(now, retention);
        self.nodes.expire(now, retention);
        self.events.records.expire(now, RECORD_RETENTION.min(retention));
        self.names.retain(|name| Arc::strong_count(name) > 1);
        self.names.shrink();
    }
}
