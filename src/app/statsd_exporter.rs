//! The `statsd_exporter` command line.

use std::process::ExitCode;

use super::output::{print, print_error};
use super::sides::statsd;
use super::{personality, run};
use crate::cli::kingpin::{self, Request};
use crate::cli::statsd_flags::{self, FLAGS, StatsdArgs};
use crate::cli::{completion, config};
use crate::telemetry::{REVISION, TOOLCHAIN, VERSION};

const PROGRAM: &str = "statsd_exporter";

/// Runs the program with the arguments after its name.
pub fn main(argv: &[String]) -> ExitCode {
    let mut args = StatsdArgs::default();
    let parsed = kingpin::parse(FLAGS, &mut args, argv).and_then(|request| match request {
        Request::Run => statsd_flags::check(&args).map(|()| request),
        _ => Ok(request),
    });
    match parsed {
        Err(error) => {
            print_error(&format!("{PROGRAM}: error: {error}, try --help"));
            ExitCode::FAILURE
        }
        Ok(Request::Help) => print(&kingpin::usage(PROGRAM, FLAGS)),
        Ok(Request::Manual) => {
            print(&kingpin::manual(PROGRAM, "StatsD lines as Prometheus metrics", FLAGS))
        }
        Ok(Request::Version) => print(&completion::version(PROGRAM)),
        Ok(Request::CompletionBash { flag: true }) => print(&kingpin::names(FLAGS)),
        Ok(Request::CompletionBash { flag: false }) => ExitCode::SUCCESS,
        Ok(shell @ (Request::CompletionScriptBash | Request::CompletionScriptZsh)) => {
            print(&kingpin::completion_script(PROGRAM, shell))
        }
        Ok(Request::Run) => {
            crate::telemetry::log::init(config::slog(&args));
            run(&args)
        }
    }
}

/// Runs until a signal or the lifecycle API ends it.
fn run(args: &StatsdArgs) -> ExitCode {
    tracing::info!(
        version = format!("(version={VERSION}, branch=, revision={REVISION})"),
        "Starting StatsD -> Prometheus Exporter"
    );
    tracing::info!(context = format!("(built with {TOOLCHAIN}, kstatd)"), "Build context");
    let outcome = match statsd::run_checks(args) {
        Ok(true) => Ok(()),
        Ok(false) => run::main(personality::statsd_exporter(args)),
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
