//! Quantiles of a stream in little space, each target with its own allowed rank error.
//!
//! Source: G. Cormode, F. Korn, S. Muthukrishnan, D. Srivastava, "Effective Computation of Biased Quantiles over Data
//! Streams" (ICDE 2005), section on targeted quantiles. A tuple `(v, g, Δ)` says: between `v` and its predecessor lie
//! `g` ranks, and the rank of `v` is uncertain by `Δ`. The invariant `g + Δ ≤ f(r, n)` bounds the error; `f` is small
//! near the targets and large elsewhere.
//!
//! The paper's bound for an answer takes `f` at the target itself, but the tuple that decides may begin beside it, where
//! `f` is larger; the error then exceeds the promise by up to a fifth for the usual targets. With the smaller internal
//! error `ε' = ε·m / (m + 2ε)`, `m = min(q, 1 - q)`, it does not: a deciding tuple that begins `x` ranks off spans at
//! most `2ε'(n + x/m)`, and `x + ε'n ≤ 2ε'(n + x/m)` gives `x ≤ εn`.

/// One quantile that will be asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Target {
    /// Rank, 0 to 1.
    pub(crate) quantile: f64,
    /// Allowed error of the rank, as a share of the number of values.
    pub(crate) error: f64,
}

impl Target {
    /// The error to keep within so that no answer exceeds `error`; see the module's documentation.
    fn internal_error(&self) -> f64 {
        let margin = self.quantile.min(1.0 - self.quantile);
        if margin > 0.0 { self.error * margin / (margin + 2.0 * self.error) } else { self.error }
    }
}

/// Beyond this many tuples the error bound gives way, so that a target with error 0 cannot eat all memory.
const MAX_TUPLES: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Tuple {
    value: f64,
    /// Ranks since the previous tuple.
    gap: u64,
    /// Uncertainty of the rank.
    delta: u64,
}

/// The sketch of one stream.
#[derive(Debug, Default)]
pub(crate) struct Sketch {
    tuples: Vec<Tuple>,
    count: u64,
}

/// Order of values: NaN first, as Go sorts floats.
pub(crate) fn order(a: f64, b: f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => std::cmp::Ordering::Equal,
        (true, false) => std::cmp::Ordering::Less,
        (false, true) => std::cmp::Ordering::Greater,
        (false, false) => a.total_cmp(&b),
    }
}

/// The allowed `g + Δ` at rank `r` of `n`: the smallest that any target asks for.
fn allowed(targets: &[Target], r: f64, n: f64) -> f64 {
    let mut least = f64::INFINITY;
    for target in targets {
        let (q, error) = (target.quantile, target.internal_error());
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
    /// Values so far, by weight.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Tuple>() * self.tuples.capacity()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.tuples = Vec::new();
        self.count = 0;
    }

    /// Folds `values` in: weighted, in ascending [`order`].
    pub(crate) fn insert_sorted(&mut self, targets: &[Target], values: &[(f64, u64)]) {
        let old = std::mem::take(&mut self.tuples);
        let mut merged = Vec::with_capacity(old.len() + values.len());
        let mut rest = old.into_iter().peekable();
        for &(value, weight) in values {
            while let Some(next) = rest.next_if(|next| order(next.value, value).is_le()) {
                merged.push(next);
            }
            self.count = self.count.saturating_add(weight);
            // Its rank lies between those of its neighbours; a new least or greatest value has a certain one.
            let delta = match rest.peek() {
                Some(next) if !merged.is_empty() => (next.gap + next.delta).saturating_sub(1),
                _ => 0,
            };
            // A heavy value is a run of equal ones. Its first and its last member stand for the run, so that a rank
            // inside it is answered with this value and not with its neighbour.
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

    /// Joins neighbours where the bound allows it. The first tuple stays: it is the minimum.
    fn compress(&mut self, targets: &[Target]) {
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
            // `rank` counts what lies before the successor, up to and with this tuple.
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

    /// The value at a target, `None` if there is no value yet.
    pub(crate) fn query(&self, target: Target) -> Option<f64> {
        let (first, rest) = self.tuples.split_first()?;
        let n = self.count as f64;
        let limit = (target.quantile * n).ceil() + target.internal_error() * n;
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

    const TARGETS: [Target; 3] = [
        Target { quantile: 0.5, error: 0.05 },
        Target { quantile: 0.9, error: 0.01 },
        Target { quantile: 0.99, error: 0.001 },
    ];

    /// Distance in ranks between what the sketch says and where the value really lies.
    fn rank_error(all: &[(f64, u64)], quantile: f64, got: f64) -> f64 {
        let n: u64 = all.iter().map(|(_, weight)| weight).sum();
        let below: u64 = all.iter().filter(|(v, _)| *v < got).map(|(_, w)| w).sum();
        let upto: u64 = all.iter().filter(|(v, _)| *v <= got).map(|(_, w)| w).sum();
        let wanted = (quantile * n as f64).ceil().max(1.0);
        if wanted <= below as f64 {
            below as f64 + 1.0 - wanted
        } else if wanted > upto as f64 {
            wanted - upto as f64
        } else {
            0.0
        }
    }

    fn check(values: &[(f64, u64)], batch: usize) -> Result<usize, TestCaseError> {
        let mut sketch = Sketch::default();
        for chunk in values.chunks(batch) {
            let mut sorted = chunk.to_vec();
            sorted.sort_by(|a, b| order(a.0, b.0));
            sketch.insert_sorted(&TARGETS, &sorted);
        }
        let n: u64 = values.iter().map(|(_, weight)| weight).sum();
        prop_assert_eq!(sketch.count(), n);
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
            let values: Vec<_> = values.into_iter().map(|(v, w)| (f64::from(v), w)).collect();
            check(&values, 500)?;
        }

        #[test]
        fn heavy_values_count_with_their_weight(
            values in prop::collection::vec((0u32..1_000, prop_oneof![Just(1u64), Just(1_000), Just(1_000_000)]), 1..2_000),
        ) {
            let values: Vec<_> = values.into_iter().map(|(v, w)| (f64::from(v), w)).collect();
            check(&values, 500)?;
        }
    }

    #[test]
    fn sorted_and_reversed_streams_stay_small() {
        let up: Vec<_> = (0..100_000).map(|v| (f64::from(v), 1)).collect();
        let down: Vec<_> = up.iter().rev().copied().collect();
        for values in [up, down] {
            let tuples = check(&values, 500).expect("within bounds");
            assert!(tuples < 2_000, "{tuples} tuples for 100,000 values");
        }
    }

    #[test]
    fn the_extremes_are_exact() {
        let targets = [
            Target { quantile: 0.0, error: 0.0 },
            Target { quantile: 0.5, error: 0.05 },
            Target { quantile: 1.0, error: 0.0 },
        ];
        let mut sketch = Sketch::default();
        for base in 0..20 {
            let values: Vec<_> = (0..500).map(|i| (f64::from(i * 20 + base), 1)).collect();
            sketch.insert_sorted(&targets, &values);
        }
        assert_eq!(sketch.query(targets[0]), Some(0.0));
        assert_eq!(sketch.query(targets[2]), Some(9_999.0));
    }

    #[test]
    fn an_exact_target_cannot_eat_all_memory() {
        let targets = [Target { quantile: 0.5, error: 0.0 }];
        let mut sketch = Sketch::default();
        let mut state = 1u64;
        for _ in 0..600 {
            let mut values: Vec<_> = (0..500)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    ((state >> 33) as f64, 1)
                })
                .collect();
            values.sort_by(|a, b| order(a.0, b.0));
            sketch.insert_sorted(&targets, &values);
        }
        assert!(sketch.tuples.len() <= 2 * MAX_TUPLES, "{}", sketch.tuples.len());
    }
}
