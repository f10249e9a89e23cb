//! Changes of the shard whose objects are shown.

use std::collections::VecDeque;
use std::time::Duration;

use crate::kube::shard::{Shard, Stage};

/// The pause between two looks whether the gained objects have been listed.
const LISTING: Duration = Duration::from_millis(300);

/// The shard whose objects are shown, and its further changes.
pub struct ObjectShards {
    pub shard: Shard,
    changes: VecDeque<(Duration, Shard)>,
}

impl ObjectShards {
    /// Starts with everything. `changes` has the time since the start of each change.
    pub fn new(changes: Vec<(Duration, Shard)>) -> Self {
        Self { shard: Shard::ALL, changes: changes.into() }
    }

    /// Returns the time from the start to the first change.
    pub fn first(&self) -> Option<Duration> {
        self.changes.front().map(|(at, _)| *at)
    }

    /// Makes the next change, unless it would show objects that have not been listed (`is_listed`). Returns whether the shard
    /// has changed, and the time until the next attempt.
    pub fn advance(&mut self, is_listed: bool) -> (bool, Option<Duration>) {
        let is_due = |shard: Shard| shard.stage() == Some(Stage::Preparing) || is_listed;
        match self.changes.pop_front_if(|(_, shard)| is_due(*shard)) {
            Some((at, shard)) => {
                self.shard = shard;
                (true, self.first().map(|next| next - at))
            }
            None => (false, self.first().map(|_| LISTING)),
        }
    }
}
