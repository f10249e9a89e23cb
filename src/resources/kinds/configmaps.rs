//! `configmaps` (v1 ConfigMap).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, labels, one, resource_version};
use crate::wire::view::view;

view! {
    /// The fields of a ConfigMap that metrics read.
    pub struct ConfigMap<'a> {
        metadata: Metadata<'a> = 1 "metadata",
    }
}

impl<'a> Object<'a> for ConfigMap<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ConfigMap kind.
pub struct ConfigMaps;

impl Kind for ConfigMaps {
    const API: Api = Api {
        name: "configmaps",
        group: "",
        version: "v1",
        kind: "ConfigMap",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] =
        &[("namespace", |map| &map.metadata.namespace), ("configmap", |map| &map.metadata.name)];
    type View<'a> = ConfigMap<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_configmap_annotations",
            &["annotation_*"],
            "The config map's annotations that the allow list selects.",
            |map, s| annotations(map, s),
        )),
        of_metadata(stable(
            "kube_configmap_labels",
            &["label_*"],
            "The config map's labels that the allow list selects.",
            |map, s| labels(map, s),
        )),
        of_metadata(stable("kube_configmap_info", &[], "1 for each config map.", |map, s| {
            one(map, s)
        })),
        of_metadata(stable(
            "kube_configmap_created",
            &[],
            "Unix time of the config map's creation.",
            |map, s| created(map, s),
        )),
        of_metadata(alpha(
            "kube_configmap_metadata_resource_version",
            &[],
            "The version of the config map that the API server last reported.",
            |map, s| resource_version(map, s),
        )),
    ];
}
