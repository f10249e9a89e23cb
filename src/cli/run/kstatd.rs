//! The run under kstatd's own name: both sides on one listener.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Reloaded, Telemetry, Wake, block_on, dump, files, next, reload, serve_two, signals, start_side,
    unless_asked_again,
};
use crate::cli::config::{self, Config, StatsdConfig};
use crate::cli::file_watch::FileWatch;
use crate::cli::kube_side::{self, Current, KubeSide};
use crate::cli::native::RunArgs;
use crate::cli::process::{Request, Servers};
use crate::cli::statsd_side::{self, Trigger};
use crate::exposition::Source;
use crate::server::readiness::Readiness;
use crate::server::routes::{self, Sides};
use crate::server::shutdown;
use crate::statsd::{Pipeline, Reserved, SelfMetrics};

/// `kstatd run`.
///
/// # Errors
///
/// What keeps the process from starting.
pub fn kstatd(args: &RunArgs) -> Result<(), String> {
    crate::telemetry::log::init(config::own_log(&args.log));
    block_on(run_kstatd(args))
}

/// The same on a runtime that is there already, with a log that is set up already.
///
/// # Errors
///
/// What keeps it from starting.
pub async fn run_kstatd(args: &RunArgs) -> Result<(), String> {
    let mut signals = signals()?;
    let resolve = || config::kstatd(args, kube_side::is_configured);
    let config = resolve().map_err(|error| error.to_string())?;
    let telemetry = Telemetry::new(config.kube.is_some(), false);
    let readiness = Readiness::default();
    let (trigger, shutdown) = shutdown::switch();
    let current = Current::default();
    let mut sides = Sides::default();
    let statsd = start_statsd(&config, &mut sides)?;
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
    let about_statsd = statsd
        .as_ref()
        .map(|(pipeline, _)| Arc::new(pipeline.self_source(SelfMetrics::All)) as Arc<dyn Source>);
    let more = about_statsd.into_iter().collect();
    let own = routes::telemetry(telemetry.own.clone(), more, "kstatd", true);
    let mut servers = Servers::default();
    serve_two(&mut servers, &config, main, own, &shutdown)?;
    let mut watched = FileWatch::new(files(&args.kube.0, &config));
    let signal = loop {
        let wake = next(&mut signals, &mut watched).await;
        match wake {
            Wake::Request(Request::End(signal)) => break signal,
            Wake::Request(Request::Dump) => dump(),
            Wake::Request(Request::Reload) | Wake::FileChanged => {
                if let (Wake::Request(_), Some((pipeline, config))) = (wake, &statsd) {
                    statsd_side::reload(pipeline, config.has_mapping(), Trigger::Hangup);
                }
                let Some(running) = &mut side else { continue };
                match reload(resolve, &telemetry, &mut signals).await {
                    Reloaded::New(new) => {
                        let (new, new_side) = *new;
                        current.set(&new_side);
                        std::mem::replace(running, new_side).pipeline.stop().await;
                        watched.replace(files(&args.kube.0, &new));
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
    let drained = async {
        if let Some((pipeline, _)) = &statsd {
            pipeline.shutdown().await;
        }
        servers.ended().await;
    };
    unless_asked_again(&mut signals, drained).await;
    if let Some(side) = side {
        side.pipeline.stop().await;
    }
    Ok(())
}

/// Starts the StatsD side unless all its listeners are off.
fn start_statsd<'a>(
    config: &'a Config,
    sides: &mut Sides,
) -> Result<Option<(Arc<Pipeline>, &'a StatsdConfig)>, String> {
    let Some(statsd) = &config.statsd else { return Ok(None) };
    if statsd_side::require_listener(&statsd.args).is_err() {
        if config.kube.is_none() {
            return Err("nothing to do: no StatsD listener is on and no Kubernetes cluster is \
                        configured"
                .to_owned());
        }
        tracing::info!("the StatsD side is off: all its listeners are");
        return Ok(None);
    }
    if statsd_side::before_start(&statsd.args)? {
        return Ok(None);
    }
    let pipeline =
        statsd_side::start(&statsd.args, SelfMetrics::None, reserved(config.kube.is_some()))
            .map_err(|error| error.to_string())?;
    statsd_side::announce(&pipeline, &statsd.args);
    sides.statsd = Some(Arc::clone(&pipeline) as Arc<dyn Source>);
    Ok(Some((pipeline, statsd)))
}

/// The names of all families of Kubernetes objects, watched now or after a reload: a StatsD client that
/// sent one would make the common exposition invalid.
fn reserved(with_kube: bool) -> Reserved {
    let resources = crate::resources::registry().iter().filter(|_| with_kube);
    let names: BTreeSet<&'static str> =
        resources.flat_map(|resource| resource.families()).map(|family| family.name).collect();
    Arc::new(move |name| names.contains(name))
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
