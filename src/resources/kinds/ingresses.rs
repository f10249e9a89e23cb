//! `ingresses` (networking.k8s.io/v1 Ingress).

use crate::resources::prelude::*;

object! {
    /// The fields of an Ingress that metrics read.
    pub struct Ingress<'a> {
        spec: IngressSpec<'a> = 2 "spec" struct IngressSpec {
            tls: Vec<Tls<'a>> = 2 "tls" struct Tls {
                hosts: Vec<Str<'a>> = 1 "hosts",
                secret_name: Str<'a> = 2 "secretName",
            },
            rules: Vec<Rule<'a>> = 3 "rules" struct Rule {
                ..value: RuleValue<'a> = 2,
                host: Str<'a> = 1 "host",
            },
            ingress_class_name: Option<Str<'a>> = 4 "ingressClassName",
        },
    }

    /// The protocol of a rule.
    pub struct RuleValue<'a> {
        http: HttpRule<'a> = 1 "http" struct HttpRule {
            paths: Vec<HttpPath<'a>> = 1 "paths" struct HttpPath {
                path: Str<'a> = 1 "path",
                backend: Backend<'a> = 2 "backend" struct Backend {
                    resource: Option<ResourceBackend<'a>> = 3 "resource" struct ResourceBackend {
                        api_group: Str<'a> = 1 "apiGroup",
                        kind: Str<'a> = 2 "kind",
                        name: Str<'a> = 3 "name",
                    },
                    service: Option<ServiceBackend<'a>> = 4 "service" struct ServiceBackend {
                        name: Str<'a> = 1 "name",
                        port: ServicePort<'a> = 2 "port" struct ServicePort {
                            number: i32 = 2 "number",
                        },
                    },
                },
                path_type: Str<'a> = 3 "pathType",
            },
        },
    }
}

kind! {
    /// The Ingress kind.
    Ingresses: Ingress, "ingress", Api::namespaced("networking.k8s.io", "v1", "Ingress", "ingresses");
    identity namespace_and::<Self>("ingress");
    families ingress, s:
        stable "kube_ingress_info" ["ingressclass"], "The class of the ingress.": info(ingress, s);
        annotations(Alpha, "kube_ingress_annotations");
        labels(Stable, "kube_ingress_labels");
        created(Stable, "kube_ingress_created");
        version(Alpha, "kube_ingress_metadata_resource_version");
        stable "kube_ingress_path" ["host", "path", "path_type", "service_name", "service_port"],
            "The paths that the ingress routes, and the service or other resource that each leads to.":
            paths(ingress, s);
        stable "kube_ingress_tls" {"tls_host": host, "secret": &tls.secret_name}
            for tls in &ingress.spec.tls, for host in &tls.hosts,
            "The hosts for which the ingress ends TLS, and the secret with the certificate.";
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
