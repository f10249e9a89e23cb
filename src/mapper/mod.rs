//! Maps StatsD names to metrics according to the mapping file.
//!
//! [`Mapper::from_yaml`] loads the text of a mapping file. [`Mapper::map`] returns the rule, the metric name
//! and the labels for a name and a type. The mapper performs no I/O and does not know series.

mod combined;
mod config;
mod coverage;
mod dump;
mod glob;
mod load;
pub(crate) mod name;
mod raw;
mod regexes;
mod template;
mod validate;
mod verdict;

use std::sync::atomic::{AtomicU64, Ordering};

use regex::bytes::CaptureLocations;

pub use crate::config_file::{Problem, ProblemClass, Severity};
pub use crate::exposition::normalise::{Normaliser, Step};
pub use config::{
    Action, DEFAULT_HELP, Defaults, HistogramOptions, MatchType, MetricType, ObserverType,
    Quantile, Rule, SummaryOptions,
};
use glob::{Globs, Search};
use name as names;
pub use verdict::{Precedence, RuleResult, Verdict};

use regexes::{RegexRule, Regexes};
use template::Captures;

/// A loaded mapping. `Default` is an empty file: no rules.
#[derive(Debug, Default)]
pub struct Mapper {
    id: MapperId,
    defaults: Defaults,
    rules: Vec<Rule>,
    globs: Globs,
    regexes: Regexes,
    warnings: Vec<Problem>,
}

/// A unique number, so that a [`Buffer`] does not use the capture slots of one mapper with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MapperId(u64);

impl Default for MapperId {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Scratch space for [`Mapper::map`]. Keep one per thread; it works with any mapper.
#[derive(Debug, Default)]
pub struct Buffer {
    text: String,
    ends: Vec<usize>,
    search: Search,
    mapper: MapperId,
    locations: Vec<Option<CaptureLocations>>,
}

/// A mapped name. Borrows from the mapper and from the buffer passed to [`Mapper::map`].
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// The matching rule with its options.
    pub rule: &'a Rule,
    /// The escaped metric name. Empty if the template expands to nothing, which is an event error.
    pub name: &'a str,
    /// The expanded name before escaping.
    pub unescaped_name: &'a str,
    names: &'a [String],
    start: usize,
    ends: &'a [usize],
    text: &'a str,
}

impl<'a> Mapped<'a> {
    /// Returns the labels of the rule: names as in the file, sorted bytewise, and expanded values.
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
    /// Maps a StatsD name as sent: after the removal of name tags, not escaped.
    ///
    /// Glob rules come first. Regex rules are tried only if no glob rule matches, regardless of the order in
    /// the file.
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
        let locations = capture(hit, name, locations);
        Some(expand(rule, &RegexCaptures { name, locations }, text, ends))
    }

    /// Returns the result of every rule for a StatsD name, in file order.
    pub fn explain<'a>(&'a self, name: &'a str, kind: MetricType) -> Vec<RuleResult<'a>> {
        let mut buffer = Buffer::default();
        let decides = self.map(name, kind, &mut buffer).map(|mapped| mapped.rule);
        let is_ordered = !self.defaults.glob_disable_ordering;
        let is_found = |index| self.regexes.is_match(index, name);
        let verdict = |rule| verdict::verdict(rule, name, kind, decides, is_ordered, is_found);
        self.rules
            .iter()
            .map(|rule| RuleResult { index: rule.index, verdict: verdict(rule) })
            .collect()
    }

    /// Returns the glob rules as a Graphviz graph, in the format of statsd_exporter's `--debug.dump-fsm`.
    pub fn dump_dot(&self) -> String {
        dump::dot(&self.rules)
    }

    /// Returns the section `defaults` with standard values filled in. It also applies to unmapped metrics.
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Returns all rules in file order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns warnings about valid but suspicious parts of the file.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Returns the aggregation of an observer mapped by `rule`, if any.
    pub fn observer_type(&self, rule: Option<&Rule>) -> ObserverType {
        rule.and_then(|rule| rule.observer_type)
            .or(self.defaults.observer_type)
            .unwrap_or(ObserverType::Summary)
    }

    /// Returns the options of a summary mapped by `rule`, if any.
    pub fn summary_options<'a>(&'a self, rule: Option<&'a Rule>) -> &'a SummaryOptions {
        rule.and_then(|rule| rule.summary_options.as_ref())
            .unwrap_or(&self.defaults.summary_options)
    }

    /// Returns the classic buckets of a histogram mapped by `rule`, if any.
    pub fn buckets<'a>(&'a self, rule: Option<&'a Rule>) -> &'a [f64] {
        &rule
            .and_then(|rule| rule.histogram_options.as_ref())
            .unwrap_or(&self.defaults.histogram_options)
            .buckets
    }

    /// Returns the growth factor of native buckets for a histogram mapped by `rule`, if any. Above 0 and up
    /// to 1 disables them.
    pub fn native_bucket_factor(&self, rule: Option<&Rule>) -> f64 {
        rule.and_then(|rule| rule.histogram_options.as_ref())
            .map(|options| options.native_bucket_factor)
            .filter(|&factor| factor > 0.0)
            .unwrap_or(self.defaults.histogram_options.native_bucket_factor)
    }

    /// Returns the maximum number of native buckets for a histogram mapped by `rule`, if any.
    pub fn native_max_buckets(&self, rule: Option<&Rule>) -> u32 {
        rule.and_then(|rule| rule.histogram_options.as_ref())
            .map(|options| options.native_max_buckets)
            .filter(|&limit| limit > 0)
            .unwrap_or(self.defaults.histogram_options.native_max_buckets)
    }
}

/// Reads the captures of a rule into its slot.
fn capture<'b>(
    RegexRule { index, regex, .. }: &RegexRule,
    name: &str,
    slots: &'b mut Vec<Option<CaptureLocations>>,
) -> Option<&'b CaptureLocations> {
    let index = *index as usize;
    if slots.len() <= index {
        slots.resize_with(index + 1, || None);
    }
    let locations = slots.get_mut(index)?.get_or_insert_with(|| regex.capture_locations());
    regex.captures_read(locations, name.as_bytes());
    Some(locations)
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

/// Expands the templates into `text`: the name, the escaped name if different, and the label values.
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
            let unescaped = text.clone();
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
