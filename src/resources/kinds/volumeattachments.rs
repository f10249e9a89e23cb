//! `volumeattachments` (storage.k8s.io/v1 VolumeAttachment).

use crate::resources::prelude::*;

object! {
    /// The fields of a VolumeAttachment that metrics read.
    pub struct VolumeAttachment<'a> {
        spec: AttachmentSpec<'a> = 2 "spec" struct AttachmentSpec {
            attacher: Str<'a> = 1 "attacher",
            source: AttachmentSource<'a> = 2 "source" struct AttachmentSource {
                persistent_volume_name: Option<Str<'a>> = 1 "persistentVolumeName",
            },
            node_name: Str<'a> = 3 "nodeName",
        },
        status: AttachmentStatus<'a> = 3 "status" struct AttachmentStatus {
            attached: bool = 1 "attached",
            attachment_metadata: Map<'a> = 2 "attachmentMetadata",
        },
    }
}

kind! {
    /// The VolumeAttachment kind.
    VolumeAttachments: VolumeAttachment, "volume attachment",
        Api::cluster_wide("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments");
    identity [("volumeattachment", |attachment| &attachment.metadata.name)];
    families attachment, s:
        alpha of_metadata "kube_volumeattachment_labels" ["label_*"],
            "All labels of the volume attachment, whatever the allow list says.":
            s.with_entries("label", &attachment.metadata.labels);
        alpha "kube_volumeattachment_info"
            {"attacher": &attachment.spec.attacher, "node": &attachment.spec.node_name},
            "Who attaches the volume, and to which node.";
        created(Alpha, "kube_volumeattachment_created");
        alpha "kube_volumeattachment_spec_source_persistentvolume" {"volumename": volume}
            for volume in attachment.spec.source.persistent_volume_name.iter(),
            "The persistent volume to be attached.";
        alpha "kube_volumeattachment_status_attached", "Whether the volume is attached.":
            s.value(attachment.status.attached);
        alpha "kube_volumeattachment_status_attachment_metadata" ["metadata_*"],
            "What the attacher notes about the attachment.":
            s.with_entries("metadata", &attachment.status.attachment_metadata);
}
