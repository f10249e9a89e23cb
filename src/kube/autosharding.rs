//! Determines the shard of a pod of a StatefulSet: the index is in the pod's name, the total is the number of replicas.
//!
//! The pod is read once for the name of its StatefulSet, which is then watched. [`resharding`](super::resharding) moves
//! from one shard assignment to the next.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::kube::api::{ListParams, WatchEvent, WatchParams};
use arc_swap::ArcSwap;
use futures_util::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::client::{Client, ClientError};
use super::follow::backoff::{Backoff, BackoffConfig, Failure};
use super::follow::journal::{Journal, Member};
use super::follow::retries::{Retries, Signals};
use super::lean_objects::{self, StatefulSet};
use super::shard::{self, Shard};
use crate::util::waiting;

/// The timeout that is requested for a watch: over a connection of its own, which nothing probes, it ends soon.
const WATCH_TIMEOUT: Duration = Duration::from_secs(240);
const OWN_WATCH_TIMEOUT: Duration = Duration::from_secs(36);
/// The timeout for the response headers of a watch, which the server can send at once.
const WATCH_ANSWER: Duration = Duration::from_secs(15);
/// The time after which an overdue watch is abandoned.
const WATCH_GRACE: Duration = Duration::from_secs(10);
/// The time without an event or a bookmark, which come once a minute, after which a watch is abandoned.
const SILENCE: Duration = Duration::from_secs(150);

/// The pod of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
}

/// The shard assignment according to the StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectedShard {
    /// The shard of this pod. It owns no objects if the pod's name has no number.
    pub shard: Shard,
    /// True if all replicas are ready, or if the StatefulSet does not report readiness.
    pub all_ready: bool,
}

/// Returns the shard of the pod with this number, and whether all pods of its StatefulSet are ready.
fn detect(set: &StatefulSet, ordinal: Option<i32>) -> DetectedShard {
    let total = i64::from(set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1));
    // A pod without a number owns no objects.
    let shard = Shard::new(ordinal.unwrap_or(-1), total);
    let ready = set.status.as_ref().and_then(|status| status.ready_replicas);
    let ready = i64::from(ready.unwrap_or_default());
    // Without a count of ready pods there is nothing to wait for.
    DetectedShard { shard, all_ready: ready == 0 || ready >= total }
}

async fn stateful_set_of(client: &Client, pod: &PodName) -> Result<String, ClientError> {
    let PodName { namespace, name } = pod;
    let pods = lean_objects::pods(client, namespace);
    let found = client.answer(pods.get(name)).await?;
    let is_it = |owner: &OwnerReference| {
        owner.api_version == "apps/v1"
            && owner.kind == "StatefulSet"
            && owner.controller == Some(true)
    };
    let mut owners = found.metadata.owner_references.into_iter().flatten();
    owners.find(is_it).map(|owner| owner.name).ok_or_else(|| ClientError::Setup {
        url: client.url().to_string(),
        reason: format!(
            "pod {namespace}/{name} does not belong to a StatefulSet; automatic sharding (--pod, --pod-namespace) needs one"
        ),
    })
}

/// The backoff between requests about sharding that fail. As for list/watches, a `Retry-After` of the server is obeyed.
pub(super) struct RequestBackoff {
    journal: Arc<Journal>,
    retries: Retries,
    own: Backoff,
}

impl RequestBackoff {
    /// Creates the state before any failure.
    pub(super) fn new() -> Self {
        let (journal, config) = (Arc::default(), BackoffConfig::default());
        let (retries, own) = (Retries::new(&config, &journal), Backoff::new(config));
        Self { journal, retries, own }
    }

    /// Waits after a failure.
    pub(super) async fn failed(&mut self, error: &ClientError) {
        let own = self.own.failed(Instant::now(), Failure::Transient, fastrand::f64());
        self.retries.wait(own, error.retry_after(), Signals::default(), false).await;
    }
}

pub(super) struct StatefulSetWatcher {
    pub(super) client: Arc<ArcSwap<Client>>,
    pub(super) pod: PodName,
    /// The name of the StatefulSet.
    pub(super) set: String,
    ordinal: Option<i32>,
    /// The current assignment.
    pub(super) detected: watch::Sender<DetectedShard>,
}

impl StatefulSetWatcher {
    /// Determines the shard of a pod.
    ///
    /// # Errors
    ///
    /// Returns an error if the pod or its StatefulSet cannot be read, or if the pod has no StatefulSet.
    pub(super) async fn new(
        client: Arc<ArcSwap<Client>>,
        pod: PodName,
    ) -> Result<Self, ClientError> {
        let now = client.load_full();
        let set = stateful_set_of(&now, &pod).await?;
        let sets = lean_objects::stateful_sets(&now, &pod.namespace);
        let found = now.answer(sets.get(&set)).await?;
        let ordinal = match shard::ordinal(&pod.name, &set) {
            Ok(ordinal) => Some(ordinal),
            Err(error) => {
                tracing::error!(%error, "This pod has no shard and exposes no objects");
                None
            }
        };
        let detected = watch::Sender::new(detect(&found, ordinal));
        Ok(Self { client, pod, set, ordinal, detected })
    }

    /// Watches for changes.
    pub(super) async fn run(self: Arc<Self>) {
        let mut backoff = RequestBackoff::new();
        // Like a list/watch, with a journal of its own: it does not count when all list/watches fail.
        let name = format!("statefulset {} in {}, for the shard", self.set, self.pod.namespace);
        let member = backoff.journal.register(name.into());
        loop {
            let begun = Instant::now();
            match self.follow(&member).await {
                // The end of a watch is normal, unless it ends within a second.
                Ok(()) if begun.elapsed() > Duration::from_secs(1) => backoff.own.succeeded(),
                Ok(()) => sleep(Duration::from_secs(1)).await,
                Err(error) => {
                    member.failed(error.failure_reason(), &error.to_string());
                    backoff.failed(&error).await;
                }
            }
        }
    }

    fn publish(&self, set: &StatefulSet) {
        waiting::publish(&self.detected, detect(set, self.ordinal));
    }

    /// Lists the StatefulSet and watches it until the watch ends.
    async fn follow(&self, member: &Member) -> Result<(), ClientError> {
        let client = self.client.load_full();
        let sets = lean_objects::stateful_sets(&client, &self.pod.namespace);
        let by_name = format!("metadata.name={}", self.set);
        let list = client.answer(sets.list(&ListParams::default().fields(&by_name))).await?;
        list.items.iter().for_each(|set| self.publish(set));
        member.works();
        let version = list.metadata.resource_version.unwrap_or_default();
        let limit = if client.shares_connections() { WATCH_TIMEOUT } else { OWN_WATCH_TIMEOUT };
        let seconds = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        let watch = WatchParams::default().fields(&by_name).timeout(seconds);
        let watching = async {
            let Ok(events) = timeout(WATCH_ANSWER, sets.watch(&watch, &version)).await else {
                return Ok(());
            };
            let mut events = pin!(events?);
            while let Ok(event) = timeout(SILENCE, events.try_next()).await {
                let Some(event) = event? else { break };
                match event {
                    WatchEvent::Added(set) | WatchEvent::Modified(set) => self.publish(&set),
                    WatchEvent::Error(status) => return Err(::kube::Error::Api(status)),
                    // After a deletion the last number remains the best guess.
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                }
            }
            Ok(())
        };
        let ended = timeout(limit + WATCH_GRACE, client.plain(watching)).await;
        ended.unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(index: i32, total: i64) -> DetectedShard {
        DetectedShard { shard: Shard::new(index, total), all_ready: true }
    }

    #[test]
    fn replicas_and_readiness() {
        for (text, ordinal, want) in [
            ("", Some(0), detected(0, 1)),
            (r#","spec":{"replicas":null}"#, Some(2), detected(2, 1)),
            (r#","spec":{"replicas":0}"#, Some(0), detected(0, 0)),
            (r#","spec":{"replicas":3},"status":{"readyReplicas":3}"#, None, detected(-1, 3)),
            (
                r#","spec":{"replicas":3},"status":{"readyReplicas":1}"#,
                Some(0),
                DetectedShard { all_ready: false, ..detected(0, 3) },
            ),
        ] {
            let object = format!(r#"{{"metadata":{{}}{text}}}"#);
            let set: StatefulSet = serde_json::from_str(&object).expect(text);
            assert_eq!(detect(&set, ordinal), want, "{text}");
        }
    }
}
