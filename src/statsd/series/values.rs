//! The label values of a metric and the number of series with each, for the budget of values per label.
//!
//! A metric with no more label sets than a label may have values cannot exceed that budget, so its values are
//! not collected.

use std::hash::BuildHasher;

use crate::exposition::labels;
use crate::exposition::value_counts::ValueCounts;

/// A series that was added (`true`) or removed, with its labels.
type Change = (bool, Box<[u8]>);

/// The label values of one metric.
#[derive(Debug)]
pub(crate) struct LabelValues {
    /// The counts of all values except the fold value.
    counts: ValueCounts,
    /// The number of label sets from which values are collected: the limit of values per label.
    pub(crate) threshold: u64,
    /// The changes while the series that were there before are being counted; `None` if all are counted.
    changes: Option<Vec<Change>>,
    hasher: foldhash::quality::RandomState,
}

impl LabelValues {
    /// Creates an empty collection.
    pub(crate) fn new(threshold: u64) -> Self {
        let hasher = foldhash::quality::RandomState::default();
        Self { counts: ValueCounts::default(), threshold, changes: None, hasher }
    }

    /// Creates a collection of a metric whose series are yet to be counted. Until it is [complete](Self::complete), no value exceeds
    /// a limit.
    pub(crate) fn awaited(threshold: u64) -> Self {
        Self { changes: Some(Vec::new()), ..Self::new(threshold) }
    }

    /// Takes the changes since this collection was created, or since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Applies the changes of another collection of the same metric.
    pub(crate) fn apply(&mut self, changes: Vec<Change>, fold: &[u8]) {
        for (is_there, text) in changes {
            if is_there { self.add(&text, fold) } else { self.remove(&text, fold) }
        }
    }

    /// Takes the values of the series that are there now.
    pub(crate) fn complete(&mut self, counted: Self) {
        *self = Self { threshold: self.threshold, ..counted };
    }

    fn hashes(&self, name: &[u8], value: &[u8]) -> (u64, u64) {
        (self.hasher.hash_one(name), self.hasher.hash_one((name, value)))
    }

    /// Returns the number of values of a label.
    pub(crate) fn count(&self, name: &[u8]) -> u64 {
        self.counts.values_of(self.hasher.hash_one(name))
    }

    /// Returns true if this value would be one more than `limit` for the label.
    pub(crate) fn exceeds(&self, name: &[u8], value: &[u8], limit: u64) -> bool {
        let (name, pair) = self.hashes(name, value);
        self.changes.is_none() && self.counts.is_over_limit(name, pair, limit)
    }

    /// Adds the values of a series, except the fold value.
    pub(crate) fn add(&mut self, text: &[u8], fold: &[u8]) {
        if let Some(changes) = &mut self.changes {
            return changes.push((true, text.into()));
        }
        for (name, value) in labels::iter(text).filter(|(_, value)| *value != fold) {
            let (name, pair) = self.hashes(name, value);
            self.counts.add(name, pair);
        }
    }

    /// Subtracts the values of a series.
    pub(crate) fn remove(&mut self, text: &[u8], fold: &[u8]) {
        if let Some(changes) = &mut self.changes {
            return changes.push((false, text.into()));
        }
        for (name, value) in labels::iter(text).filter(|(_, value)| *value != fold) {
            let (name, pair) = self.hashes(name, value);
            self.counts.remove(name, pair);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::labels::rendered;

    #[test]
    fn a_value_counts_as_long_as_a_series_has_it() {
        let mut values = LabelValues::new(2);
        let set = |code: &str, url: &str| rendered(&[("code", code), ("url", url)]);
        values.add(&set("200", "a"), b"other");
        values.add(&set("404", "a"), b"other");
        values.add(&set("200", "other"), b"other");
        assert_eq!((values.count(b"code"), values.count(b"url"), values.count(b"x")), (2, 1, 0));
        assert!(!values.exceeds(b"url", b"b", 2));
        assert!(values.exceeds(b"code", b"500", 2));
        assert!(!values.exceeds(b"code", b"404", 2));
        assert!(!values.exceeds(b"further", b"x", 1));
        values.remove(&set("200", "a"), b"other");
        assert!(values.exceeds(b"url", b"b", 1), "404 has it still");
        assert!(values.exceeds(b"code", b"500", 2), "the folded one has 200 still");
        values.remove(&set("200", "other"), b"other");
        assert!(!values.exceeds(b"code", b"500", 2));
    }
}
