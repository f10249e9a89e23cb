//! Tests of single moves.

use super::*;
use crate::kube::shard::Ownership;

mod history;

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
    assert_eq!(transition.next_wakeup(&inputs(true, Some(100 * SECOND), &[]), start), Some(at(35)));
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
    assert_eq!(transition.next_wakeup(&often(&[Some(PREPARED), Some(SHOWN)]), start), Some(late));
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
    for peers in [[Some(peer_stage::DONE), Some(peer_stage::SHOWN)], [Some(peer_stage::DONE), None]]
    {
        assert!(
            transition.next_wakeup(&unknown(&peers), start) > Some(start + 4 * SECOND),
            "{peers:?}"
        );
    }
    assert_eq!(transition.next_wakeup(&unknown(&[Some(peer_stage::DONE); 2]), start), Some(start));
}

/// Pods that have not been asked yet may still be listing: after a change to many pods, or after a reload.
#[test]
fn pods_that_were_not_asked_are_waited_for() {
    let start = Instant::now();
    let unasked =
        TransitionInputs { peers: PeerStages::default(), ..inputs(true, Some(SECOND / 5), &[]) };
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
