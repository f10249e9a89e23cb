//! How the process is doing, for people: one set of facts, and the forms it is shown in.
//!
//! Whoever knows something is a [`Reporter`] and enters it in the [`Facts`] when somebody looks; nothing is gathered before
//! that but one small [`Sample`] each quarter of a minute, from which the last hour is drawn. [`judge`] says what is wrong in
//! sentences. The forms say the same: a page ([`html`]), text for a terminal ([`mod@text`]), and JSON, which is the facts
//! themselves. Nothing here knows the pipelines, nor the paths at which it is served.

mod board;
mod facts;
mod history;
mod html;
mod judge;
mod plot;
mod text;
mod words;

pub(crate) use board::{Board, Reporter};
pub(crate) use facts::{
    ConfigFile, Facts, Failure, Health, Kind, Kubernetes, LARGEST, Largest, Listener, OverBudget,
    Refused, Rule, SHOWN, Statsd, Unmapped,
};
pub(crate) use history::Sample;
pub(crate) use html::{Place, page, policy};
pub(crate) use text::text;
