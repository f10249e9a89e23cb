//! `serviceaccounts` (v1 ServiceAccount).

use crate::resources::prelude::*;

object! {
    /// The fields of a ServiceAccount that metrics read.
    pub struct ServiceAccount<'a> {
        secrets: Vec<SecretReference<'a>> = 2 "secrets" struct SecretReference {
            name: Str<'a> = 3 "name",
        },
        image_pull_secrets: Vec<ImagePullSecret<'a>> = 3 "imagePullSecrets" struct ImagePullSecret {
            name: Str<'a> = 1 "name",
        },
        automount_token: Option<bool> = 4 "automountServiceAccountToken",
    }
}

kind! {
    /// The ServiceAccount kind.
    ServiceAccounts: ServiceAccount, "service account",
        Api::namespaced("", "v1", "ServiceAccount", "serviceaccounts").off_by_default();
    identity namespace_and_uid::<Self>("serviceaccount");
    families account, s:
        alpha "kube_serviceaccount_info"
            {"automount_token": account.automount_token.map_or("", bool_text)},
            "Whether pods that run as the service account get its token mounted; empty where it does not say.";
        created(Alpha, "kube_serviceaccount_created");
        deleted(Alpha, "kube_serviceaccount_deleted");
        alpha "kube_serviceaccount_secret" {"name": &secret.name} for secret in &account.secrets,
            "The secrets that the service account names.";
        alpha "kube_serviceaccount_image_pull_secret" {"name": &secret.name}
            for secret in &account.image_pull_secrets,
            "The secrets with which images are pulled for pods of the service account.";
        annotations(Alpha, "kube_serviceaccount_annotations");
        labels(Alpha, "kube_serviceaccount_labels");
}
