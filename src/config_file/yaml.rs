//! A YAML document as a tree of nodes with source positions.
//!
//! serde's data model loses what the rules of the files need (the source text of a number, whether a scalar was quoted,
//! the position of every key), so this builds on the parser's events. It implements YAML 1.1 as both originals read it:
//! the first document only, anchors, aliases, and merge keys that also merge nested maps.

use std::collections::{HashMap, HashSet};

use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::problem::{Position, Problem, ProblemClass};
use super::scalar::{Resolved, resolve};

/// The number of nodes that alias expansion may add beyond [`GROWTH`] times the file's own nodes.
const ALIAS_ALLOWANCE: usize = 1_000_000;
const GROWTH: usize = 20;

/// The index of a node.
type NodeId = usize;

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) value: Value,
    /// The number of nodes in this subtree, this node included and aliases expanded.
    size: usize,
}

impl Node {
    /// True if it is an unquoted null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(Scalar { text, notation: Notation::Plain })
            if resolve(text) == Resolved::Null)
    }

    /// Returns the problem that `what` has another type than `wanted`. The message has quotes around an unquoted scalar if
    /// it has characters that would not be seen.
    pub(crate) fn type_mismatch(&self, what: &str, wanted: &str) -> Problem {
        let got = match &self.value {
            Value::Scalar(Scalar { text, notation }) => {
                let quoted = format!("{text:?}");
                let is_visible = quoted.len() == text.len() + 2;
                let is_plain = *notation == Notation::Plain && is_visible;
                if is_plain { text.clone() } else { quoted }
            }
            Value::Sequence(_) => "a list".to_owned(),
            Value::Mapping(_) => "a map".to_owned(),
        };
        let (message, hint) = (format!("{what} is {got}"), format!("write {wanted}"));
        Problem::error(ProblemClass::YamlType, self.position, message, hint)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar(Scalar),
    Sequence(Vec<NodeId>),
    Mapping(Vec<(NodeId, NodeId)>),
}

/// A scalar: its text and notation.
#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    pub(crate) notation: Notation,
}

/// The notation of a scalar, which decides if its text determines its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// Unquoted: null, boolean, number or string, depending on the text.
    Plain,
    /// Quoted, a block scalar, or tagged `!!str`.
    Text,
    /// A tag that is not one of YAML's own for scalars.
    Tagged(String),
}

/// The first document of a file.
#[derive(Debug)]
pub(crate) struct Document {
    nodes: Vec<Node>,
    root: Option<NodeId>,
    /// Duplicate keys.
    pub(crate) duplicates: Vec<Problem>,
}

impl Document {
    /// Parses the first document.
    ///
    /// # Errors
    /// The first syntax error.
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        check_characters(text)?;
        let mut composer = Composer::default();
        for item in Parser::new_from_str(text) {
            let (event, span) = item.map_err(|error| {
                let message = format!("not YAML: {}", error.info());
                let hint = "check indentation, quotes and brackets";
                syntax_error(position(*error.marker()), message, hint)
            })?;
            if matches!(event, Event::DocumentEnd) {
                break;
            }
            composer.take(event, span, text)?;
        }
        Ok(Self { nodes: composer.nodes, root: composer.root, duplicates: composer.duplicates })
    }

    pub(crate) fn root(&self) -> Option<&Node> {
        self.root.and_then(|root| self.nodes.get(root))
    }

    /// Returns the keys and values of a map; `None` if the node is not a map.
    pub(crate) fn pairs(&self, node: &Node) -> Option<Vec<(&Node, &Node)>> {
        let Value::Mapping(pairs) = &node.value else { return None };
        let pair = |&(key, value): &(NodeId, NodeId)| Some((self.node(key)?, self.node(value)?));
        Some(pairs.iter().filter_map(pair).collect())
    }

    /// Returns the items of a list; `None` if the node is not a list.
    pub(crate) fn items(&self, node: &Node) -> Option<Vec<&Node>> {
        let Value::Sequence(items) = &node.value else { return None };
        Some(items.iter().filter_map(|&id| self.node(id)).collect())
    }

    /// Returns a node by id. Ids come from this document, so the node always exists.
    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line() as u64, column: marker.col() as u64 + 1 }
}

/// Rejects control characters other than tab, line feed, carriage return and NEL, as YAML 1.1 does.
fn check_characters(text: &str) -> Result<(), Problem> {
    let allowed = |c: char| {
        matches!(c, '\t' | '\n' | '\r' | '\u{85}')
            || !(c.is_control() || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}'))
    };
    let Some((offset, character)) = text.char_indices().find(|&(_, c)| !allowed(c)) else {
        return Ok(());
    };
    let before = text.get(..offset).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |position| position + 1);
    let position = Position {
        line: before.matches('\n').count() as u64 + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() as u64 + 1,
    };
    let message = format!("control character {character:?}");
    Err(syntax_error(position, message, "remove it, or write it as an escape in quotes"))
}

fn syntax_error(position: Position, message: impl Into<String>, hint: &str) -> Problem {
    Problem::error(ProblemClass::YamlSyntax, position, message.into(), hint)
}

/// Builds nodes from parser events, innermost first.
#[derive(Default)]
struct Composer {
    nodes: Vec<Node>,
    root: Option<NodeId>,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, NodeId>,
    duplicates: Vec<Problem>,
}

/// A collection whose end has not been parsed yet.
struct OpenCollection {
    position: Position,
    anchor: usize,
    children: Vec<NodeId>,
    mapping: bool,
}

impl Composer {
    /// Processes one event; `text` is the source.
    fn take(&mut self, event: Event<'_>, span: Span, text: &str) -> Result<(), Problem> {
        let position = position(span.start);
        match event {
            Event::Scalar(value, style, anchor, tag) => {
                let is_key = self
                    .open
                    .last()
                    .is_some_and(|open| open.mapping && open.children.len().is_multiple_of(2));
                if is_key && anchor == 0 && tag.is_none() && is_missing_key(style, &span, text) {
                    let hint = "write the key before the colon; an empty one is \"\"";
                    let message = "not YAML: a key is missing before the colon";
                    return Err(syntax_error(position, message, hint));
                }
                let notation = notation(style, tag.as_deref());
                let id = self.push(
                    position,
                    Value::Scalar(Scalar { text: value.into_owned(), notation }),
                    1,
                );
                self.anchors.insert(anchor, id);
                self.attach(id)
            }
            Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _) => {
                let mapping = matches!(event, Event::MappingStart(..));
                self.open.push(OpenCollection { position, anchor, children: Vec::new(), mapping });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let id = if open.mapping {
                    self.mapping(open.position, &open.children)?
                } else {
                    self.sequence(&open)
                };
                self.anchors.insert(open.anchor, id);
                self.attach(id)
            }
            Event::Alias(anchor) => {
                // An anchor whose node is still open cannot be referenced yet.
                let Some(&id) = self.anchors.get(&anchor) else {
                    let hint = "an alias must not stand inside the value it repeats";
                    return Err(syntax_error(position, "alias contains itself", hint));
                };
                self.attach(id)
            }
            _ => Ok(()),
        }
    }

    fn push(&mut self, position: Position, value: Value, size: usize) -> NodeId {
        self.nodes.push(Node { position, value, size });
        self.nodes.len() - 1
    }

    /// Adds a finished node to the enclosing collection.
    fn attach(&mut self, id: NodeId) -> Result<(), Problem> {
        match self.open.last_mut() {
            Some(open) => open.children.push(id),
            None => self.root = Some(id),
        }
        let Some(node) = self.nodes.get(id) else { return Ok(()) };
        if node.size > ALIAS_ALLOWANCE.saturating_add(self.nodes.len().saturating_mul(GROWTH)) {
            let hint = "repeat less with aliases";
            return Err(syntax_error(node.position, "excessive aliasing", hint));
        }
        Ok(())
    }

    fn size_of(&self, ids: impl Iterator<Item = NodeId>) -> usize {
        ids.filter_map(|id| self.nodes.get(id)).fold(1, |sum, node| sum.saturating_add(node.size))
    }

    fn sequence(&mut self, open: &OpenCollection) -> NodeId {
        let size = self.size_of(open.children.iter().copied());
        self.push(open.position, Value::Sequence(open.children.clone()), size)
    }

    fn mapping(&mut self, position: Position, children: &[NodeId]) -> Result<NodeId, Problem> {
        let mut seen = HashSet::new();
        let (mut entries, mut merged): (Vec<(NodeId, NodeId)>, Vec<NodeId>) =
            (Vec::new(), Vec::new());
        for pair in children.chunks_exact(2) {
            let &[key, value] = pair else { continue };
            let Some(key_node) = self.nodes.get(key) else { continue };
            match &key_node.value {
                Value::Scalar(scalar)
                    if scalar.text == "<<" && scalar.notation == Notation::Plain =>
                {
                    merged.extend(self.merge_sources(value, key_node.position)?);
                }
                Value::Scalar(scalar) => {
                    if !seen.insert(scalar.text.clone()) {
                        self.duplicates.push(Problem::error(
                            ProblemClass::DuplicateKey,
                            key_node.position,
                            format!("key {:?} occurs twice", scalar.text),
                            "keep one of them",
                        ));
                    }
                    entries.push((key, value));
                }
                _ => {
                    let (message, hint) = ("a list or map as a key", "only text can be a key here");
                    let (class, position) = (ProblemClass::YamlType, key_node.position);
                    return Err(Problem::error(class, position, message.to_owned(), hint));
                }
            }
        }
        for source in merged {
            entries = self.merge(&entries, source);
        }
        let size = self.size_of(entries.iter().flat_map(|&(key, value)| [key, value]));
        Ok(self.push(position, Value::Mapping(entries), size))
    }

    /// Returns the mappings under a `<<` key, highest precedence first.
    fn merge_sources(&self, value: NodeId, position: Position) -> Result<Vec<NodeId>, Problem> {
        let is_mapping = |id: &NodeId| {
            self.nodes.get(*id).is_some_and(|node| matches!(node.value, Value::Mapping(_)))
        };
        let sources = match self.nodes.get(value).map(|node| &node.value) {
            Some(Value::Mapping(_)) => vec![value],
            Some(Value::Sequence(items)) => items.clone(),
            _ => Vec::new(),
        };
        if sources.is_empty() || !sources.iter().all(is_mapping) {
            let message = "<< must be followed by a map or a list of maps";
            return Err(syntax_error(position, message, "merge aliases, as in <<: *base"));
        }
        Ok(sources)
    }

    /// Returns `entries` plus those that only `source` has; maps in both are merged recursively.
    fn merge(&mut self, entries: &[(NodeId, NodeId)], source: NodeId) -> Vec<(NodeId, NodeId)> {
        let mut result = entries.to_vec();
        let Some(Value::Mapping(inherited)) = self.nodes.get(source).map(|node| node.value.clone())
        else {
            return result;
        };
        let key_text = |nodes: &[Node], id: NodeId| match nodes.get(id).map(|node| &node.value) {
            Some(Value::Scalar(scalar)) => scalar.text.clone(),
            _ => String::new(),
        };
        let positions: HashMap<String, usize> = entries
            .iter()
            .enumerate()
            .map(|(at, &(key, _))| (key_text(&self.nodes, key), at))
            .collect();
        for (key, value) in inherited {
            let Some(&at) = positions.get(&key_text(&self.nodes, key)) else {
                result.push((key, value));
                continue;
            };
            let Some(own) = entries.get(at).map(|&(_, own)| own) else { continue };
            let both =
                (self.nodes.get(own).cloned(), self.nodes.get(value).map(|node| &node.value));
            if let (
                Some(Node { position, value: Value::Mapping(below), .. }),
                Some(Value::Mapping(_)),
            ) = both
            {
                let joined = self.merge(&below, value);
                let size = self.size_of(joined.iter().flat_map(|&(key, value)| [key, value]));
                let id = self.push(position, Value::Mapping(joined), size);
                if let Some(entry) = result.get_mut(at) {
                    entry.1 = id;
                }
            }
        }
        result
    }
}

/// True if a key is missing entirely, without even a `?`, which YAML 1.2 reads as null and YAML 1.1 rejects.
fn is_missing_key(style: ScalarStyle, span: &Span, text: &str) -> bool {
    let before = || text.get(..span.start.byte_offset()?).map(str::trim_end);
    style == ScalarStyle::Plain
        && span.start == span.end
        && before().is_some_and(|before| !before.ends_with('?'))
}

fn notation(style: ScalarStyle, tag: Option<&Tag>) -> Notation {
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain { Notation::Plain } else { Notation::Text };
    };
    match (tag.handle(), tag.suffix()) {
        ("tag:yaml.org,2002:", "str") | ("!" | "", "!" | "") => Notation::Text,
        ("tag:yaml.org,2002:", "int" | "float" | "bool" | "null") => Notation::Plain,
        (handle, suffix) => Notation::Tagged(format!("{handle}{suffix}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from the original, with each text as a mapping file.
    #[test]
    fn a_key_may_be_empty_but_not_missing() {
        let is_read = |text: &str| Document::parse(text).is_ok();
        for text in [": x", "{: {a: b}}", "a:\n  : x\n  b: y", "ä: {b: x, : y}", "- : x"] {
            assert!(!is_read(text), "{text}");
        }
        for text in
            ["~: x", "\"\": x", "a:\n  ? \n  : x", "ä: {? : y}", "!!str : x", "&a : x", "- "]
        {
            assert!(is_read(text), "{text}");
        }
    }
}
