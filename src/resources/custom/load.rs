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
        Some(root) => {
            reader.fill(root, "the file", FILE, &["kind", "apiVersion"], &mut config);
        }
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

/// A key of a map, and how its value is stored.
type Key<T> = (&'static str, for<'d> fn(&mut Reader<'d>, &mut T, &'d Node, &str));

const FILE: &[Key<Config>] =
    &[("spec", |reader, to, node, key| reader.fill(node, key, SPEC, &[], to))];

const SPEC: &[Key<Config>] = &[("resources", |reader, to, node, key| {
    let items = reader.items(node, key).into_iter();
    to.entries = items.map(|item| reader.entry(item)).collect();
})];

const ENTRY: &[Key<Entry>] = &[
    ("groupVersionKind", |reader, to, node, key| reader.fill(node, key, GROUP_KIND, &[], to)),
    ("labelsFromPath", |reader, to, node, key| to.labels_from_path = reader.paths(node, key)),
    ("commonLabels", |reader, to, node, key| to.common_labels = reader.texts(node, key)),
    ("labelDefaults", |reader, to, node, key| to.label_defaults = reader.texts(node, key)),
    ("metricNamePrefix", |reader, to, node, key| to.prefix = reader.values.text(node, key)),
    // Only its type is checked.
    ("resourcePlural", |reader, _, node, key| {
        reader.values.text(node, key);
    }),
    ("errorLogV", |reader, to, node, key| to.error_log_v = reader.int(node, key)),
    ("metrics", |reader, to, node, key| {
        let items = reader.items(node, key).into_iter();
        to.metrics = items.map(|item| reader.metric(item)).collect();
    }),
];

const GROUP_KIND: &[Key<Entry>] = &[
    ("group", |reader, to, node, key| to.group = reader.text(node, key)),
    ("version", |reader, to, node, key| to.version = reader.text(node, key)),
    ("kind", |reader, to, node, key| to.kind = reader.text(node, key)),
];

const METRIC: &[Key<Metric>] = &[
    ("name", |reader, to, node, key| {
        to.name = reader.text(node, key);
        to.positions.name = SourcePosition(node.position);
    }),
    ("help", |reader, to, node, key| to.help = reader.text(node, key)),
    ("commonLabels", |reader, to, node, key| to.common_labels = reader.texts(node, key)),
    ("labelsFromPath", |reader, to, node, key| to.labels_from_path = reader.paths(node, key)),
    ("labelDefaults", |reader, to, node, key| to.label_defaults = reader.texts(node, key)),
    ("errorLogV", |reader, to, node, key| to.error_log_v = reader.int(node, key)),
    ("each", |reader, to, node, key| {
        to.positions.kind = SourcePosition(node.position);
        reader.fill(node, key, EACH, &[], to);
    }),
];

const EACH: &[Key<Metric>] = &[
    ("type", |reader, to, node, key| {
        to.kind = reader.text(node, key);
        to.positions.kind = SourcePosition(node.position);
    }),
    ("gauge", |reader, to, node, key| to.gauge = reader.block(node, key, GAUGE)),
    ("info", |reader, to, node, key| to.info = reader.block(node, key, INFO_OR_COUNT)),
    ("stateSet", |reader, to, node, key| to.state_set = reader.block(node, key, STATE_SET)),
    ("count", |reader, to, node, key| to.count = reader.block(node, key, INFO_OR_COUNT)),
];

const PATH: Key<Block> = ("path", |reader, to, node, key| to.path = reader.path(node, key));
const LABELS_FROM_PATH: Key<Block> =
    ("labelsFromPath", |reader, to, node, key| to.labels_from_path = reader.paths(node, key));
const LABEL_DEFAULTS: Key<Block> =
    ("labelDefaults", |reader, to, node, key| to.label_defaults = reader.texts(node, key));
const LABEL_FROM_KEY: Key<Block> =
    ("labelFromKey", |reader, to, node, key| to.label_from_key = reader.text(node, key));
const VALUE_FROM: Key<Block> =
    ("valueFrom", |reader, to, node, key| to.value_from = reader.path(node, key));
const NIL_IS_ZERO: Key<Block> = ("nilIsZero", |reader, to, node, key| {
    to.nil_is_zero = reader.values.boolean(node, key).unwrap_or_default();
});
const LABEL_NAME: Key<Block> =
    ("labelName", |reader, to, node, key| to.label_name = reader.text(node, key));
const LIST: Key<Block> =
    ("list", |reader, to, node, key| to.list = reader.path(node, key).segments);

const GAUGE: &[Key<Block>] =
    &[PATH, LABELS_FROM_PATH, LABEL_FROM_KEY, VALUE_FROM, NIL_IS_ZERO, LABEL_DEFAULTS];
const INFO_OR_COUNT: &[Key<Block>] = &[PATH, LABELS_FROM_PATH, LABEL_FROM_KEY, LABEL_DEFAULTS];
const STATE_SET: &[Key<Block>] =
    &[PATH, LABELS_FROM_PATH, LABEL_NAME, LIST, VALUE_FROM, LABEL_DEFAULTS];

struct Reader<'d> {
    values: Values<'d>,
}

impl<'d> Reader<'d> {
    fn entry(&mut self, node: &'d Node) -> Entry {
        let mut entry = Entry { position: SourcePosition(node.position), ..Entry::default() };
        self.fill(node, "a resource", ENTRY, &[], &mut entry);
        entry
    }

    fn metric(&mut self, node: &'d Node) -> Metric {
        let positions = MetricPositions::all(SourcePosition(node.position));
        let mut metric = Metric { positions, ..Metric::default() };
        self.fill(node, "a metric", METRIC, &[], &mut metric);
        metric
    }

    fn block(&mut self, node: &'d Node, what: &str, keys: &[Key<Block>]) -> Option<Block> {
        if node.is_null() {
            return None;
        }
        let mut block = Block::default();
        self.fill(node, what, keys, &[], &mut block);
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

    fn paths(&mut self, node: &'d Node, what: &str) -> LabelPaths {
        let entries = self.map(node, what).into_iter();
        let path =
            |(key, value): (&str, _)| (key.to_owned(), self.path(value, &format!("{what}: {key}")));
        entries.map(path).collect()
    }

    fn texts(&mut self, node: &'d Node, what: &str) -> LabelTexts {
        let entries = self.map(node, what).into_iter();
        let text =
            |(key, value): (&str, _)| (key.to_owned(), self.text(value, &format!("{what}: {key}")));
        entries.map(text).collect()
    }

    /// Stores the values of the keys of a map; unknown keys are warnings unless they are `allowed`.
    fn fill<T>(
        &mut self,
        node: &'d Node,
        what: &str,
        keys: &[Key<T>],
        allowed: &[&str],
        into: &mut T,
    ) {
        let entries = self.values.entries(node, what, "a map of keys and values");
        for ((text, position), value) in entries.unwrap_or_default() {
            if let Some((key, store)) = keys.iter().find(|(key, _)| *key == text) {
                store(self, into, value, key);
            } else if !allowed.contains(&text) {
                let known: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
                self.values.problems.push(Problem::warning(
                    ProblemClass::UnknownField,
                    position,
                    format!("unknown key {text:?} in {what} has no effect"),
                    hint(text, &known, "known keys are"),
                ));
            }
        }
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
