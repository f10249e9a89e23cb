//! The counters of workloads, which outlive their pods and jobs, and for a while the workload.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use super::counters::{Counters, LedgerOptions, Owner};
use super::families::{EVENTS, NODES, OCCURRENCES, PODS, WORKLOADS};
use crate::kube::shard::{Ownership, Shard};
use crate::kube::workloads::objects::{Uid, Workload, WorkloadId};
use crate::telemetry::KubeMetrics;
use crate::util::shrink::Shrink as _;
use crate::util::work_counter;

/// The largest number of earlier workloads of a name that are remembered. Owner references can state any UIDs; of real workloads there
/// are one or two.
const MAX_EARLIER: usize = 16;

/// The counters of a workload, and the UID of one that has had them. Its events count on the shard that serves this UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkloadOwner {
    owner: Owner,
    /// `None` for the objects of a namespace without a workload, which shards share.
    uid: Option<Uid>,
}

/// One of the workloads that have the same name.
#[derive(Debug, Default)]
struct Incarnation {
    uid: Option<Uid>,
    /// The number of its pods and jobs.
    members: usize,
    /// The workload itself is known to exist.
    exists: bool,
}

impl Incarnation {
    fn is_gone(&self) -> bool {
        self.members == 0 && !self.exists
    }
}

#[derive(Debug, Default)]
struct Life {
    /// The workload that was first seen last, or after its end the last other one. Its UID decides about the shard of the
    /// counters.
    latest: Incarnation,
    /// The others, latest last. They are not gone.
    earlier: Vec<Incarnation>,
    /// The time since which there has been none.
    gone_at: Option<Instant>,
}

/// The nodes that have the counters of a name, by the hashes of their UIDs. A list in progress may show the successor of a
/// node that is not known to be gone.
pub(super) type NodeNames = HashMap<Owner, u64>;

/// All counters, and the workloads that have some.
pub(super) struct Totals {
    pub(super) of_pods: Counters,
    pub(super) of_nodes: Counters,
    pub(super) node_names: NodeNames,
    /// Those of workloads.
    pub(super) counters: Counters,
    /// Those of Kubernetes Events.
    pub(super) events: Counters,
    lives: HashMap<Owner, Life>,
    pub(super) shard: Shard,
    /// The number of times that counters may have been dropped.
    pub(super) resets: u32,
    /// A time not later than the `gone_at` of all workloads.
    gone_since: Option<Instant>,
}

impl Totals {
    pub(super) fn new(options: &LedgerOptions, metrics: &KubeMetrics) -> Self {
        let counters = |resource| Counters::new(resource, options, metrics);
        Self {
            of_pods: counters(&PODS),
            of_nodes: counters(&NODES),
            node_names: NodeNames::new(),
            counters: counters(&WORKLOADS),
            events: counters(&EVENTS),
            lives: HashMap::new(),
            shard: Shard::ALL,
            resets: 0,
            gone_since: None,
        }
    }

    /// Returns the counters in the order of [`RESOURCES`](super::families::RESOURCES).
    pub(super) fn all(&mut self) -> [&mut Counters; 4] {
        [&mut self.events, &mut self.of_nodes, &mut self.of_pods, &mut self.counters]
    }

    /// Returns the owner of the counters of a workload.
    pub(super) fn owner(&self, workload: &Workload) -> WorkloadOwner {
        let WorkloadId { namespace, name, kind } = &*workload.id;
        let owner = self.counters.owner(&[namespace, name, kind]);
        WorkloadOwner { owner, uid: Some(Arc::clone(&workload.uid)) }
    }

    /// Adds a pod or job to a workload.
    pub(super) fn enter(&mut self, owner: &WorkloadOwner, now: Instant) {
        self.change(owner, now, |life| life.incarnation(&owner.uid).members += 1);
    }

    /// Removes a pod or job from its workload.
    pub(super) fn leave(&mut self, owner: &WorkloadOwner, now: Instant) {
        self.change(owner, now, |life| {
            let left = life.all().find(|one| one.uid == owner.uid);
            left.into_iter().for_each(|one| one.members = one.members.saturating_sub(1));
        });
    }

    /// Notes that a workload exists or is gone, whatever it consists of.
    pub(super) fn set_exists(&mut self, workload: &Workload, exists: bool, now: Instant) {
        let owner = self.owner(workload);
        if exists || self.lives.contains_key(&owner.owner) {
            self.change(&owner, now, |life| {
                life.all().for_each(|one| one.exists = false);
                if exists {
                    life.incarnation(&owner.uid).exists = true;
                }
            });
        }
    }

    fn change(
        &mut self,
        WorkloadOwner { owner, uid }: &WorkloadOwner,
        now: Instant,
        change: impl FnOnce(&mut Life),
    ) {
        let life = self.lives.entry(owner.clone()).or_insert_with(|| Life::new(uid));
        let before = life.latest.uid.clone();
        change(life);
        let is_reset = life.remove_ended();
        life.gone_at = None;
        life.note_end(now, &mut self.gone_since);
        // A new workload may have the name of an old one, and belong to another shard.
        if life.latest.uid != before {
            self.show(owner);
        }
        self.resets += u32::from(is_reset);
    }

    /// Shows, hides or drops the counters of a workload, as the shard says.
    fn show(&mut self, owner: &Owner) {
        let served =
            self.serves_uid(self.lives.get(owner).and_then(|life| life.latest.uid.as_ref()));
        for counters in [&mut self.counters, &mut self.events] {
            match served {
                (false, _) => counters.remove(owner),
                (true, false) => counters.hide(owner),
                (true, true) => counters.publish(owner),
            }
        }
    }

    /// Notes an event about a workload: if that is gone, its counters are kept from now on as long as if it had just gone.
    fn touch(&mut self, WorkloadOwner { owner, uid }: &WorkloadOwner, now: Instant) {
        let life = self.lives.entry(owner.clone()).or_insert_with(|| Life::new(uid));
        life.note_end(now, &mut self.gone_since);
    }

    /// Returns the owner of the counters of a namespace's events about objects without a workload.
    pub(super) fn without_workload(&self, namespace: &str) -> WorkloadOwner {
        WorkloadOwner { owner: self.events.owner(&[namespace, "", ""]), uid: None }
    }

    /// Returns the owner with these labels, if it is the workload with this UID.
    pub(super) fn known(&self, labels: [&str; 3], uid: &[u8]) -> Option<WorkloadOwner> {
        let owner = self.counters.owner(&labels);
        let known = self.lives.get(&owner)?.latest.uid.clone();
        (known.as_deref() == Some(uid)).then_some(WorkloadOwner { owner, uid: known })
    }

    /// Adds occurrences of a Kubernetes Event about a workload, which may be gone or unknown, and exposes them.
    pub(super) fn add_event(
        &mut self,
        owner: &WorkloadOwner,
        values: &[&str],
        count: u64,
        now: Instant,
    ) {
        self.touch(owner, now);
        let (counted, exposed) = self.serves_both(owner);
        if counted {
            self.events.add(&owner.owner, OCCURRENCES, values, count);
        }
        if exposed {
            self.events.publish(&owner.owner);
        }
    }

    /// Returns the time since which counters of a workload that is gone have been kept.
    pub(super) fn gone_since(&self) -> Option<Instant> {
        self.gone_since
    }

    /// Returns whether this process counts the events of a workload, and whether it exposes the counts.
    pub(super) fn serves(&self, owner: &WorkloadOwner) -> (bool, bool) {
        self.serves_uid(owner.uid.as_ref())
    }

    /// Returns the same for the counters of the workload, which may have a later one with another UID.
    fn serves_both(&self, owner: &WorkloadOwner) -> (bool, bool) {
        let latest = self.lives.get(&owner.owner).map_or(&owner.uid, |life| &life.latest.uid);
        let (is_counted, is_shown) = self.serves_uid(latest.as_ref());
        // The events of the earlier one count on the shard that served it, or not at all.
        (is_counted && self.serves(owner).0, is_shown)
    }

    fn serves_uid(&self, uid: Option<&Uid>) -> (bool, bool) {
        let Some(uid) = uid else { return (true, true) };
        match self.shard.ownership(uid) {
            Ownership::Foreign => (false, false),
            Ownership::Gained => (true, false),
            Ownership::Kept | Ownership::Lost => (true, true),
        }
    }

    /// Adds to counters of a workload, which begin to exist, and exposes them.
    pub(super) fn add<'v>(
        &mut self,
        owner: &WorkloadOwner,
        counts: impl IntoIterator<Item = (usize, Vec<&'v str>, u64)>,
    ) {
        let (counted, exposed) = self.serves_both(owner);
        if counted {
            for (family, values, count) in counts {
                self.counters.add(&owner.owner, family, &values, count);
            }
        }
        if exposed {
            self.counters.publish(&owner.owner);
        }
    }

    /// Changes the shard, if it differs. Counters of workloads of other shards are dropped.
    pub(super) fn set_shard(&mut self, shard: Shard) -> bool {
        if self.shard == shard {
            return false;
        }
        self.shard = shard;
        self.resets += 1;
        self.show_all();
        true
    }

    /// Shows, hides or drops the counters of all workloads.
    pub(super) fn show_all(&mut self) {
        let owners: Vec<Owner> = self.lives.keys().cloned().collect();
        owners.iter().for_each(|owner| self.show(owner));
    }

    /// Removes the counters of workloads that have been gone for this time.
    pub(super) fn expire(&mut self, now: Instant, retention: Duration) {
        let is_over =
            |life: &Life| life.gone_at.is_some_and(|at| now.duration_since(at) >= retention);
        for (owner, _) in self.lives.extract_if(|_, life| is_over(life)) {
            self.counters.remove(&owner);
            self.events.remove(&owner);
        }
        self.lives.shrink();
        self.gone_since = self.lives.values().filter_map(|life| life.gone_at).min();
    }
}

impl Life {
    fn new(uid: &Option<Uid>) -> Self {
        let latest = Incarnation { uid: uid.clone(), ..Incarnation::default() };
        Self { latest, ..Self::default() }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Incarnation> {
        self.earlier.iter_mut().chain([&mut self.latest])
    }

    /// Returns the workload with this UID.
    fn incarnation(&mut self, uid: &Option<Uid>) -> &mut Incarnation {
        work_counter::add(self.earlier.len());
        if self.all().all(|one| one.uid != *uid) {
            let latest = Incarnation { uid: uid.clone(), ..Incarnation::default() };
            if self.earlier.len() >= MAX_EARLIER {
                self.earlier.remove(0);
            }
            self.earlier.push(std::mem::replace(&mut self.latest, latest));
        }
        let earlier = self.earlier.iter_mut().find(|one| one.uid == *uid);
        earlier.unwrap_or(&mut self.latest)
    }

    /// Removes workloads that are gone, but not the last one. Returns whether an earlier one is the latest again.
    fn remove_ended(&mut self) -> bool {
        self.earlier.retain(|one| !one.is_gone());
        let earlier = if self.latest.is_gone() { self.earlier.pop() } else { None };
        earlier.map(|earlier| self.latest = earlier).is_some()
    }

    /// Notes that there is no workload of the name any more, if that is so.
    fn note_end(&mut self, now: Instant, gone_since: &mut Option<Instant>) {
        if self.latest.is_gone() {
            self.gone_at = Some(now);
            gone_since.get_or_insert(now);
        }
    }
}
