//! Decides which of several replicas exposes metrics, from their states alone.
//!
//! All replicas apply the same order to the same states, so they agree as long as they reach each other. A replica that
//! hears of no other one that exposes does so itself, because a duplicate is better than a gap.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The longest time without an answer from a replica that runs, and without any replica that exposes.
pub(super) const BOUND: Duration = Duration::from_secs(2);

/// The time that a starting replica waits for others that do not answer yet.
pub(super) const START_GRACE: Duration = Duration::from_secs(1);

/// The state of a replica, as reported to the others. Unknown fields of later versions are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Replica {
    /// A random number that identifies the process.
    pub(super) id: u64,
    /// The shard and the number of shards; only replicas of the same shard replace each other.
    pub(super) group: String,
    /// The start of the process, in Unix milliseconds.
    pub(super) started: u64,
    /// The time since which it exposes its metrics, in Unix milliseconds; `None` for a standby.
    pub(super) active_since: Option<u64>,
    /// True once its first lists are complete.
    pub(super) synced: bool,
    /// True once it is shutting down.
    pub(super) leaving: bool,
}

impl Replica {
    /// Returns the order of replicas: the lowest exposes. Synced replicas come before others, then those that expose
    /// already, longest first, then those that were started first.
    fn rank(&self) -> impl Ord + use<> {
        let since = self.active_since.unwrap_or(u64::MAX);
        (self.leaving, !self.synced, since, self.started, self.id)
    }
}

/// The state of this replica and the decision whether it exposes.
#[derive(Debug)]
pub(super) struct Election {
    pub(super) own: Replica,
    /// The start of the process, whose Unix time is [`Replica::started`].
    created: Instant,
    /// The start of the process, or of its continuation after it was stopped.
    began: Instant,
    /// The time of the last decision.
    decided: Instant,
    /// The latest time when some replica was known to expose.
    exposed: Instant,
    /// True until all other replicas have been asked.
    is_undecided: bool,
}

impl Election {
    /// Begins as a standby.
    pub(super) fn new(own: Replica, now: Instant) -> Self {
        Self { own, created: now, began: now, decided: now, exposed: now, is_undecided: true }
    }

    /// Decides whether this replica exposes, from the states of the replicas that answer (`peers`). `are_all_asked` and
    /// `do_all_answer` are about all known replicas. Returns true if the decision has changed.
    pub(super) fn decide(
        &mut self,
        peers: &[Replica],
        are_all_asked: bool,
        do_all_answer: bool,
        now: Instant,
    ) -> bool {
        let before = self.own.active_since;
        if self.was_stopped(now) && !peers.is_empty() {
            // The others have noticed and do not count on this replica any more.
            (self.own.active_since, self.is_undecided, self.began) = (None, true, now);
            self.exposed = now;
            self.decided = now;
            return before.is_some();
        }
        self.decided = now;
        let mut active = peers.iter().filter(|peer| peer.active_since.is_some()).peekable();
        let is_any_active = active.peek().is_some();
        let is_other_active = active.any(|peer| !peer.leaving);
        let waited = now.saturating_duration_since(self.began);
        self.is_undecided &= !is_other_active
            && !(are_all_asked && (do_all_answer || waited >= START_GRACE))
            && waited < BOUND;
        if is_any_active || before.is_some() || self.is_undecided {
            self.exposed = now;
        }
        let is_first = peers.iter().all(|peer| self.own.rank() < peer.rank());
        let is_missing = now.saturating_duration_since(self.exposed) >= BOUND;
        // One that ranks higher may not have decided yet, or not have heard that this one leaves.
        let is_awaited = before.is_some() && !is_other_active;
        let is_active = !self.is_undecided && (is_first || is_missing || is_awaited);
        self.own.active_since = is_active.then(|| before.unwrap_or_else(|| self.unix_millis(now)));
        before != self.own.active_since
    }

    /// Returns a time in Unix milliseconds, which no change of the system's clock since the start affects.
    fn unix_millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.created).as_millis();
        self.own.started.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Returns the state for the other replicas. One that was stopped does not expose, if there is another one that has
    /// taken over.
    pub(super) fn reported(&self, has_peers: bool, now: Instant) -> Replica {
        let is_replaced = has_peers && self.was_stopped(now);
        let active_since = self.own.active_since.filter(|_| !is_replaced);
        Replica { active_since, ..self.own.clone() }
    }

    /// Returns true if the process was stopped for so long that other replicas no longer count on it.
    pub(super) fn was_stopped(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.decided) >= BOUND
    }

    /// Returns true if that has happened since a time.
    pub(super) fn was_stopped_since(&self, time: Instant, now: Instant) -> bool {
        self.was_stopped(now) || self.began > time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    fn replica(id: u64, active_since: Option<u64>) -> Replica {
        let group = "0/1".to_owned();
        Replica { id, group, started: id, active_since, synced: true, leaving: false }
    }

    /// Several replicas and the pairs of them that do not reach each other.
    struct Group {
        replicas: Vec<Election>,
        cut: Vec<(usize, usize)>,
        gone: Vec<usize>,
        now: Instant,
    }

    impl Group {
        fn new(size: u64) -> Self {
            let now = Instant::now();
            let replicas = (1..=size).map(|id| Election::new(replica(id, None), now)).collect();
            Self { replicas, cut: Vec::new(), gone: Vec::new(), now }
        }

        /// Lets every replica decide once, with the states that the others had before.
        fn step(&mut self) {
            self.now += STEP;
            let reported = self.replicas.iter().map(|one| one.reported(true, self.now));
            let states: Vec<Replica> = reported.collect();
            for (number, one) in self.replicas.iter_mut().enumerate() {
                if self.gone.contains(&number) {
                    continue;
                }
                let reaches = |other: usize| {
                    other != number
                        && !self.gone.contains(&other)
                        && !self.cut.contains(&(number.min(other), number.max(other)))
                };
                let answers = (0..states.len()).filter(|&other| reaches(other));
                let peers: Vec<Replica> = answers.map(|other| states[other].clone()).collect();
                let all = peers.len() + 1 == states.len();
                one.decide(&peers, true, all, self.now);
            }
        }

        fn settle(&mut self) -> Vec<usize> {
            (0..30).for_each(|_| self.step());
            self.active()
        }

        fn active(&self) -> Vec<usize> {
            let here = self.replicas.iter().enumerate().filter(|(n, _)| !self.gone.contains(n));
            here.filter(|(_, one)| one.own.active_since.is_some()).map(|(n, _)| n).collect()
        }
    }

    #[test]
    fn one_of_several_replicas_exposes() {
        for size in 1..5 {
            let mut group = Group::new(size);
            group.step();
            assert_eq!(group.active(), [0], "{size}");
            assert_eq!(group.settle(), [0], "{size}");
        }
    }

    #[test]
    fn a_standby_takes_over_at_once_and_keeps_exposing() {
        let mut group = Group::new(3);
        assert_eq!(group.settle(), [0]);
        group.gone.push(0);
        group.step();
        assert_eq!(group.active(), [1]);
        // The first one is started again.
        group.gone.clear();
        group.replicas[0] = Election::new(replica(9_000, None), group.now);
        assert_eq!(group.settle(), [1]);
    }

    #[test]
    fn both_sides_of_a_partition_expose_and_the_longer_active_one_remains() {
        let mut group = Group::new(2);
        group.settle();
        group.cut.push((0, 1));
        group.step();
        assert_eq!(group.active(), [0, 1]);
        assert_eq!(group.settle(), [0, 1]);
        group.cut.clear();
        group.step();
        assert_eq!(group.active(), [0]);
        assert_eq!(group.settle(), [0]);
    }

    #[test]
    fn a_replica_that_leaves_hands_over() {
        let mut group = Group::new(2);
        group.settle();
        group.replicas[0].own.leaving = true;
        group.cut.push((0, 1));
        assert_eq!(group.settle(), [0, 1], "it exposes until another one says that it does");
        group.cut.clear();
        assert_eq!(group.settle(), [1]);
        // Without anybody to hand over to it exposes until its end.
        group.replicas[1].own.leaving = true;
        assert_eq!(group.settle().len(), 1);
    }

    #[test]
    fn a_replica_that_was_stopped_does_not_return() {
        let mut group = Group::new(2);
        group.settle();
        group.gone.push(0);
        (0..30).for_each(|_| group.step());
        assert_eq!(group.active(), [1]);
        assert!(group.replicas[0].was_stopped(group.now));
        group.gone.clear();
        let asked = group.now;
        group.step();
        assert_eq!(group.active(), [1], "it waits for the others");
        let was_stopped = |asked| group.replicas[0].was_stopped_since(asked, group.now);
        assert!(was_stopped(asked), "an answer to this request may be older than the stop");
        assert!(!was_stopped(group.now));
        assert_eq!(group.settle(), [1]);
    }

    #[test]
    fn a_synced_replica_is_preferred() {
        let mut group = Group::new(2);
        group.replicas.iter_mut().for_each(|one| one.own.synced = false);
        assert_eq!(group.settle(), [0], "somebody exposes what there is");
        group.replicas[1].own.synced = true;
        assert_eq!(group.settle(), [1]);
        group.replicas[0].own.synced = true;
        assert_eq!(group.settle(), [1]);
    }

    /// A replica that should expose but never says so causes no permanent gap.
    #[test]
    fn a_replica_that_never_exposes_is_not_waited_for() {
        let start = Instant::now();
        let mut one = Election::new(replica(5, None), start);
        let idle = [replica(1, None)];
        let at = |one: &mut Election, after: u64| {
            let now = start + Duration::from_millis(after);
            one.decide(&idle, true, true, now);
            one.own.active_since.is_some()
        };
        let active: Vec<bool> = (0..=21).map(|step| at(&mut one, 100 * step)).collect();
        assert!(!active[..20].contains(&true), "{active:?}");
        assert!(active[21], "{active:?}");
    }

    #[test]
    fn a_starting_replica_waits_for_the_answers_of_others() {
        let start = Instant::now();
        let mut one = Election::new(replica(1, None), start);
        let mut at = |after: u64, peers: &[Replica], asked, answer| {
            let now = start + Duration::from_millis(after);
            one.decide(peers, asked, answer, now);
            one.own.active_since.is_some()
        };
        assert!(!at(0, &[], false, false));
        assert!(!at(500, &[], true, false), "it may be starting as well");
        assert!(at(1_000, &[], true, false));
        assert!(!at(1_100, &[replica(2, Some(900))], true, true), "it was longer active");
    }
}
