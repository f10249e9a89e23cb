//! The pods that lose their series some time after they have completed (`--drop-completed-pods-after`).
//!
//! Times are those of the wall clock, which may be wrong when the process starts and is corrected later. There is no timer: the
//! sink asks after each event and bookmark, which an idle watch receives once a minute.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::kube::observed::Pod;
use crate::util::shrink::Shrink as _;
use crate::util::wall_clock;

/// The completed pods of one list/watch.
pub(crate) struct CompletedPods {
    /// The time from the end of a pod until it loses its series, in seconds.
    after: i64,
    /// The pods of the state that is shown.
    shown: DuePods,
    /// The pods of the state that a list collects.
    collected: Option<DuePods>,
}

/// The pods of one state that have completed and have series, and when they lose them, in unix seconds.
#[derive(Default)]
struct DuePods {
    due: HashMap<Box<[u8]>, i64>,
    queue: BTreeSet<(i64, Box<[u8]>)>,
}

impl DuePods {
    fn forget(&mut self, uid: &[u8]) {
        if let Some((uid, due)) = self.due.remove_entry(uid) {
            self.queue.remove(&(due, uid));
            self.due.shrink();
        }
    }
}

impl CompletedPods {
    pub(crate) fn new(after: Duration) -> Self {
        let after = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        Self { after, shown: DuePods::default(), collected: None }
    }

    /// Begins a list, to which pods belong until it ends.
    pub(crate) fn begin_list(&mut self) {
        self.collected = Some(DuePods::default());
    }

    /// Ends a list, whose state replaces the shown one if it `is_complete`.
    pub(crate) fn end_list(&mut self, is_complete: bool) {
        let collected = self.collected.take();
        if let Some(collected) = collected.filter(|_| is_complete) {
            self.shown = collected;
        }
    }

    fn current(&mut self) -> &mut DuePods {
        self.collected.as_mut().unwrap_or(&mut self.shown)
    }

    /// Takes the state of a pod; returns whether it has no series any more.
    pub(crate) fn observe(&mut self, pod: &Pod<'_>) -> bool {
        let uid = pod.metadata.uid.as_bytes();
        self.forget(uid);
        let Some(ended) = ended_at(pod) else { return false };
        let due = ended.saturating_add(self.after);
        if due <= wall_clock::unix_seconds() {
            return true;
        }
        let current = self.current();
        current.due.insert(uid.into(), due);
        current.queue.insert((due, uid.into()));
        false
    }

    /// Forgets a pod that was deleted or is not completed.
    pub(crate) fn forget(&mut self, uid: &[u8]) {
        self.current().forget(uid);
    }

    /// Returns the UID of the next pod of the shown state that loses its series now.
    pub(crate) fn next_due(&mut self) -> Option<Box<[u8]>> {
        let DuePods { due, queue } = &mut self.shown;
        queue.first().filter(|(due, _)| *due <= wall_clock::unix_seconds())?;
        let (_, uid) = queue.pop_first()?;
        due.remove(&uid);
        due.shrink();
        Some(uid)
    }
}

/// Returns the unix time at which a completed pod ended: when its last container finished, or else the last change of a
/// condition, as of a pod that was evicted before it started, or else its start or creation.
fn ended_at(pod: &Pod<'_>) -> Option<i64> {
    let status = &pod.status;
    if !status.is_finished() {
        return None;
    }
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    let finished = containers.filter_map(|status| status.state.terminated.as_ref());
    let finished = finished.filter_map(|terminated| terminated.finished_at.set()).max();
    let changes = status.conditions.iter();
    let changed = changes.filter_map(|condition| condition.last_transition_time.set()).max();
    let time = finished.or(changed).or(status.start_time);
    Some(time.unwrap_or(pod.metadata.creation_timestamp).unix())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::resources::ObjectBytes;
    use crate::util::shrink::SMALL;
    use crate::util::wall_clock::simulation::{Simulated, simulate};
    use crate::wire::view::decode;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Simulates the wall clock, which the returned cell sets.
    fn simulated() -> (Rc<Cell<i64>>, Simulated) {
        let now = Rc::new(Cell::new(1_800_000_000));
        let clock = Rc::clone(&now);
        (now, simulate(move || clock.get()))
    }

    fn advance(now: &Cell<i64>, seconds: i64) {
        now.set(now.get() + seconds);
    }

    /// Returns the state of a pod that ended so many seconds ago.
    fn observe(pods: &mut CompletedPods, uid: &str, phase: &str, ago: i64, place: &str) -> bool {
        let ended = wall_clock::unix_seconds() - ago;
        let time = jiff::Timestamp::from_second(ended).expect("a time");
        let status = match place {
            "container" => format!(
                r#""containerStatuses":[{{"state":{{"terminated":{{"finishedAt":"{time}"}}}}}},{{"state":{{}}}}],
                   "conditions":[{{"lastTransitionTime":"2200-01-01T00:00:00Z"}}]"#
            ),
            "condition" => {
                format!(
                    r#""conditions":[{{"lastTransitionTime":"{time}"}}],"startTime":"2200-01-01T00:00:00Z""#
                )
            }
            _ => format!(r#""startTime":"{time}""#),
        };
        let text =
            format!(r#"{{"metadata":{{"uid":"{uid}"}},"status":{{"phase":"{phase}",{status}}}}}"#);
        let pod: Pod<'_> = decode(ObjectBytes::Json(text.as_bytes())).expect("a pod");
        pods.observe(&pod)
    }

    #[test]
    fn a_completed_pod_is_due_at_once_and_forgotten() {
        let (now, _clock) = simulated();
        let mut pods = CompletedPods::new(HOUR);
        let ended = now.get() - 3000;
        let time = jiff::Timestamp::from_second(ended).expect("a time");
        let text = format!(
            r#"{{"metadata":{{"uid":"a"}},"status":{{"phase":"Failed","startTime":"{time}"}}}}"#
        );
        let pod: Pod<'_> = decode(ObjectBytes::Json(text.as_bytes())).expect("a pod");
        assert!(!pods.observe(&pod));
        advance(&now, 599);
        assert_eq!(pods.next_due(), None);
        assert!(!pods.observe(&pod));
        advance(&now, 1);
        assert!(pods.observe(&pod), "it is due now");
        assert_eq!(pods.next_due(), None, "it has no series that it could lose");
        assert!(pods.shown.due.is_empty() && pods.shown.queue.is_empty());
    }

    #[test]
    fn completed_pods_are_due_after_a_while() {
        let (now, _clock) = simulated();
        let mut pods = CompletedPods::new(HOUR);
        for place in ["container", "condition", "start"] {
            assert!(observe(&mut pods, "old", "Succeeded", 3700, place), "{place}");
            assert!(observe(&mut pods, "old", "Failed", 3700, place), "{place}");
            assert!(!observe(&mut pods, "running", "Running", 3700, place), "{place}");
            assert!(!observe(&mut pods, place, "Failed", 3000, place), "{place}");
        }
        assert!(!observe(&mut pods, "deleted", "Failed", 3000, "container"));
        pods.forget(b"deleted");
        assert!(!observe(&mut pods, "revived", "Failed", 3000, "container"));
        assert!(!observe(&mut pods, "revived", "Running", 3000, "container"));
        // A node's clock is ahead.
        assert!(!observe(&mut pods, "later", "Succeeded", -300, "container"));
        assert_eq!(pods.next_due(), None);
        advance(&now, 590);
        assert_eq!(pods.next_due(), None);
        advance(&now, 20);
        let mut due: Vec<_> = std::iter::from_fn(|| pods.next_due()).collect();
        due.sort_unstable();
        assert_eq!(due, [&b"condition"[..], b"container", b"start"].map(Box::from));
        advance(&now, 3600);
        assert_eq!(pods.next_due().as_deref(), Some(&b"later"[..]));
        assert!(
            pods.next_due().is_none() && pods.shown.due.is_empty() && pods.shown.queue.is_empty()
        );
    }

    /// The clock was an hour ahead at the start.
    #[test]
    fn a_corrected_clock_is_followed() {
        let (now, _clock) = simulated();
        advance(&now, 3600);
        let mut pods = CompletedPods::new(HOUR);
        pods.begin_list();
        pods.end_list(true);
        assert!(!observe(&mut pods, "early", "Failed", 0, "start"));
        advance(&now, -3600);
        assert!(!observe(&mut pods, "right", "Failed", 0, "start"));
        advance(&now, 3600);
        assert_eq!(pods.next_due().as_deref(), Some(&b"right"[..]));
        assert_eq!(pods.next_due(), None);
        advance(&now, 3600);
        assert_eq!(pods.next_due().as_deref(), Some(&b"early"[..]));
    }

    /// The shown state is older than what a list had collected that was not completed.
    #[test]
    fn a_list_that_fails_drops_nothing() {
        let (now, _clock) = simulated();
        let mut pods = CompletedPods::new(HOUR);
        assert!(!observe(&mut pods, "shown", "Failed", 3000, "start"));
        for is_complete in [false, true] {
            pods.begin_list();
            assert!(!observe(&mut pods, "listed", "Failed", 3000, "start"));
            pods.end_list(is_complete);
            advance(&now, 700);
            let due: Vec<_> = std::iter::from_fn(|| pods.next_due()).collect();
            assert_eq!(due, [Box::from(if is_complete { &b"listed"[..] } else { b"shown" })]);
        }
    }

    #[test]
    fn the_table_shrinks_when_pods_leave() {
        let (now, _clock) = simulated();
        let mut pods = CompletedPods::new(HOUR);
        for uid in 0..2_000 {
            assert!(!observe(&mut pods, &uid.to_string(), "Failed", 3000, "start"));
        }
        (0..1_000).for_each(|uid| pods.forget(uid.to_string().as_bytes()));
        advance(&now, 3600);
        let due = std::iter::from_fn(|| pods.next_due()).take(999).count();
        assert_eq!((due, pods.shown.due.len()), (999, 1));
        assert!(pods.shown.due.capacity() <= SMALL, "{}", pods.shown.due.capacity());
    }
}
