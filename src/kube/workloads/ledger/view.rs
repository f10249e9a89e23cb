//! The fields of objects that the ledger reads.

use crate::resources::scalars::Time;
use crate::wire::view::{Str, view};

view! {
    /// The fields of a Pod that the ledger reads.
    pub struct Pod<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: PodSpec<'a> = 2 "spec",
        status: PodStatus<'a> = 3 "status",
    }

    /// `metadata`.
    pub struct Metadata<'a> {
        name: Str<'a> = 1 "name",
        namespace: Str<'a> = 3 "namespace",
        uid: Str<'a> = 5 "uid",
        creation_timestamp: Time = 8 "creationTimestamp",
        deletion_timestamp: Option<Time> = 9 "deletionTimestamp",
    }

    /// `spec` of a Pod.
    pub struct PodSpec<'a> {
        containers: Vec<Container<'a>> = 2 "containers",
        init_containers: Vec<Container<'a>> = 20 "initContainers",
    }

    /// `spec.containers[]` and `spec.initContainers[]`.
    pub struct Container<'a> {
        name: Str<'a> = 1 "name",
    }

    /// `status` of a Pod.
    pub struct PodStatus<'a> {
        phase: Str<'a> = 1 "phase",
        conditions: Vec<Condition<'a>> = 2 "conditions",
        reason: Str<'a> = 4 "reason",
        container_statuses: Vec<ContainerStatus<'a>> = 8 "containerStatuses",
        init_container_statuses: Vec<ContainerStatus<'a>> = 10 "initContainerStatuses",
        ephemeral_container_statuses: Vec<ContainerStatus<'a>> = 13 "ephemeralContainerStatuses",
    }

    /// A condition of a Pod, a Job or a Node.
    pub struct Condition<'a> {
        kind: Str<'a> = 1 "type",
        status: Str<'a> = 2 "status",
        last_transition_time: Time = 4 "lastTransitionTime",
        reason: Str<'a> = 5 "reason",
    }

    /// A container status.
    pub struct ContainerStatus<'a> {
        name: Str<'a> = 1 "name",
        state: ContainerState<'a> = 2 "state",
        last_state: ContainerState<'a> = 3 "lastState",
        restart_count: i32 = 5 "restartCount",
        container_id: Str<'a> = 8 "containerID",
    }

    /// `state` and `lastState` of a container status.
    pub struct ContainerState<'a> {
        running: Option<crate::wire::view::Present> = 2 "running",
        terminated: Option<Terminated<'a>> = 3 "terminated",
    }

    /// `terminated`.
    pub struct Terminated<'a> {
        exit_code: i32 = 1 "exitCode",
        reason: Str<'a> = 3 "reason",
        started_at: Time = 5 "startedAt",
        finished_at: Time = 6 "finishedAt",
        container_id: Str<'a> = 7 "containerID",
    }

    /// The fields of a Job that the ledger reads.
    pub struct Job<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: JobStatus<'a> = 3 "status",
    }

    /// `status` of a Job.
    pub struct JobStatus<'a> {
        conditions: Vec<Condition<'a>> = 1 "conditions",
    }

    /// The fields of a Node that the ledger reads.
    pub struct Node<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: NodeStatus<'a> = 3 "status",
    }

    /// `status` of a Node.
    pub struct NodeStatus<'a> {
        conditions: Vec<Condition<'a>> = 4 "conditions",
    }
}
