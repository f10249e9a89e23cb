//! Metrics with names that another side takes and gives back: while a name is taken, its metric is hidden in every format but
//! counts on, and a new one is rejected. Other metrics notice nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::History;
use super::features::Feature;
use super::model::{Labels, Mapping};
use crate::exposition::budget::BudgetMode;
use crate::exposition::tests::samples::Samples;

/// The beginning of their names.
pub(super) const PREFIX: &str = "kube_customresource_";

/// The metrics: the last part of the name, the type of the lines, the name of the sample with their value, and the names that
/// they use.
const METRICS: [(&str, &str, &str, &[&str]); 4] = [
    ("size", "g", "size", &["size"]),
    ("starts_total", "c", "starts_total", &["starts_total"]),
    ("time", "ms", "time_count", &["time", "time_sum", "time_count"]),
    ("users", "s", "users", &["users"]),
];

/// A series.
#[derive(Debug)]
struct Known {
    /// NaN if it is not certain.
    value: f64,
    touched: Duration,
    /// The shortest and the longest possible time to live.
    ttl: [Duration; 2],
    /// True if it may have ended while it was hidden.
    may_be_gone: bool,
}

/// The metrics of a history whose names others may take.
pub(super) struct TakenNames {
    rng: Rng,
    ttl: Duration,
    taken: BTreeSet<String>,
    known: [BTreeMap<Labels, Known>; METRICS.len()],
}

impl TakenNames {
    pub(super) fn new(seed: u64, mapping: &Mapping) -> Self {
        let (taken, known) = (BTreeSet::new(), <[_; METRICS.len()]>::default());
        let rng = Rng::with_seed(seed ^ 0x6a09_e667_f3bc_c908);
        Self { rng, ttl: Duration::from_secs(mapping.ttl), taken, known }
    }

    pub(super) fn reload(&mut self, mapping: &Mapping) {
        self.ttl = Duration::from_secs(mapping.ttl);
    }

    /// Returns true if the next line is one of these metrics.
    pub(super) fn is_next(&mut self) -> bool {
        self.rng.u32(0..10) == 0
    }

    pub(super) fn yaml(&self) -> String {
        format!("- match: taken.*\n  name: {PREFIX}$1\n  ttl: {}s\n", self.ttl.as_secs())
    }

    /// Returns true if a metric is hidden.
    fn is_taken(&self, metric: usize) -> bool {
        METRICS[metric].3.iter().any(|name| self.taken.contains(&format!("{PREFIX}{name}")))
    }

    /// Returns true if others take other names now.
    pub(super) fn changes(&mut self) -> bool {
        self.rng.u32(0..20) == 0
    }

    /// Returns the largest number of samples that budgets count, but that a scrape may not show: those of series that are or were
    /// hidden, and those that are reserved for overflow series.
    pub(super) fn unseen_samples(&self) -> usize {
        /// Three quantiles, sum, count and start time.
        const OF_ONE: usize = 6;
        let series = self.known.iter().filter(|known| !known.is_empty());
        series.map(|known| OF_ONE * (known.len() + 1)).sum()
    }
}

impl History {
    /// Takes other names, or gives names back.
    pub(super) fn take_names(&mut self) {
        let names = METRICS.iter().flat_map(|(.., names)| names.iter());
        let rng = &mut self.taken_names.rng;
        let taken = names.filter(|_| rng.u32(0..4) == 0);
        let taken = taken.map(|name| format!("{PREFIX}{name}")).collect();
        self.reserve(taken);
    }

    /// Hides the metrics with these names, and only these.
    fn reserve(&mut self, taken: BTreeSet<String>) {
        let replica = self.pods.as_ref().map(|(_, copies)| copies.replica());
        for offline in [&self.offline].into_iter().chain(replica) {
            let taken = taken.clone();
            offline.reserve(Arc::new(move |name| taken.contains(name)));
        }
        let before = std::mem::replace(&mut self.taken_names.taken, taken);
        if !before.is_subset(&self.taken_names.taken) {
            self.used(Feature::NameReturned);
        }
    }

    /// Sends a line of one of the metrics.
    pub(super) fn line_with_taken_name(&mut self) -> Result<(), String> {
        let names = &mut self.taken_names;
        let metric = names.rng.usize(0..METRICS.len());
        let number = names.rng.u32(1..9);
        let (name, suffix, ..) = METRICS[metric];
        let sender = names.rng.usize(0..self.senders.len());
        let line = format!("taken.{name}:{number}|{suffix}");
        let (reasons, labels) =
            self.send(Some(self.senders[sender]), std::slice::from_ref(&line))?;
        self.outcome.lines += 1;
        let folds = self.folds_taken_name(metric);
        let names = &mut self.taken_names;
        let (is_taken, ttl, all) = (names.is_taken(metric), names.ttl, &mut names.known[metric]);
        let has_series = all.values().any(|known| !known.may_be_gone);
        let may_have_series = !all.is_empty();
        let is_known = all.get(&labels).is_some_and(|known| !known.may_be_gone);
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        if !reasons.is_empty() {
            let is_of_name = reasons == ["reserved_name"];
            let is_right = match is_of_name {
                true => is_taken && (folds || !has_series),
                false => {
                    let is_budget = reasons.iter().all(is_budget);
                    is_budget && self.mode == BudgetMode::Enforce && (folds || !is_known)
                }
            };
            if !is_right {
                return Err(format!("{line} is rejected for {reasons:?}, taken: {is_taken}"));
            }
            if is_of_name {
                all.clear();
                self.used(Feature::TakenName);
            }
            return Ok(());
        }
        if is_taken && !may_have_series && !folds {
            return Err(format!("{line} begins a metric with a name that is taken"));
        }
        let new = Known { value: 0.0, touched: self.now, ttl: [ttl; 2], may_be_gone: false };
        let known = all.entry(labels).or_insert(new);
        if std::mem::take(&mut known.may_be_gone) {
            let [shortest, longest] = known.ttl;
            (known.value, known.ttl) = (f64::NAN, [shortest.min(ttl), longest.max(ttl)]);
        }
        known.touched = self.now;
        match suffix {
            "g" => known.value = f64::from(number),
            "c" => known.value += f64::from(number),
            "ms" => known.value += 1.0,
            // Members may have left.
            _ => known.value = f64::NAN,
        }
        if is_taken {
            self.used(Feature::TakenName);
        }
        Ok(())
    }

    /// Returns true if budgets may fold the series of a metric.
    fn folds_taken_name(&self, metric: usize) -> bool {
        self.mode == BudgetMode::Enforce && matches!(METRICS[metric].1, "c" | "ms")
    }

    /// Compares the metrics of a scrape with the model: those that are not hidden are there with their values.
    pub(super) fn check_taken_names(&mut self, samples: &Samples) -> Result<(), String> {
        for (metric, (_, _, sample, names)) in METRICS.into_iter().enumerate() {
            let is_taken = self.taken_names.is_taken(metric);
            let is_own =
                |name: &str| name.strip_prefix(PREFIX).is_some_and(|name| names.contains(&name));
            if is_taken && samples.keys().any(|(name, _)| is_own(name)) {
                return Err(format!("{names:?} shown, but taken: {:?}", self.taken_names.taken));
            }
            let name = format!("{PREFIX}{sample}");
            let shown = samples.iter().filter(|((each, _), _)| *each == name);
            let shown: BTreeMap<&Labels, f64> =
                shown.map(|((_, labels), value)| (labels, value.0)).collect();
            let folds = self.folds_taken_name(metric);
            let (mut ended, mut uncertain) = (Vec::new(), Vec::new());
            for (labels, known) in &self.taken_names.known[metric] {
                let [first, last] = known.ttl.map(|ttl| known.touched + ttl);
                let may_be_gone = known.may_be_gone || self.may_have_ended(labels, first);
                let must_be_gone = self.must_have_ended(labels, last);
                let wrong = match shown.get(labels) {
                    None if must_be_gone || !is_taken && may_be_gone => {
                        ended.push(labels.clone());
                        continue;
                    }
                    None if is_taken => {
                        uncertain.extend(may_be_gone.then(|| labels.clone()));
                        continue;
                    }
                    _ if folds => continue,
                    None => "missing".to_owned(),
                    Some(_) if must_be_gone => "still there".to_owned(),
                    Some(value) if known.value.is_nan() || *value == known.value => continue,
                    Some(value) => format!("{value}"),
                };
                return Err(format!("{name}{labels:?} is {wrong}: {known:?}, now {:?}", self.now));
            }
            let known = &mut self.taken_names.known[metric];
            let is_new = |labels: &&&Labels| !folds && !known.contains_key(**labels);
            if let Some(labels) = shown.keys().find(is_new) {
                return Err(format!("{name}{labels:?} was never sent"));
            }
            known.retain(|labels, _| !ended.contains(labels));
            for (labels, known) in known {
                known.may_be_gone = uncertain.contains(labels);
            }
        }
        Ok(())
    }
}
