//! `configmaps` (v1 ConfigMap).

use crate::resources::prelude::*;

object! {
    /// The fields of a ConfigMap that metrics read.
    pub struct ConfigMap<'a> {
    }
}

/// The ConfigMap kind.
pub struct ConfigMaps;

impl Kind for ConfigMaps {
    const API: Api = Api::namespaced("", "v1", "ConfigMap", "configmaps");
    const NOUN: &'static str = "config map";
    const IDENTITY: &'static [Identity<Self>] = &namespace_and::<Self>("configmap");
    type View<'a> = ConfigMap<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        annotations(Alpha, "kube_configmap_annotations"),
        labels(Stable, "kube_configmap_labels"),
        info(Stable, "kube_configmap_info"),
        created(Stable, "kube_configmap_created"),
        version(Alpha, "kube_configmap_metadata_resource_version"),
    ];
}
