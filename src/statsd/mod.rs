//! The StatsD pipeline: lines in, Prometheus series out.
//!
//! [`mod@line`] reads the grammar, [`name`] escapes, [`mapper`] applies the mapping file. The rest lies between the socket
//! and the exposition: one thread (`intake`) takes what the sockets hold (`datagram`, `tcp`, with `net` below them) in the order in which it
//! came and hands it to an ingest worker (`ingest`), which leads a known line straight to its numbers (`keys`, `cell`) and asks the `registry` about a new one; `scrape`
//! writes what is there. A [`Pipeline`] ties them together; [`Offline`] does the same without sockets. This module
//! knows no Kubernetes.

pub mod line;
pub mod mapper;
pub(crate) mod mapping;
pub(crate) mod name;

mod census;
mod clock;
mod expiry;
pub(crate) mod explain;
mod ingest;
mod line_log;
mod mapcache;
mod meaning;
mod metrics;
mod offline;
mod pipeline;
mod receive;
mod relay;
mod reload;
mod scrape;
mod series;
mod supervise;

pub use clock::Clock;
pub use mapcache::CacheKind;
pub use mapping::MappingError;
pub(crate) use meaning::meaning;
pub use metrics::{Listener, is_own_name};
pub use offline::{Offline, OfflineConfig};
pub use pipeline::{Pipeline, PipelineConfig, ReloadError, SelfMetrics, StartError};
pub use relay::RelayConfig;
pub use series::registry::Reserved;
