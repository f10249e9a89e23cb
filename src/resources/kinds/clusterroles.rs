//! `clusterroles` (rbac.authorization.k8s.io/v1 ClusterRole).

use crate::resources::prelude::*;

object! {
    /// The fields of a ClusterRole that metrics read.
    pub struct ClusterRole<'a> {
    }
}

/// The ClusterRole kind.
pub struct ClusterRoles;

impl Kind for ClusterRoles {
    const API: Api =
        Api::cluster_wide("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
            .off_by_default();
    const NOUN: &'static str = "cluster role";
    const IDENTITY: &'static [Identity<Self>] = &[("clusterrole", |role| &role.metadata.name)];
    type View<'a> = ClusterRole<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        annotations(Alpha, "kube_clusterrole_annotations"),
        labels(Alpha, "kube_clusterrole_labels"),
        info(Alpha, "kube_clusterrole_info"),
        created(Alpha, "kube_clusterrole_created"),
        version(Alpha, "kube_clusterrole_metadata_resource_version"),
    ];
}
