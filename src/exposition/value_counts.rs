//! Exact counts of the values of labels and of the series with each value, for `--limit.values-per-label`.
//!
//! One hash and one number are stored per value and per label. The caller hashes names as well as values, since clients
//! can invent any number of either.

use crate::util::shrink::Shrink as _;
use std::collections::HashMap;

/// Counts by hash.
type Counts = HashMap<u64, u32, foldhash::fast::FixedState>;

/// Counts of series by label and value.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) struct ValueCounts {
    /// Number of series by the hash of label and value.
    series: Counts,
    /// Number of values by the hash of the label.
    values: Counts,
}

impl ValueCounts {
    /// Returns the number of values of the label.
    pub(crate) fn values_of(&self, label: u64) -> u64 {
        self.values.get(&label).copied().map_or(0, u64::from)
    }

    /// Returns true if the value would be one more than `most` for the label.
    pub(crate) fn is_over_limit(&self, label: u64, value: u64, most: u64) -> bool {
        self.values_of(label) >= most && !self.series.contains_key(&value)
    }

    /// Adds a series with a value of a label.
    pub(crate) fn add(&mut self, label: u64, value: u64) {
        let series = self.series.entry(value).or_default();
        *series += 1;
        if *series == 1 {
            *self.values.entry(label).or_default() += 1;
        }
    }

    /// Removes a series.
    pub(crate) fn remove(&mut self, label: u64, value: u64) {
        if decrement(&mut self.series, value) {
            decrement(&mut self.values, label);
        }
    }
}

/// Decrements a count and removes the entry at zero; returns true if it was removed.
fn decrement(numbers: &mut Counts, hash: u64) -> bool {
    let Some(number) = numbers.get_mut(&hash) else { return false };
    *number -= 1;
    let gone = *number == 0;
    if gone {
        numbers.remove(&hash);
        numbers.shrink();
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::shrink::SMALL;

    #[test]
    fn removed_labels_leave_no_entries() {
        let mut counts = ValueCounts::default();
        (0..100).for_each(|label| counts.add(label, label + 1_000));
        (0..100).for_each(|label| counts.remove(label, label + 1_000));
        assert!(counts.series.is_empty() && counts.values.is_empty());
        assert!(counts.series.capacity() <= SMALL && counts.values.capacity() <= SMALL);
    }
}
