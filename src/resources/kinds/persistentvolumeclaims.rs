//! `persistentvolumeclaims` (v1 PersistentVolumeClaim).

use crate::resources::prelude::*;

object! {
    /// The fields of a PersistentVolumeClaim that metrics read.
    pub struct VolumeClaim<'a> {
        spec: VolumeClaimSpec<'a> = 2 "spec" struct VolumeClaimSpec {
            access_modes: Vec<Str<'a>> = 1 "accessModes",
            resources: VolumeResources<'a> = 2 "resources" struct VolumeResources {
                requests: ResourceList<'a> = 2 "requests",
            },
            volume_name: Str<'a> = 3 "volumeName",
            storage_class_name: Option<Str<'a>> = 5 "storageClassName",
            volume_mode: Str<'a> = 6 "volumeMode",
        },
        status: VolumeClaimStatus<'a> = 3 "status" struct VolumeClaimStatus {
            phase: Str<'a> = 1 "phase",
            conditions: Vec<Condition<'a>> = 4 "conditions",
        },
    }
}

kind! {
    /// The PersistentVolumeClaim kind.
    PersistentVolumeClaims: VolumeClaim, "volume claim",
        Api::namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    identity namespace_and::<Self>("persistentvolumeclaim");
    families claim, s:
        labels(Stable, "kube_persistentvolumeclaim_labels");
        annotations(Alpha, "kube_persistentvolumeclaim_annotations");
        stable "kube_persistentvolumeclaim_info"
            {
                "storageclass": storage_class(claim),
                "volumename": &claim.spec.volume_name,
                "volumemode": &claim.spec.volume_mode,
            },
            "The storage class that the volume claim asks for and the volume that it is bound to.";
        stable "kube_persistentvolumeclaim_status_phase" ["phase"],
            "The phase of the volume claim: one series for each, 1 for the present one.":
            s.known_state("phase", &["Lost", "Bound", "Pending"], &claim.status.phase);
        stable "kube_persistentvolumeclaim_resource_requests_storage_bytes",
            "How much storage the volume claim asks for.": {
                let request = claim.spec.resources.requests.get("storage");
                let bytes = request.and_then(QuantityText::quantity);
                s.value(bytes.map(|quantity| quantity.integer()));
            };
        stable "kube_persistentvolumeclaim_access_mode" {"access_mode": mode}
            for mode in &claim.spec.access_modes,
            "The ways of access that the volume claim asks for.";
        alpha "kube_persistentvolumeclaim_status_condition" ["condition", "status"],
            "The conditions of the volume claim: for each, one series for each status, 1 for the present one.":
            condition::all(&claim.status.conditions, s);
        created(Alpha, "kube_persistentvolumeclaim_created");
        deleted(Alpha, "kube_persistentvolumeclaim_deletion_timestamp");
}

fn storage_class<'v>(claim: &'v VolumeClaim<'_>) -> &'v str {
    // The annotation predates the field; the controller still gives it precedence.
    let annotation = claim.metadata.annotations.get("volume.beta.kubernetes.io/storage-class");
    annotation.or(claim.spec.storage_class_name.as_ref()).map_or("", |class| class)
}
