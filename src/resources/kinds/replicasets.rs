//! `replicasets` (apps/v1 ReplicaSet).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, generation, labels, owners};
use crate::wire::view::view;

view! {
    /// The fields of a ReplicaSet that metrics read.
    pub struct ReplicaSet<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: ReplicaSetSpec<'a> = 2 "spec",
        status: ReplicaSetStatus<'a> = 3 "status",
    }

    /// `spec`.
    pub struct ReplicaSetSpec<'a> {
        replicas: Option<i32> = 1 "replicas",
    }

    /// `status`.
    pub struct ReplicaSetStatus<'a> {
        replicas: i32 = 1 "replicas",
        fully_labeled_replicas: i32 = 2 "fullyLabeledReplicas",
        observed_generation: i64 = 3 "observedGeneration",
        ready_replicas: i32 = 4 "readyReplicas",
        terminating_replicas: Option<i32> = 7 "terminatingReplicas",
    }
}

impl<'a> Object<'a> for ReplicaSet<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ReplicaSet kind.
pub struct ReplicaSets;

impl Kind for ReplicaSets {
    const API: Api = Api {
        name: "replicasets",
        group: "apps",
        version: "v1",
        kind: "ReplicaSet",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] =
        &[("namespace", |set| &set.metadata.namespace), ("replicaset", |set| &set.metadata.name)];
    type View<'a> = ReplicaSet<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(stable(
            "kube_replicaset_created",
            &[],
            "Unix time of the replica set's creation.",
            |set, s| created(set, s),
        )),
        stable(
            "kube_replicaset_status_replicas",
            &[],
            "How many pods of the replica set there are.",
            |set, s| s.value(set.status.replicas.into()),
        ),
        stable(
            "kube_replicaset_status_fully_labeled_replicas",
            &[],
            "How many pods of the replica set carry all labels of its pod template.",
            |set, s| s.value(set.status.fully_labeled_replicas.into()),
        ),
        stable(
            "kube_replicaset_status_ready_replicas",
            &[],
            "How many pods of the replica set are ready.",
            |set, s| s.value(set.status.ready_replicas.into()),
        ),
        alpha(
            "kube_replicaset_status_terminating_replicas",
            &[],
            "How many pods of the replica set are shutting down.",
            |set, s| {
                if let Some(terminating) = set.status.terminating_replicas {
                    s.value(terminating.into());
                }
            },
        ),
        stable(
            "kube_replicaset_status_observed_generation",
            &[],
            "The generation of the replica set that its controller last acted on.",
            |set, s| s.value(set.status.observed_generation as f64),
        ),
        stable(
            "kube_replicaset_spec_replicas",
            &[],
            "How many pods the replica set should have.",
            |set, s| {
                if let Some(replicas) = set.spec.replicas {
                    s.value(replicas.into());
                }
            },
        ),
        of_metadata(stable(
            "kube_replicaset_metadata_generation",
            &[],
            "How often the replica set's desired state was changed.",
            |set, s| generation(set, s),
        )),
        of_metadata(stable(
            "kube_replicaset_owner",
            &["owner_kind", "owner_name", "owner_is_controller"],
            "The objects that own the replica set.",
            |set, s| owners(set, s),
        )),
        of_metadata(alpha(
            "kube_replicaset_annotations",
            &["annotation_*"],
            "The replica set's annotations that the allow list selects.",
            |set, s| annotations(set, s),
        )),
        of_metadata(stable(
            "kube_replicaset_labels",
            &["label_*"],
            "The replica set's labels that the allow list selects.",
            |set, s| labels(set, s),
        )),
    ];
}
