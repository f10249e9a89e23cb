//! How many different members a set had: an estimate over a sliding window.
//!
//! Sources: P. Flajolet et al., "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm" (2007);
//! the estimator is O. Ertl's, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), which needs no
//! correction tables. Up to [`SPARSE`] members of one part of the window are kept as hashes and counted exactly. The
//! window works as that of a summary, in parts of `max_age / age_buckets`.

use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};

use super::summary::SummarySpec;
use crate::statsd::clock::Moment;

/// 4096 registers: a standard error of 1.6%.
const PRECISION: u32 = 12;
const REGISTERS: usize = 1 << PRECISION;
/// Hashes kept before a part becomes dense.
const SPARSE: usize = 256;

/// One key for the process, so that a sender cannot choose members that collide.
static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// What all series of a set share: the window, taken from the summary options.
#[derive(Debug)]
pub(crate) struct SetSpec {
    interval: u64,
    parts: u32,
}

impl SetSpec {
    /// The window of `summary`.
    pub(crate) fn new(summary: &SummarySpec) -> Self {
        let (interval, parts) = summary.window();
        Self { interval, parts }
    }
}

#[derive(Clone, Debug)]
enum Part {
    /// Sorted hashes.
    Sparse(Vec<u64>),
    Dense(Box<[u8]>),
}

impl Default for Part {
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

impl Part {
    fn insert(&mut self, hash: u64) {
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
}

/// The aggregate of one series.
#[derive(Debug)]
pub(crate) struct Distinct {
    spec: Arc<SetSpec>,
    parts: Box<[Part]>,
    newest: usize,
    next_rotation: u64,
}

impl Distinct {
    /// An empty set whose window starts now.
    pub(crate) fn new(spec: Arc<SetSpec>, now: Moment) -> Self {
        let parts = (0..spec.parts.max(1)).map(|_| Part::default()).collect();
        let next_rotation = now.nanos().saturating_add(spec.interval);
        Self { spec, parts, newest: 0, next_rotation }
    }

    fn rotate(&mut self, now: Moment) {
        if now.nanos() <= self.next_rotation {
            return;
        }
        let turns = (now.nanos() - self.next_rotation).div_ceil(self.spec.interval);
        self.next_rotation =
            self.next_rotation.saturating_add(turns.saturating_mul(self.spec.interval));
        for _ in 0..turns.min(self.parts.len() as u64) {
            self.newest = (self.newest + 1) % self.parts.len();
            if let Some(part) = self.parts.get_mut(self.newest) {
                *part = Part::default();
            }
        }
    }

    /// Takes a member in.
    pub(crate) fn insert(&mut self, member: &[u8], now: Moment) {
        self.rotate(now);
        let hash = HASHER.hash_one(member);
        if let Some(part) = self.parts.get_mut(self.newest) {
            part.insert(hash);
        }
    }

    /// Estimated number of different members in the window; exact while it is small.
    pub(crate) fn estimate(&mut self, now: Moment) -> f64 {
        self.rotate(now);
        let mut union = Part::default();
        for part in &self.parts {
            match (part, &mut union) {
                (Part::Sparse(hashes), union) => hashes.iter().for_each(|&hash| union.insert(hash)),
                (Part::Dense(registers), Part::Dense(union)) => {
                    for (into, from) in union.iter_mut().zip(registers) {
                        *into = (*into).max(*from);
                    }
                }
                (Part::Dense(registers), Part::Sparse(hashes)) => {
                    let mut registers = registers.clone();
                    for &hash in hashes.iter() {
                        raise(&mut registers, hash);
                    }
                    union = Part::Dense(registers);
                }
            }
        }
        match union {
            Part::Sparse(hashes) => hashes.len() as f64,
            Part::Dense(registers) => estimate(&registers).round(),
        }
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
    use super::*;
    use crate::statsd::clock::Clock;
    use crate::statsd::mapper::SummaryOptions;
    use std::time::Duration;

    fn set(clock: &Clock, max_age: Duration, age_buckets: u32) -> Distinct {
        let summary =
            SummarySpec::new(&SummaryOptions { max_age, age_buckets, ..SummaryOptions::default() });
        Distinct::new(Arc::new(SetSpec::new(&summary)), clock.now())
    }

    #[test]
    fn small_sets_are_exact() {
        let clock = Clock::manual();
        let mut set = set(&clock, Duration::ZERO, 0);
        for round in 0..3 {
            for member in 0..200 {
                set.insert(format!("user{member}").as_bytes(), clock.now());
            }
            assert_eq!(set.estimate(clock.now()), 200.0, "round {round}");
        }
    }

    #[test]
    fn large_sets_are_within_five_standard_errors() {
        let clock = Clock::manual();
        let mut set = set(&clock, Duration::ZERO, 0);
        let mut next = 0u32;
        for size in [300u32, 1_000, 10_000, 100_000, 300_000] {
            while next < size {
                set.insert(&next.to_le_bytes(), clock.now());
                next += 1;
            }
            let got = set.estimate(clock.now());
            let error = (got - f64::from(size)).abs() / f64::from(size);
            assert!(error < 5.0 * 0.0163, "{got} for {size}");
        }
    }

    #[test]
    fn members_leave_with_the_window() {
        let clock = Clock::manual();
        let mut set = set(&clock, Duration::from_secs(10), 2);
        set.insert(b"a", clock.now());
        clock.advance(Duration::from_secs(6));
        set.insert(b"b", clock.now());
        assert_eq!(set.estimate(clock.now()), 2.0);
        clock.advance(Duration::from_secs(5));
        assert_eq!(set.estimate(clock.now()), 1.0);
        clock.advance(Duration::from_secs(50));
        assert_eq!(set.estimate(clock.now()), 0.0);
    }
}
