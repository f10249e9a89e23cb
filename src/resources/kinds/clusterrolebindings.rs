//! `clusterrolebindings` (rbac.authorization.k8s.io/v1 ClusterRoleBinding).

use super::rbac::RoleRef;
use crate::resources::prelude::*;

object! {
    /// The fields of a ClusterRoleBinding that metrics read.
    pub struct ClusterRoleBinding<'a> {
        role_ref: RoleRef<'a> = 3 "roleRef",
    }
}

kind! {
    /// The ClusterRoleBinding kind.
    ClusterRoleBindings: ClusterRoleBinding, "cluster role binding",
        Api::cluster_wide("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings").off_by_default();
    identity [("clusterrolebinding", |binding| &binding.metadata.name)];
    families binding, s:
        annotations(Alpha, "kube_clusterrolebinding_annotations");
        labels(Alpha, "kube_clusterrolebinding_labels");
        alpha "kube_clusterrolebinding_info"
            {"roleref_kind": &binding.role_ref.kind, "roleref_name": &binding.role_ref.name},
            "The role that the cluster role binding grants.";
        created(Alpha, "kube_clusterrolebinding_created");
        version(Alpha, "kube_clusterrolebinding_metadata_resource_version");
}
