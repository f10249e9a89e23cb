//! The run under kstatd's own name: both sides on one listener.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::upkeep::{Beginning, Upkeep};
use crate::app::kube_side;
use crate::app::kube_side::KubeSide;
use crate::app::listeners::{Listeners, Role, Routers};
use crate::app::process::dump;
use crate::app::process::lifetime::{block_on, signals, unless_asked_again};
use crate::app::process::{Request, Starting};
use crate::app::statsd_side;
use crate::app::statsd_side::Trigger;
use crate::app::telemetry::Telemetry;
use crate::cache::MetricKind;
use crate::cli::config::{self, Config, StatsdConfig};
use crate::cli::native::RunArgs;
use crate::exposition::Source;
use crate::server::readiness::Readiness;
use crate::server::routes::{self, Sides};
use crate::statsd::{Pipeline, Reserved, SelfMetrics};

/// `kstatd run`.
///
/// # Errors
///
/// What keeps the process from starting.
pub fn kstatd(args: &RunArgs) -> Result<(), String> {
    crate::telemetry::log::init(config::own_log(&args.log));
    block_on(|starting| run_kstatd(args, starting))
}

/// The same on a runtime that is there already, with a log that is set up already.
///
/// # Errors
///
/// What keeps it from starting.
pub async fn run_kstatd(args: &RunArgs, starting: Starting) -> Result<(), String> {
    let mut signals = signals()?;
    let flags = args.clone();
    let resolve = Arc::new(move |load| config::kstatd(&flags, load, kube_side::is_configured));
    let beginning =
        Beginning::new(resolve, &args.kube.0.config).map_err(|error| error.to_string())?;
    let config = &beginning.config;
    let with_kube = config.kube.is_some() || config.options_file.is_some();
    let telemetry = Telemetry::new(with_kube, false);
    let readiness = Readiness::default();
    let mut sides = Sides::default();
    let statsd = start_statsd(config, &mut sides)?;
    if let Some((pipeline, _)) = &statsd {
        let pipeline = Arc::clone(pipeline);
        starting.end_first(async move { pipeline.shutdown().await });
    }
    let side = beginning.start_side(&telemetry).await.map_err(|error| error.to_string())?;
    if let Some(side) = &side {
        sides.kubernetes = Some(Arc::new(side.catalog()) as Arc<dyn Source>);
        hold_until_ready(&readiness, side);
    } else {
        tracing::info!(
            "the Kubernetes side is off: set --kubeconfig, --apiserver or KUBECONFIG, or run in a \
             pod with a service account, to turn it on"
        );
    }
    let about_statsd = statsd
        .as_ref()
        .map(|(pipeline, _)| Arc::new(pipeline.self_source(SelfMetrics::All)) as Arc<dyn Source>);
    let more: Vec<_> = about_statsd.into_iter().collect();
    let (http, own) = (telemetry.http.clone(), telemetry.own.clone());
    let routers: Routers = Box::new(move |role, gzip| match role {
        Role::Main => routes::kstatd(&sides, gzip, readiness.clone(), &http),
        Role::Telemetry => routes::telemetry(own.clone(), more.clone(), "kstatd", true),
    });
    let reviews = side.as_ref().map(KubeSide::reviews);
    let listeners =
        Listeners::start(&beginning.config, routers, reviews).map_err(|error| error.to_string())?;
    let mut upkeep = Upkeep::new(beginning, listeners, side, &telemetry);
    drop(starting);
    let signal = loop {
        let request = tokio::select! {
            request = signals.next() => request,
            () = upkeep.attend() => continue,
        };
        match request {
            Request::End(signal) => break signal,
            Request::Dump => dump(),
            Request::Reload => {
                if let Some((pipeline, config)) = &statsd {
                    statsd_side::reload(pipeline, config.has_mapping(), Trigger::Hangup);
                }
                upkeep.reload();
            }
        }
    };
    tracing::info!(signal, "ending");
    let drained = async {
        if let Some((pipeline, _)) = &statsd {
            tokio::join!(pipeline.shutdown(), upkeep.end());
        } else {
            upkeep.end().await;
        }
    };
    unless_asked_again(&mut signals, drained).await;
    Ok(())
}

/// Starts the StatsD side unless all its listeners are off.
fn start_statsd(
    config: &Config,
    sides: &mut Sides,
) -> Result<Option<(Arc<Pipeline>, StatsdConfig)>, String> {
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
    let custom = config.kube.as_ref().and_then(|kube| kube.custom.as_ref()?.config.clone());
    let custom = custom.iter().flat_map(|config| config.families());
    let pipeline = statsd_side::start(
        &statsd.args,
        SelfMetrics::None,
        reserved(config.kube.is_some(), custom),
    )
    .map_err(|error| error.to_string())?;
    statsd_side::announce(&pipeline, &statsd.args);
    sides.statsd = Some(Arc::clone(&pipeline) as Arc<dyn Source>);
    Ok(Some((pipeline, statsd.clone())))
}

/// The names of all families of Kubernetes objects, watched now or after a reload, and those that OpenMetrics
/// reserves around them: a StatsD client that sent one would make the common exposition invalid.
///
/// `custom` are the families of custom resources at the start; those that are added later are not reserved.
fn reserved(with_kube: bool, custom: impl Iterator<Item = String>) -> Reserved {
    let resources = crate::resources::registry().iter().filter(|_| with_kube);
    let mut names: BTreeSet<String> = custom.collect();
    for family in resources.flat_map(|resource| resource.families()) {
        names.insert(family.name.to_owned());
        let base = family.name.strip_suffix("_total");
        if let (MetricKind::Counter, Some(base)) = (family.kind, base) {
            names.insert(base.to_owned());
            names.insert(format!("{base}_created"));
        }
    }
    Arc::new(move |name| names.contains(name))
}

/// Not ready until the first lists are complete.
fn hold_until_ready(readiness: &Readiness, side: &KubeSide) {
    let latch = readiness.latch("the first lists of Kubernetes objects");
    let handle = side.handle();
    tokio::spawn(async move {
        handle.ready().await;
        drop(latch);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kubernetes_families_are_reserved_with_what_open_metrics_adds() {
        let with = reserved(true, std::iter::once("mine".to_owned()));
        assert!(with("mine") && !with("yours"));
        for (name, want) in [
            ("kube_pod_status_ready", true),
            ("kube_pod_container_status_restarts_total", true),
            ("kube_pod_container_status_restarts", true),
            ("kube_pod_container_status_restarts_created", true),
            // No family of these names can be in the way of a gauge.
            ("kube_pod_status_ready_total", false),
            ("kube_pod_status_ready_created", false),
        ] {
            assert_eq!(with(name), want, "{name}");
            assert!(!reserved(false, std::iter::empty())(name), "{name}");
        }
    }
}
