//! `endpointslices` (discovery.k8s.io/v1 EndpointSlice).

use crate::resources::prelude::*;

object! {
    /// The fields of an EndpointSlice that metrics read.
    pub struct EndpointSlice<'a> {
        endpoints: Vec<Endpoint<'a>> = 2 "endpoints" struct Endpoint {
            addresses: Vec<Str<'a>> = 1 "addresses",
            conditions: EndpointConditions<'a> = 2 "conditions" struct EndpointConditions {
                ready: Option<bool> = 1 "ready",
                serving: Option<bool> = 2 "serving",
                terminating: Option<bool> = 3 "terminating",
            },
            hostname: Str<'a> = 3 "hostname",
            target: TargetReference<'a> = 4 "targetRef" struct TargetReference {
                kind: Str<'a> = 1 "kind",
                namespace: Str<'a> = 2 "namespace",
                name: Str<'a> = 3 "name",
            },
            node_name: Str<'a> = 6 "nodeName",
            zone: Str<'a> = 7 "zone",
            hints: Hints<'a> = 8 "hints" struct Hints {
                for_zones: Vec<Zone<'a>> = 1 "forZones" struct Zone {
                    name: Str<'a> = 1 "name",
                },
            },
        },
        ports: Vec<Port<'a>> = 3 "ports" struct Port {
            name: Str<'a> = 1 "name",
            protocol: Str<'a> = 2 "protocol",
            port: Option<i32> = 3 "port",
        },
        address_type: Str<'a> = 4 "addressType",
    }
}

kind! {
    /// The EndpointSlice kind.
    EndpointSlices: EndpointSlice, "endpoint slice",
        Api::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
    identity [
        ("endpointslice", |slice| &slice.metadata.name),
        ("namespace", |slice| &slice.metadata.namespace),
    ];
    families slice, s:
        alpha "kube_endpointslice_info" {"addresstype": &slice.address_type},
            "The type of the addresses in the endpoint slice.";
        created(Alpha, "kube_endpointslice_created");
        alpha "kube_endpointslice_endpoints_hints" {"address": address, "for_zone": &zone.name}
            for endpoint in &slice.endpoints,
            for address in endpoint.addresses.iter().take(1),
            for zone in &endpoint.hints.for_zones,
            "The zones whose traffic an endpoint is meant for.";
        alpha "kube_endpointslice_endpoints"
            {
                "ready": endpoint.conditions.ready.map_or("", bool_text),
                "serving": endpoint.conditions.serving.map_or("", bool_text),
                "hostname": &endpoint.hostname,
                "terminating": endpoint.conditions.terminating.map_or("", bool_text),
                "targetref_kind": &endpoint.target.kind,
                "targetref_name": &endpoint.target.name,
                "targetref_namespace": &endpoint.target.namespace,
                "endpoint_nodename": &endpoint.node_name,
                "endpoint_zone": &endpoint.zone,
                "address": address,
            } for endpoint in &slice.endpoints, for address in &endpoint.addresses,
            "The addresses in the endpoint slice, with the state of their endpoint and where it runs.";
        alpha "kube_endpointslice_ports"
            {
                "port_name": &port.name,
                "port_protocol": &port.protocol,
                "port_number": number_text(port.port, &mut itoa::Buffer::new()),
            } for port in &slice.ports,
            "The ports of the endpoints.";
        annotations(Alpha, "kube_endpointslice_annotations");
        labels(Alpha, "kube_endpointslice_labels");
}
