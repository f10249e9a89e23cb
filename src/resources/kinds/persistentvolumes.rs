//! `persistentvolumes` (v1 PersistentVolume).

use crate::resources::prelude::*;

object! {
    /// The fields of a PersistentVolume that metrics read.
    pub struct PersistentVolume<'a> {
        spec: VolumeSpec<'a> = 2 "spec" struct VolumeSpec {
            ..source: VolumeSource<'a> = 2,
            capacity: ResourceList<'a> = 1 "capacity",
            access_modes: Vec<Str<'a>> = 3 "accessModes",
            claim: Option<ClaimReference<'a>> = 4 "claimRef" struct ClaimReference {
                namespace: Str<'a> = 2 "namespace",
                name: Str<'a> = 3 "name",
            },
            reclaim_policy: Str<'a> = 5 "persistentVolumeReclaimPolicy",
            storage_class_name: Str<'a> = 6 "storageClassName",
            volume_mode: Option<Str<'a>> = 8 "volumeMode",
        },
        status: VolumeStatus<'a> = 3 "status" struct VolumeStatus {
            phase: Str<'a> = 1 "phase",
        },
    }

    /// The storage backend of a volume.
    pub struct VolumeSource<'a> {
        gce_persistent_disk: Option<GcePersistentDisk<'a>> = 1 "gcePersistentDisk" struct GcePersistentDisk {
            name: Str<'a> = 1 "pdName",
        },
        aws_elastic_block_store: Option<ElasticBlockStore<'a>> = 2 "awsElasticBlockStore" struct ElasticBlockStore {
            volume_id: Str<'a> = 1 "volumeID",
        },
        host_path: Option<HostPath<'a>> = 3 "hostPath" struct HostPath {
            path: Str<'a> = 1 "path",
            kind: Str<'a> = 2 "type",
        },
        nfs: Option<Nfs<'a>> = 5 "nfs" struct Nfs {
            server: Str<'a> = 1 "server",
            path: Str<'a> = 2 "path",
        },
        iscsi: Option<Iscsi<'a>> = 7 "iscsi" struct Iscsi {
            target_portal: Str<'a> = 1 "targetPortal",
            iqn: Str<'a> = 2 "iqn",
            lun: i32 = 3 "lun",
            initiator_name: Str<'a> = 12 "initiatorName",
        },
        fc: Option<FibreChannel<'a>> = 10 "fc" struct FibreChannel {
            target_wwns: Vec<Str<'a>> = 1 "targetWWNs",
            lun: Option<i32> = 2 "lun",
            wwids: Vec<Str<'a>> = 5 "wwids",
        },
        azure_disk: Option<AzureDisk<'a>> = 16 "azureDisk" struct AzureDisk {
            name: Str<'a> = 1 "diskName",
        },
        local: Option<Local<'a>> = 20 "local" struct Local {
            path: Str<'a> = 1 "path",
            fs_type: Str<'a> = 2 "fsType",
        },
        csi: Option<Csi<'a>> = 22 "csi" struct Csi {
            driver: Str<'a> = 1 "driver",
            volume_handle: Str<'a> = 2 "volumeHandle",
            volume_attributes: Map<'a> = 5 "volumeAttributes",
        },
    }
}

kind! {
    /// The PersistentVolume kind.
    PersistentVolumes: PersistentVolume, "persistent volume",
        Api::cluster_wide("", "v1", "PersistentVolume", "persistentvolumes");
    identity [("persistentvolume", |volume| &volume.metadata.name)];
    families volume, s:
        stable "kube_persistentvolume_claim_ref"
            {"name": &claim.name, "claim_namespace": &claim.namespace}
            for claim in volume.spec.claim.iter(),
            "The volume claim that the persistent volume is kept for.";
        annotations(Alpha, "kube_persistentvolume_annotations");
        labels(Stable, "kube_persistentvolume_labels");
        stable "kube_persistentvolume_status_phase" ["phase"],
            "The phase of the persistent volume: one series for each, 1 for the present one.": {
                let all = ["Pending", "Available", "Bound", "Released", "Failed"];
                s.known_state("phase", &all, &volume.status.phase);
            };
        stable "kube_persistentvolume_info" INFO,
            "Where the persistent volume is stored and what becomes of it when it is released.":
            info(volume, s);
        stable "kube_persistentvolume_capacity_bytes", "How much the persistent volume holds.": {
                let capacity = volume.spec.capacity.get("storage");
                let bytes = capacity.and_then(QuantityText::quantity);
                s.value(bytes.map_or(0.0, |quantity| quantity.integer() as f64));
            };
        created(Alpha, "kube_persistentvolume_created");
        deleted(Alpha, "kube_persistentvolume_deletion_timestamp");
        alpha opt_in "kube_persistentvolume_csi_attributes"
            {
                "csi_mounter": csi.volume_attributes.get("mounter").map_or("", |value| value),
                "csi_map_options": csi.volume_attributes.get("mapOptions").map_or("", |value| value),
            } for csi in volume.spec.source.csi.iter(),
            "How the CSI driver is told to mount the persistent volume.";
        alpha "kube_persistentvolume_volume_mode"
            {"volumemode": volume.spec.volume_mode.as_deref().unwrap_or("Filesystem")},
            "Whether the persistent volume is a file system or a block device.";
        alpha "kube_persistentvolume_access_mode" {"access_mode": mode}
            for mode in &volume.spec.access_modes,
            "The ways of access that the persistent volume allows.";
}

/// The labels of `kube_persistentvolume_info`.
const INFO: [&str; 20] = [
    "storageclass",
    "gce_persistent_disk_name",
    "ebs_volume_id",
    "azure_disk_name",
    "fc_wwids",
    "fc_lun",
    "fc_target_wwns",
    "iscsi_target_portal",
    "iscsi_iqn",
    "iscsi_lun",
    "iscsi_initiator_name",
    "nfs_server",
    "nfs_path",
    "csi_driver",
    "csi_volume_handle",
    "local_path",
    "local_fs",
    "host_path",
    "host_path_type",
    "reclaim_policy",
];

fn info(volume: &PersistentVolume<'_>, s: &mut Series<'_>) {
    let mut labels = INFO.map(|name| (name, ""));
    let mut fill = |name: &str, text| {
        for label in labels.iter_mut().filter(|label| label.0 == name) {
            label.1 = text;
        }
    };
    fill("storageclass", &volume.spec.storage_class_name);
    fill("reclaim_policy", &volume.spec.reclaim_policy);
    let source = &volume.spec.source;
    let mut lun = itoa::Buffer::new();
    let (wwids, wwns);
    // A volume has one source; if an object has several, the first of these counts.
    if let Some(gce) = &source.gce_persistent_disk {
        fill("gce_persistent_disk_name", &gce.name);
    } else if let Some(ebs) = &source.aws_elastic_block_store {
        fill("ebs_volume_id", &ebs.volume_id);
    } else if let Some(azure) = &source.azure_disk {
        fill("azure_disk_name", &azure.name);
    } else if let Some(fc) = &source.fc {
        (wwids, wwns) = (joined(&fc.wwids), joined(&fc.target_wwns));
        fill("fc_wwids", &wwids);
        fill("fc_lun", number_text(fc.lun, &mut lun));
        fill("fc_target_wwns", &wwns);
    } else if let Some(iscsi) = &source.iscsi {
        fill("iscsi_target_portal", &iscsi.target_portal);
        fill("iscsi_iqn", &iscsi.iqn);
        fill("iscsi_lun", lun.format(iscsi.lun));
        fill("iscsi_initiator_name", &iscsi.initiator_name);
    } else if let Some(nfs) = &source.nfs {
        fill("nfs_server", &nfs.server);
        fill("nfs_path", &nfs.path);
    } else if let Some(csi) = &source.csi {
        fill("csi_driver", &csi.driver);
        fill("csi_volume_handle", &csi.volume_handle);
    } else if let Some(local) = &source.local {
        fill("local_path", &local.path);
        fill("local_fs", &local.fs_type);
    } else if let Some(host) = &source.host_path {
        fill("host_path", &host.path);
        fill("host_path_type", &host.kind);
    }
    s.with(&labels, 1.0);
}

/// Joins the items with commas, without leading empty ones.
fn joined(items: &[Str<'_>]) -> String {
    let mut out = String::new();
    for item in items {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(item);
    }
    out
}
