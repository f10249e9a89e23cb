//! The possible content of the objects of a kind, from the structural schema of its definition: unknown members do not
//! exist, because the API server prunes them.
//!
//! Where a schema is open (`x-kubernetes-preserve-unknown-fields`, or no type at all), anything is possible.

use std::collections::BTreeMap;

use serde_json::Value;

use super::path::{Path, Visit};

/// The maximum depth of a schema; deeper parts are treated as open. The API server rejects schemas near this depth.
const MAX_DEPTH: usize = 64;

/// The possible content of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A value of any type.
    Any,
    /// A map of named members, and optionally of other members with one shape.
    Map(BTreeMap<String, Shape>, Option<Box<Shape>>),
    /// A list whose items have this shape.
    List(Box<Shape>),
    /// Neither a map nor a list.
    Scalar(Scalar),
}

/// The possible content of a scalar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scalar {
    /// True if it can be a string.
    pub text: bool,
    /// True if it is a timestamp.
    pub time: bool,
    /// All possible values of an enumeration; empty if it is not one.
    pub texts: Vec<String>,
}

/// The end of a path that can never select a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeadEnd {
    /// The index of the segment that selects nothing.
    pub(super) segment: usize,
    /// The existing members, if the value is a map.
    pub(super) members: Vec<String>,
    /// The description of the value.
    pub(super) what: &'static str,
}

impl Shape {
    /// Returns the shape of objects with this `openAPIV3Schema`; `None` for a definition without one.
    pub fn of_objects(schema: Option<&Value>) -> Self {
        let Some(schema) = schema.filter(|schema| schema.is_object()) else { return Self::Any };
        let mut shape = Self::of(schema, 0);
        shape.embed();
        shape
    }

    fn of(schema: &Value, depth: usize) -> Self {
        let is = |key: &str| schema.get(key).and_then(Value::as_bool) == Some(true);
        if depth > MAX_DEPTH {
            return Self::Any;
        }
        if is("x-kubernetes-int-or-string") {
            return Self::Scalar(Scalar { text: true, ..Scalar::default() });
        }
        let nested = |schema: &Value| Self::of(schema, depth + 1);
        let word = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
        match word("type") {
            "object" => {
                let open = is("x-kubernetes-preserve-unknown-fields");
                let properties = schema.get("properties").and_then(Value::as_object);
                let members = properties.into_iter().flatten();
                let members = members.map(|(key, schema)| (key.clone(), nested(schema))).collect();
                let rest = match schema.get("additionalProperties") {
                    _ if open => Some(Self::Any),
                    Some(Value::Bool(true)) => Some(Self::Any),
                    Some(schema @ Value::Object(_)) => Some(nested(schema)),
                    _ => None,
                };
                let mut shape = Self::Map(members, rest.map(Box::new));
                if is("x-kubernetes-embedded-resource") {
                    shape.embed();
                }
                shape
            }
            "array" => Self::List(Box::new(schema.get("items").map_or(Self::Any, nested))),
            "string" => {
                let texts = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
                let texts = texts.filter_map(Value::as_str).map(str::to_owned).collect();
                let time = word("format") == "date-time";
                Self::Scalar(Scalar { text: true, time, texts })
            }
            "integer" | "number" | "boolean" => Self::Scalar(Scalar::default()),
            _ => Self::Any,
        }
    }

    /// Adds the members that every object has, independent of its schema.
    fn embed(&mut self) {
        if let Self::Map(members, _) = self {
            for key in ["apiVersion", "kind"] {
                members.insert(key.to_owned(), text());
            }
            members.insert("metadata".to_owned(), metadata());
        }
    }

    /// Returns the shapes of a map's values, or of a list's items.
    pub(super) fn elements(&self) -> Vec<&Self> {
        match self {
            Self::Any => vec![self],
            Self::Map(members, rest) => members.values().chain(rest.as_deref()).collect(),
            Self::List(items) => vec![items],
            Self::Scalar(_) => Vec::new(),
        }
    }

    fn visit(&self, visit: &Visit<'_>) -> Option<&Self> {
        match (self, visit) {
            (Self::Any, _) => Some(self),
            (Self::Map(members, rest), Visit::Key(key)) => members.get(*key).or(rest.as_deref()),
            (Self::List(items), Visit::Element) => Some(items),
            (Self::List(items), Visit::ElementWith(key)) => {
                items.visit(&Visit::Key(key)).map(|_| &**items)
            }
            _ => None,
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Map(..) => "a map",
            Self::List(_) => "a list",
            Self::Scalar(_) => "neither map nor list",
        }
    }
}

/// Returns the shapes that `path` may select, starting from any of `starts`.
///
/// # Errors
/// The end of the path, if it can never select a value.
pub(super) fn follow<'s>(starts: Vec<&'s Shape>, path: &Path) -> Result<Vec<&'s Shape>, DeadEnd> {
    let mut at = starts;
    for (segment, visits) in path.visits().iter().enumerate() {
        let mut next: Vec<&Shape> = Vec::new();
        for shape in at.iter().flat_map(|shape| visits.iter().filter_map(|one| shape.visit(one))) {
            if !next.iter().any(|known| std::ptr::eq(*known, shape)) {
                next.push(shape);
            }
        }
        if next.is_empty() {
            let maps = at.iter().filter_map(|shape| match shape {
                Shape::Map(members, _) => Some(members.keys().cloned()),
                Shape::List(items) => match &**items {
                    Shape::Map(members, _) => Some(members.keys().cloned()),
                    _ => None,
                },
                _ => None,
            });
            let members = maps.flatten().collect();
            let what = at.first().map_or("nothing", |shape| shape.what());
            return Err(DeadEnd { segment, members, what });
        }
        at = next;
    }
    Ok(at)
}

fn text() -> Shape {
    Shape::Scalar(Scalar { text: true, ..Scalar::default() })
}

/// Returns true for a member of the metadata of every object.
pub fn is_metadata(name: &str) -> bool {
    matches!(metadata(), Shape::Map(members, _) if members.contains_key(name))
}

/// Returns the ObjectMeta of apimachinery 0.36.
fn metadata() -> Shape {
    let time = Shape::Scalar(Scalar { text: true, time: true, texts: Vec::new() });
    let number = || Shape::Scalar(Scalar::default());
    let texts = Shape::Map(BTreeMap::new(), Some(Box::new(text())));
    // Each shape has the names of its members, separated by blanks.
    let map = |shapes: &[(&str, Shape)]| {
        let members = shapes.iter().flat_map(|(names, shape)| {
            names.split(' ').map(|name| (name.to_owned(), shape.clone()))
        });
        Shape::Map(members.collect(), None)
    };
    let owner =
        map(&[("apiVersion kind name uid", text()), ("blockOwnerDeletion controller", number())]);
    map(&[
        ("generateName name namespace resourceVersion selfLink uid", text()),
        ("creationTimestamp deletionTimestamp", time),
        ("deletionGracePeriodSeconds generation", number()),
        ("annotations labels", texts),
        ("finalizers", Shape::List(Box::new(text()))),
        ("ownerReferences", Shape::List(Box::new(owner))),
        ("managedFields", Shape::Any),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_the_schema_lets_them() {
        let schema = serde_json::json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "replicas": {"type": "integer"},
                "port": {"x-kubernetes-int-or-string": true},
                "limits": {"type": "object", "additionalProperties": {"type": "object", "properties": {"cpu": {"type": "string"}}}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "integer"}}},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
                "lists": {"type": "array", "items": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}}},
            }},
        }});
        let shape = Shape::of_objects(Some(&schema));
        for (path, end) in [
            ("", None),
            ("spec replicas", None),
            ("spec replcias", Some(1)),
            ("spec replicas x", Some(2)),
            ("spec replicas 0", Some(2)),
            ("spec port", None),
            ("spec limits a cpu", None),
            ("spec limits a mem", Some(3)),
            ("spec open b c", None),
            ("spec open known c", Some(3)),
            ("spec any 3 c", None),
            ("spec template metadata name", None),
            ("spec template spec x", Some(3)),
            ("spec lists 0 [id=3] id", None),
            ("spec lists -1 0 name", Some(4)),
            ("spec lists [id=3]", Some(2)),
            ("spec lists 0 [name=3]", Some(3)),
            ("spec replicas=3", None),
            ("spec limits a=b", None),
            ("metadata labels x/y", None),
            ("metadata label", Some(1)),
            ("metadata ownerReferences [kind=Node] name", None),
            ("status", Some(0)),
        ] {
            let segments: Vec<String> = path.split_whitespace().map(str::to_owned).collect();
            let compiled = Path::compile(&segments).expect(path);
            let found = follow(vec![&shape], &compiled);
            assert_eq!(found.err().map(|dead| dead.segment), end, "{path}");
            assert!(follow(vec![&Shape::of_objects(None)], &compiled).is_ok(), "{path}");
        }
    }
}
