//! Counts the work that input causes, in tests and fuzz targets only.
//!
//! Code that scans a text or a list adds its length. A test and the fuzz target `line_cost` compare the sum
//! with the length of the input: no datagram may cost much more than ordinary lines of the same length.

#[cfg(any(test, fuzzing))]
use std::cell::Cell;

#[cfg(any(test, fuzzing))]
thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Adds `count` steps, about one per byte read. Does nothing in other builds.
#[inline(always)]
pub(crate) fn add(count: usize) {
    #[cfg(any(test, fuzzing))]
    STEPS.with(|steps| steps.set(steps.get() + count as u64));
    #[cfg(not(any(test, fuzzing)))]
    let _ = count;
}

/// Returns the steps of this thread since the last call.
#[cfg(any(test, fuzzing))]
pub(crate) fn take() -> u64 {
    STEPS.with(Cell::take)
}
