//! Changes of the shard whose objects are shown.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use crate::kube::shard::{Ownership, Shard, Stage};

/// The pause between two looks whether the gained objects have been listed.
const LISTING: Duration = Duration::from_millis(300);

/// A step of a change of the shard.
#[derive(Clone, Copy, Debug)]
pub enum ShardChange {
    /// Begins a change to this shard, at any stage of the previous change.
    To(Shard),
    /// Moves the present change to this stage.
    At(Stage),
}

impl ShardChange {
    fn apply(self, shard: Shard) -> Shard {
        match self {
            Self::To(to) => shard.retargeted(to),
            Self::At(stage) => shard.at(stage),
        }
    }
}

/// Returns changes of the shard, each with its time since the start. Before the stages for which `is_overtaken` is true, the next
/// change begins.
pub fn random_changes(
    rng: &mut Rng,
    length: Duration,
    mut is_overtaken: impl FnMut(Stage) -> bool,
) -> Vec<(Duration, ShardChange)> {
    let seconds = |rng: &mut Rng, range: std::ops::Range<u64>| Duration::from_secs(rng.u64(range));
    let (mut changes, mut at) = (Vec::new(), seconds(rng, 20..60));
    while at < length {
        let total = rng.u8(1..4);
        changes.push((at, ShardChange::To(Shard::new(rng.u8(..total).into(), total.into()))));
        for stage in [Stage::Overlap, Stage::Done] {
            at += seconds(rng, 1..15);
            if is_overtaken(stage) {
                break;
            }
            changes.push((at, ShardChange::At(stage)));
        }
        at += seconds(rng, 0..80);
    }
    changes
}

/// Prolongs the times in which gained objects are followed but not shown. The later changes are delayed.
pub fn prolong_preparations(changes: &mut [(Duration, ShardChange)], rng: &mut Rng) {
    let mut delay = Duration::ZERO;
    for (at, change) in changes {
        if matches!(change, ShardChange::At(Stage::Overlap)) {
            delay += Duration::from_secs(rng.u64(10..40));
        }
        *at += delay;
    }
}

/// Returns the shard from each of these changes on.
pub fn shards(changes: Vec<(Duration, ShardChange)>) -> Vec<(Duration, Shard)> {
    let mut shard = Shard::ALL;
    let mut apply = |change: ShardChange| {
        shard = change.apply(shard);
        shard
    };
    changes.into_iter().map(|(at, change)| (at, apply(change))).collect()
}

/// The shards whose objects are shown, the newest one first: one, or several during a change. A program that prepares a change
/// remembers three of them. Computed from the changes alone, without the transitions of [`Shard`].
#[derive(Clone, Copy, Debug)]
pub struct ExposedShards([Option<Shard>; 4]);

impl ExposedShards {
    const fn one(shard: Shard) -> Self {
        Self([Some(shard), None, None, None])
    }

    /// Returns true if the object whose UID has this hash is shown.
    pub fn show(self, uid: u64) -> bool {
        let mut shards = self.0.iter().flatten();
        shards.any(|shard| shard.ownership_of_hash(uid) == Ownership::Kept)
    }
}

/// The shards whose objects are followed since a time: those that are shown, and the one that a change prepares.
#[derive(Clone, Copy, Debug)]
struct FollowedShards {
    since: Instant,
    exposed: ExposedShards,
    target: Shard,
}

impl FollowedShards {
    /// Returns true if the object whose UID has this hash is followed.
    fn follow(self, uid: u64) -> bool {
        self.exposed.show(uid) || self.target.ownership_of_hash(uid) == Ownership::Kept
    }
}

/// The shard whose objects are shown, and its further changes.
pub struct ObjectShards {
    pub shard: Shard,
    pub exposed: ExposedShards,
    /// The shard of the last change.
    target: Shard,
    /// True while a change of the shard is not complete.
    pub is_changing: bool,
    /// The shards whose objects have been followed so far.
    followed: Vec<FollowedShards>,
    changes: VecDeque<(Duration, ShardChange)>,
}

impl ObjectShards {
    /// Starts with everything. `changes` has the time since the start of each change.
    pub fn new(changes: Vec<(Duration, ShardChange)>) -> Self {
        let (shard, exposed) = (Shard::ALL, ExposedShards::one(Shard::ALL));
        let followed = vec![FollowedShards { since: Instant::now(), exposed, target: shard }];
        let (target, is_changing, changes) = (shard, false, changes.into());
        Self { shard, exposed, target, is_changing, followed, changes }
    }

    /// Returns whether objects have been followed since a time, by the hashes of their UIDs.
    pub fn followed_since(&self, from: Instant) -> impl Fn(u64) -> bool {
        let later = self.followed.partition_point(|shards| shards.since <= from);
        let shards = &self.followed[later.saturating_sub(1)..];
        move |uid| shards.iter().any(|shards| shards.follow(uid))
    }

    /// Returns true if the next change moves the present one to another stage.
    pub fn is_switch_next(&self) -> bool {
        matches!(self.changes.front(), Some((_, ShardChange::At(_))))
    }

    /// Returns the time from the start to the first change.
    pub fn first(&self) -> Option<Duration> {
        self.changes.front().map(|(at, _)| *at)
    }

    /// Makes the next change, unless it would show objects that have not been listed (`is_listed`). Returns whether the shard
    /// has changed, and the time until the next attempt.
    pub fn advance(&mut self, is_listed: bool) -> (bool, Option<Duration>) {
        let is_due = |change: ShardChange| matches!(change, ShardChange::To(_)) || is_listed;
        let Some((at, change)) = self.changes.pop_front_if(|(_, change)| is_due(*change)) else {
            return (false, self.first().map(|_| LISTING));
        };
        self.shard = change.apply(self.shard);
        match change {
            ShardChange::To(target) => (self.target, self.exposed.0[3]) = (target, None),
            ShardChange::At(Stage::Done) => self.exposed = ExposedShards::one(self.target),
            ShardChange::At(_) => {
                self.exposed.0.rotate_right(1);
                self.exposed.0[0] = Some(self.target);
            }
        }
        self.is_changing = !matches!(change, ShardChange::At(Stage::Done));
        let (since, exposed, target) = (Instant::now(), self.exposed, self.target);
        self.followed.push(FollowedShards { since, exposed, target });
        (true, self.first().map(|next| next - at))
    }
}
