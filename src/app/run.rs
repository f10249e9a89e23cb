//! The one run loop: starts what a [`Personality`] has, keeps to it, and ends it cleanly.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Notify;

use super::listeners::{self, Listeners};
use super::personality::{Personality, Running, Serving, nothing_to_do};
use super::process::lifetime::{block_on, signals, unless_asked_again};
use super::process::{Request, Starting, dump, startup_code};
use super::sides::{Awaited, Kind, Start, Taken, Trigger};
use super::telemetry::{Files, Telemetry};
use super::upkeep::{Beginning, Upkeep};
use crate::cli::config::Config;
use crate::exposition::family::Collect;
use crate::server::readiness::{Latch, Readiness};
use crate::status::{Board, Reporter};

/// Runs until a signal or a request ends it, on a runtime of its own.
///
/// # Errors
///
/// What keeps the process from starting.
pub(crate) fn main(personality: Personality) -> Result<(), String> {
    block_on(|starting| run(personality, starting))
}

/// The same on a runtime that is there already.
///
/// # Errors
///
/// What keeps it from starting.
pub(crate) async fn run(personality: Personality, starting: Starting) -> Result<(), String> {
    let mut signals = signals()?;
    let beginning = Beginning::new(&personality).map_err(|error| error.to_string())?;
    let config = &beginning.config;
    // Before anything listens.
    let web = listeners::web_config(config).map_err(|error| error.to_string())?;
    let readiness = Readiness::default();
    let telemetry = (personality.telemetry)(config, &readiness);
    let mut sides = Vec::new();
    let started = start_sides(&personality, config, &telemetry, &starting, &mut sides).await;
    if let Err(error) = started {
        end(sides).await;
        return Err(error);
    }
    let awaited = hold_until_ready(&readiness, &sides);
    let board = board(&personality, &sides, &telemetry);
    let quit = Arc::new(Notify::new());
    let serving = Serving {
        config,
        sides: &sides,
        telemetry: &telemetry,
        readiness: &readiness,
        board: &board,
        quit: &quit,
    };
    let routers = (personality.routers)(&serving);
    let reviews = sides.iter().find_map(|running| running.side.reviews());
    let listeners = Listeners::start(config, web, routers, personality.announce, reviews);
    let listeners = match listeners {
        Ok(listeners) => listeners,
        Err(error) => {
            end(sides).await;
            return Err(error.to_string());
        }
    };
    tokio::spawn(until_ready(awaited));
    tokio::spawn(async move { board.keep().await });
    let mut upkeep = Upkeep::new(beginning, personality.sides, listeners, sides, &telemetry);
    drop(starting);
    loop {
        let request = tokio::select! {
            request = signals.next() => request,
            () = quit.notified() => {
                tracing::info!("Received lifecycle api quit, exiting");
                break;
            }
            () = upkeep.attend() => continue,
        };
        match request {
            Request::End(signal) => {
                tracing::info!(signal, "{}", personality.ending);
                break;
            }
            Request::Dump => dump(),
            Request::Reload => {
                upkeep.reread(Trigger::Hangup);
                if personality.follows_flags {
                    upkeep.reload();
                }
            }
        }
    }
    unless_asked_again(&mut signals, upkeep.end()).await;
    Ok(())
}

/// Ends sides of a start that fails: what they have made, such as the file of a socket, goes with them.
async fn end(sides: Vec<Running>) {
    for running in sides {
        running.side.stop().await;
    }
}

/// Starts the sides that the configuration has, in the order of the personality. Those that have started are in `sides`,
/// also when another one has not.
async fn start_sides(
    personality: &Personality,
    config: &Config,
    telemetry: &Telemetry,
    starting: &Starting,
    sides: &mut Vec<Running>,
) -> Result<(), String> {
    if personality.sides.iter().all(|kind| (kind.off)(config).is_some()) {
        return Err(nothing_to_do(config.name).to_owned());
    }
    for &kind in personality.sides.iter().rev() {
        if let Some(reason) = (kind.off)(config) {
            tracing::info!("{reason}");
            continue;
        }
        let taken = taken(kind, personality, config, telemetry);
        let own = || Arc::new(telemetry.own.clone()) as Arc<dyn Collect>;
        let beside = personality.one_body.then(own);
        let start = Start { config, metrics: &telemetry.kube, taken, beside };
        let side = (kind.start)(start).await?;
        if let Some(cleanup) = side.at_once() {
            starting.end_first(cleanup);
        }
        sides.push(Running { kind, side });
    }
    sides.reverse();
    Ok(())
}

/// The names that a side must leave to others, because they stand in one body with its own.
fn taken(kind: &Kind, personality: &Personality, config: &Config, telemetry: &Telemetry) -> Taken {
    let mut names = BTreeSet::new();
    if personality.one_body {
        names.extend(telemetry.own.names());
    }
    let others = personality.sides.iter().filter(|other| !std::ptr::eq(**other, kind));
    names.extend(others.flat_map(|other| (other.names)(config)));
    Arc::new(move |name| names.contains(name))
}

/// What the status page shows.
fn board(personality: &Personality, sides: &[Running], telemetry: &Telemetry) -> Arc<Board> {
    let files: Arc<dyn Reporter> = Arc::new(Files(telemetry.kube.clone()));
    let sides = sides.iter().filter_map(|running| running.side.reporter());
    let reporters = sides.chain([files]).collect();
    Arc::new(Board::new(personality.program, telemetry.http.log().clone(), reporters))
}

/// Not ready until every side is.
fn hold_until_ready(readiness: &Readiness, sides: &[Running]) -> Vec<(Latch, Awaited)> {
    let awaited = sides.iter().filter_map(|running| running.side.ready());
    awaited.map(|awaited| (readiness.latch(awaited.what), awaited)).collect()
}

async fn until_ready(awaited: Vec<(Latch, Awaited)>) {
    let mut tasks = tokio::task::JoinSet::new();
    for (latch, awaited) in awaited {
        tasks.spawn(async move {
            awaited.done.await;
            drop(latch);
        });
    }
    while tasks.join_next().await.is_some() {}
    startup_code::give_back();
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
    fn a_side_leaves_alone_what_others_have_in_the_same_body() {
        let mut args = RunArgs::default();
        (args.listen, args.telemetry_listen) = (":1".to_owned(), ":2".to_owned());
        args.kube.0.custom_resource_config = CUSTOM.to_owned();
        let own = personality::kstatd(&args);
        for with_kube in [true, false] {
            let config =
                config::kstatd(&args, Load::First, |_| with_kube).expect("a configuration");
            let telemetry = (own.telemetry)(&config, &Readiness::default());
            let taken = taken(&STATSD, &own, &config, &telemetry);
            for name in
                ["kube_customresource_size", "kube_pod_info", "kube_pod_container_status_restarts"]
            {
                assert_eq!(taken(name), with_kube, "{name}");
            }
            assert!(!taken("process_open_fds"), "it is served elsewhere");
            let taken = super::taken(&KUBERNETES, &own, &config, &telemetry);
            assert!(!taken("kube_pod_info"), "it is its own");
        }
        let args = StatsdArgs::default();
        let (original, config) =
            (personality::statsd_exporter(&args), config::statsd_exporter(&args).expect("valid"));
        let telemetry = (original.telemetry)(&config, &Readiness::default());
        let taken = taken(&STATSD, &original, &config, &telemetry);
        assert!(taken("process_open_fds") && !taken("kube_pod_info"));
    }
}
