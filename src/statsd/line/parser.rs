//! The grammar of a line, from left to right.
//!
//! Work is linear in the length of the line: the sections of an extended aggregation, which belong to each of its
//! values, are evaluated once.

use memchr::memchr_iter;

use super::event::{Event, EventKind, MAX_WEIGHT, ParserFlags, SampleError, Sink};
use super::labels::Labels;
use crate::go;
use crate::go::float::GoFloatError;

/// A sample has a value, a type and at most this many sections.
const MAX_SECTIONS: usize = 4;

/// Parses one line (without its line feed) and tells `sink` what it says.
///
/// An empty line says nothing. A bad sample does not keep the other samples of its line from being events.
pub fn parse(line: &[u8], flags: ParserFlags, sink: &mut impl Sink) {
    let of_dogstatsd = [line.starts_with(b"_e{"), line.starts_with(b"_sc|")];
    if line.is_empty() {
        return;
    } else if of_dogstatsd == [false, false] {
        return samples(line, flags, sink);
    }
    let mut seen = Seen { sink, an_event: false };
    samples(line, flags, &mut seen);
    match of_dogstatsd {
        _ if seen.an_event => (),
        [true, _] => sink.dogstatsd_event(),
        [false, _] => sink.dogstatsd_service_check(),
    }
}

/// Hands on what it is told, and notes whether that was an event.
struct Seen<'s> {
    sink: &'s mut dyn Sink,
    an_event: bool,
}

impl Sink for Seen<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.an_event = true;
        self.sink.event(event);
    }

    fn sample(&mut self) {
        self.sink.sample();
    }

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        self.sink.sample_error(reason, count);
    }

    fn tag_errors(&mut self, count: u64) {
        self.sink.tag_errors(count);
    }

    fn tags(&mut self) {
        self.sink.tags();
    }

    fn dogstatsd_event(&mut self) {
        self.sink.dogstatsd_event();
    }

    fn dogstatsd_service_check(&mut self) {
        self.sink.dogstatsd_service_check();
    }
}

/// Parses the samples of a line.
fn samples(line: &[u8], flags: ParserFlags, sink: &mut impl Sink) {
    let parts = str::from_utf8(line).ok().and_then(|line| line.split_once(':'));
    let Some((name, rest)) = parts.filter(|(name, _)| !name.is_empty()) else {
        return sink.sample_error(SampleError::MalformedLine, 1);
    };
    let mut labels = Labels::default();
    let name = labels.take_from_name(name, flags);
    report_tag_errors(labels.take_errors(), sink);
    let bytes = rest.as_bytes();
    let tagged = memchr_iter(b'|', bytes).any(|bar| bytes.get(bar + 1) == Some(&b'#'));
    if tagged && !labels.is_empty() {
        return sink.sample_error(SampleError::MixedTaggingStyles, 1);
    }
    let Some((first, tail)) = rest.split_once('|') else {
        return sink.sample_error(SampleError::NotEnoughPartsAfterColon, 1);
    };
    let mut line = Line { name: &name, flags, labels, previous: None, sink };
    let (kind, sections) = split_type(tail);
    let colon = rest.find(':').unwrap_or(usize::MAX);
    if colon < first.len() {
        if !matches!(kind, "ms" | "h" | "d") {
            return line.sink.sample_error(SampleError::InvalidExtendedAggregateType, 1);
        }
        let mut evaluated = None;
        for value in first.split(':') {
            line.sample(value, kind, sections, &mut evaluated);
        }
    } else if colon == usize::MAX || tagged || has_container_id(rest) {
        line.sample(first, kind, sections, &mut None);
    } else {
        for sample in rest.split(':') {
            match sample.split_once('|') {
                Some((value, tail)) => {
                    let (kind, sections) = split_type(tail);
                    line.sample(value, kind, sections, &mut None);
                }
                None => {
                    line.sink.sample();
                    line.sink.sample_error(SampleError::MalformedComponent, 1);
                }
            }
        }
    }
}

fn split_type(tail: &str) -> (&str, Option<&str>) {
    match tail.split_once('|') {
        Some((kind, sections)) => (kind, Some(sections)),
        None => (tail, None),
    }
}

/// Whether a line without a tag section is one sample with a container id (`1|c|c:abc|T5`).
///
/// statsd_exporter splits such a line at the colon of the id. What could be a classic multi-value line
/// (`1|c|c:2|c`) is still read as one: behind the id only sections may follow, and a type is none.
fn has_container_id(rest: &str) -> bool {
    let Some((before, after)) = rest.split_once(':') else {
        return false;
    };
    let Some(sample) = before.strip_suffix("|c") else {
        return false;
    };
    let mut sections = after.split('|');
    sample.contains('|')
        && sections.next().is_some_and(|id| !id.is_empty())
        && sections.all(|section| section.starts_with(['@', 'T']) || section.starts_with("c:"))
}

fn report_tag_errors(count: u64, sink: &mut impl Sink) {
    if count > 0 {
        sink.tag_errors(count);
    }
}

/// What the sections of a sample come to, apart from the labels.
struct Sections {
    rates: [f64; MAX_SECTIONS],
    rate_count: usize,
    weight: u64,
    bad_rates: u64,
    tag_errors: u64,
    failure: Option<SampleError>,
}

/// The state of a line while its samples are read.
struct Line<'a, 's, S> {
    name: &'a str,
    flags: ParserFlags,
    labels: Labels<'a>,
    previous: Option<&'a str>,
    sink: &'s mut S,
}

impl<'a, S: Sink> Line<'a, '_, S> {
    /// One sample. `evaluated` carries the sections from one value to the next where values share them.
    fn sample(
        &mut self,
        value: &'a str,
        kind: &'a str,
        sections: Option<&'a str>,
        evaluated: &mut Option<Sections>,
    ) {
        self.sink.sample();
        if sections.is_some_and(|sections| {
            sections.bytes().filter(|&byte| byte == b'|').count() >= MAX_SECTIONS
        }) {
            return self.sink.sample_error(SampleError::MalformedComponent, 1);
        }
        let set = self.flags.sets && kind == "s";
        let number = if set {
            (!value.is_empty()).then_some(0.0)
        } else {
            go::float::parse(value.as_bytes()).ok()
        };
        let Some(number) = number else {
            return self.sink.sample_error(SampleError::MalformedValue, 1);
        };
        let sections = evaluated.get_or_insert_with(|| self.evaluate(kind, sections));
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
        // Samples of a line differ in their labels only where there is one sample, or where all share them.
        let same_series = self.previous == Some(kind);
        self.previous = Some(kind);
        let labels = self.labels.sorted();
        self.sink.event(&Event {
            kind: event_kind,
            name: self.name,
            value,
            weight,
            labels,
            same_series,
        });
    }

    /// Reads sections from left to right; labels stay even when a later section is bad.
    fn evaluate(&mut self, kind: &str, sections: Option<&'a str>) -> Sections {
        let mut result = Sections {
            rates: [1.0; MAX_SECTIONS],
            rate_count: 0,
            weight: 1,
            bad_rates: 0,
            tag_errors: 0,
            failure: None,
        };
        let Some(sections) = sections else {
            return result;
        };
        if sections.split('|').any(str::is_empty) {
            result.failure = Some(SampleError::MalformedComponent);
            return result;
        }
        for section in sections.split('|') {
            if let Some(rate) = section.strip_prefix('@') {
                result.push_rate(rate, kind);
            } else if let Some(tags) = section.strip_prefix('#') {
                if self.flags.dogstatsd {
                    self.labels.push_dogstatsd(tags);
                    result.tag_errors += self.labels.take_errors();
                }
            } else if section.starts_with('c') {
                match section.strip_prefix("c:") {
                    Some(id) if !id.is_empty() => self.labels.push_container_id(id),
                    _ => result.failure = Some(SampleError::MalformedContainerId),
                }
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
    /// A rate that is no number counts as 1, one that is too large as infinite.
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
                // No count of observations follows from it; statsd_exporter's is whatever the CPU makes of it.
                self.bad_rates += 1;
                rate = 1.0;
            }
            // Truncates toward zero; a negative rate stands for no observation at all.
            self.weight = ((1.0 / rate) as u64).min(MAX_WEIGHT);
        }
    }
}
