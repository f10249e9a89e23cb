//! The types of k8s-pb and k8s-openapi for each resource.

use prost::{DecodeError, Message};
use serde_json::Value;

/// The types of a resource in two other crates.
pub struct Typed {
    pub name: &'static str,
    /// The name in `messages.txt`.
    pub message: String,
    /// Decodes and encodes a protobuf message with k8s-pb.
    pub protobuf: fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
    /// Reads and writes a JSON object with k8s-openapi.
    pub json: fn(Value) -> serde_json::Result<Value>,
}

macro_rules! typed {
    ($($name:literal => $($path:ident)::+;)*) => {
        vec![$(Typed {
            name: $name,
            message: stringify!($($path)::+).replace("::", ".").replace(' ', ""),
            protobuf: |bytes| {
                k8s_pb::$($path)::+::decode(bytes).map(|object| object.encode_to_vec())
            },
            json: |object| {
                serde_json::from_value::<k8s_openapi::$($path)::+>(object)
                    .and_then(serde_json::to_value)
            },
        }),*]
    };
}

/// Returns every resource, in the order of the registry.
pub fn all() -> Vec<Typed> {
    typed! {
        "certificatesigningrequests" => api::certificates::v1::CertificateSigningRequest;
        "clusterrolebindings" => api::rbac::v1::ClusterRoleBinding;
        "clusterroles" => api::rbac::v1::ClusterRole;
        "configmaps" => api::core::v1::ConfigMap;
        "cronjobs" => api::batch::v1::CronJob;
        "daemonsets" => api::apps::v1::DaemonSet;
        "deployments" => api::apps::v1::Deployment;
        "endpoints" => api::core::v1::Endpoints;
        "endpointslices" => api::discovery::v1::EndpointSlice;
        "horizontalpodautoscalers" => api::autoscaling::v2::HorizontalPodAutoscaler;
        "ingressclasses" => api::networking::v1::IngressClass;
        "ingresses" => api::networking::v1::Ingress;
        "jobs" => api::batch::v1::Job;
        "leases" => api::coordination::v1::Lease;
        "limitranges" => api::core::v1::LimitRange;
        // v1 has the same fields as v1beta1, the latest version in k8s-pb.
        "mutatingadmissionpolicies" => api::admissionregistration::v1beta1::MutatingAdmissionPolicy;
        "mutatingadmissionpolicybindings" => api::admissionregistration::v1beta1::MutatingAdmissionPolicyBinding;
        "mutatingwebhookconfigurations" => api::admissionregistration::v1::MutatingWebhookConfiguration;
        "namespaces" => api::core::v1::Namespace;
        "networkpolicies" => api::networking::v1::NetworkPolicy;
        "nodes" => api::core::v1::Node;
        "persistentvolumeclaims" => api::core::v1::PersistentVolumeClaim;
        "persistentvolumes" => api::core::v1::PersistentVolume;
        "poddisruptionbudgets" => api::policy::v1::PodDisruptionBudget;
        "pods" => api::core::v1::Pod;
        "replicasets" => api::apps::v1::ReplicaSet;
        "replicationcontrollers" => api::core::v1::ReplicationController;
        "resourcequotas" => api::core::v1::ResourceQuota;
        "rolebindings" => api::rbac::v1::RoleBinding;
        "roles" => api::rbac::v1::Role;
        "secrets" => api::core::v1::Secret;
        "serviceaccounts" => api::core::v1::ServiceAccount;
        "services" => api::core::v1::Service;
        "statefulsets" => api::apps::v1::StatefulSet;
        "storageclasses" => api::storage::v1::StorageClass;
        "validatingadmissionpolicies" => api::admissionregistration::v1::ValidatingAdmissionPolicy;
        "validatingadmissionpolicybindings" => api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
        "validatingwebhookconfigurations" => api::admissionregistration::v1::ValidatingWebhookConfiguration;
        "volumeattachments" => api::storage::v1::VolumeAttachment;
    }
}
