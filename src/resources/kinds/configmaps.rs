//! `configmaps` (v1 ConfigMap).

use crate::resources::prelude::*;

kind! {
    /// The ConfigMap kind.
    ConfigMaps: MetadataOnly, "config map", Api::namespaced("", "v1", "ConfigMap", "configmaps");
    identity namespace_and::<Self>("configmap");
    families map, s:
        annotations(Alpha, "kube_configmap_annotations");
        labels(Stable, "kube_configmap_labels");
        info(Stable, "kube_configmap_info");
        created(Stable, "kube_configmap_created");
        version(Alpha, "kube_configmap_metadata_resource_version");
}
