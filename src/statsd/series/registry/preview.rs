//! What would become of a label set: the decisions of the registry, without their effect.

use super::budget::End;
use super::{Found, Members, NewSeries, Registry, Rejection};
use crate::exposition::budget::Limit;
use crate::exposition::labels;
use crate::statsd::series::cell::Handle;
use crate::statsd::series::landing::{Beyond, Landing, Preview, Used};
use crate::statsd::series::tree::{Assembly, Snapshot};

/// A landing, as far as it is known while the registry is looked at.
enum Foreseen {
    Landing(Landing),
    /// The series that the label set was folded into before.
    Folded(Handle),
}

/// The labels of a series of the metric `name`, if it is there.
fn labels_of(pages: &Snapshot, name: &str, handle: Handle) -> Option<Vec<u8>> {
    let mut assembly = Assembly::default();
    let mut index = pages.page_of(name);
    while let Some(page) = pages.page(index) {
        assembly.begin(page);
        for (entry, rest) in page.iter() {
            if entry.handle == handle {
                return Some(assembly.labels(rest).to_vec());
            }
            if *entry.family.name > *name {
                return None;
            }
        }
        index += 1;
    }
    None
}

impl Registry {
    /// What would become of this label set if it came now. Nothing changes by it.
    pub(crate) fn preview(&self, series: &NewSeries<'_>) -> Preview {
        let members = self.read();
        let mut beyond = Vec::new();
        let landing = self.landing(&members, series, &mut beyond);
        let used = self.used(&members, series);
        let landing = match landing {
            Ok(Foreseen::Landing(landing)) => Ok(landing),
            Ok(Foreseen::Folded(handle)) => {
                // A look through all series of the metric, for which nobody has to wait.
                let pages = members.tree.snapshot();
                drop(members);
                Ok(Landing::FoldedBefore(labels_of(&pages, series.key.name, handle)))
            }
            Err(rejection) => Err(rejection),
        };
        Preview { landing, beyond, used }
    }

    fn landing(
        &self,
        members: &Members,
        series: &NewSeries<'_>,
        beyond: &mut Vec<Beyond>,
    ) -> Result<Foreseen, Rejection> {
        let own = || series.key.labels.to_vec();
        if series.key.name.is_empty() {
            return Err(Rejection::EmptyName);
        }
        let absent = match self.find(members, series)? {
            Found::Alive(_) => return Ok(Foreseen::Landing(Landing::There(own()))),
            Found::Absent(absent) => absent,
        };
        if let Some(folded) = self.folded(members, &series.key) {
            return Ok(Foreseen::Folded(folded.handle));
        }
        self.admit(members, series, absent.family.is_some())?;
        if !self.has_budget() {
            return Ok(Foreseen::Landing(Landing::New(own())));
        }
        let family = absent.family.clone();
        let gathered = family.as_deref().and_then(|family| {
            let threshold = self.looks_at_values(series, family)?;
            let is_there = members.account.values.contains_key(&family.id);
            (!is_there).then(|| self.values_of(members, family, threshold))
        });
        let values = family.as_ref().and_then(|family| members.account.values.get(&family.id));
        let plan = self.plan(members, series, absent, values.or(gathered.as_ref()));
        *beyond = plan.beyond;
        Ok(Foreseen::Landing(match plan.end? {
            End::Makes(_) => Landing::New(own()),
            End::Joins(_, labels) => Landing::There(labels),
            End::MakesAnother(_, labels) => Landing::New(labels),
        }))
    }

    fn used(&self, members: &Members, series: &NewSeries<'_>) -> Vec<Used> {
        if !self.has_budget() {
            return Vec::new();
        }
        let (account, budget) = (&members.account, &self.budget);
        let allowed = self.allowed(series.budget);
        let family = self.family(members, series.key.name);
        let samples = family.map_or(0, |family| family.samples());
        let of_all = |limit, used, most| Used { limit, label: String::new(), used, most };
        let mut all = vec![
            of_all(Limit::SeriesPerMetric, samples, allowed.series),
            of_all(Limit::Series, account.samples + account.reserved, budget.series),
            of_all(Limit::Memory, account.bytes + account.reserved_bytes, budget.memory),
        ];
        if let Some(values) = family.and_then(|family| account.values.get(&family.id)) {
            all.extend(labels::iter(series.key.labels).map(|(name, _)| Used {
                limit: Limit::ValuesPerLabel,
                label: String::from_utf8_lossy(name).into_owned(),
                used: values.of(name),
                most: allowed.values_per_label,
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
    use crate::statsd::series::tree::Key;

    /// Name and labels of every series.
    fn series(registry: &Registry) -> BTreeSet<(String, Vec<u8>)> {
        let pages = registry.view().pages;
        let mut assembly = Assembly::default();
        let mut all = BTreeSet::new();
        let mut index = 0;
        while let Some(page) = pages.page(index) {
            assembly.begin(page);
            for (entry, rest) in page.iter() {
                all.insert((entry.family.name.to_string(), assembly.labels(rest).to_vec()));
            }
            index += 1;
        }
        all
    }

    /// A registry under these budgets to which series come that chance chooses: what is foreseen of each is what happens.
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
            };
            let (before, over) = (series(&registry), registry.over.all());
            let foreseen = registry.preview(&wanted);
            assert_eq!((&series(&registry), &registry.over.all()), (&before, &over), "no change");
            assert_eq!(registry.preview(&wanted), foreseen, "the same again");
            let came = registry.resolve(&wanted);
            let after = series(&registry);
            let new: Vec<_> = after.difference(&before).collect();
            let own = |labels: &[u8]| (name.to_owned(), labels.to_vec());
            match (&foreseen.landing, came) {
                (Ok(Landing::New(labels)), Ok(_)) => assert_eq!(new, [&own(labels)]),
                (Ok(Landing::There(labels) | Landing::FoldedBefore(Some(labels))), Ok(_)) => {
                    assert!(new.is_empty() && before.contains(&own(labels)));
                }
                (Err(foreseen), Err(came)) => assert_eq!((*foreseen, new.len()), (came, 0)),
                (foreseen, came) => panic!("{foreseen:?}, and it was {came:?}"),
            }
            seen[match foreseen.landing {
                Ok(Landing::New(_)) => 0,
                Ok(Landing::There(_)) => 1,
                Ok(Landing::FoldedBefore(_)) => 2,
                Err(_) => 3,
            }] += 1;
            let times = |over: &[crate::statsd::series::over::Over]| {
                over.iter().map(|over| over.times).sum::<u64>()
            };
            let noted = times(&registry.over.all()) - times(&over);
            assert_eq!(noted, foreseen.beyond.len() as u64, "{:?}", foreseen.beyond);
            if chance.u8(..) < 5 {
                clock.advance(Duration::from_secs(2));
                registry.expire();
            }
        }
        seen
    }

    #[test]
    fn what_is_foreseen_happens() {
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
