//! `resourcequotas` (v1 ResourceQuota).

use super::resource_list::{self, ResourceList};
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, labels};
use crate::resources::series::Series;
use crate::wire::view::view;

view! {
    /// The fields of a ResourceQuota that metrics read.
    pub struct ResourceQuota<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: ResourceQuotaStatus<'a> = 3 "status",
    }

    /// `status`.
    pub struct ResourceQuotaStatus<'a> {
        hard: ResourceList<'a> = 1 "hard",
        used: ResourceList<'a> = 2 "used",
    }
}

impl<'a> Object<'a> for ResourceQuota<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ResourceQuota kind.
pub struct ResourceQuotas;

impl Kind for ResourceQuotas {
    const API: Api = Api {
        name: "resourcequotas",
        group: "",
        version: "v1",
        kind: "ResourceQuota",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |quota| &quota.metadata.namespace),
        ("resourcequota", |quota| &quota.metadata.name),
    ];
    type View<'a> = ResourceQuota<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(stable(
            "kube_resourcequota_created",
            &[],
            "Unix time of the resource quota's creation.",
            |quota, s| created(quota, s),
        )),
        stable(
            "kube_resourcequota",
            &["resource", "type"],
            "How much of a resource the namespace may use, and how much it uses.",
            |quota, s| amounts(quota, s),
        ),
        of_metadata(alpha(
            "kube_resourcequota_annotations",
            &["annotation_*"],
            "The resource quota's annotations that the allow list selects.",
            |quota, s| annotations(quota, s),
        )),
        of_metadata(stable(
            "kube_resourcequota_labels",
            &["label_*"],
            "The resource quota's labels that the allow list selects.",
            |quota, s| labels(quota, s),
        )),
    ];
}

fn amounts(quota: &ResourceQuota<'_>, s: &mut Series<'_>) {
    for (kind, list) in [("hard", &quota.status.hard), ("used", &quota.status.used)] {
        resource_list::verbatim(list, s, |resource, value, s| {
            s.with(&[("resource", resource), ("type", kind)], value);
        });
    }
}
