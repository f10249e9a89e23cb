//! How far the other pods of a StatefulSet are on the way to another share.
//!
//! Each pod says so among its own metrics. The API server is asked where the others are, which needs no more rights than
//! finding the pod of this process; nothing is written. What follows from the answers is the matter of
//! `resharding`.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::autosharding::get;
use super::client::Client;

/// The name of the series by which a pod says how far it is.
const SERIES: &str = "kstatd_kubernetes_shard_stage";

/// What is asked for: that series alone.
const PATH: &str = "/metrics?name%5B%5D=kstatd_kubernetes_shard_stage";

/// How long an answer may take.
const ANSWER: Duration = Duration::from_millis(500);

/// Between two rounds, while somebody answers and while nobody does.
const PAUSES: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(500)];

/// How many requests a second are sent to others at most, so long as a round does not take longer than the longer pause.
const REQUESTS: u32 = 400;

/// Between two questions to the API server where a pod is that was somewhere and does not answer there.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(10);

/// Between two questions where a pod is that is nowhere yet, times the square of the number of pods that are asked for:
/// so all together ask as often as one does. Pods that heard of a new one at moments further apart than the longest of
/// these would not show what they gained together.
const LOOK_UP: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(4)];

/// How long after one another the API server is asked where one of so many pods is that is nowhere yet.
fn look_up(pods: usize) -> Duration {
    let [shortest, longest] = LOOK_UP;
    let pods = u32::try_from(pods).unwrap_or(u32::MAX);
    shortest.saturating_mul(pods.saturating_mul(pods)).min(longest)
}

/// How far a pod is, as the others see it.
pub(super) mod level {
    /// It starts, and shows what it has or nothing.
    pub(crate) const STARTING: i64 = -1;
    /// It does not follow all that it gains, or belongs to another number of shards.
    pub(crate) const BEHIND: i64 = 0;
    /// It follows all that it gains.
    pub(crate) const PREPARED: i64 = 1;
    /// It shows what it gained.
    pub(crate) const SHOWN: i64 = 2;
    /// It does not show what it lost.
    pub(crate) const DONE: i64 = 3;
}

/// What was heard in a round: how far each of the others is, `None` for who cannot be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Levels {
    asked: bool,
    levels: Vec<Option<i64>>,
}

impl Levels {
    /// A round in which these were the answers.
    pub(super) fn of(levels: Vec<Option<i64>>) -> Self {
        Self { asked: true, levels }
    }

    /// What each of the others said, for the log.
    pub(super) fn levels(&self) -> &[Option<i64>] {
        &self.levels
    }

    /// Whether there was a round at all.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Whether everybody is that far. Nobody is everybody only where there is no other pod.
    pub(super) fn are_all(&self, level: i64) -> bool {
        self.asked && self.levels.iter().all(|one| one.is_some_and(|one| one >= level))
    }

    /// Whether one that answers is not that far.
    pub(super) fn is_someone_below(&self, level: i64) -> bool {
        self.levels.iter().flatten().any(|&one| one < level)
    }

    /// Whether one that answers is on its way.
    pub(super) fn is_someone_waiting(&self) -> bool {
        self.levels.iter().flatten().any(|one| (level::BEHIND..level::DONE).contains(one))
    }
}

/// Gives the certificate and key that our own listeners show now, which those of all pods share.
pub type OwnIdentity = Arc<
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Arc<CertifiedKey>, String>> + Send>>
        + Send
        + Sync,
>;

/// How the telemetry listeners of the others are asked.
#[derive(Clone)]
pub struct Asking {
    /// Their port.
    pub port: u16,
    /// Over TLS, if they speak it: only who shows our own certificate is asked.
    pub identity: Option<OwnIdentity>,
}

impl Asking {
    async fn client(&self, ip: IpAddr) -> Option<Client> {
        let identity = match &self.identity {
            Some(identity) => Some(identity().await.ok()?),
            None => None,
        };
        Client::of_peer(SocketAddr::new(ip, self.port), identity.as_ref()).ok()
    }
}

/// Asks the others, again and again. Dropping it ends that.
pub(super) struct Peers {
    total: i64,
    heard: watch::Receiver<Levels>,
    task: AbortHandle,
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peers {
    /// Asks the pods of these names how far they are on the way to `total` shards.
    pub(super) fn ask(
        client: Arc<ArcSwap<Client>>,
        namespace: String,
        names: Vec<String>,
        asking: &Asking,
        total: i64,
    ) -> Self {
        let (sender, heard) = watch::channel(Levels::default());
        let look_up = look_up(names.len());
        let peer = |(number, name)| {
            let (address, looked_up, client) = (None, None, None);
            let asking = asking.clone();
            Peer { number, name, asking, address, looked_up, look_up, client }
        };
        let peers = names.into_iter().enumerate().map(peer).collect();
        let task = tokio::spawn(ask(client, namespace, peers, total, sender)).abort_handle();
        Self { total, heard, task }
    }

    /// The number of shards that they are asked about.
    pub(super) fn total(&self) -> i64 {
        self.total
    }

    /// What was heard last.
    pub(super) fn latest(&mut self) -> Levels {
        self.heard.borrow_and_update().clone()
    }

    /// Completes when that has changed.
    pub(super) async fn changed(&mut self) {
        if self.heard.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn ask(
    client: Arc<ArcSwap<Client>>,
    namespace: String,
    mut peers: Vec<Peer>,
    total: i64,
    heard: watch::Sender<Levels>,
) {
    let (namespace, pods): (Arc<str>, usize) = (namespace.into(), peers.len());
    loop {
        let mut answers = JoinSet::new();
        for mut peer in peers.drain(..) {
            let (client, namespace) = (client.load_full(), Arc::clone(&namespace));
            answers.spawn(async move {
                let level = timeout(ANSWER, peer.level(&client, &namespace, total)).await;
                (peer, level.ok().flatten())
            });
        }
        let mut levels = vec![None; pods];
        while let Some(answer) = answers.join_next().await {
            // One whose task has a fault is not asked again, nor is it taken for one that answers.
            if let Ok((peer, level)) = answer {
                levels[peer.number] = level;
                peers.push(peer);
            }
        }
        let [often, seldom] = PAUSES;
        let crowded = Duration::from_secs(1) * u32::try_from(pods).unwrap_or(u32::MAX) / REQUESTS;
        let answered = levels.iter().any(Option::is_some);
        let pause = if answered { crowded.clamp(often, seldom) } else { seldom };
        let levels = Levels::of(levels);
        heard.send_if_modified(|known| {
            let differs = *known != levels;
            *known = levels;
            differs
        });
        sleep(pause).await;
    }
}

/// Another pod.
struct Peer {
    /// Its place among the answers.
    number: usize,
    name: String,
    asking: Asking,
    /// Where it was when the API server was asked last.
    address: Option<IpAddr>,
    /// When that was.
    looked_up: Option<Instant>,
    /// How long after that it is asked again, while there is no address.
    look_up: Duration,
    /// What has had an answer of it the last time.
    client: Option<Client>,
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default, rename = "podIP")]
    pod_ip: String,
}

impl Peer {
    /// How far it is, unless it cannot be asked. It may be dropped at any time.
    async fn level(&mut self, api: &Client, namespace: &str, total: i64) -> Option<i64> {
        // One that did not answer may be elsewhere.
        let known = self.client.take();
        let pause = if self.address.is_some() { LOOK_UP_AGAIN } else { self.look_up };
        if known.is_none() && self.looked_up.is_none_or(|last| last.elapsed() >= pause) {
            self.looked_up = Some(Instant::now());
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}", self.name);
            if let Ok(Pod { status }) = get::<Pod>(api, &path).await {
                self.address = status.pod_ip.parse().ok();
            }
        }
        let client = match known {
            Some(known) => known,
            None => self.asking.client(self.address?).await?,
        };
        let body = client.fetch(PATH).await.ok()?;
        self.client = Some(client);
        read(std::str::from_utf8(&body).ok()?, total)
    }
}

/// What a pod says about the way to `total` shards.
fn read(metrics: &str, total: i64) -> Option<i64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(SERIES)?.strip_prefix('{'))?;
    let (labels, value) = line.rsplit_once("} ")?;
    if labels == format!("total=\"{total}\"") {
        value.parse().ok()
    } else {
        // Which it has not heard of.
        Some(level::BEHIND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pod_says() {
        let metrics = "# HELP x y\n# TYPE kstatd_kubernetes_shard_stage gauge\n\
                       kstatd_kubernetes_shard_stage{total=\"3\"} 2\n";
        assert_eq!(read(metrics, 3), Some(2));
        assert_eq!(read(metrics, 2), Some(0));
        assert_eq!(read("", 3), None);
        assert_eq!(read("kstatd_kubernetes_shard_stage{total=\"3\"} x\n", 3), None);
    }

    #[test]
    fn the_api_server_is_asked_no_more_by_many() {
        let pauses = [1, 2, 3, 9, 127].map(look_up);
        assert_eq!(pauses, [50, 200, 450, 4000, 4000].map(Duration::from_millis));
    }

    #[test]
    fn nobody_is_everybody() {
        assert!(Levels::of(Vec::new()).are_all(3) && !Levels::default().are_all(1));
        assert!(!Levels::of(vec![Some(3), None]).are_all(1));
        assert!(!Levels::of(vec![None]).is_someone_below(3));
    }
}
