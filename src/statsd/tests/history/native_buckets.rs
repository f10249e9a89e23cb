//! The native buckets of histograms, which only messages have: each has the number of the values within its bounds, at the
//! resolution that the rule asks for or, once there are too many buckets, at a lower one.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::History;
use super::features::Feature;
use super::model::{Key, Kind, Known, Observed};
use crate::exposition::budget::BudgetMode;
use crate::exposition::tests::samples::{self, NativeBuckets};

/// The lowest resolution.
const MIN_SCHEMA: i32 = -4;
/// The growth of buckets with their resolution: none for a factor that switches them off. The first one is the default.
const FACTORS: [(f64, Option<i32>); 6] =
    [(1.1, Some(3)), (1.0, None), (1.01, Some(7)), (1.5, Some(1)), (2.0, Some(0)), (4.0, Some(-1))];
/// The largest numbers of buckets. The first one is the default.
const LIMITS: [usize; 4] = [256, 40, 12, 3];

/// The options of native buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct NativeOptions {
    factor: f64,
    schema: Option<i32>,
    limit: usize,
}

impl Default for NativeOptions {
    fn default() -> Self {
        let [(factor, schema), ..] = FACTORS;
        Self { factor, schema, limit: LIMITS[0] }
    }
}

impl NativeOptions {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let (factor, schema) = FACTORS[rng.usize(0..FACTORS.len())];
        Self { factor, schema, limit: LIMITS[rng.usize(0..LIMITS.len())] }
    }

    /// Returns the options of a histogram, after a comma.
    pub(super) fn yaml(&self) -> String {
        format!(
            ", native_histogram_bucket_factor: {:?}, native_histogram_max_buckets: {}",
            self.factor, self.limit
        )
    }

    /// Returns the buckets of these values, which came in this order, if there are any buckets.
    fn buckets_of(&self, observed: &[Observed]) -> Option<NativeBuckets> {
        let mut schema = self.schema?;
        let mut values = BTreeSet::new();
        let (zeros, others): (Vec<&Observed>, Vec<&Observed>) =
            observed.iter().partition(|one| one.value == 0.0);
        for one in &others {
            values.insert(one.value.to_bits());
            let number = |schema| {
                let values = values.iter().map(|bits| f64::from_bits(*bits));
                let numbers = values.map(|value| (value > 0.0, number_of(value.abs(), schema)));
                numbers.collect::<BTreeSet<(bool, i32)>>().len()
            };
            // Each value lowers it by one step at most.
            for _ in 0..one.weight as u64 {
                if schema <= MIN_SCHEMA || number(schema) <= self.limit {
                    break;
                }
                schema -= 1;
            }
        }
        let [mut positive, mut negative] = [BTreeMap::new(), BTreeMap::new()];
        for one in others {
            let side = if one.value > 0.0 { &mut positive } else { &mut negative };
            *side.entry(number_of(one.value.abs(), schema)).or_default() += one.weight as i64;
        }
        let zeros = zeros.iter().map(|one| one.weight as i64).sum();
        Some(NativeBuckets { schema, positive, negative, zeros })
    }
}

/// Returns the number of the bucket of a value: each ends at a power of the base.
fn number_of(value: f64, schema: i32) -> i32 {
    let power = value.log2() * f64::from(schema).exp2();
    // A power of two is the end of a bucket, and exact; no other value comes as close to one.
    let nearest = power.round();
    (if (power - nearest).abs() < 1e-9 { nearest } else { power.ceil() }) as i32
}

impl History {
    /// Compares the native buckets of messages with the values of the histograms.
    pub(super) fn check_native_buckets(&mut self, body: &[u8]) -> Result<(), String> {
        let known: &BTreeMap<Key, Known> = match self.mode {
            BudgetMode::Enforce if self.scrapes_each => &self.model.shown,
            BudgetMode::Enforce => return Ok(()),
            _ => &self.model.series,
        };
        let shown = samples::native_buckets_of_messages(body)?;
        let mut has_buckets = false;
        for ((kind, labels), known) in known {
            if *kind != Kind::Observer || !self.mapping.histogram {
                continue;
            }
            let buckets = shown.get(&("latency".to_owned(), labels.clone()));
            let expected = known.shape.native.buckets_of(&known.observed);
            if buckets != expected.as_ref() {
                return Err(format!(
                    "latency{labels:?} has native buckets {buckets:?}, not {expected:?}: {:?} of {:?}",
                    known.shape.native, known.observed
                ));
            }
            has_buckets |= buckets.is_some();
        }
        if has_buckets {
            self.used(Feature::NativeBuckets);
        }
        Ok(())
    }
}
