//! When the options of the counters of events are reloaded.

use std::time::Duration;

use fastrand::Rng;

use super::scenario::Scenario;

/// The time after which the first lists are complete.
const FIRST: Duration = Duration::from_secs(10);

impl Scenario {
    /// Adds such reloads to some histories.
    pub(super) fn with_ledger_reloads(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x3956_c25b_f348_b538);
        if rng.u32(0..4) == 0 {
            self.ledger_reloads = self.reloads(&mut rng, 60_000);
            self.ledger_reloads.retain(|at| *at > FIRST);
        }
        self
    }
}
