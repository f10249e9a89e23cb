//! `replicationcontrollers` (v1 ReplicationController).

use crate::resources::prelude::*;

object! {
    /// The fields of a ReplicationController that metrics read.
    pub struct ReplicationController<'a> {
        spec: ControllerSpec<'a> = 2 "spec" struct ControllerSpec {
            replicas: Option<i32> = 1 "replicas",
        },
        status: ControllerStatus<'a> = 3 "status" struct ControllerStatus {
            replicas: i32 = 1 "replicas",
            fully_labeled_replicas: i32 = 2 "fullyLabeledReplicas",
            observed_generation: i64 = 3 "observedGeneration",
            ready_replicas: i32 = 4 "readyReplicas",
            available_replicas: i32 = 5 "availableReplicas",
        },
    }
}

kind! {
    /// The ReplicationController kind.
    ReplicationControllers: ReplicationController, "replication controller",
        Api::namespaced("", "v1", "ReplicationController", "replicationcontrollers");
    identity namespace_and::<Self>("replicationcontroller");
    families controller, s:
        created(Stable, "kube_replicationcontroller_created");
        stable "kube_replicationcontroller_status_replicas",
            "How many pods of the replication controller there are.":
            s.value(controller.status.replicas);
        stable "kube_replicationcontroller_status_fully_labeled_replicas",
            "How many pods of the replication controller carry all labels of its pod template.":
            s.value(controller.status.fully_labeled_replicas);
        stable "kube_replicationcontroller_status_ready_replicas",
            "How many pods of the replication controller are ready.":
            s.value(controller.status.ready_replicas);
        stable "kube_replicationcontroller_status_available_replicas",
            "How many pods of the replication controller have been ready for long enough to count as available.":
            s.value(controller.status.available_replicas);
        stable "kube_replicationcontroller_status_observed_generation",
            "The generation of the replication controller that was last acted on.":
            s.value(controller.status.observed_generation);
        stable "kube_replicationcontroller_spec_replicas",
            "How many pods the replication controller should have.":
            s.value(controller.spec.replicas);
        generation(Stable, "kube_replicationcontroller_metadata_generation");
        owners(Alpha, "kube_replicationcontroller_owner");
}
