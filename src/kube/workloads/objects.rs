//! Lean views of the owners of pods, and the facts that workloads are resolved from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::senders::SenderFacts;
use super::tally::{Amount, Contribution, Nanos, PHASES};
use crate::kube::observed::{Metadata, OwnerReference, Pod};
use crate::resources::kinds::resource_list::{self, ResourceList};
use crate::resources::{DecodeError, ObjectBytes};
use crate::wire::view::{decode, view};

/// The kinds between a pod and its workload.
pub(super) const LINKS: [(&str, &str); 2] = [("replicasets", "ReplicaSet"), ("jobs", "Job")];

/// The other kinds of workloads.
pub(super) const OTHERS: [(&str, &str); 5] = [
    ("cronjobs", "CronJob"),
    ("daemonsets", "DaemonSet"),
    ("deployments", "Deployment"),
    ("replicationcontrollers", "ReplicationController"),
    ("statefulsets", "StatefulSet"),
];

view! {
    /// An object that owns pods, with its number of replicas if it has one.
    pub struct Replicated<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: Replicas<'a> = 2 "spec",
    }

    /// The number of replicas in `spec`.
    pub struct Replicas<'a> {
        replicas: Option<i64> = 1 "replicas",
    }

    /// A DaemonSet.
    pub struct DaemonSet<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: Option<DaemonSetStatus<'a>> = 3 "status",
    }

    /// `status` of a DaemonSet.
    pub struct DaemonSetStatus<'a> {
        desired_number_scheduled: i64 = 3 "desiredNumberScheduled",
    }

    /// An object that has no number of pods.
    pub struct Owner<'a> {
        metadata: Metadata<'a> = 1 "metadata",
    }
}

/// A UID. The API server does not restrict its form.
pub(super) type Uid = Arc<[u8]>;

/// The labels of a workload, which identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WorkloadId {
    pub(super) namespace: Arc<str>,
    pub(super) kind: Box<str>,
    pub(super) name: Box<str>,
}

/// A workload, and the UID that decides which shard serves it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Workload {
    pub(super) id: Arc<WorkloadId>,
    pub(super) uid: Uid,
}

impl Workload {
    fn new(namespace: &str, kind: &str, name: &str, uid: &str) -> Self {
        let id = WorkloadId { namespace: namespace.into(), kind: kind.into(), name: name.into() };
        Self { id: Arc::new(id), uid: uid.as_bytes().into() }
    }

    fn of_owner(namespace: &str, owner: &OwnerReference<'_>) -> Self {
        Self::new(namespace, &owner.kind.to_lowercase(), &owner.name, &owner.uid)
    }
}

/// The owner of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodOwner {
    /// A workload.
    Workload(Workload),
    /// The ReplicaSet or Job with this UID, which may belong to a workload.
    Controller(Uid),
}

/// The facts about a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodFacts {
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    pub(super) node: Arc<str>,
    pub(super) owner: PodOwner,
    /// True if it has no series of its own any more.
    pub(super) is_hidden: bool,
    pub(super) contribution: Arc<Contribution>,
    /// Its labels that are shown on its series.
    pub(super) labels: Box<[u8]>,
    /// The facts about it as a sender of StatsD lines, if these are wanted.
    pub(super) sender: Option<Box<SenderFacts>>,
}

/// The facts about an object that owns pods.
#[derive(Debug, PartialEq)]
pub(super) struct OwnerFacts {
    /// The workload that its pods belong to.
    pub(super) workload: Workload,
    /// True if the object itself is the workload.
    pub(super) is_workload: bool,
    /// The number of pods it is meant to have.
    pub(super) desired: Option<i64>,
    /// Its labels that are shown on the series of its pods.
    pub(super) labels: Box<[u8]>,
}

/// Returns the owner of a pod.
pub(super) fn owner_of(Pod { metadata, .. }: &Pod<'_>) -> PodOwner {
    let (namespace, name, uid) = (&*metadata.namespace, &*metadata.name, &*metadata.uid);
    let by_itself = |kind| PodOwner::Workload(Workload::new(namespace, kind, name, uid));
    match metadata.controller() {
        None => by_itself("barepod"),
        Some(owner) => match (&*owner.kind, owner.api_version.split_once('/')) {
            ("Node", None) => by_itself("staticpod"),
            ("ReplicaSet", Some(("apps", _))) | ("Job", Some(("batch", _))) => {
                PodOwner::Controller(owner.uid.as_bytes().into())
            }
            _ => PodOwner::Workload(Workload::of_owner(namespace, owner)),
        },
    }
}

/// Returns the UID of a pod and the facts about it, with its part of totals if there are any.
pub(super) fn pod_facts(pod: &Pod<'_>, has_totals: bool) -> (Uid, PodFacts) {
    let Pod { metadata, spec, .. } = pod;
    let (namespace, name, uid) = (&*metadata.namespace, &*metadata.name, &*metadata.uid);
    let contribution = if has_totals { contribution(pod) } else { Contribution::default() };
    let facts = PodFacts {
        namespace: namespace.into(),
        name: name.into(),
        node: (*spec.node_name).into(),
        owner: owner_of(pod),
        is_hidden: false,
        contribution: Arc::new(contribution),
        labels: Box::default(),
        sender: None,
    };
    (uid.as_bytes().into(), facts)
}

/// Returns the part of a pod that totals are computed from.
fn contribution(Pod { spec, status, .. }: &Pod<'_>) -> Contribution {
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses);
    let waiting = statuses.filter_map(|status| status.state.waiting.as_ref());
    let waiting: BTreeSet<&str> = waiting.map(|waiting| &*waiting.reason).collect();
    let resources = || spec.containers.iter().map(|container| &container.resources);
    let phase = PHASES.iter().position(|phase| *phase == &*status.phase);
    Contribution {
        phase: phase.and_then(|phase| u8::try_from(phase).ok()),
        ready: status.conditions.iter().any(|c| &*c.kind == "Ready" && &*c.status == "True"),
        waiting: waiting.into_iter().map(Box::from).collect(),
        requests: amounts(resources().map(|resources| &resources.requests)),
        limits: amounts(resources().map(|resources| &resources.limits)),
    }
}

/// Returns the sum over containers of each resource.
fn amounts<'v, 'a: 'v>(lists: impl Iterator<Item = &'v ResourceList<'a>>) -> Vec<Amount> {
    let mut sums: BTreeMap<(Arc<str>, &'static str), Nanos> = BTreeMap::new();
    for list in lists {
        // Of resources with equal labels, the families of pods show the first.
        let mut own = BTreeMap::new();
        resource_list::pod_amounts(list, |resource, unit, value| {
            own.entry((Arc::from(resource), unit)).or_insert(Nanos::new(value));
        });
        own.into_iter().for_each(|(key, value)| *sums.entry(key).or_default() += value);
    }
    sums.into_iter().map(|((resource, unit), nanos)| Amount { resource, unit, nanos }).collect()
}

/// Decodes an object of a kind (such as `ReplicaSet`) that owns pods, and its UID.
///
/// # Errors
/// The object is malformed.
pub(super) fn owner(
    kind: &'static str,
    object: ObjectBytes<'_>,
) -> Result<(Uid, OwnerFacts), DecodeError> {
    let (metadata, desired) = match kind {
        "DaemonSet" => {
            let DaemonSet { metadata, status, .. } = decode(object)?;
            (metadata, status.map(|status| status.desired_number_scheduled))
        }
        "Job" | "CronJob" => (decode::<Owner<'_>>(object)?.metadata, None),
        _ => {
            let Replicated { metadata, spec, .. } = decode(object)?;
            (metadata, spec.replicas)
        }
    };
    Ok(owner_facts(kind, &metadata, desired))
}

/// Returns the UID of an object of a kind that owns pods, and the facts about it.
pub(super) fn owner_facts(
    kind: &'static str,
    metadata: &Metadata<'_>,
    desired: Option<i64>,
) -> (Uid, OwnerFacts) {
    let (namespace, uid) = (&*metadata.namespace, &*metadata.uid);
    // Only these two are links of a chain; owners of the others, such as operators, are not workloads.
    let owner = metadata.controller().filter(|_| matches!(kind, "ReplicaSet" | "Job"));
    let itself = || Workload::new(namespace, &kind.to_lowercase(), &metadata.name, uid);
    let workload = owner.map_or_else(itself, |owner| Workload::of_owner(namespace, owner));
    let (is_workload, labels) = (owner.is_none(), Box::default());
    let facts = OwnerFacts { workload, is_workload, desired, labels };
    (uid.as_bytes().into(), facts)
}
