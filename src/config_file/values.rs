//! Typed access to the values of a tree. A value of the wrong type is reported with its position and treated as absent.
//!
//! The accepted notations follow Go's YAML library: a quoted number is a string, and a boolean may use any YAML 1.1
//! word. Types that only one file has are read by the file's owner, from [`Values::scalar`].

use super::problem::{Position, Problem, ProblemClass};
use super::scalar::{Resolved, resolve};
use super::yaml::{Document, Node, Notation, Value};

/// A key with its position, and its value.
pub(crate) type Entry<'d> = ((&'d str, Position), &'d Node);

const BINARY: &str = "tag:yaml.org,2002:binary";

/// A reader of the values of a document that collects type errors.
pub(crate) struct Values<'d> {
    document: &'d Document,
    /// Problems: first duplicate keys, then others in the order in which values were read.
    pub(crate) problems: Vec<Problem>,
}

impl<'d> Values<'d> {
    pub(crate) fn new(document: &'d Document) -> Self {
        Self { document, problems: document.duplicates.clone() }
    }

    /// Returns the entries of a map; `None` if it is null or (reported) not a map.
    pub(crate) fn entries(
        &mut self,
        node: &Node,
        what: &str,
        wanted: &str,
    ) -> Option<Vec<Entry<'d>>> {
        let pairs = self.document.pairs(node);
        if pairs.is_none() && !node.is_null() {
            self.report_type(node, what, wanted);
        }
        let entry = |(key, value): (&'d Node, _)| match &key.value {
            Value::Scalar(scalar) => Some(((scalar.text.as_str(), key.position), value)),
            // The tree has only scalar keys.
            _ => None,
        };
        Some(pairs?.into_iter().filter_map(entry).collect())
    }

    /// Returns the items of a list; `None` if it is null or (reported) not a list.
    pub(crate) fn items(&mut self, node: &Node, what: &str) -> Option<Vec<&'d Node>> {
        let items = self.document.items(node);
        if items.is_none() && !node.is_null() {
            self.report_type(node, what, "a list, such as [a, b]");
        }
        items
    }

    /// Returns the text of a scalar and its unquoted type ([`Resolved::Text`] if quoted); `None` if it is null or
    /// (reported) not a scalar.
    pub(crate) fn scalar<'n>(
        &mut self,
        node: &'n Node,
        what: &str,
        wanted: &str,
    ) -> Option<(&'n str, Resolved)> {
        let resolved = match &node.value {
            Value::Scalar(scalar) => match &scalar.notation {
                Notation::Tagged(tag) if tag == BINARY => None,
                Notation::Text => Some((scalar.text.as_str(), Resolved::Text)),
                Notation::Plain | Notation::Tagged(_) => {
                    Some((scalar.text.as_str(), resolve(&scalar.text)))
                }
            },
            _ => None,
        };
        if resolved.is_none() {
            self.report_type(node, what, wanted);
        }
        resolved.filter(|(_, resolved)| *resolved != Resolved::Null)
    }

    /// Reads a scalar with `convert`, which gets its text and unquoted type; `None` if it is null or (reported) cannot be
    /// converted.
    pub(crate) fn read<T>(
        &mut self,
        node: &Node,
        what: &str,
        wanted: &str,
        convert: impl FnOnce(&str, Resolved) -> Option<T>,
    ) -> Option<T> {
        let (text, resolved) = self.scalar(node, what, wanted)?;
        let value = convert(text, resolved);
        if value.is_none() {
            self.report_type(node, what, wanted);
        }
        value
    }

    /// Reads a string in the notation of the file: `1.50` is the string "1.50".
    pub(crate) fn text(&mut self, node: &Node, what: &str) -> Option<String> {
        self.scalar(node, what, "a text").map(|(text, _)| text.to_owned())
    }

    /// Reads a boolean in any YAML 1.1 notation. Words that are not booleans in YAML 1.2 may be quoted.
    pub(crate) fn boolean(&mut self, node: &Node, what: &str) -> Option<bool> {
        const WANTED: &str = "true or false, without quotes";
        /// YAML 1.2 booleans: strings when quoted.
        const WORDS: [&str; 2] = ["true", "false"];
        let is_word = |text: &str| WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
        self.read(node, what, WANTED, |text, resolved| match (resolved, resolve(text)) {
            (Resolved::Bool(on), _) => Some(on),
            (Resolved::Text, Resolved::Bool(on)) if !is_word(text) => Some(on),
            _ => None,
        })
    }

    /// Reports an error.
    pub(crate) fn error(
        &mut self,
        class: ProblemClass,
        position: Position,
        message: String,
        hint: impl Into<String>,
    ) {
        self.problems.push(Problem::error(class, position, message, hint));
    }

    /// Reports that `what` has another type than `wanted`.
    pub(crate) fn report_type(&mut self, node: &Node, what: &str, wanted: &str) {
        self.problems.push(node.type_mismatch(what, wanted));
    }
}
