//! The number of events that each mapping rule has matched.
//!
//! An ingest thread counts into its own [`HitTally`] and adds them once per batch. The sums belong to one
//! mapping; the next mapping takes over the sums of the rules it still has.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::util::work_counter;

/// The maximum number of rules counted individually. Further rules in the file are counted together, because
/// each rule number multiplies the plans in the key cache.
const MAX_RULES: usize = 10_000;
/// The maximum number of bytes of a rule's text in its name.
const MAX_NAME: usize = 200;
/// The name for the rules after the first [`MAX_RULES`].
const OTHERS: &str = "other";

/// The counts of one thread since they were last added to [`RuleHits`].
#[derive(Debug, Default)]
pub(crate) struct HitTally {
    counts: Vec<u64>,
    /// The rules with a count above 0.
    touched: Vec<u32>,
}

impl HitTally {
    /// Adds events that matched a rule.
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
        self.counts[rule as usize] += events;
        self.touched.push(rule);
    }
}

/// Returns the number under which a rule is counted, from its index in the file.
pub(crate) fn number(index: usize) -> u32 {
    index.min(MAX_RULES) as u32
}

/// The sums over all threads.
#[derive(Debug, Default)]
pub(crate) struct RuleHits {
    /// The name of each rule, in the order of the file, and its number of events.
    rules: Vec<(Arc<str>, Arc<AtomicU64>)>,
}

impl RuleHits {
    /// Creates the sums for a mapping with these rules, which replaces the mapping of `before`.
    pub(crate) fn new(names: impl Iterator<Item = String>, before: &Self) -> Self {
        let known: HashMap<&str, &Arc<AtomicU64>> =
            before.rules.iter().map(|(name, count)| (&**name, count)).collect();
        let (mut taken, mut repeats) = (HashSet::new(), HashMap::new());
        let mut rules = Vec::new();
        let mut names = names.map(truncate_name);
        let first: Vec<String> = names.by_ref().take(MAX_RULES).collect();
        let others = names.next().map(|_| OTHERS.to_owned());
        for name in first.into_iter().chain(others) {
            let next = repeats.entry(name.clone()).or_insert(1_u32);
            let mut names = (*next..).map(|time| (time, numbered(&name, time)));
            let Some((time, name)) = names.find(|(_, name)| !taken.contains(name)) else {
                continue;
            };
            *next = time + 1;
            let count = known.get(&*name).map_or_else(Arc::default, |count| Arc::clone(count));
            rules.push((name.as_str().into(), count));
            taken.insert(name);
        }
        Self { rules }
    }

    /// Adds the counts of a thread and resets them.
    pub(crate) fn drain(&self, hits: &mut HitTally) {
        for rule in hits.touched.drain(..) {
            let events = std::mem::take(&mut hits.counts[rule as usize]);
            if let Some((_, sum)) = self.rules.get(rule as usize) {
                sum.fetch_add(events, Ordering::Relaxed);
            }
        }
    }

    /// Returns the names and sums.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.rules.iter().map(|(name, count)| (&**name, count.load(Ordering::Relaxed)))
    }
}

/// Returns the name of the rule that is the n-th of this name.
fn numbered(name: &str, time: u32) -> String {
    work_counter::add(1);
    if time == 1 { name.to_owned() } else { format!("{name} #{time}") }
}

/// Truncates a name, because regular expressions can be very long.
fn truncate_name(mut name: String) -> String {
    if name.len() > MAX_NAME {
        name.truncate(name.floor_char_boundary(MAX_NAME));
        name.push_str("...");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The work for rules whose names begin alike is linear in their number.
    #[test]
    fn many_rules_of_one_name() {
        let names = std::iter::repeat_with(|| "same".to_owned());
        work_counter::take();
        let hits = RuleHits::new(names.take(1000), &RuleHits::default());
        assert_eq!(work_counter::take(), 1000);
        assert_eq!(hits.iter().last(), Some(("same #1000", 0)));
        let hits = rules(&["a #2", "a", "a", "a"], &RuleHits::default());
        let names: Vec<&str> = hits.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a #2", "a", "a #3", "a #4"]);
    }

    fn rules(names: &[&str], before: &RuleHits) -> RuleHits {
        RuleHits::new(names.iter().map(|&name| name.to_owned()), before)
    }

    fn sums(rules: &RuleHits) -> Vec<(&str, u64)> {
        rules.iter().collect()
    }

    #[test]
    fn a_reload_keeps_the_sums_of_the_rules_that_stay() {
        let first = rules(&["a.*", "b", "a.*"], &RuleHits::default());
        let mut hits = HitTally::default();
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
        let many =
            RuleHits::new((0..MAX_RULES + 500).map(|n| format!("r{n}")), &RuleHits::default());
        let mut hits = HitTally::default();
        for index in [MAX_RULES - 1, MAX_RULES, MAX_RULES + 499] {
            hits.add(number(index), 1);
        }
        many.drain(&mut hits);
        assert_eq!(sums(&many).len(), MAX_RULES + 1);
        assert_eq!(sums(&many)[MAX_RULES - 1..], [("r9999", 1), (OTHERS, 2)]);
        let long = format!("é{}", "é".repeat(5_000));
        let long = rules(&[&long], &RuleHits::default());
        let [(name, 0)] = sums(&long)[..] else { panic!("one") };
        assert!(name.len() < 210 && name.ends_with("é..."), "{name}");
    }
}
