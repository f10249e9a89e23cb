//! Starting what a [`Config`] says, reloading it, and ending it cleanly.

mod kstatd;
mod kube_state_metrics;
mod statsd_exporter;

use std::path::PathBuf;
use std::time::Duration;

use super::config::{Config, ConfigError};
use super::file_watch::FileWatch;
use super::kube_flags::KubeArgs;
use super::kube_side::KubeSide;
use super::process::{self, GRACE, Request, Servers, Signals};
use crate::server::router::Router;
use crate::server::shutdown::Shutdown;
use crate::telemetry::kube::ConfigFile;
use crate::telemetry::{HttpMetrics, KubeMetrics, OwnMetrics, Recorder};

pub use kstatd::{kstatd, run_kstatd};
pub use kube_state_metrics::kube_state_metrics;
pub use statsd_exporter::statsd_exporter;

/// How long a reload waits for the first lists before it serves the new state as far as it is.
const FIRST_LISTS: Duration = Duration::from_secs(120);

pub(super) fn block_on(run: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    // Before anything asks for its share of them.
    if let Err(error) = crate::descriptors::raise_limit() {
        tracing::warn!(%error, "the limit of open files stays what it is");
    }
    let runtime = process::runtime().map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(run);
    // Threads that look up names or write profiles are not waited for.
    runtime.shutdown_background();
    outcome
}

/// Everything that counts, shared by whatever serves it.
struct Telemetry {
    http: HttpMetrics,
    kube: KubeMetrics,
    own: OwnMetrics,
}

impl Telemetry {
    /// For a run with or without a Kubernetes side, under kstatd's name or kube-state-metrics'.
    fn new(with_kube: bool, as_kube_state_metrics: bool) -> Self {
        let (http, kube) = (HttpMetrics::default(), KubeMetrics::default());
        let mut recorder = Recorder::new();
        http.register_duration(&mut recorder);
        if with_kube {
            kube.register(&mut recorder);
        }
        if as_kube_state_metrics {
            recorder.kube_build_info();
        }
        Self { http, kube, own: recorder.finish() }
    }
}

/// What a run waits for.
enum Wake {
    Request(Request),
    FileChanged,
}

/// Waits for what happens next.
async fn next(signals: &mut Signals, files: &mut FileWatch) -> Wake {
    tokio::select! {
        request = signals.next() => Wake::Request(request),
        () = files.changed() => Wake::FileChanged,
    }
}

/// Waits for a clean end, until a second signal says not to.
async fn unless_asked_again(signals: &mut Signals, end: impl Future<Output = ()>) {
    tokio::select! {
        () = end => {}
        signal = ended(signals) => tracing::warn!(signal, "ending at once"),
    }
}

fn signals() -> Result<Signals, String> {
    Signals::new().map_err(|error| format!("cannot handle signals: {error}"))
}

/// The next signal that ends the process; what else arrives meanwhile is dropped.
async fn ended(signals: &mut Signals) -> &'static str {
    loop {
        match signals.next().await {
            Request::End(signal) => return signal,
            Request::Dump => dump(),
            Request::Reload => {}
        }
    }
}

/// What the process is doing, then its end, as SIGQUIT has it in Go programs.
fn dump() {
    super::complain(&crate::telemetry::process::threads());
    std::process::exit(2);
}

async fn start_side(config: &Config, telemetry: &Telemetry) -> Result<KubeSide, String> {
    let kube = config.kube.as_ref().ok_or("no Kubernetes side is configured")?;
    KubeSide::start(kube, config.personality, &telemetry.kube)
        .await
        .map_err(|error| error.to_string())
}

/// The outcome of a reload.
enum Reloaded {
    /// This is to be served from here on.
    New(Box<(Config, KubeSide)>),
    /// The old configuration has to go on.
    Unchanged,
    /// A signal ended the process meanwhile.
    End(&'static str),
}

async fn reload(
    resolve: impl Fn() -> Result<Config, ConfigError>,
    telemetry: &Telemetry,
    signals: &mut Signals,
) -> Reloaded {
    tracing::info!("Changes detected");
    tokio::select! {
        reloaded = prepare(resolve, telemetry) => reloaded,
        signal = ended(signals) => Reloaded::End(signal),
    }
}

/// A new configuration and its side with complete lists.
async fn prepare(
    resolve: impl Fn() -> Result<Config, ConfigError>,
    telemetry: &Telemetry,
) -> Reloaded {
    let config = match resolve() {
        Ok(config) => config,
        Err(error) => {
            if let ConfigError::OptionsFile { path, .. } = &error {
                telemetry.kube.config_failed(ConfigFile::Options, path);
            }
            tracing::error!(%error, "The new configuration is not usable, the old one stays in force");
            return Reloaded::Unchanged;
        }
    };
    let side = match start_side(&config, telemetry).await {
        Ok(side) => side,
        Err(error) => {
            tracing::error!(
                error,
                "The new configuration does not work, the old one stays in force"
            );
            return Reloaded::Unchanged;
        }
    };
    // Scrapes see the old state until the new one is complete.
    if tokio::time::timeout(FIRST_LISTS, side.pipeline.handle().ready()).await.is_err() {
        tracing::warn!("The first lists are not complete, going on with what there is");
    }
    Reloaded::New(Box::new((config, side)))
}

/// The files that a reload reads.
fn files(args: &KubeArgs, config: &Config) -> impl Iterator<Item = PathBuf> {
    let options = (!args.config.is_empty()).then(|| PathBuf::from(&args.config));
    let kubeconfig = config.kube.as_ref().and_then(|kube| kube.kubeconfig.clone());
    options.into_iter().chain(kubeconfig)
}

fn serve_two(
    servers: &mut Servers,
    config: &Config,
    main: Router,
    own: Router,
    shutdown: &Shutdown,
) -> Result<(), String> {
    let bound = servers
        .start(&config.main, main, GRACE, shutdown.clone())
        .map_err(|error| error.to_string())?;
    tracing::info!(address = %bound, "Started metrics server");
    if let Some(telemetry) = &config.telemetry {
        let bound = servers
            .start(telemetry, own, GRACE, shutdown.clone())
            .map_err(|error| error.to_string())?;
        tracing::info!(address = %bound, "Started self metrics server");
    }
    Ok(())
}
