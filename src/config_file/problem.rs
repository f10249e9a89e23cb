//! Problems found in a configuration file: class, position, message and hint.

use crate::util::words::words;
use std::fmt;

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is rejected.
    Error,
    /// The file is usable, but probably not as intended.
    Warning,
}

words! {
    /// The kind of a problem.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ProblemClass {
        /// The text is not valid YAML.
        YamlSyntax = "yaml_syntax",
        /// A value has the wrong type.
        YamlType = "yaml_type",
        /// A key is unknown.
        UnknownField = "unknown_field",
        /// A key occurs twice.
        DuplicateKey = "duplicate_key",
        /// Prometheus does not accept the label name.
        InvalidLabelName = "invalid_label_name",
        /// A rule has no `name`.
        MissingName = "missing_name",
        /// A `name` cannot become a metric name.
        InvalidMetricName = "invalid_metric_name",
        /// A glob consists of more than segments and stars.
        InvalidGlob = "invalid_glob",
        /// A regular expression does not compile.
        InvalidRegex = "invalid_regex",
        /// An action is neither `map` nor `drop`.
        InvalidAction = "invalid_action",
        /// A match type is neither `glob` nor `regex`.
        InvalidMatchType = "invalid_match_type",
        /// An observer type is neither `summary` nor `histogram`.
        InvalidObserverType = "invalid_observer_type",
        /// A metric type is not `counter`, `gauge` or `observer`.
        InvalidMetricType = "invalid_metric_type",
        /// A rule has options of the other observer type.
        ObserverOptionsConflict = "observer_options_conflict",
        /// No summary or histogram can use the options (bucket order, quantile range, negative duration).
        InvalidOptions = "invalid_options",
        /// A resource does not exist.
        UnknownResource = "unknown_resource",
        /// A pattern of metric names is invalid.
        InvalidPattern = "invalid_pattern",
        /// A label key has more than one `*`.
        SeveralWildcards = "several_wildcards",
        /// Two values exclude each other.
        Contradiction = "contradiction",
        /// A port is outside 0 to 65535.
        InvalidPort = "invalid_port",
        /// A URL is invalid.
        InvalidUrl = "invalid_url",
        /// Warning: the key has been renamed.
        Deprecated = "deprecated",
        /// Warning: the rule can never match because an earlier one always wins.
        ShadowedRule = "shadowed_rule",
        /// Warning: a label has two sources.
        DuplicateLabel = "duplicate_label",
        /// Warning: a label can have an unreasonable number of values.
        HighCardinality = "high_cardinality",
        /// Warning: no object can have the path, according to its schema.
        NeverMatches = "never_matches",
        /// Warning: the value probably does not do what its author intended.
        Suspicious = "suspicious",
    }
}

impl ProblemClass {
    /// True if the file cannot be parsed at all, independent of its meaning. kube-state-metrics distinguishes such
    /// files from those that it parses and then rejects.
    pub const fn is_syntax_error(self) -> bool {
        matches!(
            self,
            Self::YamlSyntax | Self::YamlType | Self::DuplicateKey | Self::SeveralWildcards
        )
    }
}

/// A position in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Line, from 1.
    pub(crate) line: u64,
    /// Column in characters, from 1.
    pub(crate) column: u64,
}

/// A problem found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Severity of the problem.
    pub severity: Severity,
    /// Class of the problem.
    pub class: ProblemClass,
    /// Line in the file, from 1.
    pub line: u64,
    /// Column in the line, in characters, from 1.
    pub column: u64,
    /// Description of the problem, with the offending value.
    pub message: String,
    /// Advice on how to fix it.
    pub hint: String,
}

impl Problem {
    /// Joins all problems into one line, in the order of the file.
    pub fn list(problems: &[Self]) -> String {
        let mut sorted: Vec<&Self> = problems.iter().collect();
        sorted.sort_by_key(|problem| (problem.line, problem.column));
        sorted.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn error(
        class: ProblemClass,
        position: Position,
        message: String,
        hint: impl Into<String>,
    ) -> Self {
        let Position { line, column } = position;
        Self { severity: Severity::Error, class, line, column, message, hint: hint.into() }
    }

    pub(crate) fn warning(
        class: ProblemClass,
        position: Position,
        message: String,
        hint: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(class, position, message, hint) }
    }
}

impl fmt::Display for Problem {
    /// Writes `line L, column C: message (hint)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
