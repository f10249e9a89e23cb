//! Lines in quick succession: nothing happens in the cluster between them, they come from one peer, and each states one of a few
//! origins or none.
//!
//! Peer and origins often stay the same until the next succession, so that pods change between two lines that state the same.

use std::net::IpAddr;

use fastrand::Rng;

use super::senders::{Key, Pod, claim_of};
use crate::statsd::tests::history::Origin;

/// On average one of this many steps is a succession.
const ONE_OF: u32 = 8;
/// The number of its steps.
const STEPS: std::ops::Range<u32> = 3..9;

/// The origins of lines in quick succession.
pub(super) struct Succession {
    rng: Rng,
    peer: Option<IpAddr>,
    claims: Vec<String>,
    is_now: bool,
}

impl Succession {
    pub(super) fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed ^ 0x34b0_bcb5_e19b_48a8);
        Self { rng, peer: None, claims: Vec::new(), is_now: false }
    }

    /// Begins a succession, or not. Returns the number of its steps, 1 if there is none.
    pub(super) fn begin(&mut self, live: &[Pod]) -> u32 {
        if live.is_empty() || self.rng.u32(0..ONE_OF) > 0 {
            return 1;
        }
        self.is_now = true;
        if self.claims.is_empty() || self.rng.u32(0..3) == 0 {
            self.choose(live);
        }
        self.rng.u32(STEPS)
    }

    pub(super) fn end(&mut self) {
        self.is_now = false;
    }

    /// Chooses other origins for the lines that follow.
    fn choose(&mut self, live: &[Pod]) {
        let rng = &mut self.rng;
        let mut newest: Vec<&Pod> = live.iter().collect();
        newest.sort_by_key(|pod| std::cmp::Reverse(pod.started));
        // Less is known about those that have just begun.
        newest.truncate(if rng.bool() { 4 } else { newest.len() });
        let pod = newest[rng.usize(..newest.len())];
        // Only one without a pod of its own can speak for any other one.
        let peer = match rng.u32(0..4) {
            0 => pod.keys.first(),
            1 => pod.keys.get(2),
            _ => None,
        };
        self.peer = match peer {
            Some(Key::Address(address) | Key::Node(address)) => Some(*address),
            Some(Key::Uid(_)) | None => None,
        };
        let count = rng.usize(2..5);
        self.claims = (0..count)
            .map(|_| match rng.u32(0..5) {
                0 => String::new(),
                1 => format!("|c:ci-none{}", claim_of(newest[rng.usize(..newest.len())])),
                _ => claim_of(newest[rng.usize(..newest.len())]),
            })
            .collect();
    }

    /// Returns the origin of the next lines during a succession.
    pub(super) fn next(&mut self) -> Option<Origin> {
        let claim = self.is_now.then(|| self.rng.choice(&self.claims).cloned().unwrap_or_default());
        claim.map(|claim| Origin { address: self.peer, claim })
    }
}
