//! The grammar of a line, parsed from left to right.
//!
//! The work is linear in the length of the line: the sections of an extended aggregation, which apply to each
//! of its values, are evaluated once. [`work_counter`] counts the work; a test and a fuzz target check it.

use memchr::{memchr, memchr_iter};

use super::event::{
    DogstatsdMessage, Event, EventKind, MAX_WEIGHT, ParserFlags, SampleError, Sink,
};
use super::labels::Labels;
use super::split::{split, split_once};
use crate::go;
use crate::go::float::GoFloatError;
use crate::util::work_counter;

/// The maximum number of sections after value and type.
const MAX_SECTIONS: usize = 4;
/// The same if external data may be among them.
const MAX_SECTIONS_WITH_ORIGIN: usize = 5;

/// Parses one line, without its line feed, and reports its events and errors to `sink`.
///
/// Nothing is reported for an empty line. An invalid sample does not affect the other samples of its line.
pub fn parse(line: &[u8], flags: ParserFlags, sink: &mut impl Sink) {
    if line.is_empty() {
        return;
    }
    let has_event = samples(line, flags, sink).unwrap_or_else(|reason| {
        sink.sample_error(reason, 1);
        false
    });
    let message = match line {
        [b'_', b'e', b'{', ..] => DogstatsdMessage::Event,
        [b'_', b's', b'c', b'|', ..] => DogstatsdMessage::ServiceCheck,
        _ => return,
    };
    if !has_event {
        sink.dogstatsd(message);
    }
}

/// Parses the samples of a line. Returns true if there was an event.
///
/// # Errors
/// The reason for rejecting the whole line.
fn samples(line: &[u8], flags: ParserFlags, sink: &mut impl Sink) -> Result<bool, SampleError> {
    work_counter::add(line.len());
    let parts = str::from_utf8(line).ok().and_then(|line| split_once(line, b':'));
    let Some((name, rest)) = parts.filter(|(name, _)| !name.is_empty()) else {
        return Err(SampleError::MalformedLine);
    };
    let mut labels = Labels::default();
    let name = labels.take_from_name(name, flags);
    if labels.is_full() {
        return Err(SampleError::TooManyTags);
    }
    report_tag_errors(labels.take_errors(), sink);
    let bytes = rest.as_bytes();
    let tagged = memchr_iter(b'|', bytes).any(|bar| bytes.get(bar + 1) == Some(&b'#'));
    if tagged && !labels.is_empty() {
        return Err(SampleError::MixedTaggingStyles);
    }
    let Some((first, tail)) = split_once(rest, b'|') else {
        return Err(SampleError::NotEnoughPartsAfterColon);
    };
    let mut line = Line { name: &name, flags, labels, sink, has_event: false };
    let mut tail = Tail::of(tail, flags);
    let colon = memchr(b':', bytes).unwrap_or(usize::MAX);
    if colon < first.len() {
        if !matches!(tail.kind, "ms" | "h" | "d") {
            return Err(SampleError::InvalidExtendedAggregateType);
        }
        for value in split(first, b':') {
            line.sample(value, &mut tail);
        }
    } else if colon == usize::MAX || tagged || has_container_id(rest, flags) {
        line.sample(first, &mut tail);
    } else {
        for sample in split(rest, b':') {
            match split_once(sample, b'|') {
                Some((value, tail)) => line.sample(value, &mut Tail::of(tail, flags)),
                None => {
                    line.sink.sample();
                    line.sink.sample_error(SampleError::MalformedComponent, 1);
                }
            }
        }
    }
    Ok(line.has_event)
}

/// The text after a value, or after the values of an extended aggregation.
struct Tail<'a> {
    kind: &'a str,
    sections: Option<&'a str>,
    /// True if there are too many sections.
    is_too_long: bool,
    /// The sections, evaluated when the first value needs them.
    evaluated: Option<Sections>,
}

impl<'a> Tail<'a> {
    fn of(text: &'a str, flags: ParserFlags) -> Self {
        work_counter::add(text.len());
        let most = if flags.origins { MAX_SECTIONS_WITH_ORIGIN } else { MAX_SECTIONS };
        let (kind, sections) = match split_once(text, b'|') {
            Some((kind, sections)) => (kind, Some(sections)),
            None => (text, None),
        };
        let is_too_long = sections
            .is_some_and(|sections| memchr_iter(b'|', sections.as_bytes()).nth(most - 1).is_some());
        Self { kind, sections, is_too_long, evaluated: None }
    }
}

/// Returns true if a line without a tag section is one sample with a container ID (`1|c|c:abc|T5`).
///
/// statsd_exporter splits such a line at the colon of the ID. A line that could be a classic multi-value line
/// (`1|c|c:2|c`, `1|c|c:7|c:3`) is still parsed as one: after the ID only sections may follow, a type is not a section, and
/// there is one ID.
///
/// With [`ParserFlags::origins`] the same applies to external data (`1|c|e:it-false,pu-x`), before or after which the ID may
/// be.
fn has_container_id(rest: &str, flags: ParserFlags) -> bool {
    let Some((before, after)) = rest.split_once(':') else {
        return false;
    };
    let external = before.strip_suffix("|e").filter(|_| flags.origins);
    let Some(sample) = before.strip_suffix("|c").or(external) else {
        return false;
    };
    let mut sections = after.split('|');
    sample.contains('|')
        && sections.next().is_some_and(|id| !id.is_empty())
        && sections.all(|section| {
            section.starts_with(['@', 'T'])
                || external.is_some() && section.starts_with("c:")
                || flags.origins && section.starts_with("e:")
        })
}

fn report_tag_errors(count: u64, sink: &mut impl Sink) {
    if count > 0 {
        sink.tag_errors(count);
    }
}

/// The evaluated sections of a sample, except the labels.
struct Sections {
    rates: [f64; MAX_SECTIONS_WITH_ORIGIN],
    rate_count: usize,
    weight: u64,
    bad_rates: u64,
    tag_errors: u64,
    failure: Option<SampleError>,
}

/// The state of the parser while it reads the samples of a line.
struct Line<'a, 's, S> {
    name: &'a str,
    flags: ParserFlags,
    labels: Labels<'a>,
    sink: &'s mut S,
    has_event: bool,
}

impl<'a, S: Sink> Line<'a, '_, S> {
    /// Parses one sample.
    fn sample(&mut self, value: &'a str, tail: &mut Tail<'a>) {
        self.sink.sample();
        work_counter::add(value.len() + 1);
        if tail.is_too_long {
            return self.sink.sample_error(SampleError::MalformedComponent, 1);
        }
        let kind = tail.kind;
        let set = self.flags.sets && kind == "s";
        let number = if set {
            (!value.is_empty()).then_some(0.0)
        } else {
            go::float::parse(value.as_bytes()).ok()
        };
        let Some(number) = number else {
            return self.sink.sample_error(SampleError::MalformedValue, 1);
        };
        let sections = tail.evaluated.get_or_insert_with(|| self.evaluate(kind, tail.sections));
        report_tag_errors(sections.tag_errors, self.sink);
        if sections.bad_rates > 0 {
            self.sink.sample_error(SampleError::InvalidSampleFactor, sections.bad_rates);
        }
        if let Some(reason) = sections.failure {
            return self.sink.sample_error(reason, 1);
        }
        if !self.labels.is_empty() {
            self.sink.tags();
        }
        let (event_kind, value, weight) = match kind {
            "c" => {
                let rates = sections.rates.iter().take(sections.rate_count);
                (EventKind::Counter, rates.fold(number, |value, rate| value / rate), 1)
            }
            "g" => (EventKind::Gauge { relative: value.starts_with(['+', '-']) }, number, 1),
            "ms" => (EventKind::Observer, number / 1000.0, sections.weight),
            "h" | "d" => (EventKind::Observer, number, sections.weight),
            _ if set => (EventKind::Set(value), 0.0, 1),
            _ => return self.sink.sample_error(SampleError::IllegalEvent, 1),
        };
        if weight == 0 {
            return;
        }
        // All samples of a line have the same labels: either there is only one sample, or they share them.
        let labels = self.labels.sorted();
        self.has_event = true;
        self.sink.event(&Event { kind: event_kind, name: self.name, value, weight, labels });
    }

    /// Evaluates sections from left to right. Labels are kept even if a later section is invalid.
    fn evaluate(&mut self, kind: &str, sections: Option<&'a str>) -> Sections {
        let mut result = Sections::new();
        let Some(sections) = sections else {
            return result;
        };
        work_counter::add(sections.len());
        if split(sections, b'|').any(str::is_empty) {
            result.failure = Some(SampleError::MalformedComponent);
            return result;
        }
        for section in split(sections, b'|') {
            if let Some(rate) = section.strip_prefix('@') {
                result.push_rate(rate, kind);
            } else if let Some(tags) = section.strip_prefix('#') {
                if self.flags.dogstatsd {
                    self.labels.push_dogstatsd(tags);
                    if self.labels.is_full() {
                        result.failure = Some(SampleError::TooManyTags);
                        break;
                    }
                    result.tag_errors += self.labels.take_errors();
                }
            } else if section.starts_with('c') {
                match section.strip_prefix("c:").filter(|id| !id.is_empty()) {
                    Some(id) => {
                        self.sink.container(id);
                        match self.flags.origins {
                            true => self.sink.origin(section),
                            false => self.labels.push_container_id(id),
                        }
                    }
                    None => result.failure = Some(SampleError::MalformedContainerId),
                }
            } else if self.flags.origins && section.starts_with("e:") {
                self.sink.origin(section);
            } else if !section.starts_with('T') {
                result.failure = Some(SampleError::InvalidSampleFactor);
            }
            if result.failure.is_some() {
                break;
            }
        }
        result
    }
}

impl Sections {
    const fn new() -> Self {
        Self {
            rates: [1.0; MAX_SECTIONS_WITH_ORIGIN],
            rate_count: 0,
            weight: 1,
            bad_rates: 0,
            tag_errors: 0,
            failure: None,
        }
    }

    /// Parses a sample rate. A rate that is not a number counts as 1; one out of range counts as infinite.
    fn push_rate(&mut self, text: &str, kind: &str) {
        let mut rate = match go::float::parse(text.as_bytes()) {
            Ok(rate) => rate,
            Err(GoFloatError::Range) => {
                self.bad_rates += 1;
                if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY }
            }
            Err(GoFloatError::Syntax) => {
                self.bad_rates += 1;
                0.0
            }
        };
        if rate == 0.0 {
            rate = 1.0;
        }
        if let Some(slot) = self.rates.get_mut(self.rate_count) {
            *slot = rate;
            self.rate_count += 1;
        }
        if matches!(kind, "ms" | "h" | "d") {
            if rate.is_nan() {
                // NaN gives no number of observations. In statsd_exporter the result depends on the CPU.
                self.bad_rates += 1;
                rate = 1.0;
            }
            // The conversion truncates toward zero; a negative rate yields no observation.
            self.weight = ((1.0 / rate) as u64).min(MAX_WEIGHT);
        }
    }
}
