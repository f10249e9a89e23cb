//! The Kubernetes side of a run: connection, pipeline and catalog, brought in line with each new
//! configuration.

mod census;
mod connection;
mod custom;
mod gated;
mod report;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Awaited, Health, Kind, Preparing, Side, Start, Status, Task};
use crate::cache::{Catalog, MetricKind};
use crate::cli::config::{Config, KubeConfig, Name};
use crate::exposition::Source;
use crate::kube::facts::Facts;
use crate::kube::resharding::{Asking, Sharding};
use crate::kube::shard::Shard;
use crate::kube::{
    self, Client, ClientError, FirstSync, Pipeline, PipelineConfig, PipelineHandle, Timing, Watched,
};
use crate::server::authorisation::Reviews;
use crate::server::health::Check;
use crate::server::routes::LivenessProbe;
use crate::status::Reporter;
use crate::telemetry::countable::Countable;
use crate::telemetry::{KubeMetrics, Recorder};

use census::KubeSeries;
pub(crate) use connection::is_configured;
use connection::{Connection, Reviewer, greet, own_identity};
use custom::{Custom, redefined};
use gated::Gated;
use report::KubeReport;

/// The objects of a cluster.
pub(crate) static KUBERNETES: Kind = Kind {
    name: "Kubernetes",
    path: "/metrics/kubernetes",
    about: "Kubernetes objects",
    protobuf: false,
    off: |config| {
        config.kube.is_none().then_some(
            "the Kubernetes side is off: set --kubeconfig, --apiserver or KUBECONFIG, or run in a pod with a service \
             account, to turn it on",
        )
    },
    files: |config| {
        let credentials = config.kube.iter().flat_map(|kube| connection::files(kube, config.name));
        let custom = config.custom_file().map(|file| PathBuf::from(&file.path));
        credentials.chain(custom).collect()
    },
    names,
    start: |start| Box::pin(KubeSide::start(start)),
};

/// The names of all families of Kubernetes objects, watched now or after a reload, and those that OpenMetrics
/// reserves around them: a StatsD client that sent one would make the common exposition invalid.
///
/// Custom resources have theirs of the start; those that are added later are not among them.
fn names(config: &Config) -> BTreeSet<String> {
    let Some(kube) = &config.kube else { return BTreeSet::new() };
    let custom = kube.custom.as_ref().and_then(|custom| custom.config.as_ref());
    let mut names: BTreeSet<String> = custom.iter().flat_map(|config| config.families()).collect();
    names.extend(built_in());
    names
}

fn built_in() -> impl Iterator<Item = String> {
    let families = crate::resources::registry().iter().flat_map(|resource| resource.families());
    families.flat_map(|family| {
        let base = family.name.strip_suffix("_total");
        let base = base.filter(|_| family.kind == MetricKind::Counter);
        let around = base.map(|base| [base.to_owned(), format!("{base}_created")]);
        std::iter::once(family.name.to_owned()).chain(around.into_iter().flatten())
    })
}

/// A running Kubernetes side.
struct KubeSide {
    catalog: Catalog,
    pipeline: Pipeline,
    /// What has come further since it was last looked at.
    situation: PipelineHandle,
    connection: Connection,
    /// The connection that the next configuration gets.
    prepared: Option<oneshot::Receiver<Connection>>,
    client: Arc<ArcSwap<Client>>,
    metrics: KubeMetrics,
    config: KubeConfig,
    /// Where the pod decides about the shard, once it is known how.
    sharding: Option<Sharding>,
    /// Finds that out.
    finding: JoinSet<Sharding>,
    /// How other pods are asked, by this web configuration.
    peers: Asking,
    web: Option<PathBuf>,
    /// The number of the latest change.
    change: u64,
    custom: Option<Custom>,
    /// What holds back what is served at the start, if anything does.
    first_sync: Option<Arc<FirstSync>>,
    /// Asks whether the namespaces exist.
    asking: JoinSet<()>,
}

/// Completes when another share of the objects is to be followed, or another part of it to be shown; it may be dropped at
/// any time. `change` is the number of the latest one.
async fn reshared(
    sharding: &mut Option<Sharding>,
    handle: &PipelineHandle,
    change: u64,
    catalog: &Catalog,
    metrics: &KubeMetrics,
) {
    match sharding {
        Some(sharding) => sharding.step(handle, change, catalog, metrics).await,
        None => std::future::pending().await,
    }
}

impl KubeSide {
    /// Connects and begins to list. Under the name kube-state-metrics the API server must answer now.
    async fn start(start: Start<'_>) -> Result<Box<dyn Side>, String> {
        let Start { config, metrics, .. } = start;
        let side = Self::open(config, metrics).await.map_err(|error| error.to_string())?;
        Ok(Box::new(side))
    }

    async fn open(all: &Config, metrics: &KubeMetrics) -> Result<Self, ClientError> {
        let (name, config) = (all.name, all.kube.as_ref().ok_or(ClientError::NotConfigured)?);
        let connection = Connection::open(config, name, None).await?;
        let client = &connection.client;
        if name == Name::KubeStateMetrics {
            let version = client.version().await?;
            tracing::info!(server = %client.url(), version, "Tested communication with server");
        } else {
            // StatsD does not wait for the API server, nor do the listeners.
            tokio::spawn(greet(Arc::clone(client)));
        }
        let catalog = match name {
            Name::Kstatd => Catalog::by_the_book(),
            _ => Catalog::new(),
        };
        let current = Arc::new(ArcSwap::new(Arc::clone(client)));
        let mut finding = JoinSet::new();
        let peers = Asking { port: config.telemetry_port, identity: own_identity(all) };
        let sharding = match config.pod.clone() {
            Some(pod) if name == Name::Kstatd => {
                finding.spawn(Sharding::find(Arc::clone(&current), pod, peers.clone()));
                None
            }
            Some(pod) => Some(Sharding::start(&current, pod, peers.clone()).await?),
            None => None,
        };
        let shard = sharding.as_ref().map(Sharding::share);
        let mut custom = Custom::new(config, metrics);
        let mut first = pipeline_config(config, custom.as_mut());
        first.shard = shard.unwrap_or(first.shard);
        let pipeline = if finding.is_empty() {
            Pipeline::follow(client, &first, &catalog, metrics)?
        } else {
            Pipeline::idle(&first.timing, &catalog, metrics)?
        };
        let settle = custom.as_ref().map_or(Duration::ZERO, |_| 2 * custom::SETTLE);
        let first_sync = config
            .gate
            .map(|patience| Arc::new(FirstSync::new(pipeline.handle(), patience, settle)));
        tokio::spawn(kube::report(pipeline.handle()));
        let mut side = Self {
            catalog,
            first_sync,
            situation: pipeline.handle(),
            pipeline,
            connection,
            prepared: None,
            client: current,
            metrics: metrics.clone(),
            config: config.clone(),
            sharding,
            finding,
            peers,
            web: all.web_config.clone(),
            change: 1,
            custom,
            asking: JoinSet::new(),
        };
        side.note_shard();
        side.ask_for_namespaces();
        Ok(side)
    }

    /// Follows what the configuration, the share and the cluster's definitions say.
    fn follow(&mut self) {
        if self.is_finding() {
            return;
        }
        let mut config = pipeline_config(&self.config, self.custom.as_mut());
        config.shard = self.shard();
        self.change = self.pipeline.change(&self.connection.client, &config);
        self.note_shard();
    }

    /// Says in the log which of the namespaces there are not.
    fn ask_for_namespaces(&mut self) {
        self.asking = JoinSet::new();
        let (client, handle) = (Arc::clone(&self.connection.client), self.pipeline.handle());
        let namespaces = self.config.namespaces.clone();
        self.asking.spawn(kube::report_missing(client, handle, namespaces));
    }

    /// Whether it is not known yet which share of the objects is that of this pod.
    fn is_finding(&self) -> bool {
        self.config.pod.is_some() && self.sharding.is_none()
    }

    fn shard(&self) -> Shard {
        self.sharding.as_ref().map_or(self.config.shard, Sharding::share)
    }

    fn note_shard(&self) {
        if self.is_finding() {
            return;
        }
        let shard = self.shard();
        self.metrics.shard(i64::from(shard.index), shard.total);
    }

    /// Follows what has changed by itself.
    async fn further(&mut self) {
        enum Event {
            Further,
            Found(Sharding),
            Reshared,
            Redefined,
        }
        let handle = self.pipeline.handle();
        let (catalog, metrics) = (&self.catalog, &self.metrics);
        let event = tokio::select! {
            () = self.situation.changed() => Event::Further,
            Some(Ok(sharding)) = self.finding.join_next() => Event::Found(sharding),
            () = reshared(&mut self.sharding, &handle, self.change, catalog, metrics) => Event::Reshared,
            () = redefined(&mut self.custom) => Event::Redefined,
        };
        match event {
            Event::Further => {}
            Event::Found(mut sharding) => {
                sharding.ask(self.peers.clone());
                self.sharding = Some(sharding);
                self.follow();
            }
            Event::Reshared => {
                let shard = self.shard();
                tracing::info!(
                    shard = shard.index,
                    of = shard.total,
                    stage = ?shard.stage(),
                    "Following another share of the objects"
                );
                self.follow();
            }
            Event::Redefined => self.follow(),
        }
    }
}

impl Side for KubeSide {
    fn source(&self) -> Arc<dyn Source> {
        let catalog = self.catalog.clone();
        match &self.first_sync {
            Some(first_sync) => Arc::new(Gated { catalog, first_sync: Arc::clone(first_sync) }),
            None => Arc::new(catalog),
        }
    }

    fn ready(&self) -> Option<Awaited> {
        let handle = self.pipeline.handle();
        let done = Box::pin(async move { handle.ready().await });
        Some(Awaited { what: "the first lists of Kubernetes objects", done })
    }

    /// Asks the API server that the side follows at that moment.
    fn liveness(&self) -> Option<LivenessProbe> {
        let client = Arc::clone(&self.client);
        Some(Arc::new(move || {
            let client = client.load_full();
            Box::pin(async move { client.livez().await.map_err(|error| error.to_string()) })
        }))
    }

    fn reporter(&self) -> Option<Arc<dyn Reporter>> {
        let (handle, client) = (self.pipeline.handle(), Arc::clone(&self.client));
        Some(Arc::new(KubeReport::new(handle, client, self.metrics.clone())))
    }

    fn series(&self) -> Option<Arc<dyn Countable>> {
        Some(Arc::new(KubeSeries {
            catalog: self.catalog.clone(),
            handle: self.pipeline.handle(),
            metrics: self.metrics.clone(),
            budget: Arc::clone(&self.config.budget),
        }))
    }

    fn telemetry(&self, recorder: &mut Recorder) {
        recorder.add(self.pipeline.handle());
    }

    fn health(&self) -> Option<Health> {
        let (ready, live) = (self.pipeline.handle(), self.pipeline.handle());
        Some(Health {
            ready: Arc::new(move || ready_checks(&ready.facts())),
            live: Arc::new(move || live_checks(&live.facts())),
        })
    }

    fn reviews(&self) -> Option<Arc<dyn Reviews>> {
        Some(Arc::new(Reviewer(Arc::clone(&self.client))))
    }

    fn prepare(&mut self, config: &Config) -> Result<Option<Preparing>, String> {
        let Some(kube) = config.kube.clone() else { return Ok(None) };
        if kube.pod != self.config.pod {
            return Err(
                "automatic sharding follows the pod named at the start, start the process anew"
                    .to_owned(),
            );
        }
        let (name, current) = (config.name, self.connection.clone());
        let (sender, prepared) = oneshot::channel();
        self.prepared = Some(prepared);
        Ok(Some(Box::pin(async move {
            let connection = Connection::open(&kube, name, Some(current)).await;
            // Whoever does not want it any more has dropped the other end.
            let _ = sender.send(connection.map_err(|error| error.to_string())?);
            Ok(())
        })))
    }

    fn reload(&mut self, config: &Config) -> Result<(), String> {
        let prepared = self.prepared.take().and_then(|mut prepared| prepared.try_recv().ok());
        let all = config;
        let (Some(connection), Some(config)) = (prepared, &config.kube) else {
            return Err(
                "the Kubernetes side has no connection for the new configuration".to_owned()
            );
        };
        let asked = (&self.connection.client, &self.config.namespaces);
        let other = !Arc::ptr_eq(asked.0, &connection.client) || *asked.1 != config.namespaces;
        if !Arc::ptr_eq(&self.connection.client, &connection.client) {
            tokio::spawn(greet(Arc::clone(&connection.client)));
            self.client.store(Arc::clone(&connection.client));
        }
        self.connection = connection;
        self.config = config.clone();
        self.peers.port = config.telemetry_port;
        if self.web != all.web_config {
            // The same file says once whether there is TLS, here as at the listeners.
            (self.web, self.peers.identity) = (all.web_config.clone(), own_identity(all));
        }
        if let Some(sharding) = &mut self.sharding {
            sharding.ask(self.peers.clone());
        }
        if self.config.custom.is_none() {
            self.custom = None;
        } else if self.custom.is_none() {
            self.custom = Custom::new(config, &self.metrics);
        }
        // Kind by kind, from here on.
        self.follow();
        if other {
            self.ask_for_namespaces();
        }
        Ok(())
    }

    fn attend(&mut self) -> Task<'_, ()> {
        Box::pin(self.further())
    }

    fn status(&self) -> Status {
        Status { in_force: self.pipeline.handle().is_in_force(self.change) }
    }

    fn stop(self: Box<Self>) -> Task<'static, ()> {
        Box::pin(self.pipeline.stop())
    }
}

/// A check for the first lists, and one for each kind: whether what is shown of it is complete and kept up to date.
fn ready_checks(facts: &Facts) -> Vec<Check> {
    let waits = (!facts.ready).then(|| "not all kinds were listed yet".to_owned());
    let first = Check { name: "kubernetes/first-lists".to_owned(), failure: waits };
    let kinds = facts.kinds();
    let kinds = kinds.iter().map(|kind| Check {
        name: check_name(&kind.name),
        failure: kind.trouble().map(|trouble| trouble.to_string()),
    });
    std::iter::once(first).chain(kinds).collect()
}

/// A check for each kind: whether what follows it runs.
fn live_checks(facts: &Facts) -> Vec<Check> {
    let kinds = facts.kinds();
    let kinds = kinds.iter().map(|kind| Check {
        name: check_name(&kind.name),
        failure: (!kind.is_running())
            .then(|| "it waits to be started again after a fault".to_owned()),
    });
    kinds.collect()
}

fn check_name(kind: &str) -> String {
    format!("kubernetes/{kind}")
}

fn pipeline_config(config: &KubeConfig, custom: Option<&mut Custom>) -> PipelineConfig {
    let resources = config.resources.iter();
    PipelineConfig {
        resources: resources
            .map(|(resource, options)| Watched::built_in(*resource, options))
            .chain(custom.map(|custom| custom.watched(config)).unwrap_or_default())
            .collect(),
        namespaces: config.namespaces.clone(),
        selector: config.selector.clone(),
        object_limit: config.object_limit,
        budget: Arc::clone(&config.budget),
        use_apiserver_cache: config.use_apiserver_cache,
        shard: config.shard,
        timing: Timing { staleness_limit: config.staleness_limit, ..Timing::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::config::{self, Load};
    use crate::cli::native::RunArgs;

    /// Nobody should ask for it; if somebody does, the log and the gauge are to say that nothing has changed.
    #[tokio::test]
    async fn a_reload_for_which_nothing_is_prepared_is_refused() {
        let mut args = RunArgs::default();
        (args.listen, args.telemetry_listen) = (":1".to_owned(), ":2".to_owned());
        args.kube.0.apiserver = "http://127.0.0.1:1".to_owned();
        let config = config::kstatd(&args, Load::First, |_| true).expect("a configuration");
        let metrics = KubeMetrics::default();
        let start =
            Start { config: &config, metrics: &metrics, taken: Arc::new(|_| false), beside: None };
        let mut side = KubeSide::start(start).await.expect("a side");
        assert!(side.reload(&config).expect_err("nothing is prepared").contains("connection"));
        let preparing = side.prepare(&config).expect("usable").expect("something to do");
        preparing.await.expect("a connection");
        assert_eq!(side.reload(&config), Ok(()));
        side.stop().await;
    }

    #[test]
    fn names_of_kubernetes_families_are_reserved_with_what_open_metrics_adds() {
        let names: BTreeSet<String> = built_in().collect();
        for (name, want) in [
            ("kube_pod_status_ready", true),
            ("kube_pod_container_status_restarts_total", true),
            ("kube_pod_container_status_restarts", true),
            ("kube_pod_container_status_restarts_created", true),
            // No family of these names can be in the way of a gauge.
            ("kube_pod_status_ready_total", false),
            ("kube_pod_status_ready_created", false),
        ] {
            assert_eq!(names.contains(name), want, "{name}");
        }
    }
}
