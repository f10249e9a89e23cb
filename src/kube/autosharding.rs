//! The shard of a pod of a StatefulSet: its number is in its name, how many there are says the StatefulSet.
//!
//! The pod is asked for its StatefulSet once, which is then watched. Nothing here knows what a shard is used for; how
//! one is left for another is the matter of [`resharding`](super::resharding).

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::client::{Client, ClientError, Refusal};
use super::follow::backoff::{Backoff, BackoffConfig, Failure};
use super::shard::{self, Shard};

/// How long a watch is asked to last, and how much longer it may at most.
const WATCH: (u64, Duration) = (240, Duration::from_secs(30));

/// What one event may have in bytes; the API server takes no object half as large.
const LARGEST_EVENT: usize = 4 << 20;

/// Which pod this process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What is known of the StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detected {
    /// The share of this pod; that of nobody when its name has no number.
    pub shard: Shard,
    /// Whether all pods that there should be are ready, as far as anybody says.
    pub settled: bool,
}

/// Follows the StatefulSet of a pod. Dropping it ends that.
pub struct Autosharding {
    detected: watch::Receiver<Detected>,
    /// The name of the StatefulSet.
    pub(super) set: String,
    task: AbortHandle,
}

impl Drop for Autosharding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    owner_references: Vec<Owner>,
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    controller: Option<bool>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct StatefulSet {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Spec {
    replicas: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    ready_replicas: i64,
}

#[derive(Deserialize)]
struct List {
    metadata: Metadata,
    #[serde(default)]
    items: Vec<StatefulSet>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}

impl StatefulSet {
    fn detected(&self, own: Option<i32>) -> Detected {
        let total = self.spec.replicas.unwrap_or(1);
        // Nobody's number, where the name of the pod has none.
        let shard = Shard::new(own.unwrap_or(-1), total);
        let ready = self.status.ready_replicas;
        // Where nobody counts ready pods there is nothing to wait for.
        Detected { shard, settled: ready == 0 || ready >= total }
    }
}

impl Autosharding {
    /// Finds out the shard of a pod, and follows it from here on, with the client that is the current one then.
    ///
    /// # Errors
    ///
    /// When the pod or its StatefulSet cannot be asked for, or it has none.
    pub async fn start(client: Arc<ArcSwap<Client>>, pod: PodName) -> Result<Self, ClientError> {
        let now = client.load_full();
        let place = |reason: String| ClientError::Setup { url: now.url().to_string(), reason };
        let set = stateful_set_of(&now, &pod).await.map_err(place)?;
        let path = format!("/apis/apps/v1/namespaces/{}/statefulsets/{set}", pod.namespace);
        let found = get::<StatefulSet>(&now, &path).await.map_err(place)?;
        let own = match shard::ordinal(&pod.name, &set) {
            Ok(own) => Some(own),
            Err(error) => {
                tracing::error!(%error, "this pod has no shard, and shows nothing");
                None
            }
        };
        let (sender, detected) = watch::channel(found.detected(own));
        let follower = Follower { client, pod, set: set.clone(), own, sender };
        let task = tokio::spawn(follower.run()).abort_handle();
        Ok(Self { detected, set, task })
    }

    /// What is known now, and of every change from here on.
    pub fn detected(&self) -> watch::Receiver<Detected> {
        self.detected.clone()
    }
}

async fn stateful_set_of(client: &Client, pod: &PodName) -> Result<String, String> {
    let PodName { namespace, name } = pod;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let found: Pod = get(client, &path).await?;
    let is_it = |owner: &&Owner| {
        owner.api_version == "apps/v1"
            && owner.kind == "StatefulSet"
            && owner.controller == Some(true)
    };
    let owner = found.metadata.owner_references.iter().find(is_it);
    owner.map(|owner| owner.name.clone()).ok_or_else(|| {
        format!(
            "pod {namespace}/{name} is not of a StatefulSet; automatic sharding (--pod, --pod-namespace) needs one"
        )
    })
}

/// An object or a list, as JSON.
pub(super) async fn get<T: for<'de> Deserialize<'de>>(
    client: &Client,
    path: &str,
) -> Result<T, String> {
    let body = client.fetch(path).await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&body)
        .map_err(|error| format!("{path}: the answer cannot be read: {error}"))
}

struct Follower {
    client: Arc<ArcSwap<Client>>,
    pod: PodName,
    set: String,
    own: Option<i32>,
    sender: watch::Sender<Detected>,
}

impl Follower {
    async fn run(self) {
        let mut backoff = Backoff::new(BackoffConfig::default());
        loop {
            let begun = Instant::now();
            match self.follow().await {
                // A watch ends some time, which is no failure, unless it does so at once.
                Ok(()) if begun.elapsed() > Duration::from_secs(1) => backoff.succeeded(),
                Ok(()) => sleep(Duration::from_secs(1)).await,
                Err(error) => {
                    let pause = backoff.failed(Instant::now(), Failure::Passing, fastrand::f64());
                    tracing::warn!(
                        namespace = self.pod.namespace,
                        stateful_set = self.set,
                        error,
                        retry_in = ?pause,
                        "cannot follow the StatefulSet that says how many shards there are, the last number stays"
                    );
                    sleep(pause).await;
                }
            }
        }
    }

    fn tell(&self, set: &StatefulSet) {
        let detected = set.detected(self.own);
        self.sender.send_if_modified(|known| {
            let changed = *known != detected;
            *known = detected;
            changed
        });
    }

    /// Lists the StatefulSet and watches it until the watch ends.
    async fn follow(&self) -> Result<(), String> {
        let client = self.client.load_full();
        let path = format!(
            "/apis/apps/v1/namespaces/{}/statefulsets?fieldSelector=metadata.name%3D{}",
            self.pod.namespace, self.set
        );
        let list: List = get(&client, &path).await?;
        list.items.iter().for_each(|set| self.tell(set));
        let path = format!(
            "{path}&watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            list.metadata.resource_version, WATCH.0
        );
        let watching = async {
            let response = client.get(&path, "application/json", None).await?;
            if !response.status().is_success() {
                let Refusal { code, message, .. } = Refusal::read(response).await;
                return Err(format!("the API server answers {code}: {message}"));
            }
            let mut body = response.into_body();
            let mut lines = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| error.to_string())?;
                lines.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = lines.drain(..=end).collect();
                    self.event(&line)?;
                }
                if lines.len() > LARGEST_EVENT {
                    return Err(format!("an event of more than {LARGEST_EVENT} bytes"));
                }
            }
            Ok(())
        };
        let longest = Duration::from_secs(WATCH.0) + WATCH.1;
        timeout(longest, watching).await.unwrap_or(Ok(()))
    }

    fn event(&self, line: &[u8]) -> Result<(), String> {
        let unread = |error: serde_json::Error| format!("an event cannot be read: {error}");
        let event: Event = serde_json::from_slice(line).map_err(unread)?;
        match event.kind.as_str() {
            "ADDED" | "MODIFIED" => {
                let set: StatefulSet = serde_json::from_value(event.object).map_err(unread)?;
                self.tell(&set);
                Ok(())
            }
            "ERROR" => Err(format!("the watch failed: {}", event.object)),
            // Without it the last number is as good as any.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(index: i32, total: i64) -> Detected {
        Detected { shard: Shard::new(index, total), settled: true }
    }

    #[test]
    fn replicas_and_readiness() {
        for (text, own, want) in [
            ("{}", Some(0), detected(0, 1)),
            (r#"{"spec":{"replicas":null}}"#, Some(2), detected(2, 1)),
            (r#"{"spec":{"replicas":0}}"#, Some(0), detected(0, 0)),
            (r#"{"spec":{"replicas":3},"status":{"readyReplicas":3}}"#, None, detected(-1, 3)),
            (
                r#"{"spec":{"replicas":3},"status":{"readyReplicas":1}}"#,
                Some(0),
                Detected { settled: false, ..detected(0, 3) },
            ),
        ] {
            let set: StatefulSet = serde_json::from_str(text).expect(text);
            assert_eq!(set.detected(own), want, "{text}");
        }
    }
}
