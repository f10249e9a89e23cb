//! `poddisruptionbudgets` (policy/v1 PodDisruptionBudget).

use crate::resources::prelude::*;

object! {
    /// The fields of a PodDisruptionBudget that metrics read.
    pub struct PodDisruptionBudget<'a> {
        status: BudgetStatus<'a> = 3 "status" struct BudgetStatus {
            observed_generation: i64 = 1 "observedGeneration",
            disruptions_allowed: i32 = 3 "disruptionsAllowed",
            current_healthy: i32 = 4 "currentHealthy",
            desired_healthy: i32 = 5 "desiredHealthy",
            expected_pods: i32 = 6 "expectedPods",
        },
    }
}

kind! {
    /// The PodDisruptionBudget kind.
    PodDisruptionBudgets: PodDisruptionBudget, "pod disruption budget",
        Api::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    identity namespace_and::<Self>("poddisruptionbudget");
    families budget, s:
        annotations(Alpha, "kube_poddisruptionbudget_annotations");
        labels(Alpha, "kube_poddisruptionbudget_labels");
        created(Stable, "kube_poddisruptionbudget_created");
        stable "kube_poddisruptionbudget_status_current_healthy",
            "How many of the pods under the budget are healthy.":
            s.value(budget.status.current_healthy);
        stable "kube_poddisruptionbudget_status_desired_healthy",
            "How many of the pods under the budget must stay healthy.":
            s.value(budget.status.desired_healthy);
        stable "kube_poddisruptionbudget_status_pod_disruptions_allowed",
            "How many pods under the budget may be evicted now.":
            s.value(budget.status.disruptions_allowed);
        stable "kube_poddisruptionbudget_status_expected_pods",
            "How many pods are under the budget.": s.value(budget.status.expected_pods);
        stable "kube_poddisruptionbudget_status_observed_generation",
            "The generation of the pod disruption budget that its controller last acted on.":
            s.value(budget.status.observed_generation);
        deleted(Alpha, "kube_poddisruptionbudget_deletion_timestamp");
}
