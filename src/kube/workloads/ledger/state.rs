//! The state machine: it passes each object to the rules of its kind.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::counters::{Counters, LedgerOptions};
use super::families::{EVENTS, NODES, PODS, RESOURCES, WORKLOADS};
use super::jobs::JobRecord;
use super::kube_events::{Event, KubeEvents, RECORD_RETENTION};
use super::nodes::{NodeNames, NodeRecord};
use super::objects::{Objects, ScopeId, Seen, Sighting};
use super::pods::PodRecord;
use super::totals::Totals;
use super::view::{Job, Node};
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
    of_pods: Counters,
    of_nodes: Counters,
    node_names: NodeNames,
    totals: Totals,
    /// The names of containers.
    names: HashSet<Arc<str>>,
    options: LedgerOptions,
    /// The number of list/watches so far.
    scopes: ScopeId,
    next_expiry: Instant,
}

impl Ledger {
    /// Creates an empty ledger.
    pub(super) fn new(options: &LedgerOptions, metrics: &KubeMetrics) -> Self {
        let counters = |resource| Counters::new(resource, options, metrics);
        Self {
            pods: Objects::default(),
            jobs: Objects::default(),
            nodes: Objects::default(),
            events: KubeEvents::default(),
            of_pods: counters(&PODS),
            of_nodes: counters(&NODES),
            node_names: NodeNames::default(),
            totals: Totals::new(counters(&WORKLOADS), counters(&EVENTS)),
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
        let Totals { counters, events, .. } = &mut self.totals;
        let all = [events, &mut self.of_nodes, &mut self.of_pods, counters];
        for (resource, counters) in RESOURCES.iter().zip(all) {
            let mut new = Counters::new(resource, options, metrics);
            new.take_over(counters);
            *counters = new;
        }
        // Counters of families that were off do not exist yet.
        self.totals.resets += 1;
        self.declare();
        let Self { nodes, of_nodes, node_names, totals, .. } = self;
        nodes.each(|node| node.declare(of_nodes, node_names, totals.shard));
        true
    }

    /// Returns the stores with the series, in the order of [`RESOURCES`].
    pub(super) fn stores(&self) -> [Arc<Store>; 4] {
        [&self.totals.events, &self.of_nodes, &self.of_pods, &self.totals.counters]
            .map(|counters| Arc::clone(counters.store()))
    }

    /// Returns the number of a new list/watch.
    pub(super) fn add_scope(&mut self) -> ScopeId {
        self.scopes += 1;
        self.scopes
    }

    /// Begins or continues a list.
    pub(super) fn begin_list(&mut self, kind: LedgerKind, scope: ScopeId) {
        match kind {
            LedgerKind::Pod => self.pods.begin_list(scope),
            LedgerKind::Job => self.jobs.begin_list(scope),
            LedgerKind::Node => self.nodes.begin_list(scope),
            LedgerKind::Event => self.events.records.begin_list(scope),
        }
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
        let Self { pods, jobs, nodes, events, of_pods, of_nodes, node_names, totals, .. } = self;
        match kind {
            LedgerKind::Pod => pods.end_list(scope, complete, now, |pod| {
                pod.end(true);
                pod.settle(totals, of_pods);
                pod.leave(totals, of_pods, now);
            }),
            LedgerKind::Job => jobs.end_list(scope, complete, now, |job| {
                job.end(true, totals);
                job.leave(totals, now);
            }),
            LedgerKind::Node => {
                nodes.end_list(scope, complete, now, |node| node.leave(of_nodes, node_names));
            }
            LedgerKind::Event => events.records.end_list(scope, complete, now, |_| {}),
        }
        if self.totals.resets != resets {
            self.declare();
        }
    }

    /// Notes that a list/watch is served. One that is not served yet may have the same objects as another one.
    pub(super) fn show(&mut self, kind: LedgerKind, scope: ScopeId) {
        match kind {
            LedgerKind::Pod => self.pods.show(scope),
            LedgerKind::Job => self.jobs.show(scope),
            LedgerKind::Node => self.nodes.show(scope),
            LedgerKind::Event => self.events.records.show(scope),
        }
    }

    /// Forgets the objects of a list/watch, which may still exist.
    pub(super) fn forget(&mut self, kind: LedgerKind, scope: ScopeId, now: Instant) {
        let Self { pods, jobs, nodes, events, of_pods, of_nodes, node_names, totals, .. } = self;
        match kind {
            LedgerKind::Pod => pods.forget(scope, now, |pod| pod.leave(totals, of_pods, now)),
            LedgerKind::Job => jobs.forget(scope, now, |job| job.leave(totals, now)),
            LedgerKind::Node => nodes.forget(scope, now, |node| node.leave(of_nodes, node_names)),
            LedgerKind::Event => events.records.forget(scope, now, |_| {}),
        }
    }

    /// Drops a list/watch that has ended. Forgets its objects if it was never served.
    pub(super) fn drop_scope(&mut self, kind: LedgerKind, scope: ScopeId, now: Instant) {
        let Self { pods, jobs, nodes, events, of_pods, of_nodes, node_names, totals, .. } = self;
        match kind {
            LedgerKind::Pod => pods.drop_scope(scope, now, |pod| pod.leave(totals, of_pods, now)),
            LedgerKind::Job => jobs.drop_scope(scope, now, |job| job.leave(totals, now)),
            LedgerKind::Node => {
                nodes.drop_scope(scope, now, |node| node.leave(of_nodes, node_names));
            }
            LedgerKind::Event => events.records.drop_scope(scope, now, |_| {}),
        }
    }

    /// Takes a new or changed pod. It counts for its workload as soon as that is [known](Ledger::assign_pod).
    pub(super) fn put_pod(&mut self, scope: ScopeId, pod: &Pod<'_>, now: Instant) {
        let Self { pods, of_pods, totals, names, .. } = self;
        let Seen { sighting, record, displaced } = pods.put(scope, &pod.metadata, false);
        if let Some(mut displaced) = displaced {
            displaced.leave(totals, of_pods, now);
        }
        let names = std::cell::RefCell::new(names);
        record.observe(pod, sighting != Sighting::Existing, |name| {
            let mut names = names.borrow_mut();
            let known = names.get(name).cloned();
            known.unwrap_or_else(|| {
                let name: Arc<str> = name.into();
                names.insert(Arc::clone(&name));
                name
            })
        });
        record.name(pod, of_pods);
        record.settle(totals, of_pods);
    }

    /// Notes the workload of a pod.
    pub(super) fn assign_pod(&mut self, uid: &[u8], workload: &Workload, now: Instant) {
        let Self { pods, of_pods, totals, .. } = self;
        if let Some(record) = pods.get(uid) {
            record.assign(workload, totals, now);
            record.settle(totals, of_pods);
        }
        self.resolve_events(uid, workload, now);
    }

    /// Replaces the labels on a pod's own counters.
    pub(super) fn relabel_pod(&mut self, uid: &[u8], labels: &[u8]) {
        if let Some(record) = self.pods.get(uid) {
            record.relabel(labels, &mut self.of_pods);
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
        let Seen { sighting, record, displaced } = jobs.put(scope, &job.metadata, false);
        if let Some(mut displaced) = displaced {
            displaced.leave(totals, now);
        }
        record.observe(job, workload, sighting != Sighting::Existing, totals, now);
    }

    /// Takes a new or changed node, which is part of a list if `is_listed`.
    pub(super) fn put_node(&mut self, scope: ScopeId, node: &Node<'_>, is_listed: bool) {
        let Self { nodes, of_nodes, node_names, totals, .. } = self;
        let Seen { record, displaced, .. } = nodes.put(scope, &node.metadata, false);
        if let Some(mut displaced) = displaced {
            displaced.leave(of_nodes, node_names);
        }
        record.observe(node, is_listed, (of_nodes, node_names), totals.shard);
    }

    /// Notes that an object still exists, whatever its state is.
    pub(super) fn keep(&mut self, kind: LedgerKind, scope: ScopeId, uid: &[u8]) {
        match kind {
            LedgerKind::Pod => self.pods.keep(scope, uid),
            LedgerKind::Job => self.jobs.keep(scope, uid),
            LedgerKind::Node => self.nodes.keep(scope, uid),
            LedgerKind::Event => self.events.records.keep(scope, uid),
        }
    }

    /// Removes a deleted object.
    pub(super) fn delete(&mut self, kind: LedgerKind, uid: &[u8], now: Instant) {
        let Self { pods, jobs, nodes, events, of_pods, of_nodes, node_names, totals, .. } = self;
        match kind {
            LedgerKind::Pod => {
                if let Some(pod) = pods.remove(uid, now) {
                    pod.end(false);
                    pod.settle(totals, of_pods);
                    pod.leave(totals, of_pods, now);
                }
            }
            LedgerKind::Job => {
                if let Some(job) = jobs.remove(uid, now) {
                    job.end(false, totals);
                    job.leave(totals, now);
                }
            }
            LedgerKind::Node => {
                if let Some(node) = nodes.remove(uid, now) {
                    node.leave(of_nodes, node_names);
                }
            }
            LedgerKind::Event => {
                events.records.remove(uid, now);
            }
        }
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
            let Self { pods, nodes, of_pods, of_nodes, node_names, totals, .. } = self;
            nodes.each(|node| node.show(of_nodes, node_names, shard));
            pods.each(|pod| pod.reshard(totals, of_pods));
        }
    }

    /// Lets the usual counters of all workloads begin to exist again.
    fn declare(&mut self) {
        let Self { pods, jobs, of_pods, totals, .. } = self;
        jobs.each(|job| job.declare(totals));
        pods.each(|pod| pod.settle(totals, of_pods));
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
