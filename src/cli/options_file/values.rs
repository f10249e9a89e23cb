//! The values of an options file, in the types that the original decodes them to.
//!
//! Which notation fits which type follows Go's YAML library: a number may stand for an integer if it is cut off, a quoted
//! number may not; a boolean may be written as YAML 1.1 has it; a duration is a text; `null` empties what is a collection
//! and leaves what is not.

use crate::config_file::{
    Document, Node, NodeId, Notation, Place, Problem, ProblemClass, Resolved, Value, resolve,
};
use crate::go::strconv;

/// Reads values and collects what is wrong with their form.
pub(super) struct Reader<'d> {
    document: &'d Document,
    pub(super) problems: Vec<Problem>,
}

/// A text and its place.
pub(super) type Placed = (String, Place);

/// A key with its place, and its value.
pub(super) type Entry<'d> = ((&'d str, Place), &'d Node);

/// A scalar that is not null.
struct Scalar<'d> {
    text: &'d str,
    /// What it says without quotes; [`Resolved::Text`] in quotes.
    resolved: Resolved,
    quoted: bool,
}

const BINARY: &str = "tag:yaml.org,2002:binary";

impl<'d> Reader<'d> {
    pub(super) fn new(document: &'d Document) -> Self {
        Self { document, problems: Vec::new() }
    }

    /// The keys of the file.
    pub(super) fn file(&mut self, root: &'d Node) -> Vec<Entry<'d>> {
        match &root.value {
            Value::Mapping(entries) => self.entries(entries),
            _ if is_null(root) => Vec::new(),
            _ => {
                self.wrong(root, "the file", "keys with values, such as resources: {pods: {}}");
                Vec::new()
            }
        }
    }

    fn entries(&self, entries: &[(NodeId, NodeId)]) -> Vec<Entry<'d>> {
        let entry = |&(key, value): &(NodeId, NodeId)| {
            let (key, value) = (self.document.node(key)?, self.document.node(value)?);
            // The tree has no other keys.
            let Value::Scalar(scalar) = &key.value else { return None };
            Some(((scalar.text.as_str(), key.place), value))
        };
        entries.iter().filter_map(entry).collect()
    }

    fn items(&self, items: &[NodeId]) -> Vec<&'d Node> {
        items.iter().filter_map(|&id| self.document.node(id)).collect()
    }

    fn wrong(&mut self, node: &Node, what: &str, wanted: &str) {
        let got = match &node.value {
            Value::Scalar(scalar) if scalar.notation == Notation::Plain => scalar.text.clone(),
            Value::Scalar(scalar) => format!("{:?}", scalar.text),
            Value::Sequence(_) => "a list".to_owned(),
            Value::Mapping(_) => "a map".to_owned(),
        };
        let message = format!("{what} is {got}");
        let hint = format!("write {wanted}");
        self.problems.push(Problem::error(ProblemClass::YamlType, node.place, message, hint));
    }

    /// The scalar, `None` if it is null or (reported) no scalar.
    fn scalar<'n>(&mut self, node: &'n Node, what: &str, wanted: &str) -> Option<Scalar<'n>> {
        let Value::Scalar(scalar) = &node.value else {
            self.wrong(node, what, wanted);
            return None;
        };
        let quoted = match &scalar.notation {
            Notation::Text => true,
            Notation::Tagged(tag) if tag == BINARY => {
                self.wrong(node, what, wanted);
                return None;
            }
            Notation::Plain | Notation::Tagged(_) => false,
        };
        let resolved = if quoted { Resolved::Text } else { resolve(&scalar.text) };
        (resolved != Resolved::Null).then_some(Scalar { text: &scalar.text, resolved, quoted })
    }

    /// A text, in the notation of the file: `1.50` is the text "1.50".
    pub(super) fn text(&mut self, node: &Node, what: &str) -> Option<String> {
        Some(self.scalar(node, what, "a text")?.text.to_owned())
    }

    /// A boolean in any notation of YAML 1.1; those that YAML 1.2 does not have may stand in quotes.
    pub(super) fn flag(&mut self, node: &Node, what: &str) -> Option<bool> {
        const WANTED: &str = "true or false, without quotes";
        let scalar = self.scalar(node, what, WANTED)?;
        match (scalar.resolved, scalar.text) {
            (Resolved::Bool(on), _) => return Some(on),
            (Resolved::Text, "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON") => {
                return Some(true);
            }
            (Resolved::Text, "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF") => {
                return Some(false);
            }
            _ => self.wrong(node, what, WANTED),
        }
        None
    }

    /// An integer of 64 or of 32 bits, or a number whose fraction is cut off.
    pub(super) fn int(&mut self, node: &Node, what: &str, bits: u32) -> Option<i64> {
        let scalar = self.scalar(node, what, "a number without quotes")?;
        let number = match scalar.resolved {
            Resolved::Int(number) => i64::try_from(number).ok(),
            Resolved::Float(number) => (number <= i64::MAX as f64).then_some(number as i64),
            _ => {
                self.wrong(node, what, "a number without quotes");
                return None;
            }
        };
        let fits = |number: &i64| bits != 32 || i32::try_from(*number).is_ok();
        let fitting = number.filter(fits);
        if fitting.is_none() {
            self.wrong(node, what, &format!("an integer of {bits} bits"));
        }
        fitting
    }

    /// A number.
    pub(super) fn float(&mut self, node: &Node, what: &str) -> Option<f64> {
        match self.scalar(node, what, "a number without quotes")?.resolved {
            Resolved::Int(number) => return Some(number as f64),
            Resolved::Float(number) => return Some(number),
            _ => self.wrong(node, what, "a number without quotes"),
        }
        None
    }

    /// A text such as `1m30s`, in nanoseconds.
    pub(super) fn duration(&mut self, node: &Node, what: &str) -> Option<i64> {
        const WANTED: &str = "a duration with a unit, such as 60s";
        let scalar = self.scalar(node, what, WANTED)?;
        let duration = (scalar.resolved == Resolved::Text || scalar.quoted)
            .then(|| strconv::parse_duration(scalar.text).ok())
            .flatten();
        if duration.is_none() {
            self.wrong(node, what, WANTED);
        }
        duration
    }

    /// A list of texts, in which null does not count; null is an empty one.
    pub(super) fn texts(&mut self, node: &Node, what: &str) -> Option<Vec<String>> {
        let texts = self.placed_texts(node, what)?;
        Some(texts.into_iter().map(|(text, _)| text).collect())
    }

    fn placed_texts(&mut self, node: &Node, what: &str) -> Option<Vec<Placed>> {
        let items = match &node.value {
            Value::Sequence(items) => self.items(items),
            _ if is_null(node) => Vec::new(),
            _ => {
                self.wrong(node, what, "a list, such as [a, b]");
                return None;
            }
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let problems = self.problems.len();
            match self.text(item, what) {
                Some(text) => texts.push((text, item.place)),
                None if self.problems.len() > problems => return None,
                None => {}
            }
        }
        Some(texts)
    }

    /// A set, written as a map with empty values. Null is `Some(None)`, the wrong form is `None`.
    pub(super) fn set(&mut self, node: &Node, what: &str) -> Option<Option<Vec<Placed>>> {
        let Some(entries) = self.mapping(node, what) else {
            return is_null(node).then_some(None);
        };
        let problems = self.problems.len();
        for ((member, _), value) in &entries {
            if !matches!(value.value, Value::Mapping(_)) && !is_null(value) {
                self.wrong(
                    value,
                    &format!("{what}: the value of {member}"),
                    "{} or nothing: the members of a set have no values",
                );
            }
        }
        let members =
            entries.into_iter().map(|((member, place), _)| (member.to_owned(), place)).collect();
        (self.problems.len() == problems).then_some(Some(members))
    }

    /// A list of texts for each key; null is no key. `None` if the form is wrong.
    pub(super) fn lists(&mut self, node: &Node, what: &str) -> Option<Vec<(Placed, Vec<Placed>)>> {
        let Some(entries) = self.mapping(node, what) else {
            return is_null(node).then(Vec::new);
        };
        let problems = self.problems.len();
        let mut lists = Vec::with_capacity(entries.len());
        for ((key, place), value) in entries {
            if let Some(list) = self.placed_texts(value, &format!("{what}: {key}")) {
                lists.push(((key.to_owned(), place), list));
            }
        }
        (self.problems.len() == problems).then_some(lists)
    }

    /// The entries of a map; `None` if it is null or (reported) something else.
    fn mapping(&mut self, node: &Node, what: &str) -> Option<Vec<Entry<'d>>> {
        match &node.value {
            Value::Mapping(entries) => return Some(self.entries(entries)),
            Value::Sequence(items) => {
                let first = self.items(items).first().map(|item| match &item.value {
                    Value::Scalar(scalar) => scalar.text.clone(),
                    _ => "name".to_owned(),
                });
                let name = first.unwrap_or_else(|| "name".to_owned());
                self.wrong(node, what, &format!("a map, such as {what}: {{{name}: {{}}}}"));
            }
            Value::Scalar(_) if is_null(node) => {}
            Value::Scalar(_) => self.wrong(node, what, "a map"),
        }
        None
    }
}

fn is_null(node: &Node) -> bool {
    match &node.value {
        Value::Scalar(scalar) => {
            scalar.notation == Notation::Plain && resolve(&scalar.text) == Resolved::Null
        }
        _ => false,
    }
}
