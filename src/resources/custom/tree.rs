//! JSON as a tree that borrows from the text it was read from.

use std::borrow::Cow;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    /// A number without point and exponent that 64 bits hold.
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    /// In byte order of the keys, each once.
    Map(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// The member of a map.
    pub(super) fn get(&self, key: &str) -> Option<&Json<'a>> {
        let Self::Map(entries) = self else { return None };
        // Mostly a handful, of which the mask has left fewer.
        entries.iter().find(|(own, _)| own == key).map(|(_, value)| value)
    }

    /// The text.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}
