//! The Kubernetes side of a run: client, pipeline and catalog, replaced as a whole by a reload.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use super::config::{KubeConfig, Personality};
use super::kube_flags::KubeArgs;
use super::startup_code;
use crate::cache::Catalog;
use crate::exposition::{DeflatePart, Format, ScrapeQuery, Source};
use crate::kube::{Client, ClientError, ClientOptions, Pipeline, PipelineConfig, Timing, Watched};
use crate::server::routes::LivenessProbe;
use crate::telemetry::kube::ConfigFile;
use crate::telemetry::{KubeMetrics, VERSION};

/// A running Kubernetes side.
pub struct KubeSide {
    /// What it has.
    pub catalog: Arc<Catalog>,
    /// The connection.
    pub client: Client,
    /// The list/watches.
    pub pipeline: Pipeline,
}

/// Whether kstatd finds an API server: by flags, by the environment or by the pod it runs in.
pub fn is_configured(args: &KubeArgs) -> bool {
    let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let kubeconfig = named(&args.kubeconfig).map(PathBuf::from);
    client_options(kubeconfig, named(&args.apiserver), Personality::Kstatd).is_configured()
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
        let (kubeconfig, apiserver) = (config.kubeconfig.clone(), config.apiserver.clone());
        let client = Client::new(&client_options(kubeconfig, apiserver, personality)).await?;
        if personality == Personality::KubeStateMetrics {
            let version = client.version().await?;
            tracing::info!(server = %client.url(), version, "Tested communication with server");
        } else {
            // StatsD does not wait for the API server, nor do the listeners.
            tokio::spawn(greet(client.clone()));
        }
        let resources = config.resources.iter();
        let watched =
            resources.map(|(resource, options)| Watched::built_in(*resource, options)).collect();
        let pipeline_config = PipelineConfig {
            resources: watched,
            namespaces: config.namespaces.clone(),
            selector: config.selector.clone(),
            object_limit: config.object_limit,
            use_apiserver_cache: config.use_apiserver_cache,
            shard: config.shard,
            timing: Timing::default(),
        };
        let catalog = Arc::new(Catalog::new());
        let pipeline = Pipeline::start(&client, &pipeline_config, &catalog, metrics)?;
        let handle = pipeline.handle();
        tokio::spawn(async move {
            handle.ready().await;
            startup_code::give_back();
        });
        note_config(config, metrics);
        Ok(Self { catalog, client, pipeline })
    }
}

/// Says in the log whether the API server answers.
async fn greet(client: Client) {
    match client.version().await {
        Ok(version) => tracing::info!(server = %client.url(), version, "the API server answers"),
        Err(error) => {
            tracing::warn!(%error, "the API server does not answer yet, asking again until it does");
        }
    }
}

fn note_config(config: &KubeConfig, metrics: &KubeMetrics) {
    metrics.shard(i64::from(config.shard.index), config.shard.total);
    if let Some((path, content)) = &config.options_file {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0.0, |since| since.as_secs_f64());
        metrics.config_loaded(ConfigFile::Options, path, content, now);
    }
}

/// The side that is being served: a [`Source`] and a probe that stay the same while a reload puts another
/// side behind them.
#[derive(Clone, Default)]
pub struct Current {
    catalog: Arc<ArcSwapOption<Catalog>>,
    client: Arc<ArcSwapOption<Client>>,
}

impl Current {
    /// Serves this side from here on.
    pub fn set(&self, side: &KubeSide) {
        self.catalog.store(Some(Arc::clone(&side.catalog)));
        self.client.store(Some(Arc::new(side.client.clone())));
    }

    /// Asks the API server of the side being served.
    pub fn livez(&self) -> LivenessProbe {
        let client = Arc::clone(&self.client);
        Arc::new(move || {
            let client = client.load_full();
            Box::pin(async move {
                match client {
                    Some(client) => client.livez().await.map_err(|error| error.to_string()),
                    None => Err("no API server yet".to_owned()),
                }
            })
        })
    }

    /// Whether a family of this name is being served.
    pub fn has_family(&self, name: &str) -> bool {
        self.catalog.load().as_ref().is_some_and(|catalog| catalog.has_family(name))
    }
}

impl Source for Current {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        match self.catalog.load_full() {
            Some(catalog) => catalog.frames(format, query),
            None => Box::new(std::iter::empty()),
        }
    }

    fn deflated(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = DeflatePart> + Send> {
        match self.catalog.load_full() {
            Some(catalog) => catalog.deflated(format, query),
            None => Box::new(std::iter::empty()),
        }
    }
}
