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
use tokio::time::{Instant, sleep, sleep_until};

use super::autosharding::{Autosharding, Detected, PodName};
use super::client::{Client, ClientError};
use super::follow::backoff::{Backoff, BackoffConfig, Failure};
pub use super::peers::{Asking, OwnIdentity};
use super::peers::{Levels, Peers, level};
use super::pipeline::PipelineHandle;
use super::shard::{Shard, Stage};
use crate::cache::Catalog;
use crate::telemetry::KubeMetrics;

/// After so long all pods show what they gained: counted from the change, which all hear of at the same moment, so that
/// they do it together.
const PREPARATION: Duration = Duration::from_secs(5);

/// How long is waited for pods that are not ready yet, and for kinds that cannot be listed.
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
    /// Whether nothing was shown yet.
    fresh: bool,
    /// Whether not everything was there yet.
    starting: bool,
    /// When the change was found.
    found: Instant,
    /// Since when all of what is gained is followed.
    complete: Option<Instant>,
    /// Since when it is shown.
    shown: Option<Instant>,
}

/// How far the list/watches are with what was last asked of them.
#[derive(Clone, Copy, Debug, Default)]
struct Following {
    /// Whether they have heard of it, so that what they have is shown as it says.
    taken: bool,
    /// Whether everything that the server gives is there.
    complete: bool,
}

/// What a step depends on, beside time.
#[derive(Clone, Debug, Default)]
struct Around {
    following: Following,
    /// How long after one another scrapes come.
    interval: Option<Duration>,
    /// What the others say.
    others: Levels,
}

impl Resharding {
    /// Begins with the share that was found, and with nothing of it shown.
    fn new(detected: Detected, now: Instant) -> Self {
        let share = detected.shard.instead_of(Shard::NOBODY);
        let (fresh, starting) = (true, true);
        Self { detected, share, fresh, starting, found: now, complete: None, shown: None }
    }

    /// Something else was found. Whether something else is to be followed.
    fn found(&mut self, detected: Detected, now: Instant) -> bool {
        let before = self.share;
        if detected.shard != self.detected.shard {
            // From one way onto another: what is shown stays.
            self.share = self.share.redirected(detected.shard);
            (self.found, self.complete, self.shown) = (now, None, None);
        }
        self.detected = detected;
        self.share != before
    }

    /// Whether it is on its way: the others matter.
    fn is_on_its_way(&self) -> bool {
        self.share.stage() != Some(Stage::Done)
    }

    /// Whether no more is to be expected of the list/watches: what cannot be listed holds up nobody for ever.
    fn is_complete(&self, following: Following, now: Instant) -> bool {
        following.complete || following.taken && now >= self.found + LONGEST_PREPARATION
    }

    /// How far it is, as the others are to see it.
    fn level(&mut self, following: Following, now: Instant) -> i64 {
        let complete = self.is_complete(following, now);
        match self.share.stage() {
            Some(Stage::Prepared) if complete => level::PREPARED,
            Some(Stage::Prepared) if self.fresh => level::STARTING,
            Some(Stage::Prepared) => level::BEHIND,
            Some(Stage::Both) if following.taken => level::SHOWN,
            Some(Stage::Both) => level::PREPARED,
            Some(Stage::Done) | None => {
                self.starting &= !complete;
                match (self.starting, following.taken) {
                    (true, _) => level::STARTING,
                    (false, true) => level::DONE,
                    (false, false) => level::SHOWN,
                }
            }
        }
    }

    /// When [`Resharding::due`] has to be asked, `None` while there is nothing to wait for.
    fn wake_at(&mut self, around: &Around, now: Instant) -> Option<Instant> {
        let others = &around.others;
        match self.share.stage()? {
            Stage::Prepared if self.fresh && !others.is_asked() => Some(self.found + FIRST_ANSWERS),
            Stage::Prepared if self.fresh && !others.is_someone_waiting() => Some(now),
            Stage::Done => None,
            _ if !around.following.taken => None,
            Stage::Prepared if !self.is_complete(around.following, now) => {
                Some(self.found + LONGEST_PREPARATION)
            }
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
            // One that was not scraped often enough yet to know goes by the others.
            Stage::Both if around.interval.is_none() && others.are_all(level::DONE) => Some(now),
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
        let is_alone = self.fresh && !around.others.is_someone_waiting();
        if self.share.stage() == Some(Stage::Prepared) && !is_alone {
            self.share = self.share.at(Stage::Both);
            self.shown = Some(now);
        } else {
            self.share = self.share.at(Stage::Done);
            self.fresh = false;
        }
        true
    }
}

/// The share of the pod that this process is in, and how it changes. Dropping it ends that.
pub struct Sharding {
    source: Autosharding,
    client: Arc<ArcSwap<Client>>,
    pod: PodName,
    asking: Asking,
    detected: watch::Receiver<Detected>,
    way: Resharding,
    /// Who is asked, while it matters.
    peers: Option<Peers>,
}

impl Sharding {
    /// Finds out the share of a pod, and how the others of its StatefulSet are asked.
    ///
    /// # Errors
    /// When the pod or its StatefulSet cannot be asked for, or it has none.
    pub async fn start(
        client: &Arc<ArcSwap<Client>>,
        pod: PodName,
        asking: Asking,
    ) -> Result<Self, ClientError> {
        let source = Autosharding::start(Arc::clone(client), pod.clone()).await?;
        let mut detected = source.detected();
        let way = Resharding::new(*detected.borrow_and_update(), Instant::now());
        let client = Arc::clone(client);
        Ok(Self { source, client, pod, asking, detected, way, peers: None })
    }

    /// The same, however long it takes until it can be found out.
    pub async fn find(client: Arc<ArcSwap<Client>>, pod: PodName, asking: Asking) -> Self {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let mut said = String::new();
        loop {
            let error = match Self::start(&client, pod.clone(), asking.clone()).await {
                Ok(found) => return found,
                Err(error) => error.to_string(),
            };
            if error != said {
                tracing::warn!(
                    error,
                    "the share of this pod is not known yet, asking again until it is"
                );
                said = error;
            }
            let now = Instant::now();
            sleep(backoff.failed(now, Failure::Passing, fastrand::f64())).await;
        }
    }

    /// The others are asked like this from here on.
    pub fn ask(&mut self, asking: Asking) {
        self.asking = asking;
        self.peers = None;
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
                    .map(|names| Peers::ask(client, namespace, names, &self.asking, total));
            }
            let following = Following {
                taken: handle.is_taken(change),
                complete: handle.is_in_force_where_allowed(change),
            };
            metrics.shard_stage(total, self.way.level(following, Instant::now()));
            let nobody = || Levels::of(vec![None]);
            let others = self.peers.as_mut().map_or_else(nobody, Peers::latest);
            let around = Around { following, interval: catalog.scrape_interval(), others };
            let now = Instant::now();
            if self.way.due(&around, now) {
                let Shard { index, total, .. } = self.share();
                let what = match self.share().stage() {
                    Some(Stage::Both) => "What this shard has gained is shown",
                    _ => "What this shard has lost is no longer shown",
                };
                tracing::info!(shard = index, total, others = ?around.others.levels(), "{what}");
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
    use crate::kube::shard::Part;

    const SECOND: Duration = Duration::from_secs(1);

    fn detected(index: i32, total: i64) -> Detected {
        Detected { shard: Shard::new(index, total), settled: true }
    }

    /// Heard of, but something cannot be listed.
    const PARTIAL: Following = Following { taken: true, complete: false };

    /// With everything in force, or nothing.
    fn following(complete: bool) -> Following {
        Following { taken: complete, complete }
    }

    fn around(in_force: bool, interval: Option<Duration>, others: &[Option<i64>]) -> Around {
        Around { following: following(in_force), interval, others: Levels::of(others.to_vec()) }
    }

    /// One that has been there for long.
    fn settled(index: i32, total: i64, start: Instant) -> Resharding {
        let mut way = Resharding::new(detected(index, total), start);
        assert!(way.due(&around(false, None, &[None]), start), "nobody is waited for");
        assert_eq!(way.share.stage(), Some(Stage::Done));
        let levels = [false, true, false].map(|complete| way.level(following(complete), start));
        assert_eq!(levels, [level::STARTING, level::DONE, level::SHOWN]);
        assert_eq!(way.level(PARTIAL, start), level::DONE, "nobody has to wait for it");
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
        assert_eq!(way.wake_at(&around(true, None, &[None]), start), Some(at(10)));
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
        let levels = |way: &mut Resharding| {
            [false, true].map(|complete| way.level(following(complete), start))
        };
        assert_eq!(levels(&mut way), [BEHIND, PREPARED]);
        assert!(way.due(&often(&[Some(PREPARED), Some(SHOWN)]), start), "all are that far");
        assert_eq!(levels(&mut way), [PREPARED, SHOWN]);
        let late = start + PREPARATION;
        assert_eq!(way.wake_at(&often(&[Some(PREPARED), Some(SHOWN)]), start), Some(late));
        let soon = start + SECOND / 40;
        assert_eq!(way.wake_at(&often(&[Some(DONE), Some(SHOWN)]), start), Some(soon));
        assert!(way.due(&often(&[Some(DONE), Some(SHOWN)]), soon));
        assert_eq!(levels(&mut way)[1], DONE);
    }

    #[test]
    fn one_that_nobody_scraped_twice_leaves_with_the_others() {
        let start = Instant::now();
        let unknown = |others: &[Option<i64>]| around(true, None, others);
        let mut way = settled(0, 2, start);
        assert!(way.found(detected(0, 3), start));
        assert!(way.due(&unknown(&[Some(level::PREPARED); 2]), start));
        for others in [[Some(level::DONE), Some(level::SHOWN)], [Some(level::DONE), None]] {
            assert!(way.wake_at(&unknown(&others), start) > Some(start + 4 * SECOND), "{others:?}");
        }
        assert_eq!(way.wake_at(&unknown(&[Some(level::DONE); 2]), start), Some(start));
    }

    /// What cannot be listed holds up nobody for ever, neither here nor elsewhere.
    #[test]
    fn kinds_that_cannot_be_listed_are_not_waited_for_without_end() {
        let start = Instant::now();
        let partial = |others: &[Option<i64>]| Around {
            following: PARTIAL,
            ..around(true, Some(SECOND / 5), others)
        };
        let mut way = settled(0, 3, start);
        assert!(way.found(detected(0, 2), start));
        let (others, end) = (partial(&[Some(level::PREPARED)]), start + LONGEST_PREPARATION);
        assert_eq!(way.wake_at(&others, start), Some(end));
        assert_eq!(way.level(PARTIAL, start), level::BEHIND);
        assert_eq!(way.level(PARTIAL, end), level::PREPARED);
        assert!(way.due(&others, end));
        // Something that cannot be listed any more does not keep what was lost.
        assert_eq!(way.level(PARTIAL, end), level::SHOWN);
        let others = partial(&[Some(level::SHOWN)]);
        assert!(way.due(&others, end + SECOND));
        assert_eq!((way.share.stage(), way.level(PARTIAL, end)), (Some(Stage::Done), level::DONE));
        // One that started with it takes the steps that all take.
        let mut way = Resharding::new(detected(0, 2), start);
        assert!(way.due(&partial(&[Some(level::DONE)]), start), "nobody is waited for");
        assert_eq!(way.level(PARTIAL, start), level::STARTING);
        assert!(way.found(detected(0, 3), start + SECOND));
        assert!(!way.due(&partial(&[None, None]), start + SECOND), "nothing is left at once");
        assert_eq!(way.level(PARTIAL, start + SECOND), level::BEHIND);
    }

    /// All that others may still rely on is shown until all are on the last way.
    #[test]
    fn a_change_that_overtakes_another() {
        let start = Instant::now();
        let mut way = settled(0, 2, start);
        assert!(way.found(detected(0, 3), start));
        assert!(way.due(&around(true, None, &[Some(level::PREPARED); 2]), start));
        assert_eq!(way.share.stage(), Some(Stage::Both));
        assert!(way.found(detected(0, 5), start));
        assert_eq!(way.share.stage(), Some(Stage::Prepared));
        let is = |uid: &[u8], total| Shard::new(0, total).keeps(uid);
        for uid in (0..1000).map(|uid: u32| uid.to_string().into_bytes()) {
            let shown = is(&uid, 2) || is(&uid, 3);
            let part = way.share.part(&uid);
            assert_eq!(matches!(part, Part::Kept | Part::Lost), shown, "{part:?}");
            assert_eq!(way.share.keeps(&uid), shown || is(&uid, 5), "{part:?}");
        }
    }

    #[test]
    fn a_start_shows_nothing_only_where_others_wait_for_it() {
        use super::level::{BEHIND, DONE, PREPARED, STARTING};
        let start = Instant::now();
        let waits = |others: &[Option<i64>]| {
            let mut way = Resharding::new(detected(1, 3), start);
            assert_eq!(way.level(following(false), start), STARTING);
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
        assert_eq!(way.level(following(true), start), PREPARED);
        assert!(way.due(&ready, start));
        assert_eq!(way.share.stage(), Some(Stage::Both));
    }
}
