//! Problems found in a configuration file: class, position, message and hint.

use std::fmt;

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is rejected.
    Error,
    /// The file is usable, but probably not as intended.
    Warning,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemClass {
    /// The text is not valid YAML.
    YamlSyntax,
    /// A value has the wrong type.
    YamlType,
    /// A key is unknown.
    UnknownField,
    /// A key occurs twice.
    DuplicateKey,
    /// Prometheus does not accept the label name.
    InvalidLabelName,
    /// A rule has no `name`.
    MissingName,
    /// A `name` cannot become a metric name.
    InvalidMetricName,
    /// A glob consists of more than segments and stars.
    InvalidGlob,
    /// A regular expression does not compile.
    InvalidRegex,
    /// An action is neither `map` nor `drop`.
    InvalidAction,
    /// A match type is neither `glob` nor `regex`.
    InvalidMatchType,
    /// An observer type is neither `summary` nor `histogram`.
    InvalidObserverType,
    /// A metric type is not `counter`, `gauge` or `observer`.
    InvalidMetricType,
    /// A rule has options of the other observer type.
    ObserverOptionsConflict,
    /// No summary or histogram can use the options (bucket order, quantile range, negative duration).
    InvalidOptions,
    /// A resource does not exist.
    UnknownResource,
    /// A pattern of metric names is invalid.
    InvalidPattern,
    /// A label key has more than one `*`.
    SeveralWildcards,
    /// Two values exclude each other.
    Contradiction,
    /// A port is outside 0 to 65535.
    InvalidPort,
    /// A URL is invalid.
    InvalidUrl,
    /// Warning: the key has been renamed.
    Deprecated,
    /// Warning: the rule can never match because an earlier one always wins.
    ShadowedRule,
    /// Warning: a label has two sources.
    DuplicateLabel,
    /// Warning: a label can have an unreasonable number of values.
    HighCardinality,
    /// Warning: no object can have the path, according to its schema.
    NeverMatches,
    /// Warning: the value probably does not do what its author intended.
    Suspicious,
}

impl ProblemClass {
    /// Returns the stable identifier of the class, as machine-readable output has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::YamlSyntax => "yaml_syntax",
            Self::YamlType => "yaml_type",
            Self::UnknownField => "unknown_field",
            Self::DuplicateKey => "duplicate_key",
            Self::InvalidLabelName => "invalid_label_name",
            Self::MissingName => "missing_name",
            Self::InvalidMetricName => "invalid_metric_name",
            Self::InvalidGlob => "invalid_glob",
            Self::InvalidRegex => "invalid_regex",
            Self::InvalidAction => "invalid_action",
            Self::InvalidMatchType => "invalid_match_type",
            Self::InvalidObserverType => "invalid_observer_type",
            Self::InvalidMetricType => "invalid_metric_type",
            Self::ObserverOptionsConflict => "observer_options_conflict",
            Self::InvalidOptions => "invalid_options",
            Self::UnknownResource => "unknown_resource",
            Self::InvalidPattern => "invalid_pattern",
            Self::SeveralWildcards => "several_wildcards",
            Self::Contradiction => "contradiction",
            Self::InvalidPort => "invalid_port",
            Self::InvalidUrl => "invalid_url",
            Self::Deprecated => "deprecated",
            Self::ShadowedRule => "shadowed_rule",
            Self::DuplicateLabel => "duplicate_label",
            Self::HighCardinality => "high_cardinality",
            Self::NeverMatches => "never_matches",
            Self::Suspicious => "suspicious",
        }
    }

    /// True if the file cannot be parsed at all, independent of its meaning. kube-state-metrics distinguishes such
    /// files from those that it parses and then rejects.
    #[must_use]
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
    #[must_use]
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
