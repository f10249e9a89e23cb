//! `kstatd diff`: flags into a comparison, and what it comes to into an exit code.

use std::process::ExitCode;
use std::time::Duration;

use super::access::{access, event_loop, user_agent};
use super::output::{complain, print};
use crate::cli::native::DiffArgs;
use crate::tools::diff::{self, Manner, Options};

/// How it ends, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing differs but what is explained.
    Same,
    /// Something differs.
    Different,
    /// They could not be compared.
    Trouble,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Same => 0,
            Outcome::Different => 1,
            Outcome::Trouble => 2,
        })
    }
}

/// Compares and prints.
pub(crate) fn main(args: DiffArgs) -> Outcome {
    match compare(args) {
        Ok(outcome) => outcome,
        Err(error) => {
            complain(&format!("error: {error}"));
            Outcome::Trouble
        }
    }
}

fn compare(args: DiffArgs) -> Result<Outcome, String> {
    let DiffArgs { strict, json, .. } = args;
    let usual = if args.watch.is_some() { 15 } else { 1 };
    let options = Options {
        access: access(args.access)?,
        sides: [args.a, args.b],
        user_agent: user_agent(),
        open_metrics: args.openmetrics,
        timeout: args.timeout,
        interval: args.interval.unwrap_or(Duration::from_secs(usual)),
        watch: args.watch,
        ignore: args.ignore,
        manner: Manner { tolerance: args.tolerance, increases: args.increases },
        examples: args.examples,
    };
    let runtime = event_loop()?;
    let report = runtime.block_on(diff::run(options, complain))?;
    let text = if json { report.json() } else { report.text(strict) };
    if print(&text) != ExitCode::SUCCESS {
        return Ok(Outcome::Trouble);
    }
    Ok(if report.is_same(strict) { Outcome::Same } else { Outcome::Different })
}
