//! Logs and own metrics of the process.
//!
//! Pipelines and the server update plain structs ([`metric`]); each family is a row that refers to
//! its values ([`registry`]), and [`crate::exposition::family`] encodes it in every format. This
//! module does not depend on the pipelines: a component with its own counters registers a
//! [collector](crate::exposition::family::Collect).

pub(crate) mod build;
pub(crate) mod cardinality;
pub(crate) mod census;
pub(crate) mod connections;
pub(crate) mod countable;
pub(crate) mod http;
pub(crate) mod kube;
pub(crate) mod log;
pub(crate) mod metric;
pub(crate) mod process;
mod registry;
pub(crate) mod scrapes;
mod stderr;

pub(crate) use build::user_agent;
pub use build::{REVISION, TOOLCHAIN, VERSION, go_arch};
pub use http::HttpMetrics;
pub use kube::KubeMetrics;
pub use registry::{OwnMetrics, Recorder};
