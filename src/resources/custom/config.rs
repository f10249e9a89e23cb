//! The configuration as it is written: entries for kinds, each with its metrics.

use std::collections::BTreeMap;

use crate::config_file::Place;

/// Where something stands in the file. Two configurations that differ in nothing else are the same.
#[derive(Clone, Copy, Default)]
pub struct Spot(pub(super) Place);

impl Spot {
    /// This one, or `other` for what is not in the file.
    pub(super) fn or(self, other: Self) -> Self {
        if self.0.line == 0 { other } else { self }
    }
}

impl PartialEq for Spot {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("_")
    }
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.0.line, self.0.column)
    }
}

/// A list of segments, and where it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathText {
    /// The segments.
    pub segments: Vec<String>,
    /// Where.
    pub spot: Spot,
}

impl std::fmt::Display for PathText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}]", self.segments.join(","))
    }
}

/// Paths by the label that they give the value of.
pub type LabelPaths = BTreeMap<String, PathText>;

/// Fixed texts by label.
pub type LabelTexts = BTreeMap<String, String>;

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// What is said about kinds, in the order of the file.
    pub entries: Vec<Entry>,
}

/// What is said about one kind, or several by wildcards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Group; never a wildcard.
    pub group: String,
    /// Version; empty or `*` for all.
    pub version: String,
    /// Kind; empty or `*` for all.
    pub kind: String,
    /// Labels of all metrics.
    pub labels_from_path: LabelPaths,
    /// Labels of all metrics with a fixed value.
    pub common_labels: LabelTexts,
    /// What a label of `labels_from_path` says where its path leads nowhere. kstatd's own.
    pub label_defaults: LabelTexts,
    /// What names begin with; `None` for the usual prefix.
    pub prefix: Option<String>,
    /// The log's verbosity from which on value errors are logged.
    pub error_log_v: i32,
    /// The metrics.
    pub metrics: Vec<Metric>,
    /// Where it stands.
    pub spot: Spot,
}

impl Entry {
    /// The name of a family of this entry.
    #[must_use]
    pub fn family_name(&self, metric: &Metric) -> String {
        match self.prefix.as_deref() {
            None => format!("{DEFAULT_PREFIX}_{}", metric.name),
            Some("") => metric.name.clone(),
            Some(prefix) => format!("{prefix}_{}", metric.name),
        }
    }
}

impl Config {
    /// The same with names of families and labels that every format takes: what may not stand in them becomes `_`.
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
                // Behind a prefix a digit may come first.
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

/// A name that Prometheus takes without quotes.
pub(super) fn valid_name(name: &str, colons: bool) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    let mut text: String = name.chars().map(|c| if valid(c) { c } else { '_' }).collect();
    // Labels that begin so are those of Prometheus itself.
    while !colons && text.starts_with("__") {
        text.remove(0);
    }
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
        text.insert(0, '_');
    }
    text
}

/// What family names begin with unless the file says something else.
pub const DEFAULT_PREFIX: &str = "kube_customresource";

/// One metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metric {
    /// Name, without prefix.
    pub name: String,
    /// HELP text.
    pub help: String,
    /// Labels of its own with a fixed value.
    pub common_labels: LabelTexts,
    /// Labels of its own.
    pub labels_from_path: LabelPaths,
    /// What its labels say where their path leads nowhere. kstatd's own.
    pub label_defaults: LabelTexts,
    /// Overrides that of the entry, unless 0.
    pub error_log_v: i32,
    /// Its type as written.
    pub kind: String,
    /// What a gauge is.
    pub gauge: Option<Block>,
    /// What an info is.
    pub info: Option<Block>,
    /// What a state set is.
    pub state_set: Option<Block>,
    /// What is counted. kstatd's own.
    pub count: Option<Block>,
    /// Where it stands, where its name, and where its type.
    pub spots: [Spot; 3],
}

/// What one type of metric is made of; each type reads its own part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// The value, or the collection that has a series for each element.
    pub path: PathText,
    /// Labels, by paths within an element.
    pub labels_from_path: LabelPaths,
    /// What those labels say where their path leads nowhere. kstatd's own.
    pub label_defaults: LabelTexts,
    /// The label that gets the key of a map's element.
    pub label_from_key: String,
    /// The value within an element.
    pub value_from: PathText,
    /// Whether no value counts as 0.
    pub nil_is_zero: bool,
    /// The label that names the state.
    pub label_name: String,
    /// All states.
    pub list: Vec<String>,
}
