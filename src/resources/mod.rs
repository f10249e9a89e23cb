//! The kinds: what each object of the Kubernetes API becomes in the exposition.
//!
//! One file for each resource holds a lean [`view`] (the fields that are read) and a table of families
//! in exposition order; [`kind`] is the contract of such a file and [`series`] what its functions write
//! to. Objects flow in as bytes, lines for the [`cache`](crate::cache) flow out. Nothing here knows how
//! objects are fetched or how text is served. `docs/adding-a-metric.md` walks through a change.

pub mod admission;
pub mod condition;
pub mod filter;
pub mod kind;
pub mod metadata;
pub mod rbac;
pub mod resource_list;
pub mod scalars;
pub mod selection;
pub mod series;
pub mod values;
pub mod view;

pub mod certificatesigningrequests;
pub mod clusterrolebindings;
pub mod clusterroles;
pub mod configmaps;
pub mod cronjobs;
pub mod daemonsets;
pub mod deployments;
pub mod endpoints;
pub mod endpointslices;
pub mod horizontalpodautoscalers;
pub mod ingressclasses;
pub mod ingresses;
pub mod jobs;
pub mod leases;
pub mod limitranges;
pub mod mutatingadmissionpolicies;
pub mod mutatingadmissionpolicybindings;
pub mod mutatingwebhookconfigurations;
pub mod namespaces;
pub mod networkpolicies;
pub mod nodes;
pub mod persistentvolumeclaims;
pub mod persistentvolumes;
pub mod poddisruptionbudgets;
pub mod pods;
pub mod replicasets;
pub mod replicationcontrollers;
pub mod resourcequotas;
pub mod rolebindings;
pub mod roles;
pub mod secrets;
pub mod serviceaccounts;
pub mod services;
pub mod statefulsets;
pub mod storageclasses;
pub mod validatingadmissionpolicies;
pub mod validatingadmissionpolicybindings;
pub mod validatingwebhookconfigurations;
pub mod volumeattachments;

pub use kind::{Api, FamilyInfo, RenderOptions, Renderer, Resource, Settings, Stability};
pub use view::{DecodeError, ObjectBytes};

use kind::Handle;

/// Every resource, in byte order of the names, which is also exposition order.
static RESOURCES: &[&dyn Resource] = &[
    &Handle::<certificatesigningrequests::SigningRequests>::new(),
    &Handle::<clusterrolebindings::ClusterRoleBindings>::new(),
    &Handle::<clusterroles::ClusterRoles>::new(),
    &Handle::<configmaps::ConfigMaps>::new(),
    &Handle::<cronjobs::CronJobs>::new(),
    &Handle::<daemonsets::DaemonSets>::new(),
    &Handle::<deployments::Deployments>::new(),
    &Handle::<endpoints::EndpointsKind>::new(),
    &Handle::<endpointslices::EndpointSlices>::new(),
    &Handle::<horizontalpodautoscalers::HorizontalPodAutoscalers>::new(),
    &Handle::<ingressclasses::IngressClasses>::new(),
    &Handle::<ingresses::Ingresses>::new(),
    &Handle::<jobs::Jobs>::new(),
    &Handle::<leases::Leases>::new(),
    &Handle::<limitranges::LimitRanges>::new(),
    &Handle::<mutatingadmissionpolicies::MutatingAdmissionPolicies>::new(),
    &Handle::<mutatingadmissionpolicybindings::MutatingAdmissionPolicyBindings>::new(),
    &Handle::<mutatingwebhookconfigurations::MutatingWebhookConfigurations>::new(),
    &Handle::<namespaces::Namespaces>::new(),
    &Handle::<networkpolicies::NetworkPolicies>::new(),
    &Handle::<nodes::Nodes>::new(),
    &Handle::<persistentvolumeclaims::PersistentVolumeClaims>::new(),
    &Handle::<persistentvolumes::PersistentVolumes>::new(),
    &Handle::<poddisruptionbudgets::PodDisruptionBudgets>::new(),
    &Handle::<pods::Pods>::new(),
    &Handle::<replicasets::ReplicaSets>::new(),
    &Handle::<replicationcontrollers::ReplicationControllers>::new(),
    &Handle::<resourcequotas::ResourceQuotas>::new(),
    &Handle::<rolebindings::RoleBindings>::new(),
    &Handle::<roles::Roles>::new(),
    &Handle::<secrets::Secrets>::new(),
    &Handle::<serviceaccounts::ServiceAccounts>::new(),
    &Handle::<services::Services>::new(),
    &Handle::<statefulsets::StatefulSets>::new(),
    &Handle::<storageclasses::StorageClasses>::new(),
    &Handle::<validatingadmissionpolicies::ValidatingAdmissionPolicies>::new(),
    &Handle::<validatingadmissionpolicybindings::ValidatingAdmissionPolicyBindings>::new(),
    &Handle::<validatingwebhookconfigurations::ValidatingWebhookConfigurations>::new(),
    &Handle::<volumeattachments::VolumeAttachments>::new(),
];

/// Every resource, in byte order of the names.
#[must_use]
pub fn registry() -> &'static [&'static dyn Resource] {
    RESOURCES
}

/// The resource of this plural name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Resource> {
    RESOURCES.iter().copied().find(|resource| resource.name() == name)
}
