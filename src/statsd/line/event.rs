//! The events and errors that the parser reports.

use crate::util::words::words;
use std::borrow::Cow;

/// The optional parts of the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParserFlags {
    /// Tags after `|#` become labels. If false, they are skipped.
    pub dogstatsd: bool,
    /// `name,key=value` has tags.
    pub influxdb: bool,
    /// `name#key=value` has tags.
    pub librato: bool,
    /// `name[key=value]` has tags.
    pub signalfx: bool,
    /// Container IDs (`c:`) and external data (`e:`) are reported as the origin of the line. If false, a container ID is a
    /// label and external data is an error, as in statsd_exporter.
    pub origins: bool,
    /// Type `s` produces [`EventKind::Set`]. If false, it is an illegal event, as in statsd_exporter.
    pub sets: bool,
}

impl Default for ParserFlags {
    /// All tag dialects on, sets off: the defaults of statsd_exporter.
    fn default() -> Self {
        Self {
            dogstatsd: true,
            influxdb: true,
            librato: true,
            signalfx: true,
            sets: false,
            origins: false,
        }
    }
}

/// The effect of an event on its series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EventKind<'a> {
    /// Adds the value.
    Counter,
    /// Sets the value, or adds it if `relative`.
    Gauge {
        /// True if the text of the value has a sign.
        relative: bool,
    },
    /// Observes the value: timers in seconds, histograms and distributions as sent.
    Observer,
    /// Adds a member to a set, as sent. Only with [`ParserFlags::sets`].
    Set(&'a str),
}

/// A label from a tag of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// The escaped name; borrowed unless escaping changed it.
    pub name: Cow<'a, str>,
    /// The value, verbatim.
    pub value: &'a str,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// The effect of the value.
    pub kind: EventKind<'a>,
    /// The StatsD name without its tags, unescaped. May be empty (`,a=b:1|c`).
    pub name: &'a str,
    /// The value. A counter's is divided by its sample rate, a timer's is in seconds, a set's is 0.
    pub value: f64,
    /// The number of equal observations: 1 except for sampled observers, at most [`MAX_WEIGHT`].
    pub weight: u64,
    /// The labels, sorted by name without duplicates.
    pub labels: &'a [Label<'a>],
}

/// The maximum number of tags of a line, including malformed ones.
///
/// It is ten times what clients send, and bounds the memory and comparisons that one line can cause.
pub const MAX_TAGS: usize = 1_000;

/// The maximum weight of a sampled observer, 10⁹. A rate below 10⁻⁹ is treated as 10⁻⁹.
///
/// statsd_exporter observes `1/rate` times, so a tiny rate makes it hang. Here a weighted observation costs
/// the same for any weight. The limit keeps one absurd rate from outweighing everything else in the series.
pub const MAX_WEIGHT: u64 = 1_000_000_000;

words! {
    /// The reason for rejecting a sample or a line: the label `reason` of `statsd_exporter_sample_errors_total`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum SampleError {
        /// The line has no colon, has no name or is not UTF-8.
        MalformedLine = "malformed_line",
        /// The line has tags in the name and a DogStatsD tag section.
        MixedTaggingStyles = "mixed_tagging_styles",
        /// There is no `|` after the colon.
        NotEnoughPartsAfterColon = "not_enough_parts_after_colon",
        /// There are several values, but the type is not `ms`, `h` or `d`.
        InvalidExtendedAggregateType = "invalid_extended_aggregate_type",
        /// There are too few, too many or empty sections.
        MalformedComponent = "malformed_component",
        /// The value is not a number.
        MalformedValue = "malformed_value",
        /// The sample rate is not a number, or a section is unknown.
        InvalidSampleFactor = "invalid_sample_factor",
        /// A section begins with `c` but is not `c:` and an ID.
        MalformedContainerId = "malformed_container_id",
        /// The metric type is unknown.
        IllegalEvent = "illegal_event",
        /// There are more than [`MAX_TAGS`] tags.
        TooManyTags = "too_many_tags",
    }
}

words! {
    /// A DogStatsD message that is not a metric.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DogstatsdMessage {
        /// An event (`_e{`).
        Event = "dogstatsd_event",
        /// A service check (`_sc|`).
        ServiceCheck = "dogstatsd_service_check",
    }
}

/// A receiver of the events and errors of a line, in the order of the line.
pub trait Sink {
    /// Reports an event. All events of a line have the same name and labels, so a sink can keep the series
    /// for each event type and resolve a line with many values once per type.
    fn event(&mut self, event: &Event<'_>);
    /// Reports the container ID of a section `c:ID`, before the events of its sample.
    fn container(&mut self, _id: &str) {}
    /// Reports a section `c:ID` or `e:DATA`, before the events of its sample. Only with [`ParserFlags::origins`].
    fn origin(&mut self, section: &str) {
        let _ = section;
    }
    /// Reports the beginning of a sample, valid or not (`statsd_exporter_samples_total`).
    fn sample(&mut self) {}
    /// Reports `count` errors with one reason (`statsd_exporter_sample_errors_total`).
    fn sample_error(&mut self, _reason: SampleError, _count: u64) {}
    /// Reports `count` rejected tags (`statsd_exporter_tag_errors_total`).
    fn tag_errors(&mut self, _count: u64) {}
    /// Reports that a sample has at least one label (`statsd_exporter_tags_total`).
    fn tags(&mut self) {}
    /// Reports that the line looks like a DogStatsD message and contains no valid sample. Called after the errors
    /// of the line.
    fn dogstatsd(&mut self, _message: DogstatsdMessage) {}
}
