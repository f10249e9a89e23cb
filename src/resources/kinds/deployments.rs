//! `deployments` (apps/v1 Deployment).

use crate::resources::prelude::*;
use crate::resources::scalars::IntOrString;

object! {
    /// The fields of a Deployment that metrics read.
    pub struct Deployment<'a> {
        spec: DeploymentSpec<'a> = 2 "spec" struct DeploymentSpec {
            replicas: Option<i32> = 1 "replicas",
            strategy: DeploymentStrategy<'a> = 4 "strategy" struct DeploymentStrategy {
                rolling_update: RollingUpdate<'a> = 2 "rollingUpdate" struct RollingUpdate {
                    max_unavailable: Option<IntOrString<'a>> = 1 "maxUnavailable",
                    max_surge: Option<IntOrString<'a>> = 2 "maxSurge",
                },
            },
            paused: bool = 7 "paused",
        },
        status: DeploymentStatus<'a> = 3 "status" struct DeploymentStatus {
            observed_generation: i64 = 1 "observedGeneration",
            replicas: i32 = 2 "replicas",
            updated_replicas: i32 = 3 "updatedReplicas",
            available_replicas: i32 = 4 "availableReplicas",
            unavailable_replicas: i32 = 5 "unavailableReplicas",
            conditions: Vec<DeploymentCondition<'a>> = 6 "conditions" struct DeploymentCondition {
                kind: Str<'a> = 1 "type",
                status: Str<'a> = 2 "status",
                reason: Str<'a> = 4 "reason",
            },
            ready_replicas: i32 = 7 "readyReplicas",
            terminating_replicas: Option<i32> = 9 "terminatingReplicas",
        },
    }
}

kind! {
    /// The Deployment kind.
    Deployments: Deployment, "deployment", Api::namespaced("apps", "v1", "Deployment", "deployments");
    identity namespace_and::<Self>("deployment");
    families deployment, s:
        alpha of_metadata "kube_deployment_owner" {"owner_kind": kind, "owner_name": name}
            for [kind, name, _] in deployment.metadata.owners(),
            "The objects that own the deployment.";
        created(Stable, "kube_deployment_created");
        stable "kube_deployment_status_replicas", "How many pods of the deployment there are.":
            s.value(deployment.status.replicas);
        stable "kube_deployment_status_replicas_ready",
            "How many pods of the deployment are ready.": s.value(deployment.status.ready_replicas);
        stable "kube_deployment_status_replicas_available",
            "How many pods of the deployment have been ready for long enough to count as available.":
            s.value(deployment.status.available_replicas);
        stable "kube_deployment_status_replicas_unavailable",
            "How many pods the deployment lacks to be fully available.":
            s.value(deployment.status.unavailable_replicas);
        stable "kube_deployment_status_replicas_updated",
            "How many pods of the deployment run its present template.":
            s.value(deployment.status.updated_replicas);
        alpha "kube_deployment_status_terminating_replicas",
            "How many pods of the deployment are shutting down.":
            s.value(deployment.status.terminating_replicas);
        stable "kube_deployment_status_observed_generation",
            "The generation of the deployment that its controller last acted on.":
            s.value(deployment.status.observed_generation);
        stable "kube_deployment_status_condition" ["reason", "condition", "status"],
            "The conditions of the deployment: for each, one series for each status, 1 for the present one.":
            conditions(deployment, s);
        stable "kube_deployment_spec_replicas", "How many pods the deployment should have.":
            s.value(deployment.spec.replicas);
        stable "kube_deployment_spec_paused",
            "Whether the deployment is paused: changes of its template are not rolled out.":
            s.value(deployment.spec.paused);
        stable "kube_deployment_spec_strategy_rollingupdate_max_unavailable",
            "How many pods may be unavailable while the deployment rolls out a change.": {
                let bound = &deployment.spec.strategy.rolling_update.max_unavailable;
                rolling_bound(deployment, bound, f64::floor, s);
            };
        stable "kube_deployment_spec_strategy_rollingupdate_max_surge",
            "How many pods beyond the desired number may exist while the deployment rolls out a change.":
            {
                let bound = &deployment.spec.strategy.rolling_update.max_surge;
                rolling_bound(deployment, bound, f64::ceil, s);
            };
        generation(Stable, "kube_deployment_metadata_generation");
        deleted(Alpha, "kube_deployment_deletion_timestamp");
        annotations(Alpha, "kube_deployment_annotations");
        labels(Stable, "kube_deployment_labels");
}

fn conditions(deployment: &Deployment<'_>, s: &mut Series<'_>) {
    // The reasons that the deployment controller sets; any other would be an unbounded label value.
    const KNOWN: [&str; 11] = [
        "",
        "ReplicaSetUpdated",
        "ReplicaSetCreateError",
        "NewReplicaSetCreated",
        "FoundNewReplicaSet",
        "NewReplicaSetAvailable",
        "ProgressDeadlineExceeded",
        "DeploymentPaused",
        "DeploymentResumed",
        "MinimumReplicasAvailable",
        "MinimumReplicasUnavailable",
    ];
    for condition in &deployment.status.conditions {
        let reason = &*condition.reason;
        let reason = if KNOWN.contains(&reason) { reason } else { "unknown" };
        let labels = [("reason", reason), ("condition", &*condition.kind)];
        s.condition(&labels, "status", &condition.status);
    }
}

/// Returns a bound of a rolling update: a number, or a percentage of the desired replicas, rounded by `round`.
fn rolling_bound(
    deployment: &Deployment<'_>,
    bound: &Option<IntOrString<'_>>,
    round: fn(f64) -> f64,
    s: &mut Series<'_>,
) {
    let (Some(replicas), Some(bound)) = (deployment.spec.replicas, bound) else {
        return;
    };
    match bound {
        IntOrString::Int(number) => s.value(*number as f64),
        IntOrString::String(text) => {
            if let Some(percent) = text.strip_suffix('%').and_then(|t| t.parse::<i64>().ok()) {
                s.value(round(percent as f64 * f64::from(replicas) / 100.0));
            }
        }
    }
}
