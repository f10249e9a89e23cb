//! The Kubernetes side as a whole: which list/watches there are, and how they are doing.

use std::sync::Arc;

use tokio::sync::watch;

use super::client::{Client, ClientError};
use super::intake::Intake;
use super::machine::ListOptions;
use super::progress::{Progress, Status};
use super::shard::Shard;
use super::target::{Scope, Target};
use super::watch::{Reflector, Timing};
use super::worker::{Pace, Worker};
use crate::cache::{Catalog, Store};
use crate::resources::{RenderOptions, Renderer, Resource};
use crate::telemetry::KubeMetrics;

/// Objects for each page of a list, as in Go's client.
const PAGE: u64 = 500;

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
    /// Whether every plain list takes what the server has in its cache.
    pub use_apiserver_cache: bool,
    /// How long things may take.
    pub timing: Timing,
}

/// The running list/watches. Dropping it ends them.
pub struct Pipeline {
    worker: Worker,
    handle: PipelineHandle,
}

/// What can be asked of a running pipeline; cheap to clone.
#[derive(Clone)]
pub struct PipelineHandle {
    pending: watch::Receiver<usize>,
    progress: Arc<[Arc<Progress>]>,
}

impl Pipeline {
    /// Registers the stores of all resources with `catalog` and begins to fill them, on a thread of its
    /// own: one task for each resource, or for each resource in each namespace.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        client: &Client,
        config: &PipelineConfig,
        catalog: &Catalog,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        let pace = Arc::new(Pace::new(config.timing.gather));
        let (sender, pending) = watch::channel(0);
        let mut reflectors = Vec::new();
        for watched in &config.resources {
            let schema = watched.renderer.schema();
            let scopes = scopes(config, &watched.target);
            let stores: Vec<Arc<Store>> =
                scopes.iter().map(|_| Arc::new(Store::new(Arc::clone(&schema)))).collect();
            for (scope, store) in scopes.into_iter().zip(&stores) {
                let progress = Arc::new(Progress::new(&scope, Arc::clone(store), sender.clone()));
                let counters = metrics.reflector(&scope.target.label);
                let (renderer, scope) = (Arc::clone(&watched.renderer), Arc::new(scope));
                let (store, events) = (Arc::clone(store), counters.clone());
                reflectors.push(Reflector {
                    client: client.clone(),
                    options: list_options(config),
                    object_limit: (config.object_limit > 0).then_some(config.object_limit),
                    timing: config.timing.clone(),
                    pace: Arc::clone(&pace),
                    intake: Intake::new(
                        Arc::clone(&scope),
                        renderer,
                        store,
                        config.shard,
                        counters,
                    ),
                    scope,
                    progress,
                    calls: metrics.clone(),
                    metrics: events,
                });
            }
            catalog.register(schema, stores);
        }
        let progress = reflectors.iter().map(|reflector| Arc::clone(&reflector.progress)).collect();
        let tasks = reflectors.into_iter().map(Reflector::run).collect();
        let worker = Worker::start(tasks, pace).map_err(ClientError::Thread)?;
        Ok(Self { worker, handle: PipelineHandle { pending, progress } })
    }

    /// What can be asked of it.
    #[must_use]
    pub fn handle(&self) -> PipelineHandle {
        self.handle.clone()
    }

    /// Ends all list/watches and waits until their connections are given up. The stores keep what they
    /// have.
    pub async fn stop(self) {
        self.worker.stop().await;
    }
}

impl PipelineHandle {
    /// Whether every list/watch has a complete state, or the server refuses to give it one.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.pending.borrow() == 0
    }

    /// Waits until [`PipelineHandle::is_ready`], or until the pipeline has ended.
    pub async fn ready(&self) {
        let mut pending = self.pending.clone();
        // An error means that nobody is left to settle anything.
        let _ = pending.wait_for(|pending| *pending == 0).await;
    }

    /// All list/watches, in the order of the configuration.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        self.progress.iter().map(|progress| progress.status()).collect()
    }
}

/// The list/watches of one resource.
fn scopes(config: &PipelineConfig, target: &Target) -> Vec<Scope> {
    let scope = |namespace: Option<&String>, selector: &str| Scope {
        target: target.clone(),
        namespace: namespace.cloned(),
        selector: selector.to_owned(),
    };
    if !target.namespaced {
        vec![scope(None, "")]
    } else if config.namespaces.is_empty() {
        vec![scope(None, &config.selector)]
    } else {
        let each = config.namespaces.iter();
        each.map(|namespace| scope(Some(namespace), &config.selector)).collect()
    }
}

fn list_options(config: &PipelineConfig) -> ListOptions {
    let limited = config.object_limit > 0;
    ListOptions {
        streaming: !limited,
        limit: if limited { config.object_limit } else { PAGE },
        always_limit: limited,
        from_cache: config.use_apiserver_cache,
    }
}
