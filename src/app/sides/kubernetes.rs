//! The Kubernetes side: brings connection, pipeline and catalog in line with each new configuration.

mod connection;
mod custom;
mod report;
mod series_snapshot;

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::OptionFuture;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{
    ConfigStatus, FamilyNames, Features, PrepareFuture, ReadinessCondition, Side, SideKind,
    StartContext, Task,
};
use crate::cache::{Catalog, MetricKind};
use crate::cli::config::{Config, KubeConfig, Name};
use crate::kube::autosharding::PodName;
use crate::kube::resharding::{PeerOptions, ShardCoordinator};
use crate::kube::shard::Shard;
use crate::kube::snapshot::PipelineSnapshot;
use crate::kube::workloads::ledger::{self, SharedLedger};
use crate::kube::workloads::{self, Workloads};
use crate::kube::{
    self, Client, ClientError, ClientOptions, FirstSync, Pipeline, PipelineConfig, PipelineHandle,
};
use crate::server::health::{Check, Checks};
use crate::server::routes::LivenessProbe;
use crate::telemetry::kube::DefinitionEvents;
use crate::telemetry::{KubeMetrics, Recorder};
use crate::tools::CommandError;
use crate::util::recent_result::RecentResult;

pub(super) use connection::Connection;
use connection::{ApiServerReviews, log_version};
pub(crate) use connection::{is_configured, own_identity};
use custom::CustomState;
use report::KubeReporter;
use series_snapshot::KubeSeries;

/// The time for which an answer to `/livez` serves.
const LIVENESS_LIFETIME: Duration = Duration::from_secs(1);

/// Metrics of Kubernetes objects.
pub(crate) static KUBERNETES: SideKind = SideKind {
    name: "Kubernetes",
    path: "/metrics/kubernetes",
    description: "Kubernetes objects",
    protobuf: true,
    disabled_reason: |config| {
        config.kube.is_none().then_some(
            "The Kubernetes side is disabled: set --kubeconfig, --apiserver or KUBECONFIG, or run in a pod with a service account, to enable it",
        )
    },
    files: |config| {
        let options = config.kube.as_ref().map(|kube| connection::options(kube, config.name));
        let credentials = options.iter().flat_map(ClientOptions::files);
        let custom = config.custom_file().map(|file| PathBuf::from(&file.path));
        credentials.chain(custom).collect()
    },
    names,
    start: |start| Box::pin(KubeSide::start(start)),
};

/// Returns the names of all Kubernetes families of this configuration, including the names that OpenMetrics reserves
/// for them. A StatsD metric with one of them would make the merged exposition invalid.
fn names(config: &Config) -> BTreeSet<String> {
    config.kube.as_ref().map(family_names).unwrap_or_default()
}

fn family_names(config: &KubeConfig) -> BTreeSet<String> {
    let custom = config.custom.as_ref().and_then(|custom| custom.config.as_ref());
    let mut names: BTreeSet<String> = custom.iter().flat_map(|config| config.families()).collect();
    // An info family is named without the suffix of its series.
    let infos = names.iter().filter_map(|name| name.strip_suffix("_info").map(str::to_owned));
    names.extend(infos.collect::<Vec<_>>());
    names.extend(built_in());
    names
}

fn built_in() -> impl Iterator<Item = String> {
    let families = crate::resources::registry().iter().flat_map(|resource| resource.families());
    let families = families.flat_map(|family| {
        let base = family.name.strip_suffix("_total");
        let base = base.filter(|_| family.kind == MetricKind::Counter);
        let around = base.map(|base| [base.to_owned(), format!("{base}_created")]);
        std::iter::once(family.name.to_owned()).chain(around.into_iter().flatten())
    });
    let families = families.chain(workloads::FAMILIES.iter().map(|family| family.name.to_owned()));
    let events = ledger::RESOURCES.iter().flat_map(|resource| resource.families);
    families.chain(events.flat_map(|family| {
        let base = family.name.trim_end_matches("_total");
        [family.name.to_owned(), base.to_owned(), format!("{base}_created")]
    }))
}

/// A running Kubernetes side.
struct KubeSide {
    catalog: Catalog,
    pipeline: Pipeline,
    /// Notifies of changes in the pipeline's state.
    progress: PipelineHandle,
    connection: Connection,
    /// The connection for the next configuration.
    prepared: Option<oneshot::Receiver<Connection>>,
    client: Arc<ArcSwap<Client>>,
    metrics: KubeMetrics,
    config: KubeConfig,
    /// The family names of all sides.
    names: Arc<FamilyNames>,
    /// The automatic sharding, once the pod's StatefulSet is known.
    sharding: Option<ShardCoordinator>,
    /// The task that looks up the StatefulSet.
    shard_lookup: JoinSet<ShardCoordinator>,
    /// The settings for requests to other shards.
    peers: PeerOptions,
    web: Option<PathBuf>,
    /// The number of the latest pipeline change.
    change: u64,
    custom: Option<CustomState>,
    /// The workloads of pods.
    workloads: Workloads,
    /// The counters of events.
    ledger: Arc<SharedLedger>,
    /// Tells whether the first lists are complete, with those of custom resources.
    first_sync: Arc<FirstSync>,
    /// The catalog is withheld until then.
    withholds_catalog: bool,
    /// The task that checks that the namespaces exist.
    namespace_check: JoinSet<()>,
}

/// Starts a pipeline with a configuration.
type StartPipeline =
    fn(&Arc<Client>, &PipelineConfig, &Catalog, &KubeMetrics) -> Result<Pipeline, ClientError>;

/// Starts to look up the StatefulSet of a pod.
fn look_up_shard(
    client: &Arc<ArcSwap<Client>>,
    pod: PodName,
    peers: &PeerOptions,
) -> JoinSet<ShardCoordinator> {
    let mut lookup = JoinSet::new();
    let client = Arc::clone(client);
    lookup.spawn(ShardCoordinator::start_with_retries(client, pod, peers.clone()));
    lookup
}

impl KubeSide {
    /// Connects and starts listing. As kube-state-metrics, fails if the API server does not answer.
    async fn start(start: StartContext<'_>) -> Result<Box<dyn Side>, CommandError> {
        let (name, kube) = (start.config.name, start.config.kube.as_ref());
        let config = kube.ok_or(ClientError::NotConfigured)?;
        let connection = Connection::open(connection::options(config, name), None).await?;
        let client = &connection.client;
        if name == Name::KubeStateMetrics {
            let version = client.version().await?;
            tracing::info!(server = %client.url(), version, "Tested communication with server");
        } else {
            // Neither StatsD nor the listeners wait for the API server.
            tokio::spawn(log_version(Arc::clone(client)));
        }
        Ok(Box::new(Self::follow(&start, config, connection, Pipeline::start).await?))
    }

    /// Starts to list the objects of a server, with a pipeline that `start_pipeline` starts.
    async fn follow(
        start: &StartContext<'_>,
        config: &KubeConfig,
        connection: Connection,
        start_pipeline: StartPipeline,
    ) -> Result<Self, ClientError> {
        let StartContext { config: all, metrics, names, pods, .. } = *start;
        let (name, client) = (all.name, &connection.client);
        let catalog = match name {
            Name::Kstatd => Catalog::strict_openmetrics(),
            _ => Catalog::new(),
        };
        catalog.set_is_share(is_share(config));
        let current = Arc::new(ArcSwap::new(Arc::clone(client)));
        let mut shard_lookup = JoinSet::new();
        let peers = PeerOptions { port: config.telemetry_port, identity: own_identity(all) };
        let sharding = match config.pod.clone() {
            Some(pod) if name == Name::Kstatd => {
                shard_lookup = look_up_shard(&current, pod, &peers);
                None
            }
            Some(pod) => Some(ShardCoordinator::start(&current, pod, peers.clone()).await?),
            None => None,
        };
        let shard = sharding.as_ref().map(ShardCoordinator::shard);
        let mut custom = CustomState::new(config, metrics);
        let shard = shard.unwrap_or(config.pipeline.shard);
        let ledger = SharedLedger::new(&config.workloads.ledger, &catalog, metrics);
        let workloads = Workloads::new(&config.workloads, &catalog, metrics, &ledger, pods, shard);
        let mut first = pipeline_config(config, custom.as_mut(), &workloads);
        first.shard = shard;
        let pipeline = if shard_lookup.is_empty() {
            start_pipeline(client, &first, &catalog, metrics)?
        } else {
            Pipeline::start_idle(&first.timing, &catalog, metrics)?
        };
        let settle = custom.as_ref().map_or(Duration::ZERO, |_| 2 * custom::DEBOUNCE);
        let first_sync = Arc::new(FirstSync::new(pipeline.handle(), settle));
        let ending = Arc::clone(&first_sync);
        tokio::spawn(async move { ending.end().await });
        let mut side = Self {
            catalog,
            first_sync,
            withholds_catalog: config.gate,
            progress: pipeline.handle(),
            pipeline,
            connection,
            prepared: None,
            client: current,
            metrics: metrics.clone(),
            config: config.clone(),
            names: Arc::clone(names),
            sharding,
            shard_lookup,
            peers,
            web: all.web_config.clone(),
            change: 1,
            custom,
            workloads,
            ledger,
            namespace_check: JoinSet::new(),
        };
        side.record_shard();
        side.check_namespaces();
        Ok(side)
    }

    /// Applies the configuration, the shard and the discovered definitions to the pipeline.
    fn apply(&mut self) {
        if self.is_shard_unknown() {
            return;
        }
        self.renew_workloads();
        let mut config = pipeline_config(&self.config, self.custom.as_mut(), &self.workloads);
        config.shard = self.shard();
        let is_limited = config.object_limit > 0;
        let limited = config.resources.iter().filter(|_| is_limited);
        let limited: Vec<&str> = limited.map(|resource| &*resource.api.label).collect();
        self.metrics.keep_listed(&limited);
        self.change = self.pipeline.reconfigure(&self.connection.client, &config);
        self.record_shard();
    }

    /// Brings the workloads in line with the configuration and the shard. Others replace the current ones when the pods have
    /// been listed for them.
    fn renew_workloads(&mut self) {
        let (shard, wanted) = (self.shard(), &self.config.workloads);
        if self.workloads.options() == wanted {
            self.workloads.set_shard(shard);
            return;
        }
        self.workloads = self.workloads.renewed(wanted, &self.metrics, shard);
        if !self.workloads.is_on() {
            self.catalog.exchange(None, &[workloads::RESOURCE.to_owned()]);
        }
    }

    /// Starts a task that logs configured namespaces that do not exist.
    fn check_namespaces(&mut self) {
        self.namespace_check = JoinSet::new();
        let (client, handle) = (Arc::clone(&self.connection.client), self.pipeline.handle());
        let namespaces = self.config.pipeline.namespaces.clone();
        self.namespace_check.spawn(kube::warn_about_missing_namespaces(client, handle, namespaces));
    }

    /// Returns true while the shard of this pod is unknown.
    fn is_shard_unknown(&self) -> bool {
        self.config.pod.is_some() && self.sharding.is_none()
    }

    fn shard(&self) -> Shard {
        self.sharding.as_ref().map_or(self.config.pipeline.shard, ShardCoordinator::shard)
    }

    fn record_shard(&self) {
        if self.is_shard_unknown() {
            return;
        }
        let shard = self.shard();
        self.metrics.shard(i64::from(shard.index), shard.total);
    }

    /// Waits for a change outside the configuration and applies it.
    async fn next_change(&mut self) {
        let (handle, change) = (self.pipeline.handle(), self.change);
        let (catalog, metrics) = (&self.catalog, &self.metrics);
        let news = self.custom.as_ref().map(CustomState::news);
        // Other pods wait until this one has listed custom resources, too.
        let is_final = move || news.as_ref().is_none_or(|has_news| !has_news());
        let shard_changes = self.sharding.as_mut();
        let shard_changes = shard_changes
            .map(|sharding| sharding.next_change(&handle, (change, &is_final), catalog, metrics));
        let definition_changes = self.custom.as_mut().map(CustomState::changed);
        tokio::select! {
            // In a certain order, so that a seed determines a history.
            biased;
            () = self.progress.changed() => {
                if self.pipeline.handle().is_applied(self.change) {
                    self.names.set(KUBERNETES.name, family_names(&self.config));
                }
            }
            Some(Ok(mut sharding)) = self.shard_lookup.join_next() => {
                sharding.set_peer_options(self.peers.clone());
                self.sharding = Some(sharding);
                self.first_sync.restart();
                self.apply();
            }
            Some(()) = OptionFuture::from(shard_changes) => {
                let shard = self.shard();
                tracing::info!(
                    shard = shard.index,
                    of = shard.total,
                    stage = ?shard.stage(),
                    "The shard has changed"
                );
                self.apply();
            }
            Some(()) = OptionFuture::from(definition_changes) => self.apply(),
            () = self.ledger.expire_in_time() => {}
        }
    }
}

impl Side for KubeSide {
    fn features(&self) -> Features {
        let handle = || self.pipeline.handle();
        let (catalog, client) = (self.catalog.clone(), Arc::clone(&self.client));
        let reporter =
            KubeReporter::new(handle(), Arc::clone(&client), catalog.clone(), self.metrics.clone());
        let mut telemetry = Recorder::default();
        telemetry.add(handle());
        let first_lists = handle();
        // Those of custom resources begin after that of their definitions.
        let first_sync = self.custom.as_ref().map(|_| Arc::clone(&self.first_sync));
        let met = Box::pin(async move {
            kube::log_first_lists(first_lists, Instant::now()).await;
            OptionFuture::from(first_sync.as_ref().map(|first_sync| first_sync.end())).await;
        });
        let (ready, live, reviewer) = (handle(), handle(), Arc::clone(&client));
        Features {
            source: Arc::new(catalog.clone()),
            first_sync: self.withholds_catalog.then(|| Arc::clone(&self.first_sync)),
            series: Some(Arc::new(KubeSeries {
                catalog,
                handle: handle(),
                metrics: self.metrics.clone(),
                budget: Arc::clone(&self.config.pipeline.budget),
            })),
            telemetry,
            ready: Some(ReadinessCondition {
                description: "the first lists of Kubernetes objects",
                met,
            }),
            liveness: Some(liveness(client)),
            reporter: Arc::new(reporter),
            health: Checks {
                ready: vec![Arc::new(move || ready_checks(&ready.snapshot()))],
                live: vec![Arc::new(move || live_checks(&live.snapshot()))],
                ..Checks::default()
            },
            lines: None,
            reviews: Some(Arc::new(ApiServerReviews(reviewer))),
            file_reload: None,
            abort: None,
        }
    }

    fn prepare(&mut self, config: &Config) -> Result<Option<PrepareFuture>, CommandError> {
        let Some(kube) = config.kube.clone() else { return Ok(None) };
        if kube.pod != self.config.pod {
            return Err(
                "--pod and --pod-namespace cannot change at run time, restart the process".into()
            );
        }
        let options = connection::options(&kube, config.name);
        let (opening, prepared) = self.connection.clone().reopen(options);
        self.prepared = Some(prepared);
        Ok(Some(opening))
    }

    fn reload(&mut self, config: &Config) -> Result<(), CommandError> {
        let prepared = self.prepared.take().and_then(|mut prepared| prepared.try_recv().ok());
        let all = config;
        let (Some(connection), Some(config)) = (prepared, &config.kube) else {
            return Err("the Kubernetes side has no connection for the new configuration".into());
        };
        let asked = (&self.connection.client, &self.config.pipeline.namespaces);
        let other =
            !Arc::ptr_eq(asked.0, &connection.client) || *asked.1 != config.pipeline.namespaces;
        if !Arc::ptr_eq(&self.connection.client, &connection.client) {
            tokio::spawn(log_version(Arc::clone(&connection.client)));
            self.client.store(Arc::clone(&connection.client));
            // Another server is asked at once, even if the former one asked to wait.
            match (&mut self.sharding, config.pod.clone()) {
                (Some(sharding), _) => sharding.client_changed(),
                (None, Some(pod)) => {
                    self.shard_lookup = look_up_shard(&self.client, pod, &self.peers);
                }
                (None, None) => {}
            }
        }
        self.connection = connection;
        self.config = config.clone();
        self.catalog.set_is_share(is_share(config));
        self.peers.port = config.telemetry_port;
        if self.web != all.web_config {
            // Whether a file enables TLS is decided once, like for the listeners.
            (self.web, self.peers.identity) = (all.web_config.clone(), own_identity(all));
        }
        if let Some(sharding) = &mut self.sharding {
            sharding.set_peer_options(self.peers.clone());
        }
        if self.config.custom.is_none() {
            self.custom = None;
            self.metrics.definitions(DefinitionEvents::default(), 0);
        } else if self.custom.is_none() {
            self.custom = CustomState::new(config, &self.metrics);
        }
        // Families of the former configuration may be served until they are replaced.
        let mut names = HashSet::clone(&self.names.of(KUBERNETES.name));
        names.extend(family_names(&self.config));
        self.names.set(KUBERNETES.name, names);
        // Applied one kind at a time.
        self.apply();
        if other {
            self.check_namespaces();
        }
        Ok(())
    }

    fn next_event(&mut self) -> Task<'_, ()> {
        Box::pin(self.next_change())
    }

    fn status(&self) -> ConfigStatus {
        let has_news = self.custom.as_ref().is_some_and(|custom| custom.news()());
        let in_force = self.pipeline.handle().is_applied(self.change) && !has_news;
        ConfigStatus { in_force, rejected: self.connection.rejected.clone() }
    }

    fn stop(self: Box<Self>) -> Task<'static, ()> {
        Box::pin(self.pipeline.stop())
    }
}

/// Returns a probe that asks the API server of the current connection. Everybody may ask for it, so however many do, the
/// server gets one request at a time.
fn liveness(client: Arc<ArcSwap<Client>>) -> LivenessProbe {
    let recent = RecentResult::new(LIVENESS_LIFETIME);
    Arc::new(move || {
        let (client, recent) = (client.load_full(), recent.clone());
        let ask = async move {
            let lives = client.livez().await.map_err(connection::unanswered);
            lives.inspect_err(|error| tracing::warn!(%error, "The API server's livez check failed"))
        };
        Box::pin(async move {
            let lives = recent.get(ask).await;
            lives.unwrap_or_else(|error| Err(error.to_string().into()))
        })
    })
}

/// Returns a check for the first lists and one per kind for complete and current data.
fn ready_checks(snapshot: &PipelineSnapshot) -> Vec<Check> {
    let waits = (!snapshot.ready).then(|| "initial lists are incomplete".to_owned());
    let first = Check { name: "kubernetes/first-lists".to_owned(), failure: waits };
    let kinds = snapshot.kinds();
    let kinds =
        kinds.iter().map(|kind| Check { name: check_name(&kind.name), failure: kind.problem() });
    std::iter::once(first).chain(kinds).collect()
}

/// Returns a check per kind for a running list/watch.
fn live_checks(snapshot: &PipelineSnapshot) -> Vec<Check> {
    let kinds = snapshot.kinds();
    let kinds = kinds.iter().map(|kind| Check {
        name: check_name(&kind.name),
        failure: (!kind.is_running())
            .then(|| "waiting to be restarted after an internal error".to_owned()),
    });
    kinds.collect()
}

/// Returns true if the process is one of several shards, or may become one of several.
fn is_share(config: &KubeConfig) -> bool {
    config.pod.is_some() || config.pipeline.shard != Shard::ALL
}

fn check_name(kind: &str) -> String {
    format!("kubernetes/{kind}")
}

fn pipeline_config(
    config: &KubeConfig,
    custom: Option<&mut CustomState>,
    workloads: &Workloads,
) -> PipelineConfig {
    let mut pipeline = config.pipeline.clone();
    workloads.attach(&mut pipeline.resources);
    pipeline.resources.extend(custom.map(|custom| custom.watched(config)).unwrap_or_default());
    pipeline
}

#[cfg(test)]
mod tests;
