//! `endpoints` (v1 Endpoints).

use crate::resources::prelude::*;

object! {
    /// The fields of an Endpoints object that metrics read.
    pub struct Endpoints<'a> {
        subsets: Vec<Subset<'a>> = 2 "subsets" struct Subset {
            addresses: Vec<Address<'a>> = 1 "addresses",
            not_ready_addresses: Vec<Address<'a>> = 2 "notReadyAddresses",
            ports: Vec<Port<'a>> = 3 "ports" struct Port {
                name: Str<'a> = 1 "name",
                port: i32 = 2 "port",
                protocol: Str<'a> = 3 "protocol",
            },
        },
    }

    /// `subsets[].addresses[]` and `subsets[].notReadyAddresses[]`.
    pub struct Address<'a> {
        ip: Str<'a> = 1 "ip",
    }
}

kind! {
    /// The Endpoints kind.
    EndpointsKind: Endpoints, "endpoints object", Api::namespaced("", "v1", "Endpoints", "endpoints").off_by_default();
    identity namespace_and::<Self>("endpoint");
    families endpoints, s:
        info(Stable, "kube_endpoint_info");
        created(Stable, "kube_endpoint_created");
        annotations(Alpha, "kube_endpoint_annotations");
        labels(Stable, "kube_endpoint_labels");
        stable "kube_endpoint_address" ["port_protocol", "port_number", "port_name", "ip", "ready"],
            "The addresses behind the service, each with each port.": addresses(endpoints, s);
        stable deprecated("v2.14.0")
            "kube_endpoint_ports" {
                "port_name": &port.name,
                "port_protocol": &port.protocol,
                "port_number": itoa::Buffer::new().format(port.port),
            } for subset in &endpoints.subsets, for port in &subset.ports,
            "The ports behind the service.";
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
