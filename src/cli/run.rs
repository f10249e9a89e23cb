//! Starting what a [`Config`] says, reloading it, and ending it cleanly.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::config::{self, Config, ConfigError, Personality};
use super::file_watch::FileWatch;
use super::kube_flags::KubeArgs;
use super::kube_side::{self, Current, KubeSide};
use super::native::RunArgs;
use super::process::{self, GRACE, Request, Servers, Signals};
use super::statsd_flags::StatsdArgs;
use crate::exposition::Source;
use crate::server::readiness::Readiness;
use crate::server::router::Router;
use crate::server::routes::{self, Sides};
use crate::server::shutdown::{self, Shutdown, Trigger};
use crate::telemetry::kube::ConfigFile;
use crate::telemetry::{HttpMetrics, KubeMetrics, OwnMetrics, Recorder};

/// How long a reload waits for the first lists before it serves the new state as far as it is.
const FIRST_LISTS: Duration = Duration::from_secs(120);

/// How long connections may go on when a reload moves a listener.
const MOVE_GRACE: Duration = Duration::from_secs(3);

/// `kstatd run`.
///
/// # Errors
///
/// What keeps the process from starting.
pub fn kstatd(args: &RunArgs) -> Result<(), String> {
    crate::telemetry::log::init(config::own_log(&args.log));
    block_on(run_kstatd(args))
}

/// The program under the name kube-state-metrics.
pub fn kube_state_metrics(args: &KubeArgs) -> ExitCode {
    if !args.klog.without_effect.is_empty() {
        let flags = args.klog.without_effect.join(", ");
        tracing::warn!(flags, "Logging flags without effect: the log goes to stderr");
    }
    match block_on(run_kube_state_metrics(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(err = error, "Failed to run kube-state-metrics");
            ExitCode::FAILURE
        }
    }
}

/// The program under the name statsd_exporter.
pub fn statsd_exporter(args: &StatsdArgs) -> ExitCode {
    let outcome = config::statsd_exporter(args)
        .map_err(|error| error.to_string())
        .and_then(|_| Err("not wired yet".to_owned()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

pub(super) fn block_on(run: impl Future<Output = Result<(), String>>) -> Result<(), String> {
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
    fn new(personality: Personality, with_kube: bool) -> Self {
        let (http, kube) = (HttpMetrics::default(), KubeMetrics::default());
        let mut recorder = Recorder::new();
        http.register_duration(&mut recorder);
        if with_kube {
            kube.register(&mut recorder);
        }
        if personality == Personality::KubeStateMetrics {
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

async fn run_kube_state_metrics(args: &KubeArgs) -> Result<(), String> {
    tracing::info!("Starting kube-state-metrics");
    let mut signals = signals()?;
    let mut config = config::kube_state_metrics(args).map_err(|error| error.to_string())?;
    let telemetry = Telemetry::new(config.personality, true);
    let current = Current::default();
    let mut side = start_side(&config, &telemetry).await?;
    current.set(&side);
    let mut listeners = Listening::start(&config, &current, &telemetry)?;
    let mut files = watch(args, &config);
    loop {
        match next(&mut signals, &mut files).await {
            Wake::Request(Request::End(signal)) => {
                tracing::info!(signal, "Received os signal, exiting");
                break;
            }
            Wake::Request(Request::Dump) => dump(),
            Wake::Request(Request::Reload) | Wake::FileChanged => {
                let resolve = || config::kube_state_metrics(args);
                let (new, new_side) = match reload(resolve, &telemetry, &mut signals).await {
                    Reloaded::New(new, side) => (new, side),
                    Reloaded::Unchanged => continue,
                    Reloaded::End(signal) => {
                        tracing::info!(signal, "Received os signal, exiting");
                        break;
                    }
                };
                current.set(&new_side);
                std::mem::replace(&mut side, new_side).pipeline.stop().await;
                if listeners.differ(&new) {
                    listeners.stop(MOVE_GRACE).await;
                    listeners = Listening::start(&new, &current, &telemetry)?;
                }
                config = *new;
                files = watch(args, &config);
                tracing::info!("The new configuration is in force");
            }
        }
    }
    unless_asked_again(&mut signals, listeners.stop(GRACE)).await;
    side.pipeline.stop().await;
    Ok(())
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
    New(Box<Config>, KubeSide),
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
    Reloaded::New(Box::new(config), side)
}

fn watch(args: &KubeArgs, config: &Config) -> FileWatch {
    let options = (!args.config.is_empty()).then(|| PathBuf::from(&args.config));
    let kubeconfig = config.kube.as_ref().and_then(|kube| kube.kubeconfig.clone());
    FileWatch::new(options.into_iter().chain(kubeconfig))
}

/// The two listeners of kube-state-metrics.
struct Listening {
    servers: Servers,
    trigger: Trigger,
    key: String,
}

impl Listening {
    fn start(config: &Config, current: &Current, telemetry: &Telemetry) -> Result<Self, String> {
        let main = routes::kube_state_metrics(
            Arc::new(current.clone()),
            config.gzip,
            current.livez(),
            &telemetry.http,
        );
        let own = routes::telemetry(telemetry.own.clone(), "kube-state-metrics", false);
        let (trigger, shutdown) = shutdown::switch();
        let mut servers = Servers::default();
        serve_two(&mut servers, config, main, own, &shutdown)?;
        Ok(Self { servers, trigger, key: key(config) })
    }

    fn differ(&self, config: &Config) -> bool {
        self.key != key(config)
    }

    async fn stop(&mut self, grace: Duration) {
        self.trigger.fire();
        // The servers wait for their connections as long as at the end of the process; a move is sooner.
        if tokio::time::timeout(grace, self.servers.ended()).await.is_err() {
            tracing::warn!(?grace, "connections that were still open were cut");
        }
    }
}

/// What a listener depends on, in a form that can be compared.
fn key(config: &Config) -> String {
    format!("{:?} {:?} {}", config.main, config.telemetry, config.gzip)
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

pub(super) async fn run_kstatd(args: &RunArgs) -> Result<(), String> {
    let mut signals = signals()?;
    let resolve = || config::kstatd(args, kube_side::is_configured);
    let config = resolve().map_err(|error| error.to_string())?;
    let telemetry = Telemetry::new(config.personality, config.kube.is_some());
    let readiness = Readiness::default();
    let (trigger, shutdown) = shutdown::switch();
    let current = Current::default();
    let mut sides = Sides::default();
    let mut side = None;
    if config.kube.is_some() {
        let started = start_side(&config, &telemetry).await?;
        current.set(&started);
        sides.kubernetes = Some(Arc::new(current.clone()) as Arc<dyn Source>);
        hold_until_ready(&readiness, &started);
        side = Some(started);
    } else {
        tracing::info!(
            "the Kubernetes side is off: set --kubeconfig, --apiserver or KUBECONFIG, or run in a \
             pod with a service account, to turn it on"
        );
    }
    let main = routes::kstatd(&sides, config.gzip, readiness, &telemetry.http);
    let own = routes::telemetry(telemetry.own.clone(), "kstatd", true);
    let mut servers = Servers::default();
    serve_two(&mut servers, &config, main, own, &shutdown)?;
    let mut files = watch(&args.kube.0, &config);
    let signal = loop {
        match next(&mut signals, &mut files).await {
            Wake::Request(Request::End(signal)) => break signal,
            Wake::Request(Request::Dump) => dump(),
            Wake::Request(Request::Reload) | Wake::FileChanged => {
                let Some(running) = &mut side else { continue };
                match reload(resolve, &telemetry, &mut signals).await {
                    Reloaded::New(new, new_side) => {
                        current.set(&new_side);
                        std::mem::replace(running, new_side).pipeline.stop().await;
                        files = watch(&args.kube.0, &new);
                        tracing::info!("the new configuration of the Kubernetes side is in force");
                    }
                    Reloaded::Unchanged => {}
                    Reloaded::End(signal) => break signal,
                }
            }
        }
    };
    tracing::info!(signal, "ending");
    trigger.fire();
    unless_asked_again(&mut signals, servers.ended()).await;
    if let Some(side) = side {
        side.pipeline.stop().await;
    }
    Ok(())
}

/// Not ready until the first lists are complete.
fn hold_until_ready(readiness: &Readiness, side: &KubeSide) {
    let latch = readiness.latch("the first lists of Kubernetes objects");
    let handle = side.pipeline.handle();
    tokio::spawn(async move {
        handle.ready().await;
        drop(latch);
    });
}
