//! The scheduled actions of a history.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::kube::shard::Shard;

/// The kinds of scheduled actions.
pub enum Action {
    /// The change that this seed determines, or a random one that schedules the next.
    Change(Option<u64>),
    /// Deletes many objects; the seed determines which.
    Delete(u64),
    /// A scrape; if true, it schedules the next.
    Scrape(bool),
    Begin(usize),
    End(usize),
    /// A change of the shard whose workloads are counted.
    Reshard(Shard),
    /// The next change of the shard whose objects are shown.
    ReshardObjects,
    /// A reload of the custom resources.
    ReloadCustom,
    /// A reload of the custom resources that takes the last one back.
    RevertCustom,
    /// A reload of the budgets.
    ReloadLimits,
    /// A reload of the options of the counters of events.
    ReloadLedger,
    /// A reload that changes which kinds are watched.
    ReloadKinds,
    /// A reload that leads to another API server.
    ChangeServer,
}

/// The scheduled actions in the order of their times.
#[derive(Default)]
pub struct Queue {
    actions: BTreeMap<(Instant, usize), Action>,
    /// The number of actions so far.
    number: usize,
}

impl Queue {
    pub fn add(&mut self, at: Instant, action: Action) {
        self.number += 1;
        self.actions.insert((at, self.number), action);
    }

    /// Returns the time of the next action.
    pub fn next_time(&self) -> Option<Instant> {
        self.actions.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next action.
    pub fn pop(&mut self) -> Option<Action> {
        self.actions.pop_first().map(|(_, action)| action)
    }
}
