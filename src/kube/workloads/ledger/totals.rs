//! The counters of workloads, which outlive their pods and jobs, and for a while the workload.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use super::counters::{Counters, Owner};
use crate::kube::shard::{Ownership, Shard};
use crate::kube::workloads::objects::{Uid, Workload, WorkloadId};

#[derive(Debug)]
struct Life {
    /// Decides about the shard.
    uid: Uid,
    /// The number of its pods and jobs.
    members: usize,
    /// The workload itself is known to exist.
    exists: bool,
    /// The time since which it has neither existed nor had members.
    gone_at: Option<Instant>,
}

/// All workloads that have counters.
pub(super) struct Totals {
    pub(super) counters: Counters,
    lives: HashMap<Owner, Life>,
    pub(super) shard: Shard,
    /// The number of changes of the shard.
    pub(super) shard_changes: u32,
}

impl Totals {
    pub(super) fn new(counters: Counters) -> Self {
        Self { counters, lives: HashMap::new(), shard: Shard::ALL, shard_changes: 0 }
    }

    /// Returns the owner of the counters of a workload.
    pub(super) fn owner(&self, workload: &Workload) -> Owner {
        let WorkloadId { namespace, name, kind } = &*workload.id;
        self.counters.owner(&[namespace, name, kind])
    }

    /// Adds a pod or job to a workload.
    pub(super) fn enter(&mut self, owner: &Owner, workload: &Workload) {
        let life = self.life(owner, workload);
        life.members += 1;
        life.gone_at = None;
    }

    /// Removes a pod or job from its workload.
    pub(super) fn leave(&mut self, owner: &Owner, now: Instant) {
        if let Some(life) = self.lives.get_mut(owner) {
            life.members = life.members.saturating_sub(1);
            life.note_end(now);
        }
    }

    /// Notes that a workload exists or is gone, whatever it consists of.
    pub(super) fn set_exists(&mut self, workload: &Workload, exists: bool, now: Instant) {
        let owner = self.owner(workload);
        if exists {
            let life = self.life(&owner, workload);
            (life.exists, life.gone_at) = (true, None);
        } else if let Some(life) = self.lives.get_mut(&owner) {
            life.exists = false;
            life.note_end(now);
        }
    }

    fn life(&mut self, owner: &Owner, workload: &Workload) -> &mut Life {
        let uid = Arc::clone(&workload.uid);
        let new = Life { uid: Arc::clone(&uid), members: 0, exists: false, gone_at: None };
        let life = self.lives.entry(owner.clone()).or_insert(new);
        // A new workload may have the name of an old one.
        life.uid = uid;
        life
    }

    /// Returns whether this process counts the events of a workload, and whether it exposes the counts.
    pub(super) fn serves(&self, owner: &Owner) -> (bool, bool) {
        let uid = self.lives.get(owner).map_or(&[][..], |life| &life.uid);
        match self.shard.ownership(uid) {
            Ownership::Foreign => (false, false),
            Ownership::Gained => (true, false),
            Ownership::Kept | Ownership::Lost => (true, true),
        }
    }

    /// Adds to counters of a workload, which begin to exist, and exposes them.
    pub(super) fn add<'v>(
        &mut self,
        owner: &Owner,
        counts: impl IntoIterator<Item = (usize, Vec<&'v str>, u64)>,
    ) {
        let (counted, exposed) = self.serves(owner);
        if counted {
            for (family, values, count) in counts {
                self.counters.add(owner, family, &values, count);
            }
        }
        if exposed {
            self.counters.publish(owner);
        }
    }

    /// Changes the shard, if it differs. Counters of workloads of other shards are dropped.
    pub(super) fn set_shard(&mut self, shard: Shard) -> bool {
        if self.shard == shard {
            return false;
        }
        self.shard = shard;
        self.shard_changes += 1;
        let owners: Vec<Owner> = self.lives.keys().cloned().collect();
        for owner in &owners {
            match self.serves(owner) {
                (false, _) => self.counters.remove(owner),
                (true, false) => self.counters.hide(owner),
                (true, true) => self.counters.publish(owner),
            }
        }
        true
    }

    /// Removes the counters of workloads that have been gone for this time.
    pub(super) fn expire(&mut self, now: Instant, retention: Duration) {
        let is_over =
            |life: &Life| life.gone_at.is_some_and(|at| now.duration_since(at) >= retention);
        for (owner, _) in self.lives.extract_if(|_, life| is_over(life)) {
            self.counters.remove(&owner);
        }
    }
}

impl Life {
    fn note_end(&mut self, now: Instant) {
        if self.members == 0 && !self.exists {
            self.gone_at = Some(now);
        }
    }
}
