//! `kstatd diff`: flags into a comparison, and what it comes to into an exit code.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use super::output::{complain, print};
use crate::cli::native::{AccessArgs, DiffArgs};
use crate::telemetry::VERSION;
use crate::tools::diff::{self, Access, Manner, Options};

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
        user_agent: format!("kstatd/{VERSION}"),
        open_metrics: args.openmetrics,
        timeout: args.timeout,
        interval: args.interval.unwrap_or(Duration::from_secs(usual)),
        watch: args.watch,
        ignore: args.ignore,
        manner: Manner { tolerance: args.tolerance, increases: args.increases },
        examples: args.examples,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let report = runtime.block_on(diff::run(options, complain))?;
    let text = if json { report.json() } else { report.text(strict) };
    if print(&text) != ExitCode::SUCCESS {
        return Ok(Outcome::Trouble);
    }
    Ok(if report.is_same(strict) { Outcome::Same } else { Outcome::Different })
}

fn access(args: AccessArgs) -> Result<Access, String> {
    let password = match &args.password_file {
        Some(path) => {
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => args.password,
    };
    Ok(Access {
        certificate_authority: args.certificate_authority,
        insecure_skip_tls_verify: args.insecure_skip_tls_verify,
        tls_server_name: args.tls_server_name,
        client_certificate: args.client_certificate,
        client_key: args.client_key,
        token: args.token,
        token_file: args.token_file,
        username: args.username,
        password,
    })
}
