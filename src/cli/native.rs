//! kstatd's own commands, by clap. The personalities appear here only so that help and completions
//! list them; their arguments have grammars of their own and never reach this parser.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::clap_table::{Choice, Table};
use super::flag::Flag;
use super::kube_args::SHARED_LIMITS;
use super::kube_flags::{self, KubeArgs};
use super::node::NodeArgs;
use super::overhead::OverheadArgs;
use super::shared::duration;
pub use super::shared::{AccessArgs, LogArgs, LogLevel, LogStyle, Profiles};
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
    /// What to do; `run` when absent.
    #[command(subcommand)]
    pub command: Option<CliCommand>,
    /// Flags of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What kstatd can do.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Serve metrics of both sides (the default)
    Run(Box<RunArgs>),
    /// Stand in for kube-state-metrics, with its flags
    #[command(name = "kube-state-metrics", disable_help_flag = true)]
    KubeStateMetrics(Foreign),
    /// Stand in for statsd_exporter, with its flags
    #[command(name = "statsd_exporter", disable_help_flag = true)]
    StatsdExporter(Foreign),
    /// Try it without a cluster: a simulated API server, StatsD clients and the ordinary pipelines
    Demo(DemoArgs),
    /// Print the metrics of files, offline
    Render {
        /// What to render.
        #[command(subcommand)]
        what: RenderCommand,
    },
    /// Ask a running process how it is doing; exit code 0 is OK, 1 degraded, 2 no answer
    Status(StatusArgs),
    /// Watch which metrics and labels bring the series of a running process; exit codes as those of `status`
    Top(Box<TopArgs>),
    /// Tell how a StatsD line is read, which rules were tried, and the series that it leads to
    Explain(Box<ExplainArgs>),
    /// Find rules against labels and names that explode
    Cardinality {
        /// What to do about them.
        #[command(subcommand)]
        what: CardinalityCommand,
    },
    /// Check configuration files and print every problem
    CheckConfig(CheckArgs),
    /// Serve what the pods of this node hold on its disks
    Node(Box<NodeArgs>),
    /// Measure what processes cost this host, and whether it is more than before
    Overhead(OverheadArgs),
    /// Print the roles that these flags need
    Rbac(Box<RbacArgs>),
    /// Compare two expositions: an original's with kstatd's, or any others
    Diff(Box<DiffArgs>),
    /// Print the version
    Version,
    /// Print a completion script
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Print a manual page, or write all of them
    Man {
        /// The command that the page is about; kstatd itself without one
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
        /// A folder to write the pages of all commands to instead
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        out: Option<PathBuf>,
    },
}

/// Arguments that another grammar reads.
#[derive(Debug, Args)]
pub struct Foreign {
    /// Its flags; see --help of the command.
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
    /// Address for /metrics and the health paths; an empty or unspecified host is every address
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8080")]
    pub listen: String,
    /// Address for the metrics of this process and its profiles
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8081")]
    pub telemetry_listen: String,
    /// Who gets profiles of this process, besides those whom --auth-filter or users of a web configuration let in
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    pub profiles: Profiles,
    /// The log.
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
    /// Pods of the simulated cluster
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub pods: u32,
    /// Changes of objects a second
    #[arg(long, value_name = "EVENTS_PER_S", default_value_t = 20.0, value_parser = rate)]
    pub churn: f64,
    /// StatsD lines sent a second
    #[arg(long, value_name = "LINES_PER_S", default_value_t = 1000.0, value_parser = rate)]
    pub statsd_rate: f64,
    /// Address for /metrics
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Address for the metrics of this process and its profiles
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    pub telemetry_listen: String,
    /// Address for StatsD over UDP and TCP
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9125")]
    pub statsd_listen: String,
    /// Least severity that is logged
    #[arg(long, value_enum, default_value_t = LogLevel::Warn)]
    pub log_level: LogLevel,
}

/// A number of things a second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1e7).contains(&rate) => Ok(rate),
        Ok(_) => Err("must be from 0 to 10000000".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What can be rendered.
#[derive(Debug, Subcommand)]
pub enum RenderCommand {
    /// Kubernetes manifests: the metrics of a cluster that has exactly these objects
    Kube(Box<RenderKubeArgs>),
    /// StatsD lines on standard input: the metrics after all of them
    Statsd(Box<RenderStatsdArgs>),
}

/// Flags of `kstatd render kube`.
#[derive(Clone, Debug, Args)]
pub struct RenderKubeArgs {
    /// A file of manifests, YAML or JSON, several documents and List kinds allowed; - is standard input
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
    /// Where a listener of the process is; with https:// if it speaks TLS
    #[arg(long, value_name = "HOST:PORT|URL", default_value = "localhost:8080")]
    pub addr: String,
    /// How it is reached.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Flags of `kstatd top`.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// A metric whose labels are shown, with how many values each has and examples
    #[arg(value_name = "METRIC")]
    pub metric: Option<String>,
    /// Where the main listener of the process is; with https:// if it speaks TLS
    #[arg(long, value_name = "HOST:PORT|URL", default_value = "localhost:8080")]
    pub addr: String,
    /// What puts a metric before others; lines are those of mapping rules, and of names that none takes
    #[arg(long, value_enum, default_value_t)]
    pub sort: TopSort,
    /// Print one JSON object and end
    #[arg(long)]
    pub json: bool,
    /// Print one screen and end, as where the output is no terminal
    #[arg(long)]
    pub once: bool,
    /// Time between two screens
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub interval: Duration,
    /// Rows of the table [default: what fits, 20 without a terminal]
    #[arg(long, value_name = "N", value_parser = rows)]
    pub rows: Option<usize>,
    /// How it is reached.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// What puts a metric before others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopSort {
    /// Its series.
    #[default]
    Series,
    /// Series made in the last hour.
    Growth,
    /// Memory.
    Bytes,
    /// Events of rules and unmapped names.
    Lines,
}

/// A number of rows.
fn rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rows @ 1..=10_000) => Ok(rows),
        _ => Err("must be from 1 to 10000".to_owned()),
    }
}

/// Flags that say how a line is read here, which a process that is asked knows by itself.
const READS_HERE: [&str; 6] = [
    "statsd.mapping-config",
    "statsd.parse-dogstatsd-tags",
    "statsd.parse-influxdb-tags",
    "statsd.parse-librato-tags",
    "statsd.parse-signalfx-tags",
    "statsd.sets",
];

/// Flags of `kstatd explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// A line as a client sends it, each explained by itself
    #[arg(value_name = "LINE", required = true)]
    pub lines: Vec<OsString>,
    /// Show every rule of a long mapping file, not only those that match or come near
    #[arg(long)]
    pub all: bool,
    /// Ask the process at this address instead: under its own mapping and flags, among its series and budgets
    #[arg(long, value_name = "HOST:PORT|URL", conflicts_with_all = READS_HERE)]
    pub addr: Option<String>,
    /// How it is reached.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Parsing flags of statsd_exporter.
    #[command(flatten)]
    pub statsd: Table<RenderStatsd>,
}

/// What can be done about labels that explode.
#[derive(Debug, Subcommand)]
pub enum CardinalityCommand {
    /// Print rules for the mapping file against labels and names that explode, with what each saves; changes nothing
    Suggest(Box<SuggestArgs>),
}

/// Flags of `kstatd cardinality suggest`.
#[derive(Clone, Debug, Args)]
pub struct SuggestArgs {
    /// Captured StatsD lines; - is standard input
    #[arg(value_name = "FILE", default_value = "-", conflicts_with = "addr")]
    pub file: PathBuf,
    /// A process to ask for its series instead, statsd_exporter or kstatd; with https:// if it speaks TLS
    #[arg(long, value_name = "HOST:PORT|URL")]
    pub addr: Option<String>,
    /// Print no rules, but what those of this file would make: series before and after, by metric
    #[arg(long, value_name = "RULES")]
    pub dry_run: Option<PathBuf>,
    /// Leave labels with fewer values alone, and names of which fewer are alike
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    pub min_values: u32,
    /// How the process is reached.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Parsing flags of statsd_exporter.
    #[command(flatten)]
    pub statsd: Table<RenderStatsd>,
}

/// Flags of `kstatd check-config`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// The mapping file of the StatsD side
    #[arg(long = "statsd.mapping-config", value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// The options file of the Kubernetes side
    #[arg(long = "config", value_name = "FILE")]
    pub options: Option<PathBuf>,
    /// The configuration of custom resource metrics
    #[arg(long = "custom-resource-state-config-file", value_name = "FILE")]
    pub custom: Option<PathBuf>,
    /// A file with definitions of custom resources, whose schemas the paths are held against
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Flags of `kstatd rbac`.
#[derive(Clone, Debug, Args)]
pub struct RbacArgs {
    /// A file with definitions of custom resources, which tell how their resources are called
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Flags of kube-state-metrics.
    #[command(flatten)]
    pub kube: Table<RunKube>,
}

/// Flags of `kstatd diff`.
#[derive(Clone, Args)]
#[command(
    long_about = "Compare two expositions: an original's with kstatd's, or any others.\n\n\
        Both sides are read twice, and a third time where they seem to differ. Reported are series that one side alone \
        has, values, types, HELP and labels, by family. What moves may be apart by as much as it moved meanwhile; \
        counters have to grow alike. Differences that docs/compatibility.md has a reason for are listed with it and \
        do not count.",
    after_help = "Exit codes: 0 the same, 1 differences, 2 could not compare."
)]
pub struct DiffArgs {
    /// A URL (/metrics where it has no path), a file, compressed or not, or - for standard input
    #[arg(value_name = "A")]
    pub a: String,
    /// What is compared with it, such as kstatd beside the original
    #[arg(value_name = "B")]
    pub b: String,
    /// Go on for so long and report all that differed meanwhile; a side that is away is waited for
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub watch: Option<Duration>,
    /// Time between two samples [default: 1s, with --watch 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub interval: Option<Duration>,
    /// How long an answer may take
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    pub timeout: Duration,
    /// Leave out families of this name, a regular expression for the whole of it; repeatable
    #[arg(long, value_name = "PATTERN", value_parser = whole)]
    pub ignore: Vec<regex::Regex>,
    /// Compare counters by what they grow alone: the sides were started at different times
    #[arg(long)]
    pub increases: bool,
    /// How much of the larger one two increases may be apart
    #[arg(long, value_name = "FRACTION", value_parser = fraction, default_value = "0.1")]
    pub tolerance: f64,
    /// Let explained differences count too
    #[arg(long)]
    pub strict: bool,
    /// Ask servers for OpenMetrics instead of the text format
    #[arg(long)]
    pub openmetrics: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Series to show for each difference
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub examples: usize,
    /// How servers are reached.
    #[command(flatten)]
    pub access: AccessArgs,
}

impl std::fmt::Debug for DiffArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Passwords may stand in the URLs.
        f.debug_struct("DiffArgs").finish_non_exhaustive()
    }
}

/// A part of a whole.
fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

/// A pattern for all of a name.
fn whole(text: &str) -> Result<regex::Regex, String> {
    regex::Regex::new(&format!("^(?:{text})$")).map_err(|error| error.to_string())
}

/// The Kubernetes flags of `run`: all but addresses and the log, which are shared there.
#[derive(Debug)]
pub struct RunKube;

impl Choice for RunKube {
    type Args = KubeArgs;
    const HEADING: &'static str = "Kubernetes (as kube-state-metrics)";
    const NEGATIONS: bool = false;

    fn flags() -> Vec<Flag<KubeArgs>> {
        let shared = ["host", "port", "telemetry-host", "telemetry-port", "help"];
        let shared = |name: &str| shared.contains(&name) || SHARED_LIMITS.contains(&name);
        select(kube_flags::FLAGS, |name| !shared(name))
    }
}

/// The Kubernetes flags that decide what is rendered.
#[derive(Debug)]
pub struct RenderKube;

impl Choice for RenderKube {
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

/// The StatsD flags of `run`: all but the addresses of the web server and the log, which are shared there.
#[derive(Debug)]
pub struct RunStatsd;

impl Choice for RunStatsd {
    type Args = StatsdArgs;
    const HEADING: &'static str = "StatsD (as statsd_exporter)";
    const NEGATIONS: bool = true;

    fn flags() -> Vec<Flag<StatsdArgs>> {
        select(statsd_flags::FLAGS, |name| {
            let prefixes = ["statsd.", "debug.", "limit."];
            prefixes.iter().any(|prefix| name.starts_with(prefix)) || name == "web.config.file"
        })
    }
}

/// The StatsD flags that decide what a line means.
#[derive(Debug)]
pub struct RenderStatsd;

impl Choice for RenderStatsd {
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
    fn the_last_of_a_switch_and_its_negation_wins() {
        let name = "statsd.parse-librato-tags";
        let (on, off) = (format!("--{name}"), format!("--no-{name}"));
        assert!(run(&[&off, &on]).statsd.0.parse_librato_tags);
        assert!(!run(&[&on, &off]).statsd.0.parse_librato_tags);
    }

    #[test]
    fn values_are_checked_by_the_definition() {
        let error = Cli::try_parse_from(["kstatd", "--shard=x"]).expect_err("invalid").to_string();
        assert!(error.contains("--shard") && error.contains("strconv.ParseInt"), "{error}");
    }
}
