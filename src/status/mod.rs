//! How the process is doing, for people: one set of facts, and the forms it is shown in.
//!
//! Whoever knows something is a [`Reporter`] and enters it in the [`Facts`] when somebody looks; nothing is gathered before
//! that but one small [`Sample`] each quarter of a minute, from which the last hour is drawn. [`judge`] says what is wrong in
//! sentences. The forms say the same: a page ([`html`]), text for a terminal ([`mod@text`]), and JSON, which is the facts
//! themselves. Nothing here knows the pipelines, nor the paths at which it is served.

mod board;
pub(crate) mod explanation;
mod facts;
mod history;
mod html;
mod judge;
mod plot;
mod text;
pub(crate) mod words;
mod writer;

pub(crate) use board::{Board, Reporter};
pub(crate) use explanation::Explanation;
pub(crate) use facts::{
    COUNTED, ConfigFile, Facts, Failure, Fullest, Health, Kind, Kubernetes, LARGEST, Largest,
    Listener, Node, OverBudget, Refused, Rule, SHOWN, Statsd, Unmapped,
};
pub(crate) use history::Sample;
pub(crate) use html::{Place, page, policy};
pub(crate) use text::text;
pub(crate) use writer::Writer;
