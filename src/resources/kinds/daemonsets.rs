//! `daemonsets` (apps/v1 DaemonSet).

use crate::resources::prelude::*;

object! {
    /// The fields of a DaemonSet that metrics read.
    pub struct DaemonSet<'a> {
        status: DaemonSetStatus<'a> = 3 "status" struct DaemonSetStatus {
            current_number_scheduled: i32 = 1 "currentNumberScheduled",
            number_misscheduled: i32 = 2 "numberMisscheduled",
            desired_number_scheduled: i32 = 3 "desiredNumberScheduled",
            number_ready: i32 = 4 "numberReady",
            observed_generation: i64 = 5 "observedGeneration",
            updated_number_scheduled: i32 = 6 "updatedNumberScheduled",
            number_available: i32 = 7 "numberAvailable",
            number_unavailable: i32 = 8 "numberUnavailable",
        },
    }
}

kind! {
    /// The DaemonSet kind.
    DaemonSets: DaemonSet, "daemon set", Api::namespaced("apps", "v1", "DaemonSet", "daemonsets");
    identity namespace_and::<Self>("daemonset");
    families set, s:
        created(Stable, "kube_daemonset_created");
        stable "kube_daemonset_status_current_number_scheduled",
            "How many nodes run the daemon set and should.":
            s.value(set.status.current_number_scheduled);
        stable "kube_daemonset_status_desired_number_scheduled",
            "How many nodes should run the daemon set.":
            s.value(set.status.desired_number_scheduled);
        stable "kube_daemonset_status_number_available",
            "How many of the nodes that should run the daemon set have an available pod of it.":
            s.value(set.status.number_available);
        stable "kube_daemonset_status_number_misscheduled",
            "How many nodes run the daemon set but should not.":
            s.value(set.status.number_misscheduled);
        stable "kube_daemonset_status_number_ready",
            "How many of the nodes that should run the daemon set have a ready pod of it.":
            s.value(set.status.number_ready);
        stable "kube_daemonset_status_number_unavailable",
            "How many of the nodes that should run the daemon set have no available pod of it.":
            s.value(set.status.number_unavailable);
        stable "kube_daemonset_status_observed_generation",
            "The generation of the daemon set that its controller last acted on.":
            s.value(set.status.observed_generation);
        stable "kube_daemonset_status_updated_number_scheduled",
            "How many nodes run a pod of the present template of the daemon set.":
            s.value(set.status.updated_number_scheduled);
        generation(Stable, "kube_daemonset_metadata_generation");
        deleted(Alpha, "kube_daemonset_deletion_timestamp");
        annotations(Alpha, "kube_daemonset_annotations");
        labels(Stable, "kube_daemonset_labels");
}
