//! Lines of a mapping with random rules: globs of different lengths that hide each other, regular expressions, and rules for one type or
//! that drop lines. The model tries each rule on its own.

use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;

use super::features::Feature;
use super::known_series::KnownSeries;
use super::model::{Labels, Mapping};
use super::{History, helps};
use crate::exposition::budget::BudgetMode;
use crate::exposition::tests::samples::Samples;

/// The beginning of the names of lines.
const LINES: &str = "r";
/// The beginnings of the names of metrics: with a rule, and without one.
pub(super) const PREFIXES: [&str; 2] = ["random_", "r_"];
/// The segments that stand for the type of a line. Regular expressions of other rules are for names with `c.`, `g.` or `t.` anywhere.
const COUNTER: &str = "k";
const GAUGE: &str = "v";
/// The segments of names after that one, and those of rules.
const SEGMENTS: [&str; 3] = ["x", "y", "w"];
const STAR: &str = "*";

/// A rule that is a glob or a regular expression.
#[derive(Debug)]
struct Rule {
    segments: Vec<&'static str>,
    is_regex: bool,
    metric_type: Option<&'static str>,
    drops: bool,
}

impl Rule {
    fn random(rng: &mut Rng) -> Self {
        let first = [COUNTER, GAUGE, STAR][rng.usize(0..3)];
        let others = (0..rng.usize(1..4)).map(|_| match rng.usize(0..5) {
            at @ 0..3 => SEGMENTS[at],
            _ => STAR,
        });
        Self {
            segments: std::iter::once(first).chain(others).collect(),
            is_regex: rng.u32(0..5) == 0,
            metric_type: [None, None, Some("counter"), Some("gauge"), Some("observer")]
                [rng.usize(0..5)],
            drops: rng.u32(0..8) == 0,
        }
    }

    /// Returns true if it matches a name of these segments and type.
    fn matches(&self, segments: &[&str], metric_type: &str) -> bool {
        let mut pairs = self.segments.iter().zip(segments);
        self.segments.len() == segments.len()
            && pairs.all(|(own, other)| *own == STAR || own == other)
            && self.metric_type.is_none_or(|own| own == metric_type)
    }

    /// Returns the labels of a name that it matches.
    fn labels(&self, number: usize, segments: &[&str]) -> Labels {
        let stars = self.segments.iter().zip(segments).filter(|(own, _)| **own == STAR);
        let captures = stars.enumerate();
        let captures = captures.map(|(at, (_, value))| (format!("part{at}"), (*value).to_owned()));
        captures.chain([("rule".to_owned(), number.to_string())]).collect()
    }

    fn yaml(&self, number: usize, ttl: Duration) -> String {
        let stars = self.segments.iter().filter(|own| **own == STAR).count();
        let (pattern, match_type) = match self.is_regex {
            true => {
                let parts = self.segments.iter().map(|own| own.replace(STAR, "([^.]*)"));
                (format!(r"'^{LINES}\.{}$'", parts.collect::<Vec<_>>().join(r"\.")), "regex")
            }
            false => (format!("'{LINES}.{}'", self.segments.join(".")), "glob"),
        };
        let name = match self.segments[0] {
            STAR => "$1",
            first => first,
        };
        let mut yaml = format!(
            "- match: {pattern}\n  match_type: {match_type}\n  name: {}{name}\n  help: {}\n  ttl: {}s\n",
            PREFIXES[0],
            helps::text(PREFIXES[0], number),
            ttl.as_secs()
        );
        if let Some(metric_type) = self.metric_type {
            let _ = writeln!(yaml, "  match_metric_type: {metric_type}");
        }
        if self.drops {
            yaml.push_str("  action: drop\n");
        }
        let _ = write!(yaml, "  labels: {{rule: '{number}'");
        (0..stars).for_each(|at| {
            let _ = write!(yaml, ", part{at}: ${}", at + 1);
        });
        yaml + "}\n"
    }
}

/// The rules of a history and their series.
pub(super) struct RandomRules {
    rng: Rng,
    are_used: bool,
    ttl: Duration,
    by_specificity: bool,
    rules: Vec<Rule>,
    known: KnownSeries,
}

impl RandomRules {
    pub(super) fn new(seed: u64, mapping: &Mapping) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x1f83_d9ab_fb41_bd6b);
        let are_used = rng.u32(0..3) == 0;
        let mut all = Self {
            rng,
            are_used,
            ttl: Duration::ZERO,
            by_specificity: false,
            rules: Vec::new(),
            known: KnownSeries::default(),
        };
        all.reload(mapping);
        all
    }

    pub(super) fn reload(&mut self, mapping: &Mapping) {
        self.ttl = Duration::from_secs(mapping.ttl);
        self.by_specificity = mapping.is_by_specificity();
        let count = if self.are_used { self.rng.usize(1..12) } else { 0 };
        self.rules = (0..count).map(|_| Rule::random(&mut self.rng)).collect();
    }

    /// Returns true if the next line is one of these.
    pub(super) fn are_next(&mut self) -> bool {
        self.are_used && self.rng.u32(0..6) == 0
    }

    pub(super) fn yaml(&self) -> String {
        self.rules.iter().enumerate().map(|(number, rule)| rule.yaml(number, self.ttl)).collect()
    }

    /// Returns the rule of a line: the first glob in the file, or the one that has a literal in the first segment in which they differ. Regular
    /// expressions are for what no glob matches.
    fn rule(&self, segments: &[&str], metric_type: &str) -> Option<(usize, &Rule)> {
        let matching = self.rules.iter().enumerate();
        let matching = matching.filter(|(_, rule)| rule.matches(segments, metric_type));
        matching.min_by_key(|(number, rule)| {
            let stars: Vec<bool> = match self.by_specificity && !rule.is_regex {
                true => rule.segments.iter().map(|own| *own == STAR).collect(),
                false => Vec::new(),
            };
            (rule.is_regex, stars, *number)
        })
    }
}

impl History {
    /// Sends a line of one of these metrics.
    pub(super) fn line_of_random_rules(&mut self) -> Result<(), String> {
        let (mode, rng) = (self.mode, &mut self.random_rules.rng);
        let sender = rng.usize(0..self.senders.len());
        // Counters may be folded, gauges are not.
        let is_gauge = mode == BudgetMode::Enforce || rng.bool();
        let (first, metric_type, suffix) = match is_gauge {
            true => (GAUGE, "gauge", "g"),
            false => (COUNTER, "counter", "c"),
        };
        let others = (0..rng.usize(1..4)).map(|_| SEGMENTS[rng.usize(0..SEGMENTS.len())]);
        let segments: Vec<&str> = std::iter::once(first).chain(others).collect();
        let number = rng.u32(1..9);
        let line = format!("{LINES}.{}:{number}|{suffix}", segments.join("."));
        let rules = &self.random_rules;
        let rule = rules.rule(&segments, metric_type);
        let is_dropped = rule.is_some_and(|(_, rule)| rule.drops);
        let (metric, labels, ttl) = match rule {
            Some((number, rule)) => {
                (format!("{}{first}", PREFIXES[0]), rule.labels(number, &segments), rules.ttl)
            }
            None => {
                let name = format!("{}{}", PREFIXES[1], segments.join("_"));
                (name, Labels::new(), self.options.ttl())
            }
        };
        self.used(Feature::RandomRules);
        self.outcome.lines += 1;
        let (reasons, own) = self.send(Some(self.senders[sender]), std::slice::from_ref(&line))?;
        let key = (metric, labels.into_iter().chain(own).collect());
        if is_dropped {
            return match &reasons[..] {
                [] | ["dropped_by_rule" | "dropped"] => Ok(()),
                other => Err(format!("{line} is dropped by a rule, but has the causes {other:?}")),
            };
        }
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        if !reasons.is_empty() {
            let may_be = mode == BudgetMode::Enforce && reasons.iter().all(is_budget);
            let end = self.random_rules.known.end(&key);
            let may_be_gone = end.is_none_or(|end| self.may_have_ended(&key.1, end));
            return match may_be && may_be_gone {
                true => Ok(()),
                false => Err(format!("{line} is rejected for {reasons:?}: {key:?}")),
            };
        }
        self.random_rules.known.apply(key, (f64::from(number), !is_gauge), (self.now, ttl));
        Ok(())
    }

    /// Compares these metrics of a scrape with the model.
    pub(super) fn check_random_rules(&mut self, samples: &Samples) -> Result<(), String> {
        let ended = self.compare_known(&self.random_rules.known, &PREFIXES, samples)?;
        self.random_rules.known.forget(&ended);
        Ok(())
    }
}
