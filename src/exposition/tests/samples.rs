//! The samples of a body in text or as length-delimited messages, in one form, to compare formats.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::exposition::protobuf::{read_varint, unzigzag};

/// The name and the labels of a sample.
pub type Key = (String, BTreeMap<String, String>);

/// The samples of a body. The values of `le` and `quantile` are as Rust prints them.
pub type Samples = BTreeMap<Key, Value>;

/// Reads the samples of a body in one format.
pub type Reader = fn(&[u8]) -> Result<Samples, String>;

/// A value, which is equal to itself also if it is NaN.
#[derive(Clone, Copy, Debug)]
pub struct Value(pub f64);

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits() || self.0.is_nan() && other.0.is_nan()
    }
}

/// The native buckets of a histogram of positive values.
#[derive(Debug, PartialEq, Eq)]
pub struct NativeBuckets {
    /// The resolution: the larger, the narrower the buckets.
    pub schema: i32,
    /// The number of positive values of each bucket that has any.
    pub positive: BTreeMap<i32, i64>,
    /// The same for negative values.
    pub negative: BTreeMap<i32, i64>,
    /// The number of zeros.
    pub zeros: i64,
}

/// Adds a sample.
///
/// # Errors
/// Fails if the sample is there twice.
fn add(
    samples: &mut Samples,
    name: String,
    mut labels: BTreeMap<String, String>,
    value: f64,
) -> Result<(), String> {
    for bound in ["le", "quantile"] {
        if let Some(text) = labels.get_mut(bound) {
            *text = format!("{:?}", text.parse::<f64>().map_err(|_| format!("{bound}={text}"))?);
        }
    }
    match samples.entry((name, labels)) {
        Entry::Occupied(known) => Err(format!("twice: {:?}", known.key())),
        Entry::Vacant(new) => {
            new.insert(Value(value));
            Ok(())
        }
    }
}

/// Reads text. Label values must be without escapes.
///
/// # Errors
/// Fails for a line that is no sample, and for a sample that is there twice.
pub fn of_text(body: &[u8]) -> Result<Samples, String> {
    let text = std::str::from_utf8(body).map_err(|_| "no UTF-8".to_owned())?;
    let mut samples = Samples::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').ok_or_else(|| format!("no value: {line}"))?;
        let (name, mut rest) = series.split_once('{').unwrap_or((series, "}"));
        let mut labels = BTreeMap::new();
        while let Some((label, after)) = rest.split_once("=\"") {
            let (value, after) = after.split_once('"').ok_or_else(|| format!("no end: {line}"))?;
            labels.insert(label.trim_start_matches(',').to_owned(), value.to_owned());
            rest = after;
        }
        let value = value.parse().map_err(|_| format!("no number: {line}"))?;
        (rest == "}").then_some(()).ok_or_else(|| format!("garbage: {line}"))?;
        add(&mut samples, name.to_owned(), labels, value)?;
    }
    Ok(samples)
}

/// The value of a field of a message.
#[derive(Clone, Copy)]
enum Field<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// A message, as its fields with their numbers.
struct Message<'a>(Vec<(u64, Field<'a>)>);

impl<'a> Message<'a> {
    fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let (tag, rest) = read_varint(bytes)?;
            let (field, rest) = match tag & 7 {
                0 => read_varint(rest).map(|(number, rest)| (Field::Varint(number), rest))?,
                1 => {
                    let (double, rest) = rest.split_first_chunk::<8>()?;
                    (Field::Double(f64::from_le_bytes(*double)), rest)
                }
                2 => {
                    let (length, rest) = read_varint(rest)?;
                    let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                    (Field::Bytes(bytes), rest)
                }
                _ => return None,
            };
            fields.push((tag >> 3, field));
            bytes = rest;
        }
        Some(Self(fields))
    }

    fn fields(&self, number: u64) -> impl Iterator<Item = Field<'a>> {
        self.0.iter().filter(move |(each, _)| *each == number).map(|(_, field)| *field)
    }

    /// Returns the messages in a field; `None` if one of them is malformed.
    fn messages(&self, number: u64) -> Option<Vec<Self>> {
        let bytes = self.fields(number).filter_map(|field| match field {
            Field::Bytes(bytes) => Some(bytes),
            _ => None,
        });
        bytes.map(Message::read).collect()
    }

    fn text(&self, number: u64) -> Option<String> {
        self.fields(number).find_map(|field| match field {
            Field::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok(),
            _ => None,
        })
    }

    fn number(&self, number: u64) -> f64 {
        let numbers = self.fields(number).map(|field| match field {
            Field::Varint(number) => number as f64,
            Field::Double(number) => number,
            Field::Bytes(_) => f64::NAN,
        });
        numbers.last().unwrap_or_default()
    }
}

/// Reads length-delimited messages. Native buckets are ignored.
///
/// # Errors
/// Fails for malformed messages, and for a sample that is there twice.
pub fn of_messages(body: &[u8]) -> Result<Samples, String> {
    let mut samples = Samples::new();
    each_metric(body, |name, metric| read_metric(name, metric, &mut samples))?;
    Ok(samples)
}

/// Calls `read` with the name of the family and each metric of length-delimited messages.
fn each_metric(
    mut body: &[u8],
    mut read: impl FnMut(&str, &Message<'_>) -> Result<(), String>,
) -> Result<(), String> {
    while !body.is_empty() {
        let (length, rest) = read_varint(body).ok_or("a length is cut")?;
        let (message, rest) = rest.split_at_checked(length as usize).ok_or("a message is cut")?;
        let family = Message::read(message).ok_or("a malformed message")?;
        body = rest;
        let name = family.text(1).ok_or("a family without a name")?;
        for metric in family.messages(4).ok_or("a malformed metric")? {
            read(&name, &metric)?;
        }
    }
    Ok(())
}

/// Reads the start times of length-delimited messages, in seconds since the Unix epoch, under the names of their families.
///
/// # Errors
/// Fails for malformed messages, and for a start time that is there twice.
pub fn start_times_of_messages(body: &[u8]) -> Result<Samples, String> {
    let mut times = Samples::new();
    each_metric(body, |name, metric| {
        // In a counter, a summary and a histogram.
        for (value, created) in [(3, 3), (4, 4), (7, 15)] {
            for value in metric.messages(value).ok_or("a malformed value")? {
                for created in value.messages(created).ok_or("a malformed time")? {
                    let seconds = created.number(1) + created.number(2) / 1e9;
                    add(&mut times, name.to_owned(), labels_of(name, metric)?, seconds)?;
                }
            }
        }
        Ok(())
    })?;
    Ok(times)
}

/// Reads the native buckets of length-delimited messages, under the names of their families.
///
/// # Errors
/// Fails for malformed messages.
pub fn native_buckets_of_messages(body: &[u8]) -> Result<BTreeMap<Key, NativeBuckets>, String> {
    let mut all = BTreeMap::new();
    each_metric(body, |name, metric| {
        for histogram in metric.messages(7).ok_or("a malformed histogram")? {
            if histogram.fields(5).next().is_none() {
                continue;
            }
            let malformed = "malformed native buckets";
            let buckets = NativeBuckets {
                schema: signed(&histogram, 5).ok_or(malformed)?,
                positive: native_buckets(&histogram, [12, 13]).ok_or(malformed)?,
                negative: native_buckets(&histogram, [9, 10]).ok_or(malformed)?,
                zeros: histogram.number(7) as i64,
            };
            all.insert((name.to_owned(), labels_of(name, metric)?), buckets);
        }
        Ok(())
    })?;
    Ok(all)
}

/// Reads a signed number; 0 if it is not there.
fn signed(message: &Message<'_>, number: u64) -> Option<i32> {
    match message.fields(number).last() {
        Some(Field::Varint(number)) => i32::try_from(unzigzag(number)).ok(),
        None => Some(0),
        Some(_) => None,
    }
}

/// Reads the native buckets of a sign: in one field spans of adjacent ones, in the other one the differences of their counts.
fn native_buckets(histogram: &Message<'_>, fields: [u64; 2]) -> Option<BTreeMap<i32, i64>> {
    let (mut deltas, [spans, differences]) = (Vec::new(), fields);
    for field in histogram.fields(differences) {
        match field {
            Field::Varint(delta) => deltas.push(unzigzag(delta)),
            Field::Bytes(mut packed) => {
                while !packed.is_empty() {
                    let (delta, rest) = read_varint(packed)?;
                    deltas.push(unzigzag(delta));
                    packed = rest;
                }
            }
            Field::Double(_) => return None,
        }
    }
    let (mut next, mut count, mut deltas) = (0, 0, deltas.into_iter());
    let mut counts = BTreeMap::new();
    for span in histogram.messages(spans)? {
        next += signed(&span, 1)?;
        for _ in 0..span.number(2) as u32 {
            count += deltas.next()?;
            if count != 0 {
                counts.insert(next, count);
            }
            next += 1;
        }
    }
    deltas.next().is_none().then_some(counts)
}

fn labels_of(name: &str, metric: &Message<'_>) -> Result<BTreeMap<String, String>, String> {
    let malformed = || format!("malformed: {name}");
    let pairs = metric.messages(1).ok_or_else(malformed)?;
    let pair = |pair: &Message<'_>| Some((pair.text(1)?, pair.text(2).unwrap_or_default()));
    let labels: Option<BTreeMap<String, String>> = pairs.iter().map(pair).collect();
    labels.ok_or_else(malformed)
}

fn read_metric(name: &str, metric: &Message<'_>, samples: &mut Samples) -> Result<(), String> {
    let malformed = || format!("malformed: {name}");
    let labels = labels_of(name, metric)?;
    for number in [2, 3, 5] {
        for value in metric.messages(number).ok_or_else(malformed)? {
            add(samples, name.to_owned(), labels.clone(), value.number(1))?;
        }
    }
    for (number, label, suffix, rank, value) in
        [(4, "quantile", "", 1, 2), (7, "le", "_bucket", 2, 1)]
    {
        for distribution in metric.messages(number).ok_or_else(malformed)? {
            let count = distribution.number(1);
            add(samples, format!("{name}_count"), labels.clone(), count)?;
            add(samples, format!("{name}_sum"), labels.clone(), distribution.number(2))?;
            let parts = distribution.messages(3).ok_or_else(malformed)?;
            let mut parts: Vec<(f64, f64)> =
                parts.iter().map(|part| (part.number(rank), part.number(value))).collect();
            if number == 7 && parts.last().is_none_or(|(bound, _)| bound.is_finite()) {
                parts.push((f64::INFINITY, count));
            }
            for (rank, value) in parts {
                let mut labels = labels.clone();
                labels.insert(label.to_owned(), rank.to_string());
                add(samples, format!("{name}{suffix}"), labels, value)?;
            }
        }
    }
    Ok(())
}

/// Reads messages as protobuf text, in either layout. Strings must be without escapes.
///
/// # Errors
/// Fails for malformed text, and for a sample that is there twice.
pub fn of_prototext(body: &[u8]) -> Result<Samples, String> {
    of_messages(&messages_of_prototext(body)?)
}

/// Reads messages as protobuf text into length-delimited messages, as far as they are read here.
///
/// # Errors
/// Fails for malformed text.
pub fn messages_of_prototext(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut rest = std::str::from_utf8(body).map_err(|_| "no UTF-8".to_owned())?;
    let mut messages = Vec::new();
    let mut family = Vec::new();
    loop {
        let entry = read_entry(&mut rest, "")?;
        // Each message begins with the name of its family.
        let is_end = entry.as_ref().is_none_or(|(name, _)| *name == "name");
        if is_end && !family.is_empty() {
            delimited(&mut messages, &std::mem::take(&mut family));
        }
        let Some((_, field)) = entry else { break };
        family.extend(field);
    }
    Ok(messages)
}

/// Reads a field of a message that is itself the field `of`, and returns its name and its binary form, which is empty for fields
/// that nothing here reads. Returns `None` at the end of the message.
fn read_entry<'t>(rest: &mut &'t str, of: &str) -> Result<Option<(&'t str, Vec<u8>)>, String> {
    *rest = rest.trim_start();
    if rest.is_empty() && of.is_empty() {
        return Ok(None);
    }
    if let Some(after) = rest.strip_prefix('}').filter(|_| !of.is_empty()) {
        *rest = after;
        return Ok(None);
    }
    let malformed = || format!("malformed in {of:?}: {}", rest.get(..40).unwrap_or(rest));
    let (name, after) = rest.split_once(':').ok_or_else(malformed)?;
    let (number, after) = (field_number(of, name), after.trim_start());
    let mut field = Vec::new();
    if let Some(after) = after.strip_prefix('{') {
        *rest = after;
        let mut message = Vec::new();
        while let Some((_, inner)) = read_entry(rest, name)? {
            message.extend(inner);
        }
        field.push(number << 3 | 2);
        delimited(&mut field, &message);
    } else if let Some(after) = after.strip_prefix('"') {
        let (text, after) = after.split_once('"').ok_or_else(malformed)?;
        *rest = after;
        field.push(number << 3 | 2);
        delimited(&mut field, text.as_bytes());
    } else {
        let end = after.find([' ', '\n', '}']).unwrap_or(after.len());
        let (text, after) = after.split_at(end);
        *rest = after;
        // The only words are the types of families, which are not read.
        let value: f64 = text.parse().unwrap_or_default();
        field.push(number << 3 | 1);
        field.extend(value.to_le_bytes());
    }
    if number == 0 {
        field.clear();
    }
    Ok(Some((name, field)))
}

/// Returns the number of a field, 0 if nothing here reads it.
fn field_number(of: &str, name: &str) -> u8 {
    match (of, name) {
        ("", "name") | ("metric", "label") | ("label", "name") => 1,
        ("gauge" | "counter" | "untyped", "value") => 1,
        (_, "sample_count") | ("quantile", "quantile") | ("bucket", "cumulative_count") => 1,
        ("created_timestamp", "seconds") => 1,
        ("label" | "quantile", "value") | ("metric", "gauge") => 2,
        ("created_timestamp", "nanos") => 2,
        (_, "sample_sum") | ("bucket", "upper_bound") => 2,
        ("metric", "counter") | ("summary", "quantile") | ("histogram", "bucket") => 3,
        ("counter", "created_timestamp") => 3,
        ("", "metric") | ("metric", "summary") | ("summary", "created_timestamp") => 4,
        ("metric", "untyped") => 5,
        ("metric", "histogram") => 7,
        ("histogram", "created_timestamp") => 15,
        _ => 0,
    }
}

/// Appends bytes after their length.
fn delimited(out: &mut Vec<u8>, bytes: &[u8]) {
    crate::exposition::protobuf::varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
