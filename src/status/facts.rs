//! The status of the process at one moment. Serialised, it is the answer to `?format=json`.
//!
//! Times are Unix seconds, ages and durations seconds, sizes bytes. Unknown values are absent
//! (`null`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::explanation::Explanation;
use super::history::Past;
use super::words::bytes;
use crate::telemetry::cardinality::Report;
use crate::telemetry::scrapes::Scrape;
use crate::util::words::words;

words! {
    /// The overall state of the process.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum State {
        /// The data is complete and up to date.
        #[default]
        Ok = "OK",
        /// The same, but something needs attention before it becomes a failure.
        Warn = "WARN",
        /// Data is stale or incomplete, or the configuration is not applied.
        Degraded = "DEGRADED",
    }
}

/// The folder of the runbook.
const RUNBOOK: &str = "https://github.com/kstatd/kstatd/blob/main/docs/runbook/";

/// A problem and the page that helps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// The problem in one sentence.
    pub(crate) text: String,
    /// The URL of the runbook page.
    pub(crate) runbook: String,
}

impl Problem {
    /// Describes a problem whose runbook page has this name.
    pub(super) fn new(page: &str, text: String) -> Self {
        Self { text, runbook: format!("{RUNBOOK}{page}.md") }
    }

    /// Returns the name of the runbook page.
    pub(super) fn page(&self) -> &str {
        let name = self.runbook.rsplit('/').next().unwrap_or_default();
        name.trim_end_matches(".md")
    }
}

/// The findings of a judgement, by severity.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) reasons: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    pub(super) notes: Vec<String>,
}

impl Findings {
    /// Adds a reason for being degraded, with its runbook page.
    pub(super) fn reason(&mut self, page: &str, text: String) {
        self.reasons.push(Problem::new(page, text));
    }

    /// Adds a warning, with its runbook page.
    pub(super) fn warning(&mut self, page: &str, text: String) {
        self.warnings.push(Problem::new(page, text));
    }

    /// Adds a hint.
    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }
}

/// The complete status.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Facts {
    pub(crate) state: State,
    /// The reasons for being degraded.
    pub(crate) reasons: Vec<Problem>,
    /// Problems that do not degrade the state.
    pub(crate) warnings: Vec<Problem>,
    /// Hints that do not affect the state.
    pub(crate) notes: Vec<String>,
    /// The time of the report.
    pub(crate) at: f64,
    pub(crate) program: Program,
    pub(crate) kubernetes: Option<Kubernetes>,
    pub(crate) statsd: Option<Statsd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Node>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) standby: Option<StandbyStatus>,
    pub(crate) files: Vec<ConfigFile>,
    /// The last scrapes, newest first.
    pub(crate) scrapes: Vec<Scrape>,
    /// The last incomplete scrape of each known scraper and of all others.
    pub(crate) incomplete_scrapes: Vec<Scrape>,
    /// The same for those that took more than 5 s.
    pub(crate) slow_scrapes: Vec<Scrape>,
    /// The largest metrics with their labels, if the series were scanned.
    pub(crate) cardinality: Option<Report>,
    /// The explanation of the requested line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explanation: Option<Explanation>,
    pub(crate) history: Past,
}

/// The process itself.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) started: f64,
    pub(crate) memory_bytes: Option<u64>,
    /// The memory limit of the process's cgroup, if it has one.
    pub(crate) memory_limit_bytes: Option<u64>,
    /// CPU usage in percent of one core, over the last step of the history.
    pub(crate) cpu_percent: Option<f64>,
}

impl Program {
    /// Returns the memory next to its limit, if it has one.
    pub(super) fn memory(&self) -> Option<String> {
        let used = bytes(self.memory_bytes? as f64);
        Some(match self.memory_limit_bytes {
            Some(limit) => format!("{used} of {}", bytes(limit as f64)),
            None => used,
        })
    }
}

/// The Kubernetes side.
#[derive(Debug, Serialize)]
pub(crate) struct Kubernetes {
    /// The URL of the API server.
    pub(crate) server: String,
    /// The zero-based shard and the number of shards, if sharding is on.
    pub(crate) shard: Option<(i64, i64)>,
    /// True if every list/watch has completed its first list or was denied it.
    pub(crate) ready: bool,
    /// Kinds to which the latest configuration is not applied yet.
    pub(crate) pending: Vec<String>,
    /// Configured namespaces that do not exist.
    pub(crate) missing_namespaces: Vec<String>,
    /// Budgets exceeded since the start: first those of the last minutes, then the most frequent ones.
    pub(crate) over_budget: Vec<ObjectsOverBudget>,
    /// Metrics of custom resources without series, although there are objects.
    pub(crate) empty_metrics: Vec<EmptyMetric>,
    /// Entries of the custom resource configuration for kinds that the API server does not serve.
    pub(crate) unserved_kinds: Vec<String>,
    /// The list/watches, worst first.
    pub(crate) kinds: Vec<Kind>,
}

/// A budget exceeded by Kubernetes objects.
#[derive(Debug, Serialize)]
pub(crate) struct ObjectsOverBudget {
    /// The resource.
    pub(crate) resource: String,
    /// The metric; empty for the whole object.
    pub(crate) metric: String,
    /// The label; empty if the budget is not about one.
    pub(crate) label: String,
    /// The budget, as flags name it without `--limit.`.
    pub(crate) limit: String,
    /// The action taken.
    pub(crate) action: String,
    /// The number of times an object exceeded the budget.
    pub(crate) times: u64,
    /// The time of the last increase of that number, as far as it is known.
    pub(crate) at: f64,
}

/// A metric of a custom resource without series.
#[derive(Debug, Serialize)]
pub(crate) struct EmptyMetric {
    /// The resource, such as `widgets.v1.example.io`.
    pub(crate) resource: String,
    pub(crate) metric: String,
    /// The path at which no object has a value.
    pub(crate) path: String,
}

impl Kubernetes {
    fn shown(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|kind| kind.shown)
    }

    /// Returns the number of objects of all kinds.
    pub(crate) fn objects(&self) -> u64 {
        self.shown().map(|kind| kind.objects).sum()
    }

    /// Returns the number of series of all kinds.
    pub(crate) fn series(&self) -> u64 {
        self.shown().map(|kind| kind.series).sum()
    }
}

words! {
    /// The health of a list/watch, worst first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum Health {
        /// The latest list or watch failed.
        Failing = "failing",
        /// The watch has been silent for longer than a watch lasts.
        Stale = "stale",
        /// The first list is not complete.
        Starting = "starting",
        /// The API server does not have the kind.
        Absent = "absent",
        /// The watch is healthy.
        Ok = "ok",
    }
}

/// The list/watch of a kind, in one namespace or in all.
#[derive(Debug, Serialize)]
pub(crate) struct Kind {
    pub(crate) health: Health,
    /// The plural resource name.
    pub(crate) resource: String,
    /// The namespace; `None` for all.
    pub(crate) namespace: Option<String>,
    /// The flags that select its objects at the API server; `None` for all objects.
    pub(crate) selectors: Option<String>,
    /// `listing`, `watching` or `waiting`.
    pub(crate) phase: &'static str,
    /// True if its objects are served; otherwise the list is prepared to replace an older one.
    pub(crate) shown: bool,
    /// True if its objects were dropped because the API server kept denying access.
    pub(crate) given_up: bool,
    pub(crate) objects: u64,
    /// The number of objects in the list under way.
    pub(crate) coming: u64,
    pub(crate) series: u64,
    /// The uncompressed size of its metrics in a scrape.
    pub(crate) bytes: u64,
    /// Objects without series because of a budget.
    pub(crate) left_out: u64,
    /// The time of the last complete list.
    pub(crate) listed: Option<f64>,
    /// The time of the last response or event from the API server, errors included.
    pub(crate) heard: Option<f64>,
    /// The time up to which the served data is known to be current.
    pub(crate) current: Option<f64>,
    /// The event rate of the entire kind.
    pub(crate) events_per_second: Option<f64>,
    /// Failed lists and watches since the start.
    pub(crate) errors: u64,
    /// The current failure.
    pub(crate) failure: Option<Failure>,
    /// The RBAC rule that is missing.
    pub(crate) missing_rule: Option<String>,
}

impl Kind {
    /// Returns the name used in sentences and tables.
    pub(crate) fn name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in {namespace}", self.resource),
            None => self.resource.clone(),
        }
    }
}

/// An ongoing failure.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    /// The time of the first failure.
    pub(crate) since: f64,
    /// The reason label of `kstatd_kubernetes_errors_total`, if there is one.
    pub(crate) reason: Option<&'static str>,
    /// True if such failures usually affect the entire API server.
    pub(crate) of_the_server: bool,
    /// The latest error message.
    pub(crate) message: String,
}

/// The disk usage of this node's pods.
#[derive(Debug, Serialize)]
pub(crate) struct Node {
    /// The time of the kubelet's last complete summary; absent if it is not polled or never
    /// succeeded.
    pub(crate) summary: Option<f64>,
    /// The current error.
    pub(crate) failure: Option<String>,
    pub(crate) pods: u64,
    /// The total disk usage of the pods.
    pub(crate) used_bytes: f64,
    /// The pods closest to their limits, then the largest; at most [`LARGEST`].
    pub(crate) fullest: Vec<Fullest>,
    /// Explanations of missing figures of processes and pressure.
    pub(crate) gaps: Vec<String>,
}

/// The disk usage of a pod.
#[derive(Debug, Serialize)]
pub(crate) struct Fullest {
    /// Namespace and name.
    pub(crate) pod: String,
    pub(crate) used_bytes: f64,
    /// The usage as a fraction of the limit, if there is one.
    pub(crate) limit_ratio: Option<f64>,
    /// Seconds until the limit is reached, if the usage grows.
    pub(crate) until_full: Option<f64>,
}

/// The replicas of which one exposes its metrics.
#[derive(Debug, Serialize)]
pub(crate) struct StandbyStatus {
    /// True if this replica exposes its metrics.
    pub(crate) active: bool,
    /// The other replicas.
    pub(crate) peers: Vec<StandbyPeer>,
    /// The configured names that cannot be resolved, with the error.
    pub(crate) unresolved: BTreeMap<String, String>,
}

/// Another replica.
#[derive(Debug, Serialize)]
pub(crate) struct StandbyPeer {
    pub(crate) address: String,
    /// True if it exposes its metrics, if it answers.
    pub(crate) active: Option<bool>,
    /// The time since which it answers, or does not.
    pub(crate) since: f64,
    /// The reason why it does not answer.
    pub(crate) error: Option<String>,
}

/// The StatsD side.
#[derive(Debug, Serialize)]
pub(crate) struct Statsd {
    pub(crate) series: u64,
    pub(crate) families: u64,
    pub(crate) lines: u64,
    pub(crate) listeners: Vec<Listener>,
    /// The kernel's maximum receive buffer (`net.core.rmem_max`).
    pub(crate) rmem_max: Option<u64>,
    /// The mapping file, if there is one.
    pub(crate) mapping_file: Option<String>,
    /// Events matched by a rule, including dropped ones.
    pub(crate) mapped: u64,
    /// Events matched by no rule.
    pub(crate) unmapped: u64,
    /// The same since the mapping was loaded.
    pub(crate) mapped_since_load: u64,
    pub(crate) unmapped_since_load: u64,
    /// Rules with matches, most frequent first; at most [`SHOWN`].
    pub(crate) rules: Vec<Rule>,
    pub(crate) rule_count: u64,
    /// Rules without matches, in the order of the file; at most [`SHOWN`].
    pub(crate) never_hit: Vec<String>,
    pub(crate) never_hit_count: u64,
    /// Names matched by no rule, most frequent first.
    pub(crate) unmapped_names: Vec<Unmapped>,
    /// Rejected samples by reason, newest first.
    pub(crate) refused: Vec<Refused>,
    /// Series created in the last 60 minutes, including expired ones.
    pub(crate) new_in_an_hour: u64,
    /// The metrics with the most label sets, largest first; at most [`LARGEST`].
    pub(crate) largest: Vec<Largest>,
    /// Exceeded budgets: first those of the last minutes, then the most frequent ones; at most [`SHOWN`].
    pub(crate) over_budget: Vec<OverBudget>,
    /// The senders of datagrams that would save most CPU time by batching; at most [`LARGEST`].
    pub(crate) senders: Vec<DatagramSender>,
}

/// The estimated load of a sender of datagrams over the last one to two minutes.
#[derive(Debug, Serialize)]
pub(crate) struct DatagramSender {
    /// The IP address; `None` for all senders of the Unix socket.
    pub(crate) address: Option<String>,
    pub(crate) datagrams_per_second: f64,
    pub(crate) lines_per_datagram: f64,
    /// The fraction of the CPU time for all datagrams that would be saved if this sender batched its lines.
    pub(crate) saving: f64,
}

impl DatagramSender {
    /// Returns whether batching would be worthwhile.
    pub(crate) fn gains(&self) -> bool {
        self.saving >= 0.01 && self.datagrams_per_second >= 100.0
    }

    /// Returns the name of the sender.
    pub(crate) fn who(&self) -> &str {
        self.address.as_deref().unwrap_or("Unix socket")
    }
}

/// The number of metrics in the list of the largest.
pub(crate) const LARGEST: usize = 10;

/// The number of series above which the page scans them only with `?labels=1`.
pub(crate) const COUNTED: u64 = 100_000;

/// A metric with many series.
#[derive(Debug, Serialize)]
pub(crate) struct Largest {
    pub(crate) name: String,
    /// The metric type.
    pub(crate) kind: &'static str,
    pub(crate) label_sets: u64,
    /// The label names of its first series.
    pub(crate) labels: String,
}

/// Label sets that exceeded a budget.
#[derive(Debug, Serialize)]
pub(crate) struct OverBudget {
    pub(crate) metric: String,
    /// The label; empty if the budget is not about one.
    pub(crate) label: String,
    /// The budget, as flags name it without `--limit.`.
    pub(crate) limit: &'static str,
    /// `folded`, `refused` or `tracked`.
    pub(crate) action: &'static str,
    /// The number of unknown label sets received since the start.
    pub(crate) label_sets: u64,
    /// The time of the last one.
    pub(crate) at: f64,
}

impl OverBudget {
    /// Returns the label and its metric, or the metric alone.
    pub(crate) fn subject(&self) -> String {
        let Self { metric, label, .. } = self;
        if label.is_empty() { metric.clone() } else { format!("{label} of {metric}") }
    }
}

/// The maximum length of each list of rules and names.
pub(crate) const SHOWN: usize = 50;

/// The sockets that receive StatsD lines at one address.
#[derive(Debug, Serialize)]
pub(crate) struct Listener {
    /// `udp`, `tcp` or `unixgram`.
    pub(crate) protocol: &'static str,
    pub(crate) address: String,
    /// Lines received since the start.
    pub(crate) lines: u64,
    /// The smallest receive buffer, as granted by the kernel; `None` while a socket is closed.
    pub(crate) receive_buffer_bytes: Option<u64>,
    /// Datagrams dropped by the kernel since the start.
    pub(crate) dropped: Option<u64>,
}

/// A mapping rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rule {
    /// The pattern of the rule.
    pub(crate) pattern: String,
    /// Events matched since the start.
    pub(crate) hits: u64,
}

/// A name matched by no rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Unmapped {
    pub(crate) name: String,
    /// The estimated number of events.
    pub(crate) events: u64,
}

/// Samples rejected for one reason.
#[derive(Debug, Serialize)]
pub(crate) struct Refused {
    /// The reason label of `kstatd_statsd_samples_total`.
    pub(crate) reason: &'static str,
    /// The number since the start.
    pub(crate) count: u64,
    /// The time of the last one.
    pub(crate) at: f64,
    /// The beginning of the last rejected line.
    pub(crate) line: String,
}

/// A configuration file.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ConfigFile {
    /// The purpose of the file.
    pub(crate) what: &'static str,
    pub(crate) path: String,
    /// True if its content is applied.
    pub(crate) in_force: bool,
    /// The time of the last successful load.
    pub(crate) loaded: Option<f64>,
    /// The first error in its current content. An unapplied file without an error is pending.
    pub(crate) error: Option<String>,
    /// The time since which reading it hangs.
    pub(crate) unanswered_since: Option<f64>,
}

impl ConfigFile {
    /// Returns whether the file is applied and readable.
    pub(super) const fn is_applied(&self) -> bool {
        self.in_force && self.unanswered_since.is_none()
    }

    /// Returns applied, rejected or pending, in words.
    pub(super) const fn state(&self) -> &'static str {
        match self {
            Self { unanswered_since: Some(_), .. } => "not responding",
            Self { in_force: true, .. } => "applied",
            Self { error: Some(_), .. } => "rejected",
            _ => "pending",
        }
    }
}
