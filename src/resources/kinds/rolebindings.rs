//! `rolebindings` (rbac.authorization.k8s.io/v1 RoleBinding).

use super::rbac::RoleRef;
use crate::resources::prelude::*;

object! {
    /// The fields of a RoleBinding that metrics read.
    pub struct RoleBinding<'a> {
        role_ref: RoleRef<'a> = 3 "roleRef",
    }
}

kind! {
    /// The RoleBinding kind.
    RoleBindings: RoleBinding, "role binding",
        Api::namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings").off_by_default();
    identity namespace_and::<Self>("rolebinding");
    families binding, s:
        annotations(Alpha, "kube_rolebinding_annotations");
        labels(Alpha, "kube_rolebinding_labels");
        alpha "kube_rolebinding_info"
            {"roleref_kind": &binding.role_ref.kind, "roleref_name": &binding.role_ref.name},
            "The role that the role binding grants.";
        created(Alpha, "kube_rolebinding_created");
        version(Alpha, "kube_rolebinding_metadata_resource_version");
}
