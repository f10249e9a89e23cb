//! List/watches of Kubernetes resources, with recovery from API server and network failures.
//!
//! - [`machine`] chooses the next request; [`reflector`] and [`watch`] send it and apply the response.
//! - [`chunks`] detects stalled responses; [`backoff`] and [`retries`] schedule the next attempt.
//! - [`list_permits`] limits concurrent lists, [`quota`] the number of objects, [`budget`] the number of series.
//! - [`versions`] detects API servers restored from a backup; [`handover`] keeps shards consistent while they change.
//! - [`reconcile`] applies a new configuration kind by kind; [`worker`] is the thread that all of this runs on.
//!
//! This module knows neither metric families nor the HTTP server.

pub(crate) mod backoff;
pub(crate) mod budget;
pub(crate) mod chunks;
pub(crate) mod completed_pods;
pub(crate) mod following;
pub(crate) mod handover;
pub(crate) mod journal;
mod labels;
pub(crate) mod list_permits;
pub(crate) mod machine;
pub(crate) mod object_sink;
pub(crate) mod progress;
pub(crate) mod quota;
pub(crate) mod reconcile;
pub(crate) mod reflector;
pub(crate) mod rejected_set;
mod request_result;
pub(crate) mod retries;
pub(crate) mod shared;
pub(crate) mod timing;
pub(crate) mod versions;
mod watch;
pub(crate) mod worker;
