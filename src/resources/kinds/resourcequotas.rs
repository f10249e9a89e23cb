//! `resourcequotas` (v1 ResourceQuota).

use crate::resources::prelude::*;

object! {
    /// The fields of a ResourceQuota that metrics read.
    pub struct ResourceQuota<'a> {
        status: ResourceQuotaStatus<'a> = 3 "status" struct ResourceQuotaStatus {
            hard: ResourceList<'a> = 1 "hard",
            used: ResourceList<'a> = 2 "used",
        },
    }
}

kind! {
    /// The ResourceQuota kind.
    ResourceQuotas: ResourceQuota, "resource quota", Api::namespaced("", "v1", "ResourceQuota", "resourcequotas");
    identity namespace_and::<Self>("resourcequota");
    families quota, s:
        created(Stable, "kube_resourcequota_created");
        stable "kube_resourcequota" ["resource", "type"],
            "How much of a resource the namespace may use, and how much it uses.":
            amounts(quota, s);
        annotations(Alpha, "kube_resourcequota_annotations");
        labels(Stable, "kube_resourcequota_labels");
}

fn amounts(quota: &ResourceQuota<'_>, s: &mut Series<'_>) {
    for (kind, list) in [("hard", &quota.status.hard), ("used", &quota.status.used)] {
        resource_list::verbatim(list, |resource, value| {
            s.with(&[("resource", resource), ("type", kind)], value);
        });
    }
}
