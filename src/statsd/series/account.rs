//! The usage of all budgets, and the cost of a series.
//!
//! The registry updates these numbers under its lock.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::cell::{Handle, ObserverCell, Scalar, SlotId};
use super::family::{Family, Kind};
use super::observer::Observer;
use super::tree::{Entry, Snapshot};
use super::values::LabelValues;
use super::widths::Widths;

/// The labels of the series that receives all label sets over the budget of its metric, as in the
/// OpenTelemetry SDKs.
pub(crate) const OVERFLOW: &[u8] = b"otel_metric_overflow=\"true\"";
/// The maximum number of folded label sets to remember.
pub(crate) const MAX_FOLDED: usize = 1 << 17;

/// The current usage of the budgets.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The number of samples of all series (lines of the text format).
    pub(crate) samples: u64,
    /// The number of samples reserved for overflow series.
    pub(crate) reserved: u64,
    pub(crate) bytes: u64,
    pub(crate) reserved_bytes: u64,
    /// Label values by family ID; only for families with at least as many label sets as a label may have
    /// values.
    pub(crate) values: HashMap<u32, LabelValues>,
    /// The families whose `values` are yet to be counted, with their series when that was found.
    pub(crate) uncounted: Vec<Arc<(Arc<Family>, Snapshot)>>,
    /// The families whose series differ in their number of samples.
    pub(crate) widths: Widths,
    /// The series into which each label set was folded, with its time to live in ticks.
    pub(crate) folded: HashMap<u64, (Handle, u32), foldhash::fast::FixedState>,
    /// The series of a sender into which lines of others have been folded because of the value of a label that describes senders. They do
    /// not end with the sender.
    pub(crate) shared: HashSet<SlotId, foldhash::fast::FixedState>,
    /// True if a series has been removed since `folded` was last purged.
    pub(crate) has_removed: bool,
    /// The number of label sets that did not fit into `folded` since then. A purge costs time in proportion
    /// to the size of `folded`, so it waits until many have failed to fit.
    pub(crate) missed_folds: usize,
}

/// A series that has been removed.
pub(crate) struct RemovedSeries {
    pub(crate) family: Arc<Family>,
    pub(crate) slot: SlotId,
    /// The hash of its label names.
    pub(crate) names: u64,
    pub(crate) label_bytes: usize,
    pub(crate) is_overflow: bool,
}

/// Returns true if series of this kind can be added up.
pub(crate) const fn folds(kind: Kind) -> bool {
    matches!(kind, Kind::Counter | Kind::Summary | Kind::Histogram)
}

/// Returns the bytes that a series counts for: its text, its entries and, for an observer, an estimate of its
/// size under load. `samples` is its number of samples.
pub(crate) fn cost(label_bytes: usize, kind: Kind, samples: u64) -> u64 {
    let cell = match kind {
        Kind::Counter | Kind::Gauge => size_of::<Scalar>(),
        _ => size_of::<ObserverCell>() + size_of::<Observer>(),
    };
    let busy = match kind {
        Kind::Counter | Kind::Gauge => 0,
        Kind::Histogram => 4 << 10,
        Kind::Summary => 16 << 10,
        Kind::Set => 20 << 10,
    };
    let fixed = size_of::<Entry>() + size_of::<u32>() + cell + busy;
    (label_bytes + fixed) as u64 + size_of::<u64>() as u64 * samples
}

/// Returns the bytes reserved for an overflow series of this many samples.
pub(crate) fn kept_bytes(kind: Kind, samples: u64) -> u64 {
    if samples == 0 { 0 } else { cost(OVERFLOW.len(), kind, samples) }
}

/// Returns the number of samples that an overflow series of this kind may have within `bytes`.
pub(crate) fn affordable(kind: Kind, bytes: u64) -> u64 {
    bytes.saturating_sub(cost(OVERFLOW.len(), kind, 0)) / size_of::<u64>() as u64
}

/// Returns the bytes that a family counts for, without its series.
pub(crate) fn family_cost(name: &str) -> u64 {
    (size_of::<Family>() + 4 * size_of::<usize>() + name.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_costs_its_text_its_entries_and_its_cell() {
        let entries = (size_of::<Entry>() + size_of::<u32>()) as u64;
        let observer = (size_of::<ObserverCell>() + size_of::<Observer>()) as u64;
        for (kind, cell) in [
            (Kind::Counter, size_of::<Scalar>() as u64),
            (Kind::Gauge, size_of::<Scalar>() as u64),
            (Kind::Histogram, observer + 4_096),
            (Kind::Summary, observer + 16_384),
            (Kind::Set, observer + 20_480),
        ] {
            assert_eq!(cost(0, kind, 0), entries + cell, "{kind:?}");
            assert_eq!(cost(30, kind, 2), entries + cell + 30 + 2 * 8, "{kind:?}");
        }
        assert_eq!(family_cost("abc") - family_cost(""), 3);
        assert_eq!(family_cost(""), (size_of::<Family>() + 4 * size_of::<usize>()) as u64);
    }

    #[test]
    fn an_overflow_series_gets_all_samples_that_fit() {
        for kind in [Kind::Counter, Kind::Summary, Kind::Histogram] {
            let first = kept_bytes(kind, 1);
            for bytes in [first, first + 7, first + 8, first + 1_000] {
                let samples = affordable(kind, bytes);
                assert!(kept_bytes(kind, samples) <= bytes, "{kind:?}, {bytes}");
                assert!(kept_bytes(kind, samples + 1) > bytes, "{kind:?}, {bytes}");
            }
            assert_eq!((affordable(kind, first - 1), affordable(kind, 0)), (0, 0));
            assert_eq!(kept_bytes(kind, 0), 0);
        }
    }

    #[test]
    fn gauges_and_sets_do_not_fold() {
        let folding: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| folds(*kind)).collect();
        assert_eq!(folding.len(), 3);
        assert!(!folds(Kind::Gauge) && !folds(Kind::Set));
    }
}
