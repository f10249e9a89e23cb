//! The run loop: starts a [`Personality`], serves it, reloads it, and shuts it down.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::config_reloader::{ConfigReloader, first_config};
use super::listeners::{self, Listeners};
use super::personality::{Personality, RouterContext, RunningSide, no_sides_error, routers};
use super::process::{Request, Signals, StartupGuard, block_on};
use super::sides::kubernetes::own_identity;
use super::sides::{FamilyNames, StartContext};
use super::standby::Standby;
use super::telemetry::Telemetry;
use crate::cli::config::Config;
use crate::config_file::reader;
use crate::exposition::family::Collect;
use crate::pods::PodIndex;
use crate::server::readiness::Readiness;
use crate::status::{Board, Reporter};
use crate::tools::CommandError;
use crate::util::allocator;

/// Runs a personality on a new runtime until a signal or a quit request ends it.
///
/// # Errors
///
/// Returns the reason why the process cannot start.
pub(crate) fn main(personality: Personality) -> Result<(), CommandError> {
    block_on(|guard| run(personality, guard))
}

/// Runs a personality on the current runtime, like [`main`].
///
/// # Errors
///
/// Returns the reason why the process cannot start.
pub(crate) async fn run(personality: Personality, guard: StartupGuard) -> Result<(), CommandError> {
    let mut signals = Signals::new()?;
    let (watched, config) = first_config(&personality)?;
    let config = &config;
    // Must be valid before anything listens.
    let web = listeners::web_config(config)?;
    let readiness = Readiness::default();
    let telemetry = Telemetry::new(config, &readiness);
    let mut sides = Vec::new();
    let started = start_sides(&personality, config, &telemetry, &guard, &mut sides).await;
    if let Err(error) = started {
        stop_all(sides).await;
        return Err(error);
    }
    let latches = hold_latches(&readiness, &mut sides);
    let lines = sides.iter().find_map(|running| running.features.lines.clone());
    let standby = Standby::start(config, &readiness, own_identity(config), lines);
    let board = board(&personality, &sides, &telemetry, standby.as_ref());
    let quit = Arc::new(Notify::new());
    let context = RouterContext {
        config,
        sides: &sides,
        telemetry: &telemetry,
        readiness: &readiness,
        board: &board,
        quit: &quit,
        standby: standby.as_ref(),
    };
    let routers = routers(&context);
    let reviews = sides.iter().find_map(|running| running.features.reviews.clone());
    let listeners = Listeners::start(config, web, routers, reviews);
    let listeners = match listeners {
        Ok(listeners) => listeners,
        Err(error) => {
            stop_all(sides).await;
            return Err(error);
        }
    };
    tokio::spawn(async move {
        latches.await;
        // The initial lists leave much memory unused.
        allocator::schedule_purge();
    });
    tokio::spawn(async move { board.keep().await });
    let exit_message = personality.exit_message();
    let mut reloader =
        ConfigReloader::new(personality, watched, config, listeners, sides, standby, &telemetry);
    drop(guard);
    // Reads were unbounded until now; from here on there is a configuration to fall back to.
    reader::limit_waits();
    loop {
        let request = tokio::select! {
            request = signals.next() => request,
            () = quit.notified() => {
                tracing::info!("Received lifecycle api quit, exiting");
                break;
            }
            () = reloader.next_event() => continue,
        };
        match request {
            Request::End(signal) => {
                tracing::info!(signal, "{exit_message}");
                break;
            }
            Request::Reload => reloader.reload(),
        }
    }
    reloader.end().await;
    Ok(())
}

/// Stops the sides of a failed start, so that they clean up, for example socket files.
async fn stop_all(sides: Vec<RunningSide>) {
    for running in sides {
        running.side.stop().await;
    }
}

/// Starts the configured sides and pushes them to `sides`, including those started before another one failed.
async fn start_sides(
    personality: &Personality,
    config: &Config,
    telemetry: &Telemetry,
    guard: &StartupGuard,
    sides: &mut Vec<RunningSide>,
) -> Result<(), CommandError> {
    if personality.sides.iter().all(|kind| (kind.disabled_reason)(config).is_some()) {
        return Err(no_sides_error(config.name).into());
    }
    let names = Arc::new(names(personality, config, telemetry));
    let selection = config.statsd.as_ref().map(|args| args.enrich.clone());
    let pods = selection.filter(|selection| !selection.is_empty());
    let pods = pods.map(PodIndex::new);
    let has_replicas = config.standby.is_some();
    let pods = pods.map(|pods| if has_replicas { pods.for_replicas() } else { pods });
    let pods = pods.map(Arc::new);
    for &kind in personality.sides.iter().rev() {
        if let Some(reason) = (kind.disabled_reason)(config) {
            tracing::info!("{reason}");
            continue;
        }
        let own = || Arc::new(telemetry.own.clone()) as Arc<dyn Collect>;
        let merged_metrics = personality.merges_own_metrics().then(own);
        let (metrics, names, pods) = (&telemetry.kube, &names, pods.as_ref());
        let start = StartContext { config, metrics, names, pods, merged_metrics };
        let side = (kind.start)(start).await?;
        let mut features = side.features();
        if let Some(cleanup) = features.abort.take() {
            guard.on_exit(cleanup);
        }
        sides.push(RunningSide { kind, features, side });
    }
    sides.reverse();
    Ok(())
}

/// Returns the names of all families that share an exposition.
fn names(personality: &Personality, config: &Config, telemetry: &Telemetry) -> FamilyNames {
    let names = FamilyNames::default();
    if personality.merges_own_metrics() {
        names.set("the process", telemetry.own.names());
    }
    for kind in personality.sides {
        names.set(kind.name, (kind.names)(config));
    }
    names
}

/// Builds the data of the status page.
fn board(
    personality: &Personality,
    sides: &[RunningSide],
    telemetry: &Telemetry,
    standby: Option<&Standby>,
) -> Arc<Board> {
    let files: Arc<dyn Reporter> = Arc::new(telemetry.files.clone());
    let standby = standby.map(|standby| Arc::new(standby.clone()) as Arc<dyn Reporter>);
    let sides = sides.iter().map(|running| Arc::clone(&running.features.reporter));
    let reporters = sides.chain(standby).chain([files]).collect();
    Arc::new(Board::new(personality.name.as_str(), telemetry.http.log.clone(), reporters))
}

/// Holds the process unready until the future that is returned has waited for each side's condition.
fn hold_latches(
    readiness: &Readiness,
    sides: &mut [RunningSide],
) -> impl Future<Output = ()> + use<> {
    let conditions = sides.iter_mut().filter_map(|running| running.features.ready.take());
    let pending = conditions.map(|condition| {
        let latch = readiness.latch(condition.description);
        async move {
            condition.met.await;
            drop(latch);
        }
    });
    join_all(pending.collect::<Vec<_>>()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::personality;
    use super::super::sides::kubernetes::KUBERNETES;
    use super::super::sides::statsd::STATSD;
    use super::*;
    use crate::cli::config::{self, Load};
    use crate::cli::native::RunArgs;
    use crate::cli::statsd_flags::StatsdArgs;

    const CUSTOM: &str = "spec: {resources: [{groupVersionKind: {group: a.io, version: v1, kind: A}, \
                          metrics: [{name: size, help: S., each: {type: Gauge, gauge: {path: [s]}}}]}]}";

    #[test]
    fn a_side_reserves_no_family_of_another() {
        let mut args = RunArgs::default();
        (args.listen, args.telemetry_listen) = (":1".to_owned(), ":2".to_owned());
        args.kube.0.custom_resource_config = CUSTOM.to_owned();
        let own = personality::kstatd(&args);
        for with_kube in [true, false] {
            let config =
                config::kstatd(&args, Load::First, |_| with_kube).expect("a configuration");
            let telemetry = Telemetry::new(&config, &Readiness::default());
            let names = names(&own, &config, &telemetry);
            let taken = names.of_others(STATSD.name);
            for name in
                ["kube_customresource_size", "kube_pod_info", "kube_pod_container_status_restarts"]
            {
                assert_eq!(taken(name), with_kube, "{name}");
            }
            assert!(!taken("process_open_fds"), "it is served elsewhere");
            let taken = names.of_others(KUBERNETES.name);
            assert!(!taken("kube_pod_info"), "it is its own");
        }
        let args = StatsdArgs::default();
        let (original, config) =
            (personality::statsd_exporter(&args), config::statsd_exporter(&args).expect("valid"));
        let telemetry = Telemetry::new(&config, &Readiness::default());
        let taken = names(&original, &config, &telemetry).of_others(STATSD.name);
        assert!(taken("process_open_fds") && !taken("kube_pod_info"));
    }
}
