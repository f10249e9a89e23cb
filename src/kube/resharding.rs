//! Moves a pod of a StatefulSet from one shard assignment to another without gaps.
//!
//! When the number of shards changes, a pod first follows the objects that it gains without exposing them. Once all
//! pods have done so, all of them expose their gained objects, and drop their lost objects a moment later, within one
//! scrape interval. Each object is therefore always exposed by at least one pod, and by two pods for one scrape at
//! most. Pods learn each other's progress [by polling](super::peers). If they cannot be polled, the steps follow fixed
//! times after the change of the StatefulSet, which all pods observe at the same moment. A pod that starts hides its
//! objects only if other pods are waiting for it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::autosharding::{DetectedShard, PodName, RequestBackoff, StatefulSetWatcher};
use super::client::{Client, ClientError};
use super::peers::{self, PeerStages, Peers, peer_stage};
pub use super::peers::{ListenerIdentity, PeerOptions};
use super::pipeline::PipelineHandle;
use super::shard::{Shard, Stage};
use crate::cache::Catalog;
use crate::telemetry::KubeMetrics;
use crate::util::waiting::until;

/// Without polling, all pods expose their gained objects this long after the change of the StatefulSet.
const STEP_DELAY: Duration = Duration::from_secs(5);

/// Returns the time from the change of the StatefulSet after which all of `total` pods expose their gained objects although
/// some did not answer. Until each has been asked, a pod that would answer may still be listing.
fn timed_step(total: i64) -> Duration {
    if total > MAX_POLLED_PODS { STEP_DELAY } else { STEP_DELAY.max(peers::time_to_ask(total)) }
}

/// The longest time to wait for pods that are not ready and for kinds that cannot be listed.
const MAX_PREPARATION: Duration = Duration::from_secs(120);

/// The shortest time during which lost and gained objects are both exposed.
const MIN_OVERLAP: Duration = Duration::from_millis(25);

/// The longest time during which lost and gained objects are both exposed.
const MAX_OVERLAP: Duration = Duration::from_secs(30);

/// The time during which lost and gained objects are both exposed without scrapes.
const DEFAULT_OVERLAP: Duration = Duration::from_secs(5);

/// The skew between the steps of two pods that act on the same change without polling.
const TIMED_SKEW: Duration = Duration::from_millis(50);

/// The skew between the steps of two pods that poll each other: the last pod to expose its gained objects has already
/// done so.
const POLLED_SKEW: Duration = Duration::from_millis(125);

/// Returns how long two pods expose the same object, given the interval between scrapes: usually long enough for all
/// pods to be scraped once, and too short for one pod to be scraped twice.
fn overlap(scrape_interval: Option<Duration>, skew: Duration) -> Duration {
    let overlap = |scrape_interval: Duration| (scrape_interval * 3 / 4).saturating_sub(skew);
    scrape_interval.map_or(DEFAULT_OVERLAP, |scrape_interval| {
        overlap(scrape_interval).clamp(MIN_OVERLAP, MAX_OVERLAP)
    })
}

/// StatefulSets with more pods are not polled.
const MAX_POLLED_PODS: i64 = 128;

/// The time that a starting pod waits for the first response of another pod.
const FIRST_POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// What becomes of the poll of other pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollChange {
    Keep,
    /// Other pods are asked, or the same ones about another number of shards.
    Restart,
    Stop,
}

/// The state machine of the move from one shard assignment to another.
#[derive(Debug)]
struct ShardTransition {
    detected: DetectedShard,
    /// The assignment that is exposed or in transition.
    shard: Shard,
    /// True until objects are exposed for the first time.
    is_first: bool,
    /// True until everything was listed once.
    is_starting: bool,
    /// When the change was detected.
    detected_at: Instant,
    /// When all gained objects had been listed.
    synced_at: Option<Instant>,
    /// When the gained objects were exposed.
    shown_at: Option<Instant>,
}

/// The progress of the list/watches with the latest configuration.
#[derive(Clone, Copy, Debug, Default)]
struct SyncProgress {
    /// They have received the configuration and expose what it says.
    applied: bool,
    /// Everything that the server allows has been listed.
    complete: bool,
}

/// The inputs of a step, apart from time.
#[derive(Clone, Debug, Default)]
struct TransitionInputs {
    sync: SyncProgress,
    /// The interval between scrapes, if known.
    scrape_interval: Option<Duration>,
    /// The stages of the other pods.
    peers: PeerStages,
}

impl ShardTransition {
    /// Starts with the detected assignment and nothing exposed.
    fn new(detected: DetectedShard, now: Instant) -> Self {
        let shard = detected.shard.replacing(Shard::NONE);
        let (is_first, is_starting, detected_at) = (true, true, now);
        let (synced_at, shown_at) = (None, None);
        Self { detected, shard, is_first, is_starting, detected_at, synced_at, shown_at }
    }

    /// Takes a newly detected assignment. Returns true if the objects to follow have changed.
    fn retarget(&mut self, detected: DetectedShard, now: Instant) -> bool {
        let before = self.shard;
        if detected.shard != self.detected.shard {
            // A change during a transition keeps what is exposed.
            self.shard = self.shard.retargeted(detected.shard);
            (self.detected_at, self.synced_at, self.shown_at) = (now, None, None);
        }
        self.detected = detected;
        self.shard != before
    }

    /// Returns true during a transition, when the stages of other pods matter.
    fn is_in_progress(&self) -> bool {
        self.shard.stage() != Some(Stage::Done)
    }

    /// Returns what becomes of a poll about `polled` shards; `None` if no pods are polled.
    fn poll_change(&self, polled: Option<i64>) -> PollChange {
        match polled {
            _ if !self.is_in_progress() => PollChange::Stop,
            Some(total) if total == self.shard.total => PollChange::Keep,
            _ => PollChange::Restart,
        }
    }

    /// Returns true if the list/watches are complete, or have had enough time: a kind that cannot be listed must not
    /// block the transition.
    fn is_complete(&self, sync: SyncProgress, now: Instant) -> bool {
        sync.complete || sync.applied && now >= self.detected_at + MAX_PREPARATION
    }

    /// Returns the stage to report to the other pods.
    fn reported_stage(&mut self, sync: SyncProgress, now: Instant) -> i64 {
        let complete = self.is_complete(sync, now);
        match self.shard.stage() {
            Some(Stage::Preparing) if complete => peer_stage::PREPARED,
            Some(Stage::Preparing) if self.is_first => peer_stage::STARTING,
            Some(Stage::Preparing) => peer_stage::BEHIND,
            Some(Stage::Overlap) if sync.applied => peer_stage::SHOWN,
            Some(Stage::Overlap) => peer_stage::PREPARED,
            Some(Stage::Done) | None => {
                self.is_starting &= !complete;
                match (self.is_starting, sync.applied) {
                    (true, _) => peer_stage::STARTING,
                    (false, true) => peer_stage::DONE,
                    (false, false) => peer_stage::SHOWN,
                }
            }
        }
    }

    /// Returns the time of the next call of [`ShardTransition::advance`], or `None` if only a change of the inputs
    /// matters.
    fn next_wakeup(&mut self, inputs: &TransitionInputs, now: Instant) -> Option<Instant> {
        let peers = &inputs.peers;
        match self.shard.stage()? {
            Stage::Preparing if self.is_first && !peers.has_polled() => {
                Some(self.detected_at + FIRST_POLL_TIMEOUT)
            }
            Stage::Preparing if self.is_first && !peers.is_any_in_transition() => Some(now),
            Stage::Done => None,
            _ if !inputs.sync.applied => None,
            Stage::Preparing if !self.is_complete(inputs.sync, now) => {
                // A reload lists again.
                self.synced_at = None;
                Some(self.detected_at + MAX_PREPARATION)
            }
            Stage::Preparing => {
                let complete = *self.synced_at.get_or_insert(now);
                if peers.have_all_reached(peer_stage::PREPARED) {
                    return Some(now);
                }
                if !self.detected.all_ready || peers.may_any_be_below(peer_stage::PREPARED) {
                    return Some(complete + MAX_PREPARATION);
                }
                // If this pod was slow to list its gained objects, others may be slower.
                let timed = self.detected_at + timed_step(self.shard.total);
                Some(timed.max(complete + (complete - self.detected_at)))
            }
            // A pod that does not know its scrape interval yet follows the others.
            Stage::Overlap
                if inputs.scrape_interval.is_none() && peers.have_all_reached(peer_stage::DONE) =>
            {
                Some(now)
            }
            Stage::Overlap => {
                let shown = self.shown_at.unwrap_or(now);
                let skew = if peers.have_all_reached(peer_stage::SHOWN) {
                    POLLED_SKEW
                } else {
                    TIMED_SKEW
                };
                let at = shown + overlap(inputs.scrape_interval, skew);
                let late = peers.may_any_be_below(peer_stage::SHOWN);
                Some(if late { at.max(shown + STEP_DELAY) } else { at })
            }
        }
    }

    /// Takes the next step if it is due. Returns true if it was.
    fn advance(&mut self, inputs: &TransitionInputs, now: Instant) -> bool {
        if self.next_wakeup(inputs, now).is_none_or(|at| now < at) {
            return false;
        }
        let is_alone = self.is_first && !inputs.peers.is_any_in_transition();
        if self.shard.stage() == Some(Stage::Preparing) && !is_alone {
            self.shard = self.shard.at(Stage::Overlap);
            self.shown_at = Some(now);
        } else {
            self.shard = self.shard.at(Stage::Done);
        }
        self.is_first = false;
        true
    }
}

/// Coordinates the shard assignment of this pod with the StatefulSet and the other pods. Stops when dropped.
pub struct ShardCoordinator {
    watcher: Arc<StatefulSetWatcher>,
    /// Runs the watcher.
    task: JoinSet<()>,
    peer_options: PeerOptions,
    detected: watch::Receiver<DetectedShard>,
    transition: ShardTransition,
    /// Polls the other pods during a transition.
    peers: Option<Peers>,
}

impl ShardCoordinator {
    /// Determines the assignment of a pod. `asking` configures how other pods are polled.
    ///
    /// # Errors
    /// Returns an error if the pod or its StatefulSet cannot be read, or if the pod has no StatefulSet.
    pub async fn start(
        client: &Arc<ArcSwap<Client>>,
        pod: PodName,
        peer_options: PeerOptions,
    ) -> Result<Self, ClientError> {
        let watcher = Arc::new(StatefulSetWatcher::new(Arc::clone(client), pod).await?);
        let mut detected = watcher.detected.subscribe();
        let transition = ShardTransition::new(*detected.borrow_and_update(), Instant::now());
        let (task, peers) = (JoinSet::new(), None);
        let mut coordinator = Self { watcher, task, peer_options, detected, transition, peers };
        coordinator.client_changed();
        Ok(coordinator)
    }

    /// Like [`ShardCoordinator::start`], but retries until it succeeds.
    pub async fn start_with_retries(
        client: Arc<ArcSwap<Client>>,
        pod: PodName,
        peer_options: PeerOptions,
    ) -> Self {
        let mut backoff = RequestBackoff::new();
        let mut last_error = String::new();
        loop {
            let error = match Self::start(&client, pod.clone(), peer_options.clone()).await {
                Ok(found) => return found,
                Err(error) => error,
            };
            let text = error.to_string();
            if text != last_error {
                tracing::warn!(error = text, "Cannot determine the shard of this pod, retrying");
                last_error = text;
            }
            backoff.failed(&error).await;
        }
    }

    /// Watches the StatefulSet with the client that is now current.
    pub fn client_changed(&mut self) {
        self.task = JoinSet::new();
        self.task.spawn(Arc::clone(&self.watcher).run());
    }

    /// Changes how other pods are polled.
    pub fn set_peer_options(&mut self, peer_options: PeerOptions) {
        // Without a change, what the others have answered still holds.
        if !self.peer_options.is_same(&peer_options) {
            self.peers = None;
        }
        self.peer_options = peer_options;
    }

    /// Returns the assignment to follow and expose.
    pub fn shard(&self) -> Shard {
        self.transition.shard
    }

    /// Completes when the assignment, or the exposed part of it, has changed. `change` is the number of the last
    /// configuration change that this caused, and `is_final` tells whether no further change will follow from what has been listed.
    /// Cancel safe.
    pub async fn next_change(
        &mut self,
        handle: &PipelineHandle,
        (change, is_final): (u64, &(dyn Fn() -> bool + Send + Sync)),
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) {
        loop {
            // Before reading the state, so that later changes are noticed.
            let mut handle_changes = handle.clone();
            handle_changes.mark_unchanged();
            let total = self.shard().total;
            match self.transition.poll_change(self.peers.as_ref().map(Peers::total)) {
                PollChange::Keep => {}
                PollChange::Stop => self.peers = None,
                PollChange::Restart => {
                    let StatefulSetWatcher { client, pod, .. } = &*self.watcher;
                    let (client, namespace) = (Arc::clone(client), pod.namespace.clone());
                    self.peers = self.peer_names().map(|names| {
                        Peers::poll(client, namespace, names, &self.peer_options, total)
                    });
                }
            }
            let sync = SyncProgress {
                applied: handle.has_observed(change),
                complete: handle.is_applied_where_allowed(change) && is_final(),
            };
            metrics.shard_stage(total, self.transition.reported_stage(sync, Instant::now()));
            let no_peers = || PeerStages::from_answers(vec![None]);
            let peers = self.peers.as_mut().map_or_else(no_peers, Peers::latest);
            let inputs =
                TransitionInputs { sync, scrape_interval: catalog.scrape_interval(), peers };
            let now = Instant::now();
            if self.transition.advance(&inputs, now) {
                let Shard { index, total, .. } = self.shard();
                let message = match self.shard().stage() {
                    Some(Stage::Overlap) => "Exposed gained objects",
                    _ => "Dropped lost objects",
                };
                tracing::info!(shard = index, total, peers = ?inputs.peers.stages(), "{message}");
                return;
            }
            let wake = self.transition.next_wakeup(&inputs, now);
            tokio::select! {
                Ok(()) = self.detected.changed() => {
                    let detected = *self.detected.borrow_and_update();
                    if self.transition.retarget(detected, Instant::now()) {
                        return;
                    }
                }
                () = peers_changed(&mut self.peers) => {}
                () = handle_changes.changed() => {}
                () = until(wake) => {}
            }
        }
    }

    /// Returns the names of the other pods, or `None` if there are too many to poll.
    fn peer_names(&self) -> Option<Vec<String>> {
        let shard = self.shard();
        let numbers = (0..shard.total).filter(|&number| number != i64::from(shard.index));
        let name = |number| format!("{}-{number}", self.watcher.set);
        (shard.total <= MAX_POLLED_PODS).then(|| numbers.map(name).collect())
    }
}

/// Completes when the stages of other pods have changed; never without any.
async fn peers_changed(peers: &mut Option<Peers>) {
    match peers {
        Some(peers) => peers.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
