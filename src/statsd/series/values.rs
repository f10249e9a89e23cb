//! Which values the labels of a metric have, and on how many series each: what a budget of values is held against.
//!
//! A metric with no more label sets than a label may have values cannot be over that budget, so that nothing is kept
//! for it. The rest is exact: a hash and a number for each value.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::exposition::labels;

type Hashed<T> = HashMap<u64, T, foldhash::fast::FixedState>;

/// One label of a metric.
#[derive(Debug, Default)]
struct Label {
    name: Vec<u8>,
    /// Series by the hash of the value, the fold value aside.
    values: Hashed<u32>,
}

/// The labels of one metric.
#[derive(Debug)]
pub(crate) struct LabelValues {
    labels: Vec<Label>,
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
        Self { labels: Vec::new(), threshold, most, hasher }
    }

    fn label(&self, name: &[u8]) -> Option<&Label> {
        self.labels.iter().find(|label| label.name == name)
    }

    /// Whether this would be one value more than `limit` for the label.
    pub(crate) fn is_beyond(&self, name: &[u8], value: &[u8], limit: u64) -> bool {
        self.label(name).is_some_and(|label| {
            label.values.len() as u64 >= limit
                && !label.values.contains_key(&self.hasher.hash_one(value))
        })
    }

    /// Takes in a series; `fold` stands for other values and is none itself.
    pub(crate) fn join(&mut self, text: &[u8], fold: &[u8]) {
        for (name, value) in labels::iter(text).filter(|(_, value)| *value != fold) {
            let hash = self.hasher.hash_one(value);
            let at = self.labels.iter().position(|label| label.name == name);
            let at = at.unwrap_or_else(|| {
                self.labels.push(Label { name: name.to_owned(), ..Label::default() });
                self.labels.len() - 1
            });
            let Some(label) = self.labels.get_mut(at) else { continue };
            let full = self.most > 0 && label.values.len() as u64 >= self.most;
            match label.values.get_mut(&hash) {
                Some(series) => *series += 1,
                None if full => {}
                None => {
                    label.values.insert(hash, 1);
                }
            }
        }
    }

    /// Lets go of a series.
    pub(crate) fn leave(&mut self, text: &[u8], fold: &[u8]) {
        for (name, value) in labels::iter(text).filter(|(_, value)| *value != fold) {
            let hash = self.hasher.hash_one(value);
            let Some(label) = self.labels.iter_mut().find(|label| label.name == name) else {
                continue;
            };
            if let Some(series) = label.values.get_mut(&hash) {
                *series -= 1;
                if *series == 0 {
                    label.values.remove(&hash);
                }
            }
        }
    }
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
}
