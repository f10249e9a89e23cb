//! Paths: lists of segments that select a value in an object.

use thiserror::Error;

use super::number;
use super::tree::Json;
use crate::go::strconv;

/// A step of a path: a member, an index or a lookup in a list.
#[derive(Clone, Debug, PartialEq)]
enum Segment {
    /// `[key=value]`: the first object in a list whose member has this value.
    Lookup(Condition),
    Step {
        /// The member of an object.
        key: String,
        /// `key=value`: the member, if its text is this value.
        equals: Option<(String, String)>,
        /// The index in a list, from the end if negative.
        index: Option<i64>,
    },
}

/// The required value of a member.
#[derive(Clone, Debug, PartialEq)]
struct Condition {
    key: String,
    text: String,
    number: Option<f64>,
    boolean: Option<bool>,
}

/// A segment in brackets without `=`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0} is no lookup in a list, write [key=value]")]
pub(super) struct SegmentError(pub(super) String);

/// A compiled path: the steps from an object to a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Path(Vec<Segment>);

/// The part of a value that one step of a path visits.
pub(super) enum Visit<'p> {
    /// A member of an object.
    Key(&'p str),
    /// An element of a list.
    Element,
    /// An element of a list, selected by comparing this member.
    ElementWith(&'p str),
}

impl Path {
    /// Compiles segments.
    ///
    /// # Errors
    /// A segment in brackets without `=`.
    pub(super) fn compile(segments: &[String]) -> Result<Self, SegmentError> {
        segments.iter().map(|text| Segment::compile(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the key of a path with a single segment.
    pub(super) fn single_key(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Segment::Step { key, .. }] => Some(key),
            _ => None,
        }
    }

    /// Returns the selected value; `None` if there is none, or if it is null.
    pub(super) fn get<'v, 'a>(&self, value: &'v Json<'a>) -> Option<&'v Json<'a>> {
        let mut at = value;
        for segment in &self.0 {
            at = segment.get(at)?;
        }
        (!matches!(at, Json::Null)).then_some(at)
    }

    /// Returns the parts that each step may visit.
    pub(super) fn visits(&self) -> Vec<Vec<Visit<'_>>> {
        let visits = self.0.iter().map(|segment| match segment {
            Segment::Lookup(condition) => vec![Visit::ElementWith(&condition.key)],
            Segment::Step { key, equals, index } => {
                let mut visits = vec![Visit::Key(key)];
                visits.extend(equals.iter().map(|(key, _)| Visit::Key(key)));
                visits.extend(index.iter().map(|_| Visit::Element));
                visits
            }
        });
        visits.collect()
    }
}

impl Segment {
    fn compile(text: &str) -> Result<Self, SegmentError> {
        let pair = |text: &str| -> Option<(String, String)> {
            text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
        };
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let (key, text) = pair(inner).ok_or_else(|| SegmentError(text.to_owned()))?;
            let number = number::of_text(&text).ok();
            let boolean = strconv::parse_bool(&text).ok();
            return Ok(Self::Lookup(Condition { key, text, number, boolean }));
        }
        Ok(Self::Step { key: text.to_owned(), equals: pair(text), index: text.parse().ok() })
    }

    fn get<'v, 'a>(&self, value: &'v Json<'a>) -> Option<&'v Json<'a>> {
        match (self, value) {
            (Self::Lookup(condition), Json::List(items)) => {
                items.iter().find(|item| condition.holds(item))
            }
            (Self::Step { key, equals, .. }, Json::Map(_)) => {
                let equal = equals.as_ref().and_then(|(key, text)| {
                    value.get(key).filter(|value| matches!(value, Json::Text(own) if own == text))
                });
                equal.or_else(|| value.get(key))
            }
            (Self::Step { index: Some(index), .. }, Json::List(items)) => {
                let index = match index {
                    0.. => usize::try_from(*index).ok()?,
                    _ => items.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
                };
                items.get(index)
            }
            _ => None,
        }
    }
}

impl Condition {
    fn holds(&self, item: &Json<'_>) -> bool {
        let Some(value) = item.get(&self.key) else { return false };
        if matches!(value, Json::Text(text) if *text == self.text) {
            return true;
        }
        let same = |wanted: f64| number::of(value).is_ok_and(|number| number == wanted);
        self.number.is_some_and(same)
            || self.boolean.is_some_and(|wanted| matches!(value, Json::Bool(own) if *own == wanted))
    }
}
