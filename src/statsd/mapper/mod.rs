//! From a StatsD name to a metric: the mapping file and its rules.
//!
//! A file's text goes in once ([`Mapper::from_yaml`]), a name and its type go in for each new series
//! ([`Mapper::map`]); out come the rule, the final name and the labels of the rule. No I/O, no clock, no knowledge of
//! series: whoever loads files and keeps series calls this module.

mod config;
mod problem;

pub use config::{
    Action, DEFAULT_HELP, Defaults, HistogramOptions, MatchType, MetricType, ObserverType,
    Quantile, Rule, SummaryOptions,
};
pub use problem::{Problem, ProblemClass, Severity};

/// A loaded mapping. `Default` is what an empty file gives: no rules.
#[derive(Debug, Default)]
pub struct Mapper {
    defaults: Defaults,
    rules: Vec<Rule>,
    warnings: Vec<Problem>,
}

/// Scratch space of [`Mapper::map`]; keep one per thread.
#[derive(Debug, Default)]
pub struct Buffer {
    text: String,
    ends: Vec<usize>,
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
    ends: &'a [usize],
    text: &'a str,
}

impl<'a> Mapped<'a> {
    /// The rule's labels: names as in the file and sorted bytewise, values expanded.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        let text = self.text;
        let mut start = 0;
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
    /// Every problem that keeps the file from being used, in the order of the file.
    pub fn from_yaml(text: &str) -> Result<Self, Vec<Problem>> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Err(Vec::new())
    }

    /// Looks a StatsD name up (as sent, after name-tag removal, not escaped).
    pub fn map<'a>(
        &'a self,
        _name: &str,
        _kind: MetricType,
        buffer: &'a mut Buffer,
    ) -> Option<Mapped<'a>> {
        buffer.text.clear();
        buffer.ends.clear();
        None
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
