//! Parses the values of an options file to the types that the original decodes them to.
//!
//! Integers also accept a number and truncate it; durations are strings; `null` empties a
//! collection and leaves anything else unchanged.

use crate::config_file::{Node, Position, Resolved, Value, Values};
use crate::go::strconv;

/// A string and its position.
pub(super) type Placed = (String, Position);

impl Values<'_> {
    /// Parses a 32- or 64-bit integer, or a number that is truncated to one.
    pub(super) fn int(&mut self, node: &Node, what: &str, bits: u32) -> Option<i64> {
        let (_, resolved) = self.scalar(node, what, "a number without quotes")?;
        let number = match resolved {
            Resolved::Int(number) => i64::try_from(number).ok(),
            Resolved::Float(number) => (number <= i64::MAX as f64).then_some(number as i64),
            _ => {
                self.report_type(node, what, "a number without quotes");
                return None;
            }
        };
        let fits = |number: &i64| bits != 32 || i32::try_from(*number).is_ok();
        let fitting = number.filter(fits);
        if fitting.is_none() {
            self.report_type(node, what, &format!("an integer of {bits} bits"));
        }
        fitting
    }

    /// Parses a number.
    pub(super) fn float(&mut self, node: &Node, what: &str) -> Option<f64> {
        self.read(node, what, "a number without quotes", |_, resolved| match resolved {
            Resolved::Int(number) => Some(number as f64),
            Resolved::Float(number) => Some(number),
            _ => None,
        })
    }

    /// Parses a duration such as `1m30s` to nanoseconds.
    pub(super) fn duration(&mut self, node: &Node, what: &str) -> Option<i64> {
        const WANTED: &str = "a duration with a unit, such as 60s";
        self.read(node, what, WANTED, |text, resolved| match resolved {
            Resolved::Text => strconv::parse_duration(text).ok(),
            _ => None,
        })
    }

    /// Parses a list of strings, skipping null items; null is an empty list.
    pub(super) fn texts(&mut self, node: &Node, what: &str) -> Option<Vec<String>> {
        let texts = self.placed_texts(node, what)?;
        Some(texts.into_iter().map(|(text, _)| text).collect())
    }

    fn placed_texts(&mut self, node: &Node, what: &str) -> Option<Vec<Placed>> {
        let items = match self.items(node, what) {
            Some(items) => items,
            None if node.is_null() => Vec::new(),
            None => return None,
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let problems = self.problems.len();
            match self.text(item, what) {
                Some(text) => texts.push((text, item.position)),
                None if self.problems.len() > problems => return None,
                None => {}
            }
        }
        Some(texts)
    }

    /// Parses a set, written as a map with empty values. Returns `Some(None)` for null and `None`
    /// for any other type.
    pub(super) fn set(&mut self, node: &Node, what: &str) -> Option<Option<Vec<Placed>>> {
        let Some(entries) = self.entries(node, what, "a map") else {
            return node.is_null().then_some(None);
        };
        let problems = self.problems.len();
        for ((member, _), value) in &entries {
            if !matches!(value.value, Value::Mapping(_)) && !value.is_null() {
                self.report_type(
                    value,
                    &format!("{what}: the value of {member}"),
                    "{} or nothing: the members of a set have no values",
                );
            }
        }
        let members = entries
            .into_iter()
            .map(|((member, position), _)| (member.to_owned(), position))
            .collect();
        (self.problems.len() == problems).then_some(Some(members))
    }

    /// Parses a list of strings for each key; null means no keys. Returns `None` for any other
    /// type.
    pub(super) fn lists(&mut self, node: &Node, what: &str) -> Option<Vec<(Placed, Vec<Placed>)>> {
        let Some(entries) = self.entries(node, what, "a map") else {
            return node.is_null().then(Vec::new);
        };
        let problems = self.problems.len();
        let mut lists = Vec::with_capacity(entries.len());
        for ((key, position), value) in entries {
            if let Some(list) = self.placed_texts(value, &format!("{what}: {key}")) {
                lists.push(((key.to_owned(), position), list));
            }
        }
        (self.problems.len() == problems).then_some(lists)
    }
}
