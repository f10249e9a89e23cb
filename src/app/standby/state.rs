//! The state of this replica and of the others, as far as it is known.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::election::{Election, Replica};
use crate::kube::Client;
#[cfg(test)]
use crate::kube::client::connection::Network;
use crate::kube::resharding::ListenerIdentity;
use crate::statsd::Pipeline;
use crate::telemetry::metric::Counter;
use crate::util::lock::Lock;

/// The pause between two polls that succeed, which bounds their rate.
pub(super) const PAUSE: Duration = Duration::from_millis(25);

/// The longest wait for another replica to take over, or to fetch the last lines, at the end.
const MAX_HANDOVER: Duration = Duration::from_secs(2);

/// This replica among others; cheap to clone.
#[derive(Clone)]
pub(crate) struct Standby(pub(super) Arc<Shared>);

pub(super) struct Shared {
    /// The start of this replica.
    pub(super) started: Instant,
    pub(super) state: Lock<State>,
    /// The number of the own state, which increases with each change.
    pub(super) version: watch::Sender<u64>,
    /// The state of another replica has changed.
    pub(super) has_news: Notify,
    /// A replica has polled whose address may not be known yet.
    pub(super) has_stranger: Notify,
    /// The StatsD side, if there is one.
    pub(super) lines: Option<Arc<Pipeline>>,
    /// The TLS identity of the own listeners, which all replicas share.
    pub(super) identity: ArcSwapOption<ListenerIdentity>,
    /// The permits of large answers to clients that are not at the address of a replica.
    pub(super) large_answers: Arc<Semaphore>,
    pub(super) received: Counter,
    pub(super) lost: Counter,
    pub(super) takeovers: Counter,
    /// The time when scrapes have last asked for the active replica.
    pub(super) confirmed: tokio::sync::Mutex<Option<Instant>>,
    /// A simulated network.
    #[cfg(test)]
    pub(super) network: Option<Arc<dyn Network>>,
}

pub(super) struct State {
    pub(super) election: Election,
    /// The other replicas and this one, by address.
    pub(super) peers: BTreeMap<SocketAddr, Peer>,
    /// The addresses that cannot be resolved, with the error; `None` until all have been tried.
    pub(super) unresolved: Option<BTreeMap<String, String>>,
    /// The number of the next line of each replica that lines have been applied of.
    pub(super) positions: BTreeMap<u64, u64>,
    /// The number of the next line that each replica has asked for.
    pub(super) asked: BTreeMap<u64, u64>,
}

/// The state of the replica at an address.
pub(super) struct Peer {
    /// Its state, if the latest poll succeeded.
    pub(super) replica: Option<Replica>,
    /// The reason for the failure of the latest poll.
    pub(super) error: Option<String>,
    /// True if it has been polled since the start.
    pub(super) is_asked: bool,
    /// True if the address is one of this process.
    pub(super) is_own: bool,
    /// The time since which polls succeed, or fail.
    pub(super) since: SystemTime,
    /// The client of the latest poll that succeeded.
    pub(super) client: Option<Client>,
}

impl Peer {
    /// Returns an address that has not been polled yet.
    pub(super) fn unasked() -> Self {
        let since = SystemTime::now();
        Self { replica: None, error: None, is_asked: false, is_own: false, since, client: None }
    }

    /// Returns true if it exposes its metrics, as far as it answers.
    pub(super) fn is_active(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.active_since.is_some())
    }
}

impl State {
    pub(super) fn others(&self) -> impl Iterator<Item = (&SocketAddr, &Peer)> {
        self.peers.iter().filter(|(_, peer)| !peer.is_own)
    }

    pub(super) fn replicas(&self) -> Vec<Replica> {
        self.others().filter_map(|(_, peer)| peer.replica.clone()).collect()
    }

    /// Returns the own state for the other replicas.
    pub(super) fn reported(&self) -> Replica {
        let has_peers = self.others().any(|(_, peer)| peer.replica.is_some());
        self.election.reported(has_peers, Instant::now())
    }

    /// Repeats the decision with the current states. Returns true if it has changed.
    fn decide(&mut self) -> bool {
        let now = Instant::now();
        let was_stopped = self.election.was_stopped(now);
        let replicas = self.replicas();
        let is_resolved = self.unresolved.is_some();
        let are_all_asked = is_resolved && self.others().all(|(_, peer)| peer.is_asked);
        let do_all_answer = self.others().count() == replicas.len()
            && self.unresolved.as_ref().is_some_and(BTreeMap::is_empty);
        let changed = self.election.decide(&replicas, are_all_asked, do_all_answer, now);
        if was_stopped {
            self.peers.values_mut().for_each(|peer| peer.is_asked = false);
        }
        changed
    }
}

impl Standby {
    /// Changes the own state, repeats the decision and notifies the other replicas.
    pub(super) fn change(&self, change: impl FnOnce(&mut Replica)) {
        let mut state = self.lock();
        let before = state.election.own.clone();
        change(&mut state.election.own);
        let decided = state.decide();
        let own = &state.election.own;
        if decided && own.active_since.is_some() {
            self.0.takeovers.inc();
            tracing::info!(peers = ?peers_for_log(&state), "This replica exposes its metrics");
        } else if decided {
            tracing::info!(peers = ?peers_for_log(&state), "This replica is a standby");
        }
        // The other one learns at once that this replica runs again.
        let is_other_active = state.others().any(|(_, peer)| peer.is_active());
        let is_doubled = state.election.own.active_since.is_some() && is_other_active;
        if before != state.election.own || is_doubled {
            self.0.version.send_modify(|version| *version += 1);
        }
    }

    /// Returns true if this replica exposes its metrics now.
    pub(crate) fn is_active(&self) -> bool {
        self.lock().reported().active_since.is_some()
    }

    /// Replaces the TLS identity for requests to the other replicas.
    pub(crate) fn set_identity(&self, identity: Option<ListenerIdentity>) {
        self.0.identity.store(identity.map(Arc::new));
    }

    /// Hands over to another replica, if there is one, and waits until it exposes.
    pub(crate) async fn leave(&self) {
        self.change(|own| own.leaving = true);
        let taken_over = async {
            loop {
                let replicas = self.lock().replicas();
                let mut staying = replicas.iter().filter(|replica| !replica.leaving).peekable();
                if staying.peek().is_none() || staying.any(|one| one.active_since.is_some()) {
                    return;
                }
                sleep(PAUSE).await;
            }
        };
        if timeout(MAX_HANDOVER, taken_over).await.is_err() {
            tracing::warn!("No other replica has taken over");
        }
    }

    /// Waits until the other replicas have asked for the last lines.
    pub(crate) async fn drain(&self) {
        let Some(mirror) = self.0.lines.as_ref().and_then(|lines| lines.mirror()) else { return };
        let end = *mirror.next().borrow();
        let drained = async {
            loop {
                let is_done = {
                    let state = self.lock();
                    let has_all =
                        |one: &Replica| state.asked.get(&one.id).is_some_and(|at| *at >= end);
                    state.replicas().iter().all(has_all)
                };
                if is_done {
                    return;
                }
                sleep(PAUSE).await;
            }
        };
        let _ = timeout(MAX_HANDOVER, drained).await;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

/// Returns the address and the state of each other replica.
pub(super) fn peers_for_log(state: &State) -> Vec<String> {
    let describe = |(address, peer): (&SocketAddr, &Peer)| {
        let what = match (&peer.replica, &peer.error) {
            (Some(Replica { leaving: true, .. }), _) => "leaving",
            (Some(Replica { active_since: Some(_), .. }), _) => "active",
            (Some(_), _) => "standby",
            (None, Some(error)) => error,
            (None, None) => "not asked yet",
        };
        format!("{address}: {what}")
    };
    state.others().map(describe).collect()
}
