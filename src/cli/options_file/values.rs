//! The values of an options file, in the types that the original decodes them to.
//!
//! Which notation fits which type follows Go's YAML library: a number may stand for an integer if it is cut
//! off, a quoted number may not; a boolean may be written as YAML 1.1 has it; a duration is a text; `null`
//! empties what is a collection and leaves what is not.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::cli::go;

/// A collection, which `null` empties.
#[derive(Debug, Default)]
pub(super) enum Given<T> {
    /// The key is not there.
    #[default]
    Absent,
    /// The key has no value.
    Null,
    /// This value.
    Value(T),
}

impl<T: Default> Given<T> {
    /// The value that takes the flag's place, if one does.
    pub(super) fn or_empty(self) -> Option<T> {
        match self {
            Self::Absent => None,
            Self::Null => Some(T::default()),
            Self::Value(value) => Some(value),
        }
    }
}

impl<T> Given<T> {
    pub(super) fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(yaml)?.map_or(Self::Null, Self::Value))
    }
}

/// A sequence of texts, in which `null` does not count.
#[derive(Debug, Default)]
pub(super) struct Keys(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        let keys = Option::<Vec<Option<String>>>::deserialize(yaml)?;
        Ok(Self(keys.into_iter().flatten().flatten().collect()))
    }
}

impl From<Keys> for Vec<String> {
    fn from(keys: Keys) -> Self {
        keys.0
    }
}

/// What stands behind a member of a set: nothing, or a mapping, whatever is in it.
#[derive(Debug)]
pub(super) struct Marker;

impl<'de> Deserialize<'de> for Marker {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        struct Nothing;
        impl<'de> Visitor<'de> for Nothing {
            type Value = Marker;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("{} or nothing: the members of a set have no values")
            }
            fn visit_unit<E>(self) -> Result<Marker, E> {
                Ok(Marker)
            }
            fn visit_none<E>(self) -> Result<Marker, E> {
                Ok(Marker)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Marker, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Marker)
            }
        }
        yaml.deserialize_any(Nothing)
    }
}

/// An integer, or a number whose fraction is cut off.
#[derive(Debug)]
pub(super) struct Int<T>(T);

impl From<Int<Self>> for i64 {
    fn from(int: Int<Self>) -> Self {
        int.0
    }
}

impl From<Int<Self>> for i32 {
    fn from(int: Int<Self>) -> Self {
        int.0
    }
}

impl<'de, T: TryFrom<i64>> Deserialize<'de> for Int<T> {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        struct Number<T>(PhantomData<T>);
        impl<T: TryFrom<i64>> Number<T> {
            fn fit<E: de::Error>(
                number: Option<i64>,
                text: &dyn fmt::Display,
            ) -> Result<Int<T>, E> {
                let fitting = number.and_then(|number| T::try_from(number).ok());
                fitting.map(Int).ok_or_else(|| {
                    let bits = size_of::<T>() * 8;
                    E::custom(format_args!("{text} is not an integer of {bits} bits"))
                })
            }
        }
        impl<T: TryFrom<i64>> Visitor<'_> for Number<T> {
            type Value = Int<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number without quotes")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Int<T>, E> {
                Self::fit(Some(number), &number)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Int<T>, E> {
                Self::fit(i64::try_from(number).ok(), &number)
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Int<T>, E> {
                Self::fit((number <= i64::MAX as f64).then_some(number as i64), &number)
            }
        }
        yaml.deserialize_any(Number(PhantomData))
    }
}

/// A number.
#[derive(Debug)]
pub(super) struct Float(f64);

impl From<Float> for f64 {
    fn from(float: Float) -> Self {
        float.0
    }
}

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Float;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number without quotes")
            }
            fn visit_i64<E>(self, number: i64) -> Result<Float, E> {
                Ok(Float(number as f64))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Float, E> {
                Ok(Float(number as f64))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Float, E> {
                Ok(Float(number))
            }
        }
        yaml.deserialize_any(Number)
    }
}

/// A boolean in any notation of YAML 1.1; those that YAML 1.2 does not have may stand in quotes.
#[derive(Debug)]
pub(super) struct Flag(bool);

impl From<Flag> for bool {
    fn from(flag: Flag) -> Self {
        flag.0
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        struct Boolean;
        impl Visitor<'_> for Boolean {
            type Value = Flag;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true or false, without quotes")
            }
            fn visit_bool<E>(self, on: bool) -> Result<Flag, E> {
                Ok(Flag(on))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Flag, E> {
                match text {
                    "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Ok(Flag(true)),
                    "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Ok(Flag(false)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        yaml.deserialize_any(Boolean)
    }
}

/// A text such as `1m30s`, in nanoseconds.
#[derive(Debug)]
pub(super) struct Duration(i64);

impl From<Duration> for i64 {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Duration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with a unit, such as 60s")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                go::parse_duration(text).map(Duration).map_err(E::custom)
            }
        }
        yaml.deserialize_any(Text)
    }
}
