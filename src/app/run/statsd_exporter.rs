//! The run under the name statsd_exporter.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::app::process::dump;
use crate::app::process::lifetime::{block_on, signals, unless_asked_again};
use crate::app::process::startup_code;
use crate::app::process::{GRACE, Request, Servers, Starting};
use crate::app::statsd_side;
use crate::app::statsd_side::Trigger;
use crate::cli::config;
use crate::cli::statsd_flags::StatsdArgs;
use crate::exposition::Source;
use crate::server::routes::{self, Lifecycle};
use crate::server::shutdown;
use crate::server::web_config::WebConfig;
use crate::statsd::{Pipeline, SelfMetrics};
use crate::telemetry::{HttpMetrics, Recorder, TOOLCHAIN, VERSION};

/// Runs until a signal or the lifecycle API ends it.
pub fn statsd_exporter(args: &StatsdArgs) -> ExitCode {
    tracing::info!(
        version = format!("(version={VERSION}, branch=, revision=unknown)"),
        "Starting StatsD -> Prometheus Exporter"
    );
    tracing::info!(context = format!("(built with {TOOLCHAIN}, kstatd)"), "Build context");
    let outcome = match statsd_side::before_start(args) {
        Ok(true) => Ok(()),
        Ok(false) => block_on(|starting| run(args, starting)),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &StatsdArgs, starting: Starting) -> Result<(), String> {
    let mut signals = signals()?;
    statsd_side::require_listener(args).map_err(|error| error.to_string())?;
    let http = HttpMetrics::default();
    let mut recorder = Recorder::process();
    http.register_scrapes(&mut recorder);
    let own = recorder.finish();
    let names = own.names();
    let reserved = Arc::new(move |name: &str| names.contains(name));
    // Before anything listens.
    let web = Some(&args.web_config_file).filter(|path| !path.is_empty());
    let web = web.map(|path| WebConfig::load(Path::new(path))).transpose();
    let web = web.map_err(|error| error.to_string())?.map(Arc::new);
    let pipeline = statsd_side::start(args, SelfMetrics::Original, reserved)
        .map_err(|error| error.to_string())?;
    // What it receives from here on must not be lost.
    drop(starting);
    statsd_side::announce(&pipeline, args);
    let config = config::statsd_exporter(args).map_err(|error| error.to_string())?;
    let (trigger, shutdown) = shutdown::switch();
    let quit = Arc::new(Notify::new());
    let router = routes::statsd_exporter(
        vec![Arc::clone(&pipeline) as Arc<dyn Source>, Arc::new(own)],
        vec![Arc::new(pipeline.self_source(SelfMetrics::All)), Arc::new(Recorder::new().finish())],
        &args.web_telemetry_path,
        args.web_enable_lifecycle.then(|| lifecycle(&pipeline, args, &quit)),
        &http,
    )
    .behind(web);
    let mut servers = Servers::default();
    let bound =
        servers.start(&config.main, router, GRACE, shutdown).map_err(|error| error.to_string())?;
    tracing::info!(addr = %bound, "Accepting Prometheus Requests");
    startup_code::give_back();
    loop {
        let request = tokio::select! {
            request = signals.next() => request,
            () = quit.notified() => {
                tracing::info!("Received lifecycle api quit, exiting");
                break;
            }
        };
        match request {
            Request::End(signal) => {
                tracing::info!(signal, "Received os signal, exiting");
                break;
            }
            Request::Reload => statsd_side::reload(&pipeline, has_mapping(args), Trigger::Hangup),
            Request::Dump => dump(),
        }
    }
    trigger.fire();
    let drained = async {
        pipeline.shutdown().await;
        servers.ended().await;
    };
    unless_asked_again(&mut signals, drained).await;
    Ok(())
}

fn has_mapping(args: &StatsdArgs) -> bool {
    !args.mapping_config.is_empty()
}

fn lifecycle(pipeline: &Arc<Pipeline>, args: &StatsdArgs, quit: &Arc<Notify>) -> Lifecycle {
    let (pipeline, has_file) = (Arc::clone(pipeline), has_mapping(args));
    let quit = Arc::clone(quit);
    Lifecycle {
        reload: Arc::new(move || {
            statsd_side::reload(&pipeline, has_file, Trigger::Request);
        }),
        quit: Arc::new(move || quit.notify_one()),
    }
}
