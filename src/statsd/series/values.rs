//! Which values the labels of a metric have, and on how many series each: what a budget of values is held against.
//!
//! A metric with no more label sets than a label may have values cannot be over that budget, so that nothing is kept
//! for it. The rest is exact: a hash and a number for each value, and for each name of a label. Names are hashed like
//! values, as a sender may make up as many of them.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::exposition::labels;

/// Numbers by hash.
type Numbers = HashMap<u64, u32, foldhash::fast::FixedState>;

/// The labels of one metric.
#[derive(Debug)]
pub(crate) struct LabelValues {
    /// Series by name and value, the fold value aside.
    series: Numbers,
    /// Different values by name.
    values: Numbers,
    /// Values that a label had to have to be looked at.
    pub(crate) threshold: u64,
    /// Values are noted up to here, 0 for all.
    most: u64,
    hasher: foldhash::quality::RandomState,
}

impl LabelValues {
    /// None yet. `most` is for budgets that are not kept to: what is beyond is not remembered.
    pub(crate) fn new(threshold: u64, most: u64) -> Self {
        let hasher = foldhash::quality::RandomState::default();
        Self { series: Numbers::default(), values: Numbers::default(), threshold, most, hasher }
    }

    fn hashes(&self, name: &[u8], value: &[u8]) -> (u64, u64) {
        (self.hasher.hash_one(name), self.hasher.hash_one((name, value)))
    }

    fn count(&self, name: u64) -> u64 {
        self.values.get(&name).copied().map_or(0, u64::from)
    }

    /// How many values the label has.
    pub(crate) fn of(&self, name: &[u8]) -> u64 {
        self.count(self.hasher.hash_one(name))
    }

    /// Whether this would be one value more than `limit` for the label.
    pub(crate) fn is_beyond(&self, name: &[u8], value: &[u8], limit: u64) -> bool {
        let (name, pair) = self.hashes(name, value);
        self.count(name) >= limit && !self.series.contains_key(&pair)
    }

    /// Takes in a series; `fold` stands for other values and is none itself.
    pub(crate) fn join(&mut self, text: &[u8], fold: &[u8]) {
        for (name, value) in labels::iter(text).filter(|(_, value)| *value != fold) {
            let (name, pair) = self.hashes(name, value);
            let full = self.most > 0 && self.count(name) >= self.most;
            match self.series.get_mut(&pair) {
                Some(series) => *series += 1,
                None if full => {}
                None => {
                    self.series.insert(pair, 1);
                    *self.values.entry(name).or_default() += 1;
                }
            }
        }
    }

    /// Lets go of a series.
    pub(crate) fn leave(&mut self, text: &[u8], fold: &[u8]) {
        for (name, value) in labels::iter(text).filter(|(_, value)| *value != fold) {
            let (name, pair) = self.hashes(name, value);
            if less_one(&mut self.series, pair) {
                less_one(&mut self.values, name);
            }
        }
    }
}

/// Takes one away, and the entry with its last one; whether that is so.
fn less_one(numbers: &mut Numbers, hash: u64) -> bool {
    let Some(number) = numbers.get_mut(&hash) else { return false };
    *number -= 1;
    let gone = *number == 0;
    if gone {
        numbers.remove(&hash);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::labels::rendered;

    #[test]
    fn a_value_counts_as_long_as_a_series_has_it() {
        let mut values = LabelValues::new(2, 0);
        let set = |code: &str, url: &str| rendered(&[("code", code), ("url", url)]);
        values.join(&set("200", "a"), b"other");
        values.join(&set("404", "a"), b"other");
        values.join(&set("200", "other"), b"other");
        assert!(!values.is_beyond(b"url", b"b", 2));
        assert!(values.is_beyond(b"code", b"500", 2));
        assert!(!values.is_beyond(b"code", b"404", 2));
        assert!(!values.is_beyond(b"further", b"x", 1));
        values.leave(&set("200", "a"), b"other");
        assert!(values.is_beyond(b"url", b"b", 1), "404 has it still");
        assert!(values.is_beyond(b"code", b"500", 2), "the folded one has 200 still");
        values.leave(&set("200", "other"), b"other");
        assert!(!values.is_beyond(b"code", b"500", 2));
    }

    #[test]
    fn beyond_a_budget_that_is_not_kept_to_nothing_is_remembered() {
        let mut values = LabelValues::new(3, 3);
        for number in 0..100 {
            values.join(&rendered(&[("l", &number.to_string())]), b"other");
        }
        assert!(values.is_beyond(b"l", b"new", 3) && !values.is_beyond(b"l", b"new", 4));
        values.leave(&rendered(&[("l", "99")]), b"other");
        assert!(values.is_beyond(b"l", b"new", 3));
    }

    #[test]
    fn of_names_that_have_gone_nothing_is_left() {
        let mut values = LabelValues::new(1, 0);
        let set = |number: u32| rendered(&[(&format!("l{number}"), "v")]);
        (0..100).for_each(|number| values.join(&set(number), b"other"));
        (0..100).for_each(|number| values.leave(&set(number), b"other"));
        assert!(values.series.is_empty() && values.values.is_empty());
    }
}
