//! `nodes` (v1 Node).

use super::condition::{self, Condition};
use super::resource_list::{self, ResourceList};
use crate::resources::prelude::*;

object! {
    /// The fields of a Node that metrics read.
    pub struct Node<'a> {
        spec: NodeSpec<'a> = 2 "spec",
        status: NodeStatus<'a> = 3 "status",
    }

    /// `spec`.
    pub struct NodeSpec<'a> {
        pod_cidr: Str<'a> = 1 "podCIDR",
        provider_id: Str<'a> = 3 "providerID",
        unschedulable: bool = 4 "unschedulable",
        taints: Vec<Taint<'a>> = 5 "taints",
        pod_cidrs: Vec<Str<'a>> = 7 "podCIDRs",
    }

    /// `spec.taints[]`.
    pub struct Taint<'a> {
        key: Str<'a> = 1 "key",
        value: Str<'a> = 2 "value",
        effect: Str<'a> = 3 "effect",
    }

    /// `status`.
    pub struct NodeStatus<'a> {
        capacity: ResourceList<'a> = 1 "capacity",
        allocatable: ResourceList<'a> = 2 "allocatable",
        conditions: Vec<Condition<'a>> = 4 "conditions",
        addresses: Vec<NodeAddress<'a>> = 5 "addresses",
        node_info: NodeInfo<'a> = 7 "nodeInfo",
    }

    /// `status.addresses[]`.
    pub struct NodeAddress<'a> {
        kind: Str<'a> = 1 "type",
        address: Str<'a> = 2 "address",
    }

    /// `status.nodeInfo`.
    pub struct NodeInfo<'a> {
        system_uuid: Str<'a> = 2 "systemUUID",
        kernel_version: Str<'a> = 4 "kernelVersion",
        os_image: Str<'a> = 5 "osImage",
        container_runtime_version: Str<'a> = 6 "containerRuntimeVersion",
        kubelet_version: Str<'a> = 7 "kubeletVersion",
    }
}

kind! {
    /// The Node kind.
    Nodes: Node, "node", Api::cluster_wide("", "v1", "Node", "nodes");
    identity [("node", |node| &node.metadata.name)];
    families node, s:
        annotations(Alpha, "kube_node_annotations");
        created(Stable, "kube_node_created");
        deleted(Alpha, "kube_node_deletion_timestamp");
        stable "kube_node_info"
            [
                "kernel_version", "os_image", "container_runtime_version", "kubelet_version",
                "kubeproxy_version", "provider_id", "pod_cidr", "system_uuid", "internal_ip",
            ],
            "The software that the node runs, and how the node is known.": info(node, s);
        labels(Stable, "kube_node_labels");
        of_metadata alpha "kube_node_role" ["role"], "The roles that the node has by its labels.":
            roles(node, s);
        alpha "kube_node_spec_pod_cidrs" ["pod_cidr"],
            "The address ranges that the pods of the node get theirs from.": {
                for range in &node.spec.pod_cidrs {
                    s.with(&[("pod_cidr", range)], 1.0);
                }
            };
        stable "kube_node_spec_taint" ["key", "value", "effect"],
            "The taints that keep pods off the node.": {
                for taint in &node.spec.taints {
                    let labels = [
                        ("key", &*taint.key),
                        ("value", &*taint.value),
                        ("effect", &*taint.effect),
                    ];
                    s.with(&labels, 1.0);
                }
            };
        stable "kube_node_spec_unschedulable", "Whether the node is closed to new pods.":
            s.value(node.spec.unschedulable);
        stable "kube_node_status_allocatable" ["resource", "unit"],
            "How much of a resource the node has for pods.":
            resource_list::node_series(&node.status.allocatable, s);
        stable "kube_node_status_capacity" ["resource", "unit"],
            "How much of a resource the node has in all.":
            resource_list::node_series(&node.status.capacity, s);
        stable "kube_node_status_condition" ["condition", "status"],
            "The conditions of the node: for each, one series for each status, 1 for the present one.":
            condition::all(&node.status.conditions, s);
        alpha "kube_node_status_addresses" ["type", "address"], "The addresses of the node.": {
                for address in &node.status.addresses {
                    s.with(&[("type", &address.kind), ("address", &address.address)], 1.0);
                }
            };
}

fn info(node: &Node<'_>, s: &mut Series<'_>) {
    let info = &node.status.node_info;
    let mut internal = node.status.addresses.iter().rev().filter(|a| &*a.kind == "InternalIP");
    let labels = [
        ("kernel_version", &*info.kernel_version),
        ("os_image", &*info.os_image),
        ("container_runtime_version", &*info.container_runtime_version),
        ("kubelet_version", &*info.kubelet_version),
        // Nodes no longer report it; the label remains for queries that join on it.
        ("kubeproxy_version", "deprecated"),
        ("provider_id", &*node.spec.provider_id),
        ("pod_cidr", &*node.spec.pod_cidr),
        ("system_uuid", &*info.system_uuid),
        ("internal_ip", internal.next().map_or("", |address| &address.address)),
    ];
    s.with(&labels, 1.0);
}

fn roles(node: &Node<'_>, s: &mut Series<'_>) {
    for (key, _) in node.metadata.labels.entries().iter() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            s.with(&[("role", role)], 1.0);
        }
    }
}
