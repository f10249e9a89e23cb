//! Lines of sets. The value of a series is the number of the distinct members that it got within its window, which was part of
//! the mapping when the series began.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;

use super::features::Feature;
use super::model::{Labels, Mapping};
use super::options::TagStyle;
use super::{History, fits};
use crate::exposition::budget::BudgetMode;
use crate::exposition::tests::samples::Samples;

/// The metric of all sets.
pub(super) const METRIC: &str = "members";

/// The window of a set: `max_age` in seconds, and the number of parts.
#[derive(Clone, Copy, Debug)]
struct Window(u64, u32);

impl Window {
    /// Returns the time that a member is certainly counted, and the time after which it certainly is not.
    fn times(self) -> [Duration; 2] {
        let part = Duration::from_secs(self.0) / self.1;
        [part * (self.1 - 1), part * self.1]
    }
}

/// The rule of sets.
struct Rule {
    ttl: Duration,
    /// `None` for that of a file without options.
    window: Option<Window>,
    series: Option<u64>,
    values: Option<u64>,
}

impl Rule {
    fn random(rng: &mut Rng, mapping: &Mapping) -> Self {
        let windows = [Window(5, 2), Window(20, 4), Window(60, 3), Window(12, 1)];
        Self {
            ttl: Duration::from_secs(mapping.ttl),
            window: (rng.u32(0..5) > 0).then(|| windows[rng.usize(0..windows.len())]),
            series: (rng.u32(0..3) == 0).then(|| rng.u64(2..12)),
            values: (rng.u32(0..3) == 0).then(|| rng.u64(1..6)),
        }
    }
}

/// A series of a set.
#[derive(Debug)]
struct Known {
    touched: Duration,
    ttl: Duration,
    window: Window,
    /// The time of the last line of each member.
    members: BTreeMap<String, Duration>,
}

impl Known {
    /// Returns the least and the largest number that it may show.
    fn bounds(&self, now: Duration) -> [usize; 2] {
        let [certain, longest] = self.window.times();
        let ages = || self.members.values().map(|at| now - *at);
        [ages().filter(|age| *age <= certain).count(), ages().filter(|age| *age <= longest).count()]
    }
}

/// The sets of a history.
pub(super) struct Sets {
    rng: Rng,
    rule: Rule,
    known: BTreeMap<Labels, Known>,
}

impl Sets {
    pub(super) fn new(seed: u64, mapping: &Mapping) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x1f83_d9ab_fb41_bd6b);
        let rule = Rule::random(&mut rng, mapping);
        Self { rng, rule, known: BTreeMap::new() }
    }

    /// Changes the rule, with the other ones.
    pub(super) fn reload(&mut self, mapping: &Mapping) {
        self.rule = Rule::random(&mut self.rng, mapping);
    }

    /// Returns true if the next line is one of a set.
    pub(super) fn is_next(&mut self) -> bool {
        self.rng.u32(0..6) == 0
    }

    pub(super) fn yaml(&self) -> String {
        let Rule { ttl, window, series, values } = &self.rule;
        let mut yaml = format!(
            "- match: s.*.*\n  name: {METRIC}\n  ttl: {}s\n  labels: {{service: $1, user: $2}}\n",
            ttl.as_secs()
        );
        if let Some(Window(max_age, parts)) = window {
            let options = format!("max_age: {max_age}s, age_buckets: {parts}");
            let _ = writeln!(yaml, "  summary_options: {{{options}}}");
        }
        let limits = [("series", series), ("values_per_label", values)];
        let limits = limits.iter().filter_map(|(name, limit)| limit.map(|limit| (name, limit)));
        let limits: Vec<String> = limits.map(|(name, limit)| format!("{name}: {limit}")).collect();
        if !limits.is_empty() {
            let _ = writeln!(yaml, "  limits: {{{}}}", limits.join(", "));
        }
        yaml
    }

    /// Returns true if a new series certainly keeps the limits of its metric.
    fn has_room(&self, labels: &Labels, series: u64, values: u64) -> bool {
        fits(self.known.len() + 1, self.rule.series.unwrap_or(series))
            && labels.iter().all(|(name, value)| {
                let others = self.known.keys().filter_map(|labels| labels.get(name));
                let all: BTreeSet<_> = others.chain([value]).collect();
                fits(all.len(), self.rule.values.unwrap_or(values))
            })
    }
}

impl History {
    /// Sends lines with members of one set.
    pub(super) fn line_of_set(&mut self) -> Result<(), String> {
        let (is_of_pod, rng) = (self.pods.is_some(), &mut self.sets.rng);
        let (service, user) = (rng.u32(0..2), rng.u32(0..if is_of_pod { 2 } else { 5 }));
        let sender = rng.usize(0..self.senders.len());
        let tag = (rng.u32(0..4) == 0).then(|| format!("s{sender}"));
        let style = TagStyle::ALL[rng.usize(0..TagStyle::ALL.len())];
        let tag = tag.filter(|_| self.options.reads(style));
        let (of_name, of_line) = tag.as_ref().map_or_else(Default::default, |tag| style.texts(tag));
        let count = rng.usize(1..5);
        // Signs and blanks are part of a member.
        let prefixes = ["", "-", "+", "m", "a b "];
        let members: Vec<String> = (0..count)
            .map(|_| format!("{}{}", prefixes[rng.usize(0..prefixes.len())], rng.u32(0..8)))
            .collect();
        let name = format!("s.v{service}.u{user}{of_name}");
        let lines = if !is_of_pod && of_line.is_empty() && rng.bool() {
            vec![format!("{name}:{}|s", members.join("|s:"))]
        } else {
            members.iter().map(|member| format!("{name}:{member}|s{of_line}")).collect()
        };
        let labels = [("service", format!("v{service}")), ("user", format!("u{user}"))];
        let mut labels: Labels =
            labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        labels.extend(tag.map(|tag| ("sender".to_owned(), tag)));
        self.used(Feature::Set);
        self.outcome.lines += lines.len();
        let (reasons, own) = self.send(Some(self.senders[sender]), &lines)?;
        labels.extend(own);
        self.verdict_of_set(labels, members, &reasons).map_err(|why| format!("{lines:?}: {why}"))
    }

    /// Takes the verdict about members into the model.
    fn verdict_of_set(
        &mut self,
        labels: Labels,
        members: Vec<String>,
        reasons: &[&str],
    ) -> Result<(), String> {
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        if !reasons.is_empty() {
            let (series, values) = (self.budget.series_per_metric, self.budget.values_per_label);
            let is_wrong = if self.mode != BudgetMode::Enforce || !reasons.iter().all(is_budget) {
                "a set has no such budget"
            } else if self.sets.known.contains_key(&labels) {
                "although its series exists"
            } else if self.scrapes_each
                && self.has_room_for_samples()
                && self.sets.has_room(&labels, series, values)
            {
                "although there is room"
            } else {
                return Ok(());
            };
            return Err(format!("{labels:?} rejected for {reasons:?}, {is_wrong}"));
        }
        let (now, rule) = (self.now, &self.sets.rule);
        let known = self.sets.known.entry(labels).or_insert_with(|| Known {
            touched: now,
            ttl: rule.ttl,
            window: rule.window.unwrap_or(Window(600, 5)),
            members: BTreeMap::new(),
        });
        known.touched = now;
        known.members.extend(members.into_iter().map(|member| (member, now)));
        Ok(())
    }

    /// Compares the sets of a scrape with the model. None has begun or ended since the last line, apart from those whose time
    /// is over.
    pub(super) fn check_sets(&mut self, samples: &Samples) -> Result<(), String> {
        let shown = samples.iter().filter(|((name, _), _)| name == METRIC);
        let shown: BTreeMap<&Labels, f64> =
            shown.map(|((_, labels), value)| (labels, value.0)).collect();
        if let Some(labels) = shown.keys().find(|labels| !self.sets.known.contains_key(**labels)) {
            return Err(format!("the set {labels:?} was never sent"));
        }
        let (mut ended, mut has_left) = (Vec::new(), false);
        for (labels, known) in &self.sets.known {
            let end = known.touched + known.ttl;
            let [least, most] = known.bounds(self.now);
            has_left |= most < known.members.len();
            let wrong = match shown.get(labels) {
                None if self.may_have_ended(labels, end) => {
                    ended.push(labels.clone());
                    continue;
                }
                None => "missing".to_owned(),
                Some(_) if self.must_have_ended(labels, end) => "still there".to_owned(),
                Some(value) if (least as f64..=most as f64).contains(value) => continue,
                Some(value) => format!("{value}, not {least} to {most}"),
            };
            return Err(format!("a set is {wrong}: {labels:?}, {known:?}, now {:?}", self.now));
        }
        if has_left {
            self.used(Feature::SetWindow);
        }
        for labels in ended {
            self.sets.known.remove(&labels);
        }
        Ok(())
    }
}
