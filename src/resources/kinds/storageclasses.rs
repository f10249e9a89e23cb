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

kind! {
    /// The StorageClass kind.
    StorageClasses: StorageClass, "storage class",
        Api::cluster_wide("storage.k8s.io", "v1", "StorageClass", "storageclasses");
    identity [("storageclass", |class| &class.metadata.name)];
    families class, s:
        // Absent fields have the API server's defaults.
        stable "kube_storageclass_info" {
                "provisioner": &class.provisioner,
                "reclaim_policy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
                "volume_binding_mode": class.volume_binding_mode.as_deref().unwrap_or("Immediate"),
            },
            "Who provisions volumes of the storage class, when they are bound and what becomes of them.";
        created(Stable, "kube_storageclass_created");
        annotations(Alpha, "kube_storageclass_annotations");
        labels(Stable, "kube_storageclass_labels");
}
