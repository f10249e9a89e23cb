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
mod tests {
    mod history;

    use super::*;
    use crate::kube::shard::Ownership;

    const SECOND: Duration = Duration::from_secs(1);

    fn detected(index: i32, total: i64) -> DetectedShard {
        DetectedShard { shard: Shard::new(index, total), all_ready: true }
    }

    /// Applied, but some kinds cannot be listed.
    const PARTIAL: SyncProgress = SyncProgress { applied: true, complete: false };

    /// Everything applied and listed, or nothing.
    fn sync(complete: bool) -> SyncProgress {
        SyncProgress { applied: complete, complete }
    }

    fn inputs(
        complete: bool,
        scrape_interval: Option<Duration>,
        peers: &[Option<i64>],
    ) -> TransitionInputs {
        TransitionInputs {
            sync: sync(complete),
            scrape_interval,
            peers: PeerStages::from_answers(peers.to_vec()),
        }
    }

    /// Returns a pod that has finished its start.
    fn started(index: i32, total: i64, start: Instant) -> ShardTransition {
        let mut transition = ShardTransition::new(detected(index, total), start);
        assert!(
            transition.advance(&inputs(false, None, &[None]), start),
            "there is nothing to wait for"
        );
        assert_eq!(transition.shard.stage(), Some(Stage::Done));
        let stages =
            [false, true, false].map(|complete| transition.reported_stage(sync(complete), start));
        assert_eq!(stages, [peer_stage::STARTING, peer_stage::DONE, peer_stage::SHOWN]);
        assert_eq!(
            transition.reported_stage(PARTIAL, start),
            peer_stage::DONE,
            "other pods need not wait for it"
        );
        assert_eq!(transition.next_wakeup(&inputs(true, None, &[None]), start), None);
        transition
    }

    #[test]
    fn without_polling_steps_follow_fixed_times() {
        let start = Instant::now();
        let often = |complete| inputs(complete, Some(SECOND / 5), &[None, Some(peer_stage::DONE)]);
        let at = |seconds: u32| start + seconds * SECOND;
        let mut transition = started(0, 2, start);
        assert!(!transition.retarget(detected(0, 2), start));
        assert!(transition.retarget(detected(0, 3), start));
        assert_eq!(transition.shard, Shard::new(0, 3).replacing(Shard::new(0, 2)));
        assert_eq!(
            transition.next_wakeup(&often(false), start),
            None,
            "gained objects are not listed yet"
        );
        // Pods that are fast enough act at the same moment.
        assert_eq!(transition.next_wakeup(&often(true), at(1)), Some(at(5)));
        assert!(!transition.advance(&often(true), at(4)));
        assert!(transition.advance(&often(true), at(5)));
        assert_eq!(transition.shard.stage(), Some(Stage::Overlap));
        assert_eq!(transition.next_wakeup(&often(true), start), Some(at(5) + SECOND / 10));
        assert_eq!(transition.next_wakeup(&inputs(true, None, &[None]), start), Some(at(10)));
        assert_eq!(
            transition.next_wakeup(&inputs(true, Some(100 * SECOND), &[]), start),
            Some(at(35))
        );
        assert!(transition.advance(&often(true), at(6)));
        assert_eq!(transition.shard.stage(), Some(Stage::Done));
        // The pod waits for pods that are not ready, and for slower pods.
        assert!(transition.retarget(DetectedShard { all_ready: false, ..detected(0, 4) }, start));
        assert_eq!(transition.next_wakeup(&often(true), at(4)), Some(at(4) + MAX_PREPARATION));
        assert!(!transition.retarget(detected(0, 4), at(4)), "only its readiness has changed");
        assert_eq!(transition.next_wakeup(&often(true), at(4)), Some(at(8)));
        // Another change during the transition starts from what is exposed.
        assert!(transition.retarget(detected(0, 5), at(4)));
        assert_eq!(transition.shard, Shard::new(0, 5).replacing(Shard::new(0, 3)));
    }

    #[test]
    fn answering_pods_are_waited_for() {
        use super::peer_stage::{BEHIND, DONE, PREPARED, SHOWN, STARTING};
        let start = Instant::now();
        let often = |peers: &[Option<i64>]| inputs(true, Some(SECOND / 5), peers);
        let mut transition = started(0, 2, start);
        assert!(transition.retarget(DetectedShard { all_ready: false, ..detected(0, 3) }, start));
        for below in [STARTING, BEHIND] {
            let peers = often(&[Some(PREPARED), Some(below)]);
            assert_eq!(transition.next_wakeup(&peers, start), Some(start + MAX_PREPARATION));
        }
        let stages = |transition: &mut ShardTransition| {
            [false, true].map(|complete| transition.reported_stage(sync(complete), start))
        };
        assert_eq!(stages(&mut transition), [BEHIND, PREPARED]);
        assert!(
            transition.advance(&often(&[Some(PREPARED), Some(SHOWN)]), start),
            "all pods are prepared"
        );
        assert_eq!(stages(&mut transition), [PREPARED, SHOWN]);
        let late = start + STEP_DELAY;
        assert_eq!(
            transition.next_wakeup(&often(&[Some(PREPARED), Some(SHOWN)]), start),
            Some(late)
        );
        let soon = start + SECOND / 40;
        assert_eq!(transition.next_wakeup(&often(&[Some(DONE), Some(SHOWN)]), start), Some(soon));
        assert!(transition.advance(&often(&[Some(DONE), Some(SHOWN)]), soon));
        assert_eq!(stages(&mut transition)[1], DONE);
    }

    #[test]
    fn pod_without_a_scrape_interval_follows_the_others() {
        let start = Instant::now();
        let unknown = |peers: &[Option<i64>]| inputs(true, None, peers);
        let mut transition = started(0, 2, start);
        assert!(transition.retarget(detected(0, 3), start));
        assert!(transition.advance(&unknown(&[Some(peer_stage::PREPARED); 2]), start));
        for peers in
            [[Some(peer_stage::DONE), Some(peer_stage::SHOWN)], [Some(peer_stage::DONE), None]]
        {
            assert!(
                transition.next_wakeup(&unknown(&peers), start) > Some(start + 4 * SECOND),
                "{peers:?}"
            );
        }
        assert_eq!(
            transition.next_wakeup(&unknown(&[Some(peer_stage::DONE); 2]), start),
            Some(start)
        );
    }

    /// Pods that have not been asked yet may still be listing: after a change to many pods, or after a reload.
    #[test]
    fn pods_that_were_not_asked_are_waited_for() {
        let start = Instant::now();
        let unasked = TransitionInputs {
            peers: PeerStages::default(),
            ..inputs(true, Some(SECOND / 5), &[])
        };
        let mut transition = started(0, 128, start);
        assert!(transition.retarget(detected(0, 100), start));
        assert_eq!(transition.next_wakeup(&unasked, start), Some(start + MAX_PREPARATION));
        // When all have been asked, those that do not answer are not waited for, and all pods take the step at the same time.
        let asked = inputs(true, Some(SECOND / 5), &[None]);
        let step = start + timed_step(100);
        assert_eq!(transition.next_wakeup(&asked, start), Some(step));
        assert!(!transition.advance(&unasked, step) && transition.advance(&asked, step));
        assert_eq!(transition.next_wakeup(&unasked, step), Some(step + STEP_DELAY));
        assert_eq!(transition.next_wakeup(&asked, step), Some(step + SECOND / 10));
    }

    /// A reload during a change of the shard lists everything again. This pod takes as long as it does, and others may take longer.
    #[test]
    fn a_reload_begins_the_wait_for_slower_pods_again() {
        let start = Instant::now();
        let at = |seconds: u32| start + seconds * SECOND;
        let alone = |complete| inputs(complete, Some(SECOND / 5), &[None]);
        let mut transition = started(0, 2, start);
        assert!(transition.retarget(detected(0, 3), start));
        assert_eq!(transition.next_wakeup(&alone(true), at(2)), Some(at(5)));
        let listing = TransitionInputs { sync: PARTIAL, ..alone(false) };
        assert_eq!(transition.next_wakeup(&listing, at(3)), Some(start + MAX_PREPARATION));
        assert_eq!(transition.next_wakeup(&alone(true), at(20)), Some(at(40)));
        assert!(!transition.advance(&alone(true), at(20)));
    }

    /// A pod that was started during a change of the shard, and has shown its objects, hides none of them at once at the next one.
    #[test]
    fn a_new_pod_takes_the_steps_of_the_next_change() {
        let start = Instant::now();
        let often = |peers: &[Option<i64>]| inputs(true, Some(SECOND / 5), peers);
        let mut transition = ShardTransition::new(detected(120, 125), start);
        assert!(transition.advance(&often(&[Some(peer_stage::PREPARED)]), start));
        assert_eq!(transition.shard.stage(), Some(Stage::Overlap));
        assert!(transition.retarget(detected(120, 130), start));
        assert_eq!(transition.next_wakeup(&often(&[None]), start), Some(start + timed_step(130)));
        assert!(!transition.advance(&often(&[None]), start));
    }

    #[test]
    fn many_pods_have_more_time_until_the_timed_step() {
        let steps = [2, 63, 100, 128, 129].map(|total| timed_step(total).as_millis());
        assert_eq!(steps, [5_000, 5_000, 11_000, 17_384, 5_000]);
    }

    /// A kind that cannot be listed blocks neither this pod nor others forever.
    #[test]
    fn failing_kinds_delay_a_transition_for_a_limited_time() {
        let start = Instant::now();
        let partial = |peers: &[Option<i64>]| TransitionInputs {
            sync: PARTIAL,
            ..inputs(true, Some(SECOND / 5), peers)
        };
        let mut transition = started(0, 3, start);
        assert!(transition.retarget(detected(0, 2), start));
        let (peers, end) = (partial(&[Some(peer_stage::PREPARED)]), start + MAX_PREPARATION);
        assert_eq!(transition.next_wakeup(&peers, start), Some(end));
        assert_eq!(transition.reported_stage(PARTIAL, start), peer_stage::BEHIND);
        assert_eq!(transition.reported_stage(PARTIAL, end), peer_stage::PREPARED);
        assert!(transition.advance(&peers, end));
        // A kind that can no longer be listed does not keep lost objects exposed.
        assert_eq!(transition.reported_stage(PARTIAL, end), peer_stage::SHOWN);
        let peers = partial(&[Some(peer_stage::SHOWN)]);
        assert!(transition.advance(&peers, end + SECOND));
        assert_eq!(
            (transition.shard.stage(), transition.reported_stage(PARTIAL, end)),
            (Some(Stage::Done), peer_stage::DONE)
        );
        // A pod that was started with such a kind takes the same steps as the others.
        let mut transition = ShardTransition::new(detected(0, 2), start);
        assert!(
            transition.advance(&partial(&[Some(peer_stage::DONE)]), start),
            "there is nothing to wait for"
        );
        assert_eq!(transition.reported_stage(PARTIAL, start), peer_stage::STARTING);
        assert!(transition.retarget(detected(0, 3), start + SECOND));
        assert!(
            !transition.advance(&partial(&[None, None]), start + SECOND),
            "lost objects are not dropped yet"
        );
        assert_eq!(transition.reported_stage(PARTIAL, start + SECOND), peer_stage::BEHIND);
    }

    /// Objects that other pods may still rely on stay exposed until all pods follow the latest change.
    #[test]
    fn change_during_a_transition() {
        let start = Instant::now();
        let mut transition = started(0, 2, start);
        assert!(transition.retarget(detected(0, 3), start));
        assert!(transition.advance(&inputs(true, None, &[Some(peer_stage::PREPARED); 2]), start));
        assert_eq!(transition.shard.stage(), Some(Stage::Overlap));
        assert!(transition.retarget(detected(0, 5), start));
        assert_eq!(transition.shard.stage(), Some(Stage::Preparing));
        let is = |uid: &[u8], total| Shard::new(0, total).keeps(uid);
        for uid in (0..1000).map(|uid: u32| uid.to_string().into_bytes()) {
            let shown = is(&uid, 2) || is(&uid, 3);
            let part = transition.shard.ownership(&uid);
            assert_eq!(matches!(part, Ownership::Kept | Ownership::Lost), shown, "{part:?}");
            assert_eq!(transition.shard.keeps(&uid), shown || is(&uid, 5), "{part:?}");
        }
    }

    #[test]
    fn starting_pod_hides_objects_only_if_others_wait() {
        use super::peer_stage::{BEHIND, DONE, PREPARED, STARTING};
        let start = Instant::now();
        let waits = |peers: &[Option<i64>]| {
            let mut transition = ShardTransition::new(detected(1, 3), start);
            assert_eq!(transition.reported_stage(sync(false), start), STARTING);
            !transition.advance(&inputs(false, None, peers), start)
        };
        for peers in [&[None, None][..], &[Some(DONE), None], &[Some(DONE), Some(STARTING)]] {
            assert!(!waits(peers), "{peers:?}");
        }
        for peers in [[Some(BEHIND), None], [Some(PREPARED), Some(STARTING)]] {
            assert!(waits(&peers), "{peers:?}");
        }
        let mut transition = ShardTransition::new(detected(1, 3), start);
        assert_eq!(
            transition.next_wakeup(&TransitionInputs::default(), start),
            Some(start + FIRST_POLL_TIMEOUT)
        );
        assert!(transition.advance(&TransitionInputs::default(), start + FIRST_POLL_TIMEOUT));
        // If other pods are waiting, it takes the same steps as they do.
        let mut transition = ShardTransition::new(detected(1, 3), start);
        let ready = inputs(true, None, &[Some(PREPARED), Some(PREPARED)]);
        assert_eq!(transition.reported_stage(sync(true), start), PREPARED);
        assert!(transition.advance(&ready, start));
        assert_eq!(transition.shard.stage(), Some(Stage::Overlap));
    }
}
