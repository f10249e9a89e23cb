//! The Prometheus exposition formats: what both pipelines write and the server sends, and reading it again.
//!
//! Numbers, escaping, header lines, label sets, families and content negotiation each have one home here. This module knows
//! neither Kubernetes nor StatsD; it gives them the [`Source`] contract, through which the server takes
//! what they have without knowing them.

pub mod budget;
pub(crate) mod deflate;
pub(crate) mod escape;
pub(crate) mod family;
pub(crate) mod float;
pub(crate) mod header;
pub(crate) mod labels;
pub mod negotiate;
pub mod normalise;
pub(crate) mod protobuf;
pub mod prototext;
pub(crate) mod reader;
mod source;

pub use source::{DeflatePart, Format, Piece, ScrapeQuery, Source};
