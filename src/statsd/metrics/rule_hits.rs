//! How many events each rule of the mapping has matched.
//!
//! An ingest thread counts in a [`Hits`] of its own and adds it up once for each batch, as it does with all it counts.
//! The sums are those of one mapping; the next one goes on with those of the rules that it still has.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rules that are counted by themselves. Those behind them in the file are counted together: the numbers of rules
/// multiply what a thread knows of lines.
const MOST: usize = 10_000;
/// Bytes of a rule's text that its name has.
const LONGEST: usize = 200;
/// What those behind the [`MOST`] are called.
const OTHERS: &str = "other";

/// What one thread has counted since it was last added to [`RuleHits`].
#[derive(Debug, Default)]
pub(crate) struct Hits {
    counts: Vec<u64>,
    /// The rules whose count is not 0.
    touched: Vec<u32>,
}

impl Hits {
    /// So many events have matched the rule of this number.
    #[inline]
    pub(crate) fn add(&mut self, rule: u32, events: u64) {
        match self.counts.get_mut(rule as usize) {
            Some(count) if *count > 0 => *count += events,
            _ => self.first(rule, events),
        }
    }

    #[cold]
    fn first(&mut self, rule: u32, events: u64) {
        let room = self.counts.len().max(rule as usize + 1);
        self.counts.resize(room, 0);
        if let Some(count) = self.counts.get_mut(rule as usize) {
            *count += events;
            self.touched.push(rule);
        }
    }
}

/// The number under which a rule is counted, from its place in the file.
pub(crate) fn number(index: usize) -> u32 {
    index.min(MOST) as u32
}

/// The sums of all threads.
#[derive(Debug, Default)]
pub(crate) struct RuleHits {
    /// The name of each rule, in the order of the file, and how many events it has matched.
    rules: Vec<(Arc<str>, Arc<AtomicU64>)>,
}

impl RuleHits {
    /// Of a mapping with rules of these names, that takes the place of the one `before`.
    pub(crate) fn new(names: impl Iterator<Item = String>, before: &Self) -> Self {
        let known: HashMap<&str, &Arc<AtomicU64>> =
            before.rules.iter().map(|(name, count)| (&**name, count)).collect();
        let mut taken = HashSet::new();
        let mut rules = Vec::new();
        let mut names = names.map(cut);
        let first: Vec<String> = names.by_ref().take(MOST).collect();
        let others = names.next().map(|_| OTHERS.to_owned());
        for name in first.into_iter().chain(others) {
            let again = (2..).map(|time| format!("{name} #{time}"));
            let mut names = std::iter::once(name.clone()).chain(again);
            let Some(name) = names.find(|name| !taken.contains(name)) else { continue };
            let count = known.get(&*name).map_or_else(Arc::default, |count| Arc::clone(count));
            rules.push((name.as_str().into(), count));
            taken.insert(name);
        }
        Self { rules }
    }

    /// Adds what a thread has counted.
    pub(crate) fn drain(&self, hits: &mut Hits) {
        for rule in hits.touched.drain(..) {
            let Some(count) = hits.counts.get_mut(rule as usize) else { continue };
            let events = std::mem::take(count);
            if let Some((_, sum)) = self.rules.get(rule as usize) {
                sum.fetch_add(events, Ordering::Relaxed);
            }
        }
    }

    /// Names and sums.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.rules.iter().map(|(name, count)| (&**name, count.load(Ordering::Relaxed)))
    }
}

/// A name that a label may have: regular expressions can be pages long.
fn cut(mut name: String) -> String {
    if name.len() > LONGEST {
        name.truncate(name.floor_char_boundary(LONGEST));
        name.push_str("...");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &[&str], before: &RuleHits) -> RuleHits {
        RuleHits::new(names.iter().map(|&name| name.to_owned()), before)
    }

    fn sums(rules: &RuleHits) -> Vec<(&str, u64)> {
        rules.iter().collect()
    }

    #[test]
    fn a_reload_keeps_the_sums_of_the_rules_that_stay() {
        let first = rules(&["a.*", "b", "a.*"], &RuleHits::default());
        let mut hits = Hits::default();
        for (rule, events) in [(2, 3), (0, 1), (2, 4)] {
            hits.add(rule, events);
        }
        first.drain(&mut hits);
        first.drain(&mut hits);
        assert_eq!(sums(&first), [("a.*", 1), ("b", 0), ("a.* #2", 7)]);
        let second = rules(&["c", "a.*", "a.*"], &first);
        hits.add(0, 5);
        second.drain(&mut hits);
        assert_eq!(sums(&second), [("c", 5), ("a.*", 1), ("a.* #2", 7)]);
    }

    #[test]
    fn many_rules_and_long_ones_are_bounded() {
        let many = RuleHits::new((0..MOST + 500).map(|n| format!("r{n}")), &RuleHits::default());
        let mut hits = Hits::default();
        for index in [MOST - 1, MOST, MOST + 499] {
            hits.add(number(index), 1);
        }
        many.drain(&mut hits);
        assert_eq!(sums(&many).len(), MOST + 1);
        assert_eq!(sums(&many)[MOST - 1..], [("r9999", 1), (OTHERS, 2)]);
        let long = format!("é{}", "é".repeat(5_000));
        let long = rules(&[&long], &RuleHits::default());
        let [(name, 0)] = sums(&long)[..] else { panic!("one") };
        assert!(name.len() < 210 && name.ends_with("é..."), "{name}");
    }
}
