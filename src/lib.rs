//! kstatd: one static binary in place of kube-state-metrics and statsd_exporter.
//!
//! Two pipelines end in one HTTP server. The Kubernetes pipeline ([`kube`]) lists and watches objects,
//! [`resources`] renders each once for each change, [`cache`] keeps the text in a templated form and
//! expands it at a scrape. The StatsD pipeline ([`statsd`]) parses lines where they lie, maps each
//! distinct name once and aggregates. [`server`] streams what both have.
//!
//! Imports go down the levels that `docs/design.md` shows, which `tests/house.rs` proves.
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod app;
pub mod cache;
pub mod cli;
mod config_file;
mod deflate;
pub mod exposition;
mod go;
pub mod kube;
pub mod mapper;
mod node;
pub mod pods;
pub mod resources;
pub mod server;
pub mod statsd;
mod status;
mod telemetry;
#[cfg(any(test, fuzzing))]
mod tests;
pub mod tools;
mod util;
mod wire;

#[cfg(fuzzing)]
pub use tests::fuzzed;
#[cfg(test)]
use tests::recorded;
