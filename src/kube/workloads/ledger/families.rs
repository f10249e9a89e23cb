//! The families of the ledger.

use super::counters::{LedgerFamily, LedgerResource};

/// The number of a family in its resource.
pub(super) const POD_TERMINATIONS: usize = 0;
pub(super) const TERMINATIONS: usize = 0;
pub(super) const FINISHED: usize = 1;
pub(super) const JOBS: usize = 2;
pub(super) const TRANSITIONS: usize = 0;
pub(super) const OCCURRENCES: usize = 0;

/// The name of the family of Kubernetes Events, which are watched on request only.
pub const KUBE_EVENTS: &str = "kstatd_kube_events_total";

/// The counters of pods.
pub static PODS: LedgerResource = LedgerResource {
    name: "pod-events",
    owner: &["namespace", "pod", "uid"],
    families: &[LedgerFamily {
        name: "kstatd_pod_container_terminations_total",
        labels: &["container", "reason", "exit_code"],
        help: "Terminations of the containers of a pod that were observed.",
    }],
};

/// The counters of workloads.
pub static WORKLOADS: LedgerResource = LedgerResource {
    name: "workload-events",
    owner: &["namespace", "workload", "workload_type"],
    families: &[
        LedgerFamily {
            name: "kstatd_workload_container_terminations_total",
            labels: &["container", "reason"],
            help: "Terminations of the containers of a workload's pods, including pods that are gone.",
        },
        LedgerFamily {
            name: "kstatd_workload_pods_finished_total",
            labels: &["reason"],
            help: "Pods of the workload that have ended.",
        },
        LedgerFamily {
            name: "kstatd_jobs_finished_total",
            labels: &["reason"],
            help: "Jobs of the workload that have ended.",
        },
    ],
};

/// The counters of nodes.
pub static NODES: LedgerResource = LedgerResource {
    name: "node-events",
    owner: &["node"],
    families: &[LedgerFamily {
        name: "kstatd_kube_node_condition_transitions_total",
        labels: &["condition", "status"],
        help: "Changes of a node condition to a status.",
    }],
};

/// The counters of Kubernetes Events. A budget of their own keeps them from displacing the others.
pub static EVENTS: LedgerResource = LedgerResource {
    name: "kube-events",
    owner: WORKLOADS.owner,
    families: &[LedgerFamily {
        name: KUBE_EVENTS,
        labels: &["involved_kind", "reason", "type"],
        help: "Occurrences of Kubernetes Events, with the workload of the object that they are about.",
    }],
};

/// All resources of the ledger.
pub static RESOURCES: [&LedgerResource; 4] = [&EVENTS, &NODES, &PODS, &WORKLOADS];
