//! Nodes with their leases, and namespaces with their quotas, limits and network policies.

use crate::encode::Message;
use crate::layout::{Item, Layout};
use crate::random::hex;

use super::meta::{Condition, Managed, Meta, Name};

const NODE_FIELDS: &str = concat!(
    r#"{"f:status":{"f:allocatable":{},"f:capacity":{},"f:conditions":{"k:{\"type\":\"DiskPressure\"}":"#,
    r#"{"f:lastHeartbeatTime":{}},"k:{\"type\":\"MemoryPressure\"}":{"f:lastHeartbeatTime":{}},"#,
    r#""k:{\"type\":\"PIDPressure\"}":{"f:lastHeartbeatTime":{}},"k:{\"type\":\"Ready\"}":"#,
    r#"{"f:lastHeartbeatTime":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"#,
    r#""f:status":{}}},"f:images":{}}}"#,
);

/// Every node, as old as the oldest workload.
pub fn nodes(layout: &Layout) -> Vec<Item> {
    (0..layout.nodes).map(|index| Item::new(index, 0, layout.epoch - 250 * 86_400)).collect()
}

/// The name of a Node.
pub fn node_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    Name { namespace: None, name: layout.node_name(item.index) }
}

/// A Node.
pub fn write_node(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let name = node_name(layout, item);
    let identity = layout.identity("nodes", item.index, 0);
    let zone = format!("eu-west-1{}", ["a", "b", "c"][(item.index % 3) as usize]);
    let managed = [Managed {
        manager: "kubelet",
        api_version: "v1",
        subresource: "status",
        time: item.changed,
        fields: NODE_FIELDS,
    }];
    let meta = Meta {
        labels: &[
            ("beta.kubernetes.io/arch", "amd64"),
            ("kubernetes.io/arch", "amd64"),
            ("kubernetes.io/hostname", &name.name),
            ("kubernetes.io/os", "linux"),
            ("node.kubernetes.io/instance-type", "m7i.4xlarge"),
            ("topology.kubernetes.io/region", "eu-west-1"),
            ("topology.kubernetes.io/zone", &zone),
        ],
        annotations: &[("node.alpha.kubernetes.io/ttl", "0")],
        managed: &managed,
        ..Meta::default()
    };
    meta.write(m, layout, "nodes", item, &name);
    m.message(2, "spec", |m| {
        m.text(1, "podCIDR", &format!("100.64.{}.0/24", item.index & 255));
        m.text(3, "providerID", &format!("aws:///{zone}/i-{}", hex(identity, 17)));
        m.flag(4, "unschedulable", false);
        let tainted = item.index.is_multiple_of(50).then_some(("dedicated", "ingress"));
        m.messages(5, "taints", tainted, |m, (key, value)| {
            m.text(1, "key", key);
            m.text(2, "value", value);
            m.text(3, "effect", "NoSchedule");
        });
    });
    m.message(3, "status", |m| write_node_status(layout, item, m, &name.name));
}

fn write_node_status(layout: &Layout, item: &Item, m: &mut Message<'_>, name: &str) {
    let identity = layout.identity("nodes", item.index, 0);
    let capacity = |cpu, memory| {
        [
            ("cpu", cpu),
            ("ephemeral-storage", "104845292Ki"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("memory", memory),
            ("pods", "110"),
        ]
    };
    m.quantity_map(1, "capacity", capacity("16", "64821524Ki"));
    m.quantity_map(2, "allocatable", capacity("15890m", "61805844Ki"));
    m.text(3, "phase", "");
    let conditions: [Condition; 4] = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is sufficient"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "there is no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "PIDs are sufficient"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    m.messages(4, "conditions", conditions, |m, (kind, status, reason, message)| {
        m.text(1, "type", kind);
        m.text(2, "status", status);
        m.time(3, "lastHeartbeatTime", item.changed);
        m.time(4, "lastTransitionTime", item.created + 30);
        m.text(5, "reason", reason);
        m.text(6, "message", message);
    });
    let ip = layout.node_ip(item.index);
    let addresses = [("InternalIP", ip.as_str()), ("Hostname", name)];
    m.messages(5, "addresses", addresses, |m, (kind, address)| {
        m.text(1, "type", kind);
        m.text(2, "address", address);
    });
    m.message(6, "daemonEndpoints", |m| {
        m.message(1, "kubeletEndpoint", |m| m.required_int(1, "Port", 10_250));
    });
    m.message(7, "nodeInfo", |m| {
        m.text(1, "machineID", &hex(identity, 32));
        m.text(2, "systemUUID", &layout.uid("machines", item.index, 0));
        m.text(3, "bootID", &layout.uid("boots", item.index, 0));
        m.text(4, "kernelVersion", "6.12.48-talos");
        m.text(5, "osImage", "Talos (v1.11.3)");
        m.text(6, "containerRuntimeVersion", "containerd://2.1.4");
        m.text(7, "kubeletVersion", "v1.34.1");
        m.text(8, "kubeProxyVersion", "");
        m.text(9, "operatingSystem", "linux");
        m.text(10, "architecture", "amd64");
    });
    m.messages(8, "images", 0..40_u32, |m, at| {
        let repository = format!("registry.example.com/platform/image-{at}");
        let digest = hex(u64::from(at), 64);
        m.texts(1, "names", [format!("{repository}@sha256:{digest}"), format!("{repository}:v1")]);
        m.int(2, "sizeBytes", i64::from(at + 1) * 12_345_678);
    });
}

/// One lease for each node.
pub fn leases(layout: &Layout) -> Vec<Item> {
    nodes(layout)
}

/// The name of a node's Lease.
pub fn lease_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    Name { namespace: Some("kube-node-lease"), name: layout.node_name(item.index) }
}

/// The Lease of a node; each change renews it.
pub fn write_lease(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let name = lease_name(layout, item);
    Meta::default().write(m, layout, "leases", item, &name);
    m.message(2, "spec", |m| {
        m.text(1, "holderIdentity", &name.name);
        m.required_int(2, "leaseDurationSeconds", 40);
        m.micro_time(4, "renewTime", item.changed);
        m.required_int(5, "leaseTransitions", 0);
    });
}

/// Every namespace.
pub fn namespaces(layout: &Layout) -> Vec<Item> {
    let created = layout.epoch - 250 * 86_400;
    (0..layout.namespaces.len() as u32).map(|index| Item::new(index, 0, created)).collect()
}

/// The name of a Namespace.
pub fn namespace_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    Name { namespace: None, name: layout.namespace(item.index).to_owned() }
}

/// A Namespace.
pub fn write_namespace(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let name = namespace_name(layout, item);
    let labels = [("kubernetes.io/metadata.name", name.name.as_str())];
    let meta = Meta { labels: &labels, ..Meta::default() };
    meta.write(m, layout, "namespaces", item, &name);
    m.message(2, "spec", |m| m.texts(1, "finalizers", ["kubernetes"]));
    m.message(3, "status", |m| m.text(1, "phase", "Active"));
}

fn in_namespace<'a>(layout: &'a Layout, item: &Item, name: &str) -> Name<'a> {
    Name { namespace: Some(layout.namespace(item.index)), name: name.to_owned() }
}

/// The name of a namespace's ResourceQuota.
pub fn quota_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    in_namespace(layout, item, "compute")
}

/// The ResourceQuota of a namespace.
pub fn write_quota(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let hard =
        [("limits.memory", "800Gi"), ("pods", "400"), ("requests.cpu", "200"), ("secrets", "500")];
    let used =
        [("limits.memory", "96Gi"), ("pods", "101"), ("requests.cpu", "22500m"), ("secrets", "11")];
    Meta::default().write(m, layout, "resourcequotas", item, &quota_name(layout, item));
    m.message(2, "spec", |m| m.quantity_map(1, "hard", hard));
    m.message(3, "status", |m| {
        m.quantity_map(1, "hard", hard);
        m.quantity_map(2, "used", used);
    });
}

/// The name of a namespace's LimitRange.
pub fn limit_range_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    in_namespace(layout, item, "defaults")
}

/// The LimitRange of a namespace.
pub fn write_limit_range(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    Meta::default().write(m, layout, "limitranges", item, &limit_range_name(layout, item));
    m.message(2, "spec", |m| {
        m.messages(1, "limits", [()], |m, ()| {
            m.text(1, "type", "Container");
            m.quantity_map(4, "default", [("cpu", "500m"), ("memory", "512Mi")]);
            m.quantity_map(5, "defaultRequest", [("cpu", "50m"), ("memory", "128Mi")]);
        });
    });
}

/// The name of a namespace's NetworkPolicy.
pub fn network_policy_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    in_namespace(layout, item, "default-deny")
}

/// The NetworkPolicy of a namespace.
pub fn write_network_policy(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    Meta { generation: 1, ..Meta::default() }.write(
        m,
        layout,
        "networkpolicies",
        item,
        &network_policy_name(layout, item),
    );
    m.message(2, "spec", |m| {
        m.message(1, "podSelector", |_| {});
        m.messages(2, "ingress", [()], |_, ()| {});
        m.texts(4, "policyTypes", ["Ingress"]);
    });
}
