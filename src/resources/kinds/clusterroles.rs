//! `clusterroles` (rbac.authorization.k8s.io/v1 ClusterRole).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, annotations, created, labels, one, resource_version};
use crate::wire::view::view;

view! {
    /// The fields of a ClusterRole that metrics read.
    pub struct ClusterRole<'a> {
        metadata: Metadata<'a> = 1 "metadata",
    }
}

impl<'a> Object<'a> for ClusterRole<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ClusterRole kind.
pub struct ClusterRoles;

impl Kind for ClusterRoles {
    const API: Api = Api {
        name: "clusterroles",
        group: "rbac.authorization.k8s.io",
        version: "v1",
        kind: "ClusterRole",
        namespaced: false,
        default_enabled: false,
    };
    const IDENTITY: &'static [Identity<Self>] = &[("clusterrole", |role| &role.metadata.name)];
    type View<'a> = ClusterRole<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_clusterrole_annotations",
            &["annotation_*"],
            "The cluster role's annotations that the allow list selects.",
            |role, s| annotations(role, s),
        )),
        of_metadata(alpha(
            "kube_clusterrole_labels",
            &["label_*"],
            "The cluster role's labels that the allow list selects.",
            |role, s| labels(role, s),
        )),
        of_metadata(alpha("kube_clusterrole_info", &[], "1 for each cluster role.", |role, s| {
            one(role, s)
        })),
        of_metadata(alpha(
            "kube_clusterrole_created",
            &[],
            "Unix time of the cluster role's creation.",
            |role, s| created(role, s),
        )),
        of_metadata(alpha(
            "kube_clusterrole_metadata_resource_version",
            &[],
            "The version of the cluster role that the API server last reported.",
            |role, s| resource_version(role, s),
        )),
    ];
}
