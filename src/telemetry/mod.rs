//! What the process says about itself: logs and its own metrics.
//!
//! Pipelines and the server increment plain structs from here; the telemetry listener serves the
//! registry behind them. Nothing here knows the pipelines.

mod build;
pub(crate) mod connections;
pub(crate) mod http;
pub(crate) mod kube;
pub(crate) mod log;
mod md5;
pub(crate) mod process;
mod protobuf;
mod registry;
mod text;

pub use build::{TOOLCHAIN, VERSION};
pub use http::HttpMetrics;
pub use kube::KubeMetrics;
pub use registry::{OwnMetrics, Recorder, go_arch};
