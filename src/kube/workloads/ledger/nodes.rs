//! The transitions of a node's conditions.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::counters::{Counters, Owner};
use super::families::TRANSITIONS;
use super::view::{Condition, Node};
use crate::cache::fnv1a64;
use crate::kube::shard::{Ownership, Shard};

/// The last known states of a node's conditions.
#[derive(Debug, Default)]
pub(super) struct NodeRecord {
    pub(super) owner: Option<Owner>,
    /// The hash of its UID, which decides about the shard.
    hash: u64,
    conditions: BTreeMap<Box<str>, ConditionRecord>,
}

/// The nodes that have the counters of a name, by the hashes of their UIDs. A list in progress may show the successor of a
/// node that is not known to be gone.
pub(super) type NodeNames = HashMap<Owner, u64>;

#[derive(Debug)]
struct ConditionRecord {
    /// The status that the last transition led to.
    counted: &'static str,
    /// The status and the time of the last transition that the API reports. After a restore from a backup they may be
    /// older than `counted`.
    shown: &'static str,
    since: i64,
}

/// Lets the counters of a condition begin to exist.
fn declare(counters: &mut Counters, owner: &Owner, condition: &str) {
    for status in ["false", "true", "unknown"] {
        counters.add(owner, TRANSITIONS, &[condition, status], 0);
    }
}

/// Returns a status as a label value.
fn status(condition: &Condition<'_>) -> &'static str {
    match &*condition.status {
        "True" => "true",
        "False" => "false",
        _ => "unknown",
    }
}

impl NodeRecord {
    /// Takes the next state of the node. Between it and the last one may be others if it is part of a list (`is_listed`).
    pub(super) fn observe(
        &mut self,
        node: &Node<'_>,
        is_listed: bool,
        (counters, names): (&mut Counters, &mut NodeNames),
        shard: Shard,
    ) {
        self.hash = fnv1a64(node.metadata.uid.as_bytes());
        if self.owner.is_none() {
            let owner = counters.owner(&[&node.metadata.name]);
            names.insert(owner.clone(), self.hash);
            counters.remove(&owner);
            self.owner = Some(owner);
        }
        let Some(owner) = self.owner_of_counters(names) else { return };
        let owner = &owner.clone();
        let mut is_changed = false;
        for condition in &node.status.conditions {
            let (kind, shown) = (&*condition.kind, status(condition));
            let since = condition.last_transition_time.unix();
            let Some(record) = self.conditions.get_mut(kind) else {
                let record = ConditionRecord { counted: shown, shown, since };
                self.conditions.insert(kind.into(), record);
                declare(counters, owner, kind);
                is_changed = true;
                continue;
            };
            let is_old = is_listed && since < record.since;
            let is_later = is_listed && since > record.since;
            if !is_old && (shown != record.shown || is_later) {
                // The node reports again what a restore has undone.
                let is_repeated = record.shown != record.counted && shown == record.counted;
                if shown != record.counted || is_later && !is_repeated {
                    counters.add(owner, TRANSITIONS, &[kind, shown], 1);
                    is_changed = true;
                }
                record.counted = shown;
            }
            (record.shown, record.since) = (shown, since);
        }
        if is_changed {
            self.show(counters, names, shard);
        }
    }

    /// Returns the owner of the counters, unless another node of this name has them.
    fn owner_of_counters(&self, names: &NodeNames) -> Option<&Owner> {
        self.owner.as_ref().filter(|owner| names.get(*owner) == Some(&self.hash))
    }

    /// Lets the counters of all conditions begin to exist.
    pub(super) fn declare(&self, counters: &mut Counters, names: &NodeNames, shard: Shard) {
        let Some(owner) = self.owner_of_counters(names) else { return };
        self.conditions.keys().for_each(|condition| declare(counters, owner, condition));
        self.show(counters, names, shard);
    }

    /// Removes the counters, unless another node of this name has them.
    pub(super) fn leave(&mut self, counters: &mut Counters, names: &mut NodeNames) {
        let Self { owner, hash, .. } = std::mem::take(self);
        if let Some(owner) = owner.filter(|owner| names.get(owner) == Some(&hash)) {
            counters.remove(&owner);
            names.remove(&owner);
        }
    }

    /// Shows or hides the counters, as the shard says, unless another node of this name has them.
    pub(super) fn show(&self, counters: &mut Counters, names: &NodeNames, shard: Shard) {
        let Some(owner) = self.owner_of_counters(names) else { return };
        match shard.ownership_of_hash(self.hash) {
            Ownership::Kept | Ownership::Lost => counters.publish(owner),
            Ownership::Gained | Ownership::Foreign => counters.hide(owner),
        }
    }
}
