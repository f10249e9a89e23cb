//! `secrets` (v1 Secret).

use crate::resources::kind::{
    Api, Column, Family, Identity, Kind, Object, alpha, of_column, of_metadata, stable,
};
use crate::resources::metadata::{
    Metadata, annotations, created, labels, one, owners, resource_version,
};
use crate::wire::view::{Str, view};

view! {
    /// The fields of a Secret that metrics read; its data is skipped.
    pub struct Secret<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        kind: Str<'a> = 3 "type",
    }
}

impl<'a> Object<'a> for Secret<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The Secret kind.
pub struct Secrets;

impl Kind for Secrets {
    const API: Api = Api {
        name: "secrets",
        group: "",
        version: "v1",
        kind: "Secret",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |secret| &secret.metadata.namespace),
        ("secret", |secret| &secret.metadata.name),
    ];
    type View<'a> = Secret<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(stable("kube_secret_info", &[], "1 for each secret.", |secret, s| {
            one(secret, s)
        })),
        of_column(
            Column { heading: "Type", member: "type" },
            stable("kube_secret_type", &["type"], "The type of the secret.", |secret, s| {
                s.with(&[("type", &secret.kind)], 1.0)
            }),
        ),
        of_metadata(alpha(
            "kube_secret_annotations",
            &["annotation_*"],
            "The secret's annotations that the allow list selects.",
            |secret, s| annotations(secret, s),
        )),
        of_metadata(stable(
            "kube_secret_labels",
            &["label_*"],
            "The secret's labels that the allow list selects.",
            |secret, s| labels(secret, s),
        )),
        of_metadata(stable(
            "kube_secret_created",
            &[],
            "Unix time of the secret's creation.",
            |secret, s| created(secret, s),
        )),
        of_metadata(alpha(
            "kube_secret_metadata_resource_version",
            &[],
            "The version of the secret that the API server last reported.",
            |secret, s| resource_version(secret, s),
        )),
        of_metadata(alpha(
            "kube_secret_owner",
            &["owner_kind", "owner_name", "owner_is_controller"],
            "The objects that own the secret.",
            |secret, s| owners(secret, s),
        )),
    ];
}
