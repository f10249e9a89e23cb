//! The Kubernetes side: objects of the API server become text in the cache.
//!
//! A [`Pipeline`] lists and watches every resource on a [`Client`]: response bodies are cut into objects
//! by [`frame`], rendered one at a time and put into a store; [`machine`](follow::machine) says what to ask the server
//! next. [`reconcile`](follow::reconcile) brings what is followed in line with a new configuration, kind by kind. Objects
//! never outlive the chunk they came in. Nothing here knows families or how text is served, and nothing
//! knows the StatsD side.

pub(crate) mod autosharding;
pub(crate) mod client;
mod config;
pub(crate) mod discovery;
pub mod facts;
mod first_sync;
mod follow;
pub mod frame;
/// Histories of which a fuzz target says what happens.
#[cfg(fuzzing)]
#[path = "tests/history/mod.rs"]
#[allow(dead_code, unused_imports)]
pub mod history;
mod namespaces;
mod peers;
mod pipeline;
pub(crate) mod resharding;
mod reviews;
pub(crate) mod selector;
pub(crate) mod shard;
mod target;
#[cfg(test)]
mod tests;
pub(crate) mod value_errors;

pub use client::{Client, ClientError, ClientOptions, check_url};
pub use config::{PipelineConfig, Watched};
pub use first_sync::{FirstSync, report};
pub use follow::backoff::{Backoff, BackoffConfig};
pub use follow::progress::{Errors, Failure, ListWatch, Phase, Status};
pub use follow::watch::Timing;
pub use namespaces::report_missing;
pub use pipeline::{Pipeline, PipelineHandle};
pub use reviews::{Account, Judgement};
pub use target::Target;
