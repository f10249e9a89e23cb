//! `nodes` (v1 Node).

use crate::resources::prelude::*;

object! {
    /// The fields of a Node that metrics read.
    pub struct Node<'a> {
        spec: NodeSpec<'a> = 2 "spec" struct NodeSpec {
            pod_cidr: Str<'a> = 1 "podCIDR",
            provider_id: Str<'a> = 3 "providerID",
            unschedulable: bool = 4 "unschedulable",
            taints: Vec<Taint<'a>> = 5 "taints" struct Taint {
                key: Str<'a> = 1 "key",
                value: Str<'a> = 2 "value",
                effect: Str<'a> = 3 "effect",
            },
            pod_cidrs: Vec<Str<'a>> = 7 "podCIDRs",
        },
        status: NodeStatus<'a> = 3 "status" struct NodeStatus {
            capacity: ResourceList<'a> = 1 "capacity",
            allocatable: ResourceList<'a> = 2 "allocatable",
            conditions: Vec<Condition<'a>> = 4 "conditions",
            addresses: Vec<NodeAddress<'a>> = 5 "addresses" struct NodeAddress {
                kind: Str<'a> = 1 "type",
                address: Str<'a> = 2 "address",
            },
            node_info: NodeInfo<'a> = 7 "nodeInfo" struct NodeInfo {
                system_uuid: Str<'a> = 2 "systemUUID",
                kernel_version: Str<'a> = 4 "kernelVersion",
                os_image: Str<'a> = 5 "osImage",
                container_runtime_version: Str<'a> = 6 "containerRuntimeVersion",
                kubelet_version: Str<'a> = 7 "kubeletVersion",
            },
        },
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
            {
                "kernel_version": &node.status.node_info.kernel_version,
                "os_image": &node.status.node_info.os_image,
                "container_runtime_version": &node.status.node_info.container_runtime_version,
                "kubelet_version": &node.status.node_info.kubelet_version,
                // Nodes no longer report it; the label remains for queries that join on it.
                "kubeproxy_version": "deprecated",
                "provider_id": &node.spec.provider_id,
                "pod_cidr": &node.spec.pod_cidr,
                "system_uuid": &node.status.node_info.system_uuid,
                "internal_ip": internal_ip(node),
            },
            "The software that the node runs, and how the node is known.";
        labels(Stable, "kube_node_labels");
        alpha of_metadata "kube_node_role" ["role"], "The roles that the node has by its labels.":
            roles(node, s);
        alpha "kube_node_spec_pod_cidrs" {"pod_cidr": range} for range in &node.spec.pod_cidrs,
            "The address ranges that the pods of the node get theirs from.";
        stable "kube_node_spec_taint"
            {"key": &taint.key, "value": &taint.value, "effect": &taint.effect}
            for taint in &node.spec.taints,
            "The taints that keep pods off the node.";
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
        alpha "kube_node_status_addresses" {"type": &address.kind, "address": &address.address}
            for address in &node.status.addresses, "The addresses of the node.";
}

fn internal_ip<'v>(node: &'v Node<'_>) -> &'v str {
    let internal = node.status.addresses.iter().rfind(|address| &*address.kind == "InternalIP");
    internal.map_or("", |address| &address.address)
}

fn roles(node: &Node<'_>, s: &mut Series<'_>) {
    for (key, _) in node.metadata.labels.entries().iter() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            s.with(&[("role", role)], 1.0);
        }
    }
}
