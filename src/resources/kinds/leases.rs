//! `leases` (coordination.k8s.io/v1 Lease).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha};
use crate::resources::metadata::Metadata;
use crate::resources::scalars::MicroTime;
use crate::resources::series::{Series, or_empty};
use crate::wire::view::{Str, view};

view! {
    /// The fields of a Lease that metrics read.
    pub struct Lease<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: LeaseSpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct LeaseSpec<'a> {
        holder_identity: Option<Str<'a>> = 1 "holderIdentity",
        renew_time: Option<MicroTime> = 4 "renewTime",
    }
}

impl<'a> Object<'a> for Lease<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The Lease kind.
pub struct Leases;

impl Kind for Leases {
    const API: Api = Api {
        name: "leases",
        group: "coordination.k8s.io",
        version: "v1",
        kind: "Lease",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[("lease", |lease| &lease.metadata.name)];
    type View<'a> = Lease<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        alpha(
            "kube_lease_owner",
            &["owner_kind", "owner_name", "namespace", "lease_holder"],
            "Who holds the lease, and the objects that own it.",
            |lease, s| owners(lease, s),
        ),
        alpha(
            "kube_lease_renew_time",
            &["namespace"],
            "Unix time at which the holder last renewed the lease.",
            |lease, s| renew_time(lease, s),
        ),
    ];
}

/// Writes the owner family; unlike others, it has the namespace and the holder, and no `owner_is_controller`.
fn owners(lease: &Lease<'_>, s: &mut Series<'_>) {
    let mut series = |kind, name| {
        let labels = [
            ("owner_kind", kind),
            ("owner_name", name),
            ("namespace", &*lease.metadata.namespace),
            ("lease_holder", or_empty(&lease.spec.holder_identity)),
        ];
        s.with(&labels, 1.0);
    };
    let owners = &lease.metadata.owner_references;
    if owners.is_empty() {
        series("", "");
    }
    for owner in owners {
        series(&owner.kind, &owner.name);
    }
}

fn renew_time(lease: &Lease<'_>, s: &mut Series<'_>) {
    if let Some(MicroTime(time)) = lease.spec.renew_time
        && !time.is_zero()
    {
        s.with(&[("namespace", &lease.metadata.namespace)], time.seconds());
    }
}
