//! The kinds of `rbac.authorization.k8s.io`.

use crate::resources::prelude::*;

object! {
    /// The fields of a RoleBinding or ClusterRoleBinding that metrics read.
    pub struct Binding<'a> {
        role_ref: RoleRef<'a> = 3 "roleRef" struct RoleRef {
            kind: Str<'a> = 2 "kind",
            name: Str<'a> = 3 "name",
        },
    }
}

kind! {
    /// The ClusterRoleBinding kind.
    ClusterRoleBindings: Binding, "cluster role binding",
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

kind! {
    /// The ClusterRole kind.
    ClusterRoles: MetadataOnly, "cluster role",
        Api::cluster_wide("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles").off_by_default();
    identity [("clusterrole", |role| &role.metadata.name)];
    families role, s:
        annotations(Alpha, "kube_clusterrole_annotations");
        labels(Alpha, "kube_clusterrole_labels");
        info(Alpha, "kube_clusterrole_info");
        created(Alpha, "kube_clusterrole_created");
        version(Alpha, "kube_clusterrole_metadata_resource_version");
}

kind! {
    /// The RoleBinding kind.
    RoleBindings: Binding, "role binding",
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

kind! {
    /// The Role kind.
    Roles: MetadataOnly, "role", Api::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles").off_by_default();
    identity namespace_and::<Self>("role");
    families role, s:
        annotations(Alpha, "kube_role_annotations");
        labels(Alpha, "kube_role_labels");
        info(Alpha, "kube_role_info");
        created(Alpha, "kube_role_created");
        version(Alpha, "kube_role_metadata_resource_version");
}
