//! The Kubernetes side: objects of the API server become text in the cache.
//!
//! A [`Pipeline`] lists and watches every resource on a [`Client`]: response bodies are cut into objects
//! by [`wire`], rendered one at a time and put into a store; [`machine`] says what to ask the server
//! next. [`reconcile`] brings what is followed in line with a new configuration, kind by kind. Objects
//! never outlive the chunk they came in. Nothing here knows families or how text is served, and nothing
//! knows the StatsD side.

mod backoff;
mod chunks;
mod client;
mod connection;
mod following;
mod intake;
mod journal;
pub mod machine;
mod pipeline;
mod progress;
mod reconcile;
mod retries;
pub mod selector;
pub mod shard;
mod target;
#[cfg(test)]
mod tests;
mod watch;
pub mod wire;
mod worker;

pub use backoff::{Backoff, BackoffConfig};
pub use client::{Client, ClientError, ClientOptions, check_url};
pub use pipeline::{Pipeline, PipelineConfig, PipelineHandle, Watched};
pub use progress::{Failure, Phase, Status};
pub use target::Target;
pub use watch::Timing;
