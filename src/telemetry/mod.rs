//! What the process says about itself: logs and its own metrics.
//!
//! Pipelines and the server increment plain structs from here; the telemetry listener serves the
//! registry behind them. Nothing here knows the pipelines.

pub(crate) mod http;
pub(crate) mod kube;
pub(crate) mod log;
mod md5;
pub(crate) mod process;
mod protobuf;
mod registry;
mod text;

pub use http::HttpMetrics;
pub use kube::KubeMetrics;
pub use registry::{OwnMetrics, Recorder, go_arch};

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The toolchain that the program needs at least; stands where the originals name their Go version.
pub const TOOLCHAIN: &str = concat!("rust", env!("CARGO_PKG_RUST_VERSION"));
