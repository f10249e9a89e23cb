//! The transitions of a node's conditions.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::counters::{Counters, Owner};
use super::families::TRANSITIONS;
use super::objects::Past;
use super::totals::{NodeNames, Totals};
use crate::cache::fnv1a64;
use crate::kube::observed::Metadata;
use crate::kube::shard::Ownership;
use crate::resources::kinds::condition::DetailedCondition;
use crate::wire::view::view;

view! {
    /// The fields of a Node that the ledger reads.
    pub struct Node<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: NodeStatus<'a> = 3 "status",
    }

    /// `status` of a Node.
    pub struct NodeStatus<'a> {
        conditions: Vec<DetailedCondition<'a>> = 4 "conditions",
    }
}

/// The last known states of a node's conditions.
#[derive(Debug, Default)]
pub(super) struct NodeRecord {
    pub(super) owner: Option<Owner>,
    /// The hash of its UID, which decides about the shard.
    hash: u64,
    conditions: BTreeMap<Box<str>, ConditionRecord>,
}

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
fn status(condition: &DetailedCondition<'_>) -> &'static str {
    match &*condition.status {
        "True" => "true",
        "False" => "false",
        _ => "unknown",
    }
}

impl NodeRecord {
    /// Takes the next state of the node. Between it and the last one may be others if it is part of a list (`is_listed`).
    pub(super) fn observe(&mut self, node: &Node<'_>, is_listed: bool, totals: &mut Totals) {
        let Totals { of_nodes: counters, node_names: names, .. } = totals;
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
            self.show(totals);
        }
    }

    /// Returns the owner of the counters, unless another node of this name has them.
    fn owner_of_counters(&self, names: &NodeNames) -> Option<&Owner> {
        self.owner.as_ref().filter(|owner| names.get(*owner) == Some(&self.hash))
    }

    /// Lets the counters of all conditions begin to exist.
    pub(super) fn declare(&self, totals: &mut Totals) {
        let Totals { of_nodes, node_names, .. } = totals;
        let Some(owner) = self.owner_of_counters(node_names) else { return };
        self.conditions.keys().for_each(|condition| declare(of_nodes, owner, condition));
        self.show(totals);
    }

    /// Shows or hides the counters, as the shard says, unless another node of this name has them.
    pub(super) fn show(&self, totals: &mut Totals) {
        let Totals { of_nodes, node_names, shard, .. } = totals;
        let Some(owner) = self.owner_of_counters(node_names) else { return };
        match shard.ownership_of_hash(self.hash) {
            Ownership::Kept | Ownership::Lost => of_nodes.publish(owner),
            Ownership::Gained | Ownership::Foreign => of_nodes.hide(owner),
        }
    }
}

impl Past for NodeRecord {
    type Totals = Totals;

    /// Removes the counters, unless another node of this name has them.
    fn leave(&mut self, Totals { of_nodes, node_names, .. }: &mut Totals, _: Instant) {
        let Self { owner, hash, .. } = std::mem::take(self);
        if let Some(owner) = owner.filter(|owner| node_names.get(owner) == Some(&hash)) {
            of_nodes.remove(&owner);
            node_names.remove(&owner);
        }
    }
}
