//! The facts by which a pod is recognised as the sender of StatsD lines, for the [`PodIndex`](crate::pods::PodIndex).

use std::net::IpAddr;

use crate::kube::observed::{ObservedObject, Pod};
use crate::pods::PodWorkload;
use crate::resources::ObjectBytes;
use crate::resources::kinds::pods::ContainerStatus;
use crate::resources::scalars::Time;
use crate::wire::view::{Map, decode, view};

view! {
    /// An object with the labels by which controllers recognise their pods.
    pub struct LabelledObject<'a> {
        metadata: ObjectLabels<'a> = 1 "metadata",
    }

    /// `metadata` of an object.
    pub struct ObjectLabels<'a> {
        labels: Map<'a> = 11 "labels",
    }
}

/// The facts about a pod as a sender.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SenderFacts {
    pub(super) addresses: Box<[IpAddr]>,
    pub(super) node_addresses: Box<[IpAddr]>,
    pub(super) containers: Box<[Box<str>]>,
    pub(super) started: Option<i64>,
    pub(super) is_finished: bool,
    /// The workload that the names of a ReplicaSet or Job imply, for a process that does not watch these.
    pub(super) implied: Option<PodWorkload>,
}

/// Returns the facts about a pod as a sender, with the workload that names imply if only a part of the pods is watched;
/// `None` if it is malformed.
pub(super) fn sender_facts(object: &ObservedObject<'_>, is_partial: bool) -> Option<SenderFacts> {
    let pod = object.pod()?;
    let status = &pod.status;
    let address = |text: &str| text.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let addresses = status.pod_ips.iter().filter_map(|one| address(&one.ip));
    // API servers before Kubernetes 1.30 have only the first one.
    let of_node = status.host_ips.iter().filter_map(|one| address(&one.ip));
    let first = address(&status.host_ip).filter(|_| status.host_ips.is_empty());
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    let containers = containers.chain(&status.ephemeral_container_statuses);
    // The ID follows the name of the runtime, as in `containerd://ID`.
    let id = |one: &ContainerStatus<'_>| Some(one.container_id.split_once("://")?.1.into());
    Some(SenderFacts {
        // Pods in the host network share the address of the node.
        addresses: addresses.filter(|_| !pod.spec.host_network).collect(),
        node_addresses: first.into_iter().chain(of_node).collect(),
        containers: containers.filter_map(id).collect(),
        started: status.start_time.and_then(Time::set).map(Time::unix),
        is_finished: status.is_finished(),
        implied: if is_partial { implied_workload(pod, object.bytes) } else { None },
    })
}

/// Returns the workload that the name of a ReplicaSet or Job implies: their controllers append a hash, which the pod has as
/// a label, or the scheduled minute.
fn implied_workload(pod: &Pod<'_>, object: ObjectBytes<'_>) -> Option<PodWorkload> {
    let owner = pod.metadata.controller()?;
    let labels = decode::<LabelledObject<'_>>(object).ok()?.metadata.labels;
    let (base, suffix) = owner.name.rsplit_once('-').unwrap_or((&owner.name, ""));
    let is_hash = |label| labels.get(label).is_some_and(|hash| &**hash == suffix);
    let is_minute = suffix.len() >= 8 && suffix.bytes().all(|byte| byte.is_ascii_digit());
    let (name, kind) = match &*owner.kind {
        "ReplicaSet" if is_hash("pod-template-hash") => (base, "deployment"),
        "ReplicaSet" if is_hash("rollouts-pod-template-hash") => (base, "rollout"),
        "ReplicaSet" => (&*owner.name, "replicaset"),
        "Job" if is_minute => (base, "cronjob"),
        "Job" => (&*owner.name, "job"),
        _ => return None,
    };
    Some(PodWorkload { name: name.into(), kind: kind.into() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::Catalog;
    use crate::kube::observer::ObjectObserver;
    use crate::kube::shard::Shard;
    use crate::kube::workloads::ledger::SharedLedger;
    use crate::kube::workloads::{WorkloadOptions, Workloads};
    use crate::pods::{Missing, PodIndex, PodLabel, Selection};
    use crate::resources::ObjectBytes;
    use crate::telemetry::KubeMetrics;

    /// Returns workloads without families that write the index.
    fn workloads(index: &Arc<PodIndex>, is_partial: bool) -> Workloads {
        let options = WorkloadOptions { is_partial, ..WorkloadOptions::default() };
        let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
        let ledger = SharedLedger::new(&options.ledger, &catalog, &metrics);
        Workloads::new(&options, &catalog, &metrics, &ledger, Some(index), Shard::ALL)
    }

    fn observe(workloads: &Workloads, kind: &str) -> Arc<dyn ObjectObserver> {
        Arc::clone(workloads.observers.get(kind).expect("observed")).observe()
    }

    fn list(observer: &dyn ObjectObserver, objects: &[String]) {
        observer.begin_list();
        for object in objects {
            observer.put(&ObservedObject::new(ObjectBytes::Json(object.as_bytes())), true);
        }
        observer.end_list(true);
    }

    fn pod(uid: &str, owner: &str, more: &str, status: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"p{uid}","namespace":"n","uid":"{uid}","labels":{{"pod-template-hash":"5f"}},
            "ownerReferences":[{owner}]}},"spec":{{"nodeName":"n1"{more}}},"status":{{"hostIP":"10.9.0.1",{status}}}}}"#
        )
    }

    fn owner(kind: &str, group: &str, name: &str) -> String {
        format!(
            r#"{{"kind":"{kind}","apiVersion":"{group}/v1","name":"{name}","uid":"o{name}","controller":true}}"#
        )
    }

    fn workload(index: &PodIndex, uid: &str) -> Option<String> {
        let labels = index.by_uid(uid).expect("known").labels?;
        let value = |label| labels.pairs.iter().find(|(name, _)| *name == label);
        let [name, kind] = [PodLabel::Workload, PodLabel::WorkloadType].map(value);
        Some(format!("{} {}", name?.1, kind?.1))
    }

    fn index() -> Arc<PodIndex> {
        Arc::new(PodIndex::new(Selection::parse("workload").expect("a selection")))
    }

    /// Pods are entered when their list/watch is served, get their workload when its owners are known, and are complete with
    /// the first list.
    #[test]
    fn pods_are_entered_with_their_workloads() {
        let index = index();
        let workloads = workloads(&index, false);
        let (pods, sets) = (observe(&workloads, "pods"), observe(&workloads, "replicasets"));
        sets.show();
        pods.show();
        let by_address =
            |last| index.by_address([10, 0, 0, last].into()).map(|found| found.pod.name.clone());
        assert_eq!(by_address(1), Err(Missing::NotSynced));
        let running = r#""phase":"Running","startTime":"2026-01-01T00:00:00Z","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}],
            "containerStatuses":[{"name":"c","containerID":"containerd://abc"}]"#;
        let of_set = owner("ReplicaSet", "apps", "web-5f");
        let host = pod(
            "h",
            "",
            r#","hostNetwork":true"#,
            r#""phase":"Running","podIPs":[{"ip":"10.9.0.1"}],"hostIPs":[{"ip":"10.9.0.1"},{"ip":"fd00::9"}]"#,
        );
        list(&*pods, &[pod("1", &of_set, "", running), host]);
        assert_eq!(by_address(1), Ok("p1".into()));
        assert_eq!(by_address(2), Err(Missing::Unknown));
        for node in ["10.9.0.1", "fd00::9"] {
            let found = index.by_address(node.parse().expect("an address"));
            assert_eq!(found.err(), Some(Missing::HostNetwork));
        }
        assert!(index.by_address("fd00::1".parse().expect("an address")).is_ok());
        assert!(index.by_container("abc").is_ok());
        assert_eq!(workload(&index, "h"), Some("ph barepod".to_owned()));
        assert_eq!(workload(&index, "1"), None, "the ReplicaSet is not known");
        let set = format!(
            r#"{{"metadata":{{"name":"web-5f","namespace":"n","uid":"oweb-5f","ownerReferences":[{}]}}}}"#,
            owner("Deployment", "apps", "web")
        );
        list(&*sets, &[set]);
        assert_eq!(workload(&index, "1"), Some("web deployment".to_owned()));
        // A list of another configuration takes over before the former one is closed.
        let next = self::workloads(&index, false);
        let other = observe(&next, "pods");
        list(&*other, &[pod("1", &of_set, "", running)]);
        other.show();
        pods.close();
        assert_eq!(by_address(1), Ok("p1".into()));
        other.purge();
        assert_eq!(by_address(2), Err(Missing::NotSynced));
    }

    #[test]
    fn workloads_are_implied_by_names_where_owners_are_not_watched() {
        let index = index();
        let workloads = workloads(&index, true);
        let pods = observe(&workloads, "pods");
        pods.show();
        let of = [
            (owner("ReplicaSet", "apps", "web-5f"), "web deployment"),
            (owner("ReplicaSet", "apps", "by-hand"), "by-hand replicaset"),
            (owner("Job", "batch", "nightly-29500000"), "nightly cronjob"),
            (owner("Job", "batch", "once-7"), "once-7 job"),
            (owner("StatefulSet", "apps", "db"), "db statefulset"),
            (String::new(), "p5 barepod"),
        ];
        let running = r#""phase":"Running""#;
        let pod =
            |(uid, (owner, _)): (usize, &(String, &str))| pod(&uid.to_string(), owner, "", running);
        list(&*pods, &of.iter().enumerate().map(pod).collect::<Vec<_>>());
        for (uid, (_, want)) in of.iter().enumerate() {
            assert_eq!(workload(&index, &uid.to_string()).as_deref(), Some(*want));
        }
    }
}
