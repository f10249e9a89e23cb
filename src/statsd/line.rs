//! The parser of StatsD lines.
//!
//! The grammar is that of statsd_exporter 0.31: plain StatsD, classic multi-value lines, the four tag
//! dialects (DogStatsD, InfluxDB, Librato, SignalFX) and DogStatsD's extended aggregation. The parser reports
//! the events and errors of a line to a [`Sink`] and keeps no state between lines. It does not know mapping
//! rules or series.
//!
//! Events borrow from the line. A line without tags allocates nothing; only a tag key that needs escaping, or
//! a name around a SignalFX tag list, is copied.

mod event;
mod labels;
mod parser;
mod simple;
mod split;

pub use event::{
    DogstatsdMessage, Event, EventKind, Label, MAX_TAGS, MAX_WEIGHT, ParserFlags, SampleError, Sink,
};
pub(crate) use labels::name_without_tags;
pub use parser::parse;
pub use simple::{KnownOrigin, SimpleKind, SimpleLine, split_simple, split_simple_with};

#[cfg(test)]
mod tests;
