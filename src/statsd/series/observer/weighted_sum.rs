//! Sums of observations.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag for sums that may decrease: a negative value or NaN was observed, or there are buckets below 0. A
/// format that requires monotonic sums cannot expose such observers under their own type. The flag stays set
/// for the lifetime of the family, so its type does not flap.
#[derive(Debug, Default)]
pub(crate) struct DecreaseFlag(AtomicBool);

impl DecreaseFlag {
    /// Sets the flag for a negative value or NaN.
    #[inline]
    pub(crate) fn observe(&self, value: f64) {
        if !(value >= 0.0) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if the sum may decrease.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The maximum weight that is added in a loop, so that small rates give exactly the sum of repeated
/// observations.
pub(crate) const EXACT_REPEATS: u64 = 128;

/// Adds `value` `weight` times to `sum`.
pub(crate) fn add_weighted(sum: &mut f64, value: f64, weight: u64) {
    if weight == 1 {
        *sum += value;
    } else if weight <= EXACT_REPEATS {
        for _ in 0..weight {
            *sum += value;
        }
    } else {
        *sum += value * weight as f64;
    }
}
