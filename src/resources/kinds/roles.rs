//! `roles` (rbac.authorization.k8s.io/v1 Role).

use crate::resources::prelude::*;

object! {
    /// The fields of a Role that metrics read.
    pub struct Role<'a> {
    }
}

/// The Role kind.
pub struct Roles;

impl Kind for Roles {
    const API: Api =
        Api::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles").off_by_default();
    const NOUN: &'static str = "role";
    const IDENTITY: &'static [Identity<Self>] = &namespace_and::<Self>("role");
    type View<'a> = Role<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        annotations(Alpha, "kube_role_annotations"),
        labels(Alpha, "kube_role_labels"),
        info(Alpha, "kube_role_info"),
        created(Alpha, "kube_role_created"),
        version(Alpha, "kube_role_metadata_resource_version"),
    ];
}
