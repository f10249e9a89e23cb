//! Misra-Gries: the most frequent values in bounded memory.
//!
//! Inputs are 64-bit hashes. The caller hashes with a key that an attacker cannot know.

use std::collections::HashMap;

/// A Misra-Gries summary: every value that makes up more than `1 / capacity` of the input is among its
/// [`MisraGries::candidates`].
///
/// Source: J. Misra, D. Gries, "Finding repeated elements" (1982).
#[derive(Debug)]
pub(crate) struct MisraGries {
    capacity: usize,
    counters: HashMap<u64, u64, foldhash::fast::FixedState>,
}

impl MisraGries {
    /// Creates a summary with at most `capacity` counters.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, counters: HashMap::default() }
    }

    /// Adds this many occurrences.
    pub(crate) fn add(&mut self, hash: u64, mut times: u64) {
        if let Some(count) = self.counters.get_mut(&hash) {
            *count += times;
            return;
        }
        if self.counters.len() >= self.capacity {
            // A pass over all counters removes occurrences from each, so its cost is amortised: each occurrence pays for
            // one step.
            let removed = self.counters.values().fold(times, |least, count| least.min(*count));
            self.counters.retain(|_, count| {
                *count -= removed;
                *count > 0
            });
            times -= removed;
        }
        if times > 0 {
            self.counters.insert(hash, times);
        }
    }

    /// Returns the values that may be frequent.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = u64> {
        self.counters.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    fn hash(number: u64) -> u64 {
        foldhash::quality::FixedState::default().hash_one(number)
    }

    #[test]
    fn frequent_values_are_found_among_rare_ones() {
        let mut frequent = MisraGries::new(100);
        for number in 0..100_000u64 {
            frequent.add(hash(number + 10), number % 4 + 1);
            if number % 20 == 0 {
                frequent.add(hash(number % 3), 3);
            }
        }
        let candidates: Vec<u64> = frequent.candidates().collect();
        assert!(candidates.len() <= 100);
        assert!((0..3).all(|number| candidates.contains(&hash(number))));
    }
}
