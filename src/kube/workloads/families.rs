//! The families of workloads and of totals over pods, and their rendering.

use super::tally::{AmountKind, PHASES, Tally};
use crate::cache::{Family, MetricKind, Rendered};
use crate::resources::RenderOptions;
use crate::resources::series::{Label, Series};

/// The name of the families' resource in the catalog.
pub const RESOURCE: &str = "workloads";

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A pod.
    Pod,
    /// A workload.
    Workload,
    /// All pods of a namespace.
    Namespace,
    /// All pods of a node.
    Node,
}

/// The figure that a family shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Info,
    Phases,
    Ready,
    Desired,
    Waiting,
    Requests,
    Limits,
}

/// A family of workloads or of totals over pods.
#[derive(Debug, PartialEq, Eq)]
pub struct WorkloadFamily {
    /// The metric name.
    pub name: &'static str,
    /// The HELP text.
    pub help: &'static str,
    /// The subject of its series.
    pub subject: Subject,
    figure: Figure,
}

/// Declares the families: subject, figure, name and help text.
macro_rules! families {
    ($($subject:ident $figure:ident $name:literal, $help:literal;)+) => {
        [$(WorkloadFamily {
            name: $name,
            help: $help,
            subject: Subject::$subject,
            figure: Figure::$figure,
        }),+]
    };
}

/// All families, in exposition order. Each is on in `kstatd run`, and opt-in under the name kube-state-metrics.
pub static FAMILIES: [WorkloadFamily; 18] = families! {
    Pod Info "kstatd_pod_workload_info",
        "The workload that a pod belongs to, found through its owners.";
    Workload Info "kstatd_workload_info", "A workload that exists or has pods.";
    Workload Phases "kstatd_workload_pods", "Pods of the workload by phase.";
    Workload Ready "kstatd_workload_pods_ready",
        "Pods of the workload that are ready to serve requests.";
    Workload Desired "kstatd_workload_pods_desired", "Pods that the workload is meant to have.";
    Workload Waiting "kstatd_workload_pods_waiting",
        "Pods of the workload with a container that waits to be started, by reason.";
    Workload Requests "kstatd_workload_resource_requests",
        "Requested resources of the containers of the workload's pods.";
    Workload Limits "kstatd_workload_resource_limits",
        "Resource limits of the containers of the workload's pods.";
    Namespace Phases "kstatd_namespace_pods", "Pods of the namespace by phase.";
    Namespace Ready "kstatd_namespace_pods_ready",
        "Pods of the namespace that are ready to serve requests.";
    Namespace Waiting "kstatd_namespace_pods_waiting",
        "Pods of the namespace with a container that waits to be started, by reason.";
    Namespace Requests "kstatd_namespace_resource_requests",
        "Requested resources of the containers of the namespace's pods.";
    Namespace Limits "kstatd_namespace_resource_limits",
        "Resource limits of the containers of the namespace's pods.";
    Node Phases "kstatd_kube_node_pods", "Pods of the node by phase.";
    Node Ready "kstatd_kube_node_pods_ready", "Pods of the node that are ready to serve requests.";
    Node Waiting "kstatd_kube_node_pods_waiting",
        "Pods of the node with a container that waits to be started, by reason.";
    Node Requests "kstatd_kube_node_resource_requests",
        "Requested resources of the containers of the node's pods.";
    Node Limits "kstatd_kube_node_resource_limits",
        "Resource limits of the containers of the node's pods.";
};

impl WorkloadFamily {
    /// Returns the label names, in order.
    pub fn labels(&self) -> Vec<&'static str> {
        let identity: &[_] = match self.subject {
            Subject::Pod => &["namespace", "pod", "uid", "node", "workload", "workload_type"],
            Subject::Workload => &["namespace", "workload", "workload_type"],
            Subject::Namespace => &["namespace"],
            Subject::Node => &["node"],
        };
        let own: &[_] = match self.figure {
            Figure::Info | Figure::Ready | Figure::Desired => &[],
            Figure::Phases => &["phase"],
            Figure::Waiting => &["reason"],
            Figure::Requests | Figure::Limits => &["resource", "unit"],
        };
        [identity, own].concat()
    }

    /// Returns whether the family needs more of a workload's object than its metadata.
    pub(super) fn needs_object(&self) -> bool {
        self.figure == Figure::Desired
    }

    /// Returns whether it is a total over pods.
    pub(super) fn is_total(&self) -> bool {
        self.figure != Figure::Info
    }

    pub(super) fn header(&self) -> Family {
        let (name, help) = (self.name.to_owned(), self.help.to_owned());
        Family { name, help, kind: MetricKind::Gauge }
    }
}

/// One row: a pod, a workload, a namespace or a node with its kind.
pub(super) struct Row<'a> {
    pub(super) subject: Subject,
    pub(super) namespace: &'a str,
    pub(super) labels: &'a [Label<'a>],
    /// Rendered labels after these, each after a comma.
    pub(super) more: &'a [u8],
    /// The pods that the kind are totals of.
    pub(super) pods: &'a Tally,
    pub(super) desired: Option<i64>,
}

impl<'a> Row<'a> {
    /// Creates a row without labels after the given ones and without a wanted number of pods.
    pub(super) fn new(
        subject: Subject,
        namespace: &'a str,
        labels: &'a [Label<'a>],
        pods: &'a Tally,
    ) -> Self {
        Self { subject, namespace, labels, more: &[], pods, desired: None }
    }

    /// Renders the row's series of these families into `out`, under the key `uid`.
    pub(super) fn render(
        &self,
        families: &[&'static WorkloadFamily],
        uid: &[u8],
        out: &mut Rendered,
    ) {
        out.clear();
        out.uid.extend_from_slice(uid);
        out.namespace.extend_from_slice(self.namespace.as_bytes());
        let options = RenderOptions::default();
        let mut series = Series::new(out, &options);
        self.labels.iter().for_each(|(name, value)| series.identity(name, value));
        let totals = self.pods;
        for family in families {
            if family.subject == self.subject {
                match family.figure {
                    Figure::Info => series.value(1.0),
                    Figure::Phases => {
                        for (phase, pods) in PHASES.iter().zip(totals.phases) {
                            series.with(&[("phase", phase)], pods as f64);
                        }
                    }
                    Figure::Ready => series.value(totals.ready as f64),
                    Figure::Desired => self.desired.iter().for_each(|n| series.value(*n as f64)),
                    Figure::Waiting => {
                        for (reason, pods) in &totals.waiting {
                            series.with(&[("reason", reason)], *pods as f64);
                        }
                    }
                    Figure::Requests => amounts(totals, AmountKind::Requests, &mut series),
                    Figure::Limits => amounts(totals, AmountKind::Limits, &mut series),
                }
            }
            series.end_family();
        }
        out.identity.extend_from_slice(self.more);
    }
}

fn amounts(totals: &Tally, kind: AmountKind, series: &mut Series<'_>) {
    totals.resources.each(kind, |resource, unit, sum| {
        series.with(&[("resource", resource), ("unit", unit)], sum.value());
    });
}
