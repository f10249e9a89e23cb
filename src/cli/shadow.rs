//! Flags of `kstatd shadow`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::shared::{AccessArgs, duration, whole};

/// The output formats of `kstatd shadow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShadowOutput {
    /// A report for a terminal, with progress on standard error
    Text,
    /// One JSON object
    Json,
    /// A page in one file, with plots
    Html,
}

/// Flags of `kstatd shadow`.
#[derive(Clone, Args)]
#[command(
    long_about = "Run kstatd next to a running original and compare them: every difference between their metrics, and \
        what each of them costs.\n\n\
        kstatd is started in a process of its own, with the flags of the original given after --, and serves on \
        loopback only. Nothing in the cluster is changed. The command line of the original may be given with its \
        program name, which selects kube-state-metrics (the default) or statsd_exporter. A difference counts if two \
        consecutive comparisons have it and docs/compatibility.md does not explain it.",
    after_help = "Exit codes: 0 if equal, 1 if different, 2 if they could not be compared."
)]
pub struct ShadowArgs {
    /// The original: URL of its metrics (with /metrics as the default path), or NAMESPACE/POD or
    /// NAMESPACE/svc/SERVICE through the API server's proxy, which finds ports and paths by the flags
    /// of the original
    #[arg(long, value_name = "URL|NAMESPACE/NAME")]
    pub original: String,
    /// URL of the original's metrics about itself, for its costs; statsd_exporter has them at
    /// --original
    #[arg(long, value_name = "URL")]
    pub original_telemetry: Option<String>,
    /// Total time to compare
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "10m")]
    pub total: Duration,
    /// Time between two comparisons
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub every: Duration,
    /// Timeout of a request
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    pub timeout: Duration,
    /// Ignore families whose entire name matches this regular expression; repeatable
    #[arg(long, value_name = "PATTERN", value_parser = whole)]
    pub ignore: Vec<regex::Regex>,
    /// Kubeconfig instead of the original's --kubeconfig [default: outside of a cluster, the variable
    /// KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ShadowOutput::Text)]
    pub output: ShadowOutput,
    /// The same as -o json
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
    /// Access flags for the original.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Command line of the original, with or without its program name
    #[arg(last = true, value_name = "FLAGS")]
    pub command_line: Vec<String>,
}
