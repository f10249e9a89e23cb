//! The API's scalar types as fields of lean views: time, quantity, integer-or-string.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de};
use serde_json::Number;

use super::values::quantity::Quantity;
use super::values::time;
use crate::wire::view::{DecodeError, Field, Message, Str, Wire};

/// `metav1.Time` or `metav1.MicroTime`, in whole unix seconds (rounded down).
///
/// The default is Go's zero time, the first instant of year 1, which an empty message and `null` also mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    seconds: i64,
    /// True if the time has a fractional second, which only JSON can express.
    fraction: bool,
}

impl Time {
    /// Go's zero time: 0001-01-01T00:00:00Z.
    pub const ZERO: Self = Self { seconds: -62_135_596_800, fraction: false };

    /// Returns unix seconds.
    pub fn unix(self) -> i64 {
        self.seconds
    }

    /// Returns the time if it is set, that is, not Go's zero time.
    pub fn set(self) -> Option<Self> {
        (!self.is_zero()).then_some(self)
    }

    /// Returns unix seconds as a sample value.
    pub fn seconds(self) -> f64 {
        self.seconds as f64
    }

    /// True for Go's zero time, which means "not set" in most fields.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::ZERO
    }
}

impl<'a> Field<'a> for Time {
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        let mut message = Message(wire.bytes()?);
        if message.0.is_empty() {
            *self = Self::ZERO;
            return Ok(());
        }
        let mut seconds = 0;
        while let Some((tag, wire)) = message.next_field()? {
            if tag == 1 {
                Field::merge(&mut seconds, wire).map_err(|error| error.within("seconds"))?;
            }
        }
        *self = Self { seconds, fraction: false };
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        let (seconds, fraction) = time::parse(&Str::json(json)?).map_err(de::Error::custom)?;
        Ok(Self { seconds, fraction })
    }
}

/// `resource.Quantity` as text; see [`super::values::quantity`] for its numeric values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuantityText<'a>(Str<'a>);

impl QuantityText<'_> {
    /// Returns the quantity; `None` if the text is not one.
    pub fn quantity(&self) -> Option<Quantity> {
        Quantity::parse(&self.0)
    }
}

impl<'a> Field<'a> for QuantityText<'a> {
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        let mut message = Message(wire.bytes()?);
        while let Some((tag, wire)) = message.next_field()? {
            if tag == 1 {
                self.0.merge(wire)?;
            }
        }
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        scalar_text(json).map(|(text, _)| Self(text))
    }
}

/// `intstr.IntOrString`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    /// A number.
    Int(i64),
    /// A text such as `25%`.
    String(Str<'a>),
}

impl Default for IntOrString<'_> {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl<'a> Field<'a> for IntOrString<'a> {
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        let mut message = Message(wire.bytes()?);
        let (mut kind, mut int, mut string) = (0i64, 0i32, Str::default());
        while let Some((tag, wire)) = message.next_field()? {
            match tag {
                1 => kind.merge(wire)?,
                2 => int.merge(wire)?,
                3 => string.merge(wire)?,
                _ => {}
            }
        }
        *self = if kind == 1 { Self::String(string) } else { Self::Int(i64::from(int)) };
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        let (text, number) = scalar_text(json)?;
        if !number {
            return Ok(Self::String(text));
        }
        let whole = text.parse().map(Self::Int);
        whole.map_err(|_| de::Error::custom(format_args!("{} is not a whole number", &*text)))
    }
}

/// A JSON string or number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a number")]
enum Scalar<'a> {
    Number(Number),
    #[serde(borrow)]
    Text(Cow<'a, str>),
}

/// Reads a JSON string, or the text of a JSON number; the flag is true for a number.
fn scalar_text<'a, D: Deserializer<'a>>(json: D) -> Result<(Str<'a>, bool), D::Error> {
    Ok(match Scalar::deserialize(json)? {
        Scalar::Text(text) => (Str::from(text), false),
        Scalar::Number(number) => {
            // A number such as 1.0 or 1e3 is written as a whole one.
            let float = number.as_f64().filter(|_| number.is_f64());
            let text = float.map_or_else(|| number.to_string(), |float| float.to_string());
            (Str::from(Cow::Owned(text)), true)
        }
    })
}
