//! Starting what a [`Config`] says, and ending it cleanly.

use std::process::ExitCode;

use super::config::{self, Config};
use super::kube_flags::KubeArgs;
use super::native::RunArgs;
use super::process::{self, GRACE, Request, Servers, Signals};
use super::statsd_flags::StatsdArgs;
use crate::server::readiness::Readiness;
use crate::server::routes::{self, Sides};
use crate::server::shutdown;
use crate::telemetry::{HttpMetrics, KubeMetrics, Recorder};

/// `kstatd run`.
///
/// # Errors
///
/// What keeps the process from starting.
pub fn kstatd(args: &RunArgs) -> Result<(), String> {
    crate::telemetry::log::init(config::own_log(&args.log));
    let config = config::kstatd(args, false).map_err(|error| error.to_string())?;
    block_on(run(config))
}

/// The program under the name kube-state-metrics.
pub fn kube_state_metrics(args: &KubeArgs) -> ExitCode {
    let outcome = config::kube_state_metrics(args)
        .map_err(|error| error.to_string())
        .and_then(|config| block_on(run(config)));
    match outcome {
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
        .and_then(|config| block_on(run(config)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(run: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = process::runtime().map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(run)
}

async fn run(config: Config) -> Result<(), String> {
    let mut signals = Signals::new().map_err(|error| format!("cannot handle signals: {error}"))?;
    let (trigger, shutdown) = shutdown::switch();
    let http = HttpMetrics::default();
    let kube = KubeMetrics::default();
    let mut recorder = Recorder::new();
    http.register_duration(&mut recorder);
    kube.register(&mut recorder);
    let own = recorder.finish();
    let sides = Sides::default();
    let main = routes::kstatd(&sides, config.gzip, Readiness::default(), &http);
    let mut servers = Servers::default();
    let bound = servers
        .start(&config.main, main, GRACE, shutdown.clone())
        .map_err(|error| error.to_string())?;
    tracing::info!(address = %bound, "serving metrics");
    if let Some(telemetry) = &config.telemetry {
        let router = routes::telemetry(own, "kstatd", true);
        let bound =
            servers.start(telemetry, router, GRACE, shutdown).map_err(|error| error.to_string())?;
        tracing::info!(address = %bound, "serving own metrics");
    }
    loop {
        match signals.next().await {
            Request::End(signal) => {
                tracing::info!(signal, "Received os signal, exiting");
                break;
            }
            Request::Reload => {}
            Request::Dump => std::process::exit(2),
        }
    }
    trigger.fire();
    servers.ended().await;
    Ok(())
}
