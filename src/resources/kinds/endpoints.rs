//! `endpoints` (v1 Endpoints).

use crate::resources::kind::{
    Api, Family, Identity, Kind, Object, alpha, deprecated, of_metadata, stable,
};
use crate::resources::metadata::{Metadata, annotations, created, labels, one};
use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// The fields of an Endpoints object that metrics read.
    pub struct Endpoints<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        subsets: Vec<Subset<'a>> = 2 "subsets",
    }

    /// `subsets[]`.
    pub struct Subset<'a> {
        addresses: Vec<Address<'a>> = 1 "addresses",
        not_ready_addresses: Vec<Address<'a>> = 2 "notReadyAddresses",
        ports: Vec<Port<'a>> = 3 "ports",
    }

    /// `subsets[].addresses[]` and `subsets[].notReadyAddresses[]`.
    pub struct Address<'a> {
        ip: Str<'a> = 1 "ip",
    }

    /// `subsets[].ports[]`.
    pub struct Port<'a> {
        name: Str<'a> = 1 "name",
        port: i32 = 2 "port",
        protocol: Str<'a> = 3 "protocol",
    }
}

impl<'a> Object<'a> for Endpoints<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The Endpoints kind.
pub struct EndpointsKind;

impl Kind for EndpointsKind {
    const API: Api = Api {
        name: "endpoints",
        group: "",
        version: "v1",
        kind: "Endpoints",
        namespaced: true,
        default_enabled: false,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |endpoints| &endpoints.metadata.namespace),
        ("endpoint", |endpoints| &endpoints.metadata.name),
    ];
    type View<'a> = Endpoints<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(stable(
            "kube_endpoint_info",
            &[],
            "1 for each endpoints object.",
            |endpoints, s| one(endpoints, s),
        )),
        of_metadata(stable(
            "kube_endpoint_created",
            &[],
            "Unix time of the endpoints object's creation.",
            |endpoints, s| created(endpoints, s),
        )),
        of_metadata(alpha(
            "kube_endpoint_annotations",
            &["annotation_*"],
            "The endpoints object's annotations that the allow list selects.",
            |endpoints, s| annotations(endpoints, s),
        )),
        of_metadata(stable(
            "kube_endpoint_labels",
            &["label_*"],
            "The endpoints object's labels that the allow list selects.",
            |endpoints, s| labels(endpoints, s),
        )),
        stable(
            "kube_endpoint_address",
            &["port_protocol", "port_number", "port_name", "ip", "ready"],
            "The addresses behind the service, each with each port.",
            |endpoints, s| addresses(endpoints, s),
        ),
        deprecated(
            "v2.14.0",
            stable(
                "kube_endpoint_ports",
                &["port_name", "port_protocol", "port_number"],
                "The ports behind the service.",
                |endpoints, s| ports(endpoints, s),
            ),
        ),
    ];
}

fn addresses(endpoints: &Endpoints<'_>, s: &mut Series<'_>) {
    for subset in &endpoints.subsets {
        for port in &subset.ports {
            let mut digits = itoa::Buffer::new();
            let number = digits.format(port.port);
            let lists = [(&subset.addresses, "true"), (&subset.not_ready_addresses, "false")];
            for (addresses, ready) in lists {
                for address in addresses {
                    if s.is_full() {
                        return;
                    }
                    let labels = [
                        ("port_protocol", &*port.protocol),
                        ("port_number", number),
                        ("port_name", &*port.name),
                        ("ip", &*address.ip),
                        ("ready", ready),
                    ];
                    s.with(&labels, 1.0);
                }
            }
        }
    }
}

fn ports(endpoints: &Endpoints<'_>, s: &mut Series<'_>) {
    for port in endpoints.subsets.iter().flat_map(|subset| &subset.ports) {
        let mut digits = itoa::Buffer::new();
        let labels = [
            ("port_name", &*port.name),
            ("port_protocol", &*port.protocol),
            ("port_number", digits.format(port.port)),
        ];
        s.with(&labels, 1.0);
    }
}
