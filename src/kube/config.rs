//! The configuration of a pipeline.

use std::sync::Arc;
use std::time::Duration;

use super::api_resource::ApiResource;
use super::follow::timing::Timing;
use super::observer::{NoFamilies, ObserverFactory};
use super::selector::KindSelectors;
use super::shard::Shard;
use crate::exposition::budget::Budget;
use crate::resources::{Api, RenderOptions, Renderer, Representation, Resource};

/// A resource to list and watch, and its renderer.
#[derive(Clone)]
pub struct WatchedResource {
    /// The API resource and its scope.
    pub api: ApiResource,
    /// Renders each object into series.
    pub renderer: Arc<dyn Renderer>,
    /// Receive each object, too.
    pub observers: Vec<Arc<dyn ObserverFactory>>,
}

impl WatchedResource {
    /// Returns a built-in resource that is rendered with these options.
    #[must_use]
    pub fn built_in(resource: &'static dyn Resource, options: &RenderOptions) -> Self {
        let renderer = resource.renderer(options);
        Self { api: ApiResource::built_in(resource.api()), renderer, observers: Vec::new() }
    }

    /// Returns a built-in resource without families, for observers.
    #[must_use]
    pub fn observed(api: &Api) -> Self {
        let api = ApiResource::built_in(api);
        let renderer = Arc::new(NoFamilies::new(&api.plural));
        Self { api, renderer, observers: Vec::new() }
    }

    /// Returns the parts of an object that its renderer and its observers read.
    pub(super) fn representation(&self) -> Representation {
        let observers = self.observers.iter().map(|observer| observer.representation());
        observers.fold(self.renderer.representation(), Representation::and)
    }

    /// Returns whether both have the same observers.
    pub(super) fn has_same_observers(&self, other: &Self) -> bool {
        let (own, other) = (&self.observers, &other.observers);
        own.len() == other.len()
            && own.iter().zip(other).all(|(own, other)| Arc::ptr_eq(own, other))
    }
}

/// The resources to watch, with scopes, limits and timing.
#[derive(Clone, Default)]
pub struct PipelineConfig {
    /// The resources to list and watch.
    pub resources: Vec<WatchedResource>,
    /// Namespaces to watch, with one list/watch each; empty for a single list/watch of all namespaces. Cluster-scoped
    /// resources ignore this.
    pub namespaces: Vec<String>,
    /// The field selector of all namespaced resources (see [`selector`](super::selector)); empty for none.
    pub selector: String,
    /// Further field selectors of kinds, by the name of the resource.
    pub field_selectors: KindSelectors,
    /// The label selectors of kinds, by the name of the resource.
    pub label_selectors: KindSelectors,
    /// The time after which completed pods lose their series; `None` for never.
    pub drop_completed_after: Option<Duration>,
    /// The shard of this process.
    pub shard: Shard,
    /// The maximum number of objects per kind (`--object-limit`); 0 for no limit.
    pub object_limit: u64,
    /// The budgets for series and label values.
    pub budget: Arc<Budget>,
    /// Reads every paged list from the API server's watch cache (`resourceVersion=0`).
    pub use_apiserver_cache: bool,
    /// Timeouts, pauses and backoff.
    pub timing: Timing,
}
