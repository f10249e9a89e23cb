//! From a StatsD name to a metric: the mapping file and its rules.
//!
//! A file's text goes in once ([`Mapper::from_yaml`]), a name and its type go in for each new series
//! ([`Mapper::map`]); out come the rule, the final name and the labels of the rule. No I/O, no clock, no knowledge of
//! series: whoever loads files and keeps series calls this module.

mod config;
mod cover;
mod dump;
mod explain;
mod glob;
mod load;
mod pasted;
mod regexes;
mod template;
mod validate;

use std::sync::atomic::{AtomicU64, Ordering};

use regex::bytes::CaptureLocations;

pub use crate::config_file::{Problem, ProblemClass, Severity};
pub use crate::exposition::normalise::{Normaliser, Step};
use crate::statsd::name as names;
pub use config::{
    Action, DEFAULT_HELP, Defaults, HistogramOptions, MatchType, MetricType, ObserverType,
    Quantile, Rule, SummaryOptions,
};
pub use explain::{Precedence, Tried, Verdict};
use glob::{Globs, Search};

use regexes::{Hit, Regexes};
use template::Captures;

/// A loaded mapping. `Default` is what an empty file gives: no rules.
#[derive(Debug)]
pub struct Mapper {
    id: u64,
    defaults: Defaults,
    rules: Vec<Rule>,
    globs: Globs,
    regexes: Regexes,
    warnings: Vec<Problem>,
}

impl Default for Mapper {
    fn default() -> Self {
        Self {
            id: next_id(),
            defaults: Defaults::default(),
            rules: Vec::new(),
            globs: Globs::new(true),
            regexes: Regexes::default(),
            warnings: Vec::new(),
        }
    }
}

/// Tells mappers apart, so that a [`Buffer`] does not use one mapper's capture slots with another.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Scratch space of [`Mapper::map`]; keep one per thread. Serves any mapper.
#[derive(Debug, Default)]
pub struct Buffer {
    text: String,
    ends: Vec<usize>,
    search: Search,
    mapper: u64,
    locations: Vec<Option<CaptureLocations>>,
}

/// A mapped name. Borrows from the mapper and from the buffer given to [`Mapper::map`].
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// The rule that matched, with its options.
    pub rule: &'a Rule,
    /// Final metric name, escaped; empty if the template expanded to nothing (an event error, not a series).
    pub name: &'a str,
    /// The expanded name before escaping.
    pub unescaped_name: &'a str,
    names: &'a [String],
    start: usize,
    ends: &'a [usize],
    text: &'a str,
}

impl<'a> Mapped<'a> {
    /// The rule's labels: names as in the file and sorted bytewise, values expanded.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        let text = self.text;
        let mut start = self.start;
        self.names.iter().zip(self.ends).map(move |(name, &end)| {
            let value = text.get(start..end).unwrap_or_default();
            start = end;
            (name.as_str(), value)
        })
    }
}

impl Mapper {
    /// Loads a mapping file.
    ///
    /// # Errors
    /// Every problem that keeps the file from being used. What statsd_exporter would report comes first.
    pub fn from_yaml(text: &str) -> Result<Self, Vec<Problem>> {
        let validate::Validated { defaults, rules, globs, regexes, warnings } =
            validate::validate(load::load(text))?;
        Ok(Self { id: next_id(), defaults, rules, globs, regexes, warnings })
    }

    /// Looks a StatsD name up (as sent, after name-tag removal, not escaped).
    ///
    /// Glob rules come first; regex rules are only tried when no glob rule matches, whatever the order in the file.
    pub fn map<'a>(
        &'a self,
        name: &str,
        kind: MetricType,
        buffer: &'a mut Buffer,
    ) -> Option<Mapped<'a>> {
        if let Some(index) = self.globs.find(name, kind, &mut buffer.search) {
            let rule = self.rules.get(index as usize)?;
            let Buffer { text, ends, search, .. } = buffer;
            return Some(expand(
                rule,
                &GlobCaptures { name, stars: &rule.templates.stars, search },
                text,
                ends,
            ));
        }
        let hit = self.regexes.find(name, kind)?;
        let rule = self.rules.get(hit.index as usize)?;
        let Buffer { text, ends, mapper, locations, .. } = buffer;
        if !rule.templates.captures {
            return Some(expand(rule, &RegexCaptures { name, locations: None }, text, ends));
        }
        if *mapper != self.id {
            locations.clear();
            *mapper = self.id;
        }
        let locations = self.capture(hit, name, locations);
        Some(expand(rule, &RegexCaptures { name, locations }, text, ends))
    }

    /// Holds every rule against a StatsD name, as [`Mapper::map`] gets it. In the order of the file.
    #[must_use]
    pub fn explain<'a>(&'a self, name: &'a str, kind: MetricType) -> Vec<Tried<'a>> {
        let mut buffer = Buffer::default();
        let decides = self.map(name, kind, &mut buffer).map(|mapped| mapped.rule);
        let is_ordered = !self.defaults.glob_disable_ordering;
        let is_found = |index| self.regexes.is_match(index, name);
        let verdict = |rule| explain::verdict(rule, name, kind, decides, is_ordered, is_found);
        self.rules.iter().map(|rule| Tried { index: rule.index, verdict: verdict(rule) }).collect()
    }

    fn capture<'b>(
        &self,
        hit: Hit,
        name: &str,
        slots: &'b mut Vec<Option<CaptureLocations>>,
    ) -> Option<&'b CaptureLocations> {
        let index = hit.index as usize;
        if slots.len() <= index {
            slots.resize_with(index + 1, || None);
        }
        let slot = slots.get_mut(index)?;
        if slot.is_none() {
            *slot = self.regexes.locations(hit);
        }
        let locations = slot.as_mut()?;
        self.regexes.capture(hit, name, locations);
        Some(locations)
    }

    /// The glob rules as a Graphviz graph, in the format of statsd_exporter's `--debug.dump-fsm`.
    #[must_use]
    pub fn dump_dot(&self) -> String {
        dump::dot(&self.rules)
    }

    /// The section `defaults`, completed; applies to unmapped metrics too.
    #[must_use]
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// All rules in file order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What is allowed but probably not meant.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// How an observer is aggregated that matched `rule` (or none).
    #[must_use]
    pub fn observer_type(&self, rule: Option<&Rule>) -> ObserverType {
        rule.and_then(|rule| rule.observer_type)
            .or(self.defaults.observer_type)
            .unwrap_or(ObserverType::Summary)
    }

    /// The options of a summary that matched `rule` (or none).
    #[must_use]
    pub fn summary_options<'a>(&'a self, rule: Option<&'a Rule>) -> &'a SummaryOptions {
        rule.and_then(|rule| rule.summary_options.as_ref())
            .unwrap_or(&self.defaults.summary_options)
    }

    /// Classic buckets of a histogram that matched `rule` (or none).
    #[must_use]
    pub fn buckets<'a>(&'a self, rule: Option<&'a Rule>) -> &'a [f64] {
        &rule
            .and_then(|rule| rule.histogram_options.as_ref())
            .unwrap_or(&self.defaults.histogram_options)
            .buckets
    }

    /// Growth factor of native buckets for a histogram that matched `rule` (or none); above 0 and up to 1 is "off".
    #[must_use]
    pub fn native_bucket_factor(&self, rule: Option<&Rule>) -> f64 {
        rule.and_then(|rule| rule.histogram_options.as_ref())
            .map(|options| options.native_bucket_factor)
            .filter(|&factor| factor > 0.0)
            .unwrap_or(self.defaults.histogram_options.native_bucket_factor)
    }

    /// Limit of native buckets for a histogram that matched `rule` (or none).
    #[must_use]
    pub fn native_max_buckets(&self, rule: Option<&Rule>) -> u32 {
        rule.and_then(|rule| rule.histogram_options.as_ref())
            .map(|options| options.native_max_buckets)
            .filter(|&limit| limit > 0)
            .unwrap_or(self.defaults.histogram_options.native_max_buckets)
    }
}

struct GlobCaptures<'a> {
    name: &'a str,
    stars: &'a [usize],
    search: &'a Search,
}

impl Captures for GlobCaptures<'_> {
    #[inline]
    fn get(&self, index: usize) -> Option<&str> {
        match index.checked_sub(1) {
            None => Some(self.name),
            Some(star) => self.search.segment(self.name, *self.stars.get(star)?),
        }
    }
}

struct RegexCaptures<'a> {
    name: &'a str,
    locations: Option<&'a CaptureLocations>,
}

impl Captures for RegexCaptures<'_> {
    fn get(&self, index: usize) -> Option<&str> {
        let (start, end) = self.locations?.get(index)?;
        self.name.get(start..end)
    }
}

/// Writes name and label values one behind the other: expanded name, escaped name if that differs, label values.
fn expand<'a>(
    rule: &'a Rule,
    captures: &impl Captures,
    text: &'a mut String,
    ends: &'a mut Vec<usize>,
) -> Mapped<'a> {
    let templates = &rule.templates;
    text.clear();
    ends.clear();
    let literal = templates.plain_name.as_deref();
    let mut name = 0..0;
    let mut escaped = 0..0;
    if literal.is_none() {
        templates.name.expand(captures, text);
        name = 0..text.len();
        escaped = name.clone();
        if !names::is_escaped(text) {
            let unescaped = std::mem::take(text);
            text.reserve(2 * unescaped.len() + 1);
            text.push_str(&unescaped);
            names::escape_into(text, &unescaped);
            escaped = name.end..text.len();
        }
    }
    let start = text.len();
    for value in &templates.label_values {
        value.expand(captures, text);
        ends.push(text.len());
    }
    let text: &'a str = text;
    let part = |range: std::ops::Range<usize>| {
        literal.unwrap_or_else(|| text.get(range).unwrap_or_default())
    };
    Mapped {
        rule,
        name: part(escaped),
        unescaped_name: part(name),
        names: &templates.label_names,
        start,
        ends,
        text,
    }
}

#[cfg(test)]
mod tests;
