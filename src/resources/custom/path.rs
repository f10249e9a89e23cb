//! Paths: lists of segments that lead from an object to a value.

use super::number;
use super::tree::Json;

/// One step.
#[derive(Clone, Debug, PartialEq)]
enum Segment {
    /// `[key=value]`: the first object in a list whose member says this.
    Lookup(Condition),
    Step {
        /// A member of an object.
        key: String,
        /// `key=value`: the member, if it is this text.
        equals: Option<(String, String)>,
        /// A place in a list, from the end if negative.
        index: Option<i64>,
    },
}

/// What a member has to say.
#[derive(Clone, Debug, PartialEq)]
struct Condition {
    key: String,
    text: String,
    number: Option<f64>,
    boolean: Option<bool>,
}

/// A compiled path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Path(Vec<Segment>);

/// What a path does at one step, for whoever wants to know what it reads.
pub(super) enum Touch<'p> {
    /// A member of an object.
    Key(&'p str),
    /// An element of a list.
    Element,
    /// An element of a list, of each of which this member is compared.
    ElementWith(&'p str),
}

impl Path {
    /// Compiles segments.
    ///
    /// # Errors
    /// The segment in brackets that has no `=`.
    pub(super) fn compile(segments: &[String]) -> Result<Self, String> {
        segments.iter().map(|text| Segment::compile(text)).collect::<Result<_, _>>().map(Self)
    }

    /// The key that it consists of, if it is a single one.
    pub(super) fn single_key(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Segment::Step { key, .. }] => Some(key),
            _ => None,
        }
    }

    /// Where it leads; `None` to nothing, or to null.
    pub(super) fn get<'v, 'a>(&self, value: &'v Json<'a>) -> Option<&'v Json<'a>> {
        let mut at = value;
        for segment in &self.0 {
            at = segment.get(at)?;
        }
        (!matches!(at, Json::Null)).then_some(at)
    }

    /// What its first step may touch, and what is left behind that.
    pub(super) fn touches(&self) -> Option<(Vec<Touch<'_>>, Rest<'_>)> {
        Rest(&self.0).touches()
    }
}

/// The end of a path.
#[derive(Clone, Copy)]
pub(super) struct Rest<'p>(&'p [Segment]);

impl<'p> Rest<'p> {
    /// As [`Path::touches`].
    pub(super) fn touches(self) -> Option<(Vec<Touch<'p>>, Self)> {
        let (first, rest) = self.0.split_first()?;
        let touches = match first {
            Segment::Lookup(condition) => vec![Touch::ElementWith(&condition.key)],
            Segment::Step { key, equals, index } => {
                let mut touches = vec![Touch::Key(key)];
                touches.extend(equals.iter().map(|(key, _)| Touch::Key(key)));
                touches.extend(index.iter().map(|_| Touch::Element));
                touches
            }
        };
        Some((touches, Self(rest)))
    }
}

impl Segment {
    fn compile(text: &str) -> Result<Self, String> {
        let pair = |text: &str| -> Option<(String, String)> {
            text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
        };
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let (key, text) = pair(inner).ok_or_else(|| text.to_owned())?;
            let number = number::of_text(&text).ok();
            let boolean = go_bool(&text);
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

/// The words that Go's `strconv.ParseBool` takes.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
