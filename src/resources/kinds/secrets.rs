//! `secrets` (v1 Secret).

use crate::resources::kind::Column;
use crate::resources::prelude::*;

object! {
    /// The fields of a Secret that metrics read; its data is skipped.
    pub struct Secret<'a> {
        kind: Str<'a> = 3 "type",
    }
}

kind! {
    /// The Secret kind.
    Secrets: Secret, "secret", Api::namespaced("", "v1", "Secret", "secrets");
    identity namespace_and::<Self>("secret");
    families secret, s:
        info(Stable, "kube_secret_info");
        stable of_column(Column { heading: "Type", member: "type" })
            "kube_secret_type" ["type"], "The type of the secret.":
            s.with(&[("type", &secret.kind)], 1.0);
        annotations(Alpha, "kube_secret_annotations");
        labels(Stable, "kube_secret_labels");
        created(Stable, "kube_secret_created");
        version(Alpha, "kube_secret_metadata_resource_version");
        owners(Alpha, "kube_secret_owner");
}
