//! `statefulsets` (apps/v1 StatefulSet).

use crate::resources::prelude::*;

object! {
    /// The fields of a StatefulSet that metrics read.
    pub struct StatefulSet<'a> {
        spec: StatefulSetSpec<'a> = 2 "spec" struct StatefulSetSpec {
            replicas: Option<i32> = 1 "replicas",
            retention_policy: RetentionPolicy<'a> = 10 "persistentVolumeClaimRetentionPolicy" struct RetentionPolicy {
                when_deleted: Str<'a> = 1 "whenDeleted",
                when_scaled: Str<'a> = 2 "whenScaled",
            },
            ordinals: Option<Ordinals<'a>> = 11 "ordinals" struct Ordinals {
                start: i32 = 1 "start",
            },
        },
        status: StatefulSetStatus<'a> = 3 "status" struct StatefulSetStatus {
            observed_generation: i64 = 1 "observedGeneration",
            replicas: i32 = 2 "replicas",
            ready_replicas: i32 = 3 "readyReplicas",
            current_replicas: i32 = 4 "currentReplicas",
            updated_replicas: i32 = 5 "updatedReplicas",
            current_revision: Str<'a> = 6 "currentRevision",
            update_revision: Str<'a> = 7 "updateRevision",
            available_replicas: i32 = 11 "availableReplicas",
        },
    }
}

kind! {
    /// The StatefulSet kind.
    StatefulSets: StatefulSet, "stateful set", Api::namespaced("apps", "v1", "StatefulSet", "statefulsets");
    identity namespace_and::<Self>("statefulset");
    families set, s:
        created(Stable, "kube_statefulset_created");
        stable "kube_statefulset_status_replicas", "How many pods of the stateful set there are.":
            s.value(set.status.replicas);
        stable "kube_statefulset_status_replicas_available",
            "How many pods of the stateful set have been ready for long enough to count as available.":
            s.value(set.status.available_replicas);
        stable "kube_statefulset_status_replicas_current",
            "How many pods of the stateful set run its current revision.":
            s.value(set.status.current_replicas);
        stable "kube_statefulset_status_replicas_ready",
            "How many pods of the stateful set are ready.": s.value(set.status.ready_replicas);
        stable "kube_statefulset_status_replicas_updated",
            "How many pods of the stateful set run the revision it is updated to.":
            s.value(set.status.updated_replicas);
        stable "kube_statefulset_status_observed_generation",
            "The generation of the stateful set that its controller last acted on.":
            s.value(set.status.observed_generation);
        stable "kube_statefulset_replicas", "How many pods the stateful set should have.":
            s.value(set.spec.replicas);
        stable "kube_statefulset_ordinals_start", "The number of the stateful set's first pod.":
            s.value(set.spec.ordinals.as_ref().map(|ordinals| ordinals.start));
        generation(Stable, "kube_statefulset_metadata_generation");
        stable "kube_statefulset_persistentvolumeclaim_retention_policy"
            ["when_deleted", "when_scaled"],
            "What becomes of the pods' volume claims when the stateful set is deleted or scaled down.":
            retention_policy(set, s);
        annotations(Stable, "kube_statefulset_annotations");
        labels(Stable, "kube_statefulset_labels");
        stable "kube_statefulset_status_current_revision" {"revision": &set.status.current_revision},
            "The current revision of the stateful set.";
        stable "kube_statefulset_status_update_revision" {"revision": &set.status.update_revision},
            "The revision that the stateful set is updated to.";
        deleted(Stable, "kube_statefulset_deletion_timestamp");
}

fn retention_policy(set: &StatefulSet<'_>, s: &mut Series<'_>) {
    let policy = &set.spec.retention_policy;
    if !policy.when_deleted.is_empty() || !policy.when_scaled.is_empty() {
        let labels =
            [("when_deleted", &*policy.when_deleted), ("when_scaled", &policy.when_scaled)];
        s.with(&labels, 1.0);
    }
}
