//! `clusterrolebindings` (rbac.authorization.k8s.io/v1 ClusterRoleBinding).

use super::rbac::RoleRef;
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, annotations, created, labels, resource_version};
use crate::wire::view::view;

view! {
    /// The fields of a ClusterRoleBinding that metrics read.
    pub struct ClusterRoleBinding<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        role_ref: RoleRef<'a> = 3 "roleRef",
    }
}

impl<'a> Object<'a> for ClusterRoleBinding<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ClusterRoleBinding kind.
pub struct ClusterRoleBindings;

impl Kind for ClusterRoleBindings {
    const API: Api = Api {
        name: "clusterrolebindings",
        group: "rbac.authorization.k8s.io",
        version: "v1",
        kind: "ClusterRoleBinding",
        namespaced: false,
        default_enabled: false,
    };
    const IDENTITY: &'static [Identity<Self>] =
        &[("clusterrolebinding", |binding| &binding.metadata.name)];
    type View<'a> = ClusterRoleBinding<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_clusterrolebinding_annotations",
            &["annotation_*"],
            "The cluster role binding's annotations that the allow list selects.",
            |binding, s| annotations(binding, s),
        )),
        of_metadata(alpha(
            "kube_clusterrolebinding_labels",
            &["label_*"],
            "The cluster role binding's labels that the allow list selects.",
            |binding, s| labels(binding, s),
        )),
        alpha(
            "kube_clusterrolebinding_info",
            &["roleref_kind", "roleref_name"],
            "The role that the cluster role binding grants.",
            |binding, s| binding.role_ref.info(s),
        ),
        of_metadata(alpha(
            "kube_clusterrolebinding_created",
            &[],
            "Unix time of the cluster role binding's creation.",
            |binding, s| created(binding, s),
        )),
        of_metadata(alpha(
            "kube_clusterrolebinding_metadata_resource_version",
            &[],
            "The version of the cluster role binding that the API server last reported.",
            |binding, s| resource_version(binding, s),
        )),
    ];
}
