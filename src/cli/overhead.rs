//! Flags of `kstatd overhead`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::shared::{OutputArgs, duration};

/// Flags of `kstatd overhead`.
#[derive(Clone, Debug, Args)]
#[command(long_about = "Measure the resource usage of processes from procfs and cgroup v2.\n\n\
        To compare two runs, use --save FILE for the first and --baseline FILE for the second. A Mann-Whitney U test \
        shows whether a difference is significant; see docs/node.md for its limitations.")]
pub struct OverheadArgs {
    /// Process ID; repeatable
    #[arg(long = "pid", value_name = "N", required_unless_present_any = ["comms", "cgroups"])]
    pub pids: Vec<u32>,
    /// All processes with this name, as shown by `ps -o comm`; repeatable
    #[arg(long = "comm", id = "comms", value_name = "NAME")]
    pub comms: Vec<String>,
    /// All processes of a cgroup, given as a folder or a path below /sys/fs/cgroup; repeatable
    #[arg(long = "cgroup", id = "cgroups", value_name = "PATH")]
    pub cgroups: Vec<PathBuf>,
    /// Time between two samples
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    pub every: Duration,
    /// Total time to measure
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub total: Duration,
    /// Compare with samples saved by an earlier run
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Save the samples to a file, for --baseline
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// The output format; JSON has all samples.
    #[command(flatten)]
    pub output: OutputArgs,
}
