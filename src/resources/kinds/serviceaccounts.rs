//! `serviceaccounts` (v1 ServiceAccount).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, annotations, created, deleted, labels};
use crate::resources::series::bool_text;
use crate::wire::view::{Str, view};

view! {
    /// The fields of a ServiceAccount that metrics read.
    pub struct ServiceAccount<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        secrets: Vec<SecretReference<'a>> = 2 "secrets",
        image_pull_secrets: Vec<ImagePullSecret<'a>> = 3 "imagePullSecrets",
        automount_token: Option<bool> = 4 "automountServiceAccountToken",
    }

    /// `secrets[]`.
    pub struct SecretReference<'a> {
        name: Str<'a> = 3 "name",
    }

    /// `imagePullSecrets[]`.
    pub struct ImagePullSecret<'a> {
        name: Str<'a> = 1 "name",
    }
}

impl<'a> Object<'a> for ServiceAccount<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ServiceAccount kind.
pub struct ServiceAccounts;

impl Kind for ServiceAccounts {
    const API: Api = Api {
        name: "serviceaccounts",
        group: "",
        version: "v1",
        kind: "ServiceAccount",
        namespaced: true,
        default_enabled: false,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |account| &account.metadata.namespace),
        ("serviceaccount", |account| &account.metadata.name),
        ("uid", |account| &account.metadata.uid),
    ];
    type View<'a> = ServiceAccount<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        alpha(
            "kube_serviceaccount_info",
            &["automount_token"],
            "Whether pods that run as the service account get its token mounted; empty where it does not say.",
            |account, s| {
                let automount = account.automount_token.map_or("", bool_text);
                s.with(&[("automount_token", automount)], 1.0);
            },
        ),
        of_metadata(alpha(
            "kube_serviceaccount_created",
            &[],
            "Unix time of the service account's creation.",
            |account, s| created(account, s),
        )),
        of_metadata(alpha(
            "kube_serviceaccount_deleted",
            &[],
            "Unix time at which the service account is due to be deleted.",
            |account, s| deleted(account, s),
        )),
        alpha(
            "kube_serviceaccount_secret",
            &["name"],
            "The secrets that the service account names.",
            |account, s| {
                for secret in &account.secrets {
                    s.with(&[("name", &secret.name)], 1.0);
                }
            },
        ),
        alpha(
            "kube_serviceaccount_image_pull_secret",
            &["name"],
            "The secrets with which images are pulled for pods of the service account.",
            |account, s| {
                for secret in &account.image_pull_secrets {
                    s.with(&[("name", &secret.name)], 1.0);
                }
            },
        ),
        of_metadata(alpha(
            "kube_serviceaccount_annotations",
            &["annotation_*"],
            "The service account's annotations that the allow list selects.",
            |account, s| annotations(account, s),
        )),
        of_metadata(alpha(
            "kube_serviceaccount_labels",
            &["label_*"],
            "The service account's labels that the allow list selects.",
            |account, s| labels(account, s),
        )),
    ];
}
