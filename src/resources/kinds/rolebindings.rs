//! `rolebindings` (rbac.authorization.k8s.io/v1 RoleBinding).

use super::rbac::RoleRef;
use crate::resources::prelude::*;

object! {
    /// The fields of a RoleBinding that metrics read.
    pub struct RoleBinding<'a> {
        role_ref: RoleRef<'a> = 3 "roleRef",
    }
}

/// The RoleBinding kind.
pub struct RoleBindings;

impl Kind for RoleBindings {
    const API: Api =
        Api::namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
            .off_by_default();
    const NOUN: &'static str = "role binding";
    const IDENTITY: &'static [Identity<Self>] = &namespace_and::<Self>("rolebinding");
    type View<'a> = RoleBinding<'a>;

    const FAMILIES: &'static [Family<Self>] = families! { binding, s:
        annotations(Alpha, "kube_rolebinding_annotations");
        labels(Alpha, "kube_rolebinding_labels");
        alpha "kube_rolebinding_info" ["roleref_kind", "roleref_name"],
            "The role that the role binding grants.": binding.role_ref.info(s);
        created(Alpha, "kube_rolebinding_created");
        version(Alpha, "kube_rolebinding_metadata_resource_version");
    };
}
