//! The faults of a history, and the pauses between them.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use super::faults::Fault;

/// The faults of a history, and the pauses between them.
///
/// Few kinds of faults that come again and again lead to states that all kinds in turn do not ("Swarm Testing", Groce et
/// al., ISSTA 2012), and long pauses are times in which scrapes have to be current and requests are few.
pub(super) struct FaultMix {
    /// All of them if it is empty.
    faults: Vec<Fault>,
    has_restores: bool,
    /// True for a random mix.
    pub(super) is_random: bool,
    /// The ranges of the pauses, in milliseconds, which are equally likely.
    pauses: [Range<u64>; 3],
}

impl FaultMix {
    /// Returns the mix of all faults, without restores if the ledger forgets objects too early for them.
    pub(super) fn of_all(has_restores: bool) -> Self {
        let pauses = [0..5_000, 0..30_000, 15_000..60_000];
        Self { faults: Vec::new(), has_restores, is_random: false, pauses }
    }

    /// Returns a random mix.
    #[cfg(test)]
    pub(super) fn random(rng: &mut Rng, has_restores: bool) -> Self {
        let count = if rng.u32(0..3) == 0 { 0 } else { rng.usize(1..5) };
        let all = Self { is_random: true, ..Self::of_all(has_restores) };
        let pauses = match rng.u32(0..5) {
            0 => std::array::from_fn(|_| 0..3_000),
            1 => std::array::from_fn(|_| 50_000..150_000),
            _ => all.pauses.clone(),
        };
        let faults = (0..count).map(|_| all.fault(rng).0).collect();
        Self { faults, pauses, ..all }
    }

    /// Returns a mix of faults with this name, which comes again and again.
    #[cfg(test)]
    pub(super) fn of_name(rng: &mut Rng, has_restores: bool, name: &str) -> Self {
        let all = Self { is_random: true, ..Self::of_all(has_restores) };
        if !has_restores && matches!(Fault::of_name(name, rng), Fault::Restored { .. }) {
            return all;
        }
        Self { faults: (0..4).map(|_| Fault::of_name(name, rng)).collect(), ..all }
    }

    pub(super) fn fault(&self, rng: &mut Rng) -> (Fault, Duration) {
        if let Some(fault) = rng.choice(&self.faults) {
            return (fault.clone(), fault.duration(rng));
        }
        let choices = if self.is_random { Fault::CHOICES } else { Fault::USUAL_CHOICES };
        loop {
            let (fault, duration) = Fault::random(choices, rng);
            if self.has_restores || !matches!(fault, Fault::Restored { .. }) {
                return (fault, duration);
            }
        }
    }

    pub(super) fn pause(&self, rng: &mut Rng) -> Duration {
        let range = self.pauses[rng.u32(0..self.pauses.len() as u32) as usize].clone();
        Duration::from_millis(rng.u64(range))
    }
}
