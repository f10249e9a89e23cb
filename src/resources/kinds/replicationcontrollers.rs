//! `replicationcontrollers` (v1 ReplicationController).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, created, generation, owners};
use crate::wire::view::view;

view! {
    /// The fields of a ReplicationController that metrics read.
    pub struct ReplicationController<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: ControllerSpec<'a> = 2 "spec",
        status: ControllerStatus<'a> = 3 "status",
    }

    /// `spec`.
    pub struct ControllerSpec<'a> {
        replicas: Option<i32> = 1 "replicas",
    }

    /// `status`.
    pub struct ControllerStatus<'a> {
        replicas: i32 = 1 "replicas",
        fully_labeled_replicas: i32 = 2 "fullyLabeledReplicas",
        observed_generation: i64 = 3 "observedGeneration",
        ready_replicas: i32 = 4 "readyReplicas",
        available_replicas: i32 = 5 "availableReplicas",
    }
}

impl<'a> Object<'a> for ReplicationController<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ReplicationController kind.
pub struct ReplicationControllers;

impl Kind for ReplicationControllers {
    const API: Api = Api {
        name: "replicationcontrollers",
        group: "",
        version: "v1",
        kind: "ReplicationController",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |controller| &controller.metadata.namespace),
        ("replicationcontroller", |controller| &controller.metadata.name),
    ];
    type View<'a> = ReplicationController<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(stable(
            "kube_replicationcontroller_created",
            &[],
            "Unix time of the replication controller's creation.",
            |controller, s| created(controller, s),
        )),
        stable(
            "kube_replicationcontroller_status_replicas",
            &[],
            "How many pods of the replication controller there are.",
            |controller, s| s.value(controller.status.replicas.into()),
        ),
        stable(
            "kube_replicationcontroller_status_fully_labeled_replicas",
            &[],
            "How many pods of the replication controller carry all labels of its pod template.",
            |controller, s| s.value(controller.status.fully_labeled_replicas.into()),
        ),
        stable(
            "kube_replicationcontroller_status_ready_replicas",
            &[],
            "How many pods of the replication controller are ready.",
            |controller, s| s.value(controller.status.ready_replicas.into()),
        ),
        stable(
            "kube_replicationcontroller_status_available_replicas",
            &[],
            "How many pods of the replication controller have been ready for long enough to count as available.",
            |controller, s| s.value(controller.status.available_replicas.into()),
        ),
        stable(
            "kube_replicationcontroller_status_observed_generation",
            &[],
            "The generation of the replication controller that was last acted on.",
            |controller, s| s.value(controller.status.observed_generation as f64),
        ),
        stable(
            "kube_replicationcontroller_spec_replicas",
            &[],
            "How many pods the replication controller should have.",
            |controller, s| {
                if let Some(replicas) = controller.spec.replicas {
                    s.value(replicas.into());
                }
            },
        ),
        of_metadata(stable(
            "kube_replicationcontroller_metadata_generation",
            &[],
            "How often the replication controller's desired state was changed.",
            |controller, s| generation(controller, s),
        )),
        of_metadata(alpha(
            "kube_replicationcontroller_owner",
            &["owner_kind", "owner_name", "owner_is_controller"],
            "The objects that own the replication controller.",
            |controller, s| owners(controller, s),
        )),
    ];
}
