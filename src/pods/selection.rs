//! The labels that lines get from the pod that sent them.

use super::pod::Pod;
use crate::util::words::words;

words! {
    /// A label that describes a pod. The order is that of the names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PodLabel {
        /// The namespace of the pod.
        Namespace = "namespace",
        /// The name of its node.
        Node = "node",
        /// The name of the pod itself.
        Pod = "pod",
        /// The name of its workload.
        Workload = "workload",
        /// The kind of its workload in lower case.
        WorkloadType = "workload_type",
    }
}

impl PodLabel {
    /// Returns the value for a pod. `None` if the workload is not known.
    pub(super) fn value(self, pod: &Pod) -> Option<&str> {
        Some(match self {
            Self::Namespace => &pod.namespace,
            Self::Node => &pod.node,
            Self::Pod => &pod.name,
            Self::Workload => &pod.workload.as_ref()?.name,
            Self::WorkloadType => &pod.workload.as_ref()?.kind,
        })
    }
}

/// A label that lines cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown label {0:?}, must be one of {names}", names = PodLabel::ALL.map(PodLabel::as_str).join(", "))]
pub struct UnknownLabel(String);

/// The selected labels, sorted by name. Empty if lines are not enriched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Vec<PodLabel>);

impl Selection {
    /// Parses `workload`, which selects namespace, workload and its type, or a comma-separated list of labels.
    ///
    /// # Errors
    /// A label is unknown.
    pub fn parse(text: &str) -> Result<Self, UnknownLabel> {
        if text == "workload" {
            return Ok(Self(vec![PodLabel::Namespace, PodLabel::Workload, PodLabel::WorkloadType]));
        }
        let label =
            |name: &str| PodLabel::parse(name.trim()).ok_or_else(|| UnknownLabel(name.to_owned()));
        let mut labels = text.split(',').map(label).collect::<Result<Vec<_>, _>>()?;
        labels.sort_unstable();
        labels.dedup();
        Ok(Self(labels))
    }

    /// Returns true if no label is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the labels in the order of their names.
    pub fn labels(&self) -> impl Iterator<Item = PodLabel> + '_ {
        self.0.iter().copied()
    }
}
