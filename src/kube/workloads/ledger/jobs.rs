//! The end of a job.

use tokio::time::Instant;

use super::families::JOBS;
use super::objects::Past;
use super::pods::{DELETED, UNKNOWN};
use super::totals::{Totals, WorkloadOwner};
use crate::kube::observed::Metadata;
use crate::kube::workloads::objects::Workload;
use crate::resources::kinds::condition::DetailedCondition;
use crate::wire::view::view;

view! {
    /// The fields of a Job that the ledger reads.
    pub struct Job<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: JobStatus<'a> = 3 "status",
    }

    /// `status` of a Job.
    pub struct JobStatus<'a> {
        conditions: Vec<DetailedCondition<'a>> = 1 "conditions",
    }
}

/// The reasons whose counters exist from the first job of a workload.
const USUAL_ENDS: [&str; 3] = ["BackoffLimitExceeded", "Complete", "DeadlineExceeded"];

/// The part of a job's past that has been counted.
#[derive(Debug, Default)]
pub(super) struct JobRecord {
    workload: Option<WorkloadOwner>,
    is_finished: bool,
}

impl JobRecord {
    /// Takes the next state of the job. `is_news` states whether what it reports has just happened.
    pub(super) fn observe(
        &mut self,
        job: &Job<'_>,
        workload: &Workload,
        is_news: bool,
        totals: &mut Totals,
        now: Instant,
    ) {
        let owner = totals.owner(workload);
        if self.workload.as_ref() != Some(&owner) {
            totals.enter(&owner, now);
            if let Some(old) = self.workload.replace(owner.clone()) {
                totals.leave(&old, now);
            }
        }
        self.declare(totals);
        let ended = |kind: &str| {
            let mut conditions = job.status.conditions.iter();
            conditions.find(|condition| &*condition.kind == kind && &*condition.status == "True")
        };
        let reason = match (ended("Complete"), ended("Failed")) {
            (Some(_), _) => "Complete",
            (None, Some(failed)) if failed.reason.is_empty() => "Failed",
            (None, Some(failed)) => &failed.reason,
            (None, None) => return,
        };
        if !std::mem::replace(&mut self.is_finished, true) && is_news {
            totals.add(&owner, [(JOBS, vec![reason], 1)]);
        }
    }

    /// Lets the usual counters of its workload begin to exist.
    pub(super) fn declare(&self, totals: &mut Totals) {
        if let Some(workload) = &self.workload {
            totals.add(workload, USUAL_ENDS.map(|reason| (JOBS, vec![reason], 0)));
        }
    }
}

impl Past for JobRecord {
    type Totals = Totals;

    fn end(&mut self, unseen: bool, totals: &mut Totals) {
        if let Some(workload) = &self.workload
            && !std::mem::replace(&mut self.is_finished, true)
        {
            let reason = if unseen { UNKNOWN } else { DELETED };
            totals.add(workload, [(JOBS, vec![reason], 1)]);
        }
    }

    fn leave(&mut self, totals: &mut Totals, now: Instant) {
        if let Some(workload) = self.workload.take() {
            totals.leave(&workload, now);
        }
    }
}
