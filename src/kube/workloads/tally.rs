//! Totals over pods: equal pods are counted once, so that totals are computed anew without the pods.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The phases of a pod, in the order of `kube_pod_status_phase`.
pub(super) const PHASES: [&str; 5] = ["Pending", "Succeeded", "Failed", "Unknown", "Running"];

/// An amount of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Amount {
    pub(super) resource: Box<str>,
    pub(super) unit: &'static str,
    /// The bits of the value, which has no other total order.
    pub(super) bits: u64,
}

/// The part of a pod that totals are computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Contribution {
    /// The index of its phase.
    pub(super) phase: Option<u8>,
    pub(super) ready: bool,
    /// The distinct reasons for which containers wait.
    pub(super) waiting: Vec<Box<str>>,
    pub(super) requests: Vec<Amount>,
    pub(super) limits: Vec<Amount>,
}

/// A multiset of pods. Its order makes equal multisets have equal sums, to the last bit.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<Arc<Contribution>, u64>);

/// The totals of a multiset of pods.
#[derive(Debug, Default)]
pub(super) struct Totals<'t> {
    pub(super) phases: [u64; PHASES.len()],
    pub(super) ready: u64,
    pub(super) waiting: BTreeMap<&'t str, u64>,
    pub(super) requests: BTreeMap<(&'t str, &'static str), f64>,
    pub(super) limits: BTreeMap<(&'t str, &'static str), f64>,
}

impl Tally {
    /// Adds a pod.
    pub(super) fn add(&mut self, pod: &Arc<Contribution>) {
        *self.0.entry(Arc::clone(pod)).or_default() += 1;
    }

    /// Removes a pod that was added before.
    pub(super) fn remove(&mut self, pod: &Arc<Contribution>) {
        if let Some(count) = self.0.get_mut(pod) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(pod);
            }
        }
    }

    /// Returns whether there are no pods.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Computes the totals, in time proportional to the number of distinct pods.
    pub(super) fn totals(&self) -> Totals<'_> {
        let mut totals = Totals::default();
        for (pod, &count) in &self.0 {
            if let Some(pods) =
                pod.phase.and_then(|phase| totals.phases.get_mut(usize::from(phase)))
            {
                *pods += count;
            }
            totals.ready += if pod.ready { count } else { 0 };
            for reason in &pod.waiting {
                *totals.waiting.entry(reason).or_default() += count;
            }
            for (amounts, sums) in
                [(&pod.requests, &mut totals.requests), (&pod.limits, &mut totals.limits)]
            {
                for Amount { resource, unit, bits } in amounts {
                    let sum = sums.entry((resource, unit)).or_default();
                    *sum += f64::from_bits(*bits) * count as f64;
                }
            }
        }
        totals
    }
}
