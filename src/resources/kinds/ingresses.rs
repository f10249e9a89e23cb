//! `ingresses` (networking.k8s.io/v1 Ingress).

use crate::resources::kind::{
    Api, Family, Identity, Kind, Object, alpha, of_metadata, or_labels, stable,
};
use crate::resources::metadata::{Metadata, annotations, created, labels, resource_version};
use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// The fields of an Ingress that metrics read.
    pub struct Ingress<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: IngressSpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct IngressSpec<'a> {
        tls: Vec<Tls<'a>> = 2 "tls",
        rules: Vec<Rule<'a>> = 3 "rules",
        ingress_class_name: Option<Str<'a>> = 4 "ingressClassName",
    }

    /// `spec.tls[]`.
    pub struct Tls<'a> {
        hosts: Vec<Str<'a>> = 1 "hosts",
        secret_name: Str<'a> = 2 "secretName",
    }

    /// `spec.rules[]`.
    pub struct Rule<'a> {
        ..value: RuleValue<'a> = 2,
        host: Str<'a> = 1 "host",
    }

    /// The protocol of a rule.
    pub struct RuleValue<'a> {
        http: HttpRule<'a> = 1 "http",
    }

    /// `spec.rules[].http`.
    pub struct HttpRule<'a> {
        paths: Vec<HttpPath<'a>> = 1 "paths",
    }

    /// `spec.rules[].http.paths[]`.
    pub struct HttpPath<'a> {
        path: Str<'a> = 1 "path",
        backend: Backend<'a> = 2 "backend",
        path_type: Str<'a> = 3 "pathType",
    }

    /// `backend` of a path.
    pub struct Backend<'a> {
        resource: Option<ResourceBackend<'a>> = 3 "resource",
        service: Option<ServiceBackend<'a>> = 4 "service",
    }

    /// `backend.resource`.
    pub struct ResourceBackend<'a> {
        api_group: Str<'a> = 1 "apiGroup",
        kind: Str<'a> = 2 "kind",
        name: Str<'a> = 3 "name",
    }

    /// `backend.service`.
    pub struct ServiceBackend<'a> {
        name: Str<'a> = 1 "name",
        port: ServicePort<'a> = 2 "port",
    }

    /// `backend.service.port`.
    pub struct ServicePort<'a> {
        number: i32 = 2 "number",
    }
}

impl<'a> Object<'a> for Ingress<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The Ingress kind.
pub struct Ingresses;

impl Kind for Ingresses {
    const API: Api = Api {
        name: "ingresses",
        group: "networking.k8s.io",
        version: "v1",
        kind: "Ingress",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |ingress| &ingress.metadata.namespace),
        ("ingress", |ingress| &ingress.metadata.name),
    ];
    type View<'a> = Ingress<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        stable(
            "kube_ingress_info",
            &["ingressclass"],
            "The class of the ingress.",
            |ingress, s| info(ingress, s),
        ),
        of_metadata(alpha(
            "kube_ingress_annotations",
            &["annotation_*"],
            "The ingress's annotations that the allow list selects.",
            |ingress, s| annotations(ingress, s),
        )),
        of_metadata(stable(
            "kube_ingress_labels",
            &["label_*"],
            "The ingress's labels that the allow list selects.",
            |ingress, s| labels(ingress, s),
        )),
        of_metadata(stable(
            "kube_ingress_created",
            &[],
            "Unix time of the ingress's creation.",
            |ingress, s| created(ingress, s),
        )),
        of_metadata(alpha(
            "kube_ingress_metadata_resource_version",
            &[],
            "The version of the ingress that the API server last reported.",
            |ingress, s| resource_version(ingress, s),
        )),
        or_labels(
            &["host", "path", "path_type", "resource_api_group", "resource_kind", "resource_name"],
            stable(
                "kube_ingress_path",
                &["host", "path", "path_type", "service_name", "service_port"],
                "The paths that the ingress routes, and the service or other resource that each leads to.",
                |ingress, s| paths(ingress, s),
            ),
        ),
        stable(
            "kube_ingress_tls",
            &["tls_host", "secret"],
            "The hosts for which the ingress ends TLS, and the secret with the certificate.",
            |ingress, s| {
                for tls in &ingress.spec.tls {
                    for host in &tls.hosts {
                        s.with(&[("tls_host", host), ("secret", &tls.secret_name)], 1.0);
                    }
                }
            },
        ),
    ];
}

fn info(ingress: &Ingress<'_>, s: &mut Series<'_>) {
    // The annotation predates the field; controllers still give it precedence.
    let annotation = ingress.metadata.annotations.get("kubernetes.io/ingress.class");
    let class = annotation.or(ingress.spec.ingress_class_name.as_ref());
    s.with(&[("ingressclass", class.map_or("_default", |class| class))], 1.0);
}

fn paths(ingress: &Ingress<'_>, s: &mut Series<'_>) {
    for rule in &ingress.spec.rules {
        for path in &rule.value.http.paths {
            let [host, at, path_type] =
                [("host", &*rule.host), ("path", &*path.path), ("path_type", &*path.path_type)];
            if let Some(service) = &path.backend.service {
                let mut digits = itoa::Buffer::new();
                let labels = [
                    host,
                    at,
                    path_type,
                    ("service_name", &*service.name),
                    ("service_port", digits.format(service.port.number)),
                ];
                s.with(&labels, 1.0);
            } else if let Some(resource) = &path.backend.resource {
                let labels = [
                    host,
                    at,
                    path_type,
                    ("resource_api_group", &*resource.api_group),
                    ("resource_kind", &*resource.kind),
                    ("resource_name", &*resource.name),
                ];
                s.with(&labels, 1.0);
            }
        }
    }
}
