//! Totals over pods, which change with each pod in time proportional to that pod alone. Sums are exact, so that they do not
//! depend on the order in which pods came and went.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::util::work_counter;

/// The phases of a pod, in the order of `kube_pod_status_phase`.
pub(super) const PHASES: [&str; 5] = ["Pending", "Succeeded", "Failed", "Unknown", "Running"];

/// The billionths in a whole.
const WHOLE: i128 = 1_000_000_000;

/// The largest number of wholes, far beyond what a quantity can be (2^63 - 1), so that sums of pods cannot overflow.
const MOST: f64 = 1e22;

/// The largest number of sums of a row. Anyone who may create pods can name resources, and each change of a pod renders its rows.
pub(super) const MAX_RESOURCES: usize = if cfg!(test) { 8 } else { 500 };

/// Resources that a row shows beside its first [`MAX_RESOURCES`], in the order of their names.
const USUAL_RESOURCES: [&str; 3] = ["cpu", "ephemeral_storage", "memory"];

/// An exact number of billionths, the smallest unit of a Kubernetes quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Nanos(i128);

impl Nanos {
    /// Returns a value of at least one billionth exactly, if it has been parsed from a quantity.
    pub(super) fn new(value: f64) -> Self {
        let whole = value.trunc().clamp(-MOST, MOST);
        let rest = ((value - value.trunc()) * WHOLE as f64).round();
        Self(whole as i128 * WHOLE + rest as i128)
    }

    /// Returns the nearest floating-point number.
    pub(super) fn value(self) -> f64 {
        const EXACT: u128 = 1 << f64::MANTISSA_DIGITS;
        if self.0.unsigned_abs() <= EXACT {
            self.0 as f64 / WHOLE as f64
        } else {
            (self.0 / WHOLE) as f64 + (self.0 % WHOLE) as f64 / WHOLE as f64
        }
    }
}

impl std::ops::AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// An amount of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Amount {
    pub(super) resource: Arc<str>,
    pub(super) unit: &'static str,
    pub(super) nanos: Nanos,
}

/// The part of a pod that totals are computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Contribution {
    /// The index of its phase.
    pub(super) phase: Option<u8>,
    pub(super) ready: bool,
    /// The distinct reasons for which containers wait.
    pub(super) waiting: Vec<Box<str>>,
    pub(super) requests: Vec<Amount>,
    pub(super) limits: Vec<Amount>,
}

/// The totals of some pods.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pods: u64,
    pub(super) phases: [u64; PHASES.len()],
    pub(super) ready: u64,
    pub(super) waiting: BTreeMap<Box<str>, u64>,
    pub(super) resources: Sums,
}

/// The two amounts of a resource that a container states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AmountKind {
    Requests,
    Limits,
}

/// What a sum is of: the resource and its unit.
type SumKey = (AmountKind, Arc<str>, &'static str);

/// The sums of amounts, each with the number of its pods.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<SumKey, (Nanos, u64)>);

impl Sums {
    fn change(&mut self, kind: AmountKind, amount: &Amount, is_added: bool) {
        let key = (kind, Arc::clone(&amount.resource), amount.unit);
        if let Some((sum, pods)) = self.0.get_mut(&key) {
            let Nanos(nanos) = amount.nanos;
            *sum += Nanos(if is_added { nanos } else { -nanos });
            count(pods, is_added);
            if *pods == 0 {
                self.0.remove(&key);
            }
        } else if is_added {
            self.0.insert(key, (amount.nanos, 1));
        }
    }

    /// Calls `see` with the resource, unit and sum of the first [`MAX_RESOURCES`] sums by name, and of the usual resources.
    pub(super) fn each(&self, kind: AmountKind, mut see: impl FnMut(&str, &'static str, Nanos)) {
        let from = |name: Arc<str>| {
            let sums = self.0.range((kind, name, "")..);
            sums.take_while(move |(key, _)| key.0 == kind)
        };
        let (mut last, mut sums) = (None, from(Arc::default()));
        for (key, (sum, _)) in sums.by_ref().take(MAX_RESOURCES) {
            work_counter::add(1);
            see(&key.1, key.2, *sum);
            last = Some(key);
        }
        if sums.next().is_none() {
            return;
        }
        for name in USUAL_RESOURCES {
            let of_it = from(name.into()).take_while(|(key, _)| *key.1 == *name);
            for (key, (sum, _)) in of_it.filter(|(key, _)| Some(*key) > last) {
                see(&key.1, key.2, *sum);
            }
        }
    }
}

/// Counts a pod that is added or removed.
fn count(pods: &mut u64, is_added: bool) {
    *pods = if is_added { *pods + 1 } else { pods.saturating_sub(1) };
}

impl Tally {
    /// Adds a pod if it `is_added`, else removes one that was added before.
    pub(super) fn change(&mut self, pod: &Contribution, is_added: bool) {
        count(&mut self.pods, is_added);
        if let Some(pods) = pod.phase.and_then(|phase| self.phases.get_mut(usize::from(phase))) {
            count(pods, is_added);
        }
        if pod.ready {
            count(&mut self.ready, is_added);
        }
        for reason in &pod.waiting {
            if let Some(pods) = self.waiting.get_mut(reason) {
                count(pods, is_added);
                if *pods == 0 {
                    self.waiting.remove(reason);
                }
            } else if is_added {
                self.waiting.insert(reason.clone(), 1);
            }
        }
        let lists = [(AmountKind::Requests, &pod.requests), (AmountKind::Limits, &pod.limits)];
        for (kind, amounts) in lists {
            amounts.iter().for_each(|amount| self.resources.change(kind, amount, is_added));
        }
    }

    /// Returns whether there are no pods.
    pub(super) fn is_empty(&self) -> bool {
        self.pods == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The parts of a whole in which the amounts of each resource are given.
    const PARTS: [f64; 3] = [1e3, 1e9, 1.0];

    /// Resources and amounts.
    fn pods() -> impl Strategy<Value = Vec<(usize, u64)>> {
        let amount = prop_oneof![
            (Just(0), 0..100_000_000u64),
            (Just(1), 0..1_000_000_000_000u64),
            (Just(2), 0..1_000_000_000_000u64),
        ];
        prop::collection::vec(amount, 0..60)
    }

    fn pod(resource: usize, amount: u64) -> Contribution {
        let value = amount as f64 / PARTS[resource];
        let resource = resource.to_string().into();
        let requests = vec![Amount { resource, unit: "", nanos: Nanos::new(value) }];
        Contribution { requests, ..Contribution::default() }
    }

    fn sums(tally: &Tally) -> Vec<(String, f64)> {
        let mut sums = Vec::new();
        let see = |resource: &str, _, sum: Nanos| sums.push((resource.to_owned(), sum.value()));
        tally.resources.each(AmountKind::Requests, see);
        sums
    }

    proptest! {
        /// The sums are those of whole numbers of the smallest unit, whatever was added and removed before.
        #[test]
        fn sums_are_exact(kept in pods(), gone in pods()) {
            let mut tally = Tally::default();
            gone.iter().for_each(|&(resource, amount)| tally.change(&pod(resource, amount), true));
            kept.iter().for_each(|&(resource, amount)| tally.change(&pod(resource, amount), true));
            gone.iter().for_each(|&(resource, amount)| tally.change(&pod(resource, amount), false));
            let mut want: BTreeMap<usize, u64> = BTreeMap::new();
            for &(resource, amount) in &kept {
                *want.entry(resource).or_default() += amount;
            }
            let want = want.into_iter().map(|(resource, sum)| {
                (resource.to_string(), sum as f64 / PARTS[resource])
            });
            prop_assert_eq!(sums(&tally), want.collect::<Vec<_>>());
            kept.iter().for_each(|&(resource, amount)| tally.change(&pod(resource, amount), false));
            prop_assert!(tally.is_empty() && sums(&tally).is_empty());
        }
    }

    #[test]
    fn extreme_amounts() {
        for value in [0.0, 1e-9, 0.1, -2.5, 123_456_789_012_345_680.0, 9_223_372_036_854_775_807.0]
        {
            assert_eq!(Nanos::new(value).value(), value);
        }
        assert_eq!(Nanos::new(f64::MAX).value(), MOST);
    }
}
