//! The first sync: what of it is missing, how long that holds back what is served, and what the log says of it.
//!
//! A kind is missing until it was listed once. One that the server refuses, or that cannot be reached, holds back for a
//! while only; one whose list is on its way holds back for as long as that takes. When nothing holds back any
//! more, the first sync is over for good: later outages are the business of [`reconcile`](super::follow::reconcile).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::follow::progress::Status;
use super::pipeline::PipelineHandle;

/// How often the log says how far the first lists are.
const REPORT: Duration = Duration::from_secs(10);

/// List/watches that a line of the log names.
const NAMED: usize = 10;

/// Whether the first sync is over.
pub struct FirstSync {
    handle: PipelineHandle,
    began: Instant,
    patience: Option<Duration>,
    settle: Duration,
    over: AtomicBool,
}

impl FirstSync {
    /// The first sync of a pipeline that has just been started. After `patience` kinds that cannot be had do not hold back
    /// any more, `None` for never. `settle` after a list something more may be wanted because of it: definitions of custom
    /// resources make it so.
    #[must_use]
    pub fn new(handle: PipelineHandle, patience: Option<Duration>, settle: Duration) -> Self {
        Self { handle, began: Instant::now(), patience, settle, over: AtomicBool::new(false) }
    }

    /// What is still waited for, in words for an operator; nothing from the end of the first sync on.
    pub fn missing(&self) -> Vec<String> {
        if self.over.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let late = self.patience.is_some_and(|patience| self.began.elapsed() >= patience);
        let missing = match self.handle.first_lists() {
            None => vec!["the first lists".to_owned()],
            Some(lists) => {
                let missing = waited_for(&lists, late);
                if missing.is_empty() && !late { self.further(&lists) } else { missing }
            }
        };
        if missing.is_empty() {
            self.over.store(true, Ordering::Relaxed);
        }
        missing
    }
}

impl FirstSync {
    /// What is wanted beside complete lists: kinds that wait for their turn, or may still come to be wanted.
    fn further(&self, lists: &[Status]) -> Vec<String> {
        let last = lists.iter().filter_map(|list| list.listed).max();
        let settled =
            last.and_then(|last| last.elapsed().ok()).is_none_or(|age| age >= self.settle);
        if settled {
            self.handle.pending().to_vec()
        } else {
            vec!["definitions of custom resources".to_owned()]
        }
    }
}

/// Those of these list/watches that are waited for; when it is late, only if one of them may still succeed.
fn waited_for(lists: &[Status], late: bool) -> Vec<String> {
    let missing = || lists.iter().filter(|list| list.listed.is_none());
    if late && missing().all(|list| list.failure.is_some()) {
        return Vec::new();
    }
    missing().map(described).collect()
}

fn described(list: &Status) -> String {
    let failure = list.failure.as_ref().map(|failure| format!(": {}", failure.message));
    named(list) + &failure.unwrap_or_default()
}

fn named(list: &Status) -> String {
    match &list.namespace {
        Some(namespace) => format!("{} in {namespace}", list.resource),
        None => list.resource.clone(),
    }
}

/// Says in the log how far the first lists are, until they are complete.
pub async fn report(handle: PipelineHandle) {
    let began = Instant::now();
    while timeout(REPORT, handle.ready()).await.is_err() {
        let lists = handle.status();
        let missing: Vec<String> =
            lists.iter().filter(|list| list.listed.is_none()).map(named).collect();
        let more = missing.len().saturating_sub(NAMED);
        let and_more = if more > 0 { format!(" and {more} more") } else { String::new() };
        tracing::info!(
            lists = lists.len(),
            complete = lists.len() - missing.len(),
            objects = objects(&lists),
            missing = missing[..missing.len() - more].join(", ") + &and_more,
            "The first lists are on their way"
        );
    }
    let lists = handle.status();
    tracing::info!(
        lists = lists.len(),
        complete = lists.iter().filter(|list| list.listed.is_some()).count(),
        objects = objects(&lists),
        took = ?began.elapsed(),
        "The first lists are done"
    );
}

fn objects(lists: &[Status]) -> usize {
    lists.iter().map(|list| list.objects.max(list.coming)).sum()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::kube::follow::progress::{Failure, Phase};

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
    fn what_cannot_be_had_holds_back_for_a_while_only() {
        let (pods, nodes) = (list("pods", true, None), list("nodes", false, None));
        let secrets = list("secrets", false, Some("403 Forbidden"));
        let forbidden = "secrets in a: 403 Forbidden";
        for (lists, late, want) in [
            (vec![pods.clone()], false, vec![]),
            (vec![pods.clone(), nodes.clone(), secrets.clone()], false, vec!["nodes", forbidden]),
            (vec![pods.clone(), nodes, secrets.clone()], true, vec!["nodes", forbidden]),
            (vec![pods.clone(), secrets.clone()], false, vec![forbidden]),
            (vec![pods, secrets], true, vec![]),
            (vec![], false, vec![]),
        ] {
            assert_eq!(waited_for(&lists, late), want, "{late}");
        }
    }
}
