//! `leases` (coordination.k8s.io/v1 Lease).

use crate::resources::prelude::*;

object! {
    /// The fields of a Lease that metrics read.
    pub struct Lease<'a> {
        spec: LeaseSpec<'a> = 2 "spec" struct LeaseSpec {
            holder_identity: Option<Str<'a>> = 1 "holderIdentity",
            renew_time: Option<Time> = 4 "renewTime",
        },
    }
}

kind! {
    /// The Lease kind.
    Leases: Lease, "lease", Api::namespaced("coordination.k8s.io", "v1", "Lease", "leases");
    identity [("lease", |lease| &lease.metadata.name)];
    families lease, s:
        alpha "kube_lease_owner"
            {
                "owner_kind": kind,
                "owner_name": name,
                "namespace": &lease.metadata.namespace,
                "lease_holder": or_empty(&lease.spec.holder_identity),
            } for [kind, name, _] in lease.metadata.owners(),
            "Who holds the lease, and the objects that own it.";
        alpha "kube_lease_renew_time" ["namespace"],
            "Unix time at which the holder last renewed the lease.": {
                if let Some(time) = lease.spec.renew_time.and_then(Time::set) {
                    s.with(&[("namespace", &lease.metadata.namespace)], time.seconds());
                }
            };
}
