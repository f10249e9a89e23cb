//! Reading values of a tree: one that has the wrong type is reported with its place and read as if it were not there.
//!
//! Which notation fits which type follows Go's YAML library: a quoted number is a text, a boolean may be written as
//! YAML 1.1 has it. Types that only one file has are read by the file's owner, from [`Values::scalar`].

use super::problem::{Place, Problem};
use super::scalar::{Resolved, resolve};
use super::yaml::{Document, Node, NodeId, Notation, Value};

/// A key with its place, and its value.
pub(crate) type Entry<'d> = ((&'d str, Place), &'d Node);

const BINARY: &str = "tag:yaml.org,2002:binary";

/// Reads values of a document and collects what is wrong with their form.
pub(crate) struct Values<'d> {
    document: &'d Document,
    /// In the order in which values were read, after the keys that occur twice.
    pub(crate) problems: Vec<Problem>,
}

impl<'d> Values<'d> {
    pub(crate) fn new(document: &'d Document) -> Self {
        Self { document, problems: document.duplicates.clone() }
    }

    /// The keys of a map with their values; `None` if it is null or (reported) no map.
    pub(crate) fn entries(
        &mut self,
        node: &Node,
        what: &str,
        wanted: &str,
    ) -> Option<Vec<Entry<'d>>> {
        let Value::Mapping(entries) = &node.value else {
            if !node.is_null() {
                self.wrong(node, what, wanted);
            }
            return None;
        };
        let entry = |&(key, value): &(NodeId, NodeId)| {
            let (key, value) = (self.document.node(key)?, self.document.node(value)?);
            // The tree has no other keys.
            let Value::Scalar(scalar) = &key.value else { return None };
            Some(((scalar.text.as_str(), key.place), value))
        };
        Some(entries.iter().filter_map(entry).collect())
    }

    /// The items of a list; `None` if it is null or (reported) no list.
    pub(crate) fn items(&mut self, node: &Node, what: &str) -> Option<Vec<&'d Node>> {
        let Value::Sequence(items) = &node.value else {
            if !node.is_null() {
                self.wrong(node, what, "a list, such as [a, b]");
            }
            return None;
        };
        Some(items.iter().filter_map(|&id| self.document.node(id)).collect())
    }

    /// The text of a scalar, and what it says without quotes ([`Resolved::Text`] in quotes); `None` if it is null or
    /// (reported) no scalar.
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
            self.wrong(node, what, wanted);
        }
        resolved.filter(|(_, resolved)| *resolved != Resolved::Null)
    }

    /// A text, in the notation of the file: `1.50` is the text "1.50".
    pub(crate) fn text(&mut self, node: &Node, what: &str) -> Option<String> {
        self.scalar(node, what, "a text").map(|(text, _)| text.to_owned())
    }

    /// A boolean in any notation of YAML 1.1; those that YAML 1.2 does not have may stand in quotes.
    pub(crate) fn flag(&mut self, node: &Node, what: &str) -> Option<bool> {
        const WANTED: &str = "true or false, without quotes";
        /// These are booleans in YAML 1.2 too: in quotes they are texts.
        const WORDS: [&str; 2] = ["true", "false"];
        match self.scalar(node, what, WANTED)? {
            (_, Resolved::Bool(on)) => return Some(on),
            (text, Resolved::Text) => match resolve(text) {
                Resolved::Bool(on) if !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)) => {
                    return Some(on);
                }
                _ => {}
            },
            _ => {}
        }
        self.wrong(node, what, WANTED);
        None
    }

    /// Reports that this is another type of value than the one that is `wanted` of `what`.
    pub(crate) fn wrong(&mut self, node: &Node, what: &str, wanted: &str) {
        self.problems.push(node.of_wrong_type(what, wanted));
    }
}
