//! From the rules of a file to rules that can be used: what each of them must satisfy, and what is probably not meant.

use std::collections::HashSet;

use super::config::{
    DEFAULT_HELP, Defaults, HistogramOptions, MatchType, MetricType, ObserverType, Rule,
    SummaryOptions, Templates,
};
use super::glob::{self, Globs};
use super::load::{At, RawFile, RawRule, Unclear};
use super::regexes::{Pattern, Regexes};
use super::template::Template;
use crate::config_file::{Place, Problem, ProblemClass};
use crate::statsd::name::is_escaped;

/// A file that can be used.
pub(super) struct Validated {
    pub(super) defaults: Defaults,
    pub(super) rules: Vec<Rule>,
    pub(super) globs: Globs,
    pub(super) regexes: Regexes,
    pub(super) warnings: Vec<Problem>,
}

/// Checks all rules.
///
/// # Errors
/// Every problem: first those of the file's shape, then those of rules; within each kind in the order of the file.
pub(super) fn validate(file: RawFile) -> Result<Validated, Vec<Problem>> {
    let RawFile { defaults, unclear, rules: raw, mut errors, warnings } = file;
    let mut builder = Builder {
        globs: Globs::new(!defaults.glob_disable_ordering),
        defaults: complete_defaults(defaults),
        unclear,
        errors: Vec::new(),
        warnings,
    };
    let mut rules = Vec::with_capacity(raw.len());
    let mut places = Vec::with_capacity(raw.len());
    let mut patterns = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        places.push(raw.pattern.as_ref().map_or(raw.place, |pattern| pattern.place));
        if let Some((rule, pattern)) = builder.rule(index, raw) {
            patterns.extend(pattern.map(|pattern| (index as u32, rule.match_metric_type, pattern)));
            rules.push(rule);
        }
    }
    // What is merged into several rules has its problem once.
    let mut seen = HashSet::new();
    let new = |error: &Problem| seen.insert((error.line, error.column, error.message.clone()));
    errors.extend(builder.errors.drain(..).filter(new));
    if !errors.is_empty() {
        return Err(errors);
    }
    let Builder { defaults, globs, mut warnings, .. } = builder;
    shadowed_globs(&globs, &rules, &places, &mut warnings);
    shadowed_regexes(&globs, &patterns, &places, &mut warnings);
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
    /// Of the defaults.
    unclear: Unclear,
    globs: Globs,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Builder {
    fn error(
        &mut self,
        class: ProblemClass,
        place: Place,
        message: String,
        hint: impl Into<String>,
    ) {
        self.errors.push(Problem::error(class, place, message, hint));
    }

    fn warn(&mut self, place: Place, message: String, hint: impl Into<String>) {
        self.warnings.push(Problem::warning(ProblemClass::Suspicious, place, message, hint));
    }

    /// The rule, with its pattern if that is a regular expression; `None` if something was wrong with it.
    fn rule(&mut self, index: usize, raw: RawRule) -> Option<(Rule, Option<Pattern>)> {
        let errors = self.errors.len();
        self.check_labels(&raw);
        self.check_name(&raw);
        let match_type = raw.match_type.unwrap_or(self.defaults.match_type);
        let place = raw.pattern.as_ref().map_or(raw.place, |pattern| pattern.place);
        let text = raw.pattern.as_ref().map(|pattern| pattern.value.as_str()).unwrap_or_default();
        let unclear = raw.unclear.match_type || raw.match_type.is_none() && self.unclear.match_type;
        let pattern = match match_type {
            _ if unclear || raw.unclear.pattern => None,
            MatchType::Glob if raw.pattern.is_none() => {
                self.error(
                    ProblemClass::InvalidGlob,
                    place,
                    "the rule has no match".to_owned(),
                    NO_MATCH_HINT,
                );
                None
            }
            MatchType::Glob => {
                self.check_glob(text, place);
                None
            }
            MatchType::Regex => match Pattern::compile(text) {
                Ok(pattern) => Some(pattern),
                Err(reason) => {
                    let message = format!("invalid regular expression {text:?}: {reason}");
                    self.error(
                        ProblemClass::InvalidRegex,
                        place,
                        message,
                        "the syntax is that of Go's regexp (RE2)",
                    );
                    None
                }
            },
        };
        let observer_type = raw.observer_type.or(self.defaults.observer_type);
        let unclear =
            raw.unclear.observer_type || raw.observer_type.is_none() && self.unclear.observer_type;
        if !unclear {
            self.check_observer(&raw, observer_type);
        }
        if self.errors.len() > errors || raw.unclear.pattern {
            return None;
        }
        let templates = self.templates(&raw, text, pattern.as_ref());
        if match_type == MatchType::Glob {
            self.globs.insert(index as u32, text, raw.match_metric_type);
        }
        let summary_options = self.summary_options(observer_type, raw.summary_options);
        let histogram_options = self.histogram_options(observer_type, raw.histogram_options);
        let rule = Rule {
            index,
            line: place.line,
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
        Some((rule, pattern))
    }

    fn check_labels(&mut self, raw: &RawRule) {
        for (name, _) in &raw.labels {
            let At { value, place } = name;
            if !is_label_name(value) {
                let hint = "a label name consists of a-z, A-Z, 0-9 and _, and has no digit first";
                self.error(
                    ProblemClass::InvalidLabelName,
                    *place,
                    format!("invalid label name {value:?}"),
                    hint,
                );
            } else if value.starts_with("__") {
                let message = format!(
                    "label {value} is reserved for Prometheus itself; events of this rule are refused"
                );
                self.warn(*place, message, "use a name without two leading underscores");
            } else if value == "le" || value == "quantile" {
                let message = format!(
                    "label {value} collides with what histograms or summaries write themselves"
                );
                self.warn(*place, message, "use another name if observers can match this rule");
            }
        }
    }

    fn check_name(&mut self, raw: &RawRule) {
        match raw.name.as_ref().filter(|name| !name.value.is_empty()) {
            None if raw.unclear.name => {}
            None => {
                let hint = "every rule needs one, with action: drop as well";
                self.error(
                    ProblemClass::MissingName,
                    raw.place,
                    "the rule has no name".to_owned(),
                    hint,
                );
            }
            Some(At { value, place }) if !is_metric_template(value) => {
                let hint =
                    "a name has a-z, A-Z, 0-9, _ and references such as ${1}, and no digit first";
                let message = format!("invalid metric name {value:?}");
                self.error(ProblemClass::InvalidMetricName, *place, message, hint);
            }
            Some(_) => {}
        }
    }

    fn check_glob(&mut self, text: &str, place: Place) {
        if is_glob(text) {
            return;
        }
        let hint = if text.is_empty() {
            NO_MATCH_HINT
        } else if text.contains(['\\', '(', '[', '^', '+', '|']) {
            "for a regular expression add match_type: regex"
        } else {
            "a glob is segments between dots: a whole segment may be *, others have letters, digits, _ and -, and the \
             first one starts with a letter or _"
        };
        self.error(ProblemClass::InvalidGlob, place, format!("invalid match {text:?}"), hint);
    }

    fn check_observer(&mut self, raw: &RawRule, observer_type: Option<ObserverType>) {
        let (place, message, hint) =
            match (observer_type, &raw.summary_options, &raw.histogram_options) {
                (Some(ObserverType::Histogram), Some(options), _) => (
                    options.place,
                    "summary_options in a rule that makes histograms",
                    "remove them, or set observer_type: summary",
                ),
                (Some(ObserverType::Summary), _, Some(options)) => (
                    options.place,
                    "histogram_options in a rule that makes summaries",
                    "remove them, or set observer_type: histogram",
                ),
                (None, _, Some(options)) => {
                    let message =
                        "histogram_options have no effect: observers of this rule become summaries"
                            .to_owned();
                    self.warn(options.place, message, "set observer_type: histogram");
                    return;
                }
                _ => return,
            };
        self.error(ProblemClass::ObserverOptionsConflict, place, message.to_owned(), hint);
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
        let mut labels: Vec<(&At<String>, Template, Place)> = raw
            .labels
            .iter()
            .map(|(name, value)| (name, compile(&value.value), value.place))
            .collect();
        labels.sort_by(|(a, _, _), (b, _, _)| a.value.cmp(&b.value));
        let name = raw.name.as_ref().map(|name| compile(&name.value)).unwrap_or_default();
        let name_place = raw.name.as_ref().map_or(raw.place, |name| name.place);
        let with_places = std::iter::once((&name, name_place))
            .chain(labels.iter().map(|(_, template, place)| (template, *place)))
            .collect::<Vec<_>>();
        for (template, place) in with_places {
            for reference in &template.empty_references {
                let message =
                    format!("{reference} is always empty: the rule captures no such thing");
                self.warn(
                    place,
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
        options: Option<At<SummaryOptions>>,
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
        options: Option<At<HistogramOptions>>,
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

/// What to do about a rule without `match`.
const NO_MATCH_HINT: &str = "say what the rule matches, for instance match: \"app.*.requests\"";

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_label_name(name: &str) -> bool {
    match name.as_bytes() {
        [first, rest @ ..] => is_word_start(*first) && rest.iter().copied().all(is_word),
        [] => false,
    }
}

/// `^([a-zA-Z_]|R)([a-zA-Z0-9_]|R)*$` with `R` a `$`, an optional `{`, digits, an optional `}`.
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

/// `^(\*|S1)(\.\*|\.S2)*$`: only the first segment must not start with a digit, none with a dash.
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

/// What to do about a rule that an earlier one keeps from matching.
const MOVE_IT: &str = "remove it, or move it before what wins";

fn shadowed(
    index: usize,
    earlier: &[u32],
    hint: &'static str,
    places: &[Place],
    warnings: &mut Vec<Problem>,
) {
    let Some(&place) = places.get(index) else { return };
    let lines: Vec<String> = earlier
        .iter()
        .filter_map(|&rule| places.get(rule as usize))
        .map(|place| format!("line {}", place.line))
        .collect();
    let message = format!("this rule can never match: {} always wins", lines.join(" and "));
    warnings.push(Problem::warning(ProblemClass::ShadowedRule, place, message, hint));
}

fn shadowed_globs(globs: &Globs, rules: &[Rule], places: &[Place], warnings: &mut Vec<Problem>) {
    for rule in rules.iter().filter(|rule| rule.match_type == MatchType::Glob) {
        if let Some(earlier) =
            globs.covered_by(rule.index as u32, &rule.pattern, rule.match_metric_type)
        {
            shadowed(rule.index, &earlier, MOVE_IT, places, warnings);
        }
    }
}

fn shadowed_regexes(
    globs: &Globs,
    patterns: &[(u32, Option<MetricType>, Pattern)],
    places: &[Place],
    warnings: &mut Vec<Problem>,
) {
    for (position, (index, kind, pattern)) in patterns.iter().enumerate() {
        let glob = pattern.glob.as_deref();
        if let Some(winners) = glob.and_then(|glob| globs.covered_by(u32::MAX, glob, *kind)) {
            let hint = "remove it, or make it a glob: globs win over regular expressions wherever they stand";
            shadowed(*index as usize, &winners, hint, places, warnings);
            continue;
        }
        let before = patterns.get(..position).unwrap_or_default();
        let covering: Vec<&(u32, Option<MetricType>, Pattern)> =
            before.iter().filter(|(_, _, earlier)| earlier.covers(pattern)).collect();
        let winner = |of: MetricType| {
            covering
                .iter()
                .find(|(_, kind, _)| kind.is_none_or(|kind| kind == of))
                .map(|(index, _, _)| *index)
        };
        let types = MetricType::ALL.into_iter().filter(|of| kind.is_none_or(|kind| kind == *of));
        if let Some(mut earlier) = types.map(winner).collect::<Option<Vec<u32>>>() {
            earlier.dedup();
            shadowed(*index as usize, &earlier, MOVE_IT, places, warnings);
        }
    }
}
