//! What is to be followed, and how.

use std::sync::Arc;

use super::follow::watch::Timing;
use super::shard::Shard;
use super::target::Target;
use crate::exposition::budget::Budget;
use crate::resources::{RenderOptions, Renderer, Resource};

/// A resource and what its objects become.
#[derive(Clone)]
pub struct Watched {
    /// What to list and watch.
    pub target: Target,
    /// What renders its objects.
    pub renderer: Arc<dyn Renderer>,
}

impl Watched {
    /// A built-in resource, rendered as `options` say.
    #[must_use]
    pub fn built_in(resource: &'static dyn Resource, options: &RenderOptions) -> Self {
        Self { target: Target::built_in(resource), renderer: resource.renderer(options) }
    }
}

/// What to watch, and how.
#[derive(Clone)]
pub struct PipelineConfig {
    /// The resources.
    pub resources: Vec<Watched>,
    /// Namespaces to watch, each by itself; empty for all at once. Cluster-scoped resources are watched
    /// whatever this says.
    pub namespaces: Vec<String>,
    /// Field selector for all namespaced resources (see [`selector`](super::selector)), empty for none.
    pub selector: String,
    /// Which objects are this process's own.
    pub shard: Shard,
    /// Objects taken of each page of a list, 0 for all.
    pub object_limit: u64,
    /// What series and labels they may have.
    pub budget: Arc<Budget>,
    /// Whether every plain list takes what the server has in its cache.
    pub use_apiserver_cache: bool,
    /// How long things may take.
    pub timing: Timing,
}
