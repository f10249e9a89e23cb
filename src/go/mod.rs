//! Go's text formats as the originals show them to users: numbers, durations, quoting, regular expressions.
//!
//! Accepted syntax and error texts are part of their command lines, mapping files and StatsD lines. A leaf module:
//! nothing here knows the meaning of a text.

pub(crate) mod cursor;
pub(crate) mod float;
pub(crate) mod regex;
pub(crate) mod strconv;
