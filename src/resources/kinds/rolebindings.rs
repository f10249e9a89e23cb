//! `rolebindings` (rbac.authorization.k8s.io/v1 RoleBinding).

use super::rbac::RoleRef;
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, annotations, created, labels, resource_version};
use crate::wire::view::view;

view! {
    /// The fields of a RoleBinding that metrics read.
    pub struct RoleBinding<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        role_ref: RoleRef<'a> = 3 "roleRef",
    }
}

impl<'a> Object<'a> for RoleBinding<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The RoleBinding kind.
pub struct RoleBindings;

impl Kind for RoleBindings {
    const API: Api = Api {
        name: "rolebindings",
        group: "rbac.authorization.k8s.io",
        version: "v1",
        kind: "RoleBinding",
        namespaced: true,
        default_enabled: false,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |binding| &binding.metadata.namespace),
        ("rolebinding", |binding| &binding.metadata.name),
    ];
    type View<'a> = RoleBinding<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_rolebinding_annotations",
            &["annotation_*"],
            "The role binding's annotations that the allow list selects.",
            |binding, s| annotations(binding, s),
        )),
        of_metadata(alpha(
            "kube_rolebinding_labels",
            &["label_*"],
            "The role binding's labels that the allow list selects.",
            |binding, s| labels(binding, s),
        )),
        alpha(
            "kube_rolebinding_info",
            &["roleref_kind", "roleref_name"],
            "The role that the role binding grants.",
            |binding, s| binding.role_ref.info(s),
        ),
        of_metadata(alpha(
            "kube_rolebinding_created",
            &[],
            "Unix time of the role binding's creation.",
            |binding, s| created(binding, s),
        )),
        of_metadata(alpha(
            "kube_rolebinding_metadata_resource_version",
            &[],
            "The version of the role binding that the API server last reported.",
            |binding, s| resource_version(binding, s),
        )),
    ];
}
