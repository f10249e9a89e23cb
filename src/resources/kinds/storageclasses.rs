//! `storageclasses` (storage.k8s.io/v1 StorageClass).

use crate::resources::prelude::*;

object! {
    /// The fields of a StorageClass that metrics read.
    pub struct StorageClass<'a> {
        provisioner: Str<'a> = 2 "provisioner",
        reclaim_policy: Option<Str<'a>> = 4 "reclaimPolicy",
        volume_binding_mode: Option<Str<'a>> = 7 "volumeBindingMode",
    }
}

/// The StorageClass kind.
pub struct StorageClasses;

impl Kind for StorageClasses {
    const API: Api = Api::cluster_wide("storage.k8s.io", "v1", "StorageClass", "storageclasses");
    const NOUN: &'static str = "storage class";
    const IDENTITY: &'static [Identity<Self>] = &[("storageclass", |class| &class.metadata.name)];
    type View<'a> = StorageClass<'a>;

    const FAMILIES: &'static [Family<Self>] = families! { class, s:
        stable "kube_storageclass_info" ["provisioner", "reclaim_policy", "volume_binding_mode"],
            "Who provisions volumes of the storage class, when they are bound and what becomes of them.":
            info(class, s);
        created(Stable, "kube_storageclass_created");
        annotations(Alpha, "kube_storageclass_annotations");
        labels(Stable, "kube_storageclass_labels");
    };
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
