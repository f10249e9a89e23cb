//! `roles` (rbac.authorization.k8s.io/v1 Role).

use crate::resources::metadata::MetadataOnly;
use crate::resources::prelude::*;

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
