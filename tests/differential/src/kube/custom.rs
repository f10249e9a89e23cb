//! Random configurations of custom resource metrics, with objects that their paths lead into.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};

use super::objects::NAMESPACES;
use super::server::Placed;

/// A kind that the API server may have.
pub struct Kind {
    pub plural: &'static str,
    pub name: &'static str,
    group: &'static str,
    is_namespaced: bool,
}

/// The plural of definitions of custom resources.
pub const DEFINITIONS: &str = "customresourcedefinitions";

pub const KINDS: &[Kind] = &[
    Kind {
        plural: DEFINITIONS,
        name: "CustomResourceDefinition",
        group: "apiextensions.k8s.io",
        is_namespaced: false,
    },
    Kind { plural: "widgets", name: "Widget", group: "example.io", is_namespaced: true },
    Kind { plural: "gadgets", name: "Gadget", group: "example.io", is_namespaced: false },
    Kind { plural: "things", name: "Thing", group: "other.example.io", is_namespaced: true },
];
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

const KEYS: &[&str] = &["a", "b", "name", "type", "x-y", "state", "camelCase", "d.e/f", "k1"];
const LABELS: &[&str] =
    &["name", "camelCase", "a.b/c", "x9", "a", "*", "pre_*", "*copied", "customresource_kind", "é"];
const TEXTS: &[&str] = &[
    "True",
    "no",
    "unknown",
    "Running",
    "Failed",
    "12",
    "-1.5",
    "5m",
    "1Gi",
    "45%",
    "12.5%",
    "+Inf",
    "nan",
    "0x1p4",
    "0x10",
    "1_000",
    "1e3",
    " 5 ",
    "",
    "a\"b\\c\nd",
    "übergroß",
    "2024-02-29T12:30:00Z",
    "2024-02-29T12:30:00.75+02:00",
    "2024-02-29",
    "1.1.1",
    ".5",
    "5.",
    "1E6",
    "1e6M",
    "1Ki5",
    "+",
    "t",
];

/// A configuration.
#[derive(Clone, Debug)]
pub struct Custom {
    /// The contents of the file. JSON is YAML, too.
    pub file: Value,
    /// True if a flag has the contents instead of the name of a file.
    pub is_inline: bool,
    /// True if the options file has that flag.
    pub is_option: bool,
    pub is_only: bool,
}

fn one_of<'a>(rng: &mut StdRng, values: &[&'a str]) -> &'a str {
    values.choose(rng).copied().unwrap_or_default()
}

fn scalar(rng: &mut StdRng) -> Value {
    match rng.random_range(0..9) {
        0 => Value::Null,
        1 => rng.random::<bool>().into(),
        2 => rng.random_range(-3..100).into(),
        3 => 12_345_678_901_234_567_i64.into(),
        4 => [0.75, 1e6, -0.0, 1.5e-7, 1e21, 0.1, 123_456.789].choose(rng).copied().into(),
        _ => one_of(rng, TEXTS).into(),
    }
}

fn value(rng: &mut StdRng, depth: usize) -> Value {
    match rng.random_range(0..10) {
        0..=3 if depth > 0 => fields(rng, depth - 1).into(),
        4..=6 if depth > 0 => {
            let count = rng.random_range(0..4);
            // Items of a list are mostly alike.
            let are_objects = rng.random_bool(0.7);
            let item =
                |_| if are_objects { fields(rng, depth - 1).into() } else { value(rng, depth - 1) };
            Value::Array((0..count).map(item).collect())
        }
        _ => scalar(rng),
    }
}

fn fields(rng: &mut StdRng, depth: usize) -> Map<String, Value> {
    let count = rng.random_range(0..6);
    (0..count).map(|_| (one_of(rng, KEYS).to_owned(), value(rng, depth))).collect()
}

/// Creates an object; objects with the same number have the same name, UID and namespace.
fn object(kind: &Kind, number: usize, rng: &mut StdRng) -> Placed {
    let mut metadata = json!({
        "name": format!("{}-{number}", kind.plural),
        "uid": format!("uid-{}-{number}", kind.plural),
        "labels": {"app": one_of(rng, &["shop", "web"]), "a.b/c": one_of(rng, TEXTS)},
        "creationTimestamp": "2023-05-06T07:08:09Z",
        "generation": rng.random_range(1..5),
    });
    if kind.is_namespaced {
        metadata["namespace"] = NAMESPACES.get(number % NAMESPACES.len()).copied().into();
    }
    let object = json!({
        "apiVersion": format!("{}/{}", kind.group, VERSIONS[0]),
        "kind": kind.name,
        "metadata": metadata,
        "spec": fields(rng, 3),
        "status": fields(rng, 3),
    });
    Placed { resource: kind.plural.to_owned(), object }
}

/// Creates the definition of a kind.
fn definition(kind: &Kind, rng: &mut StdRng) -> Placed {
    let name = format!("{}.{}", kind.plural, kind.group);
    let served = VERSIONS.map(|version| {
        json!({"name": version, "served": rng.random_bool(0.8), "storage": version == VERSIONS[0]})
    });
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {
            "group": kind.group,
            "names": {"plural": kind.plural, "kind": kind.name},
            "scope": if kind.is_namespaced { "Namespaced" } else { "Cluster" },
            "versions": served,
        },
    });
    Placed { resource: DEFINITIONS.to_owned(), object }
}

/// Returns the kinds of custom resources that can be compared with these flags: the original asks for cluster-scoped ones in
/// each namespace, where no API server has them.
pub fn kinds(flags: &[String]) -> Vec<&'static Kind> {
    let has_namespaces = flags.iter().any(|flag| flag.starts_with("--namespaces="));
    let kinds = KINDS.iter().filter(|kind| kind.plural != DEFINITIONS);
    kinds.filter(|kind| kind.is_namespaced || !has_namespaces).collect()
}

/// Creates definitions and objects.
pub fn objects(kinds: &[&Kind], rng: &mut StdRng) -> Vec<Placed> {
    let mut out = Vec::new();
    for kind in kinds {
        if rng.random_bool(0.8) {
            out.push(definition(kind, rng));
        }
        for number in 0..rng.random_range(0..5) {
            out.push(object(kind, number, rng));
        }
    }
    out
}

/// Creates a new state of an object, or of a definition.
pub fn changed(kinds: &[&Kind], rng: &mut StdRng) -> Placed {
    let kind = kinds[rng.random_range(0..kinds.len())];
    match rng.random_bool(0.15) {
        true => definition(kind, rng),
        false => object(kind, rng.random_range(0..6), rng),
    }
}

/// Returns a path into a value, and what it leads to. Some paths lead to nothing.
fn path<'a>(mut value: &'a Value, rng: &mut StdRng) -> (Vec<String>, &'a Value) {
    let mut out = Vec::new();
    while rng.random_bool(0.85) {
        let (segment, next) = match value {
            _ if rng.random_bool(0.05) => {
                (one_of(rng, &["0", "-1", "9", "absent", "a=b", "[a=b]"]).to_owned(), &Value::Null)
            }
            Value::Object(fields) => {
                let fields: Vec<_> = fields.iter().collect();
                let Some((key, next)) = fields.choose(rng) else { break };
                match next {
                    Value::String(text) if rng.random_bool(0.1) => (format!("{key}={text}"), *next),
                    _ => ((*key).clone(), *next),
                }
            }
            Value::Array(items) if !items.is_empty() => {
                let at = rng.random_range(0..items.len());
                let item = &items[at];
                let field = item.as_object().and_then(|fields| fields.iter().next());
                match field {
                    Some((key, value)) if value.is_string() && rng.random() => {
                        (format!("[{key}={}]", value.as_str().unwrap_or_default()), item)
                    }
                    Some((key, value)) if rng.random() => (format!("[{key}={value}]"), item),
                    _ if rng.random_bool(0.3) => (format!("-{}", items.len() - at), item),
                    _ => (at.to_string(), item),
                }
            }
            _ => break,
        };
        out.push(segment);
        value = next;
    }
    (out, value)
}

/// Returns label names and the paths of their values.
fn label_paths(value: &Value, rng: &mut StdRng) -> Value {
    let count = rng.random_range(0..4);
    let label = |_| (one_of(rng, LABELS).to_owned(), path(value, rng).0.into());
    Value::Object((0..count).map(label).collect())
}

fn common_labels(rng: &mut StdRng) -> Value {
    let count = rng.random_range(0..3);
    let label = |_| {
        let name = one_of(rng, &["common", "name", "a", "x-y"]);
        (name.to_owned(), one_of(rng, TEXTS).into())
    };
    Value::Object((0..count).map(label).collect())
}

/// Sets a field in some cases.
fn maybe(rng: &mut StdRng, block: &mut Value, key: &str, value: impl FnOnce(&mut StdRng) -> Value) {
    if rng.random_bool(0.4) {
        block[key] = value(rng);
    }
}

/// Creates a metric from the values of an object.
fn metric(number: usize, sample: &Value, rng: &mut StdRng) -> Value {
    let (path_of_value, target) = path(sample, rng);
    let element = match target {
        Value::Array(items) => items.choose(rng),
        Value::Object(fields) => fields.values().collect::<Vec<_>>().choose(rng).copied(),
        _ => None,
    };
    let element = element.unwrap_or(target);
    let mut block = json!({"path": path_of_value});
    maybe(rng, &mut block, "labelsFromPath", |rng| label_paths(element, rng));
    let kind = rng.random_range(0..3);
    if kind < 2 {
        maybe(rng, &mut block, "labelFromKey", |rng| one_of(rng, &["key", "name", "a.b"]).into());
    }
    if kind != 1 {
        maybe(rng, &mut block, "valueFrom", |rng| path(element, rng).0.into());
    }
    let (field, spellings) = match kind {
        0 => {
            maybe(rng, &mut block, "nilIsZero", |rng| rng.random::<bool>().into());
            ("gauge", ["Gauge", "gauge"])
        }
        1 => ("info", ["Info", "INFO"]),
        _ => {
            let states = rng.random_range(1..4);
            let list: Vec<&str> = (0..states).map(|_| one_of(rng, TEXTS)).collect();
            block["list"] = json!(list);
            block["labelName"] = one_of(rng, &["state", "name", "a.b"]).into();
            ("stateSet", ["StateSet", "stateset"])
        }
    };
    let mut metric = json!({
        "name": format!("m{number}{}", one_of(rng, &["", "_total", "_info", "-x"])),
        "help": one_of(rng, &["", "Help.", "a \\ b\nc"]),
        "each": {"type": one_of(rng, &spellings), field: block},
    });
    maybe(rng, &mut metric, "commonLabels", common_labels);
    maybe(rng, &mut metric, "labelsFromPath", |rng| label_paths(sample, rng));
    metric
}

impl Custom {
    /// Creates a configuration for some of the objects.
    pub fn random(kinds: &[&Kind], objects: &[Placed], rng: &mut StdRng) -> Self {
        let mut entries = Vec::new();
        let mut number = 0;
        for _ in 0..rng.random_range(1..4) {
            let kind = kinds[rng.random_range(0..kinds.len())];
            let samples: Vec<_> =
                objects.iter().filter(|placed| placed.resource == kind.plural).collect();
            let nothing = Value::Null;
            let mut metrics = Vec::new();
            for _ in 0..rng.random_range(0..5) {
                let sample = samples.choose(rng).map_or(&nothing, |placed| &placed.object);
                metrics.push(metric(number, sample, rng));
                number += 1;
            }
            let version = one_of(rng, &["v1", "v1", "v1beta1", "*", ""]);
            let name =
                if rng.random_bool(0.8) { kind.name } else { one_of(rng, &["*", "", "widget"]) };
            let mut entry = json!({
                "groupVersionKind": {"group": kind.group, "version": version, "kind": name},
                "metrics": metrics,
            });
            let sample = samples.choose(rng).map_or(&nothing, |placed| &placed.object);
            maybe(rng, &mut entry, "labelsFromPath", |rng| label_paths(sample, rng));
            maybe(rng, &mut entry, "commonLabels", common_labels);
            maybe(rng, &mut entry, "metricNamePrefix", |rng| {
                [json!(""), json!("own"), Value::Null].choose(rng).cloned().unwrap_or_default()
            });
            entries.push(entry);
        }
        let file = json!({"kind": "CustomResourceStateMetrics", "spec": {"resources": entries}});
        Self {
            file,
            is_inline: rng.random_bool(0.2),
            is_option: rng.random_bool(0.2),
            is_only: rng.random_bool(0.6),
        }
    }

    /// Returns the resources that have metrics with these objects, each with the number of its versions, and true for those
    /// with namespaces.
    pub fn watched(&self, objects: &[Placed]) -> Vec<(String, usize, bool)> {
        let mut found = BTreeMap::new();
        let entries = self.file["spec"]["resources"].as_array();
        let matches = |pattern: &Value, text: &str| {
            let pattern = pattern.as_str().unwrap_or_default();
            pattern.is_empty() || pattern == "*" || pattern == text
        };
        for entry in entries.into_iter().flatten() {
            let gvk = &entry["groupVersionKind"];
            for kind in KINDS.iter().filter(|kind| gvk["group"] == kind.group) {
                let named = |placed: &&Placed| {
                    placed.resource == DEFINITIONS
                        && placed.object["spec"]["names"]["plural"] == kind.plural
                };
                let versions =
                    objects.iter().find(named).map(|placed| &placed.object["spec"]["versions"]);
                for version in versions.and_then(Value::as_array).into_iter().flatten() {
                    let name = version["name"].as_str().unwrap_or_default();
                    if version["served"] == true
                        && matches(&gvk["version"], name)
                        && matches(&gvk["kind"], kind.name)
                    {
                        found.insert((kind.plural, name.to_owned()), kind.is_namespaced);
                    }
                }
            }
        }
        let mut counts = BTreeMap::new();
        for ((plural, _), is_namespaced) in found {
            counts
                .entry((plural.to_owned(), is_namespaced))
                .and_modify(|count| *count += 1)
                .or_insert(1);
        }
        counts
            .into_iter()
            .map(|((plural, namespaced), count)| (plural, count, namespaced))
            .collect()
    }

    /// Returns true if every metric can be compiled: otherwise the original shows no custom metrics at all.
    pub fn is_complete(&self) -> bool {
        let entries = self.file["spec"]["resources"].as_array();
        let metrics =
            entries.into_iter().flatten().flat_map(|entry| entry["metrics"].as_array()).flatten();
        let mut metrics = metrics.map(|metric| &metric["each"]);
        metrics.all(|each| {
            let kind = each["type"].as_str().unwrap_or_default().to_lowercase();
            let block = if kind == "stateset" { "stateSet" } else { &kind };
            each[block].is_object()
        })
    }
}
