//! `clusterroles` (rbac.authorization.k8s.io/v1 ClusterRole).

use crate::resources::metadata::MetadataOnly;
use crate::resources::prelude::*;

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
