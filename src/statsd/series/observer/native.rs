//! Native histogram buckets: exponential and sparse, with a resolution that decreases when a limit is
//! reached.
//!
//! Source: the Prometheus native histogram specification. At schema `s` bucket `i` has the upper bound `2^(i
//! / 2^s)`. Magnitudes up to 2^-128 count as zero. When there are more buckets than allowed, adjacent ones
//! are merged in pairs and the schema decreases by one, down to -4, where a few hundred buckets cover all
//! doubles.

use std::sync::LazyLock;

use crate::exposition::typed::{NativeBucket, NativeHistogram, ZERO_THRESHOLD};

const MIN_SCHEMA: i32 = -4;
const MAX_SCHEMA: i32 = 8;

/// The lower bounds of the buckets that divide [0.5, 1), for schemas 1 to 8.
static BOUNDS: LazyLock<Vec<Vec<f64>>> = LazyLock::new(|| {
    (1..=MAX_SCHEMA as u32)
        .map(|schema| {
            let parts = 1u32 << schema;
            (0..parts).map(|part| 0.5 * (f64::from(part) / f64::from(parts)).exp2()).collect()
        })
        .collect()
});

/// Returns the schema whose growth per bucket is at most `factor`; `None` if `factor` disables native
/// buckets.
pub(crate) fn schema_of(factor: f64) -> Option<i32> {
    if factor.is_nan() || factor <= 1.0 {
        return None;
    }
    let floor = factor.log2().log2().floor();
    Some((-floor).clamp(f64::from(MIN_SCHEMA), f64::from(MAX_SCHEMA)) as i32)
}

/// Splits a positive finite number into a fraction in [0.5, 1) and an exponent.
fn split(value: f64) -> (f64, i32) {
    let (value, shift) =
        if value < f64::MIN_POSITIVE { (value * 18_014_398_509_481_984.0, 54) } else { (value, 0) };
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1_022 - shift;
    let fraction = f64::from_bits((bits & !(0x7ff << 52)) | (1_022 << 52));
    (fraction, exponent)
}

/// Returns the index of the bucket for a positive number or infinity.
fn index_of(magnitude: f64, schema: i32) -> i32 {
    let (finite, beyond) = if magnitude.is_infinite() { (f64::MAX, 1) } else { (magnitude, 0) };
    let (fraction, exponent) = split(finite);
    let index = match BOUNDS.get((schema - 1) as usize) {
        Some(bounds) if schema > 0 => {
            let part = bounds.partition_point(|&bound| bound < fraction);
            part as i32 + (exponent - 1) * bounds.len() as i32
        }
        _ => {
            let exponent = if fraction == 0.5 { exponent - 1 } else { exponent };
            let offset = (1 << -schema) - 1;
            (exponent + offset) >> -schema
        }
    };
    index + beyond
}

/// The sparse buckets of one sign, in ascending order of index.
type Buckets = Vec<NativeBucket>;

fn add(buckets: &mut Buckets, index: i32, weight: u64) {
    match buckets.binary_search_by_key(&index, |bucket| bucket.index) {
        Ok(at) => {
            buckets[at].count = buckets[at].count.saturating_add(weight);
        }
        Err(at) => buckets.insert(at, NativeBucket { index, count: weight }),
    }
}

/// Merges buckets in pairs: index `i` of the finer schema belongs to `ceil(i / 2)` of the coarser one.
fn halve(buckets: &mut Buckets) {
    for bucket in buckets.iter_mut() {
        bucket.index = (bucket.index + 1).div_euclid(2);
    }
    buckets.dedup_by(|later, earlier| {
        let same = later.index == earlier.index;
        if same {
            earlier.count = earlier.count.saturating_add(later.count);
        }
        same
    });
}

/// The native buckets of one histogram.
#[derive(Debug)]
pub(crate) struct Native {
    schema: i32,
    max_buckets: u32,
    zero: u64,
    positive: Buckets,
    negative: Buckets,
}

impl Native {
    /// Creates an empty value at `schema`. `max_buckets` 0 means no limit.
    pub(crate) fn new(schema: i32, max_buckets: u32) -> Self {
        Self { schema, max_buckets, zero: 0, positive: Vec::new(), negative: Vec::new() }
    }

    /// Counts `value` `weight` times. NaN has no bucket.
    pub(crate) fn observe(&mut self, value: f64, weight: u64) {
        if value.is_nan() {
            return;
        }
        if value.abs() <= ZERO_THRESHOLD {
            self.zero = self.zero.saturating_add(weight);
            return;
        }
        let index = index_of(value.abs(), self.schema);
        let side = if value > 0.0 { &mut self.positive } else { &mut self.negative };
        add(side, index, weight);
        // Each observation lowers the resolution by at most one step, as in Go's client library.
        let mut steps = weight;
        while self.max_buckets > 0
            && steps > 0
            && self.schema > MIN_SCHEMA
            && self.positive.len() + self.negative.len() > self.max_buckets as usize
        {
            steps -= 1;
            self.schema -= 1;
            halve(&mut self.positive);
            halve(&mut self.negative);
        }
    }

    /// Returns the number of heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<NativeBucket>() * (self.positive.capacity() + self.negative.capacity())
    }

    /// Returns a copy of the current state.
    pub(crate) fn view(&self) -> NativeHistogram {
        NativeHistogram {
            schema: self.schema,
            zero: self.zero,
            positive: self.positive.clone(),
            negative: self.negative.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_choose_their_schema() {
        for (factor, want) in [
            (1.1, Some(3)),
            (2.0, Some(0)),
            (1.000_001, Some(8)),
            (1e30, Some(-4)),
            (f64::INFINITY, Some(-4)),
            (1.0, None),
            (0.5, None),
            (f64::NAN, None),
        ] {
            assert_eq!(schema_of(factor), want, "{factor}");
        }
    }

    #[test]
    fn numbers_are_split_as_frexp_does() {
        for (value, want) in [
            (1.0, (0.5, 1)),
            (0.75, (0.75, 0)),
            (f64::MAX, (1.0 - f64::EPSILON / 2.0, 1_024)),
            (f64::MIN_POSITIVE, (0.5, -1_021)),
            (5e-324, (0.5, -1_073)),
        ] {
            assert_eq!(split(value), want, "{value}");
        }
    }

    #[test]
    fn powers_of_two_close_their_bucket() {
        for schema in MIN_SCHEMA..=MAX_SCHEMA {
            for power in [-100, -16, 0, 16, 64, 1_008] {
                let value = f64::from(power).exp2();
                let want = if schema >= 0 {
                    power << schema
                } else {
                    // Rounded up to the next bound of the coarser schema.
                    -((-power) >> -schema)
                };
                assert_eq!(index_of(value, schema), want, "2^{power} at schema {schema}");
                assert_eq!(
                    index_of(value * (1.0 + f64::EPSILON), schema),
                    if schema >= 0 { want + 1 } else { (power >> -schema) + 1 },
                    "just above 2^{power} at schema {schema}"
                );
            }
        }
    }

    #[test]
    fn infinity_is_one_bucket_above_the_maximum() {
        for schema in MIN_SCHEMA..=MAX_SCHEMA {
            assert_eq!(index_of(f64::INFINITY, schema), index_of(f64::MAX, schema) + 1);
        }
        assert_eq!(index_of(f64::INFINITY, 3), 8_193);
    }

    /// The schemas were recorded from statsd_exporter 0.31 with a factor of 1.1 and 4 buckets.
    #[test]
    fn each_observation_lowers_resolution_by_at_most_one_step() {
        let mut native = Native::new(3, 4);
        let mut schemas = Vec::new();
        for value in [1.0, 2.0, 4.0, 8.0, 16.0, 16.0] {
            native.observe(value, 1);
            schemas.push(native.view().schema);
        }
        assert_eq!(schemas, [3, 3, 3, 3, 2, 1]);
        let buckets: Vec<_> =
            native.view().positive.iter().map(|bucket| (bucket.index, bucket.count)).collect();
        assert_eq!(buckets, [(0, 1), (2, 1), (4, 1), (6, 1), (8, 2)]);
    }

    #[test]
    fn the_limit_lowers_resolution_but_keeps_counts() {
        let mut native = Native::new(8, 10);
        for power in -50..50 {
            native.observe(f64::from(power).exp2() * 1.01, 2);
            native.observe(-(f64::from(power).exp2()), 1);
        }
        native.observe(0.0, 1);
        native.observe(f64::NAN, 1);
        let view = native.view();
        let sum = |buckets: &[NativeBucket]| buckets.iter().map(|bucket| bucket.count).sum::<u64>();
        assert_eq!((sum(&view.positive), sum(&view.negative), view.zero), (200, 100, 1));
        assert!(view.schema < 0, "{}", view.schema);
    }

    #[test]
    fn halving_equals_counting_at_the_coarser_schema() {
        let values: Vec<f64> = (1..400).map(|i| f64::from(i).powi(3) * 1e-4).collect();
        for schema in (MIN_SCHEMA + 1)..=MAX_SCHEMA {
            let (mut fine, mut coarse) = (Vec::new(), Vec::new());
            for &value in &values {
                add(&mut fine, index_of(value, schema), 1);
                add(&mut coarse, index_of(value, schema - 1), 1);
            }
            halve(&mut fine);
            assert_eq!(fine, coarse, "schema {schema}");
        }
    }
}
