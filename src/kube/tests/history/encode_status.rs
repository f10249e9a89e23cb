//! Encodes `spec` and `status` of pods, jobs, nodes and definitions, and the fields of Kubernetes Events, as protobuf and
//! JSON.

use super::cluster::{Kind, Object, Subject, VERSIONS};
use super::encode::{YEAR, field, number};
use super::status::{CONDITIONS, Container, End, Phase, Termination};

/// Encodes a time as seconds of 2026.
pub(super) fn time(tag: u8, second: u64) -> Vec<u8> {
    field(tag, &number(1, (YEAR + second) as usize))
}

/// Returns a time as seconds of 2026.
pub(super) fn time_text(second: u64) -> String {
    let (minutes, second) = (second / 60, second % 60);
    let (hour, minute) = (minutes / 60, minutes % 60);
    format!("2026-01-01T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the names of the versions of a definition, and whether each is served.
fn versions(object: &Object) -> impl Iterator<Item = (&'static str, bool)> {
    let name = |kind: Kind| kind.api_version().trim_start_matches("example.com/");
    VERSIONS.into_iter().map(move |kind| (name(kind), object.serves(kind)))
}

/// Returns the status of the condition `Established`.
fn established(object: &Object) -> &'static str {
    if object.is_established() { "True" } else { "False" }
}

/// Encodes `spec` and `status` of a definition.
pub(super) fn definition(object: &Object) -> Vec<u8> {
    let kind = object.defined_kind();
    let plural = format!("{}s", kind.to_lowercase());
    let names = [field(1, plural.as_bytes()), field(4, kind.as_bytes())].concat();
    let version = |(name, is_served): (&str, bool)| {
        field(7, &[field(1, name.as_bytes()), number(2, usize::from(is_served))].concat())
    };
    let versions: Vec<u8> = versions(object).flat_map(version).collect();
    let spec = [field(1, b"example.com"), field(3, &names), field(4, b"Namespaced"), versions];
    let condition = [field(1, b"Established"), field(2, established(object).as_bytes())];
    [field(2, &spec.concat()), field(3, &field(1, &condition.concat()))].concat()
}

/// Returns the members `spec` and `status` of a definition, each with a comma before it.
pub(super) fn definition_json(object: &Object) -> String {
    let kind = object.defined_kind();
    let plural = format!("{}s", kind.to_lowercase());
    let version =
        |(name, is_served): (&str, bool)| format!(r#"{{"name":"{name}","served":{is_served}}}"#);
    let versions: Vec<String> = versions(object).map(version).collect();
    let (versions, established) = (versions.join(","), established(object));
    format!(
        r#","spec":{{"group":"example.com","names":{{"plural":"{plural}","kind":"{kind}"}},"scope":"Namespaced","versions":[{versions}]}},"status":{{"conditions":[{{"type":"Established","status":"{established}"}}]}}"#
    )
}

/// Encodes `spec` and `status` of a pod.
pub(super) fn pod(object: &Object) -> Vec<u8> {
    let host_network = if object.is_in_host_network() { number(11, 1) } else { Vec::new() };
    let names = object.containers().iter().zip([2, 20]);
    let [first, second] = two(names.map(|(name, tag)| field(tag, &field(1, name.as_bytes()))));
    let spec = [first, field(10, object.node().as_bytes()), host_network, second].concat();
    let (address, other) = (object.address().to_string(), object.second_address());
    let reason = object.status.end.map(|end| end.reason).filter(|reason| !reason.is_empty());
    let names = object.containers().iter().zip(&object.status.containers).zip([8, 10]);
    let [first, second] = two(names
        .map(|((name, container), tag)| field(tag, &container_status(object, name, container))));
    let disruption = object.disruption().map(|(status, reason)| {
        let (status, reason) = (status.as_bytes(), reason.as_bytes());
        let condition = [field(1, b"DisruptionTarget"), field(2, status), field(5, reason)];
        field(2, &condition.concat())
    });
    let status = [
        field(1, object.phase().as_bytes()),
        disruption.unwrap_or_default(),
        reason.map(|reason| field(4, reason.as_bytes())).unwrap_or_default(),
        field(5, object.node_address().to_string().as_bytes()),
        field(6, address.as_bytes()),
        time(7, object.started()),
        first,
        second,
        field(12, &field(1, address.as_bytes())),
        other.map(|other| field(12, &field(1, other.to_string().as_bytes()))).unwrap_or_default(),
    ];
    [field(2, &spec), field(3, &status.concat())].concat()
}

/// Returns up to two parts, of which those that are missing are empty.
fn two(mut parts: impl Iterator<Item = Vec<u8>>) -> [Vec<u8>; 2] {
    [(); 2].map(|()| parts.next().unwrap_or_default())
}

/// Returns the ID of a run of a container.
fn container_id(object: &Object, name: &str, run: usize) -> String {
    if object.has_container_ids() { format!("{}-{name}-{run}", object.uid) } else { String::new() }
}

/// Returns the ID of a container's current or last run.
fn current_id(object: &Object, name: &str, container: &Container) -> String {
    let has_run = container.phase != Phase::Waiting || !container.ended.is_empty();
    if has_run { container_id(object, name, container.restarts()) } else { String::new() }
}

/// Encodes a container status.
fn container_status(object: &Object, name: &str, container: &Container) -> Vec<u8> {
    let terminated = |(run, termination): (usize, &Termination)| {
        let id = container_id(object, name, run);
        let parts = [
            number(1, i64::from(termination.exit_code()) as usize),
            field(3, termination.reason.as_bytes()),
            time(6, termination.at),
            field(7, id.as_bytes()),
        ];
        field(3, &parts.concat())
    };
    let [current, last] = container.described();
    let state = match container.phase {
        Phase::Waiting => field(1, &field(1, b"CrashLoopBackOff")),
        Phase::Running => field(2, b""),
        Phase::Terminated => current.map(terminated).unwrap_or_default(),
    };
    [
        field(1, name.as_bytes()),
        field(2, &state),
        field(3, &last.map(terminated).unwrap_or_default()),
        number(5, container.restarts()),
        field(8, current_id(object, name, container).as_bytes()),
    ]
    .concat()
}

/// Returns a container status as JSON.
fn container_json(object: &Object, name: &str, container: &Container) -> String {
    let terminated = |(run, termination): (usize, &Termination)| {
        let (id, reason) = (container_id(object, name, run), termination.reason);
        let (code, at) = (termination.exit_code(), time_text(termination.at));
        format!(
            r#""terminated":{{"exitCode":{code},"reason":"{reason}","finishedAt":"{at}","containerID":"{id}"}}"#
        )
    };
    let [current, last] = container.described();
    let state = match container.phase {
        Phase::Waiting => r#""waiting":{"reason":"CrashLoopBackOff"}"#.to_owned(),
        Phase::Running => r#""running":{}"#.to_owned(),
        Phase::Terminated => current.map(terminated).unwrap_or_default(),
    };
    let (last, id) =
        (last.map(terminated).unwrap_or_default(), current_id(object, name, container));
    let restarts = container.restarts();
    format!(
        r#"{{"name":"{name}","state":{{{state}}},"lastState":{{{last}}},"restartCount":{restarts},"containerID":"{id}"}}"#
    )
}

/// Returns the containers of a pod, and the rest of its status, as JSON.
pub(super) fn pod_json(object: &Object) -> String {
    let (node, host_network) = (object.node(), object.is_in_host_network());
    let (phase, address, host) = (object.phase(), object.address(), object.node_address());
    let started = time_text(object.started());
    let spec = ["containers", "initContainers"].iter().zip(object.containers());
    let spec: String =
        spec.map(|(list, name)| format!(r#","{list}":[{{"name":"{name}"}}]"#)).collect();
    let lists = ["containerStatuses", "initContainerStatuses"].iter();
    let statuses = lists.zip(object.containers()).zip(&object.status.containers);
    let statuses = statuses.map(|((list, name), container)| {
        format!(r#","{list}":[{}]"#, container_json(object, name, container))
    });
    let statuses: String = statuses.collect();
    let other =
        object.second_address().map(|other| format!(r#",{{"ip":"{other}"}}"#)).unwrap_or_default();
    let reason = object.status.end.map_or("", |end| end.reason);
    let disruption = object.disruption().map(|(status, reason)| {
        format!(r#"{{"type":"DisruptionTarget","status":"{status}","reason":"{reason}"}}"#)
    });
    let conditions = disruption.unwrap_or_default();
    format!(
        r#","spec":{{"nodeName":"{node}","hostNetwork":{host_network}{spec}}},"status":{{"phase":"{phase}","reason":"{reason}","conditions":[{conditions}],"hostIP":"{host}","podIP":"{address}","startTime":"{started}","podIPs":[{{"ip":"{address}"}}{other}]{statuses}}}"#
    )
}

/// Returns type, status and time of each condition of a node.
fn conditions(object: &Object) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    let last = object.status.conditions.iter().filter_map(|statuses| statuses.last());
    CONDITIONS.into_iter().zip(last).map(|(name, last)| (name, last.status, last.at))
}

/// Encodes `spec` and `status` of a node.
pub(super) fn node(object: &Object) -> Vec<u8> {
    let conditions = conditions(object).map(|(name, status, at)| {
        field(4, &[field(1, name.as_bytes()), field(2, status.as_bytes()), time(4, at)].concat())
    });
    let conditions: Vec<u8> = conditions.flatten().collect();
    let taint =
        |key: &&str| field(5, &[field(1, key.as_bytes()), field(3, b"NoSchedule")].concat());
    let taints: Vec<u8> = object.taints().iter().flat_map(taint).collect();
    let spec = [number(4, object.is_cordoned().into()), taints].concat();
    [field(2, &spec), field(3, &conditions)].concat()
}

/// Returns `spec` and `status` of a node as JSON.
pub(super) fn node_json(object: &Object) -> String {
    let conditions = conditions(object).map(|(name, status, at)| {
        let at = time_text(at);
        format!(r#"{{"type":"{name}","status":"{status}","lastTransitionTime":"{at}"}}"#)
    });
    let conditions = conditions.collect::<Vec<_>>().join(",");
    let taint = |key: &&str| format!(r#"{{"key":"{key}","effect":"NoSchedule"}}"#);
    let taints = object.taints().iter().map(taint).collect::<Vec<_>>().join(",");
    format!(
        r#","spec":{{"unschedulable":{},"taints":[{taints}]}},"status":{{"conditions":[{conditions}]}}"#,
        object.is_cordoned()
    )
}

/// Encodes the status of a job.
pub(super) fn job(object: &Object) -> Vec<u8> {
    let conditions = object.status.end.map(|End { phase, reason, .. }| {
        let reason = if reason.is_empty() { Vec::new() } else { field(5, reason.as_bytes()) };
        field(1, &[field(1, phase.as_bytes()), field(2, b"True"), reason].concat())
    });
    field(3, &conditions.unwrap_or_default())
}

/// Returns the status of a job as JSON.
pub(super) fn job_json(object: &Object) -> String {
    let conditions = object.status.end.map(|End { phase, reason, .. }| {
        format!(r#"{{"type":"{phase}","status":"True","reason":"{reason}"}}"#)
    });
    format!(r#","status":{{"conditions":[{}]}}"#, conditions.unwrap_or_default())
}

/// Returns `count` of an Event, and the number of occurrences in its series, if it has one.
fn occurrences(object: &Object) -> (u32, Option<u32>) {
    let total = object.status.occurrences;
    match object.has_series() {
        true => (0, Some(total).filter(|total| *total > 1)),
        false => (total, None),
    }
}

/// Encodes the fields of an Event.
pub(super) fn event_fields(object: &Object) -> Vec<u8> {
    let subject = object.subject.as_ref().map(|subject| {
        let Subject { kind, name, uid } = &**subject;
        [field(1, kind.as_bytes()), field(3, name.as_bytes()), field(4, uid.as_bytes())].concat()
    });
    let (reason, event_type) = object.reason_and_type();
    let (count, series) = occurrences(object);
    [
        field(2, &subject.unwrap_or_default()),
        field(3, reason.as_bytes()),
        number(8, count as usize),
        field(9, event_type.as_bytes()),
        series.map_or(Vec::new(), |count| field(11, &number(1, count as usize))),
    ]
    .concat()
}

/// Returns the fields of an Event as JSON.
pub(super) fn event_json(object: &Object) -> String {
    let subject = object.subject.as_ref().map(|subject| {
        let Subject { kind, name, uid } = &**subject;
        format!(r#""kind":"{kind}","name":"{name}","uid":"{uid}""#)
    });
    let subject = subject.unwrap_or_default();
    let (reason, event_type) = object.reason_and_type();
    let (count, series) = occurrences(object);
    let series = series.map_or(String::new(), |count| format!(r#","series":{{"count":{count}}}"#));
    format!(
        r#","involvedObject":{{{subject}}},"reason":"{reason}","count":{count},"type":"{event_type}"{series}"#
    )
}

#[cfg(test)]
mod tests {
    use k8s_pb::api::batch::v1::{Job, JobCondition, JobStatus};
    use k8s_pb::api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, Event, EventSeries, Node, NodeCondition, NodeStatus, ObjectReference, Pod,
        PodCondition, PodStatus,
    };
    use k8s_pb::apimachinery::pkg::apis::meta::v1::Time;
    use prost::Message as _;

    use super::super::cluster::{Kind, Scope};
    use super::super::status::{Status, Transition};
    use super::*;

    fn object(kind: Kind, status: Status) -> Object {
        let scope = Scope { kind, namespace: "east" };
        let (name, uid) = ("o9".to_owned(), "uid-1".to_owned());
        let (status, subject) = (status.into(), None);
        Object { scope, name, uid, state: 301, version: 1234, status, subject }
    }

    fn at(second: i64) -> Option<Time> {
        Some(Time { seconds: Some(YEAR as i64 + second), ..Time::default() })
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// The handwritten encoding of a pod's status equals that of the Kubernetes types.
    #[test]
    fn status_of_a_pod() {
        let termination = |reason, at| Termination { reason, at };
        let app = Container {
            phase: Phase::Terminated,
            ended: vec![termination("Completed", 7), termination("OOMKilled", 9)],
        };
        let setup = Container { phase: Phase::Waiting, ended: vec![termination("Error", 8)] };
        let end = Some(End { phase: "Failed", reason: "Evicted", at: 0 });
        let (containers, disruption) = (vec![app, setup], Some("DeletionByTaintManager"));
        let status = Status { containers, end, disruption, ..Status::default() };
        let terminated = |exit_code, reason, second, id: &str| {
            let terminated = ContainerStateTerminated {
                exit_code: Some(exit_code),
                reason: text(reason),
                finished_at: at(second),
                container_id: text(id),
                ..ContainerStateTerminated::default()
            };
            ContainerState { terminated: Some(terminated), ..ContainerState::default() }
        };
        let container = |name: &str, restarts, id: &str, state, last| ContainerStatus {
            name: text(name),
            state: Some(state),
            last_state: Some(last),
            restart_count: Some(restarts),
            container_id: text(id),
            ..ContainerStatus::default()
        };
        let waiting = ContainerStateWaiting {
            reason: text("CrashLoopBackOff"),
            ..ContainerStateWaiting::default()
        };
        let waiting = ContainerState { waiting: Some(waiting), ..ContainerState::default() };
        let disruption = PodCondition {
            r#type: text("DisruptionTarget"),
            status: text("True"),
            reason: text("DeletionByTaintManager"),
            ..PodCondition::default()
        };
        let second = terminated(137, "OOMKilled", 9, "uid-1-app-1");
        let first = terminated(0, "Completed", 7, "uid-1-app-0");
        let of_setup = terminated(-1_073_741_510, "Error", 8, "uid-1-setup-0");
        let want = PodStatus {
            phase: text("Failed"),
            conditions: vec![disruption],
            reason: text("Evicted"),
            container_statuses: vec![container("app", 1, "uid-1-app-1", second, first)],
            init_container_statuses: vec![container(
                "setup",
                0,
                "uid-1-setup-0",
                waiting,
                of_setup,
            )],
            ..PodStatus::default()
        };
        let bytes = pod(&object(Kind::Pod, status));
        let Pod { spec, status: Some(status), .. } = Pod::decode(&*bytes).expect("a pod") else {
            panic!("no status");
        };
        let spec = spec.expect("a specification");
        let name = |containers: &[k8s_pb::api::core::v1::Container]| containers[0].name.clone();
        assert_eq!(name(&spec.containers), text("app"));
        assert_eq!(name(&spec.init_containers), text("setup"));
        let PodStatus { phase, conditions, reason, .. } = status.clone();
        let PodStatus { container_statuses, init_container_statuses, .. } = status;
        let have = PodStatus {
            phase,
            conditions,
            reason,
            container_statuses,
            init_container_statuses,
            ..PodStatus::default()
        };
        assert_eq!(have, want);
    }

    /// The same for the end of a job, and for an Event with and without a series.
    #[test]
    fn jobs_and_events() {
        let end = Some(End { phase: "Failed", reason: "BackoffLimitExceeded", at: 0 });
        let bytes = job(&object(Kind::Job, Status { end, ..Status::default() }));
        let condition = JobCondition {
            r#type: text("Failed"),
            status: text("True"),
            reason: text("BackoffLimitExceeded"),
            ..JobCondition::default()
        };
        let want = JobStatus { conditions: vec![condition], ..JobStatus::default() };
        assert_eq!(Job::decode(&*bytes).expect("a job").status, Some(want));
        let subject = Subject { kind: "Pod", name: "o1".to_owned(), uid: "uid-7".to_owned() };
        for (name, count, series) in [("o4", 0, Some(3)), ("o6", 3, None)] {
            let event = object(Kind::Event, Status { occurrences: 3, ..Status::default() });
            let event =
                Object { name: name.to_owned(), subject: Some(subject.clone().into()), ..event };
            let bytes = event_fields(&event);
            let involved_object = ObjectReference {
                kind: text("Pod"),
                name: text("o1"),
                uid: text("uid-7"),
                ..ObjectReference::default()
            };
            let (reason, event_type) = event.reason_and_type();
            let series =
                series.map(|count| EventSeries { count: Some(count), ..EventSeries::default() });
            let want = Event {
                involved_object: Some(involved_object),
                reason: text(reason),
                count: Some(count),
                r#type: text(event_type),
                series,
                ..Event::default()
            };
            assert_eq!(Event::decode(&*bytes).expect("an event"), want);
        }
    }

    /// A running container has the state that the Kubernetes types have, too, and so have the conditions of a node.
    #[test]
    fn running_containers_and_nodes() {
        let running = Container { phase: Phase::Running, ended: Vec::new() };
        let object_of = |container| Status { containers: vec![container], ..Status::default() };
        let bytes = pod(&object(Kind::Pod, object_of(running)));
        let status = Pod::decode(&*bytes).expect("a pod").status.expect("a status");
        let running = Some(ContainerStateRunning::default());
        let state = ContainerState { running, ..ContainerState::default() };
        assert_eq!(status.container_statuses[0].state, Some(state));
        let transition = |status, at| vec![Transition { status, at }];
        let conditions = vec![transition("Unknown", 3), transition("False", 4)];
        let bytes = node(&object(Kind::Node, Status { conditions, ..Status::default() }));
        let condition = |name, status, second| NodeCondition {
            r#type: text(name),
            status: text(status),
            last_transition_time: at(second),
            ..NodeCondition::default()
        };
        let conditions =
            vec![condition("Ready", "Unknown", 3), condition("DiskPressure", "False", 4)];
        let want = NodeStatus { conditions, ..NodeStatus::default() };
        assert_eq!(Node::decode(&*bytes).expect("a node").status, Some(want));
    }
}
