//! The first sync: which lists are missing, how long they delay readiness, and progress in the log.
//!
//! A kind is missing until its first list is complete. A kind that is denied or unreachable delays readiness up to a
//! timeout; a kind whose list is in progress delays it until the list is complete. Once nothing is missing, the initial
//! sync is over for good: later outages are handled by [`reconcile`](super::follow::reconcile).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{self, Instant};

use super::follow::progress::{Phase, Status};
use super::pipeline::PipelineHandle;
use crate::status::words::some_names;
use crate::util::lock::Lock;

/// The interval between two progress lines in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The time after which kinds that cannot be listed no longer delay readiness.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two looks whether it is over, once the first lists are complete or [`TIMEOUT`] is over. Readiness is at most as late.
const END_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum number of list/watches named in a log line.
const MAX_NAMED: usize = 10;

/// Tracks the first sync until it is over.
pub struct FirstSync {
    handle: PipelineHandle,
    began: Lock<Instant>,
    settle_time: Duration,
    is_over: AtomicBool,
}

impl FirstSync {
    /// Tracks the first sync of a pipeline that was just started. After 30 s, kinds that cannot be listed no longer delay
    /// readiness. After each list, wait `settle_time` for resources that it may add: a list of CustomResourceDefinitions
    /// does.
    pub fn new(handle: PipelineHandle, settle_time: Duration) -> Self {
        let (began, is_over) = (Lock::new(Instant::now()), AtomicBool::new(false));
        Self { handle, began, settle_time, is_over }
    }

    /// Begins anew when the first lists begin later than the pipeline, because the shard of this pod had to be found: until then
    /// no kind could be listed, however long it took.
    pub fn restart(&self) {
        *self.began.lock() = Instant::now();
    }

    /// Waits until the first sync is over, so that it ends without scrapes, too: a standby that takes over during a later list must
    /// not wait for that.
    pub async fn end(&self) {
        let _ = time::timeout(TIMEOUT, self.handle.ready()).await;
        while !self.missing().is_empty() {
            time::sleep(END_INTERVAL).await;
        }
    }

    /// Returns descriptions of the missing kinds for operators. Empty once the first sync is over.
    pub fn missing(&self) -> Vec<String> {
        if self.is_over.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let began = *self.began.lock();
        let timed_out = began.elapsed() >= TIMEOUT;
        let missing = match self.handle.first_lists() {
            None => vec!["the first lists".to_owned()],
            Some(lists) => {
                let missing = incomplete(&lists, timed_out);
                if missing.is_empty() && !timed_out { self.queued(&lists) } else { missing }
            }
        };
        if missing.is_empty() {
            self.is_over.store(true, Ordering::Relaxed);
        }
        missing
    }

    /// Returns the kinds that are still queued, or a note that CustomResourceDefinitions were listed a moment ago.
    fn queued(&self, lists: &[Status]) -> Vec<String> {
        let last = lists.iter().filter_map(|list| list.listed).max();
        let settled =
            last.and_then(|last| last.elapsed().ok()).is_none_or(|age| age >= self.settle_time);
        if settled {
            self.handle.pending().to_vec()
        } else {
            vec!["definitions of custom resources".to_owned()]
        }
    }
}

/// Returns the incomplete list/watches. If `timed_out`, returns none unless at least one of them has not failed yet.
fn incomplete(lists: &[Status], timed_out: bool) -> Vec<String> {
    let missing = || lists.iter().filter(|list| list.listed.is_none());
    // A list/watch that replaces one which was asked to wait has not failed itself.
    let has_failed = |list: &Status| list.failure.is_some() || list.phase == Phase::Waiting;
    if timed_out && missing().all(has_failed) {
        return Vec::new();
    }
    missing().map(describe).collect()
}

fn describe(list: &Status) -> String {
    let failure = list.failure.as_ref().map(|failure| format!(": {}", failure.message));
    describe_scope(list) + &failure.unwrap_or_default()
}

fn describe_scope(list: &Status) -> String {
    match &list.namespace {
        Some(namespace) => format!("{} in {namespace}", list.resource),
        None => list.resource.clone(),
    }
}

/// Logs the progress of the first sync, which started at `began`, until it is complete.
pub async fn log_first_lists(handle: PipelineHandle, began: Instant) {
    while time::timeout(LOG_INTERVAL, handle.ready()).await.is_err() {
        let lists = handle.status();
        let missing: Vec<String> =
            lists.iter().filter(|list| list.listed.is_none()).map(describe_scope).collect();
        tracing::info!(
            lists = lists.len(),
            complete = lists.len() - missing.len(),
            objects = objects(&lists),
            missing = some_names(&missing, MAX_NAMED),
            "First lists in progress"
        );
    }
    let lists = handle.status();
    tracing::info!(
        lists = lists.len(),
        complete = lists.iter().filter(|list| list.listed.is_some()).count(),
        objects = objects(&lists),
        took = ?began.elapsed(),
        "First lists complete"
    );
}

fn objects(lists: &[Status]) -> usize {
    lists.iter().map(|list| list.objects.max(list.coming)).sum()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::kube::follow::progress::Failure;

    fn list(resource: &str, listed: bool, failure: Option<&str>) -> Status {
        Status {
            resource: resource.to_owned(),
            namespace: (resource == "secrets").then(|| "a".to_owned()),
            phase: Phase::Listing,
            listed: listed.then(SystemTime::now),
            heard: None,
            encoding: None,
            objects: 0,
            coming: 0,
            failure: failure.map(|message| Failure {
                since: SystemTime::now(),
                at: SystemTime::now(),
                reason: None,
                message: message.to_owned(),
            }),
            given_up: false,
            stopped: false,
        }
    }

    #[test]
    fn unlistable_kinds_delay_readiness_up_to_the_timeout() {
        let (pods, nodes) = (list("pods", true, None), list("nodes", false, None));
        let secrets = list("secrets", false, Some("403 Forbidden"));
        let forbidden = "secrets in a: 403 Forbidden";
        for (lists, timed_out, want) in [
            (vec![pods.clone()], false, vec![]),
            (vec![pods.clone(), nodes.clone(), secrets.clone()], false, vec!["nodes", forbidden]),
            (vec![pods.clone(), nodes, secrets.clone()], true, vec!["nodes", forbidden]),
            (vec![pods.clone(), secrets.clone()], false, vec![forbidden]),
            (vec![pods, secrets], true, vec![]),
            (vec![], false, vec![]),
        ] {
            assert_eq!(incomplete(&lists, timed_out), want, "{timed_out}");
        }
    }
}
