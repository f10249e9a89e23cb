//! A sketch of the quantiles of a stream, with an allowed rank error per target.
//!
//! Source: G. Cormode, F. Korn, S. Muthukrishnan, D. Srivastava, "Effective Computation of Biased Quantiles
//! over Data Streams" (ICDE 2005), section on targeted quantiles. A tuple `(v, g, Δ)` means that `v` is `g`
//! ranks above its predecessor and that the rank of `v` is uncertain by `Δ`. The invariant `g + Δ ≤ f(r, n)`
//! bounds the error; `f` is small near the targets and large elsewhere.
//!
//! The paper bounds the error of an answer with `f` at the target itself, but the deciding tuple may begin at
//! another rank, where `f` is larger. The error then exceeds its bound by up to a fifth for the usual
//! targets. It does not with the smaller internal error `ε' = ε·m / (m + 2ε)`, `m = min(q, 1 - q)`: a
//! deciding tuple that begins `x` ranks off spans at most `2ε'(n + x/m)`, and `x + ε'n ≤ 2ε'(n + x/m)` gives
//! `x ≤ εn`.

use crate::mapper::Quantile;

/// Returns the internal error that keeps answers within the error of a target. See the module documentation.
fn internal_error(target: Quantile) -> f64 {
    let margin = target.quantile.min(1.0 - target.quantile);
    if margin > 0.0 { target.error * margin / (margin + 2.0 * target.error) } else { target.error }
}

/// The number of tuples above which the error bound is relaxed, so that a target with error 0 cannot use
/// unbounded memory.
const MAX_TUPLES: usize = 1 << 16;

/// A value observed `weight` times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighted {
    pub(crate) value: f64,
    pub(crate) weight: u64,
}

#[derive(Clone, Copy, Debug)]
struct Tuple {
    value: f64,
    /// The number of ranks since the previous tuple.
    gap: u64,
    /// The uncertainty of the rank.
    delta: u64,
}

/// The sketch of one stream.
#[derive(Debug, Default)]
pub(crate) struct Sketch {
    tuples: Vec<Tuple>,
    count: u64,
}

/// Compares values with NaN first, as Go sorts floats.
pub(crate) fn order(a: f64, b: f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => std::cmp::Ordering::Equal,
        (true, false) => std::cmp::Ordering::Less,
        (false, true) => std::cmp::Ordering::Greater,
        (false, false) => a.total_cmp(&b),
    }
}

/// Returns the allowed `g + Δ` at rank `r` of `n`: the minimum over all targets.
fn allowed(targets: &[Quantile], r: f64, n: f64) -> f64 {
    let mut least = f64::INFINITY;
    for &target in targets {
        let (q, error) = (target.quantile, internal_error(target));
        let bound = if q * n <= r {
            if q > 0.0 { 2.0 * error * r / q } else { f64::INFINITY }
        } else if q < 1.0 {
            2.0 * error * (n - r) / (1.0 - q)
        } else {
            f64::INFINITY
        };
        least = least.min(bound);
    }
    least
}

impl Sketch {
    /// Returns true if there are no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Tuple>() * self.tuples.capacity()
    }

    /// Adds weighted `values` in ascending [`order`].
    pub(crate) fn insert_sorted(&mut self, targets: &[Quantile], values: &[Weighted]) {
        let old = std::mem::take(&mut self.tuples);
        let mut merged = Vec::with_capacity(old.len() + values.len());
        let mut rest = old.into_iter().peekable();
        for &Weighted { value, weight } in values {
            while let Some(next) = rest.next_if(|next| order(next.value, value).is_le()) {
                merged.push(next);
            }
            self.count = self.count.saturating_add(weight);
            // The rank lies between those of the neighbours. The rank of a new minimum or maximum is certain.
            let delta = match rest.peek() {
                Some(next) if !merged.is_empty() => (next.gap + next.delta).saturating_sub(1),
                _ => 0,
            };
            // A heavy value is a run of equal values. Its first and last member represent it, so that a rank
            // inside the run is answered with this value instead of a neighbour.
            for gap in [1, weight.saturating_sub(1)] {
                if gap > 0 {
                    merged.push(Tuple { value, gap, delta });
                }
            }
        }
        merged.extend(rest);
        self.tuples = merged;
        self.compress(targets);
    }

    /// Merges neighbours where the bound allows it. The first tuple is the minimum and stays.
    fn compress(&mut self, targets: &[Quantile]) {
        if self.tuples.len() < 3 {
            return;
        }
        let tuples = std::mem::take(&mut self.tuples);
        let limit = if tuples.len() > MAX_TUPLES {
            4.0 * self.count as f64 / MAX_TUPLES as f64
        } else {
            0.0
        };
        let n = self.count as f64;
        let mut rank = self.count;
        let mut kept: Vec<Tuple> = Vec::with_capacity(tuples.len());
        let mut right: Option<Tuple> = None;
        for (index, tuple) in tuples.into_iter().enumerate().rev() {
            let Some(successor) = right else {
                rank = rank.saturating_sub(tuple.gap);
                right = Some(tuple);
                continue;
            };
            // `rank` is the number of values before the successor, including this tuple.
            let before = rank.saturating_sub(tuple.gap);
            let joint = tuple.gap.saturating_add(successor.gap).saturating_add(successor.delta);
            if index > 0 && joint as f64 <= allowed(targets, before as f64, n).max(limit) {
                right = Some(Tuple { gap: tuple.gap + successor.gap, ..successor });
            } else {
                kept.push(successor);
                right = Some(tuple);
            }
            rank = before;
        }
        kept.extend(right);
        kept.reverse();
        kept.shrink_to_fit();
        self.tuples = kept;
    }

    /// Returns the value at a target; `None` if there are no values.
    pub(crate) fn query(&self, target: Quantile) -> Option<f64> {
        let (first, rest) = self.tuples.split_first()?;
        let n = self.count as f64;
        let limit = (target.quantile * n).ceil() + internal_error(target) * n;
        let mut previous = first;
        let mut rank = 0u64;
        for tuple in rest {
            rank += previous.gap;
            if (rank + tuple.gap + tuple.delta) as f64 > limit {
                return Some(previous.value);
            }
            previous = tuple;
        }
        Some(previous.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TARGETS: [Quantile; 3] = [
        Quantile { quantile: 0.5, error: 0.05 },
        Quantile { quantile: 0.9, error: 0.01 },
        Quantile { quantile: 0.99, error: 0.001 },
    ];

    /// Returns the distance in ranks between the answer and the exact quantile.
    fn rank_error(all: &[Weighted], quantile: f64, got: f64) -> f64 {
        let n: u64 = all.iter().map(|each| each.weight).sum();
        let below: u64 = all.iter().filter(|each| each.value < got).map(|each| each.weight).sum();
        let upto: u64 = all.iter().filter(|each| each.value <= got).map(|each| each.weight).sum();
        let wanted = (quantile * n as f64).ceil().max(1.0);
        if wanted <= below as f64 {
            below as f64 + 1.0 - wanted
        } else if wanted > upto as f64 {
            wanted - upto as f64
        } else {
            0.0
        }
    }

    fn check(values: &[Weighted], batch: usize) -> Result<usize, TestCaseError> {
        let mut sketch = Sketch::default();
        for chunk in values.chunks(batch) {
            let mut sorted = chunk.to_vec();
            sorted.sort_by(|a, b| order(a.value, b.value));
            sketch.insert_sorted(&TARGETS, &sorted);
        }
        let n: u64 = values.iter().map(|each| each.weight).sum();
        prop_assert_eq!(sketch.count, n);
        for target in TARGETS {
            let got = sketch.query(target).expect("not empty");
            let error = rank_error(values, target.quantile, got);
            prop_assert!(
                error <= target.error * n as f64 + 1.0,
                "quantile {}: {got} is {error} ranks off, {n} values",
                target.quantile
            );
        }
        Ok(sketch.tuples.len())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn errors_stay_within_their_targets(
            values in prop::collection::vec((0u32..100_000, 1u64..4), 1..6_000),
        ) {
            let values: Vec<_> = values.into_iter().map(|(value, weight)| Weighted { value: f64::from(value), weight }).collect();
            check(&values, 500)?;
        }

        #[test]
        fn heavy_values_count_with_their_weight(
            values in prop::collection::vec((0u32..1_000, prop_oneof![Just(1u64), Just(1_000), Just(1_000_000)]), 1..2_000),
        ) {
            let values: Vec<_> = values.into_iter().map(|(value, weight)| Weighted { value: f64::from(value), weight }).collect();
            check(&values, 500)?;
        }
    }

    #[test]
    fn sorted_and_reversed_streams_stay_small() {
        let up: Vec<_> =
            (0..100_000).map(|value| Weighted { value: f64::from(value), weight: 1 }).collect();
        let down: Vec<_> = up.iter().rev().copied().collect();
        for values in [up, down] {
            let tuples = check(&values, 500).expect("within bounds");
            assert!(tuples < 2_000, "{tuples} tuples for 100,000 values");
        }
    }

    #[test]
    fn the_extremes_are_exact() {
        let targets = [
            Quantile { quantile: 0.0, error: 0.0 },
            Quantile { quantile: 0.5, error: 0.05 },
            Quantile { quantile: 1.0, error: 0.0 },
        ];
        let mut sketch = Sketch::default();
        for base in 0..20 {
            let values: Vec<_> =
                (0..500).map(|i| Weighted { value: f64::from(i * 20 + base), weight: 1 }).collect();
            sketch.insert_sorted(&targets, &values);
        }
        assert_eq!(sketch.query(targets[0]), Some(0.0));
        assert_eq!(sketch.query(targets[2]), Some(9_999.0));
    }

    #[test]
    fn an_exact_target_uses_bounded_memory() {
        let targets = [Quantile { quantile: 0.5, error: 0.0 }];
        let mut sketch = Sketch::default();
        let mut state = 1u64;
        for _ in 0..600 {
            let mut values: Vec<_> = (0..500)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    Weighted { value: (state >> 33) as f64, weight: 1 }
                })
                .collect();
            values.sort_by(|a, b| order(a.value, b.value));
            sketch.insert_sorted(&targets, &values);
        }
        assert!(sketch.tuples.len() <= 2 * MAX_TUPLES, "{}", sketch.tuples.len());
    }
}
