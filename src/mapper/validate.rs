//! Validates the rules of a mapping file and applies the defaults.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

use super::config::{
    DEFAULT_HELP, Defaults, HistogramOptions, MatchType, MetricType, ObserverType, Rule,
    SummaryOptions, Templates,
};
use super::glob::{self, Globs};
use super::raw::{InvalidFields, Positioned, RawFile, RawRule};
use super::regexes::{IndexedPattern, Pattern, Regexes};
use super::template::Template;
use super::{Mapper, MapperId, load};
use crate::config_file::{Position, Problem, ProblemClass};
use crate::exposition::names;
use crate::go::regex::PatternError;
use crate::mapper::name::is_escaped;

impl Mapper {
    /// Loads a mapping file.
    ///
    /// # Errors
    /// Returns every problem that makes the file unusable. The problem that statsd_exporter would report
    /// comes first.
    pub fn from_yaml(text: &str) -> Result<Self, Vec<Problem>> {
        Self::new(load::load(text))
    }

    /// Validates all rules.
    ///
    /// # Errors
    /// Returns every problem: first those of the file's structure, then those of rules, each in file order.
    pub(super) fn new(file: RawFile) -> Result<Self, Vec<Problem>> {
        let RawFile { defaults, invalid, rules: raw, mut errors, warnings } = file;
        let mut builder = Builder {
            globs: Globs::new(defaults.glob_disable_ordering),
            defaults: complete_defaults(defaults),
            invalid,
            errors: Vec::new(),
            warnings,
        };
        let mut rules = Vec::with_capacity(raw.len());
        let mut positions = Vec::with_capacity(raw.len());
        let mut patterns = Vec::new();
        for (index, raw) in raw.into_iter().enumerate() {
            positions.push(raw.pattern.as_ref().map_or(raw.position, |pattern| pattern.position));
            let (rule, pattern) = builder.rule(index, raw);
            let kind = rule.match_metric_type;
            let index = index as u32;
            patterns.extend(pattern.map(|pattern| IndexedPattern { index, kind, pattern }));
            rules.push(rule);
        }
        // A problem in a fragment merged into several rules is reported once.
        let mut seen = HashSet::new();
        let new = |error: &Problem| seen.insert((error.line, error.column, error.message.clone()));
        errors.extend(builder.errors.drain(..).filter(new));
        if !errors.is_empty() {
            return Err(errors);
        }
        let Builder { defaults, globs, mut warnings, .. } = builder;
        let shadowed = shadowed_globs(&globs, &rules).chain(shadowed_regexes(&globs, &patterns));
        warnings.extend(shadowed.filter_map(|rule| rule.warning(&positions)));
        warnings.sort_by_key(|problem| (problem.line, problem.column));
        let (id, regexes) = (MapperId::default(), Regexes::new(patterns));
        Ok(Self { id, defaults, rules, globs, regexes, warnings })
    }
}

fn complete_defaults(mut defaults: Defaults) -> Defaults {
    let standard = Defaults::default();
    if defaults.summary_options.quantiles.is_empty() {
        defaults.summary_options.quantiles = standard.summary_options.quantiles;
    }
    let histogram = &mut defaults.histogram_options;
    if histogram.buckets.is_empty() {
        histogram.buckets = standard.histogram_options.buckets;
    }
    if histogram.native_bucket_factor == 0.0 {
        histogram.native_bucket_factor = standard.histogram_options.native_bucket_factor;
    }
    if histogram.native_max_buckets == 0 {
        histogram.native_max_buckets = standard.histogram_options.native_max_buckets;
    }
    defaults
}

struct Builder {
    defaults: Defaults,
    /// The invalid fields of `defaults`.
    invalid: InvalidFields,
    globs: Globs,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Builder {
    fn error(
        &mut self,
        class: ProblemClass,
        position: Position,
        message: String,
        hint: impl Into<String>,
    ) {
        self.errors.push(Problem::error(class, position, message, hint));
    }

    fn warn(&mut self, position: Position, message: String, hint: impl Into<String>) {
        self.warnings.push(Problem::warning(ProblemClass::Suspicious, position, message, hint));
    }

    /// Validates a rule and returns it, with its pattern if it is a valid regex rule.
    fn rule(&mut self, index: usize, raw: RawRule) -> (Rule, Option<Pattern>) {
        self.check_labels(&raw);
        self.check_name(&raw);
        let match_type = raw.match_type.unwrap_or(self.defaults.match_type);
        let position = raw.pattern.as_ref().map_or(raw.position, |pattern| pattern.position);
        let text = raw.pattern.as_ref().map(|pattern| pattern.value.as_str()).unwrap_or_default();
        let invalid = raw.invalid.match_type || raw.match_type.is_none() && self.invalid.match_type;
        let pattern = match match_type {
            _ if invalid || raw.invalid.pattern => None,
            MatchType::Glob => {
                self.check_glob(raw.pattern.as_ref().map(|_| text), position);
                None
            }
            MatchType::Regex => {
                let report = |reason: &PatternError| {
                    let message = format!("invalid regular expression {text:?}: {reason}");
                    let hint = "the syntax is that of Go's regexp (RE2)";
                    self.error(ProblemClass::InvalidRegex, position, message, hint);
                };
                Pattern::compile(text).inspect_err(report).ok()
            }
        };
        let own = raw.rule.observer_type;
        let observer_type = own.or(self.defaults.observer_type);
        let invalid = raw.invalid.observer_type || own.is_none() && self.invalid.observer_type;
        if !invalid {
            self.check_observer(&raw, observer_type);
        }
        let templates = self.templates(&raw, text, pattern.as_ref());
        if match_type == MatchType::Glob {
            self.globs.insert(index as u32, text, raw.rule.match_metric_type);
        }
        let summary_options = self.summary_options(observer_type, raw.summary_options);
        let histogram_options = self.histogram_options(observer_type, raw.histogram_options);
        let own = raw.rule;
        let rule = Rule {
            index,
            line: position.line,
            pattern: raw.pattern.map(|pattern| pattern.value).unwrap_or_default(),
            match_type,
            help: if own.help.is_empty() { DEFAULT_HELP.to_owned() } else { own.help },
            ttl: if own.ttl.is_zero() { self.defaults.ttl } else { own.ttl },
            observer_type,
            summary_options,
            histogram_options,
            normalise: own.normalise.or(&self.defaults.normalise),
            templates,
            ..own
        };
        (rule, pattern)
    }

    fn check_labels(&mut self, raw: &RawRule) {
        for label in &raw.labels {
            let Positioned { value, position } = &label.name;
            if !names::is_label(value.as_bytes()) {
                let hint =
                    "a label name consists of a-z, A-Z, 0-9 and _ and must not start with a digit";
                let message = format!("invalid label name {value:?}");
                self.error(ProblemClass::InvalidLabelName, *position, message, hint);
            } else if value.starts_with("__") {
                let message = format!(
                    "label {value} is reserved by Prometheus; events of this rule are rejected"
                );
                self.warn(*position, message, "use a name without two leading underscores");
            } else if value == "le" || value == "quantile" {
                let message = format!(
                    "label {value} conflicts with the labels that histograms or summaries set"
                );
                self.warn(*position, message, "use another name if observers can match this rule");
            }
        }
    }

    fn check_name(&mut self, raw: &RawRule) {
        match raw.name.as_ref().filter(|name| !name.value.is_empty()) {
            None if raw.invalid.name => {}
            None => {
                let hint = "every rule needs one, even with action: drop";
                let message = "the rule has no name".to_owned();
                self.error(ProblemClass::MissingName, raw.position, message, hint);
            }
            Some(Positioned { value, position }) if !is_match(&METRIC_TEMPLATE, value) => {
                let hint = "a name consists of a-z, A-Z, 0-9, _ and references such as ${1} and must not start with a digit";
                let message = format!("invalid metric name {value:?}");
                self.error(ProblemClass::InvalidMetricName, *position, message, hint);
            }
            Some(_) => {}
        }
    }

    fn check_glob(&mut self, pattern: Option<&str>, position: Position) {
        let text = pattern.unwrap_or_default();
        if is_match(&GLOB, text) {
            return;
        }
        let message = match pattern {
            Some(text) => format!("invalid match {text:?}"),
            None => "the rule has no match".to_owned(),
        };
        let hint = if text.is_empty() {
            NO_MATCH_HINT
        } else if text.contains(['\\', '(', '[', '^', '+', '|']) {
            "for a regular expression add match_type: regex"
        } else {
            "a glob consists of segments separated by dots; a segment is * or consists of letters, digits, _ and -, \
             the first one does not start with a digit, and none starts with -"
        };
        self.error(ProblemClass::InvalidGlob, position, message, hint);
    }

    fn check_observer(&mut self, raw: &RawRule, observer_type: Option<ObserverType>) {
        let (position, message, hint) =
            match (observer_type, &raw.summary_options, &raw.histogram_options) {
                (Some(ObserverType::Histogram), Some(options), _) => (
                    options.position,
                    "summary_options in a rule for histograms",
                    "remove them, or set observer_type: summary",
                ),
                (Some(ObserverType::Summary), _, Some(options)) => (
                    options.position,
                    "histogram_options in a rule for summaries",
                    "remove them, or set observer_type: histogram",
                ),
                (None, _, Some(options)) => {
                    let message =
                        "histogram_options have no effect: observers of this rule become summaries"
                            .to_owned();
                    self.warn(options.position, message, "set observer_type: histogram");
                    return;
                }
                _ => return,
            };
        self.error(ProblemClass::ObserverOptionsConflict, position, message.to_owned(), hint);
    }

    fn templates(
        &mut self,
        raw: &RawRule,
        match_text: &str,
        pattern: Option<&Pattern>,
    ) -> Templates {
        let stars = if pattern.is_some() { Vec::new() } else { glob::stars(match_text) };
        let compile = |text: &str| match pattern {
            Some(pattern) => Template::regex(text, &pattern.groups),
            None => Template::glob(text, stars.len()),
        };
        let mut labels: Vec<(&Positioned<String>, Template, Position)> = raw
            .labels
            .iter()
            .map(|label| (&label.name, compile(&label.value.value), label.value.position))
            .collect();
        labels.sort_by(|(a, _, _), (b, _, _)| a.value.cmp(&b.value));
        let name = raw.name.as_ref().map(|name| compile(&name.value)).unwrap_or_default();
        let name_place = raw.name.as_ref().map_or(raw.position, |name| name.position);
        let with_places = std::iter::once((&name, name_place))
            .chain(labels.iter().map(|(_, template, position)| (template, *position)))
            .collect::<Vec<_>>();
        for (template, position) in with_places {
            for reference in &template.empty_references {
                let message = format!("{reference} is always empty: the rule has no such capture");
                let hint = "put braces around the number, as in ${1}_x, and count the captures";
                self.warn(position, message, hint);
            }
        }
        let captures = name.has_references()
            || labels.iter().any(|(_, template, _)| template.has_references());
        let (label_names, label_values) =
            labels.into_iter().map(|(name, template, _)| (name.value.clone(), template)).unzip();
        let plain_name = name.as_literal().filter(|name| is_escaped(name)).map(str::to_owned);
        Templates { name, plain_name, stars, captures, label_names, label_values }
    }

    fn summary_options(
        &self,
        observer_type: Option<ObserverType>,
        options: Option<Positioned<SummaryOptions>>,
    ) -> Option<SummaryOptions> {
        let options = options.map(|options| options.value);
        let defaults = &self.defaults.summary_options;
        let mut options = match observer_type {
            Some(ObserverType::Histogram) => return options,
            Some(ObserverType::Summary) => {
                let mut options = options.unwrap_or_default();
                if options.max_age.is_zero() {
                    options.max_age = defaults.max_age;
                }
                if options.age_buckets == 0 {
                    options.age_buckets = defaults.age_buckets;
                }
                if options.buf_cap == 0 {
                    options.buf_cap = defaults.buf_cap;
                }
                options
            }
            None => options?,
        };
        if options.quantiles.is_empty() {
            options.quantiles.clone_from(&defaults.quantiles);
        }
        Some(options)
    }

    fn histogram_options(
        &self,
        observer_type: Option<ObserverType>,
        options: Option<Positioned<HistogramOptions>>,
    ) -> Option<HistogramOptions> {
        let options = options.map(|options| options.value);
        if observer_type != Some(ObserverType::Histogram) {
            return options;
        }
        let mut options = options.unwrap_or_default();
        if options.buckets.is_empty() {
            options.buckets.clone_from(&self.defaults.histogram_options.buckets);
        }
        Some(options)
    }
}

/// The hint for a rule without `match`.
const NO_MATCH_HINT: &str = "add a pattern, for example match: \"app.*.requests\"";

/// Letters, digits, underscores and references: `$`, an optional `{`, digits and an optional `}`.
static METRIC_TEMPLATE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:[a-zA-Z_]|\$\{?[0-9]+\}?)(?:[a-zA-Z0-9_]|\$\{?[0-9]+\}?)*$").ok()
});

/// Segments that are `*`, or consist of letters, digits, underscores and dashes. The first must not start with a digit, and
/// none with a dash.
static GLOB: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:\*|[a-zA-Z_][a-zA-Z0-9_-]*)(?:\.(?:\*|[a-zA-Z0-9_][a-zA-Z0-9_-]*))*$").ok()
});

fn is_match(regex: &LazyLock<Option<Regex>>, text: &str) -> bool {
    regex.as_ref().is_some_and(|valid| valid.is_match(text))
}

/// The hint for a rule shadowed by an earlier one.
const SHADOWED_HINT: &str = "remove it, or move it before the rule that wins";

/// A rule that can never match.
struct ShadowedRule {
    index: u32,
    /// The rules that always win instead.
    winners: Vec<u32>,
    hint: &'static str,
}

impl ShadowedRule {
    fn warning(&self, positions: &[Position]) -> Option<Problem> {
        let winners = self.winners.iter().filter_map(|&rule| positions.get(rule as usize));
        let lines: Vec<String> =
            winners.map(|position| format!("line {}", position.line)).collect();
        let message = format!("this rule can never match: {} always wins", lines.join(" and "));
        let position = *positions.get(self.index as usize)?;
        Some(Problem::warning(ProblemClass::ShadowedRule, position, message, self.hint))
    }
}

fn shadowed_globs(globs: &Globs, rules: &[Rule]) -> impl Iterator<Item = ShadowedRule> {
    let rules = rules.iter().filter(|rule| rule.match_type == MatchType::Glob);
    rules.filter_map(|rule| {
        let index = rule.index as u32;
        let winners = globs.covered_by(index, &rule.pattern, rule.match_metric_type)?;
        Some(ShadowedRule { index, winners, hint: SHADOWED_HINT })
    })
}

fn shadowed_regexes(
    globs: &Globs,
    patterns: &[IndexedPattern],
) -> impl Iterator<Item = ShadowedRule> {
    patterns.iter().enumerate().filter_map(|(position, &IndexedPattern { index, kind, ref pattern })| {
        let glob = pattern.glob.as_deref();
        if let Some(winners) = glob.and_then(|glob| globs.covered_by(u32::MAX, glob, kind)) {
            let hint = "remove it, or make it a glob: globs take precedence over regular expressions anywhere in the file";
            return Some(ShadowedRule { index, winners, hint });
        }
        let before = patterns.get(..position).unwrap_or_default();
        let covering: Vec<&IndexedPattern> =
            before.iter().filter(|earlier| earlier.pattern.covers(pattern)).collect();
        let winner = |of: MetricType| {
            let winner = covering.iter().find(|rule| rule.kind.is_none_or(|kind| kind == of));
            winner.map(|rule| rule.index)
        };
        let types = MetricType::ALL.into_iter().filter(|of| kind.is_none_or(|kind| kind == *of));
        let mut winners = types.map(winner).collect::<Option<Vec<u32>>>()?;
        winners.dedup();
        Some(ShadowedRule { index, winners, hint: SHADOWED_HINT })
    })
}
