//! The counters of events in a scrape.

use std::collections::BTreeMap;

use super::cluster::Kind;
use super::status::{UNKNOWN, exit_code};

/// Counts by container and reason.
pub(super) type Counts<'b> = BTreeMap<(&'b str, &'b str), i64>;

/// Returns the number of the family that counts the ends of pods or jobs.
pub(super) fn family(kind: Kind) -> usize {
    if kind == Kind::Pod { 1 } else { 2 }
}

/// The number of the family of Kubernetes Events, after the three of workloads.
pub(super) const EVENTS: usize = 3;

/// What the occurrences of Kubernetes Events are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventKey<'b> {
    pub(super) workload: String,
    pub(super) kind: &'b str,
    pub(super) reason: &'b str,
    pub(super) event_type: &'b str,
}

/// A workload, the number of a family, and two labels.
pub(super) type WorkloadKey = (String, usize, String, String);

/// The counters of a scrape.
#[derive(Default)]
pub(super) struct Counters<'b> {
    /// The terminations of pods, by UID.
    pub(super) pods: BTreeMap<&'b str, Counts<'b>>,
    /// The terminations of workloads, and the ends of their pods and jobs, which have no container.
    pub(super) workloads: BTreeMap<String, [Counts<'b>; 3]>,
    /// The occurrences of Kubernetes Events.
    pub(super) events: BTreeMap<EventKey<'b>, i64>,
    pub(super) nodes: BTreeMap<&'b str, Counts<'b>>,
}

impl<'b> Counters<'b> {
    /// Reads lines of the families of the ledger.
    ///
    /// # Errors
    /// Describes a line of another family, with a wrong exit code, or that is there twice.
    pub(super) fn parse(lines: &[&'b str]) -> Result<Self, String> {
        let mut counters = Self::default();
        for line in lines {
            let (text, value) = line.rsplit_once(' ').unwrap_or_default();
            let count: i64 = value.parse().map_err(|_| format!("no count: {line}"))?;
            let family = text.split('{').next().unwrap_or_default();
            let values: Vec<&str> = text.split('"').skip(1).step_by(2).collect();
            let known = match (family, &values[..]) {
                (
                    "kstatd_pod_container_terminations_total",
                    &[_, _, uid, container, reason, exit],
                ) => {
                    let is_unknown = reason == UNKNOWN;
                    let want =
                        if is_unknown { String::new() } else { exit_code(reason).to_string() };
                    if exit != want {
                        return Err(format!("the exit code is not {want:?}: {line}"));
                    }
                    counters.pods.entry(uid).or_default().insert((container, reason), count)
                }
                (
                    "kstatd_workload_container_terminations_total",
                    &[namespace, name, kind, container, reason],
                ) => {
                    let workload = counters.workloads.entry(format!("{namespace}/{kind}/{name}"));
                    workload.or_default()[0].insert((container, reason), count)
                }
                ("kstatd_workload_pods_finished_total", &[namespace, name, kind, reason]) => {
                    let workload = counters.workloads.entry(format!("{namespace}/{kind}/{name}"));
                    workload.or_default()[1].insert(("", reason), count)
                }
                ("kstatd_jobs_finished_total", &[namespace, name, kind, reason]) => {
                    let workload = counters.workloads.entry(format!("{namespace}/{kind}/{name}"));
                    workload.or_default()[2].insert(("", reason), count)
                }
                (
                    "kstatd_kube_events_total",
                    &[namespace, name, workload_type, kind, reason, event_type],
                ) => {
                    let workload = format!("{namespace}/{workload_type}/{name}");
                    counters.events.insert(EventKey { workload, kind, reason, event_type }, count)
                }
                ("kstatd_kube_node_condition_transitions_total", &[node, condition, status]) => {
                    counters.nodes.entry(node).or_default().insert((condition, status), count)
                }
                _ => return Err(format!("unknown series: {line}")),
            };
            if known.is_some() {
                return Err(format!("duplicate series: {line}"));
            }
        }
        Ok(counters)
    }

    /// Returns all counters of workloads, by workload, family and labels.
    pub(super) fn of_workloads(&self) -> BTreeMap<WorkloadKey, i64> {
        let owned = |workload: &str, family, one: &str, other: &str| {
            (workload.to_owned(), family, one.to_owned(), other.to_owned())
        };
        let mut all = BTreeMap::new();
        for (workload, families) in &self.workloads {
            for (family, counts) in families.iter().enumerate() {
                for ((container, reason), count) in counts {
                    all.insert(owned(workload, family, container, reason), *count);
                }
            }
        }
        for (EventKey { workload, kind, reason, event_type }, count) in &self.events {
            all.insert(owned(workload, EVENTS, kind, &format!("{reason} {event_type}")), *count);
        }
        all
    }
}
