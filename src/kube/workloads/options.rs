//! The selection of families, and the kinds they need.

use super::families::{Subject, WorkloadFamily};
use super::ledger::LedgerOptions;
use super::objects::LINKS;
use crate::resources::{self, Resource};

/// The name of the families' resource in the catalog.
pub const RESOURCE: &str = "workloads";

/// The selection of families, and the budget of their series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadOptions {
    /// The families to serve, in exposition order.
    pub families: Vec<&'static WorkloadFamily>,
    /// The maximum number of series; 0 for no limit.
    pub max_series: u64,
    /// The counters of events.
    pub ledger: LedgerOptions,
    /// True if only a part of the pods is watched, such as those of a node, and no owners for them.
    pub is_partial: bool,
}

impl WorkloadOptions {
    /// Returns the kinds between a pod and its workload that are watched in addition to the `watched` ones, for their
    /// metadata, which names their owners.
    #[must_use]
    pub fn links(&self, watched: &[&str]) -> Vec<&'static dyn Resource> {
        if !self.resolves_owners() || !watched.contains(&"pods") {
            return Vec::new();
        }
        let missing = LINKS.iter().filter(|(plural, _)| !watched.contains(plural));
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
            || self.families.iter().any(|family| by_owner(family.subject))
    }
}
