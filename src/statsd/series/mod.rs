//! The series: families, label sets and values.
//!
//! `registry` owns the families and keeps their series sorted for scrapes in a `tree`. The value of a series
//! is in a `cell` or an `observer`. `key_cache` finds the cell of a known line. Nothing here depends on sockets or
//! on the line format.

pub(crate) mod account;
mod atomics;
pub(crate) mod budget_violations;
pub(crate) mod cell;
pub(crate) mod family;
pub(crate) mod key_cache;
pub(crate) mod observer;
pub(crate) mod placement;
pub(crate) mod registry;
pub(crate) mod rejection;
mod scalar;
pub(crate) mod senders;
pub(crate) mod tree;
pub(crate) mod values;
mod widths;
