//! `daemonsets` (apps/v1 DaemonSet).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, deleted, generation, labels};
use crate::wire::view::view;

view! {
    /// The fields of a DaemonSet that metrics read.
    pub struct DaemonSet<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: DaemonSetStatus<'a> = 3 "status",
    }

    /// `status`.
    pub struct DaemonSetStatus<'a> {
        current_number_scheduled: i32 = 1 "currentNumberScheduled",
        number_misscheduled: i32 = 2 "numberMisscheduled",
        desired_number_scheduled: i32 = 3 "desiredNumberScheduled",
        number_ready: i32 = 4 "numberReady",
        observed_generation: i64 = 5 "observedGeneration",
        updated_number_scheduled: i32 = 6 "updatedNumberScheduled",
        number_available: i32 = 7 "numberAvailable",
        number_unavailable: i32 = 8 "numberUnavailable",
    }
}

impl<'a> Object<'a> for DaemonSet<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The DaemonSet kind.
pub struct DaemonSets;

impl Kind for DaemonSets {
    const API: Api = Api {
        name: "daemonsets",
        group: "apps",
        version: "v1",
        kind: "DaemonSet",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] =
        &[("namespace", |set| &set.metadata.namespace), ("daemonset", |set| &set.metadata.name)];
    type View<'a> = DaemonSet<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(stable(
            "kube_daemonset_created",
            &[],
            "Unix time of the daemon set's creation.",
            |set, s| created(set, s),
        )),
        stable(
            "kube_daemonset_status_current_number_scheduled",
            &[],
            "How many nodes run the daemon set and should.",
            |set, s| s.value(set.status.current_number_scheduled.into()),
        ),
        stable(
            "kube_daemonset_status_desired_number_scheduled",
            &[],
            "How many nodes should run the daemon set.",
            |set, s| s.value(set.status.desired_number_scheduled.into()),
        ),
        stable(
            "kube_daemonset_status_number_available",
            &[],
            "How many of the nodes that should run the daemon set have an available pod of it.",
            |set, s| s.value(set.status.number_available.into()),
        ),
        stable(
            "kube_daemonset_status_number_misscheduled",
            &[],
            "How many nodes run the daemon set but should not.",
            |set, s| s.value(set.status.number_misscheduled.into()),
        ),
        stable(
            "kube_daemonset_status_number_ready",
            &[],
            "How many of the nodes that should run the daemon set have a ready pod of it.",
            |set, s| s.value(set.status.number_ready.into()),
        ),
        stable(
            "kube_daemonset_status_number_unavailable",
            &[],
            "How many of the nodes that should run the daemon set have no available pod of it.",
            |set, s| s.value(set.status.number_unavailable.into()),
        ),
        stable(
            "kube_daemonset_status_observed_generation",
            &[],
            "The generation of the daemon set that its controller last acted on.",
            |set, s| s.value(set.status.observed_generation as f64),
        ),
        stable(
            "kube_daemonset_status_updated_number_scheduled",
            &[],
            "How many nodes run a pod of the present template of the daemon set.",
            |set, s| s.value(set.status.updated_number_scheduled.into()),
        ),
        of_metadata(stable(
            "kube_daemonset_metadata_generation",
            &[],
            "How often the daemon set's desired state was changed.",
            |set, s| generation(set, s),
        )),
        of_metadata(alpha(
            "kube_daemonset_deletion_timestamp",
            &[],
            "Unix time at which the daemon set is due to be deleted.",
            |set, s| deleted(set, s),
        )),
        of_metadata(alpha(
            "kube_daemonset_annotations",
            &["annotation_*"],
            "The daemon set's annotations that the allow list selects.",
            |set, s| annotations(set, s),
        )),
        of_metadata(stable(
            "kube_daemonset_labels",
            &["label_*"],
            "The daemon set's labels that the allow list selects.",
            |set, s| labels(set, s),
        )),
    ];
}
