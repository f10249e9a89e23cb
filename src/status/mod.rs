//! The status of the process for people: one set of facts in several formats.
//!
//! Each component is a [`Reporter`] that adds its state to the [`Facts`] on request. The only data
//! collected in advance is a small [`Sample`] every 15 s for the charts of the last hour. [`judge`]
//! describes the problems in sentences. The formats have the same content: an HTML page ([`html`]),
//! text for a terminal ([`mod@text`]), and JSON, which is the serialised facts. This module depends
//! neither on the pipelines nor on the paths it is served at.

mod board;
pub(crate) mod explanation;
mod facts;
mod history;
mod html;
mod judge;
mod object_explanation;
mod plot;
mod text;
mod truncation;
pub(crate) mod words;
mod writer;

pub(crate) use board::{Board, ObjectFuture, Reporter};
pub(crate) use explanation::{Explanation, LineQuestion};
pub(crate) use facts::{
    COUNTED, ConfigFile, DatagramSender, EmptyMetric, Facts, Failure, Fullest, Health, Kind,
    Kubernetes, LARGEST, Largest, Listener, Node, ObjectsOverBudget, OverBudget, Problem, Refused,
    Rule, SHOWN, StandbyPeer, StandbyStatus, Statsd, Unmapped,
};
pub(crate) use history::{Sample, Track};
pub(crate) use html::{PageContext, document, drawing, page, policy, table};
pub(crate) use judge::excess_rank;
pub(crate) use object_explanation::{FAMILIES, FamilySeries, ObjectExplanation, ObjectName};
pub(crate) use text::text;
pub(crate) use writer::Writer;
