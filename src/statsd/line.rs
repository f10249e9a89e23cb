//! One StatsD line in, events and error counts out.
//!
//! The grammar is that of statsd_exporter 0.31: plain StatsD, classic multi-value lines, the four tag dialects
//! (DogStatsD, InfluxDB, Librato, SignalFX) and DogStatsD's extended aggregation. A line comes in as bytes, what it
//! says goes to a [`Sink`]; nothing is kept between lines. This module knows neither mapping rules nor series.
//!
//! Events borrow from the line. A line without tags costs no allocation; only a tag key that needs escaping, or a
//! name that surrounds a SignalFX tag list, is copied.

mod event;
mod labels;
mod parser;
mod simple;

pub use event::{Event, EventKind, Label, MAX_WEIGHT, ParserFlags, SampleError, Sink};
pub use parser::parse;
pub use simple::{SimpleKind, SimpleLine, split_simple};

#[cfg(test)]
mod tests;
