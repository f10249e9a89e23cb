//! The verdict about lines: which may be rejected, and what accepted ones change in the model.

use std::collections::BTreeSet;

use super::features::Feature;
use super::model::{Burst, Key, Kind, Known, Labels};
use super::{FOLDED, History, fits};
use crate::exposition::budget::BudgetMode;

impl History {
    /// Takes the verdict about valid lines into the model. `sum` is the sum of their numbers.
    pub(super) fn verdict(
        &mut self,
        burst: Burst,
        sum: f64,
        reasons: &[&str],
    ) -> Result<(), String> {
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        let is_rejected = !reasons.is_empty();
        if is_rejected && (self.mode != BudgetMode::Enforce || !reasons.iter().all(is_budget)) {
            return Err(format!("rejected for {reasons:?}"));
        }
        let (kind, key) = (burst.kind, (burst.kind, burst.labels.clone()));
        let sums: &[(&str, f64)] = match kind {
            Kind::Counter => &[("requests_total", burst.applied_to(0.0))],
            Kind::Gauge => &[],
            Kind::Observer => &[("latency_count", burst.applied_to(0.0)), ("latency_sum", sum)],
        };
        let exists = match kind {
            Kind::Gauge => self.model.series.contains_key(&key),
            Kind::Counter | Kind::Observer => self.model.sums.contains_key(sums[0].0),
        };
        if is_rejected && exists && !self.ttl && !self.model.has_ended {
            return Err(format!("rejected for {reasons:?}, although its metric exists"));
        }
        let mut of_kind = self.model.shown.iter().filter(|((of, _), _)| *of == kind);
        let has_series = of_kind.any(|(key, known)| !self.may_end(key, known));
        if is_rejected && kind != Kind::Gauge && self.scrapes_each && has_series {
            return Err(format!("rejected for {reasons:?}, although its metric has series"));
        }
        if is_rejected && self.model.shown.contains_key(&key) {
            return Err(format!("rejected for {reasons:?}, although its series exists"));
        }
        if is_rejected && self.has_room(&key) {
            return Err(format!("rejected for {reasons:?}, although there is room"));
        }
        self.check_violations(&key)?;
        if is_rejected {
            return Ok(());
        }
        for (family, amount) in sums {
            *self.model.sums.entry(family).or_default() += amount;
        }
        if self.gone.contains(&key) {
            self.used(Feature::Reappearance);
        }
        let known = Known::after(self.model.series.get(&key), &burst);
        self.model.series.insert(key, known);
        self.model.burst = Some(burst);
        Ok(())
    }

    /// Returns true if a new series is certainly within the budgets, beside those of the last scrape.
    pub(super) fn has_room(&self, key: &Key) -> bool {
        let (kind, labels) = key;
        let of_kind = || self.model.shown.keys().filter(|(of, _)| of == kind);
        let series = self.mapping.series.unwrap_or(self.budget.series_per_metric);
        let values = self.mapping.values.unwrap_or(self.budget.values_per_label);
        let number_of_values = |(name, value): (&String, &String)| {
            let others = of_kind().filter_map(|(_, labels)| labels.get(name));
            let others = others.filter(|value| *value != FOLDED).chain([value]);
            others.collect::<BTreeSet<_>>().len()
        };
        self.scrapes_each
            && *kind != Kind::Observer
            && self.has_room_for_samples()
            // The series itself, and that of the overflow.
            && fits((of_kind().count() + 2) * self.start_times.samples(*kind), series)
            && labels.iter().all(|label| fits(number_of_values(label), values))
            && !self.model.folded.contains_key(key)
    }

    /// Checks that budgets which are only tracked count a new series that is beyond one of them, and no other one.
    fn check_violations(&mut self, key: &Key) -> Result<(), String> {
        if self.mode != BudgetMode::Track || !self.scrapes_each {
            return Ok(());
        }
        let violations = self.offline.shared().registry.violations.all();
        let own = violations.iter().filter(|violation| violation.metric == key.0.metric());
        let count: u64 = own.map(|violation| violation.times).sum();
        let before = std::mem::replace(&mut self.model.violations[key.0 as usize], count);
        let of_kind = || self.model.shown.iter().filter(|(other, _)| other.0 == key.0);
        let all: Vec<&Labels> = of_kind().map(|((_, labels), _)| labels).collect();
        let certain = of_kind().filter(|(other, known)| !self.may_end(other, known));
        let certain: Vec<&Labels> = certain.map(|((_, labels), _)| labels).collect();
        let exceeded = self.exceeded_limit(key, &certain, &all);
        match exceeded.filter(|_| !self.model.shown.contains_key(key)) {
            Some(why) if count <= before => {
                Err(format!("{key:?} is beyond a budget, which is not counted: {why}"))
            }
            None if count > before && self.has_room(key) => {
                Err(format!("{key:?} counts as beyond a budget: {violations:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the limit of its metric that a new series under its own labels exceeds, if any: `certain` are the labels of series that
    /// were there beside it, `all` those of series that may have been.
    pub(super) fn exceeded_limit(
        &self,
        (kind, labels): &Key,
        certain: &[&Labels],
        all: &[&Labels],
    ) -> Option<String> {
        let series = self.mapping.series.unwrap_or(self.budget.series_per_metric);
        let values = self.mapping.values.unwrap_or(self.budget.values_per_label);
        let samples = (certain.len() + 1) * self.start_times.samples(*kind);
        if *kind != Kind::Observer && !fits(samples, series) {
            return Some(format!("{samples} series of a metric, not {series}"));
        }
        labels.iter().find_map(|(name, value)| {
            let known = certain.iter().filter_map(|labels| labels.get(name));
            let known: BTreeSet<&String> = known.filter(|value| *value != FOLDED).collect();
            let is_new =
                value != FOLDED && all.iter().all(|labels| labels.get(name) != Some(value));
            let is_over = is_new && !fits(known.len() + 1, values);
            is_over.then(|| format!("{value:?} of {name} beside {known:?}, of at most {values}"))
        })
    }

    /// Returns true if another sample is certainly within the budget of all metrics.
    pub(super) fn has_room_for_samples(&self) -> bool {
        /// The largest number of samples that may be reserved for the overflow series of all metrics, with that of a new series.
        const RESERVED: usize = 12;
        let unseen = RESERVED
            + self.start_times.reserved()
            + self.many_values.reserved()
            + self.derived_names.reserved()
            + self.taken_names.unseen_samples();
        fits(self.model.samples + unseen, self.budget.series)
    }
}
