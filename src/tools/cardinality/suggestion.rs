//! Finds rules against high cardinality, tries them, and formats them with their measured effect.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::captured::Form;
use super::count::{Number, SeriesCounts, Session, hash};
use super::mapped_sample::Mapping;
use super::names::{self, NameRule};
use super::steps::{self, Choice};
use super::yaml::{self, Fragment, comment, step};
use crate::mapper::{Mapper, MetricType};
use crate::status::words::{printable, some_names, truncated};
use crate::tools::Result;

/// The sample size of label values, chosen by hash.
const SAMPLE: usize = 2_000;
/// The sample size of names, for each type.
const NAMES: usize = 4_000;
/// The maximum bytes of a sampled value.
const VALUE: usize = 512;
/// The maximum number of labels to analyse, those with the most values first.
const LABELS: usize = 64;
/// The maximum characters of a value in the output.
const SHOWN: usize = 100;
/// The maximum number of metrics named in one comment.
const NAMED: usize = 5;

/// A bounded sample of distinct strings that does not depend on their order.
#[derive(Debug, Default)]
struct Sample(BTreeMap<u64, String>);

impl Sample {
    fn note(&mut self, text: &str, most: usize) {
        let hash = hash(text);
        if self.0.len() >= most {
            if self.0.last_key_value().is_none_or(|(last, _)| hash >= *last) {
                return;
            }
            if !self.0.contains_key(&hash) {
                self.0.pop_last();
            }
        }
        let cut = || text.get(..text.floor_char_boundary(VALUE)).unwrap_or_default().to_owned();
        self.0.entry(hash).or_insert_with(cut);
    }
}

/// The rules for a label of some metrics.
struct Labelled {
    label: String,
    metrics: Vec<String>,
    choice: Choice,
    /// All steps of the label as text: those of the defaults, and the new ones.
    steps: Vec<String>,
    /// True if the metrics get rules of their own.
    by_rules: bool,
    /// Other metrics that would have fewer values too.
    beside: Vec<String>,
}

/// Suggests rules and returns them as a mapping file. A rule is worth at least `least` label values or similar names.
///
/// # Errors
/// When the input cannot be read, or the current mapping is invalid.
pub(crate) fn run(session: &mut Session, least: usize) -> Result<String> {
    let mut mapping = session.before()?;
    let (before, seen) = session.count(&mut mapping)?;
    let found = Finding { session, least, before, seen };
    found.run(mapping)
}

struct Finding<'s> {
    session: &'s mut Session,
    least: usize,
    before: SeriesCounts,
    /// The number of lines or samples.
    seen: u64,
}

impl Finding<'_> {
    fn run(mut self, mut mapping: Mapping) -> Result<String> {
        let mut names = self.names(&mut mapping)?;
        let mut named = mapping;
        if !names.is_empty() {
            let mut with = self.session.after(&fragment(&names, &[], &self.before).text())?;
            let (ledger, _) = self.session.count(&mut with)?;
            let helps = ledger.names().value * 10 <= self.before.names().value * 9
                && ledger.refused <= self.before.refused;
            if helps {
                named = with;
            } else {
                names.clear();
            }
        }
        let (middle, _) = self.session.count(&mut named)?;
        let exploding = exploding(&middle, self.least);
        let mut labels = self.labels(&mut named, &exploding)?;
        let text = fragment(&names, &labels, &middle).text();
        let mut with = self.session.after(&text)?;
        let (mut after, _) = self.session.count(&mut with)?;
        // A rule that removes a label from some series would merge them with others.
        let takes = |label: &String| with.emptied.contains(label) && !named.emptied.contains(label);
        labels.retain(|labelled| !takes(&labelled.label));
        let fewer = |after: &SeriesCounts, metric: &str, label: &str| {
            let of = |ledger: &SeriesCounts| {
                ledger.metrics.get(metric).map(|metric| metric.values(label))
            };
            let (was, is) = (of(&middle).unwrap_or_default(), of(after).unwrap_or_default());
            is.value * 10 <= was.value * 9
        };
        for labelled in &mut labels {
            labelled.metrics.retain(|metric| fewer(&after, metric, &labelled.label));
            let beside = middle.metrics.iter().filter(|(name, metric)| {
                !exploding.iter().any(|(known, label)| known == *name && *label == labelled.label)
                    && metric.values(&labelled.label).value > 0
                    && after.metrics.get(*name).is_some_and(|after| {
                        after.values(&labelled.label) < metric.values(&labelled.label)
                    })
            });
            labelled.beside = beside.map(|(name, _)| name.clone()).collect();
            let is_free = |name: &String| {
                middle.metrics.get(name).is_some_and(|metric| metric.rule.is_none())
            };
            labelled.by_rules = !labelled.beside.is_empty() && labelled.metrics.iter().all(is_free);
        }
        labels.retain(|labelled| !labelled.metrics.is_empty());
        let text = fragment(&names, &labels, &middle).text();
        (after, _) = self.session.count(&mut self.session.after(&text)?)?;
        for labelled in labels.iter_mut().filter(|labelled| labelled.by_rules) {
            labelled.metrics.retain(|metric| fewer(&after, metric, &labelled.label));
        }
        labels.retain(|labelled| !labelled.metrics.is_empty());
        // A rule that makes things worse is not suggested.
        if after.series() > self.before.series() || after.refused > self.before.refused {
            (names, labels) = (Vec::new(), Vec::new());
            (after, _) = self.session.count(&mut self.session.before()?)?;
        }
        self.text(&names, &labels, &middle, &after)
    }

    /// Finds rules for unmapped metrics.
    fn names(&mut self, mapping: &mut Mapping) -> Result<Vec<NameRule>> {
        if self.before.names().value < self.least as u64 {
            return Ok(Vec::new());
        }
        let mut samples: BTreeMap<MetricType, Sample> = BTreeMap::new();
        self.session.captured.replay(&mut |seen| {
            mapping.place(seen, &mut |placed| {
                if placed.rule.is_none() {
                    samples.entry(placed.kind).or_default().note(seen.name, NAMES);
                }
            });
        })?;
        let form = self.session.captured.form;
        let mut taken: BTreeSet<String> = self.before.metrics.keys().cloned().collect();
        let mut rules = Vec::new();
        for (kind, Sample(sample)) in samples {
            let names: BTreeSet<String> = sample.into_values().collect();
            // Scale the threshold to the sample.
            let share = NAMES.min(names.len()) as u64 * self.least as u64;
            let least = (share / self.before.names().value.max(1)).max(5).min(self.least as u64);
            let found =
                names::rules(&names, kind, form, least as usize, |name| taken.contains(name));
            taken.extend(found.iter().map(|rule| rule.rule.name.clone()));
            rules.extend(found);
        }
        Ok(rules)
    }

    /// Finds steps for labels with too many values.
    fn labels(
        &mut self,
        mapping: &mut Mapping,
        exploding: &[(String, String)],
    ) -> Result<Vec<Labelled>> {
        let mut samples: HashMap<(&str, &str), Sample> = HashMap::new();
        let mut by_metric: HashMap<&str, Vec<&str>> = HashMap::new();
        for (metric, label) in exploding {
            by_metric.entry(metric).or_default().push(label);
        }
        if exploding.is_empty() {
            return Ok(Vec::new());
        }
        self.session.captured.replay(&mut |seen| {
            mapping.place(seen, &mut |placed| {
                let Some((metric, labels)) = by_metric.get_key_value(placed.metric) else { return };
                for label in labels {
                    let value = placed.labels.iter().find(|(name, _)| name == label);
                    if let Some((_, value)) = value {
                        samples.entry((metric, label)).or_default().note(value, SAMPLE);
                    }
                }
            });
        })?;
        let mut by_label: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (metric, label) in exploding {
            by_label.entry(label).or_default().push(metric);
        }
        let in_use = Mapper::from_yaml(&self.session.mapping).unwrap_or_default();
        let mut found = Vec::new();
        for (label, metrics) in by_label {
            let each = (2 * SAMPLE / metrics.len()).clamp(100, SAMPLE);
            let values: BTreeSet<&String> = metrics
                .iter()
                .filter_map(|metric| samples.get(&(*metric, label)))
                .flat_map(|sample| sample.0.values().take(each))
                .collect();
            let values: Vec<String> = values.into_iter().cloned().collect();
            let Some(choice) = steps::choose(&values) else { continue };
            let known = in_use.defaults().normalise.steps(label).unwrap_or_default();
            let Some(mut steps) = known.iter().map(step).collect::<Option<Vec<String>>>() else {
                continue;
            };
            let new = choice.steps.iter().filter(|step| !steps.contains(step)).cloned();
            let new: Vec<String> = new.collect();
            steps.extend(new);
            found.push(Labelled {
                label: label.to_owned(),
                metrics: metrics.into_iter().map(str::to_owned).collect(),
                choice,
                steps,
                by_rules: false,
                beside: Vec::new(),
            });
        }
        Ok(found)
    }

    /// Formats the rules with comments.
    fn text(
        &mut self,
        names: &[NameRule],
        labels: &[Labelled],
        middle: &SeriesCounts,
        after: &SeriesCounts,
    ) -> Result<String> {
        let mut fragment = fragment(names, labels, middle);
        let mut head = Vec::new();
        let form = self.session.captured.form;
        let source = match form {
            Form::Lines(_) => "lines",
            Form::Exposition => "samples",
        };
        let seen = Number { value: self.seen, is_exact: true }.of(source);
        let metrics = self.before.names().of("metrics");
        let all = format!("{} of {metrics} in {seen}", self.before.series().of("series"));
        if fragment.is_empty() {
            head.push(format!("{all}; no rules to suggest."));
        } else {
            head.push(format!("{all}; with these rules {}.", after.series().of("series")));
            head.push(
                "Paste into the mapping file: merge the defaults, and insert the rules before existing ones. \
                 Use --dry-run to see the effect of a file of rules."
                    .to_owned(),
            );
            if form == Form::Exposition {
                head.push(
                    "The names that clients send are unknown here: a metric produced by an existing rule \
                     keeps that rule, and only the defaults apply to it."
                        .to_owned(),
                );
            }
        }
        if !self.before.series().is_exact || !after.series().is_exact {
            head.push(
                "Numbers with \"about\" are estimates, with a standard error of 1.6%.".to_owned(),
            );
        }
        if !labels.is_empty() {
            head.push(format!("Percentages are based on at most {SAMPLE} values per label."));
        }
        for (at, (rule, (_, said))) in names.iter().zip(&mut fragment.rules).enumerate() {
            let saved = self.saved(names, at, after);
            said.insert(0, format!("names like {}: {saved}", shown(&rule.shown)));
        }
        let mut out = String::new();
        for line in &head {
            comment(&mut out, "", line);
        }
        for labelled in labels {
            let lines = label_remark(labelled, middle, after);
            let entry = fragment.defaults.iter_mut().find(|(label, ..)| *label == labelled.label);
            if let Some((_, _, said)) = entry {
                said.extend(lines);
                continue;
            }
            let of = |rule: &super::yaml::Rule| labelled.metrics.contains(&rule.name);
            let rule = fragment.rules.iter_mut().skip(names.len()).find(|(rule, _)| of(rule));
            if let Some((_, said)) = rule {
                said.extend(lines);
            }
        }
        out.push_str(&fragment.text());
        for line in self.without_rule(after, fragment.rules.len())? {
            comment(&mut out, "", &line);
        }
        Ok(out)
    }

    /// Describes the measured effect of a rule for names.
    fn saved(&self, names: &[NameRule], at: usize, after: &SeriesCounts) -> String {
        let of_rule = after.metrics.values().filter(|metric| metric.rule == Some(at)).count();
        let all = (self.before.names(), after.names());
        match names {
            [_] => format!("{} become {}", all.0.of("metrics"), all.1),
            _ if of_rule > 0 => {
                let left = Number { value: of_rule as u64, is_exact: true }.of("metrics");
                format!("become {left}")
            }
            _ => format!("with all rules {} become {}", all.0.of("metrics"), all.1),
        }
    }

    /// Describes labels that still have many values, and rules with many metrics.
    /// Those of `after` have been mapped by as many suggested rules before those of the file.
    fn without_rule(&mut self, after: &SeriesCounts, suggested: usize) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mapper = Mapper::from_yaml(&self.session.mapping).unwrap_or_default();
        let mut varying: Vec<_> = self.before.by_rule.iter().collect();
        varying.sort_unstable_by_key(|(rule, _)| **rule);
        for (index, count) in varying {
            let Some(rule) = mapper.rules().get(*index) else { continue };
            if count.number().value >= self.least as u64 {
                lines.push(format!(
                    "The rule in line {} of the mapping file ({}) leads to {}: its name contains a part of the StatsD name. \
                     As a label, that part could be normalised.",
                    rule.line,
                    shown(&rule.pattern),
                    count.number().of("metrics")
                ));
            }
        }
        if after.names().value >= self.least as u64 * 10 {
            lines.push(format!(
                "There are {}; the budget for all of them is --limit.series.",
                after.names().of("metrics")
            ));
        }
        for (metric, label) in exploding(after, self.least) {
            let Some(found) = after.metrics.get(&metric) else { continue };
            let rule = found.rule.and_then(|index| index.checked_sub(suggested));
            let rule = rule.and_then(|index| mapper.rules().get(index));
            let own = rule.is_some_and(|rule| {
                rule.normalise.steps(&label) != mapper.defaults().normalise.steps(&label)
            });
            let remark = match rule.filter(|_| own) {
                Some(rule) => format!(
                    "the rule in line {} of the mapping file has its own steps for it, which override the defaults",
                    rule.line
                ),
                None => {
                    let honors = rule.is_some_and(|rule| rule.honor_labels);
                    let without = if honors { ", without honor_labels," } else { "" };
                    format!(
                        "normalisation does not reduce them. To drop the label, replace it in a rule of the metric{without} \
                         with labels: {{{}: all}}. To keep most values, use a budget: --limit.values-per-label, or limits: \
                         {{values_per_label: {}}} in such a rule",
                        yaml::quoted(&label),
                        self.least
                    )
                }
            };
            lines.push(format!(
                "label {} of {}: {}; {remark}.",
                shown(&label),
                shown(&metric),
                found.values(&label).of("values")
            ));
        }
        Ok(lines)
    }
}

/// Returns labels of metrics with at least `least` values, those with the most first.
fn exploding(ledger: &SeriesCounts, least: usize) -> Vec<(String, String)> {
    let mut found: Vec<(u64, &str, &str)> = ledger
        .metrics
        .iter()
        .flat_map(|(name, metric)| {
            metric.labels().map(move |(label, values)| (values.value, name.as_str(), label))
        })
        .filter(|(values, ..)| *values >= least as u64)
        .collect();
    found.sort_by_key(|(values, ..)| std::cmp::Reverse(*values));
    found.truncate(LABELS);
    found.into_iter().map(|(_, metric, label)| (metric.to_owned(), label.to_owned())).collect()
}

/// Returns the rules without comments: rules for names, defaults, and rules for single metrics.
fn fragment(names: &[NameRule], labels: &[Labelled], ledger: &SeriesCounts) -> Fragment {
    let mut fragment = Fragment::default();
    fragment.rules.extend(names.iter().map(|rule| (rule.rule.clone(), Vec::new())));
    let mut of_metrics: BTreeMap<&str, Vec<(String, Vec<String>)>> = BTreeMap::new();
    for labelled in labels {
        if !labelled.by_rules {
            let (label, steps) = (labelled.label.clone(), labelled.steps.clone());
            fragment.defaults.push((label, steps, Vec::new()));
            continue;
        }
        for metric in &labelled.metrics {
            let entry = of_metrics.entry(metric).or_default();
            entry.push((labelled.label.clone(), labelled.steps.clone()));
        }
    }
    for (name, normalise) in of_metrics {
        let Some(metric) = ledger.metrics.get(name) else { continue };
        // In an exposition it is the name of the metric itself.
        let from = Some(metric.from.as_str()).filter(|from| !metric.from_others && *from != name);
        let rule = names::of_metric(name, from, metric.kind, normalise);
        fragment.rules.push((rule, Vec::new()));
    }
    fragment
}

/// Describes the values of a label, and the effect of the rule.
fn label_remark(labelled: &Labelled, middle: &SeriesCounts, after: &SeriesCounts) -> Vec<String> {
    let Labelled { label, metrics, choice, .. } = labelled;
    let mut lines = Vec::new();
    let mut gauges = Vec::new();
    for name in metrics {
        let (Some(was), Some(is)) = (middle.metrics.get(name), after.metrics.get(name)) else {
            continue;
        };
        if was.kind == MetricType::Gauge {
            gauges.push(shown(name));
        }
        let of = if metrics.len() == 1 { "" } else { " of all of them" };
        lines.push(format!(
            "label {} of {}: {}, {:.1}%{of} are {}; with this rule {} and {} instead of {}",
            shown(label),
            shown(name),
            was.values(label).of("values"),
            (1000.0 * choice.share).floor() / 10.0,
            shown(&choice.shown),
            is.values(label).of("values"),
            is.series().of("series"),
            was.series()
        ));
    }
    if !gauges.is_empty() {
        lines.push(format!(
            "gauges that are merged show the last value received: {}",
            gauges.join(", ")
        ));
    }
    if !labelled.beside.is_empty() && !labelled.by_rules {
        let beside = some_names(labelled.beside.iter().map(|name| shown(name)), NAMED);
        lines.push(format!(
            "it also affects other metrics: {beside}; a rule with normalise: {{{}: []}} excludes them",
            shown(label)
        ));
    }
    lines
}

/// Truncates foreign text and escapes it for one line.
fn shown(text: &str) -> String {
    truncated(&printable(text), SHOWN)
}
