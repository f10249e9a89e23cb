//! Finds the values of a schema that metrics can show.
//!
//! The walk follows no `$ref`, which definitions must not have, and ends at a small depth and after a number of fields.

use serde_json::Value;

use super::column::is_member;

/// The maximum depth of a field of the specification.
const MAX_SPEC_DEPTH: usize = 3;

/// The maximum depth of other fields.
const MAX_DEPTH: usize = 4;

/// The maximum number of schema nodes of a kind that are visited.
const MAX_NODES: usize = 10_000;

/// The maximum number of states of an enumeration; each is a series for each object.
const MAX_STATES: usize = 16;

/// A field of the objects of a kind.
#[derive(Clone, Debug)]
pub(super) struct Field<'s> {
    /// The list or map whose elements have the field.
    pub(super) elements: Option<Elements<'s>>,
    /// The path, within an element if there is such a list or map.
    pub(super) path: Vec<&'s str>,
    /// The type.
    pub(super) value: FieldValue<'s>,
}

/// A list or map with a series for each element.
#[derive(Clone, Debug)]
pub(super) struct Elements<'s> {
    /// The path within an object.
    pub(super) path: Vec<&'s str>,
    /// The members that identify an item of a list; empty for a map, whose keys do.
    pub(super) keys: Vec<&'s str>,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldValue<'s> {
    /// A number or a quantity.
    Number,
    /// True or false.
    Boolean,
    /// A timestamp.
    Time,
    /// A text of few possible values.
    Enum(Vec<&'s str>),
    /// Any other text.
    Text {
        /// True if it is a member of a reference to another object.
        in_reference: bool,
    },
    /// A list of conditions.
    Conditions,
}

/// The fields found in a schema.
#[derive(Debug, Default)]
pub(super) struct Fields<'s> {
    /// The fields, status first.
    pub(super) found: Vec<Field<'s>>,
    /// True if the schema has more nodes than are visited.
    pub(super) is_cut: bool,
    nodes: usize,
}

impl<'s> Fields<'s> {
    /// Finds the fields of objects with this schema.
    pub(super) fn of(schema: &'s Value) -> Self {
        let mut fields = Self::default();
        let mut members: Vec<(&str, &Value)> = properties(schema).collect();
        // Metrics beyond the limit are left out: what the controller reports comes first.
        members.sort_by_key(|(name, _)| match *name {
            "status" => 0,
            "spec" => 2,
            _ => 1,
        });
        for (name, member) in members {
            if !matches!(name, "apiVersion" | "kind" | "metadata") {
                fields.visit(member, &mut vec![name], None, false);
            }
        }
        fields
    }

    fn visit(
        &mut self,
        schema: &'s Value,
        path: &mut Vec<&'s str>,
        elements: Option<&Elements<'s>>,
        in_reference: bool,
    ) {
        self.nodes += 1;
        self.is_cut |= self.nodes > MAX_NODES;
        if self.is_cut || path.last().is_some_and(|name| !is_member(name)) {
            return;
        }
        if let Some(value) = value_of(schema, in_reference) {
            // An element has no other name than its key.
            let is_text = value == FieldValue::Text { in_reference };
            // Some controllers report it as a text.
            let is_generation = is_text && path.last() == Some(&"observedGeneration");
            let value = if is_generation { FieldValue::Number } else { value };
            if !is_text || !path.is_empty() {
                let field = Field { elements: elements.cloned(), path: path.clone(), value };
                self.found.push(field);
            }
            return;
        }
        let root = elements.map_or(&*path, |elements| &elements.path).first();
        let max = if root == Some(&"spec") { MAX_SPEC_DEPTH } else { MAX_DEPTH };
        let depth = path.len() + elements.map_or(0, |elements| elements.path.len() - 1);
        if depth >= max {
            return;
        }
        if schema.get("type").and_then(Value::as_str) == Some("array") {
            if elements.is_none() {
                self.visit_items(schema, path);
            }
            return;
        }
        let is_reference =
            ["name", "kind"].iter().all(|key| properties(schema).any(|(name, _)| name == *key));
        // The fields of a template of pods are those of the pods.
        if schema.pointer("/properties/spec/properties/containers").is_some() {
            return;
        }
        for (name, member) in properties(schema) {
            path.push(name);
            self.visit(member, path, elements, is_reference);
            path.pop();
        }
        let rest = schema.get("additionalProperties").filter(|rest| rest.is_object());
        if let Some(rest) = rest.filter(|_| elements.is_none()) {
            let elements = Elements { path: path.clone(), keys: Vec::new() };
            self.visit(rest, &mut Vec::new(), Some(&elements), false);
        }
    }

    fn visit_items(&mut self, schema: &'s Value, path: &[&'s str]) {
        let Some(items) = schema.get("items") else { return };
        let has = |key: &str| properties(items).any(|(name, _)| name == key);
        if has("type") && has("status") && path.last() == Some(&"conditions") {
            let value = FieldValue::Conditions;
            self.found.push(Field { elements: None, path: path.to_vec(), value });
            return;
        }
        let texts = |value: Option<&'s Value>| -> Vec<&'s str> {
            let list = value.and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).collect()
        };
        let mut keys = texts(schema.get("x-kubernetes-list-map-keys"));
        if keys.is_empty() && texts(items.get("required")).contains(&"name") {
            keys.push("name");
        }
        keys.retain(|key| has(key) && is_member(key));
        if keys.is_empty() {
            return;
        }
        let first = self.found.len();
        let elements = Elements { path: path.to_vec(), keys };
        self.visit(items, &mut Vec::new(), Some(&elements), false);
        if has("name") && has("kind") {
            // A list may refer to one object several times, so that only all members together are unique.
            let members = self.found.split_off(first);
            let members = members.into_iter().filter(|field| field.path.len() == 1);
            let value = FieldValue::Text { in_reference: true };
            self.found.extend(members.map(|field| Field { value: value.clone(), ..field }));
        }
    }
}

/// Returns the type of a value; `None` if it is a map, a list or anything.
pub(super) fn value_of(schema: &Value, in_reference: bool) -> Option<FieldValue<'_>> {
    let word = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        // Others can be names of ports, or percentages next to numbers.
        return word("pattern").contains("numkMGTPE").then_some(FieldValue::Number);
    }
    match (word("type"), word("format")) {
        ("integer" | "number", _) => Some(FieldValue::Number),
        ("boolean", _) => Some(FieldValue::Boolean),
        ("string", "date-time") => Some(FieldValue::Time),
        ("string", "byte" | "password") => None,
        ("string", _) => {
            let states = schema.get("enum").and_then(Value::as_array);
            let mut states: Vec<&str> =
                states.into_iter().flatten().filter_map(Value::as_str).collect();
            states.retain(|state| !state.is_empty());
            states.sort_unstable();
            states.dedup();
            if states.is_empty() || states.len() > MAX_STATES {
                Some(FieldValue::Text { in_reference })
            } else {
                Some(FieldValue::Enum(states))
            }
        }
        _ => None,
    }
}

/// Returns the named members of a schema.
pub(super) fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let members = schema.get("properties").and_then(Value::as_object);
    members.into_iter().flatten().map(|(name, member)| (name.as_str(), member))
}

/// True if a value with this schema may have a member at this path.
pub(super) fn may_have(schema: &Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let is = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let member = properties(schema).find(|(name, _)| name == first);
    let others = schema.get("additionalProperties");
    match (member, schema.get("type").and_then(Value::as_str)) {
        (Some((_, member)), _) => may_have(member, rest),
        (None, Some("array")) => first.parse::<i64>().is_ok(),
        (None, Some("object")) => {
            is("x-kubernetes-preserve-unknown-fields")
                || others.is_some_and(|others| others == &Value::Bool(true) || others.is_object())
        }
        (None, type_) => type_.is_none() && !is("x-kubernetes-int-or-string"),
    }
}

/// Returns the schema of the value that a path selects; `None` if the schema does not tell.
pub(super) fn schema_at<'s>(schema: &'s Value, path: &[&str]) -> Option<&'s Value> {
    path.iter().try_fold(schema, |at, segment| {
        let is_item = segment.starts_with('[') || segment.parse::<i64>().is_ok();
        let member = properties(at).find(|(name, _)| name == segment).map(|(_, member)| member);
        let others = || at.get("additionalProperties").filter(|others| others.is_object());
        member.or_else(others).or_else(|| at.get("items").filter(|_| is_item))
    })
}
