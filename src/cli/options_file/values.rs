//! The values of an options file, in the types that the original decodes them to.
//!
//! A number may stand for an integer if it is cut off; a duration is a text; `null` empties what is a collection and
//! leaves what is not.

use crate::config_file::{Document, Entry, Node, Place, Resolved, Value, Values};
use crate::go::strconv;

/// Reads values in the types of the options file.
pub(super) struct Reader<'d> {
    pub(super) values: Values<'d>,
}

/// A text and its place.
pub(super) type Placed = (String, Place);

impl<'d> Reader<'d> {
    pub(super) fn new(document: &'d Document) -> Self {
        Self { values: Values::new(document) }
    }

    /// The keys of the file.
    pub(super) fn file(&mut self, root: &'d Node) -> Vec<Entry<'d>> {
        const WANTED: &str = "keys with values, such as resources: {pods: {}}";
        self.values.entries(root, "the file", WANTED).unwrap_or_default()
    }

    /// An integer of 64 or of 32 bits, or a number whose fraction is cut off.
    pub(super) fn int(&mut self, node: &Node, what: &str, bits: u32) -> Option<i64> {
        let (_, resolved) = self.values.scalar(node, what, "a number without quotes")?;
        let number = match resolved {
            Resolved::Int(number) => i64::try_from(number).ok(),
            Resolved::Float(number) => (number <= i64::MAX as f64).then_some(number as i64),
            _ => {
                self.values.wrong(node, what, "a number without quotes");
                return None;
            }
        };
        let fits = |number: &i64| bits != 32 || i32::try_from(*number).is_ok();
        let fitting = number.filter(fits);
        if fitting.is_none() {
            self.values.wrong(node, what, &format!("an integer of {bits} bits"));
        }
        fitting
    }

    /// A number.
    pub(super) fn float(&mut self, node: &Node, what: &str) -> Option<f64> {
        match self.values.scalar(node, what, "a number without quotes")?.1 {
            Resolved::Int(number) => return Some(number as f64),
            Resolved::Float(number) => return Some(number),
            _ => self.values.wrong(node, what, "a number without quotes"),
        }
        None
    }

    /// A text such as `1m30s`, in nanoseconds.
    pub(super) fn duration(&mut self, node: &Node, what: &str) -> Option<i64> {
        const WANTED: &str = "a duration with a unit, such as 60s";
        let (text, resolved) = self.values.scalar(node, what, WANTED)?;
        let duration =
            (resolved == Resolved::Text).then(|| strconv::parse_duration(text).ok()).flatten();
        if duration.is_none() {
            self.values.wrong(node, what, WANTED);
        }
        duration
    }

    /// A list of texts, in which null does not count; null is an empty one.
    pub(super) fn texts(&mut self, node: &Node, what: &str) -> Option<Vec<String>> {
        let texts = self.placed_texts(node, what)?;
        Some(texts.into_iter().map(|(text, _)| text).collect())
    }

    fn placed_texts(&mut self, node: &Node, what: &str) -> Option<Vec<Placed>> {
        let items = match self.values.items(node, what) {
            Some(items) => items,
            None if node.is_null() => Vec::new(),
            None => return None,
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let problems = self.values.problems.len();
            match self.values.text(item, what) {
                Some(text) => texts.push((text, item.place)),
                None if self.values.problems.len() > problems => return None,
                None => {}
            }
        }
        Some(texts)
    }

    /// A set, written as a map with empty values. Null is `Some(None)`, the wrong form is `None`.
    pub(super) fn set(&mut self, node: &Node, what: &str) -> Option<Option<Vec<Placed>>> {
        let Some(entries) = self.mapping(node, what) else {
            return node.is_null().then_some(None);
        };
        let problems = self.values.problems.len();
        for ((member, _), value) in &entries {
            if !matches!(value.value, Value::Mapping(_)) && !value.is_null() {
                self.values.wrong(
                    value,
                    &format!("{what}: the value of {member}"),
                    "{} or nothing: the members of a set have no values",
                );
            }
        }
        let members =
            entries.into_iter().map(|((member, place), _)| (member.to_owned(), place)).collect();
        (self.values.problems.len() == problems).then_some(Some(members))
    }

    /// A list of texts for each key; null is no key. `None` if the form is wrong.
    pub(super) fn lists(&mut self, node: &Node, what: &str) -> Option<Vec<(Placed, Vec<Placed>)>> {
        let Some(entries) = self.mapping(node, what) else {
            return node.is_null().then(Vec::new);
        };
        let problems = self.values.problems.len();
        let mut lists = Vec::with_capacity(entries.len());
        for ((key, place), value) in entries {
            if let Some(list) = self.placed_texts(value, &format!("{what}: {key}")) {
                lists.push(((key.to_owned(), place), list));
            }
        }
        (self.values.problems.len() == problems).then_some(lists)
    }

    /// The entries of a map; `None` if it is null or (reported) something else.
    fn mapping(&mut self, node: &Node, what: &str) -> Option<Vec<Entry<'d>>> {
        let Value::Sequence(_) = &node.value else {
            return self.values.entries(node, what, "a map");
        };
        // Whoever writes a list is shown its first item as a map.
        let items = self.values.items(node, what).unwrap_or_default();
        let name = match items.first().map(|item| &item.value) {
            Some(Value::Scalar(scalar)) => &scalar.text,
            _ => "name",
        };
        self.values.wrong(node, what, &format!("a map, such as {what}: {{{name}: {{}}}}"));
        None
    }
}
