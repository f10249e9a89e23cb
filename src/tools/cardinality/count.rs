//! Counts series, metrics and label values in bounded memory.
//!
//! Counts are exact while the hashes of all counted items fit into the budget; a count that no
//! longer fits continues as an estimate.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::captured::{Captured, Form};
use super::mapped_sample::{MappedSample, Mapping};
use crate::config_file::Problem;
use crate::mapper::{Mapper, MetricType};
use crate::status::words;
use crate::tools::Result;
use crate::util::hyper_log_log::HyperLogLog;

/// The maximum number of hashes of all counts of a ledger together: up to 40 MB.
const EXACT: usize = 1 << 21;
/// The maximum number of metrics that are counted separately.
pub(super) const METRICS: usize = 8_192;
/// The maximum number of labels of metrics whose values are counted.
const LABELS: usize = 16_384;

/// Hashes without a random key, so that the same input gives the same output.
pub(super) fn hash(thing: impl Hash) -> u64 {
    foldhash::quality::FixedState::default().hash_one(thing)
}

/// A count of distinct items.
pub(super) struct Count {
    exact: Option<HashSet<u64, foldhash::fast::FixedState>>,
    estimate: HyperLogLog,
    room: Rc<Cell<usize>>,
}

impl Count {
    fn new(room: &Rc<Cell<usize>>) -> Self {
        let (exact, estimate) = (Some(HashSet::default()), HyperLogLog::default());
        Self { exact, estimate, room: Rc::clone(room) }
    }

    /// Adds an item; returns whether it may be a new one.
    fn insert(&mut self, hash: u64) -> bool {
        let Some(exact) = &mut self.exact else {
            self.estimate.insert(hash);
            return true;
        };
        if exact.contains(&hash) {
            return false;
        }
        let left = self.room.get();
        if left > 0 {
            self.room.set(left - 1);
            return exact.insert(hash);
        }
        exact.iter().for_each(|&hash| _ = self.estimate.insert(hash));
        self.estimate.insert(hash);
        self.room.set(exact.len());
        self.exact = None;
        true
    }

    pub(super) fn number(&self) -> Number {
        match &self.exact {
            Some(exact) => Number { value: exact.len() as u64, is_exact: true },
            None => Number { value: self.estimate.count(), is_exact: self.estimate.is_exact() },
        }
    }
}

/// A count, exact or estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number {
    pub value: u64,
    pub is_exact: bool,
}

impl Default for Number {
    fn default() -> Self {
        Self { value: 0, is_exact: true }
    }
}

impl Number {
    fn times(self, factor: u64) -> Self {
        Self { value: self.value * factor, ..self }
    }

    fn plus(self, other: Self) -> Self {
        Self { value: self.value + other.value, is_exact: self.is_exact && other.is_exact }
    }

    /// Formats the number with the plural of `things`, which ends in s.
    pub(super) fn of(self, things: &str) -> String {
        let one = things.strip_suffix('s').filter(|_| self.value == 1 && things != "series");
        format!("{self} {}", one.unwrap_or(things))
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_exact { "" } else { "about " })?;
        f.write_str(&words::count(self.value))
    }
}

/// A metric.
pub(super) struct Metric {
    pub kind: MetricType,
    is_set: bool,
    /// The first source name, and whether there were others.
    pub from: String,
    pub from_others: bool,
    /// The index of the first rule that led to it.
    pub rule: Option<usize>,
    /// The number of series per label set.
    weight: u64,
    sets: Count,
    labels: Vec<(String, Count)>,
}

impl Metric {
    pub(super) fn series(&self) -> Number {
        self.sets.number().times(self.weight)
    }

    /// Returns the number of values of each label.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, Number)> {
        self.labels.iter().map(|(name, count)| (name.as_str(), count.number()))
    }

    pub(super) fn values(&self, label: &str) -> Number {
        let found = self.labels.iter().find(|(name, _)| name == label);
        found.map(|(_, count)| count.number()).unwrap_or_default()
    }
}

/// The series under one mapping.
pub(super) struct SeriesCounts {
    pub metrics: BTreeMap<String, Metric>,
    /// Label sets of metrics beyond [`METRICS`], by series per label set.
    rest: BTreeMap<u64, Count>,
    /// Names of metrics beyond [`METRICS`].
    rest_names: Count,
    labels: usize,
    /// Samples rejected because their metric has another type or a label is not allowed.
    pub refused: u64,
    /// The metrics of each rule whose metric name varies.
    pub by_rule: HashMap<usize, Count>,
    room: Rc<Cell<usize>>,
}

impl SeriesCounts {
    pub(super) fn new() -> Self {
        let room = Rc::new(Cell::new(EXACT));
        Self {
            metrics: BTreeMap::new(),
            rest: BTreeMap::new(),
            rest_names: Count::new(&room),
            labels: 0,
            refused: 0,
            by_rule: HashMap::new(),
            room,
        }
    }

    /// Adds a sample. `source` is its name before mapping.
    pub(super) fn note(&mut self, source: &str, placed: &MappedSample<'_>) {
        if placed.is_refused {
            self.refused += 1;
            return;
        }
        if !self.metrics.contains_key(placed.metric) {
            if let Some(rule) = placed.rule.filter(|_| placed.names_vary) {
                let count = self.by_rule.entry(rule).or_insert_with(|| Count::new(&self.room));
                count.insert(hash(placed.metric));
            }
            if self.metrics.len() >= METRICS {
                self.rest_names.insert(hash(placed.metric));
                let rest = self.rest.entry(placed.weight);
                let rest = rest.or_insert_with(|| Count::new(&self.room));
                rest.insert(hash((placed.metric, &placed.labels, placed.part)));
                return;
            }
            self.metrics.insert(
                placed.metric.to_owned(),
                Metric {
                    kind: placed.kind,
                    is_set: placed.is_set,
                    from: source.to_owned(),
                    from_others: false,
                    rule: placed.rule,
                    weight: placed.weight,
                    sets: Count::new(&self.room),
                    labels: Vec::new(),
                },
            );
        }
        let Some(metric) = self.metrics.get_mut(placed.metric) else { return };
        if metric.kind != placed.kind || metric.is_set != placed.is_set {
            self.refused += 1;
            return;
        }
        metric.from_others |= metric.from != source;
        if !metric.sets.insert(hash((&placed.labels, placed.part))) {
            return;
        }
        for (name, value) in &placed.labels {
            match metric.labels.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => _ = count.insert(hash(value)),
                None if self.labels < LABELS => {
                    self.labels += 1;
                    let mut count = Count::new(&self.room);
                    count.insert(hash(value));
                    metric.labels.push((name.to_string(), count));
                }
                None => {}
            }
        }
    }

    /// Returns the number of series.
    pub(super) fn series(&self) -> Number {
        let all = self.metrics.values().map(Metric::series);
        all.fold(self.series_of_rest(), Number::plus)
    }

    /// Returns the number of series beyond [`METRICS`].
    pub(super) fn series_of_rest(&self) -> Number {
        let all = self.rest.iter().map(|(weight, count)| count.number().times(*weight));
        all.fold(Number::default(), Number::plus)
    }

    /// Returns the number of metric names.
    pub(super) fn names(&self) -> Number {
        let told_apart = Number { value: self.metrics.len() as u64, is_exact: true };
        told_apart.plus(self.rest_names.number())
    }
}

/// The input and the current mapping.
pub(crate) struct Session {
    pub captured: Captured,
    /// The text of the current mapping.
    pub mapping: String,
}

impl Session {
    /// Returns the current mapping, which an exposition has passed already.
    ///
    /// # Errors
    /// When it is invalid.
    pub(super) fn before(&self) -> Result<Mapping> {
        let in_use = match self.captured.form {
            Form::Lines(_) => &self.mapping,
            Form::Exposition => "",
        };
        let mapper = Mapper::from_yaml(in_use).map_err(|problems| Problem::list(&problems))?;
        Ok(Mapping::new(mapper, Mapper::default(), self.captured.form))
    }

    /// Returns the mapping with these rules added.
    ///
    /// # Errors
    /// When the result is invalid.
    pub(super) fn after(&self, rules: &str) -> Result<Mapping> {
        let said = |problems: Vec<Problem>| Problem::list(&problems);
        let all = Mapper::combined(rules, &self.mapping).map_err(said)?;
        let tried = Mapper::from_yaml(rules).map_err(said)?;
        Ok(Mapping::new(all, tried, self.captured.form))
    }

    /// Counts the series under a mapping; also returns the number of lines or samples.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(super) fn count(&mut self, mapping: &mut Mapping) -> Result<(SeriesCounts, u64)> {
        let mut ledger = SeriesCounts::new();
        let seen = self.captured.replay(&mut |seen| {
            mapping.place(seen, &mut |placed| ledger.note(seen.name, placed));
        })?;
        Ok((ledger, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_while_there_is_room_and_estimates_beyond() {
        let room = Rc::new(Cell::new(5_000));
        let (mut small, mut large) = (Count::new(&room), Count::new(&room));
        for number in 0..10_000u64 {
            large.insert(hash(number));
            small.insert(hash(number % 7));
        }
        assert_eq!(small.number(), Number { value: 7, is_exact: true });
        let Number { value, is_exact } = large.number();
        assert!(!is_exact && (9_200..10_800).contains(&value), "{value}");
        assert!(!large.insert(hash(1)) || large.exact.is_none());
        assert_eq!(room.get() + 7, 5_000 - 7 + 7);
        assert_eq!(Number { value: 1_234, is_exact: false }.of("values"), "about 1,234 values");
        assert_eq!(Number { value: 1, is_exact: true }.of("values"), "1 value");
    }
}
