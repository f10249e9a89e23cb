//! The series: their families, label sets and numbers.
//!
//! The `registry` has the families, sorted for a scrape in a `tree`; a series' numbers are in a `cell` or an
//! `observer`, and `keys` leads a known line straight to them. Nothing here knows sockets or lines.

pub(crate) mod account;
mod atomics;
pub(crate) mod cell;
pub(crate) mod family;
pub(crate) mod keys;
pub(crate) mod landing;
pub(crate) mod observer;
pub(crate) mod over;
pub(crate) mod registry;
pub(crate) mod rejection;
mod scalar;
pub(crate) mod senders;
pub(crate) mod tree;
pub(crate) mod values;
