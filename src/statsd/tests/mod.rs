//! Tests of the whole StatsD pipeline.

pub(crate) mod history;
