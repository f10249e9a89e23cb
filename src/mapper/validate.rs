//! Validates the rules of a mapping file and applies the defaults.

use std::collections::HashSet;

use super::config::{
    DEFAULT_HELP, Defaults, HistogramOptions, MatchType, MetricType, ObserverType, Rule,
    SummaryOptions, Templates,
};
use super::glob::{self, Globs};
use super::raw::{InvalidFields, Positioned, RawFile, RawRule};
use super::regexes::{IndexedPattern, Pattern, Regexes};
use super::template::Template;
use crate::config_file::{Position, Problem, ProblemClass};
use crate::exposition::names;
use crate::mapper::name::is_escaped;

/// A valid mapping.
pub(super) struct Validated {
    pub(super) defaults: Defaults,
    pub(super) rules: Vec<Rule>,
    pub(super) globs: Globs,
    pub(super) regexes: Regexes,
    pub(super) warnings: Vec<Problem>,
}

/// Validates all rules.
///
/// # Errors
/// Returns every problem: first those of the file's structure, then those of rules, each in file order.
pub(super) fn validate(file: RawFile) -> Result<Validated, Vec<Problem>> {
    let RawFile { defaults, invalid, rules: raw, mut errors, warnings } = file;
    let mut builder = Builder {
        globs: Globs::new(!defaults.glob_disable_ordering),
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
    shadowed_globs(&globs, &rules, &positions, &mut warnings);
    shadowed_regexes(&globs, &patterns, &positions, &mut warnings);
    warnings.sort_by_key(|problem| (problem.line, problem.column));
    Ok(Validated { defaults, rules, globs, regexes: Regexes::new(patterns), warnings })
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
            MatchType::Glob if raw.pattern.is_none() => {
                self.error(
                    ProblemClass::InvalidGlob,
                    position,
                    "the rule has no match".to_owned(),
                    NO_MATCH_HINT,
                );
                None
            }
            MatchType::Glob => {
                self.check_glob(text, position);
                None
            }
            MatchType::Regex => match Pattern::compile(text) {
                Ok(pattern) => Some(pattern),
                Err(reason) => {
                    let message = format!("invalid regular expression {text:?}: {reason}");
                    self.error(
                        ProblemClass::InvalidRegex,
                        position,
                        message,
                        "the syntax is that of Go's regexp (RE2)",
                    );
                    None
                }
            },
        };
        let observer_type = raw.observer_type.or(self.defaults.observer_type);
        let invalid =
            raw.invalid.observer_type || raw.observer_type.is_none() && self.invalid.observer_type;
        if !invalid {
            self.check_observer(&raw, observer_type);
        }
        let templates = self.templates(&raw, text, pattern.as_ref());
        if match_type == MatchType::Glob {
            self.globs.insert(index as u32, text, raw.match_metric_type);
        }
        let summary_options = self.summary_options(observer_type, raw.summary_options);
        let histogram_options = self.histogram_options(observer_type, raw.histogram_options);
        let rule = Rule {
            index,
            line: position.line,
            pattern: raw.pattern.map(|pattern| pattern.value).unwrap_or_default(),
            match_type,
            match_metric_type: raw.match_metric_type,
            action: raw.action,
            help: raw
                .help
                .filter(|help| !help.is_empty())
                .unwrap_or_else(|| DEFAULT_HELP.to_owned()),
            ttl: if raw.ttl.is_zero() { self.defaults.ttl } else { raw.ttl },
            scale: raw.scale,
            honor_labels: raw.honor_labels,
            observer_type,
            summary_options,
            histogram_options,
            limits: raw.limits,
            normalise: raw.normalise.or(&self.defaults.normalise),
            templates,
        };
        (rule, pattern)
    }

    fn check_labels(&mut self, raw: &RawRule) {
        for label in &raw.labels {
            let Positioned { value, position } = &label.name;
            if !names::is_label(value.as_bytes()) {
                let hint =
                    "a label name consists of a-z, A-Z, 0-9 and _ and must not start with a digit";
                self.error(
                    ProblemClass::InvalidLabelName,
                    *position,
                    format!("invalid label name {value:?}"),
                    hint,
                );
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
                self.error(
                    ProblemClass::MissingName,
                    raw.position,
                    "the rule has no name".to_owned(),
                    hint,
                );
            }
            Some(Positioned { value, position }) if !is_metric_template(value) => {
                let hint = "a name consists of a-z, A-Z, 0-9, _ and references such as ${1} and must not start with a digit";
                let message = format!("invalid metric name {value:?}");
                self.error(ProblemClass::InvalidMetricName, *position, message, hint);
            }
            Some(_) => {}
        }
    }

    fn check_glob(&mut self, text: &str, position: Position) {
        if is_glob(text) {
            return;
        }
        let hint = if text.is_empty() {
            NO_MATCH_HINT
        } else if text.contains(['\\', '(', '[', '^', '+', '|']) {
            "for a regular expression add match_type: regex"
        } else {
            "a glob consists of segments separated by dots; a segment is * or consists of letters, digits, _ and -, \
             the first one does not start with a digit, and none starts with -"
        };
        self.error(ProblemClass::InvalidGlob, position, format!("invalid match {text:?}"), hint);
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
                self.warn(
                    position,
                    message,
                    "put braces around the number, as in ${1}_x, and count the captures",
                );
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

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns true for `^([a-zA-Z_]|R)([a-zA-Z0-9_]|R)*$`, where `R` is `$`, an optional `{`, digits and an
/// optional `}`.
fn is_metric_template(name: &str) -> bool {
    let mut rest = name.as_bytes();
    if !rest.first().is_some_and(|&first| is_word_start(first) || first == b'$') {
        return false;
    }
    while let [first, after @ ..] = rest {
        if *first != b'$' {
            if !is_word(*first) {
                return false;
            }
            rest = after;
            continue;
        }
        let inner = after.strip_prefix(b"{").unwrap_or(after);
        let digits = inner.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, behind) = inner.split_at(digits);
        if digits.is_empty() {
            return false;
        }
        rest = behind.strip_prefix(b"}").unwrap_or(behind);
    }
    true
}

/// Returns true for `^(\*|S1)(\.\*|\.S2)*$`. The first segment must not start with a digit, and none with a
/// dash.
fn is_glob(text: &str) -> bool {
    let tail = |bytes: &[u8]| bytes.iter().all(|&byte| is_word(byte) || byte == b'-');
    text.split('.').enumerate().all(|(at, segment)| match segment.as_bytes() {
        b"*" => true,
        [first, rest @ ..] => {
            (is_word_start(*first) || (at > 0 && first.is_ascii_digit())) && tail(rest)
        }
        [] => false,
    })
}

/// The hint for a rule shadowed by an earlier one.
const SHADOWED_HINT: &str = "remove it, or move it before the rule that wins";

fn shadowed(
    index: usize,
    earlier: &[u32],
    hint: &'static str,
    positions: &[Position],
    warnings: &mut Vec<Problem>,
) {
    let Some(&position) = positions.get(index) else { return };
    let lines: Vec<String> = earlier
        .iter()
        .filter_map(|&rule| positions.get(rule as usize))
        .map(|position| format!("line {}", position.line))
        .collect();
    let message = format!("this rule can never match: {} always wins", lines.join(" and "));
    warnings.push(Problem::warning(ProblemClass::ShadowedRule, position, message, hint));
}

fn shadowed_globs(
    globs: &Globs,
    rules: &[Rule],
    positions: &[Position],
    warnings: &mut Vec<Problem>,
) {
    for rule in rules.iter().filter(|rule| rule.match_type == MatchType::Glob) {
        if let Some(earlier) =
            globs.covered_by(rule.index as u32, &rule.pattern, rule.match_metric_type)
        {
            shadowed(rule.index, &earlier, SHADOWED_HINT, positions, warnings);
        }
    }
}

fn shadowed_regexes(
    globs: &Globs,
    patterns: &[IndexedPattern],
    positions: &[Position],
    warnings: &mut Vec<Problem>,
) {
    for (position, IndexedPattern { index, kind, pattern }) in patterns.iter().enumerate() {
        let glob = pattern.glob.as_deref();
        if let Some(winners) = glob.and_then(|glob| globs.covered_by(u32::MAX, glob, *kind)) {
            let hint = "remove it, or make it a glob: globs take precedence over regular expressions anywhere in the file";
            shadowed(*index as usize, &winners, hint, positions, warnings);
            continue;
        }
        let before = patterns.get(..position).unwrap_or_default();
        let covering: Vec<&IndexedPattern> =
            before.iter().filter(|earlier| earlier.pattern.covers(pattern)).collect();
        let winner = |of: MetricType| {
            covering
                .iter()
                .find(|rule| rule.kind.is_none_or(|kind| kind == of))
                .map(|rule| rule.index)
        };
        let types = MetricType::ALL.into_iter().filter(|of| kind.is_none_or(|kind| kind == *of));
        if let Some(mut earlier) = types.map(winner).collect::<Option<Vec<u32>>>() {
            earlier.dedup();
            shadowed(*index as usize, &earlier, SHADOWED_HINT, positions, warnings);
        }
    }
}
