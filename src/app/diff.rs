//! The `kstatd diff` command.

use std::process::ExitCode;
use std::time::Duration;

use super::access::{access, run_command, user_agent};
use super::output::{print, print_error};
use crate::cli::native::DiffArgs;
use crate::status::words::printable;
use crate::tools::CommandError;
use crate::tools::diff::{self, Explained, Options, Rules};

/// The outcome of a comparison, which becomes the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No unexplained difference.
    Same,
    Different,
    /// The comparison failed.
    Failed,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Same => 0,
            Outcome::Different => 1,
            Outcome::Failed => 2,
        })
    }
}

pub(crate) fn main(args: DiffArgs) -> Outcome {
    match comparison_outcome(args) {
        Ok(outcome) => outcome,
        Err(error) => {
            print_error(&format!("error: {}", printable(&error.to_string())));
            Outcome::Failed
        }
    }
}

fn comparison_outcome(args: DiffArgs) -> Result<Outcome, CommandError> {
    let (strict, json) = (args.strict, args.output.is_json());
    let detail = match (strict, args.explain_all) {
        (true, _) => Explained::Strict,
        (false, true) => Explained::All,
        (false, false) => Explained::Some,
    };
    let watched = args.watch.is_some();
    let default_interval = if watched { 15 } else { 1 };
    let options = Options {
        access: access(args.access)?,
        sides: [args.a, args.b],
        user_agent: user_agent(),
        interval: args.interval.unwrap_or(Duration::from_secs(default_interval)),
        watch: args.watch,
        rules: Rules {
            open_metrics: args.openmetrics,
            timeout: args.timeout,
            ignore: args.ignore,
            increases: args.increases,
            examples: args.examples,
        },
    };
    let report = run_command(diff::run(options, |text| print_error(&printable(text))))?;
    let text = if json { report.json() } else { report.text(detail, watched) };
    if print(&text) != ExitCode::SUCCESS {
        return Ok(Outcome::Failed);
    }
    Ok(if report.is_same(strict) { Outcome::Same } else { Outcome::Different })
}
