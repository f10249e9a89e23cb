//! The `kstatd diff` command.

use std::time::Duration;

use super::access::{access, run_command, user_agent};
use super::output::{Outcome, print_error, written};
use crate::cli::native::DiffArgs;
use crate::status::words::printable;
use crate::tools::CommandError;
use crate::tools::diff::{self, Explained, Options, Rules};

/// Compares two expositions and prints the report.
///
/// # Errors
/// Returns an error if the comparison is impossible.
pub(crate) fn main(args: DiffArgs) -> Result<Outcome, CommandError> {
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
    written(&text)?;
    Ok(if report.is_same(strict) { Outcome::Clean } else { Outcome::Findings })
}
