//! Go's ways with text, where the originals show them to users: numbers, durations, quoting, patterns.
//!
//! What is accepted and what an error says are part of their command lines, mapping files and lines. A leaf: nothing
//! here knows what the text is for.

pub(crate) mod cursor;
pub(crate) mod duration;
pub(crate) mod float;
pub(crate) mod regex;
pub(crate) mod strconv;
