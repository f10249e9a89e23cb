//! Series of one value each, whose names no other part of the model uses.

use std::collections::BTreeMap;
use std::time::Duration;

use super::History;
use super::model::Labels;
use crate::exposition::tests::samples::Samples;

/// The name and labels of a series.
pub(super) type SeriesKey = (String, Labels);

/// A series that lines have made.
#[derive(Debug)]
struct Known {
    value: f64,
    touched: Duration,
    ttl: Duration,
}

/// The series that lines have made.
#[derive(Debug, Default)]
pub(super) struct KnownSeries(BTreeMap<SeriesKey, Known>);

impl KnownSeries {
    /// Returns whether a series has been made, and has not been missing since.
    pub(super) fn contains(&self, key: &SeriesKey) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the end of the time to live of a series.
    pub(super) fn end(&self, key: &SeriesKey) -> Option<Duration> {
        self.0.get(key).map(|known| known.touched + known.ttl)
    }

    /// Applies a number at a time: it `adds` to the value, or replaces it. A new series has this time to live.
    pub(super) fn apply(
        &mut self,
        key: SeriesKey,
        (number, adds): (f64, bool),
        (now, ttl): (Duration, Duration),
    ) {
        let known = self.0.entry(key).or_insert(Known { value: 0.0, touched: now, ttl });
        let before = if adds { known.value } else { 0.0 };
        (known.value, known.touched) = (before + number, now);
    }

    /// Forgets series that have ended.
    pub(super) fn forget(&mut self, ended: &[SeriesKey]) {
        self.0.retain(|key, _| !ended.contains(key));
    }
}

impl History {
    /// Compares the series of a scrape whose names begin with one of these prefixes with those that lines have made. Returns those that
    /// have ended.
    pub(super) fn compare_known(
        &self,
        known: &KnownSeries,
        prefixes: &[&str],
        samples: &Samples,
    ) -> Result<Vec<SeriesKey>, String> {
        let is_own = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let mut own = samples.iter().filter(|(key, _)| is_own(&key.0));
        if let Some((key, value)) = own.find(|(key, _)| !known.contains(key)) {
            return Err(format!("{key:?} {value:?} was never sent"));
        }
        let mut ended = Vec::new();
        for (key, known) in &known.0 {
            let end = known.touched + known.ttl;
            match samples.get(key) {
                None if self.may_have_ended(&key.1, end) => ended.push(key.clone()),
                Some(value) if value.0 == known.value && !self.must_have_ended(&key.1, end) => {}
                value => {
                    return Err(format!("{key:?} is {value:?}: {known:?}, now {:?}", self.now));
                }
            }
        }
        Ok(ended)
    }
}
