//! `poddisruptionbudgets` (policy/v1 PodDisruptionBudget).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, deleted, labels};
use crate::wire::view::view;

view! {
    /// The fields of a PodDisruptionBudget that metrics read.
    pub struct PodDisruptionBudget<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: BudgetStatus<'a> = 3 "status",
    }

    /// `status`.
    pub struct BudgetStatus<'a> {
        observed_generation: i64 = 1 "observedGeneration",
        disruptions_allowed: i32 = 3 "disruptionsAllowed",
        current_healthy: i32 = 4 "currentHealthy",
        desired_healthy: i32 = 5 "desiredHealthy",
        expected_pods: i32 = 6 "expectedPods",
    }
}

impl<'a> Object<'a> for PodDisruptionBudget<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The PodDisruptionBudget kind.
pub struct PodDisruptionBudgets;

impl Kind for PodDisruptionBudgets {
    const API: Api = Api {
        name: "poddisruptionbudgets",
        group: "policy",
        version: "v1",
        kind: "PodDisruptionBudget",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |budget| &budget.metadata.namespace),
        ("poddisruptionbudget", |budget| &budget.metadata.name),
    ];
    type View<'a> = PodDisruptionBudget<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_poddisruptionbudget_annotations",
            &["annotation_*"],
            "The pod disruption budget's annotations that the allow list selects.",
            |budget, s| annotations(budget, s),
        )),
        of_metadata(alpha(
            "kube_poddisruptionbudget_labels",
            &["label_*"],
            "The pod disruption budget's labels that the allow list selects.",
            |budget, s| labels(budget, s),
        )),
        of_metadata(stable(
            "kube_poddisruptionbudget_created",
            &[],
            "Unix time of the pod disruption budget's creation.",
            |budget, s| created(budget, s),
        )),
        stable(
            "kube_poddisruptionbudget_status_current_healthy",
            &[],
            "How many of the pods under the budget are healthy.",
            |budget, s| s.value(budget.status.current_healthy.into()),
        ),
        stable(
            "kube_poddisruptionbudget_status_desired_healthy",
            &[],
            "How many of the pods under the budget must stay healthy.",
            |budget, s| s.value(budget.status.desired_healthy.into()),
        ),
        stable(
            "kube_poddisruptionbudget_status_pod_disruptions_allowed",
            &[],
            "How many pods under the budget may be evicted now.",
            |budget, s| s.value(budget.status.disruptions_allowed.into()),
        ),
        stable(
            "kube_poddisruptionbudget_status_expected_pods",
            &[],
            "How many pods are under the budget.",
            |budget, s| s.value(budget.status.expected_pods.into()),
        ),
        stable(
            "kube_poddisruptionbudget_status_observed_generation",
            &[],
            "The generation of the pod disruption budget that its controller last acted on.",
            |budget, s| s.value(budget.status.observed_generation as f64),
        ),
        of_metadata(alpha(
            "kube_poddisruptionbudget_deletion_timestamp",
            &[],
            "Unix time at which the pod disruption budget is due to be deleted.",
            |budget, s| deleted(budget, s),
        )),
    ];
}
