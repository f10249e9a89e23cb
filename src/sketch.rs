//! Counting in little memory: how many different things there were, and which of them came most often.
//!
//! Things are 64-bit hashes; whoever hashes chooses a key that nobody outside knows.

use std::collections::HashMap;

/// 4096 registers: a standard error of 1.6%.
const PRECISION: u32 = 12;
const REGISTERS: usize = 1 << PRECISION;
/// Hashes kept before a set becomes dense. Up to here its count is exact.
pub(crate) const SPARSE: usize = 256;

/// How many different things there were: exact up to [`SPARSE`] of them, estimated above with a standard error of 1.6%.
///
/// Sources: P. Flajolet et al., "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm" (2007);
/// the estimator is O. Ertl's, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), which needs no
/// correction tables.
#[derive(Clone, Debug)]
pub(crate) enum Distinct {
    /// Sorted hashes.
    Sparse(Vec<u64>),
    /// Registers.
    Dense(Box<[u8]>),
}

impl Default for Distinct {
    fn default() -> Self {
        Self::Sparse(Vec::new())
    }
}

/// Raises the register that `hash` belongs to.
fn raise(registers: &mut [u8], hash: u64) {
    let index = (hash >> (64 - PRECISION)) as usize;
    let rank = ((hash << PRECISION) | (1 << (PRECISION - 1))).leading_zeros() as u8 + 1;
    if let Some(register) = registers.get_mut(index) {
        *register = (*register).max(rank);
    }
}

impl Distinct {
    /// Takes one in.
    pub(crate) fn insert(&mut self, hash: u64) {
        match self {
            Self::Sparse(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else {
                    return;
                };
                if hashes.len() < SPARSE {
                    return hashes.insert(at, hash);
                }
                let mut registers = vec![0; REGISTERS].into_boxed_slice();
                for &known in hashes.iter() {
                    raise(&mut registers, known);
                }
                raise(&mut registers, hash);
                *self = Self::Dense(registers);
            }
            Self::Dense(registers) => raise(registers, hash),
        }
    }

    /// Takes in what another one has.
    pub(crate) fn merge(&mut self, other: &Self) {
        match (other, &mut *self) {
            (Self::Sparse(hashes), into) => hashes.iter().for_each(|&hash| into.insert(hash)),
            (Self::Dense(registers), Self::Dense(into)) => {
                for (into, from) in into.iter_mut().zip(registers) {
                    *into = (*into).max(*from);
                }
            }
            (Self::Dense(registers), Self::Sparse(hashes)) => {
                let mut registers = registers.clone();
                for &hash in hashes.iter() {
                    raise(&mut registers, hash);
                }
                *self = Self::Dense(registers);
            }
        }
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Sparse(hashes) => hashes.len() as u64,
            // At most 2^64, which saturates.
            Self::Dense(registers) => estimate(registers).round() as u64,
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Sparse(hashes) => size_of::<u64>() * hashes.capacity(),
            Self::Dense(registers) => registers.len(),
        }
    }

    /// Whether [`Distinct::count`] is exact.
    pub(crate) const fn is_exact(&self) -> bool {
        matches!(self, Self::Sparse(_))
    }
}

/// Ertl's improved raw estimator (algorithm 6 of the paper).
fn estimate(registers: &[u8]) -> f64 {
    const Q: usize = 64 - PRECISION as usize;
    let m = registers.len() as f64;
    let mut histogram = [0u32; Q + 2];
    for &register in registers {
        if let Some(count) = histogram.get_mut(usize::from(register)) {
            *count += 1;
        }
    }
    let count = |rank: usize| f64::from(histogram.get(rank).copied().unwrap_or(0));
    let mut z = m * tau(1.0 - count(Q + 1) / m);
    for rank in (1..=Q).rev() {
        z = 0.5 * (z + count(rank));
    }
    z += m * sigma(count(0) / m);
    m * m / (2.0 * std::f64::consts::LN_2 * z)
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// The things that come most often: everything that makes up more than `1 / capacity` of all that is noted is among
/// the [`Frequent::candidates`].
///
/// Source: J. Misra, D. Gries, "Finding repeated elements" (1982).
#[derive(Debug)]
pub(crate) struct Frequent {
    capacity: usize,
    counters: HashMap<u64, u64, foldhash::fast::FixedState>,
}

impl Frequent {
    /// Keeps at most `capacity` counters.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, counters: HashMap::default() }
    }

    /// Notes one.
    pub(crate) fn note(&mut self, hash: u64) {
        if let Some(count) = self.counters.get_mut(&hash) {
            *count += 1;
        } else if self.counters.len() < self.capacity {
            self.counters.insert(hash, 1);
        } else {
            // A round costs as many steps as there are counters, and takes away as many notes: each note pays for one.
            self.counters.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
    }

    /// What may be frequent.
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
    fn small_sets_are_exact_and_large_ones_within_five_standard_errors() {
        let mut set = Distinct::default();
        let mut next = 0;
        for size in [0, 1, 200, SPARSE as u64, 257, 1_000, 10_000, 100_000, 1_000_000] {
            while next < size {
                set.insert(hash(next));
                set.insert(hash(next / 2));
                next += 1;
            }
            assert_eq!(set.is_exact(), size <= SPARSE as u64);
            let bound = if set.is_exact() { 0.0 } else { 5.0 * 0.0163 };
            let error = (set.count() as f64 - size as f64).abs();
            assert!(error <= bound * size as f64, "{} for {size}", set.count());
        }
    }

    #[test]
    fn a_union_counts_what_is_in_either() {
        for (first, second) in [(100, 50), (100, 5_000), (5_000, 100), (5_000, 6_000)] {
            let mut sets = [Distinct::default(), Distinct::default()];
            (0..first).for_each(|number| sets[0].insert(hash(number)));
            (first / 2..first / 2 + second).for_each(|number| sets[1].insert(hash(number)));
            let [mut union, other] = sets;
            union.merge(&other);
            let size = first.max(first / 2 + second) as f64;
            assert!((union.count() as f64 - size).abs() <= 0.08 * size, "{first} {second}");
        }
    }

    #[test]
    fn what_is_frequent_is_found_among_much_that_is_not() {
        let mut frequent = Frequent::new(100);
        for number in 0..100_000u64 {
            frequent.note(hash(number + 10));
            if number % 20 == 0 {
                frequent.note(hash(number % 3));
            }
        }
        let candidates: Vec<u64> = frequent.candidates().collect();
        assert!(candidates.len() <= 100);
        assert!((0..3).all(|number| candidates.contains(&hash(number))));
    }
}
