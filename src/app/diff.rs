//! The `kstatd diff` command.

use std::time::Duration;

use super::access::{access, run_command};
use super::output::{Outcome, print_error, written};
use crate::cli::native::DiffArgs;
use crate::status::words::printable;
use crate::tools::CommandError;
use crate::tools::diff::{self, Explained, Rules};

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
    let interval = args.interval.unwrap_or(Duration::from_secs(default_interval));
    let rules = Rules {
        open_metrics: args.openmetrics,
        timeout: args.timeout,
        ignore: args.ignore,
        increases: args.increases,
        examples: args.examples,
    };
    let (sides, access) = ([args.a, args.b], access(args.access)?);
    let say = |text: &str| print_error(&printable(text));
    let report = run_command(diff::run(sides, access, args.watch, interval, rules, say))?;
    let text = if json { report.json() } else { report.text(detail, watched) };
    written(&text)?;
    Ok(if report.is_same(strict) { Outcome::Clean } else { Outcome::Findings })
}
