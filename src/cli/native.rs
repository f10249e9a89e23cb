//! kstatd's own commands, parsed by clap. The personalities are listed only for help and
//! completions; their arguments have parsers of their own.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use super::asking::{BundleArgs, ExplainArgs, StatusArgs, TopArgs};
use super::check::ClusterCheckArgs;
use super::clap_table::Table;
use super::flag_selection::{RbacKube, RenderKube, RenderStatsd, RunKube, RunStatsd};
use super::node::NodeArgs;
use super::shadow::ShadowArgs;
pub use super::shared::{AccessArgs, LogArgs, LogLevel, OutputArgs, Profiles};
use super::shared::{duration, is_name, whole};
use super::usage_error::UsageError;
use crate::pods::Selection;

/// The command line of kstatd.
#[derive(Parser)]
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

/// The commands of kstatd.
#[derive(Subcommand)]
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
#[derive(Args)]
pub struct OriginalArgs {
    /// Flags of the original; see --help of this command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub args: Vec<String>,
}

/// Flags of `kstatd run`.
#[derive(Clone, Default, Args)]
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
#[derive(Clone, Args)]
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
fn rate(text: &str) -> Result<f64, UsageError> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1e7).contains(&rate) => Ok(rate),
        Ok(_) => Err("must be from 0 to 10000000".into()),
        Err(error) => Err(error.to_string().into()),
    }
}

/// The input formats of `kstatd render`.
#[derive(Subcommand)]
pub enum RenderCommand {
    /// Kubernetes manifests: print the metrics of a cluster with exactly these objects
    Kube(Box<RenderKubeArgs>),
    /// StatsD lines on standard input: print the metrics after the last line
    Statsd(Box<RenderStatsdArgs>),
}

/// Flags of `kstatd render kube`.
#[derive(Clone, Args)]
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
#[derive(Clone, Args)]
pub struct RenderStatsdArgs {
    /// Print OpenMetrics instead of the text format
    #[arg(long)]
    pub openmetrics: bool,
    /// Parsing flags of statsd_exporter.
    #[command(flatten)]
    pub statsd: Table<RenderStatsd>,
}

/// The actions of `kstatd cardinality`.
#[derive(Subcommand)]
pub enum CardinalityCommand {
    /// Suggest mapping rules against high-cardinality labels and names, with the series each saves;
    /// changes nothing
    Suggest(Box<SuggestArgs>),
}

/// Flags of `kstatd cardinality suggest`.
#[derive(Clone, Args)]
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
#[derive(Clone, Args)]
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
#[derive(Subcommand)]
pub enum CustomCommand {
    /// Draft a configuration from custom resource definitions, with a comment on the source of each
    /// metric
    Draft(DraftArgs),
}

/// Flags of `kstatd custom draft`.
#[derive(Clone, Args)]
pub struct DraftArgs {
    /// File with custom resource definitions, YAML or JSON, with any number of documents; - for
    /// standard input
    #[arg(value_name = "CRD", default_value = "-")]
    pub files: Vec<PathBuf>,
}

/// Flags of `kstatd rbac`.
#[derive(Clone, Args)]
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
    /// Labels of StatsD senders, for which `run` watches pods and their owners
    #[arg(long = "statsd.enrich", value_name = "LABELS", value_parser = Selection::parse)]
    pub enrich: Option<Selection>,
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
fn role_name(text: &str) -> Result<String, UsageError> {
    if is_name(text) { Ok(text.to_owned()) } else { Err("must be a name, such as kstatd".into()) }
}

/// Parses the namespace and the name of a service account.
fn service_account(text: &str) -> Result<ServiceAccount, UsageError> {
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("must be NAMESPACE/NAME, such as monitoring/kstatd".into()),
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
    /// Sample repeatedly for this long, and on until the result is certain, and report all
    /// differences; waits while a side is unavailable
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

/// Flags of `kstatd overhead`.
#[derive(Clone, Args)]
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

/// The actions of `kstatd profile`.
#[derive(Subcommand)]
pub enum ProfileCommand {
    /// Draw the change between two saved profiles as a differential flame graph
    Diff(ProfileDiffArgs),
}

/// Flags of `kstatd profile diff`.
#[derive(Clone, Args)]
#[command(
    long_about = "Draw the change between two saved profiles as a differential flame graph (SVG).\n\n\
        Both files are in pprof format, such as those of /debug/pprof/profile and /debug/pprof/heap. The width of a \
        frame is its value in the second profile. The own value of red frames grew and that of blue frames shrank, \
        without the functions they call. Stacks that only the first profile has are not drawn; swap the files to see them. CPU time \
        is scaled to the same duration."
)]
pub struct ProfileDiffArgs {
    /// Base profile
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// Profile to compare with the base
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,
    /// Write the SVG to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Scale the base to the same total, to compare shares under different load
    #[arg(long)]
    pub normalize: bool,
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
            _ => panic!("another command"),
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
        let error =
            Cli::try_parse_from(["kstatd", "--shard=x"]).err().expect("invalid").to_string();
        assert!(error.contains("--shard") && error.contains("strconv.ParseInt"), "{error}");
    }
}
