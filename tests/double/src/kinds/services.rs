//! Objects that accompany the pods of a workload: services and endpoints, configuration, accounts, autoscalers,
//! disruption budgets and routes.

use crate::encode::Message;
use crate::layout::{Item, Layout};
use crate::random::hex;

use super::meta::{
    Condition, Meta, Name, Owner, app_selector, each_workload, is_deployment, is_service,
    like_workload, workload_labels,
};
use super::pods;

/// Maximum number of endpoints of a slice.
const SLICE: u32 = 100;

fn write_meta(
    m: &mut Message<'_>,
    layout: &Layout,
    resource: &str,
    item: &Item,
    name: &Name<'_>,
    generation: i64,
) {
    let labels = workload_labels(layout.workload(item.workload));
    let meta = Meta { generation, labels: &labels, ..Meta::default() };
    meta.write(m, layout, resource, item, name);
}

/// One object for each workload that runs permanently.
pub fn for_services(layout: &Layout) -> Vec<Item> {
    each_workload(layout, is_service)
}

/// One object for every third deployment.
pub fn for_some_deployments(layout: &Layout) -> Vec<Item> {
    let mut items = each_workload(layout, is_deployment);
    items.retain(|item| item.index.is_multiple_of(3));
    items
}

fn cluster_ip(item: &Item) -> String {
    format!("172.{}.{}.{}", 20 + (item.index >> 16), item.index >> 8 & 255, item.index & 255)
}

/// A Service.
pub fn write_service(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    write_meta(m, layout, "services", item, &like_workload(layout, item), 0);
    m.message(2, "spec", |m| {
        m.messages(1, "ports", [("http", 80, 8080), ("metrics", 9080, 9080)], |m, port| {
            m.text(1, "name", port.0);
            m.text(2, "protocol", "TCP");
            m.required_int(3, "port", port.1);
            m.number_or_text(4, "targetPort", port.2);
            m.int(5, "nodePort", 0);
        });
        m.text_map(2, "selector", [("app", &workload.name)]);
        m.text(3, "clusterIP", &cluster_ip(item));
        m.text(4, "type", "ClusterIP");
        m.text(7, "sessionAffinity", "None");
        m.text(17, "ipFamilyPolicy", "SingleStack");
        m.texts(18, "clusterIPs", [cluster_ip(item)]);
        m.texts(19, "ipFamilies", ["IPv4"]);
        m.text(22, "internalTrafficPolicy", "Cluster");
    });
    m.message(3, "status", |m| m.message(1, "loadBalancer", |_| {}));
}

/// The name of a service's EndpointSlice.
pub fn endpoint_slice_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let Name { namespace, name } = like_workload(layout, item);
    Name { namespace, name: format!("{name}-slice0") }
}

/// The EndpointSlice of a service with its first hundred pods.
pub fn write_endpoint_slice(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let name = endpoint_slice_name(layout, item);
    let owner = Owner {
        api_version: "v1",
        kind: "Service",
        name: &workload.name,
        uid: layout.uid("services", item.index, 0),
    };
    let labels = [
        ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"),
        ("kubernetes.io/service-name", workload.name.as_str()),
    ];
    let meta = Meta { generation: 1, labels: &labels, owner: Some(owner), ..Meta::default() };
    meta.write(m, layout, "endpointslices", item, &name);
    let slots = workload.first_slot..workload.first_slot + workload.replicas.min(SLICE);
    // Each change of the slice removes or restores the first endpoint.
    let out = (item.revision % 2 == 1).then_some(workload.first_slot);
    m.messages(2, "endpoints", slots, |m, slot| {
        m.texts(1, "addresses", [layout.pod_ip(slot)]);
        let ready = out != Some(slot);
        m.message(2, "conditions", |m| {
            m.required_flag(1, "ready", ready);
            m.required_flag(2, "serving", ready);
            m.required_flag(3, "terminating", false);
        });
        let pod = Item::new(slot, item.workload, workload.created);
        m.message(4, "targetRef", |m| {
            m.text(1, "kind", "Pod");
            m.text(2, "namespace", name.namespace.unwrap_or_default());
            m.text(3, "name", &pods::name(layout, &pod).name);
            m.text(4, "uid", &layout.uid("pods", slot, 0));
        });
        m.text(6, "nodeName", &layout.node_name(layout.node_of(workload, slot)));
        m.text(7, "zone", "eu-west-1a");
    });
    m.messages(3, "ports", [("http", 8080), ("metrics", 9080)], |m, (name, port)| {
        m.text(1, "name", name);
        m.text(2, "protocol", "TCP");
        m.required_int(3, "port", port);
    });
    m.text(4, "addressType", "IPv4");
}

/// The Endpoints of a service.
pub fn write_endpoints(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    write_meta(m, layout, "endpoints", item, &like_workload(layout, item), 0);
    let slots = workload.first_slot..workload.first_slot + workload.replicas.min(1_000);
    m.messages(2, "subsets", [()], |m, ()| {
        m.messages(1, "addresses", slots.clone(), |m, slot| {
            m.text(1, "ip", &layout.pod_ip(slot));
        });
        m.messages(3, "ports", [("http", 8080), ("metrics", 9080)], |m, (name, port)| {
            m.text(1, "name", name);
            m.required_int(2, "port", port);
            m.text(3, "protocol", "TCP");
        });
    });
}

/// Two objects for each workload that runs permanently: its configuration and the root certificates.
pub fn config_maps(layout: &Layout) -> Vec<Item> {
    let services = for_services(layout).into_iter();
    let maps =
        services.flat_map(|item| (0..2).map(move |at| Item { index: item.index * 2 + at, ..item }));
    maps.collect()
}

/// The name of a ConfigMap.
pub fn config_map_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let Name { namespace, name } = like_workload(layout, item);
    let name = if item.index.is_multiple_of(2) { name } else { format!("{name}-dashboard") };
    Name { namespace, name }
}

/// A ConfigMap.
pub fn write_config_map(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    write_meta(m, layout, "configmaps", item, &config_map_name(layout, item), 0);
    let line = "listen: 0.0.0.0:8080\nlog:\n  level: info\n  format: json\n";
    m.text_map(2, "data", [("config.yaml", line.repeat(8))]);
}

/// The name of a Secret.
pub fn secret_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let Name { namespace, name } = like_workload(layout, item);
    Name { namespace, name: format!("{name}-credentials") }
}

/// A Secret.
pub fn write_secret(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let identity = layout.identity("secrets", item.index, 0);
    write_meta(m, layout, "secrets", item, &secret_name(layout, item), 0);
    m.data_map(2, "data", [("password", hex(identity, 32)), ("username", "app".to_owned())]);
    m.text(3, "type", "Opaque");
}

/// A ServiceAccount.
pub fn write_service_account(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    write_meta(m, layout, "serviceaccounts", item, &like_workload(layout, item), 0);
    m.messages(3, "imagePullSecrets", ["registry"], |m, name| m.text(1, "name", name));
}

/// A HorizontalPodAutoscaler on CPU.
pub fn write_autoscaler(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let replicas = i64::from(workload.replicas);
    write_meta(m, layout, "horizontalpodautoscalers", item, &like_workload(layout, item), 0);
    m.message(2, "spec", |m| {
        m.message(1, "scaleTargetRef", |m| {
            m.text(1, "kind", "Deployment");
            m.text(2, "name", &workload.name);
            m.text(3, "apiVersion", "apps/v1");
        });
        m.required_int(2, "minReplicas", 1);
        m.required_int(3, "maxReplicas", replicas * 2);
        m.messages(4, "metrics", [()], |m, ()| {
            m.text(1, "type", "Resource");
            m.message(4, "resource", |m| {
                m.text(1, "name", "cpu");
                m.message(2, "target", |m| {
                    m.text(1, "type", "Utilization");
                    m.required_int(4, "averageUtilization", 80);
                });
            });
        });
    });
    m.message(3, "status", |m| {
        m.time(2, "lastScaleTime", item.changed);
        m.required_int(3, "currentReplicas", replicas);
        m.required_int(4, "desiredReplicas", replicas);
        m.messages(5, "currentMetrics", [()], |m, ()| {
            m.text(1, "type", "Resource");
            m.message(4, "resource", |m| {
                m.text(1, "name", "cpu");
                m.message(2, "current", |m| {
                    m.quantity(2, "averageValue", "87m");
                    m.required_int(3, "averageUtilization", 35);
                });
            });
        });
        let conditions: [Condition; 3] = [
            ("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
            ("ScalingActive", "True", "ValidMetricFound", "a replica count could be calculated"),
            ("ScalingLimited", "False", "DesiredWithinRange", "the count is acceptable"),
        ];
        m.messages(6, "conditions", conditions, |m, (kind, status, reason, message)| {
            m.text(1, "type", kind);
            m.text(2, "status", status);
            m.time(3, "lastTransitionTime", item.changed);
            m.text(4, "reason", reason);
            m.text(5, "message", message);
        });
    });
}

/// A PodDisruptionBudget.
pub fn write_disruption_budget(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let replicas = i64::from(workload.replicas);
    write_meta(m, layout, "poddisruptionbudgets", item, &like_workload(layout, item), 1);
    m.message(2, "spec", |m| {
        app_selector(m, 2, "selector", &workload.name);
        m.number_or_text(3, "maxUnavailable", 1);
    });
    m.message(3, "status", |m| {
        m.int(1, "observedGeneration", 1);
        m.required_int(3, "disruptionsAllowed", 1);
        m.required_int(4, "currentHealthy", replicas);
        m.required_int(5, "desiredHealthy", replicas - 1);
        m.required_int(6, "expectedPods", replicas);
    });
}

/// An Ingress with one host and one path.
pub fn write_ingress(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let host = format!("{}.example.com", workload.name);
    write_meta(m, layout, "ingresses", item, &like_workload(layout, item), 1);
    m.message(2, "spec", |m| {
        m.messages(2, "tls", [()], |m, ()| {
            m.texts(1, "hosts", [&host]);
            m.text(2, "secretName", &format!("{}-tls", workload.name));
        });
        m.messages(3, "rules", [()], |m, ()| {
            m.text(1, "host", &host);
            m.inline(2, |m| {
                m.message(1, "http", |m| {
                    m.messages(1, "paths", [()], |m, ()| {
                        m.text(1, "path", "/");
                        m.message(2, "backend", |m| {
                            m.message(4, "service", |m| {
                                m.text(1, "name", &workload.name);
                                m.message(2, "port", |m| m.int(2, "number", 80));
                            });
                        });
                        m.text(3, "pathType", "Prefix");
                    });
                });
            });
        });
        m.text(4, "ingressClassName", "nginx");
    });
    m.message(3, "status", |m| m.message(1, "loadBalancer", |_| {}));
}
