//! Flags of `kstatd overhead`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::shared::duration;

/// Flags of `kstatd overhead`.
#[derive(Clone, Debug, Args)]
#[command(
    long_about = "Measure what processes cost this host, from procfs and cgroup v2 alone.\n\n\
        To compare two runs: the first with --save FILE, the second with --baseline FILE. The rank test of Mann and \
        Whitney tells how likely a difference comes by chance; see docs/node.md for what it cannot tell."
)]
pub struct OverheadArgs {
    /// A process; repeatable
    #[arg(long = "pid", value_name = "N", required_unless_present_any = ["comms", "cgroups"])]
    pub pids: Vec<u32>,
    /// All processes of this name, as `ps -o comm` shows it; repeatable
    #[arg(long = "comm", id = "comms", value_name = "NAME")]
    pub comms: Vec<String>,
    /// All processes of a cgroup: its folder, or the path below /sys/fs/cgroup; repeatable
    #[arg(long = "cgroup", id = "cgroups", value_name = "PATH")]
    pub cgroups: Vec<PathBuf>,
    /// Time between two samples
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    pub every: Duration,
    /// Time for all of them
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub total: Duration,
    /// Hold them against samples from before
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Write them to a file, for --baseline
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Print all samples as JSON instead of the table
    #[arg(long, conflicts_with = "baseline")]
    pub json: bool,
}
