//! Disk usage of the pods of one node (writable layers, logs and local volumes), and the resource
//! usage of its system processes.
//!
//! [`host`] reads processes and pressure from `/proc`. Each figure of disk usage comes
//! from the cheapest available source: the [`kubelet`]'s summary API, project [`quota`]s, or a
//! directory [`walk`] if that is enabled. All sources write to one [`Store`](store::Store), which
//! joins their figures with limits and owners from the [`pods`] API; [`families`] exports the
//! result. This module knows no server addresses and no transport: the caller passes an
//! [`HttpGet`](kubelet::HttpGet) for each server.

pub(crate) mod families;
mod figure;
pub(crate) mod host;
mod json_splitter;
pub(crate) mod kubelet;
mod mounts;
mod pod;
mod pods;
mod quota;
mod record;
mod source;
pub(crate) mod status;
pub(crate) mod store;
mod summary;
mod sys;
mod trend;
pub(crate) mod walk;

pub(crate) use source::NodeSource;

#[cfg(fuzzing)]
pub(crate) use mounts::overlay_paths;
