//! Changes of the shard whose objects are shown.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

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

/// The shard whose objects are shown, and its further changes.
pub struct ObjectShards {
    pub shard: Shard,
    pub exposed: ExposedShards,
    /// The shard of the last change.
    target: Shard,
    changes: VecDeque<(Duration, ShardChange)>,
}

impl ObjectShards {
    /// Starts with everything. `changes` has the time since the start of each change.
    pub fn new(changes: Vec<(Duration, ShardChange)>) -> Self {
        let (shard, exposed) = (Shard::ALL, ExposedShards::one(Shard::ALL));
        Self { shard, exposed, target: shard, changes: changes.into() }
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
        (true, self.first().map(|next| next - at))
    }
}
