//! The program under the name statsd_exporter.

use std::process::ExitCode;

use super::output::{complain, print};
use super::run;
use crate::cli::kingpin;
use crate::cli::kingpin::Request;
use crate::cli::statsd_flags;
use crate::cli::statsd_flags::{FLAGS, StatsdArgs};
use crate::cli::{completion, config};

const PROGRAM: &str = "statsd_exporter";

/// Runs it with the words after the program's name.
pub fn main(argv: &[String]) -> ExitCode {
    let mut args = StatsdArgs::default();
    let parsed = kingpin::parse(FLAGS, &mut args, argv).and_then(|request| match request {
        Request::Run => statsd_flags::check(&args).map(|()| request),
        _ => Ok(request),
    });
    match parsed {
        Err(error) => {
            complain(&format!("{PROGRAM}: error: {error}, try --help"));
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
            run::statsd_exporter(&args)
        }
    }
}
