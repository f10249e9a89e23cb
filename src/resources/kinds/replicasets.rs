//! `replicasets` (apps/v1 ReplicaSet).

use crate::resources::prelude::*;

object! {
    /// The fields of a ReplicaSet that metrics read.
    pub struct ReplicaSet<'a> {
        spec: ReplicaSetSpec<'a> = 2 "spec" struct ReplicaSetSpec {
            replicas: Option<i32> = 1 "replicas",
        },
        status: ReplicaSetStatus<'a> = 3 "status" struct ReplicaSetStatus {
            replicas: i32 = 1 "replicas",
            fully_labeled_replicas: i32 = 2 "fullyLabeledReplicas",
            observed_generation: i64 = 3 "observedGeneration",
            ready_replicas: i32 = 4 "readyReplicas",
            terminating_replicas: Option<i32> = 7 "terminatingReplicas",
        },
    }
}

kind! {
    /// The ReplicaSet kind.
    ReplicaSets: ReplicaSet, "replica set", Api::namespaced("apps", "v1", "ReplicaSet", "replicasets");
    identity namespace_and::<Self>("replicaset");
    families set, s:
        created(Stable, "kube_replicaset_created");
        stable "kube_replicaset_status_replicas", "How many pods of the replica set there are.":
            s.value(set.status.replicas);
        stable "kube_replicaset_status_fully_labeled_replicas",
            "How many pods of the replica set carry all labels of its pod template.":
            s.value(set.status.fully_labeled_replicas);
        stable "kube_replicaset_status_ready_replicas",
            "How many pods of the replica set are ready.": s.value(set.status.ready_replicas);
        alpha "kube_replicaset_status_terminating_replicas",
            "How many pods of the replica set are shutting down.":
            s.value(set.status.terminating_replicas);
        stable "kube_replicaset_status_observed_generation",
            "The generation of the replica set that its controller last acted on.":
            s.value(set.status.observed_generation);
        stable "kube_replicaset_spec_replicas", "How many pods the replica set should have.":
            s.value(set.spec.replicas);
        generation(Stable, "kube_replicaset_metadata_generation");
        owners(Stable, "kube_replicaset_owner");
        annotations(Alpha, "kube_replicaset_annotations");
        labels(Stable, "kube_replicaset_labels");
}
