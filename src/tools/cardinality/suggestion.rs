//! Rules for what explodes: found, tried, and written down with what came of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::captured::Form;
use super::count::{Ledger, Number, hash};
use super::names::{self, NameRule};
use super::placing::Mapping;
use super::session::Session;
use super::steps::{self, Choice};
use super::yaml::{Fragment, comment, step};
use crate::statsd::mapper::{Mapper, MetricType};
use crate::status::words::printable;

/// Values of a label that are looked at, chosen by their hashes.
const SAMPLE: usize = 2_000;
/// Names that are looked at, of each type.
const NAMES: usize = 4_000;
/// Bytes of a value that are looked at.
const VALUE: usize = 512;
/// Labels of metrics that are looked at: those with most values.
const LABELS: usize = 64;
/// Characters of a value that are shown.
const SHOWN: usize = 100;
/// Metrics that are named in one remark.
const NAMED: usize = 5;

/// A number of different texts, the same ones whatever their order.
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

/// Rules for a label of some metrics.
struct Labelled {
    label: String,
    metrics: Vec<String>,
    choice: Choice,
    /// All steps of the label as text: those that the defaults have, and the new ones.
    steps: Vec<String>,
    /// Whether the metrics get rules of their own.
    by_rules: bool,
    /// Other metrics that would have fewer values too.
    beside: Vec<String>,
}

/// Looks for rules. The text is a mapping file.
///
/// # Errors
/// The input cannot be read, or the mapping in use is none.
pub(super) fn run(session: &mut Session, least: usize) -> Result<String, String> {
    let mut mapping = session.before()?;
    let (before, seen) = session.count(&mut mapping)?;
    let found = Finding { session, least, before, seen };
    found.run(mapping)
}

struct Finding<'s> {
    session: &'s mut Session,
    least: usize,
    before: Ledger,
    /// Lines or samples.
    seen: u64,
}

impl Finding<'_> {
    fn run(mut self, mut mapping: Mapping) -> Result<String, String> {
        let mut names = self.names(&mut mapping)?;
        if !names.is_empty() {
            let mut with = self.session.after(&fragment(&names, &[], &self.before).text())?;
            let (ledger, _) = self.session.count(&mut with)?;
            let helps = ledger.names().value * 10 <= self.before.names().value * 9
                && ledger.refused <= self.before.refused;
            if !helps {
                names.clear();
            }
        }
        let mut named = if names.is_empty() {
            mapping
        } else {
            self.session.after(&fragment(&names, &[], &self.before).text())?
        };
        let (middle, _) = self.session.count(&mut named)?;
        let exploding = exploding(&middle, self.least);
        let mut labels = self.labels(&mut named, &exploding)?;
        let text = fragment(&names, &labels, &middle).text();
        let (mut after, _) = self.session.count(&mut self.session.after(&text)?)?;
        let fewer = |after: &Ledger, metric: &str, label: &str| {
            let of =
                |ledger: &Ledger| ledger.metrics.get(metric).map(|metric| metric.values(label));
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
        // Worse than nothing is no rule at all.
        if after.series() > self.before.series() || after.refused > self.before.refused {
            (names, labels) = (Vec::new(), Vec::new());
            (after, _) = self.session.count(&mut self.session.before()?)?;
        }
        self.text(&names, &labels, &middle, &after)
    }

    /// Rules for metrics without one.
    fn names(&mut self, mapping: &mut Mapping) -> Result<Vec<NameRule>, String> {
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
            // Of a sample, as many as would be too many of all.
            let share = NAMES.min(names.len()) as u64 * self.least as u64;
            let least = (share / self.before.names().value.max(1)).max(5).min(self.least as u64);
            let found =
                names::rules(&names, kind, form, least as usize, |name| taken.contains(name));
            taken.extend(found.iter().map(|rule| rule.rule.name.clone()));
            rules.extend(found);
        }
        Ok(rules)
    }

    /// Steps for labels with too many values.
    fn labels(
        &mut self,
        mapping: &mut Mapping,
        exploding: &[(String, String)],
    ) -> Result<Vec<Labelled>, String> {
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

    /// What there is to say, with the rules.
    fn text(
        &mut self,
        names: &[NameRule],
        labels: &[Labelled],
        middle: &Ledger,
        after: &Ledger,
    ) -> Result<String, String> {
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
            head.push(format!("{all}; there is no rule to suggest."));
        } else {
            head.push(format!("{all}; with these rules {}.", after.series().of("series")));
            head.push(
                "To paste into the mapping file: defaults beside its own, rules before its own. \
                 --dry-run shows what comes of a file of rules."
                    .to_owned(),
            );
            if form == Form::Exposition {
                head.push(
                    "The names that clients send are not known here: a metric that a rule of the mapping file leads to \
                     keeps that rule, and takes from these the defaults alone."
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
            head.push(format!("Shares are of at most {SAMPLE} values of each label."));
        }
        for (at, rule) in names.iter().enumerate() {
            let lines = vec![format!(
                "names like {}: {}",
                shown(&rule.shown),
                self.saved(names, at, after)
            )];
            if let Some((_, said)) = fragment.rules.get_mut(at) {
                said.splice(0..0, lines);
            }
        }
        let mut out = String::new();
        for line in &head {
            comment(&mut out, "", line);
        }
        for labelled in labels {
            let lines = said_of_label(labelled, middle, after);
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
        for line in self.without_rule(after)? {
            comment(&mut out, "", &line);
        }
        Ok(out)
    }

    /// What came of a rule for names.
    fn saved(&self, names: &[NameRule], at: usize, after: &Ledger) -> String {
        let of_rule = after.metrics.values().filter(|metric| metric.rule == Some(at)).count();
        let all = (self.before.names(), after.names());
        match names {
            [_] => format!("of {} there are {} left", all.0.of("metrics"), all.1),
            _ if of_rule > 0 => {
                let left = Number { value: of_rule as u64, is_exact: true }.of("metrics");
                format!("become {left}")
            }
            _ => format!("with all rules {} become {}", all.0.of("metrics"), all.1),
        }
    }

    /// What still has many values, and rules that make many metrics.
    fn without_rule(&mut self, after: &Ledger) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        let mapper = Mapper::from_yaml(&self.session.mapping).unwrap_or_default();
        let mut varying: Vec<_> = self.before.by_rule.iter().collect();
        varying.sort_by_key(|(rule, _)| **rule);
        for (index, count) in varying {
            let Some(rule) = mapper.rules().get(*index) else { continue };
            if count.number().value >= self.least as u64 {
                lines.push(format!(
                    "The rule in line {} of the mapping file ({}) leads to {}: its name has a part of the StatsD name. \
                     As a label that part could be normalised.",
                    rule.line,
                    shown(&rule.pattern),
                    count.number().of("metrics")
                ));
            }
        }
        if after.names().value >= self.least as u64 * 10 {
            lines.push(format!(
                "There are {}; a budget holds them all: --limit.series.",
                after.names().of("metrics")
            ));
        }
        for (metric, label) in exploding(after, self.least) {
            let Some(values) = after.metrics.get(&metric).map(|metric| metric.values(&label))
            else {
                continue;
            };
            let rule = after.metrics.get(&metric).and_then(|metric| metric.rule);
            let rule = rule.and_then(|index| mapper.rules().get(index));
            let own = rule.is_some_and(|rule| {
                rule.normalise.steps(&label) != mapper.defaults().normalise.steps(&label)
            });
            let remark = match rule.filter(|_| own) {
                Some(rule) => format!(
                    "the rule in line {} of the mapping file has steps of its own for it, which defaults do not reach",
                    rule.line
                ),
                None => format!(
                    "no rule helps against them. A budget does: --limit.values-per-label, or limits: \
                     {{values_per_label: {}}} in a rule of the metric",
                    self.least
                ),
            };
            lines.push(format!(
                "label {} of {}: {}; {remark}.",
                shown(&label),
                shown(&metric),
                values.of("values")
            ));
        }
        Ok(lines)
    }
}

/// Labels of metrics with at least so many values, those with most first.
fn exploding(ledger: &Ledger, least: usize) -> Vec<(String, String)> {
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

/// The rules without a word about them: those for names, defaults, and those of metrics.
fn fragment(names: &[NameRule], labels: &[Labelled], ledger: &Ledger) -> Fragment {
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

/// What was found of a label, and what the rule makes of it.
fn said_of_label(labelled: &Labelled, middle: &Ledger, after: &Ledger) -> Vec<String> {
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
            "a gauge shows what came last of all that become one: {}",
            gauges.join(", ")
        ));
    }
    if !labelled.beside.is_empty() && !labelled.by_rules {
        let named: Vec<String> =
            labelled.beside.iter().take(NAMED).map(|name| shown(name)).collect();
        let more = labelled.beside.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push(format!(
            "it takes values from other metrics too: {}{more}; a rule with normalise: {{{}: []}} leaves them alone",
            named.join(", "),
            shown(label)
        ));
    }
    lines
}

/// A text of somebody else's in one line, cut.
fn shown(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into_owned(),
    }
}
