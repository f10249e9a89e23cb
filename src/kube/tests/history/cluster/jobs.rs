//! Jobs that create pods.

use std::sync::Arc;

use fastrand::Rng;
use tokio::time::Instant;

use super::{Cluster, Kind, Object, RESTORE_NOTICED, Scope, Subject, key};

/// The pods of jobs of a cluster.
#[derive(Default)]
pub(super) struct Jobs {
    /// Some pods belong to jobs of the cluster.
    are_used: bool,
    /// Determines the pods that new jobs create at once, if any do.
    starts: Option<Rng>,
}

/// Returns true if pods of this name belong to jobs.
fn is_of_job(name: &str) -> bool {
    name.trim_start_matches('o').parse().is_ok_and(|number: u8| number % 4 == 3)
}

impl Cluster {
    /// Lets jobs of the cluster create some of the later pods.
    pub fn create_pods_of_jobs(&mut self) {
        self.jobs.are_used = true;
    }

    /// Lets later jobs create pods as soon as they exist, too. A watcher of both kinds may see these pods first.
    pub fn create_pods_with_jobs(&mut self, seed: u64) {
        self.jobs.starts = Some(Rng::with_seed(seed ^ 0x391c_0cb3_c5c9_5a63));
    }

    /// Returns a job of a namespace, which creates a pod of this name, if there are such pods.
    pub(super) fn job_of(&self, scope: Scope, name: &str, rng: &mut Rng) -> Option<Arc<Subject>> {
        if scope.kind != Kind::Pod || !self.jobs.are_used || !is_of_job(name) {
            return None;
        }
        // A job that belongs to nothing is a workload with labels.
        let is_workload = rng.u32(0..4) > 0;
        let is_job = |job: &&Object| {
            job.scope.kind == Kind::Job
                && job.scope.namespace == scope.namespace
                && !(is_workload && job.owner().is_some())
        };
        let jobs: Vec<&Object> = self.objects.values().filter(is_job).collect();
        Some(rng.choice(&jobs)?.as_subject())
    }

    /// Creates pods of a job that has just begun to exist.
    pub(super) fn start_job(&mut self, job: &Object) {
        let Some(starts) = &mut self.jobs.starts else { return };
        let (scope, count) = (Scope { kind: Kind::Pod, ..job.scope }, starts.usize(0..4));
        // A server that makes as many changes as it has lost before it is asked again cannot be recognised.
        let is_unnoticed = self.restored.is_some_and(|at: Instant| at.elapsed() < RESTORE_NOTICED);
        if is_unnoticed || !self.scopes.contains(&scope) {
            return;
        }
        let mut rng = starts.fork();
        let names = (0..40).map(|number| format!("o{number}")).filter(|name| is_of_job(name));
        let is_free = |name: &String| !self.objects.contains_key(&key(scope, name));
        let mut names: Vec<String> = names.filter(is_free).collect();
        rng.shuffle(&mut names);
        names.truncate(count);
        names.into_iter().for_each(|name| self.add_of(scope, name, Some(job.as_subject())));
    }
}
