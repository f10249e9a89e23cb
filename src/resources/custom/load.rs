//! Parsing of the configuration, as strict as kube-state-metrics.
//!
//! Unknown keys are ignored there; here they are warnings. Values of the wrong type, duplicate keys and invalid YAML
//! are errors, and so is an empty file. The accepted notations of each type follow Go's YAML library (see also the
//! options file).

use crate::config_file::{Document, Node, Position, Problem, ProblemClass, Resolved, Values, hint};

use super::config::{
    Block, Config, Entry, LabelPaths, LabelTexts, Metric, MetricPositions, PathText, SourcePosition,
};

/// The result of parsing a configuration.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The configuration, complete if there are no errors.
    pub config: Config,
    /// Syntax errors and warnings, in the order of the file.
    pub problems: Vec<Problem>,
}

impl Loaded {
    /// Returns the errors among the problems.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        let is_error = |problem: &&Problem| problem.severity == crate::config_file::Severity::Error;
        self.problems.iter().filter(is_error)
    }
}

/// Parses the text of a configuration file.
pub fn load(text: &str) -> Loaded {
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(problem) => return Loaded { problems: vec![problem], ..Loaded::default() },
    };
    let mut reader = Reader { values: Values::new(&document) };
    let mut config = Config::default();
    match document.root() {
        Some(root) => reader.file(root, &mut config),
        None => {
            let position = Position { line: 1, column: 1 };
            reader.values.problems.push(Problem::error(
                ProblemClass::YamlType,
                position,
                "there is nothing in it".to_owned(),
                "write spec: {resources: []} for a configuration without metrics",
            ));
        }
    }
    let mut problems = reader.values.problems;
    problems.sort_by_key(|problem| (problem.line, problem.column));
    // A value that is merged into several places is reported once.
    problems.dedup();
    Loaded { config, problems }
}

struct Reader<'d> {
    values: Values<'d>,
}

impl<'d> Reader<'d> {
    fn file(&mut self, root: &'d Node, config: &mut Config) {
        for (_, value) in self.entries(root, "the file", &["spec"], &["kind", "apiVersion"]) {
            for (_, value) in self.entries(value, "spec", &["resources"], &[]) {
                let items = self.items(value, "resources").into_iter();
                config.entries = items.map(|item| self.entry(item)).collect();
            }
        }
    }

    fn entry(&mut self, node: &'d Node) -> Entry {
        const KEYS: [&str; 8] = [
            "groupVersionKind",
            "labelsFromPath",
            "commonLabels",
            "labelDefaults",
            "metricNamePrefix",
            "resourcePlural",
            "errorLogV",
            "metrics",
        ];
        let mut entry = Entry { position: SourcePosition(node.position), ..Entry::default() };
        for (key, value) in self.entries(node, "a resource", &KEYS, &[]) {
            match key {
                "groupVersionKind" => {
                    const PARTS: [&str; 3] = ["group", "version", "kind"];
                    for (part, value) in self.entries(value, key, &PARTS, &[]) {
                        let text = self.text(value, part);
                        *match part {
                            "group" => &mut entry.group,
                            "version" => &mut entry.version,
                            _ => &mut entry.kind,
                        } = text;
                    }
                }
                "labelsFromPath" => entry.labels_from_path = self.label_paths(value, key),
                "commonLabels" => entry.common_labels = self.label_texts(value, key),
                "labelDefaults" => entry.label_defaults = self.label_texts(value, key),
                "metricNamePrefix" => entry.prefix = self.values.text(value, key),
                "resourcePlural" => {
                    self.values.text(value, key);
                }
                "errorLogV" => entry.error_log_v = self.int(value, key),
                _ => {
                    let items = self.items(value, key).into_iter();
                    entry.metrics = items.map(|item| self.metric(item)).collect();
                }
            }
        }
        entry
    }

    fn metric(&mut self, node: &'d Node) -> Metric {
        const KEYS: [&str; 7] = [
            "name",
            "help",
            "commonLabels",
            "labelsFromPath",
            "labelDefaults",
            "errorLogV",
            "each",
        ];
        let mut metric = Metric {
            positions: MetricPositions::all(SourcePosition(node.position)),
            ..Metric::default()
        };
        for (key, value) in self.entries(node, "a metric", &KEYS, &[]) {
            match key {
                "name" => {
                    metric.name = self.text(value, key);
                    metric.positions.name = SourcePosition(value.position);
                }
                "help" => metric.help = self.text(value, key),
                "commonLabels" => metric.common_labels = self.label_texts(value, key),
                "labelsFromPath" => metric.labels_from_path = self.label_paths(value, key),
                "labelDefaults" => metric.label_defaults = self.label_texts(value, key),
                "errorLogV" => metric.error_log_v = self.int(value, key),
                _ => self.each(value, &mut metric),
            }
        }
        metric
    }

    fn each(&mut self, node: &'d Node, metric: &mut Metric) {
        const GAUGE: [&str; 6] =
            ["path", "labelsFromPath", "labelFromKey", "valueFrom", "nilIsZero", "labelDefaults"];
        const INFO_OR_COUNT: [&str; 4] =
            ["path", "labelsFromPath", "labelFromKey", "labelDefaults"];
        const STATE_SET: [&str; 6] =
            ["path", "labelsFromPath", "labelName", "list", "valueFrom", "labelDefaults"];
        const KEYS: [&str; 5] = ["type", "gauge", "info", "stateSet", "count"];
        metric.positions.kind = SourcePosition(node.position);
        for (key, value) in self.entries(node, "each", &KEYS, &[]) {
            match key {
                "type" => {
                    metric.kind = self.text(value, key);
                    metric.positions.kind = SourcePosition(value.position);
                }
                "gauge" => metric.gauge = self.block(value, key, &GAUGE),
                "info" => metric.info = self.block(value, key, &INFO_OR_COUNT),
                "count" => metric.count = self.block(value, key, &INFO_OR_COUNT),
                _ => metric.state_set = self.block(value, key, &STATE_SET),
            }
        }
    }

    fn block(
        &mut self,
        node: &'d Node,
        what: &'static str,
        keys: &[&'static str],
    ) -> Option<Block> {
        if node.is_null() {
            return None;
        }
        let mut block = Block::default();
        for (key, value) in self.entries(node, what, keys, &[]) {
            match key {
                "path" => block.path = self.path(value, key),
                "labelsFromPath" => block.labels_from_path = self.label_paths(value, key),
                "labelDefaults" => block.label_defaults = self.label_texts(value, key),
                "labelFromKey" => block.label_from_key = self.text(value, key),
                "valueFrom" => block.value_from = self.path(value, key),
                "nilIsZero" => {
                    block.nil_is_zero = self.values.boolean(value, key).unwrap_or_default()
                }
                "labelName" => block.label_name = self.text(value, key),
                _ => block.list = self.path(value, key).segments,
            }
        }
        Some(block)
    }

    /// Reads a list of strings, ignoring null.
    fn path(&mut self, node: &'d Node, what: &str) -> PathText {
        let mut path = PathText { segments: Vec::new(), position: SourcePosition(node.position) };
        for item in self.items(node, what) {
            path.segments.extend(self.values.text(item, what));
        }
        path
    }

    fn label_paths(&mut self, node: &'d Node, what: &str) -> LabelPaths {
        let entries = self.map(node, what).into_iter();
        let path =
            |(key, value): (&str, _)| (key.to_owned(), self.path(value, &format!("{what}: {key}")));
        entries.map(path).collect()
    }

    fn label_texts(&mut self, node: &'d Node, what: &str) -> LabelTexts {
        let entries = self.map(node, what).into_iter();
        let text =
            |(key, value): (&str, _)| (key.to_owned(), self.text(value, &format!("{what}: {key}")));
        entries.map(text).collect()
    }

    /// Returns the known entries of a map; unknown keys are warnings unless they are `allowed`.
    fn entries(
        &mut self,
        node: &'d Node,
        what: &str,
        known: &[&'static str],
        allowed: &[&str],
    ) -> Vec<(&'static str, &'d Node)> {
        let entries = self.values.entries(node, what, "a map of keys and values");
        let mut found = Vec::new();
        for ((text, position), value) in entries.unwrap_or_default() {
            if let Some(name) = known.iter().find(|name| **name == text) {
                found.push((*name, value));
            } else if !allowed.contains(&text) {
                let hint = hint(text, known, "known keys are");
                self.values.problems.push(Problem::warning(
                    ProblemClass::UnknownField,
                    position,
                    format!("unknown key {text:?} in {what} has no effect"),
                    hint,
                ));
            }
        }
        found
    }

    fn map(&mut self, node: &'d Node, what: &str) -> Vec<(&'d str, &'d Node)> {
        let entries = self.values.entries(node, what, "a map of labels").unwrap_or_default();
        entries.into_iter().map(|((key, _), value)| (key, value)).collect()
    }

    /// Returns the items of a list, ignoring null.
    fn items(&mut self, node: &'d Node, what: &str) -> Vec<&'d Node> {
        let items = self.values.items(node, what).unwrap_or_default();
        items.into_iter().filter(|item| !item.is_null()).collect()
    }

    /// Reads a string; empty for null and for an invalid one.
    fn text(&mut self, node: &'d Node, what: &str) -> String {
        self.values.text(node, what).unwrap_or_default()
    }

    /// Reads a 32-bit integer, 0 for null and for an invalid one; a number's fraction is truncated.
    fn int(&mut self, node: &'d Node, what: &str) -> i32 {
        const WANTED: &str = "an integer of 32 bits, without quotes";
        let number = self.values.read(node, what, WANTED, |_, resolved| match resolved {
            Resolved::Int(number) => i32::try_from(number).ok(),
            Resolved::Float(number) if number.is_finite() => i32::try_from(number as i64).ok(),
            _ => None,
        });
        number.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAUGE: &str = "spec: {resources: [{groupVersionKind: {group: g, version: 1, kind: K}, metrics: [{name: n, each: {type: Gauge, gauge: {path: [a], @}}}]}]}";

    /// Recorded from kube-state-metrics 2.20.0.
    #[test]
    fn is_as_strict_as_the_original() {
        let gauge = |text: &str| GAUGE.replace('@', text);
        for (text, good) in [
            (gauge(""), true),
            (gauge("nilIsZero: Yes"), true),
            (gauge("nilIsZero: ON"), true),
            (gauge("nilIsZero: \"yes\""), true),
            (gauge("nilIsZero: \"true\""), false),
            (gauge("nilIsZero: 1"), false),
            (gauge("nilIsZero: null"), true),
            (gauge("nilIsZero: {a: b}"), false),
            (gauge("valueFrom: [a, null]"), true),
            (gauge("valueFrom: [a, 1.50, true]"), true),
            (gauge("valueFrom: {a: b}"), false),
            (gauge("valueFrom: a"), false),
            (gauge("valueFrom: [[a]]"), false),
            (gauge("labelsFromPath: {a: null}"), true),
            (gauge("labelsFromPath: {a: b}"), false),
            (gauge("labelsFromPath: [b]"), false),
            (gauge("foo: bar"), true),
            (gauge("path: [x]"), false),
            (gauge("foo: 1, foo: 2"), false),
            (gauge("NilIsZero: maybe"), true),
            (gauge("}, info: [b], x: {"), false),
            ("".to_owned(), false),
            ("# x\n".to_owned(), false),
            ("null".to_owned(), true),
            ("~".to_owned(), true),
            ("---\n".to_owned(), true),
            ("{}".to_owned(), true),
            ("- a\n".to_owned(), false),
            ("abc".to_owned(), false),
            ("5".to_owned(), false),
            ("---\n---\nspec: []\n".to_owned(), true),
            ("\u{feff}spec: {}\n".to_owned(), true),
            ("spec: []".to_owned(), false),
            ("spec: a".to_owned(), false),
            ("spec: null".to_owned(), true),
            ("Spec: []".to_owned(), true),
            ("spec: {resources: null}".to_owned(), true),
            ("spec: {resources: [null]}".to_owned(), true),
            ("spec: {resources: [a]}".to_owned(), false),
            ("kind: {a: b}\nspec: {}\n".to_owned(), true),
            ("spec: {resources: [{errorLogV: 5.7}]}".to_owned(), true),
            ("spec: {resources: [{errorLogV: 1e2}]}".to_owned(), true),
            ("spec: {resources: [{errorLogV: -5}]}".to_owned(), true),
            ("spec: {resources: [{errorLogV: 0x10}]}".to_owned(), true),
            ("spec: {resources: [{errorLogV: null}]}".to_owned(), true),
            ("spec: {resources: [{errorLogV: \"5\"}]}".to_owned(), false),
            ("spec: {resources: [{errorLogV: 5000000000}]}".to_owned(), false),
            ("spec: {resources: [{errorLogV: 1e10}]}".to_owned(), false),
            ("spec: {resources: [{errorLogV: .nan}]}".to_owned(), false),
            ("spec: {resources: [{errorLogV: true}]}".to_owned(), false),
            ("spec: {resources: [{metricNamePrefix: {a: b}}]}".to_owned(), false),
            ("spec: {resources: [{metricNamePrefix: 5}]}".to_owned(), true),
            ("spec: {resources: [{commonLabels: {a: 5, true: x}}]}".to_owned(), true),
            ("spec: {resources: [{commonLabels: {a: {b: c}}}]}".to_owned(), false),
            ("spec: {resources: [{commonLabels: [a]}]}".to_owned(), false),
            ("spec: {resources: [{commonLabels: {a: b, \"a\": c}}]}".to_owned(), false),
            ("spec: {resources: [{metrics: {a: b}}]}".to_owned(), false),
            ("spec: {resources: [{metrics: [null]}]}".to_owned(), true),
            ("spec: {resources: [{metrics: [{each: b}]}]}".to_owned(), false),
            ("spec: {resources: [{metrics: [{each: {type: {a: b}}}]}]}".to_owned(), false),
            (
                "spec: {resources: [{metrics: [{each: {stateSet: {list: {a: b}}}}]}]}".to_owned(),
                false,
            ),
            (
                "spec: {resources: [{metrics: [{each: {stateSet: {list: [1, true]}}}]}]}"
                    .to_owned(),
                true,
            ),
            ("spec: {resources: [{metrics: [{each: {gauge: []}}]}]}".to_owned(), false),
            ("spec: {resources: [{metrics: [{each: {gauge: null}}]}]}".to_owned(), true),
            ("spec: {resources: [{resourcePlural: [a]}]}".to_owned(), false),
            ("spec: {resources: [{groupVersionKind: a}]}".to_owned(), false),
            ("spec: {resources: [{groupVersionKind: {group: {a: b}}}]}".to_owned(), false),
            ("spec: |\n  a\n".to_owned(), false),
            ("spec: &a [*a]\n".to_owned(), false),
            ("spec:\n\tresources: []\n".to_owned(), false),
        ] {
            let loaded = load(&text);
            assert_eq!(loaded.errors().next().is_none(), good, "{text}: {:?}", loaded.problems);
        }
    }

    #[test]
    fn problems_have_a_place_and_a_hint() {
        let loaded = load("spec:\n  resources:\n  - labelFromPath: {}\n    errorLogV: x\n");
        let texts: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "line 3, column 5: unknown key \"labelFromPath\" in a resource has no effect (write labelsFromPath)",
                "line 4, column 16: errorLogV is x (write an integer of 32 bits, without quotes)",
            ]
        );
    }
}
