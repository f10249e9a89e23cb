//! `cronjobs` (batch/v1 CronJob).

use crate::resources::prelude::*;
use crate::resources::values::cron::Schedule;

object! {
    /// The fields of a CronJob that metrics read.
    pub struct CronJob<'a> {
        spec: CronJobSpec<'a> = 2 "spec" struct CronJobSpec {
            schedule: Str<'a> = 1 "schedule",
            starting_deadline_seconds: Option<i64> = 2 "startingDeadlineSeconds",
            concurrency_policy: Str<'a> = 3 "concurrencyPolicy",
            suspend: Option<bool> = 4 "suspend",
            successful_jobs_history_limit: Option<i32> = 6 "successfulJobsHistoryLimit",
            failed_jobs_history_limit: Option<i32> = 7 "failedJobsHistoryLimit",
            time_zone: Option<Str<'a>> = 8 "timeZone",
        },
        status: CronJobStatus<'a> = 3 "status" struct CronJobStatus {
            active: Vec<Present> = 1 "active",
            last_schedule_time: Option<Time> = 4 "lastScheduleTime",
            last_successful_time: Option<Time> = 5 "lastSuccessfulTime",
        },
    }
}

kind! {
    /// The CronJob kind.
    CronJobs: CronJob, "cron job", Api::namespaced("batch", "v1", "CronJob", "cronjobs");
    identity namespace_and::<Self>("cronjob");
    families cronjob, s:
        annotations(Alpha, "kube_cronjob_annotations");
        labels(Stable, "kube_cronjob_labels");
        stable "kube_cronjob_info" {
                "schedule": &cronjob.spec.schedule,
                "concurrency_policy": &cronjob.spec.concurrency_policy,
                "timezone": cronjob.spec.time_zone.as_deref().unwrap_or("local"),
            },
            "When the cron job runs, and what happens when a run is still going on.";
        created(Stable, "kube_cronjob_created");
        stable "kube_cronjob_status_active", "How many jobs of the cron job are running.":
            s.value(cronjob.status.active.len() as f64);
        stable "kube_cronjob_status_last_schedule_time",
            "Unix time at which the cron job was last started.":
            s.value(cronjob.status.last_schedule_time);
        stable "kube_cronjob_status_last_successful_time",
            "Unix time at which a job of the cron job last succeeded.":
            s.value(cronjob.status.last_successful_time);
        stable "kube_cronjob_spec_suspend", "Whether the cron job is suspended.":
            s.value(cronjob.spec.suspend == Some(true));
        stable "kube_cronjob_spec_starting_deadline_seconds",
            "How many seconds late the cron job may still be started.":
            s.value(cronjob.spec.starting_deadline_seconds);
        stable "kube_cronjob_next_schedule_time",
            "Unix time at which the cron job is due after its last start, or after its creation.":
            next_schedule_time(cronjob, s);
        alpha "kube_cronjob_schedule_invalid",
            "1 for a cron job whose schedule or time zone cannot be read.": {
                if schedule(cronjob).is_none() {
                    s.value(1.0);
                }
            };
        version(Stable, "kube_cronjob_metadata_resource_version");
        alpha "kube_cronjob_spec_successful_job_history_limit", "How many succeeded jobs are kept.":
            s.value(cronjob.spec.successful_jobs_history_limit);
        alpha "kube_cronjob_spec_failed_job_history_limit", "How many failed jobs are kept.":
            s.value(cronjob.spec.failed_jobs_history_limit);
}

fn schedule(cronjob: &CronJob<'_>) -> Option<Schedule> {
    Schedule::parse(&cronjob.spec.schedule, cronjob.spec.time_zone.as_deref())
}

fn next_schedule_time(cronjob: &CronJob<'_>, s: &mut Series<'_>) {
    let times = [cronjob.status.last_schedule_time, Some(cronjob.metadata.creation_timestamp)];
    let since = times.into_iter().flatten().find(|time| !time.is_zero());
    if let Some(since) = since
        && cronjob.spec.suspend != Some(true)
        && let Some(schedule) = schedule(cronjob)
    {
        // A schedule without a next run has Go's zero time as the next.
        let next = schedule.next(since.unix()).unwrap_or(Time::ZERO.unix());
        s.value(next);
    }
}
