//! `roles` (rbac.authorization.k8s.io/v1 Role).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, annotations, created, labels, one, resource_version};
use crate::wire::view::view;

view! {
    /// The fields of a Role that metrics read.
    pub struct Role<'a> {
        metadata: Metadata<'a> = 1 "metadata",
    }
}

impl<'a> Object<'a> for Role<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The Role kind.
pub struct Roles;

impl Kind for Roles {
    const API: Api = Api {
        name: "roles",
        group: "rbac.authorization.k8s.io",
        version: "v1",
        kind: "Role",
        namespaced: true,
        default_enabled: false,
    };
    const IDENTITY: &'static [Identity<Self>] =
        &[("namespace", |role| &role.metadata.namespace), ("role", |role| &role.metadata.name)];
    type View<'a> = Role<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_role_annotations",
            &["annotation_*"],
            "The role's annotations that the allow list selects.",
            |role, s| annotations(role, s),
        )),
        of_metadata(alpha(
            "kube_role_labels",
            &["label_*"],
            "The role's labels that the allow list selects.",
            |role, s| labels(role, s),
        )),
        of_metadata(alpha("kube_role_info", &[], "1 for each role.", |role, s| one(role, s))),
        of_metadata(alpha(
            "kube_role_created",
            &[],
            "Unix time of the role's creation.",
            |role, s| created(role, s),
        )),
        of_metadata(alpha(
            "kube_role_metadata_resource_version",
            &[],
            "The version of the role that the API server last reported.",
            |role, s| resource_version(role, s),
        )),
    ];
}
