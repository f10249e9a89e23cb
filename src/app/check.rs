//! `kstatd check`.

use super::access::{access, api_server, run_command};
use super::output::{Outcome, written};
use crate::cli::check::ClusterCheckArgs;
use crate::kube::Client;
use crate::tools::CommandError;
use crate::tools::check::inventory::{Inventory, Selection};
use crate::tools::check::report::Report;
use crate::tools::check::{self, health};
use crate::tools::manifests;
use crate::tools::process_client::ProcessClient;

/// The maximum size of a file of manifests in bytes.
const MAX_FILE: u64 = 256 << 20;

/// Runs the checks and prints the report.
///
/// # Errors
/// Returns an error if the checks cannot be run.
pub(super) fn main(args: ClusterCheckArgs) -> Result<Outcome, CommandError> {
    let output = args.output;
    let report = run_command(run(args))?;
    written(&if output.is_json() { report.json() } else { report.text() })?;
    Ok(if report.failed() { Outcome::Findings } else { Outcome::Clean })
}

async fn run(args: ClusterCheckArgs) -> Result<Report, CommandError> {
    if let Some(addr) = &args.addr {
        let process = ProcessClient::new(addr, access(args.access)?)?;
        let mut report = Report::default();
        report.push(health::of_process(&process).await);
        return Ok(report);
    }
    let selection = Selection { namespace: args.namespace, workload: args.workload };
    if !args.files.is_empty() {
        let objects = manifests::load_at_most(&args.files, MAX_FILE)?;
        let inventory = Inventory { objects, ..Inventory::default() };
        return check::before(&inventory, &selection, None).await;
    }
    let client = Client::new(&api_server(args.cluster)).await?;
    let inventory = Inventory::read(&client, &selection).await?;
    match args.pre {
        true => check::before(&inventory, &selection, Some(&client)).await,
        false => check::after(&inventory, &selection, &client).await,
    }
}
