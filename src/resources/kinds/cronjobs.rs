//! `cronjobs` (batch/v1 CronJob).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, labels, resource_version};
use crate::resources::scalars::Time;
use crate::resources::series::{Series, bool_value};
use crate::resources::values::cron::{CronError, Schedule};
use crate::wire::view::{Present, Str, view};

view! {
    /// The fields of a CronJob that metrics read.
    pub struct CronJob<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: CronJobSpec<'a> = 2 "spec",
        status: CronJobStatus<'a> = 3 "status",
    }

    /// `spec`.
    pub struct CronJobSpec<'a> {
        schedule: Str<'a> = 1 "schedule",
        starting_deadline_seconds: Option<i64> = 2 "startingDeadlineSeconds",
        concurrency_policy: Str<'a> = 3 "concurrencyPolicy",
        suspend: Option<bool> = 4 "suspend",
        successful_jobs_history_limit: Option<i32> = 6 "successfulJobsHistoryLimit",
        failed_jobs_history_limit: Option<i32> = 7 "failedJobsHistoryLimit",
        time_zone: Option<Str<'a>> = 8 "timeZone",
    }

    /// `status`.
    pub struct CronJobStatus<'a> {
        active: Vec<Present> = 1 "active",
        last_schedule_time: Option<Time> = 4 "lastScheduleTime",
        last_successful_time: Option<Time> = 5 "lastSuccessfulTime",
    }
}

impl<'a> Object<'a> for CronJob<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The CronJob kind.
pub struct CronJobs;

impl Kind for CronJobs {
    const API: Api = Api {
        name: "cronjobs",
        group: "batch",
        version: "v1",
        kind: "CronJob",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |cronjob| &cronjob.metadata.namespace),
        ("cronjob", |cronjob| &cronjob.metadata.name),
    ];
    type View<'a> = CronJob<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_cronjob_annotations",
            &["annotation_*"],
            "The cron job's annotations that the allow list selects.",
            |cronjob, s| annotations(cronjob, s),
        )),
        of_metadata(stable(
            "kube_cronjob_labels",
            &["label_*"],
            "The cron job's labels that the allow list selects.",
            |cronjob, s| labels(cronjob, s),
        )),
        stable(
            "kube_cronjob_info",
            &["schedule", "concurrency_policy", "timezone"],
            "When the cron job runs, and what happens when a run is still going on.",
            |cronjob, s| {
                let spec = &cronjob.spec;
                let labels = [
                    ("schedule", &*spec.schedule),
                    ("concurrency_policy", &*spec.concurrency_policy),
                    ("timezone", spec.time_zone.as_deref().unwrap_or("local")),
                ];
                s.with(&labels, 1.0);
            },
        ),
        of_metadata(stable(
            "kube_cronjob_created",
            &[],
            "Unix time of the cron job's creation.",
            |cronjob, s| created(cronjob, s),
        )),
        stable(
            "kube_cronjob_status_active",
            &[],
            "How many jobs of the cron job are running.",
            |cronjob, s| s.value(cronjob.status.active.len() as f64),
        ),
        stable(
            "kube_cronjob_status_last_schedule_time",
            &[],
            "Unix time at which the cron job was last started.",
            |cronjob, s| time(cronjob.status.last_schedule_time, s),
        ),
        stable(
            "kube_cronjob_status_last_successful_time",
            &[],
            "Unix time at which a job of the cron job last succeeded.",
            |cronjob, s| time(cronjob.status.last_successful_time, s),
        ),
        stable(
            "kube_cronjob_spec_suspend",
            &[],
            "Whether the cron job is suspended.",
            |cronjob, s| s.value(bool_value(cronjob.spec.suspend == Some(true))),
        ),
        stable(
            "kube_cronjob_spec_starting_deadline_seconds",
            &[],
            "How many seconds late the cron job may still be started.",
            |cronjob, s| {
                if let Some(seconds) = cronjob.spec.starting_deadline_seconds {
                    s.value(seconds as f64);
                }
            },
        ),
        stable(
            "kube_cronjob_next_schedule_time",
            &[],
            "Unix time at which the cron job is due after its last start, or after its creation.",
            |cronjob, s| next_schedule_time(cronjob, s),
        ),
        alpha(
            "kube_cronjob_schedule_invalid",
            &[],
            "1 for a cron job whose schedule or time zone cannot be read.",
            |cronjob, s| {
                if schedule(cronjob).is_err() {
                    s.value(1.0);
                }
            },
        ),
        of_metadata(stable(
            "kube_cronjob_metadata_resource_version",
            &[],
            "The version of the cron job that the API server last reported.",
            |cronjob, s| resource_version(cronjob, s),
        )),
        alpha(
            "kube_cronjob_spec_successful_job_history_limit",
            &[],
            "How many succeeded jobs are kept.",
            |cronjob, s| limit(cronjob.spec.successful_jobs_history_limit, s),
        ),
        alpha(
            "kube_cronjob_spec_failed_job_history_limit",
            &[],
            "How many failed jobs are kept.",
            |cronjob, s| limit(cronjob.spec.failed_jobs_history_limit, s),
        ),
    ];
}

fn time(time: Option<Time>, s: &mut Series<'_>) {
    if let Some(time) = time {
        s.value(time.seconds());
    }
}

fn limit(limit: Option<i32>, s: &mut Series<'_>) {
    if let Some(limit) = limit {
        s.value(f64::from(limit));
    }
}

fn schedule(cronjob: &CronJob<'_>) -> Result<Schedule, CronError> {
    Schedule::parse(&cronjob.spec.schedule, cronjob.spec.time_zone.as_deref())
}

fn next_schedule_time(cronjob: &CronJob<'_>, s: &mut Series<'_>) {
    let times = [cronjob.status.last_schedule_time, Some(cronjob.metadata.creation_timestamp)];
    let since = times.into_iter().flatten().find(|time| !time.is_zero());
    if let Some(since) = since
        && cronjob.spec.suspend != Some(true)
        && let Ok(schedule) = schedule(cronjob)
    {
        // A schedule without a next run has Go's zero time as the next.
        let next = schedule.next(since.unix()).unwrap_or(Time::ZERO.unix());
        s.value(next as f64);
    }
}
