//! The way of a pod of a StatefulSet from one share of the objects to another.
//!
//! It follows what it gains, unseen, while it shows what it had. When all pods are that far, all show what they gained, and
//! leave what they lost a moment later, less than it takes until they are scraped again. So no object is nobody's, and
//! each is two pods' for one scrape at most. How far the others are they [say themselves](super::peers); where they cannot
//! be asked, it goes by time, counted from the change, of which all hear at the same moment. A pod that starts begins with
//! nothing, if others are waiting for it; otherwise it shows what it has at once.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::autosharding::{Autosharding, Detected, PodName};
use super::client::{Client, ClientError};
use super::peers::{Levels, Peers, level};
use super::pipeline::PipelineHandle;
use super::shard::{Shard, Stage};
use crate::cache::Catalog;
use crate::telemetry::KubeMetrics;

/// After so long all pods show what they gained: counted from the change, which all hear of at the same moment, so that
/// they do it together.
const PREPARATION: Duration = Duration::from_secs(5);

/// How long is waited for pods that are not ready yet.
const LONGEST_PREPARATION: Duration = Duration::from_secs(120);

/// How long what was lost is shown beside what was gained: at least, at most, and where nobody scrapes.
const OVERLAP: [Duration; 3] =
    [Duration::from_millis(25), Duration::from_secs(30), Duration::from_secs(5)];

/// How far apart the steps of two pods may be: of pods that heard of the change together, and of pods that ask one
/// another, of which the last to show what it gained has done so.
const APART: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(125)];

/// How long two pods show the same object, for scrapes that follow one another after `interval`: so long that all are
/// scraped meanwhile, as a rule, and not so long that one is scraped twice.
fn overlap(interval: Option<Duration>, apart: Duration) -> Duration {
    let [least, most, unknown] = OVERLAP;
    let overlap = |interval: Duration| (interval * 3 / 4).saturating_sub(apart);
    interval.map_or(unknown, |interval| overlap(interval).clamp(least, most))
}

/// Where there are more pods they are not asked.
const MOST_PODS: i64 = 128;

/// How long a start waits for the first answers of the others.
const FIRST_ANSWERS: Duration = Duration::from_secs(1);

/// The way from one share to another.
#[derive(Debug)]
struct Resharding {
    detected: Detected,
    /// What is being shown or on its way.
    share: Shard,
    /// Whether there was nothing before.
    starting: bool,
    /// When the change was found.
    found: Instant,
    /// Since when all of what is gained is followed.
    complete: Option<Instant>,
    /// Since when it is shown.
    shown: Option<Instant>,
}

/// What a step depends on, beside time.
#[derive(Clone, Debug, Default)]
struct Around {
    /// Whether everything that is to be followed is there.
    in_force: bool,
    /// How long after one another scrapes come.
    interval: Option<Duration>,
    /// What the others say.
    others: Levels,
}

impl Resharding {
    /// Begins with the share that was found, and with nothing of it shown.
    fn new(detected: Detected, now: Instant) -> Self {
        let share = detected.shard.instead_of(Shard::NOBODY);
        Self { detected, share, starting: true, found: now, complete: None, shown: None }
    }

    /// Something else was found. Whether something else is to be followed.
    fn found(&mut self, detected: Detected, now: Instant) -> bool {
        let before = self.share;
        if detected.shard != self.detected.shard {
            // From one way onto another: what is shown stays.
            self.share = match self.share.stage() {
                Some(Stage::Prepared) => self.share.redirected(detected.shard),
                _ => detected.shard.instead_of(self.detected.shard),
            };
            (self.found, self.complete, self.shown) = (now, None, None);
        }
        self.detected = detected;
        self.share != before
    }

    /// Whether it is on its way: the others matter.
    fn is_on_its_way(&self) -> bool {
        self.share.stage() != Some(Stage::Done)
    }

    /// How far it is, as the others are to see it.
    fn level(&mut self, in_force: bool) -> i64 {
        match self.share.stage() {
            Some(Stage::Prepared) if in_force => level::PREPARED,
            Some(Stage::Prepared) if !self.starting => level::BEHIND,
            Some(Stage::Both) if in_force => level::SHOWN,
            Some(Stage::Both) => level::PREPARED,
            Some(Stage::Done) | None if in_force => {
                self.starting = false;
                level::DONE
            }
            Some(Stage::Done) | None if !self.starting => level::SHOWN,
            _ => level::STARTING,
        }
    }

    /// When [`Resharding::due`] has to be asked, `None` while there is nothing to wait for.
    fn wake_at(&mut self, around: &Around, now: Instant) -> Option<Instant> {
        let others = &around.others;
        match self.share.stage()? {
            Stage::Prepared if self.starting && !others.is_asked() => {
                Some(self.found + FIRST_ANSWERS)
            }
            Stage::Prepared if self.starting && !others.is_someone_waiting() => Some(now),
            Stage::Done => None,
            _ if !around.in_force => None,
            Stage::Prepared => {
                let complete = *self.complete.get_or_insert(now);
                if others.are_all(level::PREPARED) {
                    return Some(now);
                }
                if !self.detected.settled || others.is_someone_below(level::PREPARED) {
                    return Some(complete + LONGEST_PREPARATION);
                }
                // Where it took long, it may take others longer.
                Some((self.found + PREPARATION).max(complete + (complete - self.found)))
            }
            Stage::Both => {
                let shown = self.shown.unwrap_or(now);
                let [together, after_another] = APART;
                let apart = if others.are_all(level::SHOWN) { after_another } else { together };
                let at = shown + overlap(around.interval, apart);
                let late = others.is_someone_below(level::SHOWN);
                Some(if late { at.max(shown + PREPARATION) } else { at })
            }
        }
    }

    /// Goes one step further, if the time has come. Whether it has.
    fn due(&mut self, around: &Around, now: Instant) -> bool {
        if self.wake_at(around, now).is_none_or(|at| now < at) {
            return false;
        }
        let is_alone = self.starting && !around.others.is_someone_waiting();
        if self.share.stage() == Some(Stage::Prepared) && !is_alone {
            self.share = self.share.at(Stage::Both);
            self.shown = Some(now);
        } else {
            self.share = self.share.at(Stage::Done);
        }
        true
    }
}

/// The share of the pod that this process is in, and how it changes. Dropping it ends that.
pub struct Sharding {
    source: Autosharding,
    client: Arc<ArcSwap<Client>>,
    pod: PodName,
    /// The port of the telemetry listeners.
    port: u16,
    detected: watch::Receiver<Detected>,
    way: Resharding,
    /// Who is asked, while it matters.
    peers: Option<Peers>,
}

impl Sharding {
    /// Finds out the share of a pod. Others of its StatefulSet are asked at `port`.
    ///
    /// # Errors
    /// When the pod or its StatefulSet cannot be asked for, or it has none.
    pub async fn start(
        client: &Arc<ArcSwap<Client>>,
        pod: PodName,
        port: u16,
    ) -> Result<Self, ClientError> {
        let source = Autosharding::start(Arc::clone(client), pod.clone()).await?;
        let mut detected = source.detected();
        let way = Resharding::new(*detected.borrow_and_update(), Instant::now());
        let client = Arc::clone(client);
        Ok(Self { source, client, pod, port, detected, way, peers: None })
    }

    /// What is to be followed and shown now.
    pub fn share(&self) -> Shard {
        self.way.share
    }

    /// Completes when there is another share to be followed, or another part of it to be shown; `change` is the number of
    /// the last such change. It may be dropped at any time.
    pub async fn step(
        &mut self,
        handle: &PipelineHandle,
        change: u64,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) {
        loop {
            // Before looking, so that what changes meanwhile is looked at again.
            let mut further = handle.clone();
            further.mark_unchanged();
            let total = self.share().total;
            if !self.way.is_on_its_way() {
                self.peers = None;
            } else if self.peers.as_ref().is_none_or(|peers| peers.total() != total) {
                let (client, namespace) = (Arc::clone(&self.client), self.pod.namespace.clone());
                self.peers = self
                    .others()
                    .map(|names| Peers::ask(client, namespace, names, self.port, total));
            }
            let in_force = handle.is_in_force(change);
            metrics.shard_stage(total, self.way.level(in_force));
            let nobody = || Levels::of(vec![None]);
            let others = self.peers.as_mut().map_or_else(nobody, Peers::latest);
            let around = Around { in_force, interval: catalog.scrape_interval(), others };
            let now = Instant::now();
            if self.way.due(&around, now) {
                return;
            }
            let wake = self.way.wake_at(&around, now);
            tokio::select! {
                Ok(()) = self.detected.changed() => {
                    let detected = *self.detected.borrow_and_update();
                    if self.way.found(detected, Instant::now()) {
                        return;
                    }
                }
                () = heard(&mut self.peers) => {}
                () = further.changed() => {}
                () = until(wake) => {}
            }
        }
    }

    /// The names of the other pods that there are to be; `None` where these are more than can be asked.
    fn others(&self) -> Option<Vec<String>> {
        let share = self.share();
        let numbers = (0..share.total).filter(|&number| number != i64::from(share.index));
        let name = |number| format!("{}-{number}", self.source.set);
        (share.total <= MOST_PODS).then(|| numbers.map(name).collect())
    }
}

/// Completes when the others say something new, never without any.
async fn heard(peers: &mut Option<Peers>) {
    match peers {
        Some(peers) => peers.changed().await,
        None => std::future::pending().await,
    }
}

/// Completes at a point in time, never without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn detected(index: i32, total: i64) -> Detected {
        Detected { shard: Shard::new(index, total), settled: true }
    }

    fn around(in_force: bool, interval: Option<Duration>, others: &[Option<i64>]) -> Around {
        Around { in_force, interval, others: Levels::of(others.to_vec()) }
    }

    /// One that has been there for long.
    fn settled(index: i32, total: i64, start: Instant) -> Resharding {
        let mut way = Resharding::new(detected(index, total), start);
        assert!(way.due(&around(false, None, &[None]), start), "nobody is waited for");
        assert_eq!(way.share.stage(), Some(Stage::Done));
        let levels = [false, true, false].map(|in_force| way.level(in_force));
        assert_eq!(levels, [level::STARTING, level::DONE, level::SHOWN]);
        assert_eq!(way.wake_at(&around(true, None, &[None]), start), None);
        way
    }

    #[test]
    fn without_others_it_goes_by_time() {
        let start = Instant::now();
        let often = |in_force| around(in_force, Some(SECOND / 5), &[None, Some(level::DONE)]);
        let at = |seconds: u32| start + seconds * SECOND;
        let mut way = settled(0, 2, start);
        assert!(!way.found(detected(0, 2), start));
        assert!(way.found(detected(0, 3), start));
        assert_eq!(way.share, Shard::new(0, 3).instead_of(Shard::new(0, 2)));
        assert_eq!(way.wake_at(&often(false), start), None, "the new is not there yet");
        // All that are fast do it at the same moment.
        assert_eq!(way.wake_at(&often(true), at(1)), Some(at(5)));
        assert!(!way.due(&often(true), at(4)));
        assert!(way.due(&often(true), at(5)));
        assert_eq!(way.share.stage(), Some(Stage::Both));
        assert_eq!(way.wake_at(&often(true), start), Some(at(5) + SECOND / 10));
        assert_eq!(way.wake_at(&around(true, None, &[]), start), Some(at(10)));
        assert_eq!(way.wake_at(&around(true, Some(100 * SECOND), &[]), start), Some(at(35)));
        assert!(way.due(&often(true), at(6)));
        assert_eq!(way.share.stage(), Some(Stage::Done));
        // A pod that is still to come is waited for, and so is one that may be slower.
        assert!(way.found(Detected { settled: false, ..detected(0, 4) }, start));
        assert_eq!(way.wake_at(&often(true), at(4)), Some(at(4) + LONGEST_PREPARATION));
        assert!(!way.found(detected(0, 4), at(4)), "only its readiness has changed");
        assert_eq!(way.wake_at(&often(true), at(4)), Some(at(8)));
        // Another change on the way begins with what is shown.
        assert!(way.found(detected(0, 5), at(4)));
        assert_eq!(way.share, Shard::new(0, 5).instead_of(Shard::new(0, 3)));
    }

    #[test]
    fn others_that_answer_are_waited_for_and_no_longer() {
        use super::level::{BEHIND, DONE, PREPARED, SHOWN, STARTING};
        let start = Instant::now();
        let often = |others: &[Option<i64>]| around(true, Some(SECOND / 5), others);
        let mut way = settled(0, 2, start);
        assert!(way.found(Detected { settled: false, ..detected(0, 3) }, start));
        for below in [STARTING, BEHIND] {
            let others = often(&[Some(PREPARED), Some(below)]);
            assert_eq!(way.wake_at(&others, start), Some(start + LONGEST_PREPARATION));
        }
        assert_eq!((way.level(false), way.level(true)), (BEHIND, PREPARED));
        assert!(way.due(&often(&[Some(PREPARED), Some(SHOWN)]), start), "all are that far");
        assert_eq!((way.level(false), way.level(true)), (PREPARED, SHOWN));
        let late = start + PREPARATION;
        assert_eq!(way.wake_at(&often(&[Some(PREPARED), Some(SHOWN)]), start), Some(late));
        let soon = start + SECOND / 40;
        assert_eq!(way.wake_at(&often(&[Some(DONE), Some(SHOWN)]), start), Some(soon));
        assert!(way.due(&often(&[Some(DONE), Some(SHOWN)]), soon));
        assert_eq!(way.level(true), DONE);
    }

    #[test]
    fn a_start_shows_nothing_only_where_others_wait_for_it() {
        use super::level::{BEHIND, DONE, PREPARED, STARTING};
        let start = Instant::now();
        let waits = |others: &[Option<i64>]| {
            let mut way = Resharding::new(detected(1, 3), start);
            assert_eq!(way.level(false), STARTING);
            !way.due(&around(false, None, others), start)
        };
        for others in [&[None, None][..], &[Some(DONE), None], &[Some(DONE), Some(STARTING)]] {
            assert!(!waits(others), "{others:?}");
        }
        for others in [[Some(BEHIND), None], [Some(PREPARED), Some(STARTING)]] {
            assert!(waits(&others), "{others:?}");
        }
        let mut way = Resharding::new(detected(1, 3), start);
        assert_eq!(way.wake_at(&Around::default(), start), Some(start + FIRST_ANSWERS));
        assert!(way.due(&Around::default(), start + FIRST_ANSWERS));
        // With others it takes the same steps as they do.
        let mut way = Resharding::new(detected(1, 3), start);
        let ready = around(true, None, &[Some(PREPARED), Some(PREPARED)]);
        assert_eq!(way.level(true), PREPARED);
        assert!(way.due(&ready, start));
        assert_eq!(way.share.stage(), Some(Stage::Both));
    }
}
