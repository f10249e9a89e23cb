//! Chooses the metrics of a kind.

use std::collections::BTreeSet;

use serde_json::Value;

use super::column::Column;
use super::fields::{
    Elements, Field, FieldValue, Fields, may_have, properties, schema_at, value_of,
};
use super::kind::CustomKind;
use super::names::{joined, referent, singular, snake, unique, word};
use crate::resources::custom::config::{Block, DEFAULT_PREFIX, LabelPaths, PathText, valid_name};
use crate::resources::custom::{Definition, is_metadata, too_many_values};

/// The maximum number of metrics of a kind.
const MAX_METRICS: usize = 60;

/// The maximum number of labels of the Info metric.
const MAX_LABELS: usize = 16;

/// The drafted entry of a kind.
pub(super) struct EntryDraft<'k> {
    /// The description of the definition.
    pub(super) origin: String,
    pub(super) definition: &'k Definition,
    /// The prefix of the names, if it is not the usual one.
    pub(super) prefix: Option<String>,
    /// The labels of all metrics.
    pub(super) labels: LabelPaths,
    pub(super) metrics: Vec<MetricDraft>,
    /// What has no metric, and why.
    pub(super) left_out: Vec<String>,
}

/// A drafted metric.
pub(super) struct MetricDraft {
    pub(super) name: String,
    pub(super) help: String,
    /// The type: `Info`, `Gauge` or `StateSet`.
    pub(super) kind: &'static str,
    pub(super) block: Block,
    /// Labels that the metric has besides those of its block.
    pub(super) labels: LabelPaths,
    /// The source.
    pub(super) origin: String,
}

/// Drafts the entry of a kind, with a prefix of its group if names would otherwise be ambiguous.
pub(super) fn draft<'k>(kind: &'k CustomKind<'_>, needs_prefix: bool) -> EntryDraft<'k> {
    let open = Value::Null;
    let schema = kind.schema.unwrap_or(&open);
    let mut drafter = Drafter {
        article: article(&kind.definition.kind),
        word: word(&kind.definition.kind),
        schema,
        metrics: Vec::new(),
        left_out: Vec::new(),
        labels: LabelPaths::new(),
        base: base_labels(kind),
        over_limit: 0,
    };
    let fields = Fields::of(schema);
    drafter.every_object(&fields.found);
    drafter.info_labels(&fields.found, &kind.columns);
    for field in pointed_out(schema, &kind.columns, &fields.found, &mut drafter.left_out) {
        drafter.field(&field, &kind.columns);
    }
    for field in &fields.found {
        drafter.field(field, &kind.columns);
    }
    drafter.references(&fields.found);
    if drafter.over_limit > 0 {
        drafter.left_out.push(format!("{} more fields", drafter.over_limit));
    }
    if fields.is_cut {
        drafter.left_out.push("the rest of a very large schema".to_owned());
    }
    if let Some(info) = drafter.metrics.first_mut() {
        info.labels = drafter.labels;
    }
    let definition = &kind.definition;
    let mut origin = format!("{}.{} {}", definition.plural, definition.group, definition.version);
    if !kind.other_versions.is_empty() {
        origin.push_str(&format!("; also served: {}", kind.other_versions.join(", ")));
    }
    let prefix =
        needs_prefix.then(|| format!("{DEFAULT_PREFIX}_{}", valid_name(&definition.group, false)));
    let Drafter { base: labels, metrics, left_out, .. } = drafter;
    EntryDraft { origin, definition, prefix, labels, metrics, left_out }
}

fn base_labels(kind: &CustomKind<'_>) -> LabelPaths {
    let mut labels = LabelPaths::from([("name".to_owned(), path(&["metadata", "name"]))]);
    if kind.definition.namespaced {
        labels.insert("namespace".to_owned(), path(&["metadata", "namespace"]));
    }
    labels
}

fn path(segments: &[&str]) -> PathText {
    PathText {
        segments: segments.iter().map(|&segment| segment.to_owned()).collect(),
        ..PathText::default()
    }
}

/// Returns the fields of columns that the walk has not found, by the type of the schema or else of the column.
fn pointed_out<'c>(
    schema: &'c Value,
    columns: &'c [Column],
    found: &[Field<'_>],
    left_out: &mut Vec<String>,
) -> Vec<Field<'c>> {
    let mut fields: Vec<Field<'c>> = Vec::new();
    for column in columns {
        let Some(path) = column.segments() else {
            left_out.push(format!("{}, which is no path of one value", column.title));
            continue;
        };
        let is_lookup = path.iter().any(|segment| segment.starts_with('['));
        let is_known = found.iter().any(|field| field.is_at(&path))
            || fields.iter().any(|field| field.is_at(&path))
            || path.first() == Some(&"metadata");
        if is_known || is_lookup && path.contains(&"conditions") {
            continue;
        }
        let declared = || match column.kind.as_str() {
            "integer" | "number" => Some(FieldValue::Number),
            "boolean" => Some(FieldValue::Boolean),
            "date" => Some(FieldValue::Time),
            _ => None,
        };
        let value = schema_at(schema, &path).map_or_else(declared, |schema| {
            value_of(schema, false)
                .or_else(|| schema.get("type").is_none().then(declared).flatten())
        });
        if let Some(value) = value {
            fields.push(Field { elements: None, path, value });
        }
    }
    fields
}

impl Field<'_> {
    fn is_at(&self, path: &[&str]) -> bool {
        match &self.elements {
            None => self.path == path,
            // A member of a map is an element of it.
            Some(Elements { path: outer, keys }) => {
                keys.is_empty()
                    && path.len() == outer.len() + 1 + self.path.len()
                    && path.starts_with(outer)
                    && path.ends_with(&self.path)
            }
        }
    }

    fn whole_path(&self) -> Vec<&str> {
        let outer = self.elements.iter().flat_map(|elements| &elements.path);
        outer.chain(&self.path).copied().collect()
    }
}

/// Collects the metrics of a kind.
struct Drafter<'s> {
    /// The kind with its article, for help texts.
    article: String,
    /// The kind in the names of metrics.
    word: String,
    schema: &'s Value,
    metrics: Vec<MetricDraft>,
    left_out: Vec<String>,
    /// The labels of the Info metric.
    labels: LabelPaths,
    /// The labels of all metrics.
    base: LabelPaths,
    over_limit: usize,
}

impl Drafter<'_> {
    /// Adds the metrics that objects of every kind have.
    fn every_object(&mut self, fields: &[Field<'_>]) {
        let name = LabelPaths::from([("name".to_owned(), path(&["metadata", "name"]))]);
        let block = Block { labels_from_path: name, ..Block::default() };
        let help = format!("Names and references of {}.", self.article);
        self.add("info", help, "Info", block, "columns, references and names".to_owned());
        let created = Block { path: path(&["metadata", "creationTimestamp"]), ..Block::default() };
        let help = format!("Unix time of creation of {}.", self.article);
        self.add("created", help, "Gauge", created, ".metadata.creationTimestamp".to_owned());
        if fields.iter().any(|field| field.path.last() == Some(&"observedGeneration")) {
            let generation = Block { path: path(&["metadata", "generation"]), ..Block::default() };
            let help = format!("Generation of the specification of {}.", self.article);
            let origin = ".metadata.generation, beside observedGeneration".to_owned();
            self.add("metadata_generation", help, "Gauge", generation, origin);
        }
    }

    /// Chooses the labels of the Info metric: those of columns first, then references and names.
    fn info_labels(&mut self, fields: &[Field<'_>], columns: &[Column]) {
        for column in columns {
            let Some(segments) = column.segments() else { continue };
            let is_text = match segments.as_slice() {
                ["metadata", "labels" | "annotations", ..] => true,
                ["metadata", ..] => false,
                _ => column.kind == "string" && self.may_be_text(&segments),
            };
            let is_condition = segments.ends_with(&["status"]) && segments.contains(&"conditions");
            if is_text && !is_condition {
                self.label(&segments, Some(&column.title));
            }
        }
        for field in fields.iter().filter(|field| field.elements.is_none()) {
            let FieldValue::Text { in_reference } = field.value else { continue };
            if is_worth_a_label(&field.path, in_reference) {
                self.label(&field.path, None);
            }
        }
    }

    /// True if the schema allows a text at a path.
    fn may_be_text(&self, path: &[&str]) -> bool {
        schema_at(self.schema, path).is_none_or(|schema| match value_of(schema, false) {
            Some(value) => matches!(value, FieldValue::Text { .. }),
            None => schema.get("type").is_none(),
        })
    }

    fn label(&mut self, segments: &[&str], column: Option<&str>) {
        let text = path(segments);
        if self.labels.values().any(|known| known.segments == text.segments) {
            return;
        }
        if too_many_values(&text) {
            let title = column.map_or_else(|| format!(".{}", segments.join(".")), str::to_owned);
            self.left_out.push(format!("{title}, which has too many values for a label"));
            return;
        }
        if self.labels.len() >= MAX_LABELS {
            self.over_limit += 1;
            return;
        }
        let candidates =
            [label_name(segments), joined(segments)].map(|name| valid_name(&name, false));
        let taken = |name: &str| self.labels.contains_key(name) || self.is_base(name);
        self.labels.insert(unique(&candidates, taken), text);
    }

    fn is_base(&self, label: &str) -> bool {
        self.base.contains_key(label)
            || label == "namespace"
            || label.starts_with("customresource_")
    }

    /// Adds the metric of a field, unless it is a text.
    fn field(&mut self, field: &Field<'_>, columns: &[Column]) {
        if matches!(field.value, FieldValue::Text { .. }) {
            return;
        }
        if self.metrics.len() >= MAX_METRICS {
            self.over_limit += 1;
            return;
        }
        let whole = field.whole_path();
        let titles = columns.iter().filter(|column| {
            column.segments().is_some_and(|path| {
                let is_condition = field.value == FieldValue::Conditions
                    && path.starts_with(&whole)
                    && path.last() == Some(&"status");
                is_condition || field.is_at(&path)
            })
        });
        let titles: Vec<&str> = titles.map(|column| column.title.as_str()).collect();
        let of = format!("{} of {}", whole.join("."), self.article);
        let name = joined(&whole);
        let (kind, name, what, block, help) = match &field.value {
            FieldValue::Text { .. } => return,
            FieldValue::Conditions => {
                let block = Block {
                    path: path(&whole),
                    value_from: path(&["status"]),
                    labels_from_path: LabelPaths::from([("condition".to_owned(), path(&["type"]))]),
                    ..Block::default()
                };
                let help =
                    format!("Conditions of {}; 1 is True, 0 is False or Unknown.", self.article);
                ("Gauge", singular(&name), "conditions", block, help)
            }
            FieldValue::Enum(states) => {
                // Members of a map cannot be states.
                if field.elements.as_ref().is_some_and(|outer| outer.keys.is_empty()) {
                    return;
                }
                let help = format!("{of}; 1 for the current value.");
                ("StateSet", name, "enumeration", self.state_set(field, states), help)
            }
            FieldValue::Number => ("Gauge", name, "number", self.gauge(field), format!("{of}.")),
            FieldValue::Boolean => {
                let help = format!("{of}; 1 is true, 0 is false.");
                ("Gauge", name, "boolean", self.gauge(field), help)
            }
            FieldValue::Time => {
                let ends = ["_timestamp", "_time", "_at"];
                let stem = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
                let name = format!("{stem}_timestamp_seconds");
                ("Gauge", name, "time", self.gauge(field), format!("{of} as Unix time."))
            }
        };
        let origin = [&[what][..], titles.as_slice()].concat().join(", ");
        self.add(&name, help, kind, block, format!(".{}: {origin}", whole.join(".")));
    }

    fn state_set(&self, field: &Field<'_>, states: &[&str]) -> Block {
        let last =
            field.path.last().or(field.elements.as_ref().and_then(|outer| outer.path.last()));
        let mut block = self.element_block(field);
        let state = valid_name(&last.map_or_else(|| "state".to_owned(), |last| snake(last)), false);
        let taken = |name: &str| self.is_base(name) || block.labels_from_path.contains_key(name);
        block.label_name = unique(&[state, "state".to_owned()], taken);
        block.list = states.iter().map(|&state| state.to_owned()).collect();
        if field.elements.is_none() {
            block.path = path(&field.path);
        }
        block
    }

    /// Returns the settings for the elements that have a field: path, labels and the path of the value.
    fn element_block(&self, field: &Field<'_>) -> Block {
        let mut block = Block::default();
        let Some(Elements { path: outer, keys }) = &field.elements else { return block };
        block.path = path(outer);
        block.value_from = path(&field.path);
        let element = singular(&snake(outer.last().copied().unwrap_or_default()));
        for key in keys {
            let own = snake(key);
            let candidates = if own == "name" {
                vec![element.clone(), format!("{element}_name")]
            } else {
                vec![own.clone(), format!("{element}_{own}")]
            };
            let candidates: Vec<String> =
                candidates.iter().map(|name| valid_name(name, false)).collect();
            let taken =
                |name: &str| self.is_base(name) || block.labels_from_path.contains_key(name);
            let label = unique(&candidates, taken);
            block.labels_from_path.insert(label, path(&[key]));
        }
        if keys.is_empty() {
            let quantities = ["resources", "capacity", "allocatable", "limits", "requests"];
            let is_resources = outer.last().is_some_and(|last| quantities.contains(last));
            block.label_from_key = if is_resources { "resource" } else { "key" }.to_owned();
        }
        block
    }

    /// Returns the settings of a gauge. A field that objects may lack is selected as `valueFrom` of the nearest map that
    /// they have, where its absence is no value error, unless this would select another field too.
    fn gauge(&self, field: &Field<'_>) -> Block {
        if field.elements.is_some() {
            return self.element_block(field);
        }
        let block = |outer: &[&str], value_from: &[&str]| Block {
            path: path(outer),
            value_from: path(value_from),
            ..Block::default()
        };
        let whole = field.path.as_slice();
        let [top, rest @ ..] = whole else { return Block::default() };
        let is_index = |segment: &&str| segment.starts_with('[') || segment.parse::<i64>().is_ok();
        if !whole.iter().any(is_index) {
            let value = if rest.is_empty() { whole } else { rest };
            if value.first().is_some_and(|first| !is_metadata(first))
                && selects_one(self.schema, top, value)
            {
                return block(&[], value);
            }
            let within = properties(self.schema).find(|(name, _)| name == top);
            if let (Some((_, members)), [second, deeper @ ..]) = (within, rest) {
                let value = if deeper.is_empty() { rest } else { deeper };
                if selects_one(members, second, value) {
                    return block(&[top], value);
                }
            }
        }
        block(whole, &[])
    }

    /// Adds an Info metric for each list of references.
    fn references(&mut self, fields: &[Field<'_>]) {
        let mut lists: Vec<(&Elements<'_>, Vec<&str>)> = Vec::new();
        for field in fields {
            let (Some(elements), [member]) = (&field.elements, field.path.as_slice()) else {
                continue;
            };
            if !matches!(field.value, FieldValue::Text { in_reference: true }) {
                continue;
            }
            match lists.iter_mut().find(|(known, _)| known.path == elements.path) {
                Some((_, members)) => members.push(member),
                None => lists.push((elements, vec![member])),
            }
        }
        for (elements, members) in lists {
            let last = elements.path.last().copied().unwrap_or_default();
            let target = singular(&snake(referent(last)));
            let mut block = Block { path: path(&elements.path), ..Block::default() };
            for member in members {
                let label = valid_name(&format!("{target}_{}", snake(member)), false);
                let label = unique(&[label], |name| self.is_base(name));
                block.labels_from_path.insert(label, path(&[member]));
            }
            let shown = elements.path.join(".");
            let help = format!("Objects in .{shown} of {}.", self.article);
            let name = format!("{}_info", joined(&elements.path));
            self.add(&name, help, "Info", block, format!(".{shown}: references"));
        }
    }

    fn add(&mut self, name: &str, help: String, kind: &'static str, block: Block, origin: String) {
        if self.metrics.len() >= MAX_METRICS {
            self.over_limit += 1;
            return;
        }
        let known: BTreeSet<&str> =
            self.metrics.iter().map(|metric| metric.name.as_str()).collect();
        let name = unique(&[format!("{}_{name}", self.word)], |name| known.contains(name));
        let labels = LabelPaths::new();
        self.metrics.push(MetricDraft { name, help, kind, block, labels, origin });
    }
}

/// Returns a kind with its article: a Certificate, an Issuer, an HTTPRoute.
fn article(kind: &str) -> String {
    let is_spelt = kind.chars().nth(1).is_some_and(|c| c.is_ascii_uppercase());
    let vowels = if is_spelt { "AEFHILMNORSX" } else { "AEIO" };
    let is_vowel = kind.starts_with(|c: char| vowels.contains(c.to_ascii_uppercase()));
    format!("{} {kind}", if is_vowel { "an" } else { "a" })
}

/// The members of a reference that identify the object.
const REFERENCE: [&str; 3] = ["kind", "name", "namespace"];

/// True if, of all members of a map, `value` selects the one that `member` names or has, and nothing in another.
fn selects_one(map: &Value, member: &str, value: &[&str]) -> bool {
    let is_single = |name: &str| value.len() == 1 && value.first() == Some(&name);
    let is_open = map.get("type").and_then(Value::as_str) != Some("object")
        || map.get("x-kubernetes-preserve-unknown-fields").is_some()
        || map.get("additionalProperties").is_some();
    let mut others = properties(map).filter(|(name, _)| *name != member);
    let is_nested = !is_single(member)
        || properties(map).any(|(name, own)| name == member && !may_have(own, value));
    !is_open && is_nested && !others.any(|(name, other)| is_single(name) || may_have(other, value))
}

/// True if a text identifies something, and has few values over time.
fn is_worth_a_label(path: &[&str], in_reference: bool) -> bool {
    let [.., parent, last] = path else { return false };
    if in_reference || referent(parent) != *parent {
        return REFERENCE.contains(last);
    }
    let name = snake(last);
    let words = ["class", "phase", "state", "type", "version", "provider", "region", "zone"];
    words.contains(&name.as_str())
        || ["_name", "_class", "_version"].iter().any(|end| name.ends_with(end))
}

/// Returns the short name of a label: without the top-level member, and without the suffix of a reference.
fn label_name(path: &[&str]) -> String {
    match path {
        ["metadata", "labels" | "annotations", key] => {
            joined(&[key.rsplit('/').next().unwrap_or(key)])
        }
        ["spec" | "status", rest @ ..] if !rest.is_empty() => {
            let parts: Vec<&str> = rest.iter().map(|part| referent(part)).collect();
            joined(parts.get(parts.len().saturating_sub(2)..).unwrap_or_default())
        }
        path => joined(path),
    }
}
