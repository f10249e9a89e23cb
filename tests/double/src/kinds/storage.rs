//! The storage of stateful pods: a claim, a volume and an attachment for each, and the storage classes.

use crate::encode::Message;
use crate::layout::{Controller, Item, Layout};
use crate::random::hex;

use super::meta::{Meta, Name};
use super::pods;

const SIZE: &str = "50Gi";
const CLASSES: &[&str] = &["fast", "standard"];
const DRIVER: &str = "ebs.csi.aws.com";

/// One claim for each pod of a stateful set.
pub fn claims(layout: &Layout) -> Vec<Item> {
    let sets = layout.workloads_of(|workload| workload.controller == Controller::StatefulSet);
    let items = sets.flat_map(|(index, workload)| {
        (workload.first_slot..workload.first_slot + workload.replicas)
            .map(move |slot| Item::new(slot, index, workload.created))
    });
    items.collect()
}

/// The name of a PersistentVolumeClaim.
pub fn claim_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let Name { namespace, name } = pods::name(layout, item);
    Name { namespace, name: format!("data-{name}") }
}

/// The name of a PersistentVolume.
pub fn volume_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let uid = layout.uid("persistentvolumeclaims", item.index, item.incarnation);
    Name { namespace: None, name: format!("pvc-{uid}") }
}

/// The name of a VolumeAttachment.
pub fn attachment_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let digest = hex(layout.identity("volumeattachments", item.index, 0), 64);
    Name { namespace: None, name: format!("csi-{digest}") }
}

/// A PersistentVolumeClaim.
pub fn write_claim(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let meta = Meta {
        labels: &[("app", &workload.name)],
        annotations: &[("pv.kubernetes.io/bind-completed", "yes")],
        finalizers: &["kubernetes.io/pvc-protection"],
        ..Meta::default()
    };
    meta.write(m, layout, "persistentvolumeclaims", item, &claim_name(layout, item));
    m.message(2, "spec", |m| {
        m.texts(1, "accessModes", ["ReadWriteOnce"]);
        m.message(2, "resources", |m| m.quantity_map(2, "requests", [("storage", SIZE)]));
        m.text(3, "volumeName", &volume_name(layout, item).name);
        m.text(5, "storageClassName", "fast");
        m.text(6, "volumeMode", "Filesystem");
    });
    m.message(3, "status", |m| {
        m.text(1, "phase", "Bound");
        m.texts(2, "accessModes", ["ReadWriteOnce"]);
        m.quantity_map(3, "capacity", [("storage", SIZE)]);
    });
}

/// A PersistentVolume.
pub fn write_volume(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let claim = claim_name(layout, item);
    let handle = hex(layout.identity("persistentvolumes", item.index, 0), 17);
    Meta { finalizers: &["kubernetes.io/pv-protection"], ..Meta::default() }.write(
        m,
        layout,
        "persistentvolumes",
        item,
        &volume_name(layout, item),
    );
    m.message(2, "spec", |m| {
        m.quantity_map(1, "capacity", [("storage", SIZE)]);
        m.inline(2, |m| {
            m.message(22, "csi", |m| {
                m.text(1, "driver", DRIVER);
                m.text(2, "volumeHandle", &format!("vol-{handle}"));
                m.text(4, "fsType", "ext4");
            });
        });
        m.texts(3, "accessModes", ["ReadWriteOnce"]);
        m.message(4, "claimRef", |m| {
            m.text(1, "kind", "PersistentVolumeClaim");
            m.text(2, "namespace", claim.namespace.unwrap_or_default());
            m.text(3, "name", &claim.name);
            m.text(4, "uid", &layout.uid("persistentvolumeclaims", item.index, item.incarnation));
            m.text(5, "apiVersion", "v1");
        });
        m.text(5, "persistentVolumeReclaimPolicy", "Delete");
        m.text(6, "storageClassName", "fast");
        m.text(8, "volumeMode", "Filesystem");
    });
    m.message(3, "status", |m| m.text(1, "phase", "Bound"));
}

/// A VolumeAttachment.
pub fn write_attachment(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let node = layout.node_of(layout.workload(item.workload), item.index);
    Meta::default().write(m, layout, "volumeattachments", item, &attachment_name(layout, item));
    m.message(2, "spec", |m| {
        m.text(1, "attacher", DRIVER);
        m.message(2, "source", |m| {
            m.text(1, "persistentVolumeName", &volume_name(layout, item).name);
        });
        m.text(3, "nodeName", &layout.node_name(node));
    });
    m.message(3, "status", |m| m.required_flag(1, "attached", true));
}

/// The storage classes.
pub fn classes(layout: &Layout) -> Vec<Item> {
    let created = layout.epoch - 250 * 86_400;
    (0..CLASSES.len() as u32).map(|index| Item::new(index, 0, created)).collect()
}

/// The name of a StorageClass.
pub fn class_name<'a>(_: &'a Layout, item: &Item) -> Name<'a> {
    Name { namespace: None, name: CLASSES[item.index as usize].to_owned() }
}

/// A StorageClass.
pub fn write_class(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    Meta::default().write(m, layout, "storageclasses", item, &class_name(layout, item));
    m.text(2, "provisioner", DRIVER);
    m.text_map(3, "parameters", [("type", "gp3")]);
    m.text(4, "reclaimPolicy", "Delete");
    m.required_flag(6, "allowVolumeExpansion", true);
    m.text(7, "volumeBindingMode", "WaitForFirstConsumer");
}
