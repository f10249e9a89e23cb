//! Objects as observers receive them, and the lean view of a pod that all of them share.

use std::cell::OnceCell;

use crate::resources::ObjectBytes;
use crate::resources::kinds::condition::DetailedCondition;
use crate::resources::kinds::pods::{ContainerStatus, PodIp, ResourceRequirements};
use crate::resources::scalars::Time;
use crate::wire::view::{Str, decode, view};

/// An object of a list/watch. A pod is decoded at most once, however many observers read it.
pub struct ObservedObject<'a> {
    /// The bytes of the object.
    pub bytes: ObjectBytes<'a>,
    /// True if it is a pod that has no series of its own any more, because it has completed.
    pub is_hidden: bool,
    /// The labels of a pod that are shown on its series, rendered by the first observer that needs them.
    pub(super) labels: OnceCell<Option<Box<[u8]>>>,
    pod: OnceCell<Option<Pod<'a>>>,
}

impl<'a> ObservedObject<'a> {
    /// Returns the object with these bytes.
    #[must_use]
    pub fn new(bytes: ObjectBytes<'a>) -> Self {
        Self { bytes, is_hidden: false, labels: OnceCell::new(), pod: OnceCell::new() }
    }

    /// Returns the object as a pod, or `None` if it is malformed, which is reported when it is rendered.
    #[must_use]
    pub fn pod(&self) -> Option<&Pod<'a>> {
        self.pod.get_or_init(|| decode(self.bytes).ok()).as_ref()
    }
}

impl<'a> Metadata<'a> {
    /// Returns the owner that controls the object, or its first owner.
    pub(super) fn controller(&self) -> Option<&OwnerReference<'a>> {
        let owners = &self.owner_references;
        owners.iter().find(|owner| owner.controller == Some(true)).or(owners.first())
    }
}

impl PodStatus<'_> {
    /// Returns true if the pod has succeeded or failed.
    pub(super) fn is_finished(&self) -> bool {
        matches!(&*self.phase, "Succeeded" | "Failed")
    }
}

view! {
    /// The fields of a Pod that observers read.
    pub struct Pod<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: PodSpec<'a> = 2 "spec",
        status: PodStatus<'a> = 3 "status",
    }

    /// `metadata` of any object.
    pub struct Metadata<'a> {
        name: Str<'a> = 1 "name",
        namespace: Str<'a> = 3 "namespace",
        uid: Str<'a> = 5 "uid",
        creation_timestamp: Time = 8 "creationTimestamp",
        deletion_timestamp: Option<Time> = 9 "deletionTimestamp",
        owner_references: Vec<OwnerReference<'a>> = 13 "ownerReferences",
    }

    /// An entry of `ownerReferences`.
    pub struct OwnerReference<'a> {
        kind: Str<'a> = 1 "kind",
        name: Str<'a> = 3 "name",
        uid: Str<'a> = 4 "uid",
        api_version: Str<'a> = 5 "apiVersion",
        controller: Option<bool> = 6 "controller",
    }

    /// `spec` of a Pod.
    pub struct PodSpec<'a> {
        containers: Vec<Container<'a>> = 2 "containers",
        node_name: Str<'a> = 10 "nodeName",
        host_network: bool = 11 "hostNetwork",
        init_containers: Vec<Container<'a>> = 20 "initContainers",
    }

    /// `spec.containers[]` and `spec.initContainers[]`.
    pub struct Container<'a> {
        name: Str<'a> = 1 "name",
        resources: ResourceRequirements<'a> = 8 "resources",
    }

    /// `status` of a Pod.
    pub struct PodStatus<'a> {
        phase: Str<'a> = 1 "phase",
        conditions: Vec<DetailedCondition<'a>> = 2 "conditions",
        reason: Str<'a> = 4 "reason",
        host_ip: Str<'a> = 5 "hostIP",
        start_time: Option<Time> = 7 "startTime",
        container_statuses: Vec<ContainerStatus<'a>> = 8 "containerStatuses",
        init_container_statuses: Vec<ContainerStatus<'a>> = 10 "initContainerStatuses",
        pod_ips: Vec<PodIp<'a>> = 12 "podIPs",
        ephemeral_container_statuses: Vec<ContainerStatus<'a>> = 13 "ephemeralContainerStatuses",
        host_ips: Vec<PodIp<'a>> = 16 "hostIPs",
    }
}
