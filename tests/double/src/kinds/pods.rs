//! Pods: one for each slot of each workload.

use crate::encode::Message;
use crate::layout::{Container, Controller, Item, Layout, Phase, Workload};
use crate::random::{Random, hex, mix, suffix};

use super::meta::{Condition, Managed, Meta, Name, Owner, status_of, workload_labels};
use super::pod_spec::{self, Bound};

/// An annotation as long as those of agents and injectors.
const LOG_PIPELINE: &str = concat!(
    r#"[{"source":"app","service":"app","log_processing_rules":[{"type":"multi_line","#,
    r#""name":"log_start_with_date","pattern":"\d{4}-(0?[1-9]|1[012])-(0?[1-9]|[12][0-9]|3[01])"},"#,
    r#"{"type":"exclude_at_match","name":"exclude_probes","pattern":"GET /(healthz|readyz|livez)"},"#,
    r#"{"type":"mask_sequences","name":"mask_cards","replace_placeholder":"[masked]","#,
    r#""pattern":"(?:4[0-9]{12}(?:[0-9]{3})?|[25][1-7][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12})"}]}]"#,
);

/// The initial state of every pod: most run, some have problems.
pub fn items(layout: &Layout) -> Vec<Item> {
    let mut random = Random::new(layout.seed ^ 0x0070_6f64);
    let mut items = Vec::with_capacity(layout.pods as usize);
    for (index, workload) in layout.workloads_of(|_| true) {
        for slot in workload.first_slot..workload.first_slot + workload.replicas {
            let age = (layout.epoch - workload.created).min(30 * 86_400) as u32;
            let created = layout.epoch - i64::from(random.between(age / 2, age));
            let mut item = Item::new(slot, index, created);
            item.changed = created + 20;
            item.restarts = if random.below(10) == 0 { random.between(1, 9) } else { 0 };
            item.phase = match (workload.controller, random.below(1000)) {
                (Controller::Job { .. }, _) => Phase::Succeeded,
                (_, 0..15) => Phase::CrashLoop,
                (_, 15..25) => Phase::NotReady,
                (_, 25..30) => Phase::Pending,
                (_, 30..35) => Phase::Failed,
                _ => Phase::Running,
            };
            items.push(item);
        }
    }
    items
}

/// A pod's name, formed as by its controller.
pub fn name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let workload = layout.workload(item.workload);
    let bits = layout.identity("pods", item.index, item.incarnation);
    let name = match workload.controller {
        Controller::StatefulSet => {
            format!("{}-{}", workload.name, item.index - workload.first_slot)
        }
        Controller::Deployment => {
            format!("{}-{}-{}", workload.name, workload.hash, suffix(bits, 5))
        }
        Controller::DaemonSet | Controller::Job { .. } => {
            format!("{}-{}", workload.name, suffix(bits, 5))
        }
    };
    Name { namespace: Some(layout.namespace(workload.namespace)), name }
}

/// The node that a pod is bound to, empty before that.
pub fn node_name(layout: &Layout, item: &Item) -> String {
    match item.phase {
        Phase::Pending => String::new(),
        _ => layout.node_name(layout.node_of(layout.workload(item.workload), item.index)),
    }
}

/// The phase of a pod in its status.
pub fn phase(item: &Item) -> &'static str {
    match item.phase {
        Phase::Pending | Phase::Creating => "Pending",
        Phase::Running | Phase::NotReady | Phase::CrashLoop => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

/// A pod, about 11 KB of protobuf.
pub fn write(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let name = name(layout, item);
    let node = node_name(layout, item);
    let claim = format!("data-{}", name.name);
    let bits = layout.identity("pods", item.index, item.incarnation);
    write_metadata(layout, item, m, workload, &name);
    m.message(2, "spec", |m| {
        let stateful = workload.controller == Controller::StatefulSet;
        let claim = stateful.then_some(claim.as_str());
        let bound = Bound { node: &node, token_suffix: &suffix(mix(bits), 5), claim };
        pod_spec::write(m, workload, Some(&bound));
    });
    m.message(3, "status", |m| write_status(layout, item, m, workload));
}

fn write_metadata(
    layout: &Layout,
    item: &Item,
    m: &mut Message<'_>,
    workload: &Workload,
    name: &Name<'_>,
) {
    let replica_set = format!("{}-{}", workload.name, workload.hash);
    let (kind, api_version, owner, resource) = match workload.controller {
        Controller::Deployment => ("ReplicaSet", "apps/v1", &replica_set, "replicasets"),
        Controller::StatefulSet => ("StatefulSet", "apps/v1", &workload.name, "statefulsets"),
        Controller::DaemonSet => ("DaemonSet", "apps/v1", &workload.name, "daemonsets"),
        Controller::Job { .. } => ("Job", "batch/v1", &workload.name, "jobs"),
    };
    let owner_index = match workload.controller {
        Controller::Deployment => super::workloads::current_replica_set(item.workload),
        _ => item.workload,
    };
    let [app, full, part, team] = workload_labels(workload);
    let hash = match workload.controller {
        Controller::Deployment => ("pod-template-hash", workload.hash.as_str()),
        Controller::Job { .. } => ("job-name", workload.name.as_str()),
        _ => ("controller-revision-hash", workload.hash.as_str()),
    };
    let mut labels = [app, full, part, hash, team, ("version", "stable")];
    labels.sort_unstable_by_key(|(key, _)| *key);
    let annotations = [
        ("checksum/config", workload.checksum.as_str()),
        ("logs.example.com/pipeline", LOG_PIPELINE),
        ("prometheus.io/port", "9080"),
        ("prometheus.io/scrape", "true"),
    ];
    let managed = [
        Managed {
            manager: "kube-controller-manager",
            api_version: "v1",
            subresource: "",
            time: item.created,
            fields: &workload.spec_fields,
        },
        Managed {
            manager: "kubelet",
            api_version: "v1",
            subresource: "status",
            time: item.changed,
            fields: &layout.status_fields,
        },
    ];
    let generated = name.name.rfind('-').map_or("", |at| name.name.get(..=at).unwrap_or_default());
    let meta = Meta {
        generate_name: generated,
        generation: 1,
        labels: &labels,
        annotations: &annotations,
        owner: Some(Owner {
            api_version,
            kind,
            name: owner,
            uid: layout.uid(resource, owner_index, 0),
        }),
        managed: &managed,
        ..Meta::default()
    };
    meta.write(m, layout, "pods", item, name);
}

/// `status`, as reported by a kubelet.
fn write_status(layout: &Layout, item: &Item, m: &mut Message<'_>, workload: &Workload) {
    let started = item.created + 2;
    let bound = item.phase != Phase::Pending;
    let reported = bound && item.phase != Phase::Failed;
    let ip = if reported && item.phase != Phase::Creating {
        layout.pod_ip(item.index)
    } else {
        String::new()
    };
    let host =
        if bound { layout.node_ip(layout.node_of(workload, item.index)) } else { String::new() };
    m.text(1, "phase", phase(item));
    let ready = item.phase == Phase::Running;
    let not_ready: (&str, &str) = match item.phase {
        Phase::Running => ("", ""),
        Phase::Succeeded => ("PodCompleted", ""),
        _ => ("ContainersNotReady", "containers with unready status: [app]"),
    };
    let conditions: [Condition; 5] = [
        ("PodReadyToStartContainers", status_of(!ip.is_empty()), "", ""),
        ("Initialized", "True", "", ""),
        ("Ready", status_of(ready), not_ready.0, not_ready.1),
        ("ContainersReady", status_of(ready), not_ready.0, not_ready.1),
        match item.phase {
            Phase::Pending => (
                "PodScheduled",
                "False",
                "Unschedulable",
                "0/3 nodes are available: 3 Insufficient cpu.",
            ),
            _ => ("PodScheduled", "True", "", ""),
        },
    ];
    // An unscheduled pod has only the scheduler's condition.
    let first = if bound { 0 } else { conditions.len() - 1 };
    m.messages(2, "conditions", conditions.into_iter().skip(first), |m, condition| {
        let (kind, status, reason, message) = condition;
        m.text(1, "type", kind);
        m.text(2, "status", status);
        let moved = matches!(kind, "Ready" | "ContainersReady");
        m.time(4, "lastTransitionTime", if moved { item.changed } else { started });
        m.text(5, "reason", reason);
        m.text(6, "message", message);
        m.int(7, "observedGeneration", 1);
    });
    let evicted = item.phase == Phase::Failed;
    m.text(3, "message", if evicted { "The node was low on resource: memory." } else { "" });
    m.text(4, "reason", if evicted { "Evicted" } else { "" });
    m.text(5, "hostIP", &host);
    m.text(6, "podIP", &ip);
    if bound {
        m.time(7, "startTime", started);
    }
    if reported {
        m.messages(8, "containerStatuses", &workload.containers, |m, container| {
            container_status(layout, item, m, container);
        });
    }
    m.text(9, "qosClass", "Burstable");
    m.text(11, "nominatedNodeName", "");
    m.messages(12, "podIPs", (!ip.is_empty()).then_some(&ip), |m, ip| m.text(1, "ip", ip));
    m.text(14, "resize", "");
    m.messages(16, "hostIPs", (!host.is_empty()).then_some(&host), |m, ip| m.text(1, "ip", ip));
    m.int(17, "observedGeneration", 1);
}

fn container_status(layout: &Layout, item: &Item, m: &mut Message<'_>, container: &Container) {
    let identity = layout.identity("pods", item.index, item.incarnation);
    let id = |run: u32| {
        let bits = mix(identity ^ u64::from(container.port) << 32 ^ u64::from(run));
        format!("containerd://{}", hex(bits, 64))
    };
    // Only the main container has problems.
    let main = container.name == "app";
    let phase = if main || item.phase == Phase::Creating || item.phase == Phase::Succeeded {
        item.phase
    } else {
        Phase::Running
    };
    let restarts = if main { item.restarts } else { 0 };
    let started = if restarts > 0 { item.changed } else { item.created + 15 };
    m.text(1, "name", &container.name);
    m.message(2, "state", |m| match phase {
        Phase::Pending | Phase::Creating => waiting(m, "ContainerCreating", ""),
        Phase::CrashLoop => {
            waiting(m, "CrashLoopBackOff", "back-off 5m0s restarting failed container=app pod=app")
        }
        Phase::Running | Phase::NotReady => {
            m.message(2, "running", |m| m.time(1, "startedAt", started));
        }
        Phase::Succeeded | Phase::Failed => {
            terminated(m, 0, "Completed", (started, started + 60), &id(restarts));
        }
    });
    m.message(3, "lastState", |m| {
        if restarts > 0 {
            let (code, reason) = if restarts % 4 == 0 { (137, "OOMKilled") } else { (1, "Error") };
            terminated(m, code, reason, (started - 120, started - 10), &id(restarts - 1));
        }
    });
    m.required_flag(4, "ready", phase == Phase::Running);
    m.required_int(5, "restartCount", i64::from(restarts));
    m.text(6, "image", &container.image);
    let created = matches!(phase, Phase::Pending | Phase::Creating);
    m.text(7, "imageID", if created { "" } else { &container.image_id });
    m.text(8, "containerID", &if created { String::new() } else { id(restarts) });
    m.required_flag(9, "started", matches!(phase, Phase::Running | Phase::NotReady));
    m.quantity_map(
        10,
        "allocatedResources",
        [("cpu", container.cpu.0), ("memory", container.memory.0)],
    );
    m.message(11, "resources", |m| {
        m.quantity_map(1, "limits", [("cpu", container.cpu.1), ("memory", container.memory.1)]);
        m.quantity_map(2, "requests", [("cpu", container.cpu.0), ("memory", container.memory.0)]);
    });
}

fn waiting(m: &mut Message<'_>, reason: &str, message: &str) {
    m.message(1, "waiting", |m| {
        m.text(1, "reason", reason);
        m.text(2, "message", message);
    });
}

fn terminated(m: &mut Message<'_>, code: i64, reason: &str, times: (i64, i64), id: &str) {
    m.message(3, "terminated", |m| {
        m.required_int(1, "exitCode", code);
        m.int(2, "signal", 0);
        m.text(3, "reason", reason);
        m.text(4, "message", "");
        m.time(5, "startedAt", times.0);
        m.time(6, "finishedAt", times.1);
        m.text(7, "containerID", id);
    });
}
