//! Flags of `kstatd bundle`.

use std::path::PathBuf;

use clap::Args;

use super::process::ProcessArgs;
use super::shared::OutputArgs;

/// Flags of `kstatd bundle`.
#[derive(Clone, Debug, Args)]
#[command(
    long_about = "Write a support archive of a running process and list its contents: status, own metrics, configuration, versions, \
        limits, profiles of CPU and heap, threads, and the recent log; of a pod also its description and its log.\n\n\
        Passwords, tokens, keys and credentials in URLs are removed, and ConfigMaps, Secrets and environment variables are not \
        read. --hash-names also hides the names of the cluster.",
    after_help = "Exit codes: 0 if the archive is complete, 1 if a part is missing (the archive has the error), 2 if there is no \
        archive."
)]
pub struct BundleArgs {
    /// File to create, a tar archive compressed by gzip [default: kstatd-bundle-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Replace names of namespaces, objects and labels, and all other words that kstatd does not contain, by hashes
    /// with a random salt: the same name has the same hash in each file of the archive
    #[arg(long)]
    pub hash_names: bool,
    /// Address of the process's own metrics and profiles [default: port 8081 of the same host]
    #[arg(long, value_name = "HOST:PORT|URL", requires = "addr")]
    pub telemetry_addr: Option<String>,
    /// The output format of the list.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The process to describe.
    #[command(flatten)]
    pub process: ProcessArgs,
}
