//! Commands beside serving: rendering files offline, checking configuration, the demonstration.
//!
//! They take what they need as values and know neither argv nor the process they run in.

pub mod check_config;
pub mod demo;
pub mod docs;
pub mod double;
pub mod manifests;
pub mod render_kube;
pub mod render_statsd;
