//! Commands beside serving: rendering files offline, checking configuration, comparing expositions, finding rules, asking a
//! running process, the demonstration.
//!
//! They take what they need as values and know neither argv nor the process they run in.

pub(crate) mod ask;
pub(crate) mod cardinality;
pub(crate) mod check_config;
#[cfg(feature = "demo")]
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod manifests;
pub(crate) mod overhead;
pub(crate) mod rbac;
pub(crate) mod render_kube;
pub(crate) mod render_statsd;
pub(crate) mod status;
pub(crate) mod terminal;
pub(crate) mod top;
