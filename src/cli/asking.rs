//! Arguments of the commands that ask a running process: `status`, `top`, `explain` and `bundle`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::clap_table::{FlagSelection, Table};
use super::flag_selection::RenderStatsd;
use super::process::ProcessArgs;
use super::shared::{OutputArgs, duration};

/// Flags of `kstatd status`.
#[derive(Clone, Args)]
pub struct StatusArgs {
    /// The output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The process whose status is shown.
    #[command(flatten)]
    pub process: ProcessArgs,
}

/// Flags of `kstatd top`.
#[derive(Clone, Args)]
pub struct TopArgs {
    /// Show the labels of this metric, with the number of values and examples
    #[arg(value_name = "METRIC")]
    pub metric: Option<String>,
    /// Sort order; lines sorts by events per mapping rule and per unmapped name
    #[arg(long, value_enum, default_value_t)]
    pub sort: TopSort,
    /// The output format; JSON is printed once.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Print once and exit; the default if the output is not a terminal
    #[arg(long)]
    pub once: bool,
    /// Time between updates
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub interval: Duration,
    /// Maximum rows of the table [default: the height of the terminal, else 20]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub rows: Option<usize>,
    /// The process whose series are counted.
    #[command(flatten)]
    pub process: ProcessArgs,
}

/// The sort order of `kstatd top`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopSort {
    /// Number of series.
    #[default]
    Series,
    /// Series created in the last hour.
    Growth,
    /// Memory.
    Bytes,
    /// Events per mapping rule and per unmapped name.
    Lines,
}

/// Returns the flags that control local parsing; they conflict with asking a running process, which uses its own.
fn local_parsing_flags() -> impl Iterator<Item = &'static str> {
    RenderStatsd::flags().into_iter().map(|flag| flag.name)
}

/// The other subjects of `kstatd explain`.
#[derive(Clone, Subcommand)]
pub enum ExplainCommand {
    /// Ask a running process why an object has its series, or none; exits with 1 if it has none
    Object(ObjectArgs),
}

/// Flags of `kstatd explain object`.
#[derive(Clone, Args)]
pub struct ObjectArgs {
    /// Plural name of the resource, such as pods
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// The object
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub object: String,
    /// The output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The process that watches the object.
    #[command(flatten)]
    pub process: ProcessArgs,
}

/// Flags of `kstatd explain`.
#[derive(Clone, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    mut_arg("addr", |arg| arg.conflicts_with_all(local_parsing_flags()).help("Ask the process at this address, which uses its own mapping, flags, series and budgets")),
    mut_arg("target", |arg| arg.conflicts_with_all(local_parsing_flags())),
    mut_arg("namespace", |arg| arg.conflicts_with_all(local_parsing_flags()))
)]
pub struct ExplainArgs {
    /// Another subject than a line.
    #[command(subcommand)]
    pub what: Option<ExplainCommand>,
    /// StatsD lines, each explained separately
    #[arg(value_name = "LINE", required = true)]
    pub lines: Vec<OsString>,
    /// List every rule of a long mapping file, not only those that match or nearly match
    #[arg(long)]
    pub all: bool,
    /// The address that the lines come from, for a process with --statsd.enrich
    #[arg(long, value_name = "IP")]
    pub sender: Option<std::net::IpAddr>,
    /// The output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The process to ask, which uses its own mapping, flags, series and budgets.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Parsing flags of statsd_exporter.
    #[command(flatten)]
    pub statsd: Table<RenderStatsd>,
}

/// Flags of `kstatd bundle`.
#[derive(Clone, Args)]
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
