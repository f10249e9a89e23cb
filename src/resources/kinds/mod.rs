//! The supported kinds. Each resource has one file with a lean [`view`](crate::wire::view) (the fields that are read)
//! and a table of families in exposition order; the kinds of RBAC share one, and so do those of admission. Types shared
//! by several kinds (conditions, resource lists) have their own files.

pub(crate) mod condition;
pub(crate) mod resource_list;

pub(crate) mod admission;
pub(crate) mod certificatesigningrequests;
pub(crate) mod configmaps;
pub(crate) mod cronjobs;
pub(crate) mod daemonsets;
pub(crate) mod deployments;
pub(crate) mod endpoints;
pub(crate) mod endpointslices;
pub(crate) mod horizontalpodautoscalers;
pub(crate) mod ingressclasses;
pub(crate) mod ingresses;
pub(crate) mod jobs;
pub(crate) mod leases;
pub(crate) mod limitranges;
pub(crate) mod namespaces;
pub(crate) mod networkpolicies;
pub(crate) mod nodes;
pub(crate) mod persistentvolumeclaims;
pub(crate) mod persistentvolumes;
pub(crate) mod poddisruptionbudgets;
pub(crate) mod pods;
pub(crate) mod rbac;
pub(crate) mod replicasets;
pub(crate) mod replicationcontrollers;
pub(crate) mod resourcequotas;
pub(crate) mod secrets;
pub(crate) mod serviceaccounts;
pub(crate) mod services;
pub(crate) mod statefulsets;
pub(crate) mod storageclasses;
pub(crate) mod volumeattachments;

use super::kind::Resource;

/// All resources, sorted by name in byte order, which is also exposition order.
static RESOURCES: &[&dyn Resource] = &[
    &certificatesigningrequests::SigningRequests,
    &rbac::ClusterRoleBindings,
    &rbac::ClusterRoles,
    &configmaps::ConfigMaps,
    &cronjobs::CronJobs,
    &daemonsets::DaemonSets,
    &deployments::Deployments,
    &endpoints::EndpointsKind,
    &endpointslices::EndpointSlices,
    &horizontalpodautoscalers::HorizontalPodAutoscalers,
    &ingressclasses::IngressClasses,
    &ingresses::Ingresses,
    &jobs::Jobs,
    &leases::Leases,
    &limitranges::LimitRanges,
    &admission::MutatingAdmissionPolicies,
    &admission::MutatingAdmissionPolicyBindings,
    &admission::MutatingWebhookConfigurations,
    &namespaces::Namespaces,
    &networkpolicies::NetworkPolicies,
    &nodes::Nodes,
    &persistentvolumeclaims::PersistentVolumeClaims,
    &persistentvolumes::PersistentVolumes,
    &poddisruptionbudgets::PodDisruptionBudgets,
    &pods::Pods,
    &replicasets::ReplicaSets,
    &replicationcontrollers::ReplicationControllers,
    &resourcequotas::ResourceQuotas,
    &rbac::RoleBindings,
    &rbac::Roles,
    &secrets::Secrets,
    &serviceaccounts::ServiceAccounts,
    &services::Services,
    &statefulsets::StatefulSets,
    &storageclasses::StorageClasses,
    &admission::ValidatingAdmissionPolicies,
    &admission::ValidatingAdmissionPolicyBindings,
    &admission::ValidatingWebhookConfigurations,
    &volumeattachments::VolumeAttachments,
];

/// Returns all resources, sorted by name in byte order.
pub fn registry() -> &'static [&'static dyn Resource] {
    RESOURCES
}

/// Returns the resource with this plural name.
pub fn find(name: &str) -> Option<&'static dyn Resource> {
    RESOURCES.iter().copied().find(|resource| resource.name() == name)
}
