//! The numbers of a counter or a gauge, without a lock that anybody could wait for.
//!
//! A word of generation and lock bit, then plain numbers, so that one compare-and-swap both proves that a reference is fresh
//! and takes the lock. `tests/orders` holds this file against every order in which threads can see each other's words, with
//! loom's atomics in the place of `atomics`.

use super::atomics::{AtomicU32, AtomicU64, Ordering, spin_loop, yield_now};

const LOCKED: u32 = 1;

/// When a series goes, in ticks; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// The series expires when this tick has passed.
    pub(crate) deadline: u32,
    /// Second of its entry in the calendar; 0 if it has none.
    pub(crate) armed: u32,
}

/// A counter or a gauge.
///
/// A counter is `whole + fraction`, as whole additions stay exact in 64 bits beyond 2^53; a gauge is `fraction` alone.
#[derive(Debug, Default)]
pub(crate) struct Scalar {
    /// Generation times two, plus the lock bit.
    state: AtomicU32,
    deadline: AtomicU32,
    armed: AtomicU32,
    created: AtomicU32,
    whole: AtomicU64,
    fraction: AtomicU64,
}

/// The lock of a [`Scalar`].
pub(crate) struct ScalarGuard<'a> {
    cell: &'a Scalar,
    state: u32,
}

impl Scalar {
    /// Locks the cell if it still is of `generation`.
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
                // The lock is held for a few instructions; whoever holds it for longer was preempted.
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

    /// The value, if the cell still is of `generation`. Does not write, so a scrape leaves the line where it is.
    ///
    /// Both parts of a counter only grow, so a read that falls between two stores of an addition still lies between
    /// the values before and after it (but for the one addition in 2^64 that moves the whole part into the other). Numbers
    /// are stored with release: who sees one of the next series in this slot sees the next generation too.
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

    /// Tick of creation, if the cell still is of `generation`.
    pub(crate) fn created(&self, generation: u32) -> Option<u32> {
        if self.state.load(Ordering::Acquire) >> 1 != generation {
            return None;
        }
        let created = self.created.load(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) >> 1 == generation).then_some(created)
    }

    /// Present generation of a free slot.
    pub(crate) fn generation(&self) -> u32 {
        self.state.load(Ordering::Relaxed) >> 1
    }

    /// Makes a free slot ready for a new series. The caller owns the slot.
    pub(crate) fn reset(&self, created: u32) {
        self.whole.store(0, Ordering::Release);
        self.fraction.store(0, Ordering::Release);
        self.deadline.store(0, Ordering::Relaxed);
        self.armed.store(0, Ordering::Relaxed);
        self.created.store(created, Ordering::Release);
    }
}

impl ScalarGuard<'_> {
    /// Adds to a counter. `value` is not negative (NaN passes and stays).
    pub(crate) fn add(&self, value: f64) {
        let cell = self.cell;
        // 2^64 itself would saturate to a number that compares equal.
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

    /// Changes a gauge by `value`.
    pub(crate) fn add_fraction(&self, value: f64) {
        let sum = f64::from_bits(self.cell.fraction.load(Ordering::Relaxed)) + value;
        self.set(sum);
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, value: f64) {
        self.cell.fraction.store(value.to_bits(), Ordering::Release);
    }

    pub(crate) fn life(&self) -> Life {
        Life {
            deadline: self.cell.deadline.load(Ordering::Relaxed),
            armed: self.cell.armed.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_life(&self, life: Life) {
        self.cell.deadline.store(life.deadline, Ordering::Relaxed);
        self.cell.armed.store(life.armed, Ordering::Relaxed);
    }

    /// Ends the series: every reference to it is stale from now on.
    pub(crate) fn retire(mut self) {
        self.state = self.state.wrapping_add(2);
    }
}

impl Drop for ScalarGuard<'_> {
    fn drop(&mut self) {
        self.cell.state.store(self.state, Ordering::Release);
    }
}
