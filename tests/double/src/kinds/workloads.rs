//! Pod controllers: deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs.

use crate::encode::Message;
use crate::layout::{Controller, Item, Layout, REVISIONS, Workload};
use crate::random::suffix;

use super::meta::{
    Condition, Managed, Meta, Name, Owner, app_selector, each_workload, is_deployment,
    like_workload, status_of, workload_labels,
};
use super::pod_spec;

const STATUS_FIELDS: &str = concat!(
    r#"{"f:metadata":{"f:annotations":{".":{},"f:deployment.kubernetes.io/revision":{}}},"#,
    r#""f:status":{"f:availableReplicas":{},"f:conditions":{".":{},"k:{\"type\":\"Available\"}":"#,
    r#"{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}},"#,
    r#""f:observedGeneration":{},"f:readyReplicas":{},"f:replicas":{},"f:updatedReplicas":{}}}"#,
);

/// The replica set of a deployment's newest revision.
pub fn current_replica_set(workload: u32) -> u32 {
    workload * REVISIONS + REVISIONS - 1
}

/// Returns the number of ready pods; every other change of the object removes or restores one.
fn ready(item: &Item, workload: &Workload) -> i64 {
    i64::from(workload.replicas - (item.revision % 2).min(workload.replicas))
}

fn write_meta(
    m: &mut Message<'_>,
    layout: &Layout,
    resource: &str,
    item: &Item,
    name: &Name<'_>,
    owner: Option<Owner<'_>>,
) {
    let workload = layout.workload(item.workload);
    let managed = [
        Managed {
            manager: "helm",
            api_version: "apps/v1",
            subresource: "",
            time: workload.created,
            fields: &workload.spec_fields,
        },
        Managed {
            manager: "kube-controller-manager",
            api_version: "apps/v1",
            subresource: "status",
            time: item.changed,
            fields: STATUS_FIELDS,
        },
    ];
    let meta = Meta {
        generation: 3,
        labels: &workload_labels(workload),
        annotations: &[
            ("deployment.kubernetes.io/revision", "3"),
            ("meta.helm.sh/release-name", &workload.name),
        ],
        owner,
        managed: &managed,
        ..Meta::default()
    };
    meta.write(m, layout, resource, item, name);
}

fn template(m: &mut Message<'_>, tag: u32, workload: &Workload) {
    m.message(tag, "template", |m| {
        m.message(1, "metadata", |m| {
            m.text_map(11, "labels", workload_labels(workload));
            m.text_map(12, "annotations", [("checksum/config", workload.checksum.as_str())]);
        });
        m.message(2, "spec", |m| pod_spec::write(m, workload, None));
    });
}

fn conditions(m: &mut Message<'_>, tag: u32, item: &Item, conditions: &[Condition]) {
    m.messages(tag, "conditions", conditions, |m, (kind, status, reason, message)| {
        m.text(1, "type", kind);
        m.text(2, "status", status);
        m.text(4, "reason", reason);
        m.text(5, "message", message);
        m.time(6, "lastUpdateTime", item.changed);
        m.time(7, "lastTransitionTime", item.changed);
    });
}

/// One object for each workload of that controller.
pub fn deployments(layout: &Layout) -> Vec<Item> {
    each_workload(layout, is_deployment)
}

/// A Deployment.
pub fn write_deployment(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let replicas = i64::from(workload.replicas);
    write_meta(m, layout, "deployments", item, &like_workload(layout, item), None);
    m.message(2, "spec", |m| {
        m.required_int(1, "replicas", replicas);
        app_selector(m, 2, "selector", &workload.name);
        template(m, 3, workload);
        m.message(4, "strategy", |m| {
            m.text(1, "type", "RollingUpdate");
            m.message(2, "rollingUpdate", |m| {
                m.text_or_number(1, "maxUnavailable", "25%");
                m.text_or_number(2, "maxSurge", "25%");
            });
        });
        m.int(5, "minReadySeconds", 0);
        m.required_int(6, "revisionHistoryLimit", i64::from(REVISIONS) - 1);
        m.flag(7, "paused", false);
        m.required_int(9, "progressDeadlineSeconds", 600);
    });
    let ready = ready(item, workload);
    m.message(3, "status", |m| {
        m.int(1, "observedGeneration", 3);
        m.int(2, "replicas", replicas);
        m.int(3, "updatedReplicas", replicas);
        m.int(4, "availableReplicas", ready);
        m.int(5, "unavailableReplicas", replicas - ready);
        conditions(
            m,
            6,
            item,
            &[
                (
                    "Available",
                    status_of(ready * 4 >= replicas * 3),
                    "MinimumReplicasAvailable",
                    "Deployment has minimum availability.",
                ),
                ("Progressing", "True", "NewReplicaSetAvailable", "ReplicaSet has progressed."),
            ],
        );
        m.int(7, "readyReplicas", ready);
    });
}

/// The current replica set and those of earlier revisions, for each deployment.
pub fn replica_sets(layout: &Layout) -> Vec<Item> {
    let deployments = layout.workloads_of(is_deployment);
    let sets = deployments.flat_map(|(index, workload)| {
        (0..REVISIONS).map(move |revision| {
            let created = workload.created + i64::from(revision) * 3_600;
            Item::new(index * REVISIONS + revision, index, created)
        })
    });
    sets.collect()
}

/// The name of a ReplicaSet.
pub fn replica_set_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let workload = layout.workload(item.workload);
    let hash = if item.index == current_replica_set(item.workload) {
        workload.hash.clone()
    } else {
        suffix(layout.identity("replicasets", item.index, 0), 10)
    };
    let namespace = Some(layout.namespace(workload.namespace));
    Name { namespace, name: format!("{}-{hash}", workload.name) }
}

/// A ReplicaSet.
pub fn write_replica_set(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let current = item.index == current_replica_set(item.workload);
    let replicas = if current { i64::from(workload.replicas) } else { 0 };
    let owner = Owner {
        api_version: "apps/v1",
        kind: "Deployment",
        name: &workload.name,
        uid: layout.uid("deployments", item.workload, 0),
    };
    let name = replica_set_name(layout, item);
    write_meta(m, layout, "replicasets", item, &name, Some(owner));
    m.message(2, "spec", |m| {
        m.required_int(1, "replicas", replicas);
        app_selector(m, 2, "selector", &workload.name);
        template(m, 3, workload);
        m.int(4, "minReadySeconds", 0);
    });
    let ready = if current { ready(item, workload) } else { 0 };
    m.message(3, "status", |m| {
        m.required_int(1, "replicas", replicas);
        m.int(2, "fullyLabeledReplicas", replicas);
        m.int(3, "observedGeneration", 3);
        m.int(4, "readyReplicas", ready);
        m.int(5, "availableReplicas", ready);
    });
}

/// One object for each workload of that controller.
pub fn stateful_sets(layout: &Layout) -> Vec<Item> {
    each_workload(layout, |workload| workload.controller == Controller::StatefulSet)
}

/// A StatefulSet.
pub fn write_stateful_set(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let replicas = i64::from(workload.replicas);
    let revision = format!("{}-{}", workload.name, workload.hash);
    write_meta(m, layout, "statefulsets", item, &like_workload(layout, item), None);
    m.message(2, "spec", |m| {
        m.required_int(1, "replicas", replicas);
        app_selector(m, 2, "selector", &workload.name);
        template(m, 3, workload);
        m.text(5, "serviceName", &workload.name);
        m.text(6, "podManagementPolicy", "OrderedReady");
        m.message(7, "updateStrategy", |m| m.text(1, "type", "RollingUpdate"));
        m.required_int(8, "revisionHistoryLimit", 10);
        m.message(10, "persistentVolumeClaimRetentionPolicy", |m| {
            m.text(1, "whenDeleted", "Retain");
            m.text(2, "whenScaled", "Retain");
        });
    });
    let ready = ready(item, workload);
    m.message(3, "status", |m| {
        m.int(1, "observedGeneration", 3);
        m.required_int(2, "replicas", replicas);
        m.int(3, "readyReplicas", ready);
        m.int(4, "currentReplicas", replicas);
        m.int(5, "updatedReplicas", replicas);
        m.text(6, "currentRevision", &revision);
        m.text(7, "updateRevision", &revision);
        m.required_int(9, "collisionCount", 0);
        m.required_int(11, "availableReplicas", ready);
    });
}

/// One object for each workload of that controller.
pub fn daemon_sets(layout: &Layout) -> Vec<Item> {
    each_workload(layout, |workload| workload.controller == Controller::DaemonSet)
}

/// A DaemonSet.
pub fn write_daemon_set(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let replicas = i64::from(workload.replicas);
    write_meta(m, layout, "daemonsets", item, &like_workload(layout, item), None);
    m.message(2, "spec", |m| {
        app_selector(m, 1, "selector", &workload.name);
        template(m, 2, workload);
        m.message(3, "updateStrategy", |m| m.text(1, "type", "RollingUpdate"));
        m.required_int(6, "revisionHistoryLimit", 10);
    });
    let ready = ready(item, workload);
    m.message(3, "status", |m| {
        m.required_int(1, "currentNumberScheduled", replicas);
        m.required_int(2, "numberMisscheduled", 0);
        m.required_int(3, "desiredNumberScheduled", replicas);
        m.required_int(4, "numberReady", ready);
        m.int(5, "observedGeneration", 3);
        m.int(6, "updatedNumberScheduled", replicas);
        m.int(7, "numberAvailable", ready);
        m.int(8, "numberUnavailable", replicas - ready);
    });
}

/// One object for each workload of that controller.
pub fn jobs(layout: &Layout) -> Vec<Item> {
    each_workload(layout, |workload| matches!(workload.controller, Controller::Job { .. }))
}

/// A Job that has completed.
pub fn write_job(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    let workload = layout.workload(item.workload);
    let Controller::Job { cron_job } = workload.controller else {
        return;
    };
    let owner = layout.cron_jobs.get(cron_job as usize).map(|(_, name)| Owner {
        api_version: "batch/v1",
        kind: "CronJob",
        name,
        uid: layout.uid("cronjobs", cron_job, 0),
    });
    write_meta(m, layout, "jobs", item, &like_workload(layout, item), owner);
    m.message(2, "spec", |m| job_spec(m, workload));
    m.message(3, "status", |m| {
        m.messages(1, "conditions", ["SuccessCriteriaMet", "Complete"], |m, kind| {
            m.text(1, "type", kind);
            m.text(2, "status", "True");
            m.time(3, "lastProbeTime", item.created + 90);
            m.time(4, "lastTransitionTime", item.created + 90);
            m.text(5, "reason", "CompletionsReached");
            m.text(6, "message", "Reached expected number of succeeded pods");
        });
        m.time(2, "startTime", item.created);
        m.time(3, "completionTime", item.created + 90);
        m.int(4, "active", 0);
        m.int(5, "succeeded", 1);
        m.int(6, "failed", 0);
        m.required_int(9, "ready", 0);
    });
}

fn job_spec(m: &mut Message<'_>, workload: &Workload) {
    m.required_int(1, "parallelism", 1);
    m.required_int(2, "completions", 1);
    m.message(4, "selector", |m| {
        m.text_map(1, "matchLabels", [("batch.kubernetes.io/job-name", &workload.name)]);
    });
    template(m, 6, workload);
    m.required_int(7, "backoffLimit", 6);
    m.text(9, "completionMode", "NonIndexed");
    m.required_flag(10, "suspend", false);
}

/// The cron jobs that created the jobs.
pub fn cron_jobs(layout: &Layout) -> Vec<Item> {
    let mut items = Vec::new();
    for (index, workload) in layout.workloads_of(|_| true) {
        if let Controller::Job { cron_job } = workload.controller
            && items.len() as u32 == cron_job
        {
            items.push(Item::new(cron_job, index, layout.epoch - 90 * 86_400));
        }
    }
    items
}

/// The name of a CronJob.
pub fn cron_job_name<'a>(layout: &'a Layout, item: &Item) -> Name<'a> {
    let (namespace, name) = &layout.cron_jobs[item.index as usize];
    Name { namespace: Some(layout.namespace(*namespace)), name: name.clone() }
}

/// A CronJob that runs every hour.
pub fn write_cron_job(layout: &Layout, item: &Item, m: &mut Message<'_>) {
    write_meta(m, layout, "cronjobs", item, &cron_job_name(layout, item), None);
    m.message(2, "spec", |m| {
        m.text(1, "schedule", "0 * * * *");
        m.text(3, "concurrencyPolicy", "Forbid");
        m.required_flag(4, "suspend", false);
        m.message(5, "jobTemplate", |m| {
            m.message(2, "spec", |m| job_spec(m, layout.workload(item.workload)));
        });
        m.required_int(6, "successfulJobsHistoryLimit", 3);
        m.required_int(7, "failedJobsHistoryLimit", 1);
        m.text(8, "timeZone", "Etc/UTC");
    });
    m.message(3, "status", |m| {
        m.time(4, "lastScheduleTime", layout.epoch - layout.epoch % 3_600);
        m.time(5, "lastSuccessfulTime", layout.epoch - layout.epoch % 3_600 + 90);
    });
}
