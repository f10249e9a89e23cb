//! The run under the name kube-state-metrics.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Reloaded, Telemetry, Wake, block_on, dump, files, next, reload, serve_two, signals, start_side,
    unless_asked_again,
};
use crate::cli::config::{self, Config};
use crate::cli::file_watch::FileWatch;
use crate::cli::kube_flags::KubeArgs;
use crate::cli::kube_side::Current;
use crate::cli::process::{GRACE, Request, Servers};
use crate::server::routes;
use crate::server::shutdown::{self, Trigger};

/// How long connections may go on when a reload moves a listener.
const MOVE_GRACE: Duration = Duration::from_secs(3);

/// Runs until a signal ends it.
pub fn kube_state_metrics(args: &KubeArgs) -> ExitCode {
    if !args.klog.without_effect.is_empty() {
        let flags = args.klog.without_effect.join(", ");
        tracing::warn!(flags, "Logging flags without effect: the log goes to stderr");
    }
    match block_on(run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(err = error, "Failed to run kube-state-metrics");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &KubeArgs) -> Result<(), String> {
    tracing::info!("Starting kube-state-metrics");
    let mut signals = signals()?;
    let mut config = config::kube_state_metrics(args).map_err(|error| error.to_string())?;
    let telemetry = Telemetry::new(true, true);
    let current = Current::default();
    let mut side = start_side(&config, &telemetry).await?;
    current.set(&side);
    let mut listeners = Listening::start(&config, &current, &telemetry)?;
    let mut watched = FileWatch::new(files(args, &config));
    loop {
        match next(&mut signals, &mut watched).await {
            Wake::Request(Request::End(signal)) => {
                tracing::info!(signal, "Received os signal, exiting");
                break;
            }
            Wake::Request(Request::Dump) => dump(),
            Wake::Request(Request::Reload) | Wake::FileChanged => {
                let resolve = || config::kube_state_metrics(args);
                let (new, new_side) = match reload(resolve, &telemetry, &mut signals).await {
                    Reloaded::New(new) => *new,
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
                config = new;
                watched.replace(files(args, &config));
                tracing::info!("The new configuration is in force");
            }
        }
    }
    unless_asked_again(&mut signals, listeners.stop(GRACE)).await;
    side.pipeline.stop().await;
    Ok(())
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
        let own = routes::telemetry(telemetry.own.clone(), Vec::new(), "kube-state-metrics", false);
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
