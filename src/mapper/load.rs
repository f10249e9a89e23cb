//! Reads a mapping file from its YAML tree: keys, types and enums.
//!
//! Collects all problems of the file's structure. [`super::validate`] checks the rules themselves.

use std::time::Duration;

use crate::config_file::{
    Document, Node, Notation, Problem, ProblemClass, Resolved, Scalar, Value, Values, hint,
    nearest, resolve,
};
use crate::exposition::budget::RuleBudget;
use crate::exposition::normalise::{Normaliser, Step};
use crate::go::strconv;

use super::config::{
    Action, Defaults, HistogramOptions, MatchType, MetricType, ObserverType, Quantile,
    SummaryOptions,
};
use super::raw::{Positioned, RawFile, RawLabel, RawRule};

/// Reads a mapping file.
pub(super) fn load(text: &str) -> RawFile {
    let mut file = RawFile {
        defaults: Defaults {
            summary_options: SummaryOptions::default(),
            histogram_options: HistogramOptions::default(),
            ..Defaults::default()
        },
        ..RawFile::default()
    };
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(problem) => {
            file.errors.push(problem);
            return file;
        }
    };
    let values = Values::new(&document);
    let mut reader = Reader { document: &document, values, warnings: Vec::new() };
    if let Some(root) = document.root() {
        reader.file(root, &mut file);
    }
    file.errors = reader.values.problems;
    file.errors.sort_by_key(|problem| (problem.line, problem.column));
    // A problem in a fragment merged into several rules is reported once.
    file.errors.dedup();
    file.warnings = reader.warnings;
    file
}

/// Obsolete or misspelled keys, with the correction to suggest.
const CORRECTIONS: [(&str, &str); 14] = [
    ("timer_type", "use observer_type"),
    ("buckets", "move it into histogram_options"),
    ("quantiles", "move it into summary_options"),
    ("max_summary_age", "use max_age in summary_options"),
    ("summary_age_buckets", "use age_buckets in summary_options"),
    ("stream_buffer_size", "use buf_cap in summary_options"),
    ("type", "use match_metric_type"),
    ("drop", "use action: drop"),
    ("regex", "use match with match_type: regex"),
    ("scale_factor", "use scale"),
    ("help_text", "use help"),
    ("description", "use help"),
    ("mapping", "use mappings"),
    ("matches", "use match"),
];

struct Reader<'d> {
    document: &'d Document,
    values: Values<'d>,
    warnings: Vec<Problem>,
}

impl<'d> Reader<'d> {
    fn file(&mut self, root: &'d Node, file: &mut RawFile) {
        for (key, value) in self.entries(root, "the file", &["defaults", "mappings"]) {
            match key {
                "defaults" => self.defaults(value, file),
                _ => {
                    for item in self.values.items(value, "mappings").unwrap_or_default() {
                        let rule = self.rule(item);
                        file.rules.push(rule);
                    }
                }
            }
        }
    }

    fn defaults(&mut self, node: &'d Node, file: &mut RawFile) {
        const KEYS: [&str; 7] = [
            "observer_type",
            "match_type",
            "glob_disable_ordering",
            "ttl",
            "summary_options",
            "histogram_options",
            "normalise",
        ];
        let RawFile { defaults, invalid, .. } = file;
        for (key, value) in self.entries(node, "defaults", &KEYS) {
            let errors = self.values.problems.len();
            match key {
                "observer_type" => defaults.observer_type = self.observer_type(value),
                "match_type" => defaults.match_type = self.match_type(value).unwrap_or_default(),
                "glob_disable_ordering" => {
                    defaults.glob_disable_ordering = self.boolean(value, key).unwrap_or_default();
                }
                "ttl" => defaults.ttl = self.duration(value, key),
                "summary_options" => {
                    defaults.summary_options = self.summary_options(value).unwrap_or_default();
                }
                "normalise" => defaults.normalise = self.normaliser(value),
                _ => defaults.histogram_options = self.histogram_options(value).unwrap_or_default(),
            }
            invalid.note(key, self.values.problems.len() > errors);
        }
    }

    fn rule(&mut self, node: &'d Node) -> RawRule {
        const KEYS: [&str; 15] = [
            "match",
            "name",
            "labels",
            "honor_labels",
            "observer_type",
            "match_type",
            "match_metric_type",
            "help",
            "action",
            "ttl",
            "summary_options",
            "histogram_options",
            "scale",
            "limits",
            "normalise",
        ];
        let mut rule = RawRule { position: node.position, ..RawRule::default() };
        for key in self.unknown_keys(node, &KEYS) {
            let meant = match key {
                "regex" | "matches" => Some("match"),
                key => nearest(key, KEYS),
            };
            rule.invalid.note(meant.unwrap_or_default(), true);
        }
        for (key, value) in self.entries(node, "a rule", &KEYS) {
            let errors = self.values.problems.len();
            let own = &mut rule.rule;
            match key {
                "match" => rule.pattern = self.text(value, key).map(at(value)),
                "name" => rule.name = self.text(value, key).map(at(value)),
                "labels" => rule.labels = self.labels(value),
                "honor_labels" => own.honor_labels = self.boolean(value, key).unwrap_or_default(),
                "observer_type" => own.observer_type = self.observer_type(value),
                "match_type" => rule.match_type = self.match_type(value),
                "match_metric_type" => own.match_metric_type = self.metric_type(value),
                "help" => own.help = self.text(value, key).unwrap_or_default(),
                "action" => own.action = self.action(value),
                "ttl" => own.ttl = self.duration(value, key),
                "summary_options" => {
                    rule.summary_options = self.summary_options(value).map(at(value));
                }
                "histogram_options" => {
                    rule.histogram_options = self.histogram_options(value).map(at(value));
                }
                "limits" => own.limits = self.limits(value),
                "normalise" => own.normalise = self.normaliser(value),
                _ => own.scale = self.float(value, key),
            }
            rule.invalid.note(key, self.values.problems.len() > errors);
        }
        // An item that is not a map has been reported already.
        let empty = !matches!(&node.value, Value::Mapping(_)) && !node.is_null();
        rule.invalid.note("match", empty);
        rule.invalid.note("name", empty);
        rule
    }

    fn unknown_keys(&self, node: &'d Node, known: &[&str]) -> Vec<&'d str> {
        let key = |(key, _): (&'d Node, _)| match &key.value {
            Value::Scalar(scalar) => Some(scalar.text.as_str()),
            _ => None,
        };
        let keys = self.document.pairs(node).into_iter().flatten().filter_map(key);
        keys.filter(|key| !known.contains(key)).collect()
    }

    fn labels(&mut self, node: &'d Node) -> Vec<RawLabel> {
        let Some(entries) = self.mapping(node, "labels") else { return Vec::new() };
        let mut labels = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let name = self.text(key, "a label name").unwrap_or_default();
            let text = self.text(value, "a label value").unwrap_or_default();
            labels.push(RawLabel {
                name: Positioned { value: name, position: key.position },
                value: Positioned { value: text, position: value.position },
            });
        }
        labels
    }

    /// Reads the limits of the rule's metric. 0 means no limit.
    fn limits(&mut self, node: &'d Node) -> RuleBudget {
        let mut limits = RuleBudget::default();
        let keys = ["series", "values_per_label", "value_bytes"];
        for (key, value) in self.entries(node, "limits", &keys) {
            let number = self.unsigned(value, key).map(u64::from);
            match key {
                "series" => limits.series = number,
                "values_per_label" => limits.values_per_label = number,
                _ => limits.value_bytes = number,
            }
        }
        limits
    }

    /// Reads the normalisation steps per label.
    fn normaliser(&mut self, node: &'d Node) -> Normaliser {
        let mut normaliser = Normaliser::default();
        for (label, steps) in self.mapping(node, "normalise").unwrap_or_default() {
            let Some(name) = self.text(label, "a label name") else { continue };
            let steps = match &steps.value {
                Value::Sequence(_) => self.values.items(steps, "normalise").unwrap_or_default(),
                _ => vec![steps],
            };
            let steps = steps.into_iter().filter_map(|step| self.step(step)).collect();
            normaliser.set(&name, steps);
        }
        normaliser
    }

    /// Reads a step: a keyword, `truncate: BYTES`, or `regex: PATTERN` with `replacement: TEXT`.
    fn step(&mut self, node: &'d Node) -> Option<Step> {
        if let Value::Mapping(_) = &node.value {
            return self.step_with_options(node);
        }
        if node.is_null() {
            self.values.report_type(node, "a step of normalise", "a keyword, truncate or regex");
            return None;
        }
        let text = self.text(node, "a step of normalise")?;
        if let Some((_, step)) = Step::KEYWORDS.into_iter().find(|(word, _)| *word == text) {
            return Some(step);
        }
        let words = Step::KEYWORDS.map(|(word, _)| word).join(", ");
        let words =
            format!("{words}, {{truncate: BYTES}} or {{regex: PATTERN, replacement: TEXT}}");
        self.word(ProblemClass::InvalidOptions, node, "step of normalise", &text, &[], &words)
    }

    fn step_with_options(&mut self, node: &'d Node) -> Option<Step> {
        let (mut truncate, mut regex, mut replacement) = (None, None, String::new());
        for (key, value) in
            self.entries(node, "a step of normalise", &["truncate", "regex", "replacement"])
        {
            match key {
                "truncate" => {
                    truncate = self.unsigned(value, key);
                    if truncate == Some(0) {
                        self.values.report_type(value, key, "a number of bytes above 0");
                        return None;
                    }
                }
                "regex" => {
                    if value.is_null() {
                        self.values.report_type(value, key, "a regular expression");
                        return None;
                    }
                    let text = self.text(value, key)?;
                    match Step::replace(&text) {
                        Ok(compiled) => regex = Some(compiled),
                        Err(reason) => {
                            let message = format!("invalid regular expression {text:?}: {reason}");
                            let hint = "the syntax is that of Go's regexp (RE2)";
                            let class = ProblemClass::InvalidRegex;
                            self.values.error(class, value.position, message, hint);
                            return None;
                        }
                    }
                }
                _ => replacement = self.text(value, key).unwrap_or_default(),
            }
        }
        match (truncate, regex) {
            (Some(bytes), None) => Some(Step::Truncate(bytes as usize)),
            (None, Some(regex)) => Some(Step::Replace(regex, replacement)),
            _ => {
                self.values.report_type(node, "a step of normalise", "either truncate or regex");
                None
            }
        }
    }

    fn summary_options(&mut self, node: &'d Node) -> Option<SummaryOptions> {
        self.mapping(node, "summary_options")?;
        let mut options = SummaryOptions::default();
        for (key, value) in self.entries(
            node,
            "summary_options",
            &["quantiles", "max_age", "age_buckets", "buf_cap"],
        ) {
            match key {
                "quantiles" => options.quantiles = self.quantiles(value),
                "max_age" => options.max_age = self.duration(value, key),
                "age_buckets" => {
                    options.age_buckets = self.unsigned(value, key).unwrap_or_default()
                }
                _ => options.buf_cap = self.unsigned(value, key).unwrap_or_default(),
            }
        }
        Some(options)
    }

    fn quantiles(&mut self, node: &'d Node) -> Vec<Quantile> {
        let mut quantiles = Vec::new();
        for item in self.values.items(node, "quantiles").unwrap_or_default() {
            let mut quantile = Quantile { quantile: 0.0, error: 0.0 };
            for (key, value) in self.entries(item, "a quantile", &["quantile", "error"]) {
                let number = self.float(value, key).unwrap_or_default();
                match key {
                    "quantile" => quantile.quantile = number,
                    _ => quantile.error = number,
                }
            }
            if (0.0..=1.0).contains(&quantile.quantile) && !quantile.error.is_nan() {
                quantiles.push(quantile);
            } else {
                let message = format!(
                    "quantile {} with error {} is ignored",
                    quantile.quantile, quantile.error
                );
                let hint = "a quantile must be between 0 and 1, for example {quantile: 0.99, error: 0.001}";
                self.warn(ProblemClass::InvalidOptions, item, message, hint);
            }
        }
        quantiles
    }

    fn histogram_options(&mut self, node: &'d Node) -> Option<HistogramOptions> {
        const KEYS: [&str; 3] =
            ["buckets", "native_histogram_bucket_factor", "native_histogram_max_buckets"];
        self.mapping(node, "histogram_options")?;
        let mut options = HistogramOptions::default();
        for (key, value) in self.entries(node, "histogram_options", &KEYS) {
            match key {
                "buckets" => options.buckets = self.buckets(value),
                "native_histogram_bucket_factor" => {
                    options.native_bucket_factor = self.float(value, key).unwrap_or_default();
                }
                _ => options.native_max_buckets = self.unsigned(value, key).unwrap_or_default(),
            }
        }
        Some(options)
    }

    /// Reads upper bounds and sorts them if necessary.
    fn buckets(&mut self, node: &'d Node) -> Vec<f64> {
        let mut buckets = Vec::new();
        for item in self.values.items(node, "buckets").unwrap_or_default() {
            buckets.push(self.float(item, "a bucket").unwrap_or_default());
        }
        // NaN compares false with everything: its bucket stays empty, as in statsd_exporter.
        if buckets.is_sorted_by(|a, b| !(a >= b)) {
            return buckets;
        }
        buckets.retain(|bound| !bound.is_nan());
        buckets.sort_unstable_by(f64::total_cmp);
        buckets.dedup();
        let message = format!("buckets are not strictly increasing; used as {buckets:?}");
        let hint = "list each upper bound once, in ascending order";
        self.warn(ProblemClass::InvalidOptions, node, message, hint);
        buckets
    }

    fn observer_type(&mut self, node: &'d Node) -> Option<ObserverType> {
        const TYPES: [(&str, ObserverType); 3] = [
            ("", ObserverType::Summary),
            ("summary", ObserverType::Summary),
            ("histogram", ObserverType::Histogram),
        ];
        let text = self.text(node, "observer_type")?;
        let class = ProblemClass::InvalidObserverType;
        self.word(class, node, "observer type", &text, &TYPES, "summary or histogram")
    }

    fn match_type(&mut self, node: &'d Node) -> Option<MatchType> {
        const TYPES: [(&str, MatchType); 3] =
            [("", MatchType::Glob), ("glob", MatchType::Glob), ("regex", MatchType::Regex)];
        let text = self.text(node, "match_type")?;
        let class = ProblemClass::InvalidMatchType;
        self.word(class, node, "match type", &text, &TYPES, "glob or regex")
    }

    fn metric_type(&mut self, node: &'d Node) -> Option<MetricType> {
        let text = self.text(node, "match_metric_type")?;
        let words = match text.as_str() {
            "timer" | "histogram" | "distribution" | "summary" => {
                "observer, which covers timers, histograms and distributions"
            }
            _ => "counter, gauge or observer",
        };
        let types = MetricType::ALL.map(|kind| (kind.as_str(), kind));
        let class = ProblemClass::InvalidMetricType;
        self.word(class, node, "metric type", &text, &types, words)
    }

    fn action(&mut self, node: &'d Node) -> Action {
        const ACTIONS: [(&str, Action); 3] =
            [("", Action::Map), ("map", Action::Map), ("drop", Action::Drop)];
        let text = self.text(node, "action").unwrap_or_default();
        let class = ProblemClass::InvalidAction;
        let action = self.word(class, node, "action", &text, &ACTIONS, "map or drop");
        action.unwrap_or(Action::Map)
    }

    /// Returns the value of a word. `words` lists the valid ones.
    fn word<T: Clone>(
        &mut self,
        class: ProblemClass,
        node: &Node,
        what: &str,
        text: &str,
        table: &[(&str, T)],
        words: &str,
    ) -> Option<T> {
        let found = table.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let hint = format!("write {words}, in lower case");
            let message = format!("unknown {what} {text:?}");
            self.values.error(class, node.position, message, hint);
        }
        found.map(|(_, value)| value.clone())
    }

    fn warn(&mut self, class: ProblemClass, node: &Node, message: String, hint: impl Into<String>) {
        self.warnings.push(Problem::warning(class, node.position, message, hint));
    }

    /// Returns the known keys with their values, in file order. Null means no keys. Reports unknown keys.
    fn entries(
        &mut self,
        node: &'d Node,
        what: &str,
        known: &[&'static str],
    ) -> Vec<(&'static str, &'d Node)> {
        let mut result = Vec::new();
        for (key, value) in self.mapping(node, what).unwrap_or_default() {
            let Value::Scalar(Scalar { text, .. }) = &key.value else { continue };
            if let Some(&name) = known.iter().find(|&&name| name == text) {
                result.push((name, value));
                continue;
            }
            let hint = unknown_key_hint(text, known);
            let message = format!("unknown key {text:?} in {what}");
            self.values.error(ProblemClass::UnknownField, key.position, message, hint);
        }
        result
    }

    fn mapping(&mut self, node: &'d Node, what: &str) -> Option<Vec<(&'d Node, &'d Node)>> {
        let pairs = self.document.pairs(node);
        if pairs.is_none() && !node.is_null() {
            self.values.report_type(node, what, "a map of keys and values");
        }
        pairs
    }

    /// Returns the scalar; `None` if it is null or (with an error) not a scalar.
    fn scalar(
        &mut self,
        node: &'d Node,
        what: &str,
        wanted: &str,
    ) -> Option<(&'d Scalar, Resolved)> {
        let Value::Scalar(scalar) = &node.value else {
            self.values.report_type(node, what, wanted);
            return None;
        };
        let resolved =
            if scalar.notation == Notation::Plain { resolve(&scalar.text) } else { Resolved::Text };
        (resolved != Resolved::Null).then_some((scalar, resolved))
    }

    fn text(&mut self, node: &'d Node, what: &str) -> Option<String> {
        let (scalar, _) = self.scalar(node, what, "text")?;
        if let Notation::Tagged(tag) = &scalar.notation
            && tag == "tag:yaml.org,2002:binary"
        {
            self.values.report_type(node, what, "text");
            return None;
        }
        Some(scalar.text.clone())
    }

    fn boolean(&mut self, node: &'d Node, what: &str) -> Option<bool> {
        let precisely = "true or false, without quotes";
        self.read(node, what, "true or false", precisely, |resolved| match resolved {
            Resolved::Bool(value) => Some(value),
            _ => None,
        })
    }

    fn float(&mut self, node: &'d Node, what: &str) -> Option<f64> {
        let precisely = "a number, without quotes";
        self.read(node, what, "a number", precisely, |resolved| match resolved {
            Resolved::Int(value) => Some(value as f64),
            Resolved::Float(value) => Some(value),
            _ => None,
        })
    }

    fn unsigned(&mut self, node: &'d Node, what: &str) -> Option<u32> {
        let precisely = "a whole number from 0 to 4294967295, without quotes";
        self.read(node, what, "a whole number", precisely, |resolved| match resolved {
            Resolved::Int(value) => u32::try_from(value).ok(),
            // Truncates toward zero, as statsd_exporter does.
            Resolved::Float(value) if value > -1.0 && value < 4_294_967_296.0 => Some(value as u32),
            _ => None,
        })
    }

    /// Reads a scalar with `convert`. `precisely` describes what a scalar of another type should be.
    fn read<T>(
        &mut self,
        node: &'d Node,
        what: &str,
        wanted: &str,
        precisely: &str,
        convert: impl FnOnce(Resolved) -> Option<T>,
    ) -> Option<T> {
        let (_, resolved) = self.scalar(node, what, wanted)?;
        let value = convert(resolved);
        if value.is_none() {
            self.values.report_type(node, what, precisely);
        }
        value
    }

    /// Reads a non-negative duration. A number without a unit is in nanoseconds.
    fn duration(&mut self, node: &'d Node, what: &str) -> Duration {
        let Some((scalar, resolved)) = self.scalar(node, what, "a duration such as 30s or 1h20m")
        else {
            return Duration::ZERO;
        };
        let nanoseconds = match resolved {
            Resolved::Int(value) => i64::try_from(value).ok(),
            Resolved::Float(value) if value.abs() < 9_223_372_036_854_775_808.0 => {
                Some(value as i64)
            }
            Resolved::Text => strconv::parse_duration(&scalar.text).ok(),
            _ => None,
        };
        let Some(nanoseconds) = nanoseconds else {
            let wanted = "a duration such as 30s or 1h20m, of at most 292 years";
            self.values.report_type(node, what, wanted);
            return Duration::ZERO;
        };
        if resolved != Resolved::Text && nanoseconds != 0 {
            let message = format!("{what} {} has no unit and means nanoseconds", scalar.text);
            let hint = format!("write {}s if you mean seconds", scalar.text);
            self.warn(ProblemClass::Suspicious, node, message, hint);
        }
        let Ok(nanoseconds) = u64::try_from(nanoseconds) else {
            let message = format!("{what} {} is negative and is ignored", scalar.text);
            let hint = "remove it, or write a positive duration";
            self.warn(ProblemClass::InvalidOptions, node, message, hint);
            return Duration::ZERO;
        };
        Duration::from_nanos(nanoseconds)
    }
}

/// Returns a function that adds the position of a node.
fn at<T>(node: &Node) -> impl FnOnce(T) -> Positioned<T> {
    let position = node.position;
    move |value| Positioned { value, position }
}

fn unknown_key_hint(key: &str, known: &[&'static str]) -> String {
    if let Some((_, correction)) = CORRECTIONS.iter().find(|(old, _)| *old == key)
        && !known.contains(&key)
    {
        return (*correction).to_owned();
    }
    hint(key, known, "known keys are")
}
