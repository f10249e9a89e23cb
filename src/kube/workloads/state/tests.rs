//! The sizes of tables, for the tests of all workloads.

use super::*;

impl State {
    /// Returns the largest capacity of a table.
    pub(in crate::kube::workloads) fn capacity(&self) -> usize {
        let Self { pods, owners, workloads, totals, members, rows, .. } = self;
        let of_owners = owners.values().map(|entry| entry.pods.capacity());
        let nested = of_owners.chain(members.values().map(HashSet::capacity));
        let own = [pods.capacity(), owners.capacity(), workloads.capacity(), members.capacity()];
        let others = [totals.capacity(), rows.refused.capacity()];
        nested.chain(own).chain(others).max().unwrap_or_default()
    }
}
