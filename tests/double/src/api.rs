//! The resources that the double serves, with or without objects in its cluster.
//!
//! This is a separate table, because a test double must not take API locations from the client under test. A test of
//! kstatd compares both tables.

/// The API location of a resource and the name of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// Plural lower-case name, as in API paths.
    pub name: &'static str,
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// True if objects are namespaced.
    pub namespaced: bool,
}

const fn namespaced(
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
) -> Api {
    Api { name, group, version, kind, namespaced: true }
}

const fn cluster_wide(
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
) -> Api {
    Api { name, group, version, kind, namespaced: false }
}

/// The definitions of custom resources, of which this cluster has none. A server without this resource would be one
/// that lacks custom resources altogether.
pub static DEFINITIONS: Api = cluster_wide(
    "customresourcedefinitions",
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
);

/// The resources that kstatd has metrics of, in byte order of the names.
pub static APIS: &[Api] = &[
    cluster_wide(
        "certificatesigningrequests",
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
    ),
    cluster_wide("clusterrolebindings", "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    cluster_wide("clusterroles", "rbac.authorization.k8s.io", "v1", "ClusterRole"),
    namespaced("configmaps", "", "v1", "ConfigMap"),
    namespaced("cronjobs", "batch", "v1", "CronJob"),
    namespaced("daemonsets", "apps", "v1", "DaemonSet"),
    namespaced("deployments", "apps", "v1", "Deployment"),
    namespaced("endpoints", "", "v1", "Endpoints"),
    namespaced("endpointslices", "discovery.k8s.io", "v1", "EndpointSlice"),
    namespaced("horizontalpodautoscalers", "autoscaling", "v2", "HorizontalPodAutoscaler"),
    cluster_wide("ingressclasses", "networking.k8s.io", "v1", "IngressClass"),
    namespaced("ingresses", "networking.k8s.io", "v1", "Ingress"),
    namespaced("jobs", "batch", "v1", "Job"),
    namespaced("leases", "coordination.k8s.io", "v1", "Lease"),
    namespaced("limitranges", "", "v1", "LimitRange"),
    cluster_wide(
        "mutatingadmissionpolicies",
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
    ),
    cluster_wide(
        "mutatingadmissionpolicybindings",
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
    ),
    cluster_wide(
        "mutatingwebhookconfigurations",
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
    ),
    cluster_wide("namespaces", "", "v1", "Namespace"),
    namespaced("networkpolicies", "networking.k8s.io", "v1", "NetworkPolicy"),
    cluster_wide("nodes", "", "v1", "Node"),
    namespaced("persistentvolumeclaims", "", "v1", "PersistentVolumeClaim"),
    cluster_wide("persistentvolumes", "", "v1", "PersistentVolume"),
    namespaced("poddisruptionbudgets", "policy", "v1", "PodDisruptionBudget"),
    namespaced("pods", "", "v1", "Pod"),
    namespaced("replicasets", "apps", "v1", "ReplicaSet"),
    namespaced("replicationcontrollers", "", "v1", "ReplicationController"),
    namespaced("resourcequotas", "", "v1", "ResourceQuota"),
    namespaced("rolebindings", "rbac.authorization.k8s.io", "v1", "RoleBinding"),
    namespaced("roles", "rbac.authorization.k8s.io", "v1", "Role"),
    namespaced("secrets", "", "v1", "Secret"),
    namespaced("serviceaccounts", "", "v1", "ServiceAccount"),
    namespaced("services", "", "v1", "Service"),
    namespaced("statefulsets", "apps", "v1", "StatefulSet"),
    cluster_wide("storageclasses", "storage.k8s.io", "v1", "StorageClass"),
    cluster_wide(
        "validatingadmissionpolicies",
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
    ),
    cluster_wide(
        "validatingadmissionpolicybindings",
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
    ),
    cluster_wide(
        "validatingwebhookconfigurations",
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    ),
    cluster_wide("volumeattachments", "storage.k8s.io", "v1", "VolumeAttachment"),
];
