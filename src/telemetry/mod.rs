//! What the process says about itself: logs and its own metrics.
//!
//! Pipelines and the server count in plain structs from here ([`metric`]); each family is a row that says where its
//! numbers are ([`registry`]), and [`crate::exposition::family`] prints it in every format. Nothing here knows the
//! pipelines: those that count by themselves hand in what [collects](crate::exposition::family::Collect) it.

pub(crate) mod build;
pub(crate) mod cardinality;
pub(crate) mod census;
pub(crate) mod connections;
pub(crate) mod countable;
pub(crate) mod http;
pub(crate) mod kube;
pub(crate) mod log;
mod md5;
pub(crate) mod metric;
pub(crate) mod process;
mod registry;
pub(crate) mod scrapes;

pub use build::{REVISION, TOOLCHAIN, VERSION, go_arch};
pub use http::HttpMetrics;
pub use kube::KubeMetrics;
pub use registry::{OwnMetrics, Recorder};
