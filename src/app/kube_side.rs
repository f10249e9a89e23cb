//! The Kubernetes side of a run: connection, pipeline and catalog, brought in line with each new
//! configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::Instant;

use super::process::startup_code;
use crate::cache::Catalog;
use crate::cli::config::{KubeConfig, Personality};
use crate::cli::kube_flags::KubeArgs;
use crate::kube::autosharding::{self, Autosharding, Detected, PodName, Resharding};
use crate::kube::discovery::Discovery;
use crate::kube::shard::Shard;
use crate::kube::value_errors::ValueErrorLog;
use crate::kube::{
    Account, Client, ClientError, ClientOptions, Judgement, Pipeline, PipelineConfig,
    PipelineHandle, Timing, Watched,
};
use crate::resources::custom::resolve;
use crate::server::authorisation::{Access, Action, Caller, Review, Reviews};
use crate::server::routes::LivenessProbe;
use crate::telemetry::{KubeMetrics, VERSION};

/// A running Kubernetes side.
pub struct KubeSide {
    catalog: Catalog,
    pipeline: Pipeline,
    connection: Connection,
    client: Arc<ArcSwap<Client>>,
    metrics: KubeMetrics,
    config: KubeConfig,
    /// Where the pod decides about the shard.
    sharding: Option<Sharding>,
    /// The number of the latest change.
    change: u64,
    custom: Option<Custom>,
}

/// What custom resources need beside their configuration.
struct Custom {
    discovery: Discovery,
    /// Told some time after the cluster's definitions have changed, so that several changes are one.
    settled: watch::Receiver<u64>,
    errors: Arc<ValueErrorLog>,
    /// What the log has said of the last resolution.
    said: String,
}

/// How long the definitions of a cluster are left to settle. A new one is served a moment after it has come.
const SETTLE: Duration = Duration::from_millis(500);

impl Custom {
    /// For this configuration, if it has custom resources.
    fn new(config: &KubeConfig, metrics: &KubeMetrics) -> Option<Self> {
        let custom = config.custom.as_ref()?;
        let discovery = Discovery::new(metrics);
        let mut changes = discovery.changes();
        let (sender, settled) = watch::channel(0);
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                tokio::time::sleep(SETTLE).await;
                sender.send_modify(|changes| *changes += 1);
            }
        });
        let errors = Arc::new(ValueErrorLog::new(metrics.clone(), custom.verbosity));
        Some(Self { discovery, settled, errors, said: String::new() })
    }

    /// The definitions, and the resources among them that have metrics.
    fn watched(&mut self, config: &KubeConfig) -> Vec<Watched> {
        let mut watched = vec![self.discovery.watched()];
        let Some(custom) = &config.custom else { return watched };
        let Some(entries) = &custom.config else { return watched };
        let manner = custom.manner(Arc::clone(&self.errors) as _);
        let said = match resolve(entries, &self.discovery.served(), &manner) {
            Ok(resolution) => {
                let names: Vec<String> = resolution
                    .resources
                    .iter()
                    .map(|resolved| resolved.definition.resource_name())
                    .collect();
                watched.extend(resolution.resources.into_iter().map(Watched::custom));
                let mut said = format!("custom resources with metrics: {names:?}");
                if !resolution.replaced.is_empty() {
                    let replaced = &resolution.replaced;
                    said.push_str(&format!(
                        "; a later entry replaces an earlier one of {replaced:?}"
                    ));
                }
                if !resolution.groupless.is_empty() {
                    let groupless = &resolution.groupless;
                    said.push_str(&format!(
                        "; entries without a group are left out: {groupless:?}"
                    ));
                }
                Ok(said)
            }
            Err(error) => Err(format!("no custom resource metrics: {error}")),
        };
        let (Ok(text) | Err(text)) = &said;
        if *text != self.said {
            match &said {
                Ok(text) => tracing::info!("{text}"),
                Err(text) => tracing::error!("{text}"),
            }
            self.said.clone_from(text);
        }
        watched
    }
}

/// What is known of the StatefulSet of the pod, and how far it is followed.
struct Sharding {
    _source: Autosharding,
    detected: watch::Receiver<Detected>,
    way: Resharding,
}

impl Sharding {
    async fn start(client: &Arc<ArcSwap<Client>>, pod: PodName) -> Result<Self, ClientError> {
        let source = Autosharding::start(Arc::clone(client), pod).await?;
        let mut detected = source.detected();
        let way = Resharding::new(*detected.borrow_and_update());
        Ok(Self { _source: source, detected, way })
    }
}

/// A client, and what it was made from: as long as that is the same, so is the client.
#[derive(Clone)]
pub struct Connection {
    options: ClientOptions,
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
    client: Arc<Client>,
}

/// Whether kstatd finds an API server: by flags, by the environment or by the pod it runs in.
pub fn is_configured(args: &KubeArgs) -> bool {
    let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let kubeconfig = named(&args.kubeconfig).map(PathBuf::from);
    client_options(kubeconfig, named(&args.apiserver), Personality::Kstatd).is_configured()
}

/// The files from which the client of this configuration would be made.
pub fn files(config: &KubeConfig, personality: Personality) -> Vec<PathBuf> {
    client_files(&options(config, personality))
}

fn options(config: &KubeConfig, personality: Personality) -> ClientOptions {
    client_options(config.kubeconfig.clone(), config.apiserver.clone(), personality)
}

fn client_options(
    kubeconfig: Option<PathBuf>,
    apiserver: Option<String>,
    personality: Personality,
) -> ClientOptions {
    let (os, arch) = (std::env::consts::OS, crate::telemetry::go_arch());
    let user_agent = match personality {
        Personality::KubeStateMetrics => {
            format!("kube-state-metrics/v{VERSION} ({os}/{arch}) kstatd")
        }
        _ => format!("kstatd/{VERSION} ({os}/{arch})"),
    };
    // kube-state-metrics knows its flags and the service account only.
    let environment = personality == Personality::Kstatd;
    ClientOptions { kubeconfig, apiserver, environment, user_agent }
}

fn client_files(options: &ClientOptions) -> Vec<PathBuf> {
    match &options.kubeconfig {
        Some(path) => vec![path.clone()],
        None if options.apiserver.is_none() && options.environment => {
            let variable = std::env::var_os("KUBECONFIG").unwrap_or_default();
            std::env::split_paths(&variable).filter(|path| !path.as_os_str().is_empty()).collect()
        }
        None => Vec::new(),
    }
}

impl Connection {
    /// The client for this configuration: the `current` one, if nothing that it was made from has changed.
    /// The server is not asked.
    ///
    /// # Errors
    ///
    /// When nothing says where the API server is, or credentials cannot be used.
    pub async fn open(
        config: &KubeConfig,
        personality: Personality,
        current: Option<Self>,
    ) -> Result<Self, ClientError> {
        let options = options(config, personality);
        // Read before the client does: what changes in between is seen as a change.
        let content = |path: PathBuf| {
            let content = std::fs::read(&path).ok();
            (path, content)
        };
        let files: Vec<_> = client_files(&options).into_iter().map(content).collect();
        if let Some(current) = current
            && current.options == options
            && current.files == files
        {
            return Ok(current);
        }
        let client = Arc::new(Client::new(&options).await?);
        Ok(Self { options, files, client })
    }
}

impl KubeSide {
    /// Connects and begins to list. Under the name kube-state-metrics the API server must answer now.
    ///
    /// # Errors
    ///
    /// When nothing says where the API server is, or it has to answer and does not.
    pub async fn start(
        config: &KubeConfig,
        personality: Personality,
        metrics: &KubeMetrics,
    ) -> Result<Self, ClientError> {
        let connection = Connection::open(config, personality, None).await?;
        let client = &connection.client;
        if personality == Personality::KubeStateMetrics {
            let version = client.version().await?;
            tracing::info!(server = %client.url(), version, "Tested communication with server");
        } else {
            // StatsD does not wait for the API server, nor do the listeners.
            tokio::spawn(greet(Arc::clone(client)));
        }
        let catalog = match personality {
            Personality::Kstatd => Catalog::by_the_book(),
            _ => Catalog::new(),
        };
        let current = Arc::new(ArcSwap::new(Arc::clone(client)));
        let sharding = match config.pod.clone() {
            Some(pod) => Some(Sharding::start(&current, pod).await?),
            None => None,
        };
        let shard = sharding.as_ref().map(|sharding| sharding.way.share());
        let mut custom = Custom::new(config, metrics);
        let mut first = pipeline_config(config, custom.as_mut());
        first.shard = shard.unwrap_or(first.shard);
        let pipeline = Pipeline::follow(client, &first, &catalog, metrics)?;
        let handle = pipeline.handle();
        tokio::spawn(async move {
            handle.ready().await;
            startup_code::give_back();
        });
        let (metrics, config, client) = (metrics.clone(), config.clone(), current);
        let change = 1;
        let side = Self {
            catalog,
            pipeline,
            connection,
            client,
            metrics,
            config,
            sharding,
            change,
            custom,
        };
        side.note_shard();
        Ok(side)
    }

    /// The pod that decides about the shard.
    pub fn pod(&self) -> Option<&PodName> {
        self.config.pod.as_ref()
    }

    /// Follows the StatefulSet of the pod: completes when there is another share to be shown, which then is on its way.
    /// It may be dropped at any time.
    pub async fn reshard(&mut self) {
        let Some(sharding) = &mut self.sharding else { return std::future::pending().await };
        let handle = self.pipeline.handle();
        loop {
            let in_force = handle.is_in_force(self.change);
            let now = Instant::now();
            if sharding.way.due(in_force, now) {
                break;
            }
            let wake = sharding.way.wake_at(in_force, now);
            let mut further = handle.clone();
            tokio::select! {
                Ok(()) = sharding.detected.changed() => {
                    let detected = *sharding.detected.borrow_and_update();
                    if sharding.way.found(detected) {
                        break;
                    }
                }
                () = further.changed(), if !in_force => {}
                () = autosharding::until(wake) => {}
                else => return std::future::pending().await,
            }
        }
        let shard = sharding.way.share();
        tracing::info!(
            shard = shard.index,
            of = shard.total,
            "Following another share of the objects"
        );
        self.change = self.follow();
    }

    /// Follows what the cluster defines by now.
    pub fn refresh(&mut self) {
        self.follow();
    }

    /// Changes some time after the cluster's definitions of custom resources have; `None` if nobody asks for them.
    pub fn definitions(&self) -> Option<watch::Receiver<u64>> {
        self.custom.as_ref().map(|custom| custom.settled.clone())
    }

    /// Follows what the configuration, the share and the cluster's definitions say; the number of this change.
    fn follow(&mut self) -> u64 {
        let mut config = pipeline_config(&self.config, self.custom.as_mut());
        config.shard = self.shard();
        let change = self.pipeline.change(&self.connection.client, &config);
        self.note_shard();
        change
    }

    fn shard(&self) -> Shard {
        self.sharding.as_ref().map_or(self.config.shard, |sharding| sharding.way.share())
    }

    /// Follows this configuration from here on, kind by kind.
    pub fn change(&mut self, config: &KubeConfig, connection: Connection) {
        if !Arc::ptr_eq(&self.connection.client, &connection.client) {
            tokio::spawn(greet(Arc::clone(&connection.client)));
            self.client.store(Arc::clone(&connection.client));
        }
        self.connection = connection;
        self.config = config.clone();
        if self.config.custom.is_none() {
            self.custom = None;
        } else if self.custom.is_none() {
            self.custom = Custom::new(config, &self.metrics);
        }
        self.change = self.follow();
    }

    /// Whether all of the latest configuration is being served.
    pub fn is_in_force(&self) -> bool {
        self.handle().is_in_force(self.change)
    }

    /// The connection being used.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What is being served.
    pub fn catalog(&self) -> Catalog {
        self.catalog.clone()
    }

    /// How the list/watches are doing.
    pub fn handle(&self) -> PipelineHandle {
        self.pipeline.handle()
    }

    /// Asks the API server that the side follows at that moment.
    pub fn livez(&self) -> LivenessProbe {
        let client = Arc::clone(&self.client);
        Arc::new(move || {
            let client = client.load_full();
            Box::pin(async move { client.livez().await.map_err(|error| error.to_string()) })
        })
    }

    /// Asks the API server that the side follows at that moment about callers.
    pub fn reviews(&self) -> Arc<dyn Reviews> {
        Arc::new(Reviewer(Arc::clone(&self.client)))
    }

    /// Ends all list/watches.
    pub async fn stop(self) {
        self.pipeline.stop().await;
    }

    fn note_shard(&self) {
        let shard = self.shard();
        self.metrics.shard(i64::from(shard.index), shard.total);
    }
}

/// Asks an API server about those who ask us.
struct Reviewer(Arc<ArcSwap<Client>>);

impl Reviews for Reviewer {
    fn caller(&self, token: &str) -> Review<Option<Caller>> {
        let (client, token) = (self.0.load_full(), token.to_owned());
        Box::pin(async move {
            let Some(account) = client.review_token(&token).await? else { return Ok(None) };
            let identity = serde_json::to_string(&account).map_err(|error| error.to_string())?;
            Ok(Some(Caller { name: account.name, identity: identity.into() }))
        })
    }

    fn access(&self, caller: &Caller, action: &Action) -> Review<Access> {
        let (client, action) = (self.0.load_full(), action.clone());
        let identity = Arc::clone(&caller.identity);
        Box::pin(async move {
            let account: Account =
                serde_json::from_str(&identity).map_err(|error| error.to_string())?;
            let Judgement { allowed, denied } =
                client.review_access(&account, &action.path, &action.verb).await?;
            Ok(Access { allowed, denied })
        })
    }
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
        use_apiserver_cache: config.use_apiserver_cache,
        shard: config.shard,
        timing: Timing { staleness_limit: config.staleness_limit, ..Timing::default() },
    }
}

/// Says in the log whether the API server answers.
async fn greet(client: Arc<Client>) {
    match client.version().await {
        Ok(version) => tracing::info!(server = %client.url(), version, "the API server answers"),
        Err(error) => {
            tracing::warn!(%error, "the API server does not answer yet, asking again until it does");
        }
    }
}
