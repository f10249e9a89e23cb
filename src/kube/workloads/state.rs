//! The pods, their owners and their totals, over all served list/watches.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::families::{RESOURCE, Row, Subject};
use super::ledger::SharedLedger;
use super::objects::{OwnerFacts, PodFacts, PodOwner, Uid, Workload, WorkloadId};
use super::options::WorkloadOptions;
use super::pod_labels::{self, LabelValues, PodLabels};
use super::tally::{Contribution, Tally};
use crate::cache::{Rendered, Schema, Store};
use crate::exposition::budget::{Action, Limit};
use crate::kube::observer::ObjectSeries;
use crate::kube::shard::{Ownership, Shard};
use crate::pods::{Pod, PodIndex, PodWorkload};
use crate::telemetry::KubeMetrics;
use crate::util::shrink::Shrink as _;
use crate::util::work_counter;

#[cfg(test)]
mod tests;

/// A pod or owner. More than one list/watch may have it while a configuration is applied.
#[derive(Debug)]
struct Held<T> {
    facts: Arc<T>,
    holders: u32,
}

/// A pod, and the workload that it counts for.
#[derive(Debug)]
struct PodEntry {
    held: Held<PodFacts>,
    workload: Option<Workload>,
    /// Its labels on its series, within the budget.
    labels: Box<[u8]>,
}

/// An object that owns pods, and the pods that refer to it.
#[derive(Debug, Default)]
struct OwnerEntry {
    held: Option<Held<OwnerFacts>>,
    pods: HashSet<Uid>,
    /// Its labels on the series of its pods, within the budget.
    labels: Box<[u8]>,
}

/// A workload with pods, or whose object exists.
#[derive(Debug, Default)]
struct WorkloadEntry {
    pods: Tally,
    /// The objects with this name, usually one, with the number of pods each is meant to have.
    objects: BTreeMap<Uid, Option<i64>>,
    /// The UIDs by which pods refer to it, with the number of pods.
    uids: BTreeMap<Uid, u64>,
}

impl WorkloadEntry {
    /// Returns the UID that decides which shard serves it: that of its object, if known.
    fn uid(&self) -> Option<&Uid> {
        self.objects.keys().next_back().or_else(|| self.uids.keys().next_back())
    }
}

/// The maximum number of refused rows that are rendered again at a time although there is no room for them.
const MAX_TOO_LARGE: u32 = 8;

/// The subject of a row. The order of the variants decides which rows a limit leaves out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RowKey {
    Pod(Uid),
    Workload(Arc<WorkloadId>),
    Namespace(Arc<str>),
    Node(Arc<str>),
}

/// The state behind the rows of all subjects.
pub(super) struct State {
    /// Counts events by the workloads of pods.
    ledger: Arc<SharedLedger>,
    /// The index of the senders of StatsD lines, with the number of this writer.
    senders: Option<(Arc<PodIndex>, u64)>,
    pods: HashMap<Uid, PodEntry>,
    owners: HashMap<Uid, OwnerEntry>,
    workloads: HashMap<Arc<WorkloadId>, WorkloadEntry>,
    /// The totals of namespaces and nodes.
    totals: HashMap<RowKey, Tally>,
    /// The rows to render again.
    dirty: HashSet<RowKey>,
    /// The series of the served list/watches of pods, by namespace; those of all namespaces have an empty key.
    series: HashMap<Box<str>, Vec<Arc<dyn ObjectSeries>>>,
    /// The pods of each workload, by the UID of its object, if its labels are shown on their series.
    members: HashMap<Uid, HashSet<Uid>>,
    label_values: LabelValues,
    rows: Rows,
}

/// The rows in their stores.
struct Rows {
    options: WorkloadOptions,
    metrics: KubeMetrics,
    shard: Shard,
    /// The store of each [`Subject`].
    stores: [Arc<Store>; 4],
    /// The rows that are left out because of the budget of series.
    refused: HashSet<RowKey>,
    /// The refused rows that are to be rendered again when there is room.
    retries: Vec<RowKey>,
    scratch: Rendered,
}

impl State {
    pub(super) fn new(
        options: &WorkloadOptions,
        metrics: &KubeMetrics,
        ledger: &Arc<SharedLedger>,
        senders: Option<&Arc<PodIndex>>,
        shard: Shard,
    ) -> Self {
        let rows = Rows {
            options: options.clone(),
            metrics: metrics.clone(),
            shard,
            stores: stores(options),
            refused: HashSet::new(),
            retries: Vec::new(),
            scratch: Rendered::default(),
        };
        Self {
            ledger: Arc::clone(ledger),
            senders: senders.map(|index| (Arc::clone(index), index.writer())),
            pods: HashMap::new(),
            owners: HashMap::new(),
            workloads: HashMap::new(),
            totals: HashMap::new(),
            dirty: HashSet::new(),
            series: HashMap::new(),
            members: HashMap::new(),
            label_values: LabelValues::new(&options.ledger.budget, metrics),
            rows,
        }
    }

    /// Renders all rows anew with other options, into other stores. The ledger may have begun to count the pods that are known.
    pub(super) fn configure(&mut self, options: &WorkloadOptions) {
        let relabels = *self.pod_labels() != options.pod_labels;
        self.rows.options = options.clone();
        self.rows.stores = stores(options);
        let mut values = LabelValues::new(&options.ledger.budget, &self.rows.metrics);
        for owner in self.owners.values_mut() {
            owner.labels = Box::default();
            let facts = owner.held.as_ref().map(|held| &held.facts);
            values.replace(&mut owner.labels, facts.map_or(&[], |facts| &facts.labels));
        }
        let mut assigned = Vec::new();
        for (uid, pod) in &mut self.pods {
            pod.labels = Box::default();
            values.replace(&mut pod.labels, &pod.held.facts.labels);
            assigned.extend(pod.workload.clone().map(|workload| (Arc::clone(uid), workload)));
        }
        self.label_values = values;
        self.members.clear();
        assigned.iter().for_each(|(uid, workload)| self.note_member(uid, workload));
        if relabels {
            self.pods.keys().for_each(|uid| self.relabel(uid));
        }
        self.render_all();
    }

    /// Returns the stores of the rows.
    pub(super) fn stores(&self) -> &[Arc<Store>; 4] {
        &self.rows.stores
    }

    /// Adds or changes a pod. `is_new` states whether the list/watch did not have it before.
    pub(super) fn put_pod(&mut self, uid: &Uid, facts: Arc<PodFacts>, is_new: bool) {
        let mut old = self.pods.remove(uid);
        let holders = old.as_ref().map_or(0, |old| old.held.holders) + u32::from(is_new);
        let mut labels =
            old.as_mut().map(|old| std::mem::take(&mut old.labels)).unwrap_or_default();
        if self.label_values.replace(&mut labels, &facts.labels) {
            self.dirty.insert(RowKey::Pod(Arc::clone(uid)));
        }
        match old {
            Some(mut old) if old.held.facts == facts => {
                (old.held, old.labels) = (Held { facts, holders }, labels);
                self.pods.insert(Arc::clone(uid), old);
                self.touch_pod(uid);
                return;
            }
            old => self.withdraw(uid, old),
        }
        self.count(uid, &facts, true);
        if let PodOwner::Controller(owner) = &facts.owner {
            self.owners.entry(Arc::clone(owner)).or_default().pods.insert(Arc::clone(uid));
        }
        let workload = self.resolve(&facts.owner, &facts.namespace);
        self.assign(uid, workload.as_ref(), &facts.contribution);
        self.publish_sender(uid, &facts, workload.as_ref());
        let held = Held { facts, holders };
        self.pods.insert(Arc::clone(uid), PodEntry { held, workload, labels });
    }

    /// Adds a pod to the totals of its namespace and node if it `is_added`, else removes it.
    fn count(&mut self, uid: &Uid, pod: &PodFacts, is_added: bool) {
        self.dirty.insert(RowKey::Pod(Arc::clone(uid)));
        let node = Some(&pod.node).filter(|node| !node.is_empty());
        let node = node.map(|node| RowKey::Node(Arc::clone(node)));
        for row_key in node.into_iter().chain([RowKey::Namespace(Arc::clone(&pod.namespace))]) {
            let total = self.totals.entry(row_key.clone()).or_default();
            total.change(&pod.contribution, is_added);
            if total.is_empty() {
                self.totals.remove(&row_key);
                self.totals.shrink();
            }
            self.dirty.insert(row_key);
        }
    }

    /// Enters a pod into the index of senders.
    fn publish_sender(&self, uid: &Uid, pod: &PodFacts, workload: Option<&Workload>) {
        let (Some((index, writer)), Some(sender)) = (&self.senders, &pod.sender) else { return };
        let known = workload.map(|workload| PodWorkload {
            name: workload.id.name.clone(),
            kind: workload.id.kind.clone(),
        });
        let sender = Pod {
            uid: String::from_utf8_lossy(uid).into(),
            namespace: Arc::clone(&pod.namespace),
            name: pod.name.clone(),
            node: Arc::clone(&pod.node),
            workload: known.or_else(|| sender.implied.clone()),
            addresses: sender.addresses.clone(),
            node_addresses: sender.node_addresses.clone(),
            containers: sender.containers.clone(),
            started: sender.started,
            is_finished: sender.is_finished,
        };
        index.put(*writer, sender);
    }

    /// Removes a pod from one list/watch.
    pub(super) fn remove_pod(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.held.holders -= 1;
        if entry.held.holders == 0 {
            let old = self.pods.remove(uid);
            self.pods.shrink();
            self.withdraw(uid, old);
            if let Some((index, writer)) = &self.senders {
                index.remove(*writer, &String::from_utf8_lossy(uid));
            }
        }
    }

    /// Removes a pod from its totals.
    fn withdraw(&mut self, uid: &Uid, old: Option<PodEntry>) {
        let Some(PodEntry { held: Held { facts, .. }, workload, mut labels }) = old else { return };
        self.label_values.replace(&mut labels, b"");
        self.count(uid, &facts, false);
        self.unassign(uid, workload.as_ref(), &facts.contribution);
        if let PodOwner::Controller(owner) = &facts.owner
            && let Some(entry) = self.owners.get_mut(owner)
        {
            entry.pods.remove(uid);
            entry.pods.shrink();
            if entry.pods.is_empty() && entry.held.is_none() {
                self.owners.remove(owner);
                self.owners.shrink();
            }
        }
    }

    /// Returns the workload of a pod, if its owners are known. An owner in another namespace is not one.
    fn resolve(&self, owner: &PodOwner, namespace: &str) -> Option<Workload> {
        match owner {
            PodOwner::Workload(workload) => Some(workload.clone()),
            PodOwner::Controller(owner) => {
                let held = self.owners.get(owner)?.held.as_ref()?;
                let workload = &held.facts.workload;
                (*workload.id.namespace == *namespace).then(|| workload.clone())
            }
        }
    }

    /// Counts a pod for its workload.
    fn assign(&mut self, pod_uid: &Uid, workload: Option<&Workload>, pod: &Contribution) {
        let Some(workload) = workload else { return };
        self.note_member(pod_uid, workload);
        let Workload { id, uid } = workload;
        let entry = self.workloads.entry(Arc::clone(id)).or_default();
        entry.pods.change(pod, true);
        *entry.uids.entry(Arc::clone(uid)).or_default() += 1;
        self.dirty.insert(RowKey::Workload(Arc::clone(id)));
    }

    /// Notes the workload of a pod for the ledger, and for the labels on the pod's series.
    fn note_member(&mut self, pod: &Uid, workload: &Workload) {
        self.ledger.assign_pod(pod, workload);
        if !self.pod_labels().of_workload.is_empty() {
            let members = self.members.entry(Arc::clone(&workload.uid)).or_default();
            members.insert(Arc::clone(pod));
        }
    }

    /// Reverts [`State::assign`].
    fn unassign(&mut self, pod_uid: &Uid, workload: Option<&Workload>, pod: &Contribution) {
        let Some(Workload { id, uid }) = workload else { return };
        if let Some(members) = self.members.get_mut(uid) {
            members.remove(pod_uid);
            members.shrink();
            if members.is_empty() {
                self.members.remove(uid);
                self.members.shrink();
            }
        }
        let Some(entry) = self.workloads.get_mut(id) else { return };
        entry.pods.change(pod, false);
        if let Some(pods) = entry.uids.get_mut(uid) {
            *pods -= 1;
            if *pods == 0 {
                entry.uids.remove(uid);
            }
        }
        self.dirty.insert(RowKey::Workload(Arc::clone(id)));
    }

    /// Adds or changes an owner. `is_new` states whether the list/watch did not have it before.
    pub(super) fn put_owner(&mut self, uid: &Uid, facts: Arc<OwnerFacts>, is_new: bool) {
        let entry = self.owners.entry(Arc::clone(uid)).or_default();
        let old = entry.held.take();
        let holders = old.as_ref().map_or(0, |old| old.holders) + u32::from(is_new);
        let is_same = old.as_ref().is_some_and(|old| old.facts == facts);
        let is_workload_same = old.as_ref().is_some_and(|old| old.facts.workload == facts.workload);
        let held = Held { facts: Arc::clone(&facts), holders };
        entry.held = Some(held);
        self.set_labels(uid, &facts.labels);
        if is_same {
            return;
        }
        self.withdraw_owner(uid, old.map(|old| old.facts));
        if facts.is_workload {
            let id = &facts.workload.id;
            let workload = self.workloads.entry(Arc::clone(id)).or_default();
            workload.objects.insert(Arc::clone(uid), facts.desired);
            self.dirty.insert(RowKey::Workload(Arc::clone(id)));
        }
        self.ledger.assign_owner(uid, &facts.workload);
        if !is_workload_same {
            self.resolve_pods_of(uid);
        }
    }

    /// Compares the labels on a pod's series, which may have been rendered anew, with those of its workload again.
    pub(super) fn touch_pod(&mut self, uid: &Uid) {
        if !self.pod_labels().is_empty() {
            self.dirty.insert(RowKey::Pod(Arc::clone(uid)));
        }
    }

    /// Removes an owner from one list/watch.
    pub(super) fn remove_owner(&mut self, uid: &Uid) {
        let Some(entry) = self.owners.get_mut(uid) else { return };
        let Some(held) = &mut entry.held else { return };
        held.holders -= 1;
        if held.holders > 0 {
            return;
        }
        let old = entry.held.take().map(|held| held.facts);
        self.set_labels(uid, b"");
        self.withdraw_owner(uid, old);
        self.resolve_pods_of(uid);
        if self.owners.get(uid).is_some_and(|entry| entry.pods.is_empty()) {
            self.owners.remove(uid);
            self.owners.shrink();
        }
    }

    /// Removes the object of a workload.
    fn withdraw_owner(&mut self, uid: &Uid, old: Option<Arc<OwnerFacts>>) {
        let Some(old) = old.filter(|old| old.is_workload) else { return };
        let id = &old.workload.id;
        if let Some(workload) = self.workloads.get_mut(id) {
            workload.objects.remove(uid);
        }
        self.dirty.insert(RowKey::Workload(Arc::clone(id)));
    }

    /// Returns the workload of a pod, of an object that owns pods, or of one between them.
    pub(super) fn workload_of(&self, uid: &[u8]) -> Option<Workload> {
        if let Some(pod) = self.pods.get(uid) {
            return pod.workload.clone();
        }
        Some(self.owners.get(uid)?.held.as_ref()?.facts.workload.clone())
    }

    /// Finds the workloads of an owner's pods again.
    fn resolve_pods_of(&mut self, owner: &Uid) {
        let Some(entry) = self.owners.get(owner) else { return };
        for uid in entry.pods.iter().cloned().collect::<Vec<_>>() {
            work_counter::add(1);
            let Some(pod) = self.pods.get(&uid) else { continue };
            let (facts, old) = (Arc::clone(&pod.held.facts), pod.workload.clone());
            let new = self.resolve(&facts.owner, &facts.namespace);
            if new == old {
                continue;
            }
            self.unassign(&uid, old.as_ref(), &facts.contribution);
            self.assign(&uid, new.as_ref(), &facts.contribution);
            self.publish_sender(&uid, &facts, new.as_ref());
            if let Some(pod) = self.pods.get_mut(&uid) {
                pod.workload = new;
            }
            self.dirty.insert(RowKey::Pod(uid));
        }
    }

    /// Changes the labels that a workload's object has on the series of its pods.
    fn set_labels(&mut self, owner: &Uid, labels: &[u8]) {
        let Some(entry) = self.owners.get_mut(owner) else { return };
        if self.label_values.replace(&mut entry.labels, labels) {
            self.dirty
                .extend(self.members.get(owner).into_iter().flatten().cloned().map(RowKey::Pod));
        }
    }

    /// Writes the labels of a pod with these labels of its own.
    pub(super) fn write_labels(
        &self,
        labels: &PodLabels,
        own: &[u8],
        (owner, namespace): (&PodOwner, &str),
        out: &mut Vec<u8>,
    ) {
        let workload = self.resolve(owner, namespace);
        let workload = workload.as_ref().map(|workload| (workload, self.labels_of(workload)));
        labels.write(own, workload, out);
    }

    /// Returns the labels of a workload's object on the series of its pods.
    fn labels_of(&self, workload: &Workload) -> &[u8] {
        self.owners.get(&workload.uid).map_or(&[], |owner| &owner.labels)
    }

    /// Returns the labels on the series of pods.
    pub(super) fn pod_labels(&self) -> &PodLabels {
        &self.rows.options.pod_labels
    }

    /// Adds the series of a list/watch that is served.
    pub(super) fn add_series(&mut self, series: Option<&Arc<dyn ObjectSeries>>) {
        if let Some(series) = series {
            self.series.entry(series.namespace().into()).or_default().push(Arc::clone(series));
        }
    }

    /// Removes the series of a list/watch that is not served any more.
    pub(super) fn remove_series(&mut self, series: Option<&Arc<dyn ObjectSeries>>) {
        let Some(series) = series else { return };
        if let Some(all) = self.series.get_mut(series.namespace()) {
            all.retain(|known| !Arc::ptr_eq(known, series));
        }
    }

    /// Brings the labels on a pod's series in line with its workload.
    fn relabel(&self, uid: &Uid) {
        let Some(PodEntry { held: Held { facts, .. }, labels: own, .. }) = self.pods.get(uid)
        else {
            return;
        };
        let mut labels = Vec::new();
        self.write_labels(self.pod_labels(), own, (&facts.owner, &facts.namespace), &mut labels);
        let of_pod = ["", &*facts.namespace].into_iter().filter_map(|name| self.series.get(name));
        of_pod.flatten().for_each(|series| series.relabel(uid, &facts.namespace, &labels));
        self.ledger.relabel_pod(uid, &labels);
    }

    /// Serves the rows of another shard.
    pub(super) fn set_shard(&mut self, shard: Shard) {
        if self.rows.shard == shard {
            return;
        }
        self.rows.shard = shard;
        self.render_all();
    }

    fn render_all(&mut self) {
        self.dirty.extend(self.pods.keys().cloned().map(RowKey::Pod));
        self.dirty.extend(self.workloads.keys().cloned().map(RowKey::Workload));
        self.dirty.extend(self.totals.keys().cloned());
        self.flush();
    }

    /// Renders the rows that have changed, and those that were refused and have room now.
    pub(super) fn flush(&mut self) {
        self.render_dirty();
        let mut too_large = 0;
        while !self.rows.refused.is_empty() && too_large < MAX_TOO_LARGE && self.rows.has_room() {
            let Rows { refused, retries, .. } = &mut self.rows;
            if retries.is_empty() {
                retries.extend(refused.iter().cloned());
                retries.sort_unstable();
            }
            if let Some(row) = retries.pop().filter(|row| refused.contains(row)) {
                self.dirty.insert(row.clone());
                self.render_dirty();
                too_large += u32::from(self.rows.refused.contains(&row));
            }
        }
    }

    fn render_dirty(&mut self) {
        let mut dirty = Vec::from_iter(std::mem::take(&mut self.dirty));
        if self.rows.options.max_series > 0 {
            // So that two replicas leave out the same rows.
            dirty.sort_unstable();
        }
        if !self.pod_labels().is_empty() {
            for row_key in &dirty {
                if let RowKey::Pod(uid) = row_key {
                    self.relabel(uid);
                }
            }
        }
        for row_key in &dirty {
            match row_key {
                RowKey::Pod(uid) => self.render_pod(uid, row_key),
                RowKey::Workload(id) => self.render_workload(id, row_key),
                RowKey::Namespace(name) | RowKey::Node(name) => {
                    let (subject, label, namespace) = match row_key {
                        RowKey::Node(_) => (Subject::Node, "node", ""),
                        _ => (Subject::Namespace, "namespace", &**name),
                    };
                    let (pods, labels) = (self.totals.get(row_key), [(label, &**name)]);
                    let row = pods.map(|pods| Row::new(subject, namespace, &labels, pods));
                    self.rows.set(subject, name.as_bytes(), name.as_bytes(), row, row_key);
                }
            }
        }
    }

    fn render_pod(&mut self, uid: &Uid, row_key: &RowKey) {
        // A configuration without rows of pods has not kept the name.
        let is_row = |pod: &&PodEntry| !pod.held.facts.is_hidden && !pod.held.facts.name.is_empty();
        let entry = self.pods.get(uid).filter(is_row);
        let Some((entry, workload)) = entry.and_then(|pod| Some((pod, pod.workload.as_ref()?)))
        else {
            return self.rows.set(Subject::Pod, uid, uid, None, row_key);
        };
        let pod = &entry.held.facts;
        let mut more = Vec::new();
        pod_labels::push(&mut more, &entry.labels);
        pod_labels::push(&mut more, self.labels_of(workload));
        let labels = [
            ("namespace", &*pod.namespace),
            ("pod", &*pod.name),
            ("uid", std::str::from_utf8(uid).unwrap_or_default()),
            ("node", &*pod.node),
            ("workload", &*workload.id.name),
            ("workload_type", &*workload.id.kind),
        ];
        let none = Tally::default();
        let row = Row::new(Subject::Pod, &pod.namespace, &labels, &none);
        self.rows.set(Subject::Pod, uid, uid, Some(Row { more: &more, ..row }), row_key);
    }

    fn render_workload(&mut self, id: &Arc<WorkloadId>, row_key: &RowKey) {
        let key = format!("{}/{}/{}", id.namespace, id.kind, id.name);
        let entry = self.workloads.get(id);
        let entry = entry.and_then(|entry| Some((entry, entry.uid()?)));
        let labels =
            [("namespace", &*id.namespace), ("workload", &*id.name), ("workload_type", &*id.kind)];
        let row = entry.map(|(entry, _)| Row {
            desired: entry.objects.values().next_back().copied().flatten(),
            ..Row::new(Subject::Workload, &id.namespace, &labels, &entry.pods)
        });
        let uid = entry.map_or_else(|| Arc::from([]), |(_, uid)| Arc::clone(uid));
        let workload = Workload { id: Arc::clone(id), uid };
        self.ledger.set_exists(&workload, entry.is_some());
        self.rows.set(Subject::Workload, key.as_bytes(), &workload.uid, row, row_key);
        if entry.is_none() {
            self.workloads.remove(id);
            self.workloads.shrink();
        }
    }
}

/// Creates a store of the families for each [`Subject`].
fn stores(options: &WorkloadOptions) -> [Arc<Store>; 4] {
    let families = options.families.iter().map(|family| family.header()).collect();
    let schema = Arc::new(Schema { resource: RESOURCE.to_owned(), families });
    [(); 4].map(|()| Arc::new(Store::new(Arc::clone(&schema))))
}

impl Rows {
    /// Returns the number of series of all rows.
    fn series(&self) -> u64 {
        self.stores.iter().map(|store| store.series()).sum()
    }

    /// Returns whether the rows have fewer series than they may have.
    fn has_room(&self) -> bool {
        self.series() < self.options.max_series
    }

    /// Writes a row, or removes it if it does not exist or belongs to another shard. `owner` decides about the shard.
    fn set(
        &mut self,
        subject: Subject,
        key: &[u8],
        owner: &[u8],
        row: Option<Row<'_>>,
        row_key: &RowKey,
    ) {
        let was_refused = !self.refused.is_empty() && self.refused.remove(row_key);
        self.refused.shrink();
        let store = &self.stores[subject as usize];
        let WorkloadOptions { families, max_series, .. } = &self.options;
        let is_on = families.iter().any(|family| family.subject == subject);
        let is_shown = matches!(self.shard.ownership(owner), Ownership::Kept | Ownership::Lost);
        let Some(row) = row.filter(|_| is_shown && is_on) else {
            store.delete(key);
            return;
        };
        row.render(families, key, &mut self.scratch);
        let added = u64::from(self.scratch.series);
        let old = store.look(key, |row| row.series()).unwrap_or_default();
        if *max_series > 0 && added > old && self.series() - old + added > *max_series {
            store.delete(key);
            let labels = [Action::Refused.as_str(), "", Limit::SeriesPerKind.as_str(), ""];
            if !was_refused {
                self.metrics.over_budget(labels, RESOURCE, 1);
            }
            self.refused.insert(row_key.clone());
            return;
        }
        store.apply(&self.scratch);
    }
}
