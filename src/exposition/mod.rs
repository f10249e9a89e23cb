//! The Prometheus exposition formats: writing them for both pipelines, and parsing them.
//!
//! Each of numbers, escaping, header lines, label sets, families and content negotiation has one implementation here.
//! The module is independent of Kubernetes and StatsD; it defines the [`Source`] contract through which the server gets
//! their metrics.

pub mod budget;
pub(crate) mod deflate;
pub(crate) mod escape;
pub(crate) mod family;
pub(crate) mod float;
pub(crate) mod frames;
pub(crate) mod header;
pub(crate) mod labels;
pub mod message;
pub(crate) mod names;
pub mod negotiate;
pub mod normalise;
pub(crate) mod protobuf;
pub mod prototext;
pub(crate) mod reader;
pub(crate) mod series_visitor;
mod source;
#[cfg(any(test, fuzzing))]
pub mod tests;
pub mod typed;
pub(crate) mod value_counts;

pub use source::{DeflatePart, Format, Piece, Preparation, ScrapeQuery, Source, VirtualShard};
