//! HyperLogLog: distinct counting in bounded memory.
//!
//! Inputs are 64-bit hashes. The caller hashes with a key that an attacker cannot know.

/// Precision of 12 bits, that is 4,096 registers and a standard error of 1.6%.
const PRECISION: u32 = 12;
const REGISTERS: usize = 1 << PRECISION;
/// Maximum number of hashes in the sparse form, in which the count is exact.
pub(crate) const SPARSE: usize = 256;

/// A counter of distinct hashes: exact up to [`SPARSE`], then a HyperLogLog estimate with a standard error of 1.6%.
///
/// Sources: P. Flajolet et al., "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm" (2007);
/// the estimator is O. Ertl's, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), which needs no
/// correction tables.
#[derive(Clone, Debug)]
pub(crate) enum HyperLogLog {
    /// The sorted hashes.
    Sparse(Vec<u64>),
    /// The registers, one byte each.
    Dense(Box<[u8]>),
}

impl Default for HyperLogLog {
    fn default() -> Self {
        Self::Sparse(Vec::new())
    }
}

/// Raises the register of `hash`. Returns false if it is high enough already.
fn raise(registers: &mut [u8], hash: u64) -> bool {
    let index = (hash >> (64 - PRECISION)) as usize;
    let rank = ((hash << PRECISION) | (1 << (PRECISION - 1))).leading_zeros() as u8 + 1;
    let register = registers.get_mut(index).filter(|register| **register < rank);
    register.map(|register| *register = rank).is_some()
}

impl HyperLogLog {
    /// Adds a hash. Returns false if the count has not changed.
    pub(crate) fn insert(&mut self, hash: u64) -> bool {
        match self {
            Self::Sparse(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else {
                    return false;
                };
                if hashes.len() < SPARSE {
                    hashes.insert(at, hash);
                    return true;
                }
                let mut registers = vec![0; REGISTERS].into_boxed_slice();
                for &known in hashes.iter() {
                    raise(&mut registers, known);
                }
                raise(&mut registers, hash);
                *self = Self::Dense(registers);
                true
            }
            Self::Dense(registers) => raise(registers, hash),
        }
    }

    /// Adds all hashes of another counter.
    pub(crate) fn merge(&mut self, other: &Self) {
        match (other, &mut *self) {
            (Self::Sparse(hashes), into) => hashes.iter().for_each(|&hash| _ = into.insert(hash)),
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

    /// Returns the number of distinct hashes.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Sparse(hashes) => hashes.len() as u64,
            // The estimate is at most 2^64, where the cast saturates.
            Self::Dense(registers) => estimate(registers).round() as u64,
        }
    }

    /// Returns the heap size in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Sparse(hashes) => size_of::<u64>() * hashes.capacity(),
            Self::Dense(registers) => registers.len(),
        }
    }

    /// Returns true while [`HyperLogLog::count`] is exact.
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

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    fn hash(number: u64) -> u64 {
        foldhash::quality::FixedState::default().hash_one(number)
    }

    #[test]
    fn small_sets_are_exact_and_large_ones_within_five_standard_errors() {
        let mut set = HyperLogLog::default();
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
    fn merging_counts_the_union() {
        for (first, second) in [(100, 50), (100, 5_000), (5_000, 100), (5_000, 6_000)] {
            let mut sets = [HyperLogLog::default(), HyperLogLog::default()];
            (0..first).for_each(|number| _ = sets[0].insert(hash(number)));
            (first / 2..first / 2 + second).for_each(|number| _ = sets[1].insert(hash(number)));
            let [mut union, other] = sets;
            union.merge(&other);
            let size = first.max(first / 2 + second) as f64;
            assert!((union.count() as f64 - size).abs() <= 0.08 * size, "{first} {second}");
        }
    }
}
