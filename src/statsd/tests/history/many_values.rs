//! Summaries that get many values, with different sample rates. Each quantile is that of the values within the window, whose
//! oldest part is in it as a whole or not at all.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use super::History;
use super::features::Feature;
use super::model::{Labels, Mapping, Observed};
use super::options::TagStyle;
use crate::exposition::budget::BudgetMode;
use crate::exposition::tests::samples::Samples;

/// The metric of these summaries.
pub(super) const METRIC: &str = "sizes";

/// The number of values up to which quantiles are exact.
const EXACT: usize = 499;

/// The quantiles that a rule may have, with the largest error of their rank.
const QUANTILES: [&[(f64, f64)]; 3] =
    [&[(0.5, 0.05), (0.9, 0.01), (0.99, 0.001)], &[(0.25, 0.01)], &[(0.0, 0.0), (1.0, 0.0)]];

/// The type of lines with the number by which their values are divided.
const TYPES: [(&str, f64); 3] = [("h", 1.0), ("d", 1.0), ("ms", 1_000.0)];

/// The weights of values, with the field of a line that states the sample rate.
const WEIGHTS: [(f64, &str); 4] = [(1.0, ""), (1.0, ""), (2.0, "|@0.5"), (10.0, "|@0.1")];

/// The rule of these lines.
#[derive(Clone, Debug)]
struct Rule {
    ttl: Duration,
    quantiles: &'static [(f64, f64)],
    max_age: Duration,
    parts: u32,
}

impl Rule {
    fn random(rng: &mut Rng, mapping: &Mapping) -> Self {
        let windows = [(5, 2), (20, 4), (60, 3), (12, 1), (900, 5)];
        let (max_age, parts) = windows[rng.usize(0..windows.len())];
        Self {
            ttl: Duration::from_secs(mapping.ttl),
            quantiles: QUANTILES[rng.usize(0..QUANTILES.len())],
            max_age: Duration::from_secs(max_age),
            parts,
        }
    }
}

/// A summary.
#[derive(Debug)]
struct Known {
    rule: Rule,
    touched: Duration,
    count: f64,
    sum: f64,
    /// The values that may be in the window, from the oldest to the newest one.
    observed: Vec<Observed>,
}

impl Known {
    /// Returns true if a value may be a quantile: if it is the one of the values since some moment at which the oldest part of
    /// the window may begin.
    fn may_be(&self, (rank, error): (f64, f64), value: f64, now: Duration) -> bool {
        let certain = self.rule.max_age / self.rule.parts * (self.rule.parts - 1);
        let (mut count, mut total, mut less, mut up_to, mut largest) = (0, 0.0, 0.0, 0.0, 0.0_f64);
        let is_quantile = |count: usize, total: f64, less: f64, up_to: f64, largest: f64| {
            if count == 0 {
                return value.is_nan();
            }
            let wanted = (rank * total).ceil().max(1.0);
            let slack = if count > EXACT { error * total + largest } else { 0.0 };
            less < wanted + slack && wanted <= up_to + slack
        };
        let mut values = self.observed.iter().rev().peekable();
        loop {
            let is_certain = values.peek().is_some_and(|next| now - next.at < certain);
            if !is_certain && is_quantile(count, total, less, up_to, largest) {
                return true;
            }
            let Some(next) = values.next() else { return false };
            count += 1;
            total += next.weight;
            less += if next.value < value { next.weight } else { 0.0 };
            up_to += if next.value <= value { next.weight } else { 0.0 };
            largest = largest.max(next.weight);
        }
    }

    /// Compares a scrape with the values.
    fn check(&self, labels: &Labels, samples: &Samples, now: Duration) -> Result<(), String> {
        let sample = |name: &str, labels: &Labels| {
            samples.get(&(name.to_owned(), labels.clone())).map(|value| value.0)
        };
        let count = sample("sizes_count", labels);
        if count != Some(self.count) {
            return Err(format!("the count is {count:?}, not {}", self.count));
        }
        let sum = sample("sizes_sum", labels);
        if !sum.is_some_and(|sum| (sum - self.sum).abs() < 1e-6 * self.sum) {
            return Err(format!("the sum is {sum:?}, not {}", self.sum));
        }
        for &(rank, error) in self.rule.quantiles {
            let mut labels = labels.clone();
            labels.insert("quantile".to_owned(), format!("{rank:?}"));
            let value = sample(METRIC, &labels);
            if !value.is_some_and(|value| self.may_be((rank, error), value, now)) {
                let observed: Vec<_> = self
                    .observed
                    .iter()
                    .map(|one| (one.value, one.weight, (now - one.at).as_secs_f64()))
                    .collect();
                return Err(format!("{value:?} is not the quantile {rank} of {observed:?}"));
            }
        }
        Ok(())
    }
}

/// The summaries of a history.
pub(super) struct ManyValues {
    rng: Rng,
    /// Determines when one summary gets hundreds of values at once, so that most of its quantiles are not exact. `None` if none does.
    floods: Option<Rng>,
    rule: Rule,
    known: BTreeMap<Labels, Known>,
    /// The sum of the weights of all accepted values.
    accepted: f64,
}

impl ManyValues {
    pub(super) fn new(seed: u64, mapping: &Mapping) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xcbbb_9d5d_c105_9ed8);
        let rule = Rule::random(&mut rng, mapping);
        let mut floods = Rng::with_seed(seed ^ 0x2748_774c_df8e_eb99);
        let floods = (floods.u32(0..3) == 0).then_some(floods);
        Self { rng, floods, rule, known: BTreeMap::new(), accepted: 0.0 }
    }

    /// Changes the rule, with the other ones.
    pub(super) fn reload(&mut self, mapping: &Mapping) {
        self.rule = Rule::random(&mut self.rng, mapping);
    }

    /// Returns true if the next lines are those of a summary.
    pub(super) fn is_next(&mut self) -> bool {
        self.rng.u32(0..8) == 0 || self.floods.as_mut().is_some_and(|rng| rng.u32(0..8) == 0)
    }

    /// Returns the number of values of the next lines if these are many for one summary.
    fn flood(&mut self) -> Option<usize> {
        let rng = self.floods.as_mut()?;
        (rng.u32(0..3) > 0).then(|| rng.usize(200..700))
    }

    pub(super) fn yaml(&self) -> String {
        let Rule { ttl, quantiles, max_age, parts } = &self.rule;
        let quantiles = quantiles
            .iter()
            .map(|(rank, error)| format!("{{quantile: {rank}, error: {error}}}"))
            .collect::<Vec<_>>()
            .join(", ");
        format!(
            "- match: z.*\n  name: {METRIC}\n  ttl: {}s\n  labels: {{service: $1}}\n  observer_type: summary\n  summary_options: {{quantiles: [{quantiles}], max_age: {}s, age_buckets: {parts}}}\n",
            ttl.as_secs(),
            max_age.as_secs()
        )
    }

    /// Returns the largest number of samples that are reserved for the overflow series: three quantiles, sum, count and start
    /// time.
    pub(super) fn reserved(&self) -> usize {
        6
    }
}

impl History {
    /// Sends lines with values of one summary.
    pub(super) fn lines_of_many_values(&mut self) -> Result<(), String> {
        let (now, flood) = (self.now, self.many_values.flood());
        let rng = &mut self.many_values.rng;
        let service = if flood.is_some() { 0 } else { rng.u32(0..2) };
        let sender = rng.usize(0..self.senders.len());
        let count = flood.unwrap_or_else(|| match rng.u32(0..6) {
            0 => rng.usize(100..400),
            1..3 => rng.usize(10..60),
            _ => rng.usize(1..5),
        });
        let (suffix, unit) = TYPES[rng.usize(0..TYPES.len())];
        let (weight, rate) = WEIGHTS[rng.usize(0..WEIGHTS.len())];
        let tag = (rng.u32(0..4) == 0).then(|| format!("s{sender}"));
        // Later values are larger for a while, so that those of another time or weight give other quantiles.
        let level = now.as_secs() as u32 % 97;
        let numbers: Vec<f64> = (0..count).map(|_| f64::from(level + rng.u32(1..200))).collect();
        let style = TagStyle::ALL[rng.usize(0..TagStyle::ALL.len())];
        let tag = tag.filter(|_| self.options.reads(style));
        let (of_name, of_line) = tag.as_ref().map_or_else(Default::default, |tag| style.texts(tag));
        let lines: Vec<String> = numbers
            .chunks(20)
            .map(|numbers| {
                let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
                format!("z.v{service}{of_name}:{}|{suffix}{rate}{of_line}", numbers.join(":"))
            })
            .collect();
        let mut labels = Labels::from([("service".to_owned(), format!("v{service}"))]);
        labels.extend(tag.map(|tag| ("sender".to_owned(), tag)));
        self.used(Feature::ManyValues);
        self.outcome.lines += lines.len();
        let (reasons, _) = self.send(Some(self.senders[sender]), &lines)?;
        let all = &mut self.many_values;
        if !reasons.is_empty() {
            let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
            let is_limited = self.mode == BudgetMode::Enforce && reasons.iter().all(is_budget);
            return match is_limited && !all.known.contains_key(&labels) {
                true => Ok(()),
                false => Err(format!("{labels:?} rejected for {reasons:?}")),
            };
        }
        let rule = all.rule.clone();
        let new = || Known { rule, touched: now, count: 0.0, sum: 0.0, observed: Vec::new() };
        let known = all.known.entry(labels).or_insert_with(new);
        known.touched = now;
        known.count += weight * count as f64;
        known.sum += numbers.iter().map(|number| weight * number / unit).sum::<f64>();
        let observed =
            numbers.iter().map(|number| Observed { value: number / unit, weight, at: now });
        known.observed.extend(observed);
        all.accepted += weight * count as f64;
        Ok(())
    }

    /// Compares the summaries of a scrape with the model.
    pub(super) fn check_many_values(&mut self, samples: &Samples) -> Result<(), String> {
        let now = self.now;
        for known in self.many_values.known.values_mut() {
            known.observed.retain(|one| now - one.at <= known.rule.max_age);
        }
        let shown: BTreeMap<&Labels, f64> = samples
            .iter()
            .filter(|((name, _), _)| name == "sizes_count")
            .map(|((_, labels), count)| (labels, count.0))
            .collect();
        if self.mode == BudgetMode::Enforce {
            let may_have_ended = |(labels, known): (&Labels, &Known)| {
                self.may_have_ended(labels, known.touched + known.rule.ttl)
            };
            let known = self.many_values.known.iter();
            let ended = known.filter(|one| may_have_ended(*one)).map(|(labels, _)| labels.clone());
            let ended: Vec<Labels> = ended.collect();
            // A budget may reject their next line.
            self.many_values.known.retain(|labels, _| !ended.contains(labels));
            // Label sets may be folded.
            let (count, accepted) = (shown.values().sum::<f64>(), self.many_values.accepted);
            return match self.ttl || count == accepted {
                true => Ok(()),
                false => Err(format!("{METRIC} has {count} values of {accepted}")),
            };
        }
        if let Some(labels) = shown.keys().find(|at| !self.many_values.known.contains_key(**at)) {
            return Err(format!("{METRIC}{labels:?} was never sent"));
        }
        let mut ended = Vec::new();
        for (labels, known) in &self.many_values.known {
            let end = known.touched + known.rule.ttl;
            match shown.contains_key(labels) {
                false if self.may_have_ended(labels, end) => {
                    ended.push(labels.clone());
                    Ok(())
                }
                false => Err("missing".to_owned()),
                true if self.must_have_ended(labels, end) => Err("still there".to_owned()),
                true => known.check(labels, samples, now),
            }
            .map_err(|why| format!("{METRIC}{labels:?}, {:?}, now {now:?}: {why}", known.rule))?;
        }
        for labels in ended {
            self.many_values.known.remove(&labels);
        }
        Ok(())
    }
}
