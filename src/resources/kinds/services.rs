//! `services` (v1 Service).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, deleted, labels};
use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// The fields of a Service that metrics read.
    pub struct Service<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: ServiceSpec<'a> = 2 "spec",
        status: ServiceStatus<'a> = 3 "status",
    }

    /// `spec`.
    pub struct ServiceSpec<'a> {
        cluster_ip: Str<'a> = 3 "clusterIP",
        kind: Str<'a> = 4 "type",
        external_ips: Vec<Str<'a>> = 5 "externalIPs",
        load_balancer_ip: Str<'a> = 8 "loadBalancerIP",
        external_name: Str<'a> = 10 "externalName",
        external_traffic_policy: Str<'a> = 11 "externalTrafficPolicy",
    }

    /// `status`.
    pub struct ServiceStatus<'a> {
        load_balancer: LoadBalancerStatus<'a> = 1 "loadBalancer",
    }

    /// `status.loadBalancer`.
    pub struct LoadBalancerStatus<'a> {
        ingress: Vec<LoadBalancerIngress<'a>> = 1 "ingress",
    }

    /// `status.loadBalancer.ingress[]`.
    pub struct LoadBalancerIngress<'a> {
        ip: Str<'a> = 1 "ip",
        hostname: Str<'a> = 2 "hostname",
    }
}

impl<'a> Object<'a> for Service<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The Service kind.
pub struct Services;

impl Kind for Services {
    const API: Api = Api {
        name: "services",
        group: "",
        version: "v1",
        kind: "Service",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |service| &service.metadata.namespace),
        ("service", |service| &service.metadata.name),
        ("uid", |service| &service.metadata.uid),
    ];
    type View<'a> = Service<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        stable(
            "kube_service_info",
            &["cluster_ip", "external_name", "load_balancer_ip", "external_traffic_policy"],
            "The addresses under which the service is reached.",
            |service, s| info(service, s),
        ),
        of_metadata(stable(
            "kube_service_created",
            &[],
            "Unix time of the service's creation.",
            |service, s| created(service, s),
        )),
        stable("kube_service_spec_type", &["type"], "How the service is exposed.", |service, s| {
            s.with(&[("type", &service.spec.kind)], 1.0)
        }),
        of_metadata(alpha(
            "kube_service_annotations",
            &["annotation_*"],
            "The service's annotations that the allow list selects.",
            |service, s| annotations(service, s),
        )),
        of_metadata(stable(
            "kube_service_labels",
            &["label_*"],
            "The service's labels that the allow list selects.",
            |service, s| labels(service, s),
        )),
        stable(
            "kube_service_spec_external_ip",
            &["external_ip"],
            "The addresses outside the cluster whose traffic the service also takes.",
            |service, s| {
                for address in &service.spec.external_ips {
                    s.with(&[("external_ip", address)], 1.0);
                }
            },
        ),
        stable(
            "kube_service_status_load_balancer_ingress",
            &["ip", "hostname"],
            "The addresses at which a load balancer takes traffic for the service.",
            |service, s| {
                for ingress in &service.status.load_balancer.ingress {
                    s.with(&[("ip", &ingress.ip), ("hostname", &ingress.hostname)], 1.0);
                }
            },
        ),
        of_metadata(alpha(
            "kube_service_deletion_timestamp",
            &[],
            "Unix time at which the service is due to be deleted.",
            |service, s| deleted(service, s),
        )),
    ];
}

fn info(service: &Service<'_>, s: &mut Series<'_>) {
    let spec = &service.spec;
    let labels = [
        ("cluster_ip", &*spec.cluster_ip),
        ("external_name", &*spec.external_name),
        ("load_balancer_ip", &*spec.load_balancer_ip),
        ("external_traffic_policy", &*spec.external_traffic_policy),
    ];
    s.with(&labels, 1.0);
}
