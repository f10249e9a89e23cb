//! Lean views: structs that hold only the fields that a metric reads, decodable from both wire formats.
//!
//! [`view!`](crate::wire::view::view) takes one definition (field, type, protobuf tag, JSON name) and generates a
//! decoder for the Kubernetes protobuf encoding (<https://protobuf.dev/programming-guides/encoding/>) and one for JSON
//! through serde. Text is borrowed where the input holds it verbatim; unknown fields are skipped; `null` reads as
//! absent, as in Go's decoder. Tags are those of the API's published `.proto` files.
//!
//! This module is independent of particular kinds and of metrics.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::varint::{VarintError, read_varint};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The bytes of an API object in one of the wire formats.
#[derive(Clone, Copy, Debug)]
pub enum ObjectBytes<'a> {
    /// A protobuf message, without the `k8s\0` envelope.
    Protobuf(&'a [u8]),
    /// A JSON object.
    Json(&'a [u8]),
}

/// The reason why an object could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The message ends inside a field.
    #[error("protobuf message ends inside a field{}", joined(.0))]
    Truncated(FieldPath),
    /// A varint is longer than ten bytes.
    #[error("protobuf varint longer than 10 bytes{}", joined(.0))]
    Varint(FieldPath),
    /// A field's wire type differs from its schema.
    #[error("protobuf field has an unexpected wire type{}", joined(.0))]
    WireType(FieldPath),
    /// The JSON text is malformed, or a field's type differs from its schema.
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The path of field names from the object to an error, innermost first.
pub type FieldPath = Vec<&'static str>;

fn joined(path: &FieldPath) -> String {
    if path.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = path.iter().rev().copied().collect();
    format!(" at {}", names.join("."))
}

impl DecodeError {
    /// Adds the name of the field whose value held the error.
    #[must_use]
    pub fn within(mut self, field: &'static str) -> Self {
        if let Self::Truncated(path) | Self::Varint(path) | Self::WireType(path) = &mut self {
            path.push(field);
        }
        self
    }
}

/// Decodes `object` as `T`.
///
/// # Errors
/// The input is malformed, or the type of a field that `T` reads differs from its schema.
pub fn decode<'a, T: Field<'a>>(object: ObjectBytes<'a>) -> Result<T, DecodeError> {
    match object {
        ObjectBytes::Protobuf(bytes) => {
            let mut value = T::default();
            value.merge(Wire::Bytes(bytes))?;
            Ok(value)
        }
        ObjectBytes::Json(bytes) => {
            let mut json = serde_json::Deserializer::from_slice(bytes);
            let value = or_default(Nullable::<T>::deserialize(&mut json)?);
            json.end()?;
            Ok(value)
        }
    }
}

/// The value of one protobuf field.
#[derive(Clone, Copy, Debug)]
pub enum Wire<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 2: a string, bytes or a message.
    Bytes(&'a [u8]),
    /// Wire types 1 and 5, which no supported field uses.
    Fixed,
}

impl<'a> Wire<'a> {
    fn varint(self) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(DecodeError::WireType(FieldPath::new())),
        }
    }

    /// Returns the bytes of a length-delimited field.
    ///
    /// # Errors
    /// The field has another wire type.
    pub fn bytes(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(DecodeError::WireType(FieldPath::new())),
        }
    }
}

/// An iterator over the fields of a protobuf message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(pub &'a [u8]);

impl<'a> Message<'a> {
    /// Returns the next field's tag and value, `None` at the end.
    ///
    /// # Errors
    /// The message is truncated or uses groups, which Kubernetes does not.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<(u32, Wire<'a>)>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Wire::Fixed
            }
            2 => {
                let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                Wire::Bytes(self.take(len)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed
            }
            _ => return Err(DecodeError::WireType(FieldPath::new())),
        };
        Ok(Some(((key >> 3) as u32, value)))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        if let [byte, rest @ ..] = self.0
            && *byte < 0x80
        {
            self.0 = rest;
            return Ok(u64::from(*byte));
        }
        let (value, rest) = read_varint(self.0).map_err(|why| match why {
            VarintError::Truncated => DecodeError::Truncated(FieldPath::new()),
            VarintError::TooLong => DecodeError::Varint(FieldPath::new()),
        })?;
        self.0 = rest;
        Ok(value)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let parts = self.0.split_at_checked(len);
        // The error has a destructor, so it must not be built for each field.
        let (taken, rest) = parts.ok_or_else(|| DecodeError::Truncated(FieldPath::new()))?;
        self.0 = rest;
        Ok(taken)
    }
}

/// A type that can be the value of a field, in both formats.
pub trait Field<'a>: Default + Sized {
    /// Merges one occurrence of the field in a protobuf message: a scalar replaces, a message merges, a list appends.
    ///
    /// # Errors
    /// The bytes are malformed or of another type.
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError>;

    /// Reads a JSON value other than `null`, for which callers use the default.
    ///
    /// # Errors
    /// The value is malformed or of another type.
    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error>;

    /// Takes the value of `key` in a JSON object, if the type has this key; returns true if it has. So a view can be
    /// embedded in another, like an embedded struct in Go: JSON has its fields next to those of the outer view, protobuf in
    /// a nested message.
    ///
    /// # Errors
    /// The value is malformed or of another type.
    fn json_entry<A: MapAccess<'a>>(&mut self, _: Str<'a>, _: &mut A) -> Result<bool, A::Error> {
        Ok(false)
    }
}

/// A [`Field`] that is not null, as a serde value.
#[derive(Default)]
pub struct NotNull<T>(T);

impl<'de, T: Field<'de>> Deserialize<'de> for NotNull<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        T::json(json).map(Self)
    }
}

/// A [`Field`] in JSON, where `null` reads as the default; used by the generated visitors.
pub type Nullable<T> = Option<NotNull<T>>;

/// Returns the value of a field, or the default for `null`.
pub fn or_default<'a, T: Field<'a>>(value: Nullable<T>) -> T {
    value.unwrap_or_default().0
}

/// Reads a JSON object, one [`Field::json_entry`] after the other.
///
/// # Errors
/// The value is malformed or of another type.
pub fn object<'a, T: Field<'a>, D: Deserializer<'a>>(json: D) -> Result<T, D::Error> {
    struct Entries<T>(PhantomData<T>);
    impl<'de, T: Field<'de>> Visitor<'de> for Entries<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let mut out = T::default();
            while let Some(NotNull(key)) = map.next_key()? {
                if !out.json_entry(key, &mut map)? {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(out)
        }
    }
    json.deserialize_map(Entries(PhantomData))
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        self.get_or_insert_default().merge(wire)
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        T::json(json).map(Some)
    }
}

impl<'a, T: Field<'a>> Field<'a> for Vec<T> {
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        let mut item = T::default();
        item.merge(wire)?;
        self.push(item);
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Field<'de>> Visitor<'de> for Items<T> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(or_default(item));
                }
                Ok(items)
            }
        }
        json.deserialize_seq(Items(PhantomData))
    }
}

/// Text, borrowed from the input where the input holds it verbatim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Str<'a>(Cow<'a, str>);

impl Deref for Str<'_> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<Cow<'a, str>> for Str<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self(text)
    }
}

impl<'a> Field<'a> for Str<'a> {
    #[inline]
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        // Go's decoder takes any bytes. Replacing invalid UTF-8 keeps the object and the exposition.
        let bytes = wire.bytes()?;
        // `from_utf8_lossy` reads byte by byte, `from_utf8` skips ASCII in words.
        self.0 = match str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        };
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Str<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(text.to_owned())))
            }
        }
        json.deserialize_str(Text)
    }
}

macro_rules! varint_field {
    ($($type:ty: $value:ident => $converted:expr),*) => {$(
        impl<'a> Field<'a> for $type {
            #[inline]
            fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
                let $value = wire.varint()?;
                *self = $converted;
                Ok(())
            }
            fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
                Deserialize::deserialize(json)
            }
        }
    )*};
}
varint_field!(i32: value => value as i32, i64: value => value as i64, bool: value => value != 0);

/// A value whose content is ignored; only its presence or number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present;

impl<'a> Field<'a> for Present {
    fn merge(&mut self, _: Wire<'a>) -> Result<(), DecodeError> {
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(json).map(|IgnoredAny| Self)
    }
}

/// The length of a byte field; base64 in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteLen(pub usize);

impl<'a> Field<'a> for ByteLen {
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        self.0 = wire.bytes()?.len();
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        let text = Str::json(json)?;
        // Four characters encode three bytes; padding and line breaks encode none.
        let digits = text.bytes().filter(|b| !matches!(b, b'=' | b'\r' | b'\n')).count();
        Ok(Self(digits * 3 / 4))
    }
}

/// A map sorted by key in byte order, as Go prints maps and as the API server encodes them.
#[derive(Clone, Debug)]
pub struct Map<'a, V = Str<'a>> {
    entries: Vec<(Str<'a>, V)>,
    sorted: bool,
}

impl<V> Default for Map<'_, V> {
    fn default() -> Self {
        Self { entries: Vec::new(), sorted: true }
    }
}

impl<'a, V: Clone> Map<'a, V> {
    /// Returns the entries in byte order of their keys. Of duplicate keys, the last one counts.
    pub fn entries(&self) -> Cow<'_, [(Str<'a>, V)]> {
        if self.sorted {
            return Cow::Borrowed(&self.entries);
        }
        let mut entries = self.entries.clone();
        entries.reverse();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, kept| later.0 == kept.0);
        Cow::Owned(entries)
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.entries.iter().rev().find(|(k, _)| **k == *key).map(|(_, value)| value)
    }

    fn push(&mut self, key: Str<'a>, value: V) {
        self.sorted &= self.entries.last().is_none_or(|(last, _)| *last < key);
        self.entries.push((key, value));
    }
}

impl<'a, V: Field<'a> + Clone> Field<'a> for Map<'a, V> {
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        let mut entry = Message(wire.bytes()?);
        let (mut key, mut value) = (Str::default(), V::default());
        while let Some((tag, wire)) = entry.next_field()? {
            match tag {
                1 => key.merge(wire)?,
                2 => value.merge(wire)?,
                _ => {}
            }
        }
        self.push(key, value);
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        object(json)
    }

    fn json_entry<A: MapAccess<'a>>(
        &mut self,
        key: Str<'a>,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        self.push(key, or_default(map.next_value()?));
        Ok(true)
    }
}

/// Defines lean views; see the module's documentation.
///
/// ```ignore
/// view! {
///     /// The fields of a ConfigMap that metrics read.
///     pub struct ConfigMap<'a> {
///         metadata: Metadata<'a> = 1 "metadata",
///     }
///
///     /// A volume. A row that begins with `..` is inlined in JSON; a row can define the struct of its field.
///     pub struct Volume<'a> {
///         ..source: VolumeSource<'a> = 2,
///         name: Str<'a> = 1 "name",
///         mounts: Vec<Mount<'a>> = 3 "mounts" struct Mount {
///             path: Str<'a> = 1 "path",
///         },
///     }
/// }
/// ```
macro_rules! view {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident<$lt:lifetime> {
            $(..$inner:ident: $inner_ty:ty = $inner_tag:literal,)*
            $($field:ident: $ty:ty = $tag:literal $json:literal
                $(struct $part:ident { $($fields:tt)* })?),* $(,)?
        }
    )*) => {$(
        $($($crate::wire::view::view! {
            #[doc = concat!("`", $json, "`.")]
            pub struct $part<$lt> { $($fields)* }
        })?)*

        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        #[allow(missing_docs)] // The fields are documented by the Kubernetes API reference.
        pub struct $name<$lt> {
            $(pub $inner: $inner_ty,)*
            $(pub $field: $ty,)*
            pub borrowed: std::marker::PhantomData<&$lt ()>,
        }

        impl<$lt> $crate::wire::view::Field<$lt> for $name<$lt> {
            fn merge(
                &mut self,
                wire: $crate::wire::view::Wire<$lt>,
            ) -> Result<(), $crate::wire::view::DecodeError> {
                let mut message = $crate::wire::view::Message(wire.bytes()?);
                while let Some((tag, wire)) = message.next_field()? {
                    match tag {
                        $($inner_tag => $crate::wire::view::Field::merge(&mut self.$inner, wire)?,)*
                        $($tag => $crate::wire::view::Field::merge(&mut self.$field, wire)
                            .map_err(|error| error.within($json))?,)*
                        _ => {}
                    }
                }
                Ok(())
            }

            fn json<D: serde::Deserializer<$lt>>(json: D) -> Result<Self, D::Error> {
                $crate::wire::view::object(json)
            }

            fn json_entry<A: serde::de::MapAccess<$lt>>(
                &mut self,
                key: $crate::wire::view::Str<$lt>,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match &*key {
                    $($json => self.$field = $crate::wire::view::or_default(map.next_value()?),)*
                    _ => {
                        return Ok(false
                            $(|| $crate::wire::view::Field::json_entry(&mut self.$inner, key, map)?)*);
                    }
                }
                Ok(true)
            }
        }
    )*};
}
pub(crate) use view;
