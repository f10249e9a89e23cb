//! Sums of observations: how one is added to, and whether it may fall.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a sum may fall: a negative value or NaN was observed, or buckets reach below 0. A format in which sums are
/// counters cannot show such observers as what they are. It stays so for as long as the family lives, so that a type
/// does not change with every value.
#[derive(Debug, Default)]
pub(crate) struct Falls(AtomicBool);

impl Falls {
    /// Takes note of an observed value.
    #[inline]
    pub(crate) fn observe(&self, value: f64) {
        if !(value >= 0.0) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it does.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Repeated additions up to this weight, so that small rates sum up exactly as repeated observations do.
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
