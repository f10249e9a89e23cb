//! The selection of families, and the kinds they need.

use super::families::{Subject, WorkloadFamily};
use super::ledger::LedgerOptions;
use super::objects::{LINKS, OTHERS};
use super::pod_labels::PodLabels;
use crate::resources::{self, Resource};

/// The selection of families, and the budget of their series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadOptions {
    /// The families to serve, in exposition order.
    pub families: Vec<&'static WorkloadFamily>,
    /// The maximum number of series; 0 for no limit.
    pub max_series: u64,
    /// The counters of events.
    pub ledger: LedgerOptions,
    /// True if only a part of the pods is watched, such as those of a node, and no owners for them.
    pub is_partial: bool,
    /// The labels of workloads on the series of pods.
    pub pod_labels: PodLabels,
    /// True if other options may replace these, which need what is known of objects that cannot be listed for them.
    pub may_change: bool,
}

impl WorkloadOptions {
    /// Returns the kinds between a pod and its workload that are watched in addition to the `watched` ones, for their
    /// metadata, which names their owners.
    #[must_use]
    pub fn links(&self, watched: &[&str]) -> Vec<&'static dyn Resource> {
        if !self.resolves_owners() || !watched.contains(&"pods") {
            return Vec::new();
        }
        // The labels of workloads are those of their objects.
        let others = if self.pod_labels.of_workload.is_empty() { &[][..] } else { &OTHERS[..] };
        let missing = LINKS.iter().chain(others).filter(|(plural, _)| !watched.contains(plural));
        missing.filter_map(|(plural, _)| resources::find(plural)).collect()
    }

    /// Returns the kinds by which the senders of StatsD lines are recognised.
    pub fn of_senders(&self) -> impl Iterator<Item = &'static str> {
        let links = if self.is_partial { &[][..] } else { &LINKS[..] };
        links.iter().map(|(plural, _)| *plural).chain(["pods"])
    }

    /// Returns whether owners of pods are needed.
    pub(super) fn resolves_owners(&self) -> bool {
        let by_owner = |subject| matches!(subject, Subject::Pod | Subject::Workload);
        !self.ledger.families.is_empty()
            || self.pod_labels.names_workload()
            || self.families.iter().any(|family| by_owner(family.subject))
    }
}
