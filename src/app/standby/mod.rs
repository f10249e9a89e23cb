//! Replicas that hold the full state and of which exactly one exposes it.
//!
//! Each replica polls the telemetry listeners of the others ([`polling`]) and answers their polls ([`answer`]). An answer
//! is the state of the replica, from which each of them [decides](election) who exposes, followed by the StatsD lines
//! that it received from clients. A poll waits at the other side until there is something new, so a change is known at
//! once. Only what a replica asked a configured address for is believed, never what a stranger sends.

mod answer;
mod election;
mod polling;
mod source;
mod state;
#[cfg(any(test, fuzzing))]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::cli::config::Config;
use crate::exposition::family::Series;
use crate::kube::resharding::ListenerIdentity;
use crate::kube::shard::Shard;
use crate::server::readiness::Readiness;
use crate::server::router::Router;
use crate::statsd::Pipeline;
use crate::status::{Facts, Reporter, StandbyPeer, StandbyStatus};
use crate::telemetry::metric::{Counter, Read, Row};
use crate::util::lock::Lock;

use answer::LARGE_ANSWERS;
use election::{Election, Replica};
pub(crate) use source::gated;
pub(crate) use state::Standby;
use state::{Peer, Shared, State};

/// The interval between two decisions if nothing changes.
const TICK: Duration = Duration::from_millis(500);

impl Standby {
    /// Starts as a standby; `None` without `--standby`. `identity` is for requests to the other replicas, `lines` is the
    /// StatsD side.
    pub(crate) fn start(
        config: &Config,
        readiness: &Readiness,
        identity: Option<ListenerIdentity>,
        lines: Option<Arc<Pipeline>>,
    ) -> Option<Self> {
        let addresses = config.standby.clone()?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let standby = Self(Arc::new(Shared::new(group(config), started, identity, lines)));
        let readiness = readiness.clone();
        let is_synced = move || readiness.waiting_for().is_empty();
        tokio::spawn(standby.clone().run(is_synced, addresses));
        Some(standby)
    }

    /// Notes the shard of another configuration, which the other replicas may get at another time.
    pub(crate) fn reload(&self, config: &Config) {
        self.change(|own| own.group = group(config));
    }

    /// Decides whenever another replica has changed, and regularly. It is one task, which stops as a whole.
    async fn run(self, is_synced: impl Fn() -> bool, addresses: Vec<String>) {
        let decisions = async {
            loop {
                let synced = is_synced();
                self.change(|own| own.synced = synced);
                let _ = timeout(TICK, self.0.has_news.notified()).await;
            }
        };
        tokio::join!(decisions, polling::poll_all(&self, addresses));
    }

    /// Returns the answer to polls, as a route of the telemetry listener.
    pub(crate) fn route(&self, router: Router) -> Router {
        answer::route(self.clone(), router)
    }
}

/// Returns the shard of a configuration, which replicas have in common.
fn group(config: &Config) -> String {
    let shard = config.kube.as_ref().map_or(Shard::ALL, |kube| kube.pipeline.shard);
    format!("{}/{}", shard.index, shard.total)
}

impl Shared {
    /// Creates the state of a replica that knows no other one. `started` is the start of the process since the Unix epoch.
    fn new(
        group: String,
        started: Duration,
        identity: Option<ListenerIdentity>,
        lines: Option<Arc<Pipeline>>,
    ) -> Self {
        let own = Replica {
            id: fastrand::u64(1..),
            group,
            started: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
            active_since: None,
            synced: false,
            leaving: false,
        };
        let state = State {
            election: Election::new(own, Instant::now()),
            peers: BTreeMap::new(),
            unresolved: None,
            positions: BTreeMap::new(),
            asked: BTreeMap::new(),
        };
        Self {
            started: Instant::now(),
            state: Lock::new(state),
            version: watch::Sender::new(1),
            has_news: Notify::new(),
            has_stranger: Notify::new(),
            lines,
            identity: ArcSwapOption::new(identity.map(Arc::new)),
            large_answers: Arc::new(Semaphore::new(LARGE_ANSWERS)),
            received: Counter::default(),
            lost: Counter::default(),
            takeovers: Counter::default(),
            confirmed: tokio::sync::Mutex::new(None),
            #[cfg(test)]
            network: None,
        }
    }
}

impl Standby {
    /// Returns the own metrics.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let standby = self.clone();
        let mut rows = vec![
            Row::gauge(
                "kstatd_standby",
                "1 if another replica exposes the metrics and this one is a standby, 0 if it exposes them itself.",
                move || f64::from(!standby.is_active()),
            ),
            Row::gauge(
                "kstatd_standby_peer_up",
                "1 if another replica answers, 0 if it does not or if its name cannot be resolved.",
                Peers(self.clone()),
            ),
            Row::counter(
                "kstatd_standby_takeovers_total",
                "Times that this replica began to expose metrics.",
                self.0.takeovers.clone(),
            ),
        ];
        if self.0.lines.is_some() {
            rows.push(Row::counter(
                "kstatd_standby_lines_total",
                "StatsD lines that other replicas received and this one applied.",
                self.0.received.clone(),
            ));
            rows.push(Row::counter(
                "kstatd_standby_lost_lines_total",
                "StatsD lines that other replicas received and this one did not get.",
                self.0.lost.clone(),
            ));
        }
        rows
    }
}

/// The gauges of the other replicas: 1 if they answer.
struct Peers(Standby);

impl Read for Peers {
    fn read(&self, _: &[u8], out: &mut Vec<Series>) {
        let state = self.0.lock();
        let up = |name: &str, is_up: bool| Series::new(&[("peer", name)], f64::from(is_up));
        let others = state.others();
        out.extend(others.map(|(address, peer)| up(&address.to_string(), peer.replica.is_some())));
        out.extend(state.unresolved.iter().flatten().map(|(name, _)| up(name, false)));
    }
}

impl Reporter for Standby {
    fn report(&self, facts: &mut Facts) {
        let active = self.is_active();
        let state = self.lock();
        let seconds = |time: SystemTime| {
            time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64 / 1000.0
        };
        let peer = |(address, peer): (&SocketAddr, &Peer)| StandbyPeer {
            address: address.to_string(),
            active: peer.replica.as_ref().map(|replica| replica.active_since.is_some()),
            since: seconds(peer.since),
            error: peer.error.clone(),
        };
        let peers = state.others().map(peer).collect();
        let unresolved = state.unresolved.clone().unwrap_or_default();
        facts.standby = Some(StandbyStatus { active, peers, unresolved });
    }
}
