//! The StatsD pipeline: receives lines and exposes series.
//!
//! One thread (`receive`) reads the sockets and passes lines to its ingest worker (`ingest`). The worker
//! finds the cell of a known line in its key cache (`series::key_cache`). For a new line it runs the parser
//! ([`mod@line`]) and the mapper ([`crate::mapper`]) and asks `series::registry` for the series. `scrape`
//! writes the exposition. [`Pipeline`] ties these together; [`Offline`] does the same without sockets.

pub mod line;
pub(crate) mod mapping;
pub(crate) mod mirror;

mod clock;
mod datagram_senders;
pub(crate) mod explain;
mod ingest;
mod line_log;
mod metrics;
mod offline;
mod pipeline;
mod reasons;
mod receive;
mod relay;
mod scrape;
mod series;
mod series_snapshot;
mod supervise;
#[cfg(test)]
pub(crate) mod tests;
mod timer_wheel;

pub use clock::Clock;
pub use mapping::MappingError;
pub use metrics::{Listener, is_own_name};
pub use offline::{Offline, OfflineConfig};
pub use pipeline::{Pipeline, PipelineConfig, ReloadError, SelfMetrics, StartError};
pub(crate) use reasons::describe_reason;
pub use relay::RelayConfig;
pub use series::registry::Reserved;
