//! The kinds of the synthetic cluster: their objects, names and encodings. Other resources are served as empty lists.

mod meta;
mod nodes;
mod pod_spec;
mod pods;
mod services;
mod storage;
mod workloads;

pub use meta::Name;
pub use pods::{node_name, phase};

use super::encode::Message;
use super::layout::{Item, Layout};

/// One kind.
pub struct Kind {
    /// Plural lower-case name of its resource.
    pub resource: &'static str,
    /// The initial objects.
    pub items: fn(&Layout) -> Vec<Item>,
    /// Returns the name of an object.
    pub name: for<'a> fn(&'a Layout, &Item) -> Name<'a>,
    /// Writes an object.
    pub write: fn(&Layout, &Item, &mut Message<'_>),
}

/// Returns the kind of a resource.
pub fn find(resource: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.resource == resource)
}

const fn kind(
    resource: &'static str,
    items: fn(&Layout) -> Vec<Item>,
    name: for<'a> fn(&'a Layout, &Item) -> Name<'a>,
    write: fn(&Layout, &Item, &mut Message<'_>),
) -> Kind {
    Kind { resource, items, name, write }
}

/// All kinds, in byte order.
static KINDS: &[Kind] = &[
    kind(
        "configmaps",
        services::config_maps,
        services::config_map_name,
        services::write_config_map,
    ),
    kind("cronjobs", workloads::cron_jobs, workloads::cron_job_name, workloads::write_cron_job),
    kind("daemonsets", workloads::daemon_sets, meta::like_workload, workloads::write_daemon_set),
    kind("deployments", workloads::deployments, meta::like_workload, workloads::write_deployment),
    kind("endpoints", services::for_services, meta::like_workload, services::write_endpoints),
    kind(
        "endpointslices",
        services::for_services,
        services::endpoint_slice_name,
        services::write_endpoint_slice,
    ),
    kind(
        "horizontalpodautoscalers",
        services::for_some_deployments,
        meta::like_workload,
        services::write_autoscaler,
    ),
    kind("ingresses", services::for_some_deployments, meta::like_workload, services::write_ingress),
    kind("jobs", workloads::jobs, meta::like_workload, workloads::write_job),
    kind("leases", nodes::leases, nodes::lease_name, nodes::write_lease),
    kind("limitranges", nodes::namespaces, nodes::limit_range_name, nodes::write_limit_range),
    kind("namespaces", nodes::namespaces, nodes::namespace_name, nodes::write_namespace),
    kind(
        "networkpolicies",
        nodes::namespaces,
        nodes::network_policy_name,
        nodes::write_network_policy,
    ),
    kind("nodes", nodes::nodes, nodes::node_name, nodes::write_node),
    kind("persistentvolumeclaims", storage::claims, storage::claim_name, storage::write_claim),
    kind("persistentvolumes", storage::claims, storage::volume_name, storage::write_volume),
    kind(
        "poddisruptionbudgets",
        services::for_some_deployments,
        meta::like_workload,
        services::write_disruption_budget,
    ),
    kind("pods", pods::items, pods::name, pods::write),
    kind(
        "replicasets",
        workloads::replica_sets,
        workloads::replica_set_name,
        workloads::write_replica_set,
    ),
    kind("resourcequotas", nodes::namespaces, nodes::quota_name, nodes::write_quota),
    kind("secrets", services::for_services, services::secret_name, services::write_secret),
    kind(
        "serviceaccounts",
        services::for_services,
        meta::like_workload,
        services::write_service_account,
    ),
    kind("services", services::for_services, meta::like_workload, services::write_service),
    kind(
        "statefulsets",
        workloads::stateful_sets,
        meta::like_workload,
        workloads::write_stateful_set,
    ),
    kind("storageclasses", storage::classes, storage::class_name, storage::write_class),
    kind("volumeattachments", storage::claims, storage::attachment_name, storage::write_attachment),
];
