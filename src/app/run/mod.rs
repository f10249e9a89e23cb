//! Starting what a [`Config`](crate::cli::config::Config) says, keeping to it, and ending it cleanly.

mod kstatd;
mod kube_state_metrics;
mod statsd_exporter;
mod upkeep;

pub use kstatd::kstatd;
#[cfg(feature = "demo")]
pub use kstatd::run_kstatd;
pub use kube_state_metrics::kube_state_metrics;
pub use statsd_exporter::statsd_exporter;
