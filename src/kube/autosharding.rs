//! The shard of a pod of a StatefulSet: its number is in its name, how many there are says the StatefulSet.
//!
//! The pod is asked for its StatefulSet once, which is then watched. Who grows or shrinks with the others takes what it
//! gains before it leaves what it loses: between the two it has both, until the others can be expected to have theirs.
//! So no object is nobody's, as long as every pod gets that far within [`HOLD`] of the others; for that time some are
//! two pods'. Nothing here knows what a shard is used for.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::{Client, ClientError, Refusal};
use super::follow::backoff::{Backoff, BackoffConfig};
use super::shard::{self, Shard};

/// How long what was lost is kept after what was gained is there.
pub const HOLD: Duration = Duration::from_secs(5);

/// How long is waited for pods that are not ready yet.
const LONGEST_HOLD: Duration = Duration::from_secs(120);

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
        let follower = Follower { client, pod, set, own, sender };
        let task = tokio::spawn(follower.run()).abort_handle();
        Ok(Self { detected, task })
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
async fn get<T: for<'de> Deserialize<'de>>(client: &Client, path: &str) -> Result<T, String> {
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
                    let pause = backoff.failed(Instant::now().into_std(), false, fastrand::f64());
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

/// The way from one share to another: both, then the new one alone.
#[derive(Debug)]
pub struct Resharding {
    detected: Detected,
    /// What is being shown or on its way.
    share: Shard,
    /// Since when both are there.
    both_since: Option<Instant>,
}

impl Resharding {
    /// Begins with the share that was found.
    #[must_use]
    pub fn new(detected: Detected) -> Self {
        Self { detected, share: detected.shard, both_since: None }
    }

    /// What is to be shown now.
    #[must_use]
    pub fn share(&self) -> Shard {
        self.share
    }

    /// Something else was found. Whether something else is to be shown.
    pub fn found(&mut self, detected: Detected) -> bool {
        let before = self.share;
        if detected.shard != self.detected.shard {
            // From one way onto another: what is shown is still shown to whoever asked last.
            self.share = detected.shard.joined(self.detected.shard);
            self.both_since = None;
        }
        self.detected = detected;
        self.share != before
    }

    /// When [`Resharding::due`] has to be asked, `None` while there is nothing to wait for. `in_force` is whether
    /// everything that is to be shown is shown.
    pub fn wake_at(&mut self, in_force: bool, now: Instant) -> Option<Instant> {
        if self.share == self.detected.shard || !in_force {
            return None;
        }
        let since = *self.both_since.get_or_insert(now);
        Some(since + if self.detected.settled { HOLD } else { LONGEST_HOLD })
    }

    /// Leaves what was lost, if the time has come. Whether it has.
    pub fn due(&mut self, in_force: bool, now: Instant) -> bool {
        let due = self.wake_at(in_force, now).is_some_and(|at| now >= at);
        if due {
            self.share = self.detected.shard;
            self.both_since = None;
        }
        due
    }
}

/// Completes at a point in time, never without one.
pub async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
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

    #[test]
    fn what_is_lost_is_left_after_what_is_gained_is_there() {
        let start = Instant::now();
        let mut way = Resharding::new(detected(0, 2));
        assert!(!way.found(detected(0, 2)));
        assert_eq!(way.wake_at(true, start), None);
        assert!(way.found(detected(0, 3)));
        for uid in 0..500 {
            let uid = format!("uid-{uid}");
            let kept = Shard::new(0, 2).keeps(uid.as_bytes());
            assert_eq!(way.share().keeps(uid.as_bytes()), kept, "{uid}");
        }
        assert_eq!(way.wake_at(false, start), None, "the new is not there yet");
        assert_eq!(way.wake_at(true, start), Some(start + HOLD));
        assert!(!way.due(true, start + HOLD / 2));
        assert!(way.due(true, start + HOLD));
        assert_eq!(way.share(), Shard::new(0, 3));
        // A pod that is still to come is waited for.
        let unsettled = Detected { settled: false, ..detected(0, 4) };
        assert!(way.found(unsettled));
        assert_eq!(way.wake_at(true, start), Some(start + LONGEST_HOLD));
        assert!(!way.found(detected(0, 4)), "only its readiness has changed");
        assert!(way.due(true, start + HOLD));
        assert_eq!(way.share(), Shard::new(0, 4));
    }
}
