//! What is wrong with a file, where, and what to do about it.

use std::fmt;

/// Whether a problem keeps the file from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file works, but probably not as meant.
    Warning,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemClass {
    /// Not YAML.
    YamlSyntax,
    /// A value of the wrong kind.
    YamlType,
    /// A key that does not exist.
    UnknownField,
    /// A key that occurs twice.
    DuplicateKey,
    /// A label name that Prometheus does not accept.
    InvalidLabelName,
    /// A rule without `name`.
    MissingName,
    /// A `name` that cannot become a metric name.
    InvalidMetricName,
    /// A glob that is not segments and stars.
    InvalidGlob,
    /// A regular expression that does not compile.
    InvalidRegex,
    /// Neither `map` nor `drop`.
    InvalidAction,
    /// Neither `glob` nor `regex`.
    InvalidMatchType,
    /// Neither `summary` nor `histogram`.
    InvalidObserverType,
    /// Neither `counter` nor `gauge` nor `observer`.
    InvalidMetricType,
    /// Options of one observer type in a rule of the other.
    ObserverOptionsConflict,
    /// Options no summary or histogram can work with (bucket order, quantile range, negative duration).
    InvalidOptions,
    /// A resource that does not exist.
    UnknownResource,
    /// A pattern of metric names that is none.
    InvalidPattern,
    /// A label key with more than one `*`.
    SeveralWildcards,
    /// Two values that exclude each other.
    Contradiction,
    /// A port outside 0 to 65535.
    InvalidPort,
    /// A URL that is none.
    InvalidUrl,
    /// Warning: a key that has another name by now.
    Deprecated,
    /// Warning: the rule can never match, an earlier one always wins.
    ShadowedRule,
    /// Warning: a label that has two sources.
    DuplicateLabel,
    /// Warning: a label with more values than anybody wants.
    HighCardinality,
    /// Warning: a path that no object can have, by its schema.
    NeverMatches,
    /// Warning: a value that probably means something else than it says.
    Suspicious,
}

impl ProblemClass {
    /// A stable word for the class.
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

    /// Whether the file could not be read at all, whatever it means: kube-state-metrics tells such files from those
    /// that it reads and cannot use.
    #[must_use]
    pub const fn is_of_form(self) -> bool {
        matches!(
            self,
            Self::YamlSyntax | Self::YamlType | Self::DuplicateKey | Self::SeveralWildcards
        )
    }
}

/// Where something stands in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// From 1.
    pub(crate) line: u64,
    /// In characters, from 1.
    pub(crate) column: u64,
}

/// One problem of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Error or warning.
    pub severity: Severity,
    /// Kind.
    pub class: ProblemClass,
    /// Line in the file, from 1.
    pub line: u64,
    /// Column in the line, in characters, from 1.
    pub column: u64,
    /// What is wrong, with the offending value.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl Problem {
    /// All of them in one line, in the order of the file.
    #[must_use]
    pub fn list(problems: &[Self]) -> String {
        let mut sorted: Vec<&Self> = problems.iter().collect();
        sorted.sort_by_key(|problem| (problem.line, problem.column));
        sorted.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn error(
        class: ProblemClass,
        place: Place,
        message: String,
        hint: impl Into<String>,
    ) -> Self {
        let Place { line, column } = place;
        Self { severity: Severity::Error, class, line, column, message, hint: hint.into() }
    }

    pub(crate) fn warning(
        class: ProblemClass,
        place: Place,
        message: String,
        hint: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(class, place, message, hint) }
    }
}

impl fmt::Display for Problem {
    /// `line L, column C: message (hint)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
