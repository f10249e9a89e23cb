//! Predicts the result of resolving a label set without changing the registry.

use std::sync::RwLockReadGuard;

use super::budget::PlannedSeries;
use super::{Found, Members, NewSeries, Registry, Rejection, Resolved};
use crate::exposition::budget::Limit;
use crate::exposition::labels;
use crate::statsd::series::placement::{ExceededBudget, Placement, Preview};
use crate::status::explanation::Used;

impl Registry {
    /// Predicts the result of resolving this series now. Changes nothing.
    pub(crate) fn preview(&self, series: &NewSeries<'_>) -> Preview {
        let members = self.read();
        let usage = self.usage(&members, series);
        let family = self.family(&members, series.key.name);
        let is_hidden = family.is_some_and(|family| members.hidden.contains(&family.id));
        let mut exceeded = Vec::new();
        let placement = self.placement(members, series, &mut exceeded);
        Preview { placement, exceeded, usage, is_hidden }
    }

    fn placement<'r>(
        &'r self,
        mut members: RwLockReadGuard<'r, Members>,
        series: &NewSeries<'_>,
        exceeded: &mut Vec<ExceededBudget>,
    ) -> Result<Placement, Rejection> {
        let own = || series.key.labels.to_vec();
        if series.key.name.is_empty() {
            return Err(Rejection::EmptyName);
        }
        let Found::Absent(mut absent) = self.find(&members, series)? else {
            return Ok(Placement::Existing(own()));
        };
        if let Some(Resolved { handle, .. }) = self.folded(&members, &series.key) {
            // The series is searched for in the whole metric, without the lock.
            let pages = members.tree.snapshot();
            drop(members);
            return Ok(Placement::Folded(pages.find_series(series.key.name, |entry, labels| {
                (entry.handle == handle).then(|| labels.to_vec())
            })));
        }
        self.admit(&members, series, &absent)?;
        if !self.has_budget() {
            return Ok(Placement::New(own()));
        }
        let family = absent.family.clone();
        let mut gathered = None;
        if let Some(family) = &family
            && let Some(threshold) = self.value_threshold(series, family)
            && !members.account.values.contains_key(&family.id)
        {
            // There may be many, so they are counted without the lock.
            let pages = members.tree.snapshot();
            drop(members);
            gathered = Some(self.count_values(&pages, family, threshold));
            members = self.read();
            let Found::Absent(still) = self.find(&members, series)? else {
                return Ok(Placement::Existing(own()));
            };
            absent = still;
        }
        let values = family.as_ref().and_then(|family| members.account.values.get(&family.id));
        let values = gathered.as_ref().or(values);
        let planned = self.plan(&members, series, absent, values, exceeded)?;
        Ok(match planned {
            PlannedSeries::Create(_) => Placement::New(own()),
            PlannedSeries::Existing(_, labels) => Placement::Existing(labels),
            PlannedSeries::CreateFolded(_, labels) => Placement::New(labels),
        })
    }

    fn usage(&self, members: &Members, series: &NewSeries<'_>) -> Vec<Used> {
        if !self.has_budget() {
            return Vec::new();
        }
        let (account, budget) = (&members.account, &self.budget);
        let limits = self.limits_of(series.budget);
        let family = self.family(members, series.key.name);
        let samples = family.map_or(0, |family| family.samples());
        let of_all = |limit: Limit, used, most| Used {
            limit: limit.as_str(),
            label: String::new(),
            used,
            most,
        };
        let mut all = vec![
            of_all(Limit::SeriesPerMetric, samples, limits.series),
            of_all(Limit::Series, account.samples + account.reserved, budget.series),
            of_all(Limit::Memory, account.bytes + account.reserved_bytes, budget.memory),
        ];
        if let Some(values) = family.and_then(|family| account.values.get(&family.id)) {
            all.extend(labels::iter(series.key.labels).map(|(name, _)| Used {
                limit: Limit::ValuesPerLabel.as_str(),
                label: String::from_utf8_lossy(name).into_owned(),
                used: values.count(name),
                most: limits.values_per_label,
            }));
        }
        all.retain(|used| used.most > 0);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::Aggregation;
    use super::*;
    use crate::exposition::budget::{Budget, BudgetMode, RuleBudget};
    use crate::statsd::clock::Clock;
    use crate::statsd::series::senders::Origin;
    use crate::statsd::series::tree::{Key, LabelAssembler};

    /// Returns name and labels of every series.
    fn series(registry: &Registry) -> BTreeSet<(String, Vec<u8>)> {
        let pages = registry.view().pages;
        let mut assembler = LabelAssembler::default();
        let mut all = BTreeSet::new();
        let mut index = 0;
        while let Some(page) = pages.page(index) {
            assembler.begin(page);
            for (entry, rest) in page.iter() {
                all.insert((entry.family.name.to_string(), assembler.labels(rest).to_vec()));
            }
            index += 1;
        }
        all
    }

    /// Creates random series under these budgets and checks that each prediction comes true. Returns how
    /// often each result occurred.
    fn check(budget: Budget, seed: u64) -> [usize; 4] {
        let mut chance = fastrand::Rng::with_seed(seed);
        let reserved = Arc::new(|name: &str| name == "taken");
        let clock = Clock::manual();
        let registry = Registry::new(clock.clone(), reserved, budget, Box::new(|| {}));
        let (mut seen, origin) = ([0; 4], Origin::default());
        for _ in 0..600 {
            let names = if chance.u8(..) < 9 { 5 } else { 3 };
            let name = ["a", "b", "c", "taken", "0"][chance.usize(..names)];
            let (code, url) = (chance.u8(..3), chance.u8(..30));
            let text = match chance.u8(..9) {
                0 => String::new(),
                1 => format!("__x=\"{code}\""),
                2 => format!("code=\"{code}\",url=\"{}\"", "long".repeat(usize::from(url))),
                _ => format!("code=\"{code}\",url=\"{url}\""),
            };
            let gauge = (name == "b") != (chance.u8(..50) == 0);
            let wanted = NewSeries {
                key: Key { name, labels: text.as_bytes(), label_count: 2 },
                aggregation: if gauge { Aggregation::Gauge } else { Aggregation::Counter },
                help: "",
                ttl: 100,
                generation: 1,
                budget: RuleBudget::default(),
                origin: &origin,
                sender: 0,
            };
            let (before, over) = (series(&registry), registry.violations.all());
            let predicted = registry.preview(&wanted);
            assert_eq!(
                (&series(&registry), &registry.violations.all()),
                (&before, &over),
                "no change"
            );
            assert_eq!(registry.preview(&wanted), predicted, "the same again");
            let came = registry.resolve(&wanted);
            let after = series(&registry);
            let new: Vec<_> = after.difference(&before).collect();
            let own = |labels: &[u8]| (name.to_owned(), labels.to_vec());
            match (&predicted.placement, came) {
                (Ok(Placement::New(labels)), Ok(_)) => assert_eq!(new, [&own(labels)]),
                (Ok(Placement::Existing(labels) | Placement::Folded(Some(labels))), Ok(_)) => {
                    assert!(new.is_empty() && before.contains(&own(labels)));
                }
                (Err(predicted), Err(came)) => {
                    assert_eq!((*predicted, new.len()), (came.rejection, 0))
                }
                (predicted, came) => panic!("{predicted:?}, and it was {came:?}"),
            }
            seen[match predicted.placement {
                Ok(Placement::New(_)) => 0,
                Ok(Placement::Existing(_)) => 1,
                Ok(Placement::Folded(_)) => 2,
                Err(_) => 3,
            }] += 1;
            let times = |over: &[crate::statsd::series::budget_violations::Violation]| {
                over.iter().map(|over| over.times).sum::<u64>()
            };
            let noted = times(&registry.violations.all()) - times(&over);
            assert_eq!(noted, predicted.exceeded.len() as u64, "{:?}", predicted.exceeded);
            if chance.u8(..) < 5 {
                clock.advance(Duration::from_secs(2));
                registry.expire();
            }
        }
        seen
    }

    #[test]
    fn only_limited_budgets_have_a_usage() {
        let budget =
            Budget { mode: BudgetMode::Enforce, series_per_metric: 20, ..Budget::default() };
        let registry = Registry::new(Clock::manual(), Arc::new(|_| false), budget, Box::new(|| {}));
        let (labels, origin) = (br#"code="200""#, Origin::default());
        let wanted = NewSeries {
            key: Key { name: "a", labels, label_count: 1 },
            aggregation: Aggregation::Gauge,
            help: "",
            ttl: 0,
            generation: 1,
            budget: RuleBudget::default(),
            origin: &origin,
            sender: 0,
        };
        for used in [0, 1] {
            let label = String::new();
            let own = Used { limit: Limit::SeriesPerMetric.as_str(), label, used, most: 20 };
            assert_eq!(registry.preview(&wanted).usage, [own]);
            registry.resolve(&wanted).expect("a series");
        }
    }

    #[test]
    fn predictions_come_true() {
        let enforced = Budget { mode: BudgetMode::Enforce, ..Budget::default() };
        let values = Budget { values_per_label: 5, value_bytes: 40, ..enforced.clone() };
        let series = Budget { series_per_metric: 20, series: 35, ..enforced.clone() };
        let tight = Budget { memory: 9_000, name_bytes: 4, values_per_label: 8, ..series.clone() };
        for seed in 0..2 {
            for budget in [&values, &series, &tight] {
                let seen = check(budget.clone(), seed);
                assert!(seen.iter().all(|times| *times > 0), "{seen:?} of {budget:?}");
                let track = Budget { mode: BudgetMode::Track, ..budget.clone() };
                assert_eq!(check(track, seed)[2], 0, "nothing folds");
            }
            assert_eq!(check(Budget::default(), seed)[2], 0, "nothing folds");
        }
    }
}
