//! The messages of the Kubernetes API as described in `messages.txt`, and the encoding of JSON objects as protobuf.

use std::collections::BTreeMap;

use prost::encoding::{self, WireType};
use serde_json::{Map, Value};

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Text,
    Int32,
    Int64,
    Bool,
    /// Base64 in JSON.
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Any JSON value, as text in field 1.
    Raw,
    /// A message with a list of texts in field 1; in JSON only the list.
    Texts,
    Message(String),
}

/// The cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    One,
    List,
    Map,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    pub tag: u32,
    /// The JSON name, or `..` for a message whose fields are inlined.
    pub name: String,
    pub kind: Type,
    pub number: Number,
}

/// All messages, by name.
pub struct Schema(BTreeMap<String, Vec<Field>>);

/// The encoded occurrences of one field.
pub struct Encoded {
    pub chunks: Vec<Vec<u8>>,
    /// True if their order is irrelevant.
    pub map: bool,
}

impl Schema {
    pub fn read() -> Self {
        let mut messages: BTreeMap<String, Vec<Field>> = BTreeMap::new();
        let mut name = String::new();
        for line in include_str!("messages.txt").lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [message] => {
                    name = message.to_owned();
                    messages.insert(name.clone(), Vec::new());
                }
                [tag, json, kind] => {
                    let (number, kind) = match kind.as_bytes()[0] {
                        b'[' => (Number::List, &kind[1..kind.len() - 1]),
                        b'{' => (Number::Map, &kind[1..kind.len() - 1]),
                        _ => (Number::One, kind),
                    };
                    let kind = match kind {
                        "string" => Type::Text,
                        "int32" => Type::Int32,
                        "int64" => Type::Int64,
                        "bool" => Type::Bool,
                        "bytes" => Type::Bytes,
                        "time" => Type::Time,
                        "microtime" => Type::MicroTime,
                        "quantity" => Type::Quantity,
                        "intstr" => Type::IntOrString,
                        "raw" => Type::Raw,
                        "strings" => Type::Texts,
                        message => Type::Message(message.to_owned()),
                    };
                    let tag = tag.parse().unwrap();
                    let field = Field { tag, name: json.to_owned(), kind, number };
                    messages.get_mut(&name).unwrap().push(field);
                }
                _ => panic!("messages.txt: {line:?}"),
            }
        }
        Self(messages)
    }

    /// Returns the fields of a message, by tag.
    pub fn fields(&self, message: &str) -> &[Field] {
        self.0.get(message).unwrap_or_else(|| {
            panic!("tests/kubernetes/oracle/messages.txt has no message {message}")
        })
    }

    /// Returns whether a message has a field with this JSON name.
    fn has(&self, message: &str, name: &str) -> bool {
        self.fields(message).iter().any(|field| match &field.kind {
            Type::Message(inner) if field.name == ".." => self.has(inner, name),
            _ => field.name == name,
        })
    }

    /// Encodes an object; `arrange` may reorder the fields of each message.
    pub fn encode(
        &self,
        message: &str,
        object: &Value,
        arrange: &mut dyn FnMut(&mut Vec<Encoded>),
    ) -> Vec<u8> {
        let mut object = object.as_object().unwrap().clone();
        // In protobuf these are part of the envelope.
        object.remove("apiVersion");
        object.remove("kind");
        for name in object.keys() {
            assert!(self.has(message, name), "{message} has no field {name:?}");
        }
        self.message(message, &object, arrange)
    }

    fn message(
        &self,
        message: &str,
        object: &Map<String, Value>,
        arrange: &mut dyn FnMut(&mut Vec<Encoded>),
    ) -> Vec<u8> {
        let mut out = Vec::new();
        for field in self.fields(message) {
            let mut chunks = Vec::new();
            if let (Type::Message(inner), "..") = (&field.kind, field.name.as_str()) {
                let value = self.message(inner, object, arrange);
                if !value.is_empty() {
                    chunks.push(delimited(field.tag, &value));
                }
            } else {
                match (object.get(&field.name), field.number) {
                    (None | Some(Value::Null), _) => {}
                    (Some(value), Number::One) => {
                        chunks.push(self.value(field, field.tag, value, arrange));
                    }
                    (Some(list), Number::List) => {
                        for value in list.as_array().unwrap() {
                            chunks.push(self.value(field, field.tag, value, arrange));
                        }
                    }
                    (Some(map), Number::Map) => {
                        for (key, value) in map.as_object().unwrap() {
                            let mut entry = Vec::new();
                            // Default values are omitted from map entries, as in prost.
                            if !key.is_empty() {
                                encoding::string::encode(1, key, &mut entry);
                            }
                            let value = self.value(field, 2, value, arrange);
                            if value != [0x12, 0] {
                                entry.extend(value);
                            }
                            chunks.push(delimited(field.tag, &entry));
                        }
                    }
                }
            }
            out.push(Encoded { chunks, map: field.number == Number::Map });
        }
        arrange(&mut out);
        out.into_iter().flat_map(|field| field.chunks).flatten().collect()
    }

    fn value(
        &self,
        field: &Field,
        tag: u32,
        value: &Value,
        arrange: &mut dyn FnMut(&mut Vec<Encoded>),
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let text = || match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match &field.kind {
            Type::Text => encoding::string::encode(tag, &text(), &mut out),
            Type::Int32 => {
                let number = i32::try_from(value.as_i64().unwrap()).unwrap();
                encoding::int32::encode(tag, &number, &mut out);
            }
            Type::Int64 => encoding::int64::encode(tag, &value.as_i64().unwrap(), &mut out),
            Type::Bool => encoding::bool::encode(tag, &value.as_bool().unwrap(), &mut out),
            Type::Bytes => {
                let bytes: k8s_openapi::ByteString = serde_json::from_value(value.clone()).unwrap();
                encoding::bytes::encode(tag, &bytes.0, &mut out);
            }
            Type::Time | Type::MicroTime => {
                let time: jiff::Timestamp = text().parse().unwrap();
                let nanoseconds = time.as_nanosecond();
                let mut message = Vec::new();
                let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).unwrap();
                encoding::int64::encode(1, &seconds, &mut message);
                let rest = i32::try_from(nanoseconds.rem_euclid(1_000_000_000)).unwrap();
                encoding::int32::encode(2, &rest, &mut message);
                out = delimited(tag, &message);
            }
            Type::Quantity | Type::Raw => {
                let mut message = Vec::new();
                encoding::string::encode(1, &text(), &mut message);
                out = delimited(tag, &message);
            }
            Type::IntOrString => {
                let mut message = Vec::new();
                encoding::int64::encode(1, &i64::from(value.is_string()), &mut message);
                let number = i32::try_from(value.as_i64().unwrap_or(0)).unwrap();
                encoding::int32::encode(2, &number, &mut message);
                let text = value.as_str().unwrap_or("").to_owned();
                encoding::string::encode(3, &text, &mut message);
                out = delimited(tag, &message);
            }
            Type::Texts => {
                let mut message = Vec::new();
                for text in value.as_array().unwrap() {
                    let text = text.as_str().unwrap().to_owned();
                    encoding::string::encode(1, &text, &mut message);
                }
                out = delimited(tag, &message);
            }
            Type::Message(name) => {
                let object = value.as_object().unwrap();
                for key in object.keys() {
                    assert!(self.has(name, key), "{name} has no field {key:?}");
                }
                out = delimited(tag, &self.message(name, object, arrange));
            }
        }
        out
    }
}

fn delimited(tag: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encoding::encode_key(tag, WireType::LengthDelimited, &mut out);
    encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}
