//! The facts: what is known of the process at one moment. As JSON they are `?format=json`.
//!
//! Times are Unix seconds, ages and durations seconds, sizes bytes. What is not known is absent (`null`).

use serde::Serialize;

use super::explanation::Explanation;
use super::history::Past;
use crate::telemetry::cardinality::Report;
use crate::telemetry::scrapes::Scrape;

/// How the process is doing as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// What is served is what there is.
    Ok,
    /// Something that is served is old, incomplete or not what the configuration says.
    Degraded,
}

impl State {
    /// As people see it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Degraded => "DEGRADED",
        }
    }
}

/// Everything.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) state: State,
    /// Why it is degraded, in sentences.
    pub(crate) reasons: Vec<String>,
    /// What somebody should look at though nothing is degraded.
    pub(crate) notes: Vec<String>,
    /// When this was so.
    pub(crate) at: f64,
    pub(crate) program: Program,
    pub(crate) kubernetes: Option<Kubernetes>,
    pub(crate) statsd: Option<Statsd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Node>,
    pub(crate) files: Vec<ConfigFile>,
    /// The last scrapes, the newest first.
    pub(crate) scrapes: Vec<Scrape>,
    /// The largest metrics with their labels, where all series were looked at.
    pub(crate) cardinality: Option<Report>,
    /// What would become of the line that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explanation: Option<Explanation>,
    pub(crate) history: Past,
}

/// The process.
#[derive(Debug, Serialize)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) started: f64,
    pub(crate) memory_bytes: Option<u64>,
    /// Of one core, over the last step of the history.
    pub(crate) cpu_percent: Option<f64>,
}

/// The Kubernetes side.
#[derive(Debug, Serialize)]
pub(crate) struct Kubernetes {
    /// The URL of the API server.
    pub(crate) server: String,
    /// Zero-based shard and shards in all, where there are several.
    pub(crate) shard: Option<(i64, i64)>,
    /// Whether each list/watch had a complete state once, or was refused one.
    pub(crate) ready: bool,
    /// Kinds for which the latest configuration is not in force yet.
    pub(crate) pending: Vec<String>,
    /// Namespaces that are to be followed and do not exist.
    pub(crate) missing_namespaces: Vec<String>,
    /// The worst first.
    pub(crate) kinds: Vec<Kind>,
}

impl Kubernetes {
    fn shown(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|kind| kind.shown)
    }

    /// Objects of all kinds.
    pub(crate) fn objects(&self) -> u64 {
        self.shown().map(|kind| kind.objects).sum()
    }

    /// Series of all kinds, if they are known.
    pub(crate) fn series(&self) -> Option<u64> {
        self.shown().map(|kind| kind.series).sum()
    }
}

/// How a list/watch is doing, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// The latest list or watch failed.
    Failing,
    /// Nothing was heard for longer than a watch lasts.
    Stale,
    /// There was no complete state yet.
    Starting,
    /// It follows.
    Ok,
}

impl Health {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Stale => "stale",
            Self::Starting => "starting",
            Self::Ok => "ok",
        }
    }
}

/// One list/watch: a kind, or the part of it in one namespace.
#[derive(Debug, Serialize)]
pub(crate) struct Kind {
    pub(crate) health: Health,
    /// Plural name.
    pub(crate) resource: String,
    /// The namespace, `None` for all.
    pub(crate) namespace: Option<String>,
    /// `listing`, `watching` or `waiting`.
    pub(crate) phase: &'static str,
    /// Whether it is shown; else it is listed aside to take the place of an older one.
    pub(crate) shown: bool,
    /// Whether its objects are shown no more, because the API server has refused them for long.
    pub(crate) given_up: bool,
    pub(crate) objects: u64,
    /// Objects of a new state that is on its way.
    pub(crate) coming: u64,
    pub(crate) series: Option<u64>,
    /// What it has in a scrape, before that is compressed.
    pub(crate) bytes: Option<u64>,
    /// Objects that have no series because of a budget.
    pub(crate) left_out: u64,
    /// When the state was last complete.
    pub(crate) listed: Option<f64>,
    /// When anything last came from the API server for it, a refusal included.
    pub(crate) heard: Option<f64>,
    /// Until when what is shown was kept up to date.
    pub(crate) current: Option<f64>,
    /// Of the whole kind.
    pub(crate) events_per_second: Option<f64>,
    /// Lists and watches that failed since the start.
    pub(crate) errors: u64,
    /// What fails now.
    pub(crate) failure: Option<Failure>,
    /// The rule that is missing in a role.
    pub(crate) missing_rule: Option<String>,
}

impl Kind {
    /// As sentences and tables call it.
    pub(crate) fn name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in {namespace}", self.resource),
            None => self.resource.clone(),
        }
    }
}

/// A failure that lasts.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    /// When it began.
    pub(crate) since: f64,
    /// A word of `kstatd_kubernetes_errors_total`, if it has one.
    pub(crate) reason: Option<&'static str>,
    /// Whether it is trouble of the whole server, as a rule.
    pub(crate) of_the_server: bool,
    /// What was said the last time.
    pub(crate) message: String,
}

/// What pods hold on the disks of this node.
#[derive(Debug, Serialize)]
pub(crate) struct Node {
    /// When the kubelet's summary was last complete; absent where it is not asked, or never was.
    pub(crate) summary: Option<f64>,
    /// What is wrong with it now.
    pub(crate) failure: Option<String>,
    pub(crate) pods: u64,
    /// What they hold together.
    pub(crate) used_bytes: f64,
    /// Those that are nearest to their limits, then the largest; not more than [`LARGEST`].
    pub(crate) fullest: Vec<Fullest>,
}

/// A pod by what it holds.
#[derive(Debug, Serialize)]
pub(crate) struct Fullest {
    /// Namespace and name.
    pub(crate) pod: String,
    pub(crate) used_bytes: f64,
    /// As a part of its limit, if it has one.
    pub(crate) limit_ratio: Option<f64>,
    /// Seconds until the limit is reached, if it grows.
    pub(crate) until_full: Option<f64>,
}

/// The StatsD side.
#[derive(Debug, Serialize)]
pub(crate) struct Statsd {
    pub(crate) series: u64,
    pub(crate) families: u64,
    pub(crate) lines: u64,
    pub(crate) listeners: Vec<Listener>,
    /// What the kernel gives to a socket at most (`net.core.rmem_max`).
    pub(crate) rmem_max: Option<u64>,
    /// The mapping file, if there is one.
    pub(crate) mapping_file: Option<String>,
    /// Events that a rule took, those that it dropped among them.
    pub(crate) mapped: u64,
    /// Events that no rule took.
    pub(crate) unmapped: u64,
    /// Rules that matched something, the busiest first; not more than [`SHOWN`].
    pub(crate) rules: Vec<Rule>,
    pub(crate) rule_count: u64,
    /// Rules that never matched, in the order of the file; not more than [`SHOWN`].
    pub(crate) never_hit: Vec<String>,
    pub(crate) never_hit_count: u64,
    /// Names that no rule took, the busiest first.
    pub(crate) unmapped_names: Vec<Unmapped>,
    /// What was refused and why, the newest first.
    pub(crate) refused: Vec<Refused>,
    /// Series made in the last 60 minutes, those that have gone since among them.
    pub(crate) new_in_an_hour: u64,
    /// The metrics with the most label sets, the largest first; not more than [`LARGEST`].
    pub(crate) largest: Vec<Largest>,
    /// What went beyond a budget, the most frequent first; not more than [`SHOWN`].
    pub(crate) over_budget: Vec<OverBudget>,
}

/// Metrics that are shown for their size.
pub(crate) const LARGEST: usize = 10;

/// With more series than these they are looked at for the page only if it is asked for with `?labels=1`.
pub(crate) const COUNTED: u64 = 100_000;

/// A metric with many series.
#[derive(Debug, Serialize)]
pub(crate) struct Largest {
    pub(crate) name: String,
    /// Its type.
    pub(crate) kind: &'static str,
    pub(crate) label_sets: u64,
    /// Names of the labels of its first series.
    pub(crate) labels: String,
}

/// Label sets that went beyond a budget.
#[derive(Debug, Serialize)]
pub(crate) struct OverBudget {
    pub(crate) metric: String,
    /// Empty where it is not about one label.
    pub(crate) label: String,
    /// The flag behind `--limit.`.
    pub(crate) limit: &'static str,
    /// `folded`, `refused` or `tracked`.
    pub(crate) action: &'static str,
    /// Since the start, counted when they come without being known.
    pub(crate) label_sets: u64,
    /// When the last one came.
    pub(crate) at: f64,
}

impl OverBudget {
    /// The label and its metric, or the metric.
    pub(crate) fn subject(&self) -> String {
        let Self { metric, label, .. } = self;
        if label.is_empty() { metric.clone() } else { format!("{label} of {metric}") }
    }
}

/// Rules and names that are shown of each sort.
pub(crate) const SHOWN: usize = 50;

/// One socket that lines come from.
#[derive(Debug, Serialize)]
pub(crate) struct Listener {
    /// `udp`, `tcp` or `unixgram`.
    pub(crate) protocol: &'static str,
    pub(crate) address: String,
    /// Lines since the start, of all sockets of the protocol.
    pub(crate) lines: u64,
    /// What the kernel gave as a receive buffer.
    pub(crate) receive_buffer_bytes: Option<u64>,
    /// Datagrams that the kernel dropped since the start.
    pub(crate) dropped: Option<u64>,
}

/// A rule of the mapping.
#[derive(Debug, Serialize)]
pub(crate) struct Rule {
    /// What it matches.
    pub(crate) pattern: String,
    /// Events that it took since the start.
    pub(crate) hits: u64,
}

/// A name that no rule took.
#[derive(Debug, Serialize)]
pub(crate) struct Unmapped {
    pub(crate) name: String,
    /// Events, estimated.
    pub(crate) events: u64,
}

/// What was refused for one reason.
#[derive(Debug, Serialize)]
pub(crate) struct Refused {
    /// A word of `kstatd_statsd_samples_total`.
    pub(crate) reason: &'static str,
    /// Since the start.
    pub(crate) count: u64,
    /// When the last one came.
    pub(crate) at: f64,
    /// The beginning of the last line.
    pub(crate) line: String,
}

/// A file of the configuration.
#[derive(Debug, Serialize)]
pub(crate) struct ConfigFile {
    /// What it is for.
    pub(crate) what: &'static str,
    pub(crate) path: String,
    /// Whether what it says is in force.
    pub(crate) in_force: bool,
    /// When it was last loaded with success.
    pub(crate) loaded: Option<f64>,
}
