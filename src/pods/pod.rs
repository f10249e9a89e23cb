//! A pod as the sender of lines.

use std::net::IpAddr;
use std::sync::Arc;

/// A workload that a pod belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWorkload {
    /// The name.
    pub name: Box<str>,
    /// The kind in lower case.
    pub kind: Box<str>,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The UID.
    pub uid: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Box<str>,
    /// The name of the node.
    pub node: Arc<str>,
    /// The workload, if it is known.
    pub workload: Option<PodWorkload>,
    /// The addresses that only this pod has; none for a pod in the host network.
    pub addresses: Box<[IpAddr]>,
    /// The addresses of the node, which all pods in its host network share.
    pub node_addresses: Box<[IpAddr]>,
    /// The IDs of the containers.
    pub containers: Box<[Box<str>]>,
    /// The time of the start in Unix seconds, as the node reports it.
    pub started: Option<i64>,
    /// True if all containers have ended for good.
    pub is_finished: bool,
}
