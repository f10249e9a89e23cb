//! The commands of the kubectl plugin, which are commands of kstatd sent through the API server's proxy.

use clap::{Parser, Subcommand};

use super::asking::{BundleArgs, ExplainArgs, ExplainCommand, StatusArgs, TopArgs};
use super::check::ClusterCheckArgs;
use super::native::CliCommand;

/// The command line under the name kubectl-kstatd, a plugin of kubectl.
#[derive(Parser)]
#[command(
    name = "kubectl-kstatd",
    bin_name = "kubectl kstatd",
    version,
    about = "Ask the kstatd in a cluster, through the proxy of the API server",
    max_term_width = 100
)]
pub struct KubectlCli {
    /// The command of the plugin.
    #[command(subcommand)]
    pub command: KubectlCommand,
}

/// The commands of the plugin.
#[derive(Subcommand)]
pub enum KubectlCommand {
    /// Show the health of a pod; exits with 0 if OK or WARN, 1 if DEGRADED, 2 if there is no answer
    Status(StatusArgs),
    /// Show the metrics and labels with the most series of a pod; exit codes as for `status`
    Top(Box<TopArgs>),
    /// Write a support archive of a pod, without secrets
    Bundle(Box<BundleArgs>),
    /// Ask a pod to explain a StatsD line, or why an object has its series
    Explain(Box<ExplainArgs>),
    /// Check what a swap of the originals would change, or the health of an installation
    Check(Box<ClusterCheckArgs>),
}

impl From<KubectlCommand> for CliCommand {
    fn from(command: KubectlCommand) -> Self {
        let mut command = match command {
            KubectlCommand::Status(args) => Self::Status(args),
            KubectlCommand::Top(args) => Self::Top(args),
            KubectlCommand::Bundle(args) => Self::Bundle(args),
            KubectlCommand::Explain(args) => Self::Explain(args),
            KubectlCommand::Check(args) => Self::Check(args),
        };
        let process = match &mut command {
            Self::Status(args) => Some(&mut args.process),
            Self::Top(args) => Some(&mut args.process),
            Self::Bundle(args) => Some(&mut args.process),
            Self::Explain(args) => Some(match &mut args.what {
                Some(ExplainCommand::Object(args)) => &mut args.process,
                None => &mut args.process,
            }),
            _ => None,
        };
        if let Some(process) = process {
            process.is_kubectl = true;
        }
        command
    }
}
