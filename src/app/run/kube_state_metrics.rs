//! The run under the name kube-state-metrics.

use std::process::ExitCode;
use std::sync::Arc;

use super::upkeep::{Beginning, Upkeep};
use crate::app::listeners::{Listeners, Role, Routers};
use crate::app::process::dump;
use crate::app::process::lifetime::{block_on, signals, unless_asked_again};
use crate::app::process::{Request, Starting};
use crate::app::telemetry::Telemetry;
use crate::cli::config;
use crate::cli::kube_flags::KubeArgs;
use crate::server::routes;

/// Runs until a signal ends it.
pub fn kube_state_metrics(args: &KubeArgs) -> ExitCode {
    if !args.klog.without_effect.is_empty() {
        let flags = args.klog.without_effect.join(", ");
        tracing::warn!(flags, "Logging flags without effect: the log goes to stderr");
    }
    match block_on(|starting| run(args, starting)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(err = error, "Failed to run kube-state-metrics");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &KubeArgs, starting: Starting) -> Result<(), String> {
    tracing::info!("Starting kube-state-metrics");
    let mut signals = signals()?;
    let flags = args.clone();
    let resolve = Arc::new(move |load| config::kube_state_metrics(&flags, load));
    let beginning = Beginning::new(resolve, &args.config).map_err(|error| error.to_string())?;
    let telemetry = Telemetry::new(true, true);
    let side = beginning.start_side(&telemetry).await.map_err(|error| error.to_string())?;
    let side = side.ok_or("no Kubernetes side is configured")?;
    let (catalog, livez) = (Arc::new(side.catalog()), side.livez());
    let (http, own) = (telemetry.http.clone(), telemetry.own.clone());
    let routers: Routers = Box::new(move |role, gzip| match role {
        Role::Main => {
            routes::kube_state_metrics(Arc::clone(&catalog) as _, gzip, Arc::clone(&livez), &http)
        }
        Role::Telemetry => routes::telemetry(own.clone(), Vec::new(), "kube-state-metrics", false),
    });
    let listeners = Listeners::start(&beginning.config, routers, Some(side.reviews()))
        .map_err(|error| error.to_string())?;
    let mut upkeep = Upkeep::new(beginning, listeners, Some(side), &telemetry);
    drop(starting);
    loop {
        let request = tokio::select! {
            request = signals.next() => request,
            () = upkeep.attend() => continue,
        };
        match request {
            Request::End(signal) => {
                tracing::info!(signal, "Received os signal, exiting");
                break;
            }
            Request::Dump => dump(),
            Request::Reload => upkeep.reload(),
        }
    }
    unless_asked_again(&mut signals, upkeep.end()).await;
    Ok(())
}
