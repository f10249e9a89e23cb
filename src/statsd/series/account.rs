//! What there is of everything that has a budget, and what a series counts with.
//!
//! Plain numbers, kept by the registry under its lock.

use std::collections::HashMap;
use std::sync::Arc;

use super::cell::{Handle, ObserverCell, Scalar, SlotId};
use super::family::{Family, Kind};
use super::observer::Observer;
use super::tree::Entry;
use super::values::LabelValues;

/// The labels of the series that stands for all label sets beyond the budget of its metric, as the SDKs of
/// OpenTelemetry have it.
pub(crate) const OVERFLOW: &[u8] = b"otel_metric_overflow=\"true\"";
/// Label sets whose folding is remembered.
pub(crate) const MAX_FOLDED: usize = 1 << 17;

/// What there is, by the account that budgets are held against.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Lines of the text format.
    pub(crate) samples: u64,
    /// Those that are kept for overflow series.
    pub(crate) reserved: u64,
    pub(crate) bytes: u64,
    pub(crate) reserved_bytes: u64,
    /// By family; only of those that have as many label sets as a label may have values.
    pub(crate) values: HashMap<u32, LabelValues>,
    /// Where label sets were folded into, with its time to live in ticks.
    pub(crate) folded: HashMap<u64, (Handle, u32), foldhash::fast::FixedState>,
    /// A series has left since the folded ones were looked through.
    pub(crate) left: bool,
    /// Label sets that found no room among the folded ones since then. Looking through all costs as much as there are,
    /// so that many have to come before it is done again.
    pub(crate) unremembered: usize,
}

/// What is known of a series that has left.
pub(crate) struct Gone {
    pub(crate) family: Arc<Family>,
    pub(crate) slot: SlotId,
    /// Hash of its label names.
    pub(crate) names: u64,
    pub(crate) label_bytes: usize,
    pub(crate) is_overflow: bool,
}

impl Account {
    /// Takes the values of a series out of those of its family. `names` is the hash of its label names.
    pub(crate) fn gone(
        &mut self,
        family: &Arc<Family>,
        slot: SlotId,
        (text, names): (&[u8], u64),
        fold: &[u8],
    ) -> Gone {
        if let Some(values) = self.values.get_mut(&family.id) {
            values.leave(text, fold);
        }
        Gone {
            family: Arc::clone(family),
            slot,
            names,
            label_bytes: text.len(),
            is_overflow: text == OVERFLOW,
        }
    }
}

/// Whether series of this kind add up.
pub(crate) const fn folds(kind: Kind) -> bool {
    matches!(kind, Kind::Counter | Kind::Summary | Kind::Histogram)
}

/// Memory that a series counts with: text and places, and for an observer what it comes to when it is busy.
pub(crate) fn cost(label_bytes: usize, kind: Kind, width: u64) -> u64 {
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
    (label_bytes + fixed) as u64 + size_of::<u64>() as u64 * width
}

/// Memory that is kept with so many lines for an overflow series.
pub(crate) fn kept_bytes(kind: Kind, width: u64) -> u64 {
    if width == 0 { 0 } else { cost(OVERFLOW.len(), kind, width) }
}

/// Memory that a family counts with beside its series.
pub(crate) fn family_cost(name: &str) -> u64 {
    (size_of::<Family>() + 4 * size_of::<usize>() + name.len()) as u64
}
