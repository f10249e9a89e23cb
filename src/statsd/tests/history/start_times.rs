//! The start times of series, in each format that has them: one is not before the scrape that did not have the series yet, not after
//! the first one with it, and never changes while the series lives.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;

use super::features::Feature;
use super::model::Kind;
use super::{History, fits, options, random_rules, taken_name};
use crate::exposition::Format;
use crate::exposition::budget::BudgetMode;
use crate::exposition::tests::samples::{self, Key, Samples};
use crate::statsd::scrape::Scrape;

/// The wall clock at the start of a history, as of [`Clock::manual`](crate::statsd::Clock::manual).
const EPOCH: f64 = 1_767_225_600.0;
/// Start times are whole tenths of a second, rounded down.
const ROUNDING: f64 = 0.1;
/// The error of a number of seconds since the Unix epoch.
const ERROR: f64 = 1e-3;

/// The start times of a history.
#[derive(Default)]
pub(super) struct StartTimes {
    /// True if scrapers get them, so that budgets count them.
    pub(super) are_counted: bool,
    /// Those of the last scrape, with its time.
    last: (Duration, Samples),
    /// The last ones of series that may be hidden meanwhile.
    of_taken_names: Samples,
}

impl StartTimes {
    pub(super) fn new(seed: u64) -> Self {
        let are_counted = Rng::with_seed(seed ^ 0x9b05_688c_2b3e_6c1f).u32(0..3) == 0;
        Self { are_counted, ..Self::default() }
    }

    /// Returns the number of samples of a counter or gauge that budgets count.
    pub(super) fn samples(&self, kind: Kind) -> usize {
        if self.are_counted && kind == Kind::Counter { 2 } else { 1 }
    }

    /// Returns the number of start times in the room for overflow series that no scrape shows: one for each metric whose series
    /// fold.
    pub(super) fn reserved(&self) -> usize {
        if self.are_counted { 4 } else { 0 }
    }
}

impl History {
    /// Compares OpenMetrics with start times with a scrape as text, and the start times with those before. Returns the number
    /// of samples that budgets count.
    pub(super) fn check_start_times(&mut self, text: &Samples) -> Result<usize, String> {
        let registry = &self.offline.shared().registry;
        let scrape = Scrape::new(registry.view(), Vec::new(), None, None, registry.clock.clone());
        let body: Vec<u8> = scrape.text(Format::OpenMetrics, true).flatten().collect();
        let mut others = samples::of_text(&body)?;
        let all = others.len();
        let times: Samples =
            others.extract_if(.., |(name, _), _| name.ends_with("_created")).collect();
        if others != *text {
            return Err("OpenMetrics with start times has other samples than text".to_owned());
        }
        let with_time = text.keys().filter_map(|(name, labels)| {
            let base = name.strip_suffix("_total").or_else(|| name.strip_suffix("_count"))?;
            Some((format!("{base}_created"), labels.clone()))
        });
        let wanted: BTreeSet<Key> = with_time.collect();
        let missing = || wanted.iter().filter(|key| !times.contains_key(key));
        if let Some(key) = missing().find(|(name, _)| !self.may_lack_start_time(name)) {
            return Err(format!("no start time: {key:?}"));
        }
        if let Some(key) = times.keys().find(|key| !wanted.contains(key)) {
            return Err(format!("a start time without a series: {key:?}"));
        }
        let hidden = missing().count();
        let (at, last) = &self.start_times.last;
        for (key, time) in &times {
            let may_be_hidden = key.0.starts_with(taken_name::PREFIX);
            let before = match may_be_hidden {
                true => self.start_times.of_taken_names.get(key),
                false => last.get(key),
            };
            let since = match before {
                Some(before) if before == time => continue,
                Some(before) if may_be_hidden => before.0 - EPOCH,
                Some(before) => {
                    return Err(format!("{key:?}: the start {before:?} became {time:?}"));
                }
                None if may_be_hidden => 0.0,
                None => at.as_secs_f64() - ROUNDING,
            };
            let range = since - ERROR..=self.now.as_secs_f64() + ERROR;
            if !range.contains(&(time.0 - EPOCH)) {
                let time = time.0 - EPOCH;
                return Err(format!("{key:?} has begun at {time:?}, not in {range:?}"));
            }
        }
        let of_taken_names =
            times.iter().filter(|((name, _), _)| name.starts_with(taken_name::PREFIX));
        let of_taken_names = of_taken_names.map(|(key, time)| (key.clone(), *time));
        self.start_times.of_taken_names.extend(of_taken_names);
        self.start_times.last = (self.now, times);
        let counted = if self.start_times.are_counted { all + hidden } else { text.len() };
        let limit = self.budget.series;
        if self.start_times.are_counted {
            self.used(Feature::StartTimes);
        }
        if self.mode == BudgetMode::Enforce && !fits(counted, limit) {
            return Err(format!("{counted} samples of {limit}"));
        }
        Ok(counted)
    }

    /// Returns true for a start time of a family that may have got a negative value: text has none then, but messages do.
    fn may_lack_start_time(&self, name: &str) -> bool {
        self.signs.is_some() && name.starts_with("latency")
    }

    /// Compares the start times of messages with those of the last scrape, at the same time.
    pub(super) fn same_start_times(&self, messages: &[u8]) -> Result<(), String> {
        let times = samples::start_times_of_messages(messages)?;
        let expected = &self.start_times.last.1;
        let mut count = 0;
        for ((name, labels), time) in &times {
            // OpenMetrics has no counters with such names.
            let mut prefixes = options::PREFIXES.iter().chain(&random_rules::PREFIXES);
            if prefixes.any(|prefix| name.starts_with(prefix)) || self.may_lack_start_time(name) {
                continue;
            }
            count += 1;
            let base = name.strip_suffix("_total").unwrap_or(name);
            let expected = expected.get(&(format!("{base}_created"), labels.clone()));
            if !expected.is_some_and(|expected| (expected.0 - time.0).abs() < ERROR) {
                return Err(format!("{name}{labels:?} has begun at {time:?}, not {expected:?}"));
            }
        }
        let expected = expected.keys().filter(|(name, _)| !self.may_lack_start_time(name)).count();
        match count == expected {
            true => Ok(()),
            false => Err(format!("{count} start times of {expected}")),
        }
    }
}
