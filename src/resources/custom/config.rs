//! The configuration as written in the file: entries for kinds, each with its metrics.

use std::collections::BTreeMap;

use crate::config_file::Position;

/// A position in the file that is ignored by comparisons, so that configurations with equal content are equal.
#[derive(Clone, Copy, Default)]
pub struct SourcePosition(pub(super) Position);

impl SourcePosition {
    /// Returns this position, or `other` if it is not set.
    pub(super) fn or(self, other: Self) -> Self {
        if self.0.line == 0 { other } else { self }
    }
}

impl PartialEq for SourcePosition {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for SourcePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("_")
    }
}

impl std::fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.0.line, self.0.column)
    }
}

/// A path with its position in the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathText {
    /// The segments of the path.
    pub segments: Vec<String>,
    /// The position of the path.
    pub position: SourcePosition,
}

impl std::fmt::Display for PathText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}]", self.segments.join(","))
    }
}

/// Paths by the label whose value they select.
pub type LabelPaths = BTreeMap<String, PathText>;

/// True if the label of a path stands for all entries of the map that the path selects.
pub(super) fn copies_map(label: &str) -> bool {
    label.ends_with('*') || label.starts_with('*')
}

/// Constant label values by label.
pub type LabelTexts = BTreeMap<String, String>;

/// A configuration of custom resource state metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The entries, in the order of the file.
    pub entries: Vec<Entry>,
}

/// The configuration of one kind, or of several by wildcards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Group; never a wildcard.
    pub group: String,
    /// Version; empty or `*` for all.
    pub version: String,
    /// Kind; empty or `*` for all.
    pub kind: String,
    /// Labels of all metrics, by path.
    pub labels_from_path: LabelPaths,
    /// Labels of all metrics, with constant values.
    pub common_labels: LabelTexts,
    /// Default values of `labels_from_path`, used if a path selects nothing. A kstatd extension.
    pub label_defaults: LabelTexts,
    /// The name prefix of the families; `None` for the default.
    pub prefix: Option<String>,
    /// The minimum log verbosity that shows value errors.
    pub error_log_v: i32,
    /// The metrics of the kind.
    pub metrics: Vec<Metric>,
    /// The position of the entry.
    pub position: SourcePosition,
}

impl Entry {
    /// Returns the full family name of a metric of this entry.
    pub fn family_name(&self, metric: &Metric) -> String {
        match self.prefix.as_deref() {
            None => format!("{DEFAULT_PREFIX}_{}", metric.name),
            Some("") => metric.name.clone(),
            Some(prefix) => format!("{prefix}_{}", metric.name),
        }
    }
}

impl Config {
    /// Replaces invalid characters in the names of families and labels by `_`, so that every format accepts them.
    #[must_use]
    pub fn with_valid_names(mut self) -> Self {
        let valid_keys = |texts: &mut LabelTexts| {
            let valid = |(name, text): (String, String)| (valid_name(&name, false), text);
            *texts = std::mem::take(texts).into_iter().map(valid).collect();
        };
        for entry in &mut self.entries {
            valid_keys(&mut entry.common_labels);
            let prefix = entry.prefix.as_deref().unwrap_or(DEFAULT_PREFIX);
            let begins = prefix.is_empty();
            let prefix = if begins { String::new() } else { valid_name(prefix, true) };
            for metric in &mut entry.metrics {
                valid_keys(&mut metric.common_labels);
                // With a prefix, the first character may be a digit.
                let name = valid_name(&format!("_{}", metric.name), true).split_off(1);
                metric.name = if begins { valid_name(&name, true) } else { name };
                let blocks = [&mut metric.gauge, &mut metric.info, &mut metric.state_set];
                for block in blocks.into_iter().chain([&mut metric.count]).flatten() {
                    if !block.label_from_key.is_empty() {
                        block.label_from_key = valid_name(&block.label_from_key, false);
                    }
                    block.label_name = valid_name(&block.label_name, false);
                }
            }
            entry.prefix = Some(prefix);
        }
        self
    }
}

/// Returns a name that Prometheus accepts without quotes.
pub(crate) fn valid_name(name: &str, colons: bool) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    let mut text: String = name.chars().map(|c| if valid(c) { c } else { '_' }).collect();
    // Prometheus reserves this prefix for its own labels.
    while !colons && text.starts_with("__") {
        text.remove(0);
    }
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
        text.insert(0, '_');
    }
    text
}

/// The default name prefix of families.
pub const DEFAULT_PREFIX: &str = "kube_customresource";

/// The positions of a metric in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MetricPositions {
    /// The position of the metric.
    pub metric: SourcePosition,
    /// The position of its name, or of the metric if it has none.
    pub name: SourcePosition,
    /// The position of its type, or of `each`, or of the metric, whichever exists.
    pub kind: SourcePosition,
}

impl MetricPositions {
    /// Sets all positions to that of the metric.
    pub(super) fn all(position: SourcePosition) -> Self {
        Self { metric: position, name: position, kind: position }
    }
}

/// The configuration of one metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metric {
    /// Name of the metric, without prefix.
    pub name: String,
    /// HELP text of the metric.
    pub help: String,
    /// Labels of this metric, with constant values.
    pub common_labels: LabelTexts,
    /// Labels of this metric, by path.
    pub labels_from_path: LabelPaths,
    /// Default values of its labels, used if a path selects nothing. A kstatd extension.
    pub label_defaults: LabelTexts,
    /// The log verbosity of its value errors; overrides that of the entry, unless 0.
    pub error_log_v: i32,
    /// The type as written.
    pub kind: String,
    /// The settings of a gauge.
    pub gauge: Option<Block>,
    /// The settings of an info.
    pub info: Option<Block>,
    /// The settings of a state set.
    pub state_set: Option<Block>,
    /// The settings of a count. A kstatd extension.
    pub count: Option<Block>,
    /// The positions of the metric, its name and its type.
    pub positions: MetricPositions,
}

/// The settings of a metric type; each type uses some of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// The path of the value, or of a collection that has a series for each element.
    pub path: PathText,
    /// Labels by paths within an element.
    pub labels_from_path: LabelPaths,
    /// Default values of those labels, used if a path selects nothing. A kstatd extension.
    pub label_defaults: LabelTexts,
    /// The label whose value is the key of a map element.
    pub label_from_key: String,
    /// The path of the value within an element.
    pub value_from: PathText,
    /// True if a missing value counts as 0.
    pub nil_is_zero: bool,
    /// The label with the name of the state.
    pub label_name: String,
    /// All states of the state set.
    pub list: Vec<String>,
}
