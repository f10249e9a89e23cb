//! kstatd's own commands, parsed by clap. The personalities are listed only for help and
//! completions; their arguments have parsers of their own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::bundle::BundleArgs;
use super::check::ClusterCheckArgs;
use super::clap_table::{FlagSelection, Table};
use super::flag::Flag;
use super::kube_args::SHARED_LIMITS;
use super::kube_flags::{self, KubeArgs};
use super::node::NodeArgs;
use super::overhead::OverheadArgs;
use super::process::ProcessArgs;
use super::profile::ProfileCommand;
use super::shadow::ShadowArgs;
pub use super::shared::{AccessArgs, LogArgs, LogLevel, LogStyle, OutputArgs, Profiles};
use super::shared::{duration, is_name, whole};
use super::statsd_flags::{self, StatsdArgs};

/// The command line of kstatd.
#[derive(Debug, Parser)]
#[command(
    name = "kstatd",
    version,
    about = "Kubernetes object state and StatsD as Prometheus metrics, from one process",
    long_about = "Kubernetes object state and StatsD as Prometheus metrics, from one process.\n\n\
        Without a command it runs both sides: the Kubernetes side when it finds an API server \
        (--kubeconfig, --apiserver, KUBECONFIG or the service account of its pod), the StatsD side \
        on UDP and TCP port 9125. Started under the name kube-state-metrics or statsd_exporter (a \
        link, or the command of that name) it takes that program's flags, ports and paths.",
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The command; `run` if absent.
    #[command(subcommand)]
    pub command: Option<CliCommand>,
    /// Flags of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The command line under the name kubectl-kstatd, a plugin of kubectl.
#[derive(Debug, Parser)]
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
#[derive(Debug, Subcommand)]
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

/// The commands of kstatd.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Serve the metrics of both sides (the default)
    Run(Box<RunArgs>),
    /// Run as a drop-in replacement for kube-state-metrics, with its flags
    #[command(name = "kube-state-metrics", disable_help_flag = true)]
    KubeStateMetrics(OriginalArgs),
    /// Run as a drop-in replacement for statsd_exporter, with its flags
    #[command(name = "statsd_exporter", disable_help_flag = true)]
    StatsdExporter(OriginalArgs),
    /// Try kstatd without a cluster: a simulated API server and StatsD clients feed the real
    /// pipelines
    Demo(DemoArgs),
    /// Render metrics from files, offline
    Render {
        /// The input format.
        #[command(subcommand)]
        what: RenderCommand,
    },
    /// Show the health of a running process; exits with 0 if OK or WARN, 1 if DEGRADED, 2 if there
    /// is no answer
    Status(StatusArgs),
    /// Show the metrics and labels with the most series of a running process; exit codes as for
    /// `status`
    Top(Box<TopArgs>),
    /// Write a support archive of a running process, without secrets
    Bundle(Box<BundleArgs>),
    /// Explain how a StatsD line is parsed, which mapping rules are tried, and which series result; or
    /// why an object has its series
    Explain(Box<ExplainArgs>),
    /// Find mapping rules that reduce cardinality
    Cardinality {
        /// The action.
        #[command(subcommand)]
        what: CardinalityCommand,
    },
    /// Check what a swap of the originals would change, or the health of an installation
    Check(Box<ClusterCheckArgs>),
    /// Validate configuration files and print every problem
    CheckConfig(CheckArgs),
    /// Configure the metrics of custom resources
    Custom {
        /// The action.
        #[command(subcommand)]
        what: CustomCommand,
    },
    /// Serve the disk usage of this node's pods and the resource usage of its system processes
    Node(Box<NodeArgs>),
    /// Measure the resource usage of processes, optionally compared to a baseline
    Overhead(OverheadArgs),
    /// Compare saved profiles
    Profile {
        /// The action.
        #[command(subcommand)]
        what: ProfileCommand,
    },
    /// Print the RBAC manifests that these flags need
    Rbac(Box<RbacArgs>),
    /// Compare two expositions, such as an original's and kstatd's
    Diff(Box<DiffArgs>),
    /// Run kstatd next to a running original: differences and costs
    Shadow(Box<ShadowArgs>),
    /// Print the version
    Version(OutputArgs),
    /// Generate a completion script
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Print a manual page, or write all of them to a folder
    Man {
        /// The command to document; kstatd itself if absent
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
        /// Write the pages of all commands to this folder instead
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        out: Option<PathBuf>,
    },
}

/// Arguments for another parser.
#[derive(Debug, Args)]
pub struct OriginalArgs {
    /// Flags of the original; see --help of this command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub args: Vec<String>,
}

/// Shells with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// Flags of `kstatd run`.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Address for /metrics and the health endpoints; an empty host means all addresses
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8080")]
    pub listen: String,
    /// Address for the metrics and profiles of this process
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8081")]
    pub telemetry_listen: String,
    /// Clients that may fetch profiles, in addition to clients authorised by --auth-filter or the web
    /// configuration
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    pub profiles: Profiles,
    /// Log flags.
    #[command(flatten)]
    pub log: LogArgs,
    /// Flags of kube-state-metrics.
    #[command(flatten)]
    pub kube: Table<RunKube>,
    /// Flags of statsd_exporter.
    #[command(flatten)]
    pub statsd: Table<RunStatsd>,
}

/// Flags of `kstatd demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Number of pods in the simulated cluster
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub pods: u32,
    /// Object changes per second
    #[arg(long, value_name = "EVENTS_PER_S", default_value_t = 20.0, value_parser = rate)]
    pub churn: f64,
    /// StatsD lines sent per second
    #[arg(long, value_name = "LINES_PER_S", default_value_t = 1000.0, value_parser = rate)]
    pub statsd_rate: f64,
    /// Address for /metrics and the status page; an empty host means all addresses
    #[arg(long, value_name = "HOST:PORT", default_value = ":8080")]
    pub listen: String,
    /// Address for the metrics and profiles of this process
    #[arg(long, value_name = "HOST:PORT", default_value = ":8081")]
    pub telemetry_listen: String,
    /// Address for StatsD over UDP and TCP
    #[arg(long, value_name = "HOST:PORT", default_value = ":9125")]
    pub statsd_listen: String,
    /// Minimum log level
    #[arg(long, value_enum, default_value_t = LogLevel::Warn)]
    pub log_level: LogLevel,
}

/// Parses a rate per second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1e7).contains(&rate) => Ok(rate),
        Ok(_) => Err("must be from 0 to 10000000".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The input formats of `kstatd render`.
#[derive(Debug, Subcommand)]
pub enum RenderCommand {
    /// Kubernetes manifests: print the metrics of a cluster with exactly these objects
    Kube(Box<RenderKubeArgs>),
    /// StatsD lines on standard input: print the metrics after the last line
    Statsd(Box<RenderStatsdArgs>),
}

/// Flags of `kstatd render kube`.
#[derive(Clone, Debug, Args)]
pub struct RenderKubeArgs {
    /// Manifest file, YAML or JSON, with any number of documents and List kinds; - for standard
    /// input
    #[arg(short = 'f', long = "filename", value_name = "FILE", default_value = "-")]
    pub files: Vec<PathBuf>,
    /// Print OpenMetrics instead of the text format
    #[arg(long)]
    pub openmetrics: bool,
    /// Filters of kube-state-metrics.
    #[command(flatten)]
    pub kube: Table<RenderKube>,
}

/// Flags of `kstatd render statsd`.
#[derive(Clone, Debug, Args)]
pub struct RenderStatsdArgs {
    /// Print OpenMetrics instead of the text format
    #[arg(long)]
    pub openmetrics: bool,
    /// Parsing flags of statsd_exporter.
    #[command(flatten)]
    pub statsd: Table<RenderStatsd>,
}

/// Flags of `kstatd status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// The output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The process whose status is shown.
    #[command(flatten)]
    pub process: ProcessArgs,
}

/// Flags of `kstatd top`.
#[derive(Clone, Debug, Args)]
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
    #[arg(long, value_name = "N", value_parser = rows)]
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

/// Parses a number of rows.
fn rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rows @ 1..=10_000) => Ok(rows),
        _ => Err("must be from 1 to 10000".to_owned()),
    }
}

/// Flags that control local parsing; they conflict with asking a running process, which uses its own.
const LOCAL_PARSING_FLAGS: [&str; 6] = [
    "statsd.mapping-config",
    "statsd.parse-dogstatsd-tags",
    "statsd.parse-influxdb-tags",
    "statsd.parse-librato-tags",
    "statsd.parse-signalfx-tags",
    "statsd.sets",
];

/// The other subjects of `kstatd explain`.
#[derive(Clone, Debug, Subcommand)]
pub enum ExplainCommand {
    /// Ask a running process why an object has its series, or none; exits with 1 if it has none
    Object(ObjectArgs),
}

/// Flags of `kstatd explain object`.
#[derive(Clone, Debug, Args)]
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
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    mut_arg("addr", |arg| arg.conflicts_with_all(LOCAL_PARSING_FLAGS).help("Ask the process at this address, which uses its own mapping, flags, series and budgets")),
    mut_arg("target", |arg| arg.conflicts_with_all(LOCAL_PARSING_FLAGS)),
    mut_arg("namespace", |arg| arg.conflicts_with_all(LOCAL_PARSING_FLAGS))
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

/// The actions of `kstatd cardinality`.
#[derive(Debug, Subcommand)]
pub enum CardinalityCommand {
    /// Suggest mapping rules against high-cardinality labels and names, with the series each saves;
    /// changes nothing
    Suggest(Box<SuggestArgs>),
}

/// Flags of `kstatd cardinality suggest`.
#[derive(Clone, Debug, Args)]
pub struct SuggestArgs {
    /// File of captured StatsD lines; - for standard input
    #[arg(value_name = "FILE", default_value = "-", conflicts_with = "addr")]
    pub file: PathBuf,
    /// Analyse the series of this running process instead (statsd_exporter or kstatd); prefix with
    /// https:// for TLS
    #[arg(long, value_name = "HOST:PORT|URL")]
    pub addr: Option<String>,
    /// Try the rules of this file instead of suggesting any: print series before and after, by
    /// metric
    #[arg(long, value_name = "RULES")]
    pub dry_run: Option<PathBuf>,
    /// Ignore labels with fewer than this many distinct values, and groups of fewer similar names
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    pub min_values: u32,
    /// Access flags.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Parsing flags of statsd_exporter.
    #[command(flatten)]
    pub statsd: Table<RenderStatsd>,
}

/// Flags of `kstatd check-config`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Files whose kind is recognized by their keys
    #[arg(value_name = "FILE")]
    pub any: Vec<PathBuf>,
    /// Mapping file of the StatsD side
    #[arg(long = "statsd.mapping-config", value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Options file of the Kubernetes side
    #[arg(long = "config", value_name = "FILE")]
    pub options: Option<PathBuf>,
    /// Custom resource metrics configuration
    #[arg(long = "custom-resource-state-config-file", value_name = "FILE")]
    pub custom: Option<PathBuf>,
    /// Web configuration: TLS, users, headers and rate limits
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web: Option<PathBuf>,
    /// File with custom resource definitions to check the paths against
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The output format of the reports.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The actions of `kstatd custom`.
#[derive(Debug, Subcommand)]
pub enum CustomCommand {
    /// Draft a configuration from custom resource definitions, with a comment on the source of each
    /// metric
    Draft(DraftArgs),
}

/// Flags of `kstatd custom draft`.
#[derive(Clone, Debug, Args)]
pub struct DraftArgs {
    /// File with custom resource definitions, YAML or JSON, with any number of documents; - for
    /// standard input
    #[arg(value_name = "CRD", default_value = "-")]
    pub files: Vec<PathBuf>,
}

/// Flags of `kstatd rbac`.
#[derive(Clone, Debug, Args)]
pub struct RbacArgs {
    /// File with custom resource definitions, which provide the plural resource names
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Service account to bind the roles to
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "kstatd/kstatd", value_parser = service_account)]
    pub service_account: ServiceAccount,
    /// The name of the roles and of their bindings
    #[arg(long, value_name = "NAME", default_value = "kstatd", value_parser = role_name)]
    pub name: String,
    /// Flags of kube-state-metrics.
    #[command(flatten)]
    pub kube: Table<RbacKube>,
}

/// A service account of the cluster.
#[derive(Clone, Debug)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Parses the name of a role.
fn role_name(text: &str) -> Result<String, String> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("must be a name, such as kstatd".to_owned())
    }
}

/// Parses the namespace and the name of a service account.
fn service_account(text: &str) -> Result<ServiceAccount, String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("must be NAMESPACE/NAME, such as monitoring/kstatd".to_owned()),
    }
}

/// Flags of `kstatd diff`.
#[derive(Clone, Args)]
#[command(
    long_about = "Compare two expositions: an original's with kstatd's, or any others.\n\n\
        Each side is read twice, and a third time if they seem to differ. The report lists, by family, series that only one side has and differences in values, types, HELP and labels. A changing value may differ by as much as it changed between reads; counters must increase alike. Differences explained in docs/compatibility.md are listed separately and do not count.",
    after_help = "Exit codes: 0 if equal, 1 if different, 2 if the comparison failed."
)]
pub struct DiffArgs {
    /// Baseline: a URL (with /metrics as the default path), a file (may be gzip-compressed), or -
    /// for standard input
    #[arg(value_name = "A")]
    pub a: String,
    /// Candidate to compare with the baseline
    #[arg(value_name = "B")]
    pub b: String,
    /// Sample repeatedly for this long and report all differences; waits while a side is
    /// unavailable
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub watch: Option<Duration>,
    /// Time between two samples [default: 1s, with --watch 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub interval: Option<Duration>,
    /// Timeout of a request
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    pub timeout: Duration,
    /// Ignore families whose entire name matches this regular expression; repeatable
    #[arg(long, value_name = "PATTERN", value_parser = whole)]
    pub ignore: Vec<regex::Regex>,
    /// Compare only the increases of counters, with a tolerance of 10%, for sides that were started at
    /// different times
    #[arg(long)]
    pub increases: bool,
    /// Fail on explained differences too
    #[arg(long)]
    pub strict: bool,
    /// List all families with explained differences, with their numbers of series
    #[arg(long, conflicts_with_all = ["strict", "json"])]
    pub explain_all: bool,
    /// Request OpenMetrics from servers instead of the text format
    #[arg(long)]
    pub openmetrics: bool,
    /// The output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Maximum example series per difference
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub examples: usize,
    /// Access flags.
    #[command(flatten)]
    pub access: AccessArgs,
}

impl std::fmt::Debug for DiffArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URLs may contain passwords.
        f.debug_struct("DiffArgs").finish_non_exhaustive()
    }
}

/// The Kubernetes flags of `run`: all except addresses and the log, which are shared.
#[derive(Debug)]
pub struct RunKube;

impl FlagSelection for RunKube {
    type Args = KubeArgs;
    const HEADING: &'static str = "Kubernetes (as kube-state-metrics)";
    const NEGATIONS: bool = false;

    fn flags() -> Vec<Flag<KubeArgs>> {
        let shared = ["host", "port", "telemetry-host", "telemetry-port", "help"];
        let shared = |name: &str| shared.contains(&name) || SHARED_LIMITS.contains(&name);
        select(kube_flags::FLAGS, |name| !shared(name))
    }
}

/// The Kubernetes flags of `rbac`: it accepts those of `run`, and its help lists those that affect the roles.
#[derive(Debug)]
pub struct RbacKube;

impl FlagSelection for RbacKube {
    type Args = KubeArgs;
    const HEADING: &'static str = RunKube::HEADING;
    const NEGATIONS: bool = RunKube::NEGATIONS;

    fn flags() -> Vec<Flag<KubeArgs>> {
        RunKube::flags()
    }

    fn is_hidden(name: &str) -> bool {
        ![
            "auth-filter",
            "config",
            "custom-resource-state-config",
            "custom-resource-state-config-file",
            "custom-resource-state-only",
            "namespaces",
            "pod",
            "pod-namespace",
            "resources",
        ]
        .contains(&name)
    }
}

/// The Kubernetes flags that affect rendering.
#[derive(Debug)]
pub struct RenderKube;

impl FlagSelection for RenderKube {
    type Args = KubeArgs;
    const HEADING: &'static str = "Filters (as kube-state-metrics)";
    const NEGATIONS: bool = false;

    fn flags() -> Vec<Flag<KubeArgs>> {
        let filters = [
            "config",
            "resources",
            "namespaces",
            "namespaces-denylist",
            "metric-allowlist",
            "metric-denylist",
            "metric-opt-in-list",
            "metric-labels-allowlist",
            "metric-annotations-allowlist",
            "metric-labels-normalise",
            "custom-resource-state-config",
            "custom-resource-state-config-file",
            "custom-resource-state-only",
            "compat.duplicate-series",
        ];
        select(kube_flags::FLAGS, |name| filters.contains(&name))
    }
}

/// The StatsD flags of `run`: all except web addresses and the log, which are shared.
#[derive(Debug)]
pub struct RunStatsd;

impl FlagSelection for RunStatsd {
    type Args = StatsdArgs;
    const HEADING: &'static str = "StatsD (as statsd_exporter)";
    const NEGATIONS: bool = true;

    fn flags() -> Vec<Flag<StatsdArgs>> {
        select(statsd_flags::FLAGS, |name| {
            let prefixes = ["statsd.", "debug.", "limit.", "openmetrics."];
            prefixes.iter().any(|prefix| name.starts_with(prefix))
                || ["web.config.file", "web.enable-lifecycle"].contains(&name)
        })
    }
}

/// The StatsD flags that affect parsing.
#[derive(Debug)]
pub struct RenderStatsd;

impl FlagSelection for RenderStatsd {
    type Args = StatsdArgs;
    const HEADING: &'static str = "Parsing (as statsd_exporter)";
    const NEGATIONS: bool = true;

    fn flags() -> Vec<Flag<StatsdArgs>> {
        select(statsd_flags::FLAGS, |name| {
            name.starts_with("statsd.parse-")
                || ["statsd.mapping-config", "statsd.sets"].contains(&name)
        })
    }
}

fn select<A>(flags: &[Flag<A>], keep: impl Fn(&str) -> bool) -> Vec<Flag<A>> {
    flags.iter().filter(|flag| keep(flag.name)).map(Flag::copy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(argv: &[&str]) -> RunArgs {
        let cli = Cli::try_parse_from([&["kstatd"], argv].concat()).expect("valid");
        match cli.command {
            Some(CliCommand::Run(run)) => *run,
            None => cli.run,
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_takes_the_flags_of_both_originals() {
        for prefix in [&[][..], &["run"]] {
            let argv = [
                prefix,
                &["--listen=:1", "--resources", "pods,nodes", "--resources=jobs"],
                &["--enable-gzip-encoding", "--use-apiserver-cache=false"],
                &["--no-statsd.parse-librato-tags", "--statsd.listen-udp="],
            ]
            .concat();
            let args = run(&argv);
            assert_eq!(args.listen, ":1");
            assert_eq!(Vec::from_iter(args.kube.0.resources), ["jobs", "nodes", "pods"]);
            assert!(args.kube.0.enable_gzip_encoding && !args.kube.0.use_apiserver_cache);
            assert!(!args.statsd.0.parse_librato_tags && args.statsd.0.parse_signalfx_tags);
            assert_eq!(args.statsd.0.listen_udp, "");
        }
    }

    #[test]
    fn the_last_of_a_flag_and_its_negation_wins() {
        let name = "statsd.parse-librato-tags";
        let (on, off) = (format!("--{name}"), format!("--no-{name}"));
        assert!(run(&[&off, &on]).statsd.0.parse_librato_tags);
        assert!(!run(&[&on, &off]).statsd.0.parse_librato_tags);
    }

    #[test]
    fn flag_values_are_validated_by_the_table() {
        let error = Cli::try_parse_from(["kstatd", "--shard=x"]).expect_err("invalid").to_string();
        assert!(error.contains("--shard") && error.contains("strconv.ParseInt"), "{error}");
    }
}
