//! Commands other than serving: offline rendering, configuration checks, comparison of expositions,
//! rule suggestions, queries to a running process, and the demonstration.
//!
//! They take their input as values and depend neither on argv nor on the running process.

pub(crate) mod bundle;
pub(crate) mod cardinality;
pub(crate) mod check;
pub(crate) mod check_config;
pub(crate) mod custom_draft;
#[cfg(feature = "demo")]
pub(crate) mod demo;
pub(crate) mod diff;
mod error;
pub(crate) mod explain;
pub(crate) mod manifests;
pub(crate) mod overhead;
pub(crate) mod process_client;
pub(crate) mod profile;
pub(crate) mod rbac;
pub(crate) mod render_kube;
pub(crate) mod render_statsd;
pub(crate) mod shadow;
pub(crate) mod status;
pub(crate) mod terminal;
pub(crate) mod top;
mod yaml_text;

pub use error::{CommandError, Result};
