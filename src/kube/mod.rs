//! The Kubernetes pipeline: lists and watches resources and renders their objects into the cache.
//!
//! A [`Pipeline`] lists and watches every resource through a [`Client`]. [`frame`] cuts response bodies into objects,
//! which are rendered one at a time and put into a store; [`machine`](follow::machine) decides on the next request.
//! [`reconcile`](follow::reconcile) applies a new configuration, one kind at a time. An object does not outlive the
//! chunk it arrived in. This room does not depend on metric families, on the HTTP server or on StatsD.

mod api_resource;
pub(crate) mod autosharding;
pub(crate) mod client;
mod config;
pub(crate) mod discovery;
pub(crate) mod explain_object;
mod first_sync;
mod follow;
pub mod frame;
/// Random histories, driven by a fuzz target.
#[cfg(fuzzing)]
#[path = "tests/history/mod.rs"]
#[allow(dead_code, unused_imports)]
pub mod history;
mod lean_objects;
mod namespaces;
pub mod observed;
pub(crate) mod observer;
mod peers;
mod pipeline;
pub(crate) mod resharding;
mod reviews;
pub(crate) mod selector;
pub(crate) mod shard;
pub mod snapshot;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod value_errors;
pub mod workloads;

pub use api_resource::ApiResource;
pub use client::{Client, ClientError, ClientOptions, TransportError, check_url};
pub use config::{PipelineConfig, WatchedResource};
pub use first_sync::{FirstSync, log_first_lists};
pub use follow::backoff::{Backoff, BackoffConfig};
pub use follow::progress::{Errors, Failure, ListWatch, Phase, Status};
pub use follow::timing::Timing;
pub use namespaces::warn_about_missing_namespaces;
#[cfg(fuzzing)]
pub(crate) use peers::stage_from_metrics;
pub use pipeline::{Pipeline, PipelineHandle};
pub use reviews::{Account, Decision};
