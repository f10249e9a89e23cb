//! `pods` (v1 Pod).

use std::collections::HashMap;

use crate::resources::metadata::OwnerReference;
use crate::resources::prelude::*;
use crate::resources::values::ip;
use crate::resources::values::quantity::Quantity;

object! {
    /// The fields of a Pod that metrics read.
    pub struct Pod<'a> {
        spec: PodSpec<'a> = 2 "spec" struct PodSpec {
            volumes: Vec<Volume<'a>> = 1 "volumes" struct Volume {
                ..source: VolumeSource<'a> = 2,
                name: Str<'a> = 1 "name",
            },
            containers: Vec<Container<'a>> = 2 "containers",
            restart_policy: Str<'a> = 3 "restartPolicy",
            node_selector: Map<'a> = 7 "nodeSelector",
            service_account_name: Str<'a> = 8 "serviceAccountName",
            node_name: Str<'a> = 10 "nodeName",
            host_network: bool = 11 "hostNetwork",
            scheduler_name: Str<'a> = 19 "schedulerName",
            init_containers: Vec<Container<'a>> = 20 "initContainers",
            tolerations: Vec<Toleration<'a>> = 22 "tolerations" struct Toleration {
                key: Str<'a> = 1 "key",
                operator: Str<'a> = 2 "operator",
                value: Str<'a> = 3 "value",
                effect: Str<'a> = 4 "effect",
                toleration_seconds: Option<i64> = 5 "tolerationSeconds",
            },
            priority_class_name: Str<'a> = 24 "priorityClassName",
            runtime_class_name: Option<Str<'a>> = 29 "runtimeClassName",
            overhead: ResourceList<'a> = 32 "overhead",
            resource_claims: Vec<ResourceClaim<'a>> = 39 "resourceClaims" struct ResourceClaim {
                name: Str<'a> = 1 "name",
                resource_claim_name: Option<Str<'a>> = 3 "resourceClaimName",
                resource_claim_template_name: Option<Str<'a>> = 4 "resourceClaimTemplateName",
            },
        },
        status: PodStatus<'a> = 3 "status" struct PodStatus {
            phase: Str<'a> = 1 "phase",
            conditions: Vec<DetailedCondition<'a>> = 2 "conditions",
            reason: Str<'a> = 4 "reason",
            host_ip: Str<'a> = 5 "hostIP",
            pod_ip: Str<'a> = 6 "podIP",
            start_time: Option<Time> = 7 "startTime",
            container_statuses: Vec<ContainerStatus<'a>> = 8 "containerStatuses",
            qos_class: Str<'a> = 9 "qosClass",
            init_container_statuses: Vec<ContainerStatus<'a>> = 10 "initContainerStatuses",
            pod_ips: Vec<PodIp<'a>> = 12 "podIPs" struct PodIp {
                ip: Str<'a> = 1 "ip",
            },
            resource_claim_statuses: Vec<ClaimStatus<'a>> = 15 "resourceClaimStatuses" struct ClaimStatus {
                name: Str<'a> = 1 "name",
                resource_claim_name: Option<Str<'a>> = 2 "resourceClaimName",
            },
        },
    }

    /// The source of a volume.
    pub struct VolumeSource<'a> {
        persistent_volume_claim: Option<ClaimSource<'a>> = 10 "persistentVolumeClaim" struct ClaimSource {
            claim_name: Str<'a> = 1 "claimName",
            read_only: bool = 2 "readOnly",
        },
        ephemeral: Option<Present> = 29 "ephemeral",
    }

    /// `spec.containers[]` and `spec.initContainers[]`.
    pub struct Container<'a> {
        name: Str<'a> = 1 "name",
        image: Str<'a> = 2 "image",
        resources: ResourceRequirements<'a> = 8 "resources" struct ResourceRequirements {
            limits: ResourceList<'a> = 1 "limits",
            requests: ResourceList<'a> = 2 "requests",
        },
        restart_policy: Option<Str<'a>> = 24 "restartPolicy",
    }

    /// `status.containerStatuses[]`, `status.initContainerStatuses[]` and, for observers, `status.ephemeralContainerStatuses[]`.
    pub struct ContainerStatus<'a> {
        name: Str<'a> = 1 "name",
        state: ContainerState<'a> = 2 "state",
        last_state: ContainerState<'a> = 3 "lastState",
        ready: bool = 4 "ready",
        restart_count: i32 = 5 "restartCount",
        image: Str<'a> = 6 "image",
        image_id: Str<'a> = 7 "imageID",
        container_id: Str<'a> = 8 "containerID",
    }

    /// `state` and `lastState` of a container status.
    pub struct ContainerState<'a> {
        waiting: Option<Waiting<'a>> = 1 "waiting" struct Waiting {
            reason: Str<'a> = 1 "reason",
        },
        running: Option<Running<'a>> = 2 "running" struct Running {
            started_at: Time = 1 "startedAt",
        },
        terminated: Option<Terminated<'a>> = 3 "terminated" struct Terminated {
            exit_code: i32 = 1 "exitCode",
            reason: Str<'a> = 3 "reason",
            started_at: Time = 5 "startedAt",
            finished_at: Time = 6 "finishedAt",
            container_id: Str<'a> = 7 "containerID",
        },
    }
}

kind! {
    /// The Pod kind.
    Pods: Pod, "pod", Api::namespaced("", "v1", "Pod", "pods");
    identity namespace_and_uid::<Self>("pod");
    families pod, s:
        stable "kube_pod_completion_time",
            "Unix time at which the last of the pod's containers terminated.":
            completion_time(pod, s);
        stable "kube_pod_container_info"
            ["container", "image_spec", "image", "image_id", "container_id"],
            "What a container of the pod was asked to run and what it runs.":
            container_info(&pod.spec.containers, &pod.status.container_statuses, false, s);
        stable "kube_pod_container_resource_limits" ["container", "node", "resource", "unit"],
            "The most of a resource that a container may use.":
            resources(pod, &pod.spec.containers, |c| &c.resources.limits, s);
        stable "kube_pod_container_resource_requests" ["container", "node", "resource", "unit"],
            "How much of a resource a container asks to be reserved.":
            resources(pod, &pod.spec.containers, |c| &c.resources.requests, s);
        stable "kube_pod_container_state_started" ["container"],
            "Unix time at which a container entered its running or terminated state.":
            each(&pod.status.container_statuses, s, started);
        alpha "kube_pod_container_status_last_terminated_reason" ["container", "reason"],
            "Why a container ended the last time.":
            each_reason(&pod.status.container_statuses, s, |c| Some(&c.last_state.terminated.as_ref()?.reason));
        alpha "kube_pod_container_status_last_terminated_exitcode" ["container"],
            "The exit code with which a container ended the last time.":
            each(&pod.status.container_statuses, s, |c| Some(c.last_state.terminated.as_ref()?.exit_code));
        alpha "kube_pod_container_status_last_terminated_timestamp" ["container"],
            "Unix time at which a container ended the last time.":
            each(&pod.status.container_statuses, s, |c| Some(c.last_state.terminated.as_ref()?.finished_at));
        stable "kube_pod_container_status_ready" ["container"],
            "Whether a container passes its readiness check.":
            each(&pod.status.container_statuses, s, |c| c.ready);
        stable counter "kube_pod_container_status_restarts_total" ["container"],
            "How often a container was restarted.":
            each(&pod.status.container_statuses, s, |c| c.restart_count);
        stable "kube_pod_container_status_running" ["container"], "Whether a container is running.":
            each(&pod.status.container_statuses, s, |c| c.state.running.is_some());
        stable "kube_pod_container_status_terminated" ["container"],
            "Whether a container has terminated.":
            each(&pod.status.container_statuses, s, |c| c.state.terminated.is_some());
        alpha "kube_pod_container_status_terminated_reason" ["container", "reason"],
            "Why a terminated container ended.":
            each_reason(&pod.status.container_statuses, s, |c| Some(&c.state.terminated.as_ref()?.reason));
        stable "kube_pod_container_status_waiting" ["container"],
            "Whether a container waits to be started.":
            each(&pod.status.container_statuses, s, |c| c.state.waiting.is_some());
        stable "kube_pod_container_status_waiting_reason" ["container", "reason"],
            "Why a waiting container is not started.":
            each_reason(&pod.status.container_statuses, s, |c| Some(&c.state.waiting.as_ref()?.reason));
        created(Stable, "kube_pod_created");
        deleted(Alpha, "kube_pod_deletion_timestamp");
        stable "kube_pod_info"
            {
                "host_ip": &pod.status.host_ip,
                "pod_ip": &pod.status.pod_ip,
                "node": &pod.spec.node_name,
                "created_by_kind": controller(pod).map_or("", |owner| &owner.kind),
                "created_by_name": controller(pod).map_or("", |owner| &owner.name),
                "priority_class": &pod.spec.priority_class_name,
                "host_network": bool_text(pod.spec.host_network),
            },
            "Where the pod runs and what controls it.";
        alpha "kube_pod_ips" ["ip", "ip_family"], "The pod's addresses.": ips(pod, s);
        stable "kube_pod_init_container_info"
            ["container", "image_spec", "image", "image_id", "container_id", "restart_policy"],
            "What an init container of the pod was asked to run and what it runs.": {
                let statuses = &pod.status.init_container_statuses;
                container_info(&pod.spec.init_containers, statuses, true, s);
            };
        alpha "kube_pod_init_container_resource_limits" ["container", "node", "resource", "unit"],
            "The most of a resource that an init container may use.":
            resources(pod, &pod.spec.init_containers, |c| &c.resources.limits, s);
        alpha "kube_pod_init_container_resource_requests" ["container", "node", "resource", "unit"],
            "How much of a resource an init container asks to be reserved.":
            resources(pod, &pod.spec.init_containers, |c| &c.resources.requests, s);
        alpha "kube_pod_init_container_state_started" ["container"],
            "Unix time at which an init container entered its running or terminated state.":
            each(&pod.status.init_container_statuses, s, started);
        alpha "kube_pod_init_container_status_last_terminated_reason" ["container", "reason"],
            "Why an init container ended the last time.":
            each_reason(&pod.status.init_container_statuses, s, |c| Some(&c.last_state.terminated.as_ref()?.reason));
        alpha "kube_pod_init_container_status_last_terminated_exitcode" ["container"],
            "The exit code with which an init container ended the last time.":
            each(&pod.status.init_container_statuses, s, |c| Some(c.last_state.terminated.as_ref()?.exit_code));
        alpha "kube_pod_init_container_status_last_terminated_timestamp" ["container"],
            "Unix time at which an init container ended the last time.":
            each(&pod.status.init_container_statuses, s, |c| Some(c.last_state.terminated.as_ref()?.finished_at));
        stable "kube_pod_init_container_status_ready" ["container"],
            "Whether an init container passes its readiness check.":
            each(&pod.status.init_container_statuses, s, |c| c.ready);
        stable counter "kube_pod_init_container_status_restarts_total" ["container"],
            "How often an init container was restarted.":
            each(&pod.status.init_container_statuses, s, |c| c.restart_count);
        stable "kube_pod_init_container_status_running" ["container"],
            "Whether an init container is running.":
            each(&pod.status.init_container_statuses, s, |c| c.state.running.is_some());
        stable "kube_pod_init_container_status_terminated" ["container"],
            "Whether an init container has terminated.":
            each(&pod.status.init_container_statuses, s, |c| c.state.terminated.is_some());
        alpha "kube_pod_init_container_status_terminated_reason" ["container", "reason"],
            "Why a terminated init container ended.":
            each_reason(&pod.status.init_container_statuses, s, |c| Some(&c.state.terminated.as_ref()?.reason));
        stable "kube_pod_init_container_status_waiting" ["container"],
            "Whether an init container waits to be started.":
            each(&pod.status.init_container_statuses, s, |c| c.state.waiting.is_some());
        alpha "kube_pod_init_container_status_waiting_reason" ["container", "reason"],
            "Why a waiting init container is not started.":
            each_reason(&pod.status.init_container_statuses, s, |c| Some(&c.state.waiting.as_ref()?.reason));
        annotations(Alpha, "kube_pod_annotations");
        labels(Stable, "kube_pod_labels");
        alpha "kube_pod_overhead_cpu_cores",
            "CPU that the runtime class adds to what the containers ask for.":
            overhead(pod, "cpu", |quantity| quantity.converted(), s);
        alpha "kube_pod_overhead_memory_bytes",
            "Memory that the runtime class adds to what the containers ask for.":
            overhead(pod, "memory", |quantity| quantity.integer() as f64, s);
        owners(Stable, "kube_pod_owner");
        alpha "kube_pod_resourceclaim_info"
            ["claim_name", "resourceclaim_name", "resourceclaim_template_name"],
            "The resource claims of the pod and what they refer to.": resource_claims(pod, s);
        stable "kube_pod_restart_policy" {"type": &pod.spec.restart_policy},
            "When the pod's containers are restarted.";
        alpha "kube_pod_runtimeclass_name_info" {"runtimeclass_name": name}
            for name in pod.spec.runtime_class_name.iter(), "The runtime class of the pod.";
        stable "kube_pod_spec_volumes_persistentvolumeclaims_info"
            ["volume", "persistentvolumeclaim", "ephemeral"],
            "The volume claims that the pod mounts.": volume_claims(pod, |_| 1.0, s);
        stable "kube_pod_spec_volumes_persistentvolumeclaims_readonly"
            ["volume", "persistentvolumeclaim", "ephemeral"],
            "Whether a volume claim is mounted read-only.": volume_claims(pod, bool_value, s);
        stable "kube_pod_start_time", "Unix time at which the node took the pod on.":
            s.value(pod.status.start_time);
        stable "kube_pod_status_phase" ["phase"],
            "The phase of the pod: one series for each, 1 for the present one.": {
                let all = ["Pending", "Succeeded", "Failed", "Unknown", "Running"];
                s.known_state("phase", &all, &pod.status.phase);
            };
        alpha "kube_pod_status_qos_class" ["qos_class"],
            "The quality-of-service class of the pod: one series for each, 1 for its own.": {
                let all = ["BestEffort", "Burstable", "Guaranteed"];
                s.known_state("qos_class", &all, &pod.status.qos_class);
            };
        stable "kube_pod_status_ready" ["condition"], "Whether the pod is ready to serve requests.":
            condition::status(&pod.status.conditions, "Ready", s);
        alpha "kube_pod_status_ready_time", "Unix time at which the pod became ready.":
            transition_time(pod, "Ready", "True", s);
        alpha "kube_pod_status_initialized_time",
            "Unix time at which the pod's init containers were done.":
            transition_time(pod, "Initialized", "True", s);
        alpha "kube_pod_status_container_ready_time",
            "Unix time at which all containers of the pod were ready.":
            transition_time(pod, "ContainersReady", "True", s);
        alpha "kube_pod_status_reason" ["reason"],
            "Why the pod is in its state, for the reasons that are present.": reasons(pod, s);
        alpha "kube_pod_status_disruption_reason" ["reason"],
            "Why the pod is about to be terminated by a disruption.": disruption_reasons(pod, s);
        stable "kube_pod_status_scheduled" ["condition"], "Whether the pod was given a node.":
            condition::status(&pod.status.conditions, "PodScheduled", s);
        stable "kube_pod_status_scheduled_time", "Unix time at which the pod was given a node.":
            transition_time(pod, "PodScheduled", "True", s);
        stable "kube_pod_status_unschedulable", "1 for a pod that no node can take.": {
                let scheduled = condition::of_type(&pod.status.conditions, "PodScheduled");
                for _ in scheduled.filter(|condition| &*condition.status == "False") {
                    s.value(1.0);
                }
            };
        alpha "kube_pod_status_unscheduled_time", "Unix time since which no node can take the pod.":
            transition_time(pod, "PodScheduled", "False", s);
        alpha "kube_pod_tolerations" ["key", "operator", "value", "effect", "toleration_seconds"],
            "The taints that the pod tolerates.": tolerations(pod, s);
        alpha opt_in "kube_pod_nodeselectors" ["nodeselector_*"],
            "The node labels that the pod asks for.":
            s.with_entries("nodeselector", &pod.spec.node_selector);
        alpha "kube_pod_service_account" {"service_account": &pod.spec.service_account_name},
            "The service account that the pod runs as.";
        alpha "kube_pod_scheduler" {"name": &pod.spec.scheduler_name},
            "The scheduler that the pod is left to.";
}

type Statuses<'v, 'a> = &'v [ContainerStatus<'a>];

/// The number of statuses up to which a linear search finds that of a container.
const MAX_LINEAR: usize = 16;

fn completion_time(pod: &Pod<'_>, s: &mut Series<'_>) {
    let finished = pod.status.container_statuses.iter().filter_map(|c| c.state.terminated.as_ref());
    if let Some(last) = finished.map(|t| t.finished_at).max()
        && last.unix() > 0
    {
        s.value(last.seconds());
    }
}

fn container_info(
    specs: &[Container<'_>],
    statuses: Statuses<'_, '_>,
    init: bool,
    s: &mut Series<'_>,
) {
    // A map, so that thousands of containers take linear work.
    let mut by_name: HashMap<&str, Vec<&ContainerStatus<'_>>> = HashMap::new();
    if statuses.len() > MAX_LINEAR {
        statuses.iter().for_each(|status| by_name.entry(&status.name).or_default().push(status));
    }
    for spec in specs {
        let mut write = |status: &ContainerStatus<'_>| {
            let labels = [
                ("container", &*spec.name),
                ("image_spec", &*spec.image),
                ("image", &*status.image),
                ("image_id", &*status.image_id),
                ("container_id", &*status.container_id),
                ("restart_policy", or_empty(&spec.restart_policy)),
            ];
            s.with(if init { &labels } else { &labels[..5] }, 1.0);
        };
        if statuses.len() > MAX_LINEAR {
            by_name.get(&*spec.name).into_iter().flatten().for_each(|status| write(status));
        } else {
            statuses.iter().filter(|status| status.name == spec.name).for_each(write);
        }
    }
}

fn resources<'v, 'a>(
    pod: &'v Pod<'a>,
    containers: &'v [Container<'a>],
    list: fn(&'v Container<'a>) -> &'v ResourceList<'a>,
    s: &mut Series<'_>,
) {
    for container in containers {
        let labels = [("container", &*container.name), ("node", &*pod.spec.node_name)];
        resource_list::pod_series(list(container), labels, s);
    }
}

/// Writes the value of each container that has one.
fn each<V: Value>(
    statuses: Statuses<'_, '_>,
    s: &mut Series<'_>,
    value: fn(&ContainerStatus<'_>) -> V,
) {
    for status in statuses {
        if let Some(value) = value(status).number() {
            s.with(&[("container", &status.name)], value);
        }
    }
}

/// Writes the reason of each container that has one.
fn each_reason(
    statuses: Statuses<'_, '_>,
    s: &mut Series<'_>,
    reason: for<'v> fn(&'v ContainerStatus<'_>) -> Option<&'v Str<'v>>,
) {
    for status in statuses {
        if let Some(reason) = reason(status) {
            s.with(&[("container", &status.name), ("reason", reason)], 1.0);
        }
    }
}

fn started(status: &ContainerStatus<'_>) -> Option<Time> {
    let ContainerState { running, terminated, .. } = &status.state;
    let ended = || terminated.as_ref().map(|terminated| terminated.started_at);
    running.as_ref().map(|running| running.started_at).or_else(ended)
}

fn controller<'v, 'a>(pod: &'v Pod<'a>) -> Option<&'v OwnerReference<'a>> {
    pod.metadata.owner_references.iter().find(|owner| owner.controller == Some(true))
}

fn ips(pod: &Pod<'_>, s: &mut Series<'_>) {
    for address in &pod.status.pod_ips {
        if let Some(family) = ip::family(&address.ip) {
            s.with(&[("ip", &address.ip), ("ip_family", family)], 1.0);
        }
    }
}

fn overhead(pod: &Pod<'_>, name: &str, read: fn(&Quantity) -> f64, s: &mut Series<'_>) {
    let quantity = pod.spec.overhead.get(name).and_then(QuantityText::quantity);
    s.value(quantity.map(|quantity| read(&quantity)));
}

fn resource_claims(pod: &Pod<'_>, s: &mut Series<'_>) {
    let statuses = pod.status.resource_claim_statuses.iter();
    let allocated =
        statuses.filter_map(|status| Some((&*status.name, status.resource_claim_name.as_deref()?)));
    // Of several statuses of a name, the last one with a claim counts.
    let allocated: HashMap<&str, &str> = allocated.collect();
    for claim in &pod.spec.resource_claims {
        if claim.resource_claim_name.is_none() && claim.resource_claim_template_name.is_none() {
            continue;
        }
        let allocated = || allocated.get(&*claim.name).copied();
        let labels = [
            ("claim_name", &*claim.name),
            (
                "resourceclaim_name",
                claim.resource_claim_name.as_deref().or_else(allocated).unwrap_or(""),
            ),
            ("resourceclaim_template_name", or_empty(&claim.resource_claim_template_name)),
        ];
        s.with(&labels, 1.0);
    }
}

fn volume_claims(pod: &Pod<'_>, value: fn(bool) -> f64, s: &mut Series<'_>) {
    for volume in &pod.spec.volumes {
        let of_pod;
        let (claim, ephemeral, read_only) = match &volume.source {
            VolumeSource { persistent_volume_claim: Some(claim), .. } => {
                (&*claim.claim_name, "false", claim.read_only)
            }
            VolumeSource { ephemeral: Some(_), .. } => {
                // The claim of an ephemeral volume is named after its pod.
                of_pod = format!("{}-{}", &*pod.metadata.name, &*volume.name);
                (&*of_pod, "true", false)
            }
            _ => continue,
        };
        let labels =
            [("volume", &*volume.name), ("persistentvolumeclaim", claim), ("ephemeral", ephemeral)];
        s.with(&labels, value(read_only));
    }
}

fn transition_time(pod: &Pod<'_>, kind: &'static str, status: &str, s: &mut Series<'_>) {
    let conditions = condition::of_type(&pod.status.conditions, kind);
    for condition in conditions.filter(|condition| &*condition.status == status) {
        s.value(condition.last_transition_time.seconds());
    }
}

fn reasons(pod: &Pod<'_>, s: &mut Series<'_>) {
    const KNOWN: [&str; 8] = [
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "PreemptionByScheduler",
        "SchedulingGated",
        "Shutdown",
        "TerminationByKubelet",
        "UnexpectedAdmissionError",
    ];
    let status = &pod.status;
    for reason in KNOWN {
        let present = &*status.reason == reason
            || status.conditions.iter().any(|condition| &*condition.reason == reason)
            || status
                .container_statuses
                .iter()
                .filter_map(|container| container.state.terminated.as_ref())
                .any(|terminated| &*terminated.reason == reason);
        if present {
            s.with(&[("reason", reason)], 1.0);
        }
    }
    if !status.reason.is_empty() && !KNOWN.contains(&&*status.reason) {
        s.with(&[("reason", "Other")], 1.0);
    }
}

fn disruption_reasons(pod: &Pod<'_>, s: &mut Series<'_>) {
    const KNOWN: [&str; 5] = [
        "PreemptionByScheduler",
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "DeletionByPodGC",
        "TerminationByKubelet",
    ];
    for condition in condition::of_type(&pod.status.conditions, "DisruptionTarget") {
        let reason = &*condition.reason;
        let reason = if KNOWN.contains(&reason) { reason } else { "Other" };
        s.with(&[("reason", reason)], 1.0);
    }
}

fn tolerations(pod: &Pod<'_>, s: &mut Series<'_>) {
    // Duplicate tolerations have the same labels.
    s.distinct();
    for toleration in &pod.spec.tolerations {
        let mut digits = itoa::Buffer::new();
        let labels = [
            ("key", &*toleration.key),
            ("operator", &*toleration.operator),
            ("value", &*toleration.value),
            ("effect", &*toleration.effect),
            ("toleration_seconds", number_text(toleration.toleration_seconds, &mut digits)),
        ];
        s.with(&labels, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use crate::cache::Rendered;
    use crate::resources::{ObjectBytes, RenderOptions, find};

    /// Each of many containers gets the labels of its status, in the order of the containers.
    #[test]
    fn each_of_many_containers_has_its_status() {
        const COUNT: usize = 3_000;
        let list = |numbers: &mut dyn Iterator<Item = usize>, field: &str| {
            let mut all = String::new();
            for number in numbers {
                let comma = if all.is_empty() { "" } else { "," };
                let _ = write!(all, r#"{comma}{{"name":"c{number}","{field}":"i{number}"}}"#);
            }
            all
        };
        let specs = list(&mut (0..COUNT), "image");
        let statuses = list(&mut (0..COUNT).rev(), "containerID");
        let text = format!(
            r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},"spec":{{"containers":[{specs}]}},"status":{{"containerStatuses":[{statuses}]}}}}"#
        );
        let renderer = find("pods").expect("pods").renderer(&RenderOptions::default());
        let mut rendered = Rendered::default();
        renderer.render(ObjectBytes::Json(text.as_bytes()), &mut rendered).expect("a pod");
        let lines = String::from_utf8(rendered.lines).expect("text");
        let infos = lines.lines().filter(|line| line.contains("image_spec="));
        let want = (0..COUNT).map(|number| {
            format!(
                r#",container="c{number}",image_spec="i{number}",image="",image_id="",container_id="i{number}"}} 1"#
            )
        });
        assert!(infos.eq(want.collect::<Vec<_>>()));
    }
}
