//! JSON as a tree that borrows from the parsed text.

use std::borrow::Cow;

/// A JSON value that borrows its text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    /// A number without point and exponent that fits 64 bits.
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    /// Entries in byte order of unique keys.
    Map(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// Returns the member of a map.
    pub(super) fn get(&self, key: &str) -> Option<&Json<'a>> {
        let Self::Map(entries) = self else { return None };
        let at = entries.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        Some(&entries[at].1)
    }

    /// Returns the items of a list, or the value itself.
    pub(super) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            other => std::slice::from_ref(other),
        }
    }

    /// Returns the text of a string.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}
