//! `services` (v1 Service).

use crate::resources::prelude::*;

object! {
    /// The fields of a Service that metrics read.
    pub struct Service<'a> {
        spec: ServiceSpec<'a> = 2 "spec" struct ServiceSpec {
            cluster_ip: Str<'a> = 3 "clusterIP",
            kind: Str<'a> = 4 "type",
            external_ips: Vec<Str<'a>> = 5 "externalIPs",
            load_balancer_ip: Str<'a> = 8 "loadBalancerIP",
            external_name: Str<'a> = 10 "externalName",
            external_traffic_policy: Str<'a> = 11 "externalTrafficPolicy",
        },
        status: ServiceStatus<'a> = 3 "status" struct ServiceStatus {
            load_balancer: LoadBalancerStatus<'a> = 1 "loadBalancer" struct LoadBalancerStatus {
                ingress: Vec<LoadBalancerIngress<'a>> = 1 "ingress" struct LoadBalancerIngress {
                    ip: Str<'a> = 1 "ip",
                    hostname: Str<'a> = 2 "hostname",
                },
            },
        },
    }
}

kind! {
    /// The Service kind.
    Services: Service, "service", Api::namespaced("", "v1", "Service", "services");
    identity namespace_and_uid::<Self>("service");
    families service, s:
        stable "kube_service_info" {
                "cluster_ip": &service.spec.cluster_ip,
                "external_name": &service.spec.external_name,
                "load_balancer_ip": &service.spec.load_balancer_ip,
                "external_traffic_policy": &service.spec.external_traffic_policy,
            },
            "The addresses under which the service is reached.";
        created(Stable, "kube_service_created");
        stable "kube_service_spec_type" {"type": &service.spec.kind}, "How the service is exposed.";
        annotations(Alpha, "kube_service_annotations");
        labels(Stable, "kube_service_labels");
        stable "kube_service_spec_external_ip" {"external_ip": address}
            for address in &service.spec.external_ips,
            "The addresses outside the cluster whose traffic the service also takes.";
        stable "kube_service_status_load_balancer_ingress"
            {"ip": &ingress.ip, "hostname": &ingress.hostname}
            for ingress in &service.status.load_balancer.ingress,
            "The addresses at which a load balancer takes traffic for the service.";
        deleted(Alpha, "kube_service_deletion_timestamp");
}
