//! `jobs` (batch/v1 Job).

use crate::resources::prelude::*;

object! {
    /// The fields of a Job that metrics read.
    pub struct Job<'a> {
        spec: JobSpec<'a> = 2 "spec" struct JobSpec {
            parallelism: Option<i32> = 1 "parallelism",
            completions: Option<i32> = 2 "completions",
            active_deadline_seconds: Option<i64> = 3 "activeDeadlineSeconds",
        },
        status: JobStatus<'a> = 3 "status" struct JobStatus {
            conditions: Vec<DetailedCondition<'a>> = 1 "conditions",
            start_time: Option<Time> = 2 "startTime",
            completion_time: Option<Time> = 3 "completionTime",
            active: i32 = 4 "active",
            succeeded: i32 = 5 "succeeded",
            failed: i32 = 6 "failed",
            ready: i32 = 9 "ready",
        },
    }
}

kind! {
    /// The Job kind.
    Jobs: Job, "job", Api::namespaced("batch", "v1", "Job", "jobs");
    identity namespace_and::<Self>("job_name");
    families job, s:
        annotations(Alpha, "kube_job_annotations");
        labels(Stable, "kube_job_labels");
        info(Stable, "kube_job_info");
        created(Stable, "kube_job_created");
        stable "kube_job_spec_parallelism", "How many pods of the job may run at a time.":
            s.value(job.spec.parallelism);
        stable "kube_job_spec_completions", "How many pods of the job must succeed.":
            s.value(job.spec.completions);
        stable "kube_job_spec_active_deadline_seconds",
            "After how many seconds the job is ended, done or not.":
            s.value(job.spec.active_deadline_seconds);
        stable "kube_job_status_succeeded", "How many pods of the job succeeded.":
            s.value(job.status.succeeded);
        stable "kube_job_status_failed" ["reason"],
            "How many pods of the job failed; where the reason is known, 1 for it and 0 for the other reasons.":
            failed(job, s);
        stable "kube_job_status_active", "How many pods of the job are pending or running.":
            s.value(job.status.active);
        alpha "kube_job_status_ready", "How many pods of the job are ready.":
            s.value(job.status.ready);
        stable "kube_job_complete" ["condition"], "Whether the job has completed.":
            condition::status(&job.status.conditions, "Complete", s);
        stable "kube_job_failed" ["condition"], "Whether the job has failed.":
            condition::status(&job.status.conditions, "Failed", s);
        stable "kube_job_status_start_time", "Unix time at which the job was started.":
            s.value(job.status.start_time);
        stable "kube_job_status_completion_time", "Unix time at which the job completed.":
            s.value(job.status.completion_time);
        alpha "kube_job_status_suspended", "Whether the job is suspended.": {
                for condition in condition::of_type(&job.status.conditions, "Suspended") {
                    s.value(&*condition.status == "True");
                }
            };
        owners(Stable, "kube_job_owner");
}

fn failed(job: &Job<'_>, s: &mut Series<'_>) {
    const KNOWN: [&str; 3] = ["BackoffLimitExceeded", "DeadlineExceeded", "Evicted"];
    if job.status.failed == 0 {
        s.value(0.0);
        return;
    }
    let mut known = false;
    for condition in condition::of_type(&job.status.conditions, "Failed") {
        s.state_set("reason", &KNOWN, &condition.reason);
        known |= KNOWN.contains(&&*condition.reason);
    }
    if !known {
        s.with(&[("reason", "")], job.status.failed.into());
    }
}
