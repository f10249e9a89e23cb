//! What a line comes to: events, or why there is none.

use std::borrow::Cow;

/// Which parts of the grammar are switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParserFlags {
    /// Tags behind `|#` become labels; when off they are skipped.
    pub dogstatsd: bool,
    /// `name,key=value` is a tag list.
    pub influxdb: bool,
    /// `name#key=value` is a tag list.
    pub librato: bool,
    /// `name[key=value]` is a tag list.
    pub signalfx: bool,
    /// Type `s` gives [`EventKind::Set`]; when off it is an illegal event, as in statsd_exporter.
    pub sets: bool,
}

impl Default for ParserFlags {
    /// All tag dialects on, sets off: the defaults of statsd_exporter.
    fn default() -> Self {
        Self { dogstatsd: true, influxdb: true, librato: true, signalfx: true, sets: false }
    }
}

/// What an event does to its series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EventKind<'a> {
    /// Add the value.
    Counter,
    /// Set the value, or add it when `relative` (the text had a sign).
    Gauge {
        /// The value is a change, not a level.
        relative: bool,
    },
    /// Observe the value (timers in seconds, histograms and distributions as sent).
    Observer,
    /// A member of a set, as sent; only with [`ParserFlags::sets`].
    Set(&'a str),
}

/// A label that came with the line, as a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// Escaped name: borrowed unless escaping changed it.
    pub name: Cow<'a, str>,
    /// Value, verbatim.
    pub value: &'a str,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// What to do with the value.
    pub kind: EventKind<'a>,
    /// StatsD name without its tags, unescaped; may be empty (`,a=b:1|c`).
    pub name: &'a str,
    /// Value; a counter's is divided by its sample rate, a timer's is in seconds, a set's is 0.
    pub value: f64,
    /// How many equal observations this event stands for: 1 unless a sampled observer, at most [`MAX_WEIGHT`].
    pub weight: u64,
    /// Labels of this event alone, sorted by name, each name once.
    pub labels: &'a [Label<'a>],
    /// The event before this one came from the same line and had the same type, name and labels, so that a sink may
    /// use the series it found for that one. It keeps the cost of a line with many values and many tags linear.
    pub same_series: bool,
}

/// The largest weight of a sampled observer, 10⁹; a smaller rate than 10⁻⁹ counts as that.
///
/// statsd_exporter observes `1/rate` times and so hangs on a tiny rate. One weighted observation costs the same for
/// any weight; the cap keeps one absurd rate from drowning what a series has counted so far.
pub const MAX_WEIGHT: u64 = 1_000_000_000;

/// Why a sample or a line was refused: the label `reason` of `statsd_exporter_sample_errors_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampleError {
    /// No colon, no name, or not UTF-8.
    MalformedLine,
    /// Name tags and a DogStatsD tag section on one line.
    MixedTaggingStyles,
    /// No `|` behind the colon.
    NotEnoughPartsAfterColon,
    /// Several values, but not of type `ms`, `h` or `d`.
    InvalidExtendedAggregateType,
    /// Too few, too many or empty sections.
    MalformedComponent,
    /// The value is no number.
    MalformedValue,
    /// A sample rate that is no number, or an unknown section.
    InvalidSampleFactor,
    /// A `c` section that is not `c:` and an id.
    MalformedContainerId,
    /// Unknown metric type.
    IllegalEvent,
}

impl SampleError {
    /// All reasons, in the order of their discriminants: `ALL[reason as usize] == reason`.
    pub const ALL: [Self; 9] = [
        Self::MalformedLine,
        Self::MixedTaggingStyles,
        Self::NotEnoughPartsAfterColon,
        Self::InvalidExtendedAggregateType,
        Self::MalformedComponent,
        Self::MalformedValue,
        Self::InvalidSampleFactor,
        Self::MalformedContainerId,
        Self::IllegalEvent,
    ];

    /// The value of the label `reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MalformedLine => "malformed_line",
            Self::MixedTaggingStyles => "mixed_tagging_styles",
            Self::NotEnoughPartsAfterColon => "not_enough_parts_after_colon",
            Self::InvalidExtendedAggregateType => "invalid_extended_aggregate_type",
            Self::MalformedComponent => "malformed_component",
            Self::MalformedValue => "malformed_value",
            Self::InvalidSampleFactor => "invalid_sample_factor",
            Self::MalformedContainerId => "malformed_container_id",
            Self::IllegalEvent => "illegal_event",
        }
    }
}

/// What a line turns into. Calls come in the order of the line.
pub trait Sink {
    /// An event.
    fn event(&mut self, event: &Event<'_>);
    /// A sample was begun, good or bad (`statsd_exporter_samples_total`).
    fn sample(&mut self);
    /// `count` errors of one kind (`statsd_exporter_sample_errors_total`).
    fn sample_error(&mut self, reason: SampleError, count: u64);
    /// `count` tags were refused (`statsd_exporter_tag_errors_total`).
    fn tag_errors(&mut self, count: u64);
    /// A sample had at least one label (`statsd_exporter_tags_total`).
    fn tags(&mut self);
    /// The line looks like a DogStatsD event (`_e{`), and no sample of it is an event here. It comes behind the errors of the line.
    fn dogstatsd_event(&mut self);
    /// The line looks like a DogStatsD service check (`_sc|`), likewise.
    fn dogstatsd_service_check(&mut self);
}
