//! `kstatd cardinality suggest`: suggests mapping rules against high-cardinality labels and names,
//! with the series each saves, or tries given rules.
//!
//! Captured lines or the series of a process are replayed several times: counted, sampled where
//! there are many values, and counted again with the new rules, so that the savings are measured.
//! Only counts and samples are kept in memory, and nothing is changed.

mod captured;
mod count;
mod mapped_sample;
mod names;
mod steps;
mod suggestion;
mod template;
#[cfg(test)]
mod tests;
mod trial;
mod yaml;

pub(crate) use captured::Captured;
pub(crate) use count::Session;
pub(crate) use suggestion::run as suggest;
pub(crate) use trial::run as try_rules;
