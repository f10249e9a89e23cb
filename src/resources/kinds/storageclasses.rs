//! `storageclasses` (storage.k8s.io/v1 StorageClass).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, labels};
use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// The fields of a StorageClass that metrics read.
    pub struct StorageClass<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        provisioner: Str<'a> = 2 "provisioner",
        reclaim_policy: Option<Str<'a>> = 4 "reclaimPolicy",
        volume_binding_mode: Option<Str<'a>> = 7 "volumeBindingMode",
    }
}

impl<'a> Object<'a> for StorageClass<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The StorageClass kind.
pub struct StorageClasses;

impl Kind for StorageClasses {
    const API: Api = Api {
        name: "storageclasses",
        group: "storage.k8s.io",
        version: "v1",
        kind: "StorageClass",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[("storageclass", |class| &class.metadata.name)];
    type View<'a> = StorageClass<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        stable(
            "kube_storageclass_info",
            &["provisioner", "reclaim_policy", "volume_binding_mode"],
            "Who provisions volumes of the storage class, when they are bound and what becomes of them.",
            |class, s| info(class, s),
        ),
        of_metadata(stable(
            "kube_storageclass_created",
            &[],
            "Unix time of the storage class's creation.",
            |class, s| created(class, s),
        )),
        of_metadata(alpha(
            "kube_storageclass_annotations",
            &["annotation_*"],
            "The storage class's annotations that the allow list selects.",
            |class, s| annotations(class, s),
        )),
        of_metadata(stable(
            "kube_storageclass_labels",
            &["label_*"],
            "The storage class's labels that the allow list selects.",
            |class, s| labels(class, s),
        )),
    ];
}

fn info(class: &StorageClass<'_>, s: &mut Series<'_>) {
    // The API server's defaults.
    let labels = [
        ("provisioner", &*class.provisioner),
        ("reclaim_policy", class.reclaim_policy.as_deref().unwrap_or("Delete")),
        ("volume_binding_mode", class.volume_binding_mode.as_deref().unwrap_or("Immediate")),
    ];
    s.with(&labels, 1.0);
}
