//! Reads profiles in pprof's protobuf format, as saved to a file by any profiler.
//!
//! The input is untrusted: the size of the unpacked message, of its tables and of the resulting stacks is limited.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read};
use std::time::Duration;

use serde::Deserializer;

use super::flame_graph::{Folded, frame};
use super::profile::{THREAD, tag};
use crate::go::strconv::positive_duration;
use crate::wire::varint::read_varint;
use crate::wire::view::{DecodeError, Field, Message, Wire, view};

/// The maximum size of an unpacked profile, and of its stacks, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The maximum number of strings, functions, mappings and locations together.
const MAX_ENTRIES: usize = 1 << 20;

/// The maximum length of the stacks of all samples together, in bytes; it limits the time that reading takes.
const MAX_TEXT: usize = 2 << 30;

/// The maximum depth of a stack; inner frames beyond it are cut off.
const MAX_DEPTH: usize = 1_024;

/// The reason why a profile could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The gzip stream is damaged.
    #[error("damaged gzip stream: {0}")]
    Gzip(#[source] io::Error),
    /// The profile exceeds a limit of the reader.
    #[error("the profile is too large")]
    TooLarge,
    /// The protobuf message is malformed.
    #[error("not a pprof profile: {0}")]
    Wire(#[from] DecodeError),
    /// The profile refers to an entry that it does not have.
    #[error("the profile has no {table} {id}")]
    Missing {
        /// The table.
        table: &'static str,
        /// The number of the entry.
        id: i64,
    },
    /// The profile has no sample types.
    #[error("not a pprof profile: no sample types")]
    Untyped,
}

/// A profile read from a file.
#[derive(Debug)]
pub(crate) struct SavedProfile {
    /// The sample type: the default of the profile, or its last.
    pub(crate) kind: String,
    /// The unit of the values.
    pub(crate) unit: String,
    /// The duration of sampling, if recorded.
    pub(crate) duration: Option<Duration>,
    /// The values by stack. The thread is the outermost frame if the samples have one.
    pub(crate) stacks: Folded,
}

impl SavedProfile {
    /// Reads a profile, gzip-compressed or not.
    ///
    /// # Errors
    ///
    /// The bytes are not a profile, or it is too large.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        let message = unpack(bytes)?;
        let tables = Tables::read(&message)?;
        let (at, kind) = tables.shown_kind()?;
        let (kind, unit) = (tables.text(kind.kind)?.into_owned(), tables.text(kind.unit)?);
        let (mut stacks, mut size, mut text) = (Folded::new(), 0, 0);
        fields(&message, |number, wire| {
            if number == tag::SAMPLE {
                let (stack, value) = tables.sample(&read(wire)?, at)?;
                text += stack.len();
                if !stacks.contains_key(&stack) {
                    size += stack.len();
                }
                let sum = stacks.entry(stack).or_insert(0_i64);
                *sum = sum.saturating_add(value);
            }
            if size > MAX_BYTES || text > MAX_TEXT { Err(ReadError::TooLarge) } else { Ok(()) }
        })?;
        let duration = positive_duration(tables.duration);
        Ok(Self { kind, unit: unit.into_owned(), duration, stacks })
    }
}

fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ReadError> {
    let message = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let reader = flate2::read::MultiGzDecoder::new(bytes);
        reader.take(MAX_BYTES as u64 + 1).read_to_end(&mut unpacked).map_err(ReadError::Gzip)?;
        Cow::Owned(unpacked)
    } else {
        Cow::Borrowed(bytes)
    };
    if message.len() > MAX_BYTES { Err(ReadError::TooLarge) } else { Ok(message) }
}

/// Calls `each` with the fields of a message.
fn fields<'a>(
    bytes: &'a [u8],
    mut each: impl FnMut(u32, Wire<'a>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut message = Message(bytes);
    while let Some((number, wire)) = message.next_field()? {
        each(number, wire)?;
    }
    Ok(())
}

fn read<'a, T: Field<'a>>(wire: Wire<'a>) -> Result<T, DecodeError> {
    let mut value = T::default();
    value.merge(wire)?;
    Ok(value)
}

/// The numbers of a repeated field, packed or not.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Vec<i64>);

impl<'a> Field<'a> for Numbers {
    fn merge(&mut self, wire: Wire<'a>) -> Result<(), DecodeError> {
        let Wire::Bytes(mut packed) = wire else { return self.0.merge(wire) };
        while !packed.is_empty() {
            let truncated = |_| DecodeError::Truncated(Vec::new());
            let (next, rest) = read_varint(packed).map_err(truncated)?;
            self.0.push(next as i64);
            packed = rest;
        }
        Ok(())
    }

    fn json<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        Field::json(json).map(Self)
    }
}

view! {
    /// The type and unit of a value, as numbers of strings.
    pub struct ValueType<'a> {
        kind: i64 = 1 "type",
        unit: i64 = 2 "unit",
    }

    pub struct Sample<'a> {
        locations: Numbers = 1 "location_id",
        values: Numbers = 2 "value",
        labels: Vec<Label<'a>> = 3 "label" struct Label {
            key: i64 = 1 "key",
            text: i64 = 2 "str",
        },
    }

    pub struct Mapping<'a> {
        id: i64 = 1 "id",
        file: i64 = 5 "filename",
    }

    pub struct Function<'a> {
        id: i64 = 1 "id",
        name: i64 = 2 "name",
    }

    /// A position in the program.
    pub struct Location<'a> {
        id: i64 = 1 "id",
        mapping: i64 = 2 "mapping_id",
        // The innermost first, and several if calls are inlined.
        lines: Vec<Line<'a>> = 4 "line" struct Line {
            function: i64 = 1 "function_id",
        },
    }
}

/// The tables that samples refer to.
#[derive(Debug, Default)]
struct Tables<'a> {
    kinds: Vec<ValueType<'a>>,
    /// The number of the default kind's name, 0 if there is none.
    default_kind: i64,
    /// In nanoseconds.
    duration: i64,
    strings: Vec<&'a [u8]>,
    /// The number of each function's name.
    functions: HashMap<i64, i64>,
    /// The number of each mapping's file name.
    mappings: HashMap<i64, i64>,
    locations: HashMap<i64, Location<'a>>,
}

impl<'a> Tables<'a> {
    fn read(message: &'a [u8]) -> Result<Self, ReadError> {
        let (mut tables, mut entries) = (Self::default(), 0);
        fields(message, |field, wire| {
            match field {
                tag::SAMPLE_TYPE => tables.kinds.merge(wire)?,
                tag::MAPPING => {
                    let Mapping { id, file, .. } = read(wire)?;
                    tables.mappings.insert(id, file);
                }
                tag::LOCATION => {
                    let location: Location<'_> = read(wire)?;
                    entries += location.lines.len();
                    tables.locations.insert(location.id, location);
                }
                tag::FUNCTION => {
                    let Function { id, name, .. } = read(wire)?;
                    tables.functions.insert(id, name);
                }
                tag::STRING_TABLE => tables.strings.push(wire.bytes()?),
                tag::DURATION_NANOS => tables.duration.merge(wire)?,
                tag::DEFAULT_SAMPLE_TYPE => tables.default_kind.merge(wire)?,
                _ => return Ok(()),
            }
            entries += 1;
            if entries > MAX_ENTRIES { Err(ReadError::TooLarge) } else { Ok(()) }
        })?;
        Ok(tables)
    }

    /// Returns the kind of value to show and its index.
    fn shown_kind(&self) -> Result<(usize, &ValueType<'a>), ReadError> {
        let is_default =
            |kind: &ValueType<'_>| self.default_kind != 0 && kind.kind == self.default_kind;
        let last = self.kinds.len().saturating_sub(1);
        let at = self.kinds.iter().position(is_default).unwrap_or(last);
        Ok((at, self.kinds.get(at).ok_or(ReadError::Untyped)?))
    }

    fn text(&self, id: i64) -> Result<Cow<'a, str>, ReadError> {
        let text = usize::try_from(id).ok().and_then(|at| self.strings.get(at));
        let text = text.ok_or(ReadError::Missing { table: "string", id })?;
        let text = String::from_utf8_lossy(text);
        // XML, and so a graph, cannot contain these.
        let forbidden =
            |letter: char| letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}');
        if text.contains(forbidden) {
            return Ok(text.replace(forbidden, "\u{fffd}").into());
        }
        Ok(text)
    }

    /// Returns the stack of a sample and its value at this index.
    fn sample(&self, sample: &Sample<'_>, at: usize) -> Result<(String, i64), ReadError> {
        let mut thread = None;
        for label in &sample.labels {
            if self.text(label.key)? == THREAD {
                thread = Some(frame(&self.text(label.text)?));
            }
        }
        let value = sample.values.0.get(at).copied().unwrap_or(0);
        Ok((self.stack(&sample.locations.0, thread)?, value))
    }

    fn stack(&self, locations: &[i64], thread: Option<String>) -> Result<String, ReadError> {
        let mut frames: Vec<Cow<'_, str>> = thread.into_iter().map(Cow::Owned).collect();
        for id in locations.iter().rev() {
            let missing = ReadError::Missing { table: "location", id: *id };
            let location = self.locations.get(id).ok_or(missing)?;
            let before = frames.len();
            // A line without a function names nothing.
            for line in location.lines.iter().rev().filter(|line| line.function != 0) {
                let missing = ReadError::Missing { table: "function", id: line.function };
                let name = self.functions.get(&line.function).ok_or(missing)?;
                frames.push(Cow::Owned(frame(&self.text(*name)?)));
            }
            if frames.len() == before {
                frames.push(self.file(location.mapping)?);
            }
            if frames.len() >= MAX_DEPTH {
                frames.truncate(MAX_DEPTH);
                break;
            }
        }
        Ok(frames.join(";"))
    }

    /// Returns the frame of a location without functions: the file it is in.
    fn file(&self, mapping: i64) -> Result<Cow<'a, str>, ReadError> {
        let Some(file) = self.mappings.get(&mapping) else { return Ok("[unknown]".into()) };
        let path = self.text(*file)?;
        let name = path.rsplit('/').next().unwrap_or_default().trim_matches(['[', ']']);
        Ok(format!("[{}]", frame(name).trim_matches(['[', ']'])).into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Sample;
    use super::super::profile::tests::profile;
    use super::super::symbols::Symbols;
    use super::*;

    fn encoded() -> Vec<u8> {
        let function = Symbols::of as *const () as u64;
        let sample = |stack: &[u64], value| Sample {
            stack: stack.to_vec(),
            values: [1, value],
            thread: Some("worker".into()),
            of_base: false,
        };
        let samples = vec![sample(&[function, 1], 10), sample(&[function + 1, 1], 20)];
        let profile = profile(samples);
        profile.encode(&Symbols::of(&profile.addresses()))
    }

    #[test]
    fn reads_what_was_written() {
        let message = encoded();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gzip, &message).expect("packed");
        for bytes in [message, gzip.finish().expect("packed")] {
            let saved = SavedProfile::read(&bytes).expect("profile");
            assert_eq!((&*saved.kind, &*saved.unit), ("cpu", "nanoseconds"));
            assert_eq!(saved.duration, Some(Duration::from_secs(1)));
            let stack = "worker;[unknown];kstatd::server::pprof::symbols::Symbols::of";
            assert_eq!(saved.stacks, Folded::from([(stack.to_owned(), 30)]));
        }
    }

    #[test]
    fn a_location_whose_lines_name_no_function_has_the_frame_of_its_file() {
        // A sample of a location that has a line number only.
        let message = b"\x0a\x04\x08\x01\x10\x02\
            \x12\x04\x08\x01\x10\x05\
            \x22\x06\x08\x01\x22\x02\x10\x07\
            \x32\x00\x32\x07samples\x32\x05count";
        let saved = SavedProfile::read(message).expect("profile");
        assert_eq!(saved.stacks, Folded::from([("[unknown]".to_owned(), 5)]));
    }

    #[test]
    fn every_truncation_is_an_error_or_a_smaller_profile() {
        let message = encoded();
        for end in 0..message.len() {
            let text = match SavedProfile::read(&message[..end]) {
                Ok(saved) => format!("{saved:?}"),
                Err(error) => error.to_string(),
            };
            assert!(!text.is_empty());
        }
        for (bytes, part) in [
            (&b""[..], "no sample types"),
            (b"\x1f\x8b\x08junk", "gzip"),
            (b"go away", "not a pprof profile"),
            // A sample type without strings.
            (&[0x0a, 0x02, 0x08, 0x01], "no string 1"),
        ] {
            let error = SavedProfile::read(bytes).expect_err("no profile").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..(MAX_BYTES >> 20) + 1 {
            io::Write::write_all(&mut gzip, &[0; 1 << 20]).expect("packed");
        }
        let error = SavedProfile::read(&gzip.finish().expect("packed")).expect_err("too large");
        assert!(matches!(error, ReadError::TooLarge), "{error}");
    }
}
