//! The value of a counter or a gauge, under a spin lock.
//!
//! One word holds the generation and a lock bit, so one compare-and-swap both checks that a reference is
//! fresh and takes the lock. `tests/orders` checks this file under all memory orders with loom, which
//! replaces `atomics`.

use super::atomics::{AtomicU32, AtomicU64, Ordering, spin_loop, yield_now};

const LOCKED: u32 = 1;

/// The expiry of a series, in ticks. 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// The series expires after this tick.
    pub(crate) deadline: u32,
    /// The second of its entry in the timer wheel; 0 if it has none.
    pub(crate) scheduled: u32,
}

/// The cell of a counter or a gauge.
///
/// A counter is `whole + fraction`, so integer increments stay exact in 64 bits, beyond 2^53. A gauge uses
/// `fraction` only.
#[derive(Debug, Default)]
pub(crate) struct Scalar {
    /// The generation times two, plus the lock bit.
    state: AtomicU32,
    deadline: AtomicU32,
    scheduled: AtomicU32,
    created: AtomicU32,
    whole: AtomicU64,
    fraction: AtomicU64,
}

/// The lock guard of a [`Scalar`].
pub(crate) struct ScalarGuard<'a> {
    cell: &'a Scalar,
    state: u32,
}

impl Scalar {
    /// Locks the cell if it still has this generation.
    pub(crate) fn lock(&self, generation: u32) -> Option<ScalarGuard<'_>> {
        let state = generation << 1;
        let mut spins = 0u32;
        loop {
            match self.state.compare_exchange_weak(
                state,
                state | LOCKED,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(ScalarGuard { cell: self, state }),
                Err(seen) if seen | LOCKED != state | LOCKED => return None,
                // The lock is held for a few instructions unless the holder was preempted.
                Err(_) => {
                    spins += 1;
                    if spins.is_multiple_of(64) {
                        yield_now();
                    } else {
                        spin_loop();
                    }
                }
            }
        }
    }

    /// Returns the value if the cell still has this generation. Writes nothing, so a scrape does not
    /// invalidate the cache line.
    ///
    /// Both parts of a counter only increase, so a read between the two stores of an addition lies between
    /// the old and the new value, except for the one addition in 2^64 that carries `whole` over to
    /// `fraction`. Values are stored with release ordering: a reader that sees a value of the slot's next
    /// series also sees the next generation.
    pub(crate) fn read(&self, generation: u32) -> Option<f64> {
        if self.state.load(Ordering::Acquire) >> 1 != generation {
            return None;
        }
        let whole = self.whole.load(Ordering::Acquire);
        let fraction = f64::from_bits(self.fraction.load(Ordering::Acquire));
        if self.state.load(Ordering::Relaxed) >> 1 != generation {
            return None;
        }
        Some(if whole == 0 { fraction } else { fraction + whole as f64 })
    }

    /// Returns the tick of creation if the cell still has this generation.
    pub(crate) fn created(&self, generation: u32) -> Option<u32> {
        if self.state.load(Ordering::Acquire) >> 1 != generation {
            return None;
        }
        let created = self.created.load(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) >> 1 == generation).then_some(created)
    }

    /// Returns the current generation of a free slot.
    pub(crate) fn generation(&self) -> u32 {
        self.state.load(Ordering::Relaxed) >> 1
    }

    /// Resets a free slot for a new series. The caller must own the slot.
    pub(crate) fn reset(&self, created: u32) {
        self.whole.store(0, Ordering::Release);
        self.fraction.store(0, Ordering::Release);
        self.deadline.store(0, Ordering::Relaxed);
        self.scheduled.store(0, Ordering::Relaxed);
        self.created.store(created, Ordering::Release);
    }
}

impl ScalarGuard<'_> {
    /// Adds to a counter. `value` is not negative; NaN is kept.
    pub(crate) fn add(&self, value: f64) {
        let cell = self.cell;
        // 2^64 would saturate to a number that compares equal.
        if value < 18_446_744_073_709_551_616.0 && (value as u64) as f64 == value {
            let whole = cell.whole.load(Ordering::Relaxed);
            match whole.checked_add(value as u64) {
                Some(sum) => cell.whole.store(sum, Ordering::Release),
                None => {
                    self.add_fraction(whole as f64);
                    cell.whole.store(value as u64, Ordering::Release);
                }
            }
        } else {
            self.add_fraction(value);
        }
    }

    /// Adds `value` to a gauge.
    pub(crate) fn add_fraction(&self, value: f64) {
        let sum = f64::from_bits(self.cell.fraction.load(Ordering::Relaxed)) + value;
        self.set(sum);
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, value: f64) {
        self.cell.fraction.store(value.to_bits(), Ordering::Release);
    }

    pub(crate) fn life(&self) -> Lifetime {
        Lifetime {
            deadline: self.cell.deadline.load(Ordering::Relaxed),
            scheduled: self.cell.scheduled.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_life(&self, life: Lifetime) {
        self.cell.deadline.store(life.deadline, Ordering::Relaxed);
        self.cell.scheduled.store(life.scheduled, Ordering::Relaxed);
    }

    /// Ends the series and makes all references to it stale.
    pub(crate) fn retire(mut self) {
        self.state = self.state.wrapping_add(2);
    }
}

impl Drop for ScalarGuard<'_> {
    fn drop(&mut self) {
        self.cell.state.store(self.state, Ordering::Release);
    }
}
