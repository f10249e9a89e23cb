//! A recorded data set: objects of a real API server, and the watch events of a rollout of each of its workloads.
//!
//! `tests/apiserver/record` writes it. Bytes that differ between two replayed objects, such as names, UIDs and addresses,
//! are held by tokens of the same width, so that a replayed object is a copy with these places overwritten. Times are
//! moved. Objects are protobuf. Independent of a particular cluster; [`super::replay`] composes one.

use std::fmt;

use serde::Deserialize;

use super::encode::{prefix, varint};
use super::world::ChangeKind;

/// The beginning of a token. A single character could also be a length of protobuf.
const TOKEN: &str = "~t";
/// Digits after it, the token's number.
const DIGITS: usize = 3;
/// Bytes of the varint of a time, from 1978 to 3058.
const TIME: usize = 5;

/// A recorded data set.
#[derive(Debug)]
pub struct Recording {
    /// Seconds at which the recorded rollouts of all workloads started. The events are those of the last one.
    pub starts: [i64; 3],
    /// What is replayed as a whole.
    pub units: Vec<Unit>,
    /// The number of each unit's first state, counted over all units.
    first_states: Vec<u32>,
}

/// The file is malformed, or was written by another version of the recorder.
#[derive(Debug)]
pub struct MalformedRecording(String);

impl fmt::Display for MalformedRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MalformedRecording {}

/// The line of JSON that the file begins with.
#[derive(Deserialize)]
struct Header {
    starts: [i64; 3],
    end: i64,
    units: Vec<UnitHeader>,
}

#[derive(Deserialize)]
struct UnitHeader {
    kind: UnitKind,
    weight: u32,
    pods: u32,
    tokens: Vec<Token>,
    objects: Vec<Object>,
    states: Vec<State>,
    present: Vec<u32>,
    events: Vec<Event>,
    chunks: Vec<usize>,
}

/// A workload with its companions, a node, or a namespace with its own objects.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum UnitKind {
    /// A workload.
    Workload,
    /// A node.
    Node,
    /// A namespace.
    Namespace,
}

/// The place of an object's revision in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The object outlives rollouts.
    Permanent,
    /// The revision before the replaced one.
    Previous,
    /// The replaced revision.
    Current,
    /// The new revision.
    Next,
}

/// A text that differs between replayed objects.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Token {
    /// The form of the text.
    pub class: Class,
    /// The revision that it belongs to.
    #[serde(deserialize_with = "role")]
    pub role: Role,
    /// Distinguishes the tokens of a revision.
    pub ordinal: u32,
    /// Its length in bytes.
    pub width: usize,
}

/// The form of a token.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Hexadecimal digits.
    Hex,
    /// The end of a workload's name.
    Instance,
    /// An address of a pod or a service.
    Ip,
    /// The end of a namespace's name.
    Namespace,
    /// The address of a node.
    #[serde(rename = "node ip")]
    NodeIp,
    /// The name of a node.
    #[serde(rename = "node name")]
    NodeName,
    /// The end of a generated name.
    Suffix,
    /// A UID.
    Uuid,
    /// The resource version.
    Version,
}

/// An object of a unit.
#[derive(Debug, Deserialize)]
pub struct Object {
    /// The plural name of its kind.
    pub resource: String,
    /// The revision that it belongs to.
    #[serde(deserialize_with = "role")]
    pub role: Role,
    /// Namespace with tokens, empty for cluster-wide kinds.
    #[serde(default)]
    pub namespace: String,
    /// Name with tokens.
    pub name: String,
    /// The label `app` with tokens.
    #[serde(default)]
    pub app: String,
}

/// A state of an object.
#[derive(Debug, Deserialize)]
pub struct State {
    /// Index of the object.
    pub object: u32,
    /// The node of a pod, with tokens.
    #[serde(default)]
    pub node: String,
    /// The phase of a pod.
    #[serde(default)]
    pub phase: String,
    /// Chunks with the fields of `metadata`.
    metadata: Vec<usize>,
    /// Chunks with the other fields.
    rest: Vec<usize>,
}

/// A watch event of a rollout.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Event {
    /// Its type.
    #[serde(rename = "type", deserialize_with = "change_kind")]
    pub kind: ChangeKind,
    /// Index of the object's state.
    pub state: u32,
}

/// A unit of the recording.
#[derive(Debug)]
pub struct Unit {
    /// The kind of unit.
    pub kind: UnitKind,
    /// Its frequency in relation to other units of the kind.
    pub weight: u32,
    /// Number of pods.
    pub pods: u32,
    /// Its objects.
    pub objects: Vec<Object>,
    /// The states of all objects.
    pub states: Vec<State>,
    /// The states at the end of the rollout.
    pub present: Vec<u32>,
    /// The events of the rollout.
    pub events: Vec<Event>,
    tokens: Vec<Token>,
    chunks: Vec<Chunk>,
}

/// Protobuf fields, and the places in them that are overwritten.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    tokens: Vec<(usize, Token)>,
    /// Offsets of the varints of times, and the recorded seconds.
    times: Vec<(usize, i64)>,
}

/// The values for the places of an object.
pub trait Values {
    /// Returns a text as long as the token.
    fn text(&self, token: &Token) -> String;
    /// Returns the Unix time in place of a recorded one.
    fn time(&self, recorded: i64) -> i64;
}

impl Recording {
    /// Parses an uncompressed file.
    ///
    /// # Errors
    ///
    /// The file is malformed.
    pub fn parse(file: &[u8]) -> Result<Self, MalformedRecording> {
        let line = file.iter().position(|byte| *byte == b'\n').unwrap_or(file.len());
        let (header, rest) = file.split_at(line);
        let header: Header = serde_json::from_slice(header)
            .map_err(|error| MalformedRecording(format!("the first line: {error}")))?;
        let mut bytes = rest.get(1..).unwrap_or_default();
        let recorded = header.starts[0] - 3600..=header.end;
        let mut first_states = Vec::new();
        let mut units = Vec::new();
        let mut states = 0;
        for unit in header.units {
            first_states.push(states);
            states += unit.states.len() as u32;
            let mut chunks = Vec::with_capacity(unit.chunks.len());
            for len in &unit.chunks {
                let (chunk, left) = bytes
                    .split_at_checked(*len)
                    .ok_or_else(|| MalformedRecording("it is cut off".to_owned()))?;
                chunks.push(Chunk::new(chunk, &unit.tokens, &recorded)?);
                bytes = left;
            }
            let unit = Unit {
                kind: unit.kind,
                weight: unit.weight,
                pods: unit.pods,
                objects: unit.objects,
                states: unit.states,
                present: unit.present,
                events: unit.events,
                tokens: unit.tokens,
                chunks,
            };
            unit.check()?;
            units.push(unit);
        }
        Ok(Self { starts: header.starts, units, first_states })
    }

    /// Returns the unit of a state, counted over all units, and the state.
    pub fn state(&self, number: u32) -> (&Unit, &State) {
        let unit = self.first_states.partition_point(|first| *first <= number) - 1;
        let state = number - self.first_states[unit];
        let unit = &self.units[unit];
        (unit, &unit.states[state as usize])
    }

    /// Returns the number of a unit's state, counted over all units.
    pub fn number(&self, unit: usize, state: u32) -> u32 {
        self.first_states[unit] + state
    }
}

impl Unit {
    fn check(&self) -> Result<(), MalformedRecording> {
        let chunks = self.states.iter().flat_map(|state| state.metadata.iter().chain(&state.rest));
        let states = self.present.iter().chain(self.events.iter().map(|event| &event.state));
        let known = chunks.max().is_none_or(|most| *most < self.chunks.len())
            && states.max().is_none_or(|most| (*most as usize) < self.states.len())
            && self.states.iter().all(|state| (state.object as usize) < self.objects.len());
        known.then_some(()).ok_or_else(|| MalformedRecording("an index is too large".to_owned()))
    }

    /// Returns the object of a state.
    pub fn object(&self, state: &State) -> &Object {
        &self.objects[state.object as usize]
    }

    /// Returns a text of the header with the values of its tokens.
    pub fn text(&self, text: &str, values: &impl Values) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(TOKEN) {
            out.push_str(before);
            let number = after.get(..DIGITS).and_then(|digits| digits.parse::<usize>().ok());
            let Some(token) = number.and_then(|number| self.tokens.get(number)) else {
                break;
            };
            out.push_str(&values.text(token));
            rest = after.get(token.width - TOKEN.len()..).unwrap_or_default();
        }
        out.push_str(rest);
        out
    }

    /// Appends the protobuf message of a state.
    pub fn write(&self, state: &State, values: &impl Values, out: &mut Vec<u8>) {
        let len = state.metadata.iter().map(|chunk| self.chunks[*chunk].bytes.len()).sum();
        prefix(out, 1, len);
        for chunk in state.metadata.iter().chain(&state.rest) {
            self.chunks[*chunk].write(values, out);
        }
    }
}

impl Chunk {
    fn new(
        bytes: &[u8],
        tokens: &[Token],
        recorded: &std::ops::RangeInclusive<i64>,
    ) -> Result<Self, MalformedRecording> {
        let mut found = Vec::new();
        for at in 0..bytes.len() {
            let Some(digits) = bytes[at..].strip_prefix(TOKEN.as_bytes()) else {
                continue;
            };
            let digits = digits.get(..DIGITS).and_then(|digits| str::from_utf8(digits).ok());
            let token = digits
                .and_then(|digits| tokens.get(digits.parse::<usize>().ok()?))
                .filter(|token| at + token.width <= bytes.len())
                .ok_or_else(|| MalformedRecording("a token is unknown".to_owned()))?;
            found.push((at, *token));
        }
        // A time is a message with a varint of seconds, and zero nanoseconds.
        let mut times = Vec::new();
        for (at, window) in bytes.windows(TIME + 3).enumerate() {
            let [0x08, seconds @ .., 0x10, 0x00] = window else {
                continue;
            };
            let value =
                seconds.iter().rev().fold(0_i64, |value, byte| value << 7 | i64::from(byte & 0x7f));
            let (last, first) = seconds.split_last().unwrap_or((&0, &[]));
            let is_varint = *last < 0x80 && first.iter().all(|byte| *byte >= 0x80);
            if is_varint && recorded.contains(&value) {
                times.push((at + 1, value));
            }
        }
        Ok(Self { bytes: bytes.to_vec(), tokens: found, times })
    }

    fn write(&self, values: &impl Values, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for (at, token) in &self.tokens {
            let text = values.text(token);
            out[start + at..start + at + token.width].copy_from_slice(text.as_bytes());
        }
        let mut time = Vec::with_capacity(TIME);
        for (at, recorded) in &self.times {
            time.clear();
            varint(&mut time, values.time(*recorded).cast_unsigned());
            out[start + at..start + at + TIME].copy_from_slice(&time);
        }
    }
}

fn role<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Role, D::Error> {
    match u8::deserialize(deserializer)? {
        0 => Ok(Role::Permanent),
        1 => Ok(Role::Previous),
        2 => Ok(Role::Current),
        3 => Ok(Role::Next),
        other => Err(serde::de::Error::custom(format!("role {other}"))),
    }
}

fn change_kind<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<ChangeKind, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "ADDED" => Ok(ChangeKind::Added),
        "MODIFIED" => Ok(ChangeKind::Modified),
        "DELETED" => Ok(ChangeKind::Deleted),
        other => Err(serde::de::Error::custom(format!("event {other:?}"))),
    }
}
