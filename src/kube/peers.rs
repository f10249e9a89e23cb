//! Polls the other pods of a StatefulSet for their stage of a resharding.
//!
//! Each pod reports its stage in its own metrics. The addresses of pods come from the API server, with the permissions
//! that finding the own pod needs anyway; nothing is written. `resharding` acts on the stages. Pods of other releases
//! understand each other by the name of the metric, its label and its values: a pod with anything else counts as one that
//! does not answer, so steps follow fixed times.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::client::Client;
use super::lean_objects;
use crate::telemetry::kube::SHARD_STAGE_QUERY;
use crate::util::waiting::{self, publish};

/// The metric that reports the stage of a pod.
const SERIES: &str = "kstatd_kubernetes_shard_stage";

/// The maximum size of an answer in bytes: another program may send all of its own metrics.
const MAX_ANSWER: usize = 1 << 20;

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The shortest pause between two polls if a pod has answered.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The pause between two polls if no pod has answered.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum rate of requests per second. It never extends the pause beyond [`IDLE_POLL_INTERVAL`].
const MAX_REQUEST_RATE: u32 = 400;

/// The interval between two lookups of a pod that does not answer at its last address.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// The shortest interval between two lookups of a pod without an address. It is multiplied by the square of the number of
/// pods to look up, so that all pods together send as many requests as one would.
const MIN_LOOKUP_INTERVAL: Duration = Duration::from_millis(50);

/// The longest interval between two lookups of the only pod without an address; with many such pods it is up to
/// [`time_to_ask`]. It bounds how far apart two pods can learn of a new pod, and so the time between their steps.
const MAX_LOOKUP_INTERVAL: Duration = Duration::from_secs(4);

/// The maximum rate of lookups per second of all pods together. All of them begin at the same moment, and each looks up all
/// others.
const MAX_LOOKUP_RATE: u32 = 1_000;

/// Returns the interval between two lookups of each of `pods` pods without an address.
fn lookup_interval(pods: usize) -> Duration {
    let pods = u32::try_from(pods).unwrap_or(u32::MAX);
    MIN_LOOKUP_INTERVAL.saturating_mul(pods.saturating_mul(pods)).min(MAX_LOOKUP_INTERVAL)
}

/// The longest time from one poll to the next.
const MAX_POLL_CYCLE: Duration = TIMEOUT.saturating_add(IDLE_POLL_INTERVAL);

/// Returns the time after which each of `total` pods has asked all others, even if all of its polls last long.
pub(super) fn time_to_ask(total: i64) -> Duration {
    let total = u32::try_from(total).unwrap_or_default();
    lookup_rate_interval(total).saturating_mul(total) + MAX_POLL_CYCLE
}

/// Returns the interval between the lookups of one of `total` pods, so that all of them keep to [`MAX_LOOKUP_RATE`].
fn lookup_rate_interval(total: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(total) / MAX_LOOKUP_RATE
}

/// Limits the lookups of one pod, so that all pods together keep to [`MAX_LOOKUP_RATE`].
struct LookupLimiter {
    interval: Duration,
    /// The time of the next lookup.
    next: Instant,
}

impl LookupLimiter {
    /// Creates the limiter of a pod with `pods` other pods.
    fn new(pods: usize, now: Instant) -> Self {
        let total = u32::try_from(pods).unwrap_or(u32::MAX).saturating_add(1);
        let interval = lookup_rate_interval(total);
        // The first poll has as many lookups as later ones.
        Self { interval, next: now.checked_sub(IDLE_POLL_INTERVAL).unwrap_or(now) }
    }

    /// Returns whether a lookup may begin now, and counts it. What the last poll did not use is lost.
    fn acquire(&mut self, now: Instant) -> bool {
        let next = self.next.max(now.checked_sub(MAX_POLL_CYCLE).unwrap_or(now));
        let is_due = next <= now;
        self.next = if is_due { next + self.interval } else { next };
        is_due
    }

    /// Selects the pods to look up now: those that have waited longest. Of those that were never looked up, the lowest numbers
    /// come first, because they run already if the StatefulSet grows.
    fn select(&mut self, peers: &mut [Peer], now: Instant) {
        let mut due: Vec<&mut Peer> =
            peers.iter_mut().filter(|peer| peer.is_lookup_due(now)).collect();
        due.sort_unstable_by_key(|peer| (peer.last_lookup, peer.number));
        due.into_iter().for_each(|peer| peer.may_look_up = self.acquire(now));
    }
}

/// The stages that pods report, in order.
pub(super) mod peer_stage {
    /// The pod is starting and exposes what it has, or nothing.
    pub(crate) const STARTING: i64 = -1;
    /// The pod has not listed all gained objects yet, or has another number of shards.
    pub(crate) const BEHIND: i64 = 0;
    /// The pod has listed all gained objects.
    pub(crate) const PREPARED: i64 = 1;
    /// The pod exposes its gained objects.
    pub(crate) const SHOWN: i64 = 2;
    /// The pod has dropped its lost objects.
    pub(crate) const DONE: i64 = 3;
    /// The stages that this release knows.
    pub(super) const KNOWN: std::ops::RangeInclusive<i64> = STARTING..=DONE;
}

/// The result of one poll: the stage of each of the other pods, `None` for a pod that did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PeerStages {
    /// Each pod has been asked. Before, the absence of an answer says nothing.
    all_asked: bool,
    stages: Vec<Option<i64>>,
}

impl PeerStages {
    /// Returns the result of a poll of all pods, with these answers.
    pub(super) fn from_answers(stages: Vec<Option<i64>>) -> Self {
        Self { all_asked: true, stages }
    }

    /// Returns the stages of the other pods, for the log.
    pub(super) fn stages(&self) -> &[Option<i64>] {
        &self.stages
    }

    /// Returns true if a pod has answered, or all have been asked.
    pub(super) fn has_polled(&self) -> bool {
        self.all_asked || self.stages.iter().any(Option::is_some)
    }

    /// Returns true if, according to polls, all other pods have reached `stage`. Also true if there are no other pods.
    pub(super) fn have_all_reached(&self, stage: i64) -> bool {
        self.all_asked && self.stages.iter().all(|one| one.is_some_and(|one| one >= stage))
    }

    /// Returns true if a pod that answers, or may do so when it is asked, has not reached `stage`.
    pub(super) fn may_any_be_below(&self, stage: i64) -> bool {
        !self.all_asked || self.stages.iter().flatten().any(|&one| one < stage)
    }

    /// Returns true if a pod that answers is in a transition.
    pub(super) fn is_any_in_transition(&self) -> bool {
        self.stages.iter().flatten().any(|one| (peer_stage::BEHIND..peer_stage::DONE).contains(one))
    }
}

/// Returns the current certificate and key of the own listeners, which all pods share; `None` if they cannot be used.
pub type ListenerIdentity =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<Arc<CertifiedKey>>> + Send>> + Send + Sync>;

/// The way to connect to the telemetry listeners of other pods.
#[derive(Clone)]
pub struct PeerOptions {
    /// The port of the telemetry listener.
    pub port: u16,
    /// Connects over TLS and accepts only servers with the own certificate. `None` for plain HTTP.
    pub identity: Option<ListenerIdentity>,
}

impl PeerOptions {
    /// Returns true if other pods are polled in the same way.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_identity = match (&self.identity, &other.identity) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        self.port == other.port && is_same_identity
    }

    async fn client(&self, ip: IpAddr) -> Option<Client> {
        let identity = match &self.identity {
            Some(identity) => Some(identity().await?),
            None => None,
        };
        Client::of_peer(SocketAddr::new(ip, self.port), identity.as_ref()).ok()
    }
}

/// Polls other pods periodically. Stops when dropped.
pub(super) struct Peers {
    total: i64,
    received: watch::Receiver<PeerStages>,
    _task: JoinSet<()>,
}

impl Peers {
    /// Starts to poll pods for their stage of a resharding to `total` shards.
    pub(super) fn poll(
        client: Arc<ArcSwap<Client>>,
        namespace: String,
        names: Vec<String>,
        options: &PeerOptions,
        total: i64,
    ) -> Self {
        let (sender, received) = watch::channel(PeerStages::default());
        let lookup_interval = lookup_interval(names.len());
        let peer = |(number, name)| Peer {
            number,
            name,
            options: options.clone(),
            address: None,
            last_lookup: None,
            lookup_interval,
            may_look_up: false,
            client: None,
            is_reported: false,
        };
        let peers = names.into_iter().enumerate().map(peer).collect();
        let mut task = JoinSet::new();
        task.spawn(poll_peers(client, namespace, peers, total, sender));
        Self { total, received, _task: task }
    }

    /// Returns the number of shards that the pods are polled for.
    pub(super) fn total(&self) -> i64 {
        self.total
    }

    /// Returns the result of the latest poll.
    pub(super) fn latest(&mut self) -> PeerStages {
        self.received.borrow_and_update().clone()
    }

    /// Completes when the result has changed.
    pub(super) async fn changed(&mut self) {
        waiting::changed(&mut self.received).await;
    }
}

async fn poll_peers(
    client: Arc<ArcSwap<Client>>,
    namespace: String,
    mut peers: Vec<Peer>,
    total: i64,
    received: watch::Sender<PeerStages>,
) {
    let (namespace, pods): (Arc<str>, usize) = (namespace.into(), peers.len());
    let mut limiter = LookupLimiter::new(pods, Instant::now());
    loop {
        limiter.select(&mut peers, Instant::now());
        let mut answers = JoinSet::new();
        for mut peer in peers.drain(..) {
            let (client, namespace) = (client.load_full(), Arc::clone(&namespace));
            answers.spawn(async move {
                let stage = timeout(TIMEOUT, peer.stage(&client, &namespace, total)).await;
                (peer, stage.ok().flatten())
            });
        }
        let mut stages = vec![None; pods];
        while let Some(answer) = answers.join_next().await {
            // A pod whose task panicked is not polled again and counts as not answering.
            if let Ok((peer, stage)) = answer {
                stages[peer.number] = stage;
                peers.push(peer);
            }
        }
        let min_pause =
            Duration::from_secs(1) * u32::try_from(pods).unwrap_or(u32::MAX) / MAX_REQUEST_RATE;
        let answered = stages.iter().any(Option::is_some);
        let pause = if answered {
            min_pause.clamp(POLL_INTERVAL, IDLE_POLL_INTERVAL)
        } else {
            IDLE_POLL_INTERVAL
        };
        let all_asked = peers.iter().all(|peer| peer.last_lookup.is_some());
        publish(&received, PeerStages { all_asked, stages });
        sleep(pause).await;
    }
}

/// Another pod of the StatefulSet.
struct Peer {
    /// The index in the result of a poll.
    number: usize,
    name: String,
    options: PeerOptions,
    /// The address from the last lookup.
    address: Option<IpAddr>,
    /// The time of the last lookup.
    last_lookup: Option<Instant>,
    /// The interval between two lookups without an address.
    lookup_interval: Duration,
    /// It may be looked up in this poll.
    may_look_up: bool,
    /// The client of the last successful request.
    client: Option<Client>,
    /// True once an unknown answer was logged.
    is_reported: bool,
}

impl Peer {
    /// Returns whether its address has to be looked up: it may have a new one if it does not answer.
    fn is_lookup_due(&self, now: Instant) -> bool {
        let pause = if self.address.is_some() { REFRESH_INTERVAL } else { self.lookup_interval };
        self.client.is_none()
            && self.last_lookup.is_none_or(|last| now.duration_since(last) >= pause)
    }

    /// Returns the stage of the pod, or `None` if it cannot be polled. Cancel safe.
    async fn stage(&mut self, api: &Client, namespace: &str, total: i64) -> Option<i64> {
        let known = self.client.take();
        if std::mem::take(&mut self.may_look_up) {
            self.last_lookup = Some(Instant::now());
            let pods = lean_objects::pods(api, namespace);
            if let Ok(pod) = api.answer(pods.get(&self.name)).await {
                self.address = pod.status.and_then(|status| status.pod_ip?.parse().ok());
            }
        }
        let client = match known {
            Some(known) => known,
            None => self.options.client(self.address?).await?,
        };
        let body =
            client.fetch_bytes(&format!("/metrics?{SHARD_STAGE_QUERY}"), MAX_ANSWER).await.ok()?;
        self.client = Some(client);
        let stage =
            std::str::from_utf8(&body).ok().and_then(|text| stage_from_metrics(text, total));
        if stage.is_none() && !std::mem::replace(&mut self.is_reported, true) {
            let pod = self.name.as_str();
            tracing::warn!(
                pod,
                "A pod reports no stage of resharding that this release knows, so shards change at fixed times"
            );
        }
        stage
    }
}

/// Reads the stage of a resharding to `total` shards from a pod's metrics; `None` if it is not one that this release
/// knows.
pub(crate) fn stage_from_metrics(metrics: &str, total: i64) -> Option<i64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(SERIES)?.strip_prefix('{'))?;
    let (label, value) = line.rsplit_once("} ")?;
    let reported: i64 = label.strip_prefix("total=\"")?.strip_suffix('"')?.parse().ok()?;
    let stage: i64 = value.parse().ok()?;
    // A pod with another total has not observed this number of shards yet.
    let stage = if reported == total { stage } else { peer_stage::BEHIND };
    peer_stage::KNOWN.contains(&stage).then_some(stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_is_read_from_metrics() {
        let metrics = "# HELP x y\n# TYPE kstatd_kubernetes_shard_stage gauge\n\
                       kstatd_kubernetes_shard_stage{total=\"3\"} 2\n";
        assert_eq!(stage_from_metrics(metrics, 3), Some(2));
        assert_eq!(stage_from_metrics(metrics, 2), Some(0));
        assert_eq!(stage_from_metrics("", 3), None);
        for unknown in [
            "{total=\"3\"} x",
            "{total=\"3\"} 4",
            "{total=\"3\"} -2",
            "{total=\"3\",version=\"2\"} 1",
            "{version=\"2\"} 1",
            "{total=\"three\"} 1",
            " 1",
        ] {
            let metrics = format!("kstatd_kubernetes_shard_stage{unknown}\n");
            assert_eq!(stage_from_metrics(&metrics, 3), None, "{unknown}");
        }
    }

    #[test]
    fn lookups_do_not_grow_with_the_number_of_pods() {
        let pauses = [1, 2, 3, 9, 127].map(lookup_interval);
        assert_eq!(pauses, [50, 200, 450, 4000, 4000].map(Duration::from_millis));
    }

    #[test]
    fn lookups_of_all_pods_together_are_limited() {
        let start = Instant::now();
        for (pods, pause) in [(2, 500), (16, 25), (40, 500), (128, 25), (128, 320), (128, 500)] {
            let mut limiter = LookupLimiter::new(pods - 1, start);
            let polls =
                (0..10_000 / pause).map(|poll| start + poll * Duration::from_millis(pause.into()));
            let taken: usize = polls
                .map(|now| {
                    std::iter::repeat_with(|| limiter.acquire(now)).take_while(|may| *may).count()
                })
                .sum();
            let all = taken * pods;
            assert!((9_500..=10_600).contains(&all), "{all} of {pods} pods, every {pause} ms");
        }
    }

    #[test]
    fn all_pods_are_asked_in_time() {
        let start = Instant::now();
        for total in 2..=128 {
            for cycle in [POLL_INTERVAL, IDLE_POLL_INTERVAL, MAX_POLL_CYCLE] {
                let mut limiter = LookupLimiter::new(total - 1, start);
                let (mut asked, mut now) = (0, start);
                loop {
                    asked += std::iter::repeat_with(|| limiter.acquire(now))
                        .take_while(|may| *may)
                        .count();
                    if asked >= total - 1 {
                        break;
                    }
                    now += cycle;
                }
                let (took, bound) = (now + TIMEOUT - start, time_to_ask(total as i64));
                assert!(took <= bound, "{took:?} for {total} pods, one poll in {cycle:?}");
            }
        }
    }

    #[test]
    fn missing_answers_are_not_agreement() {
        assert!(
            PeerStages::from_answers(Vec::new()).have_all_reached(3)
                && !PeerStages::default().have_all_reached(1)
        );
        assert!(!PeerStages::from_answers(vec![Some(3), None]).have_all_reached(1));
        assert!(!PeerStages::from_answers(vec![None]).may_any_be_below(3));
        assert!(PeerStages::default().may_any_be_below(3));
    }

    /// A reload that changes nothing about the other pods keeps what they have answered.
    #[test]
    fn the_same_options_are_recognised() {
        let identity = |number: u8| -> ListenerIdentity {
            Arc::new(move || Box::pin(async move { (number > 9).then(|| unreachable!()) }))
        };
        let (one, other) = (identity(1), identity(2));
        let options = |port, identity: Option<&ListenerIdentity>| PeerOptions {
            port,
            identity: identity.cloned(),
        };
        assert!(options(1, None).is_same(&options(1, None)));
        assert!(options(1, Some(&one)).is_same(&options(1, Some(&one))));
        for changed in [options(2, Some(&one)), options(1, Some(&other)), options(1, None)] {
            assert!(!options(1, Some(&one)).is_same(&changed));
        }
    }
}
