//! Records, one for each exported object; series are made from them.

/// The kind of object that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// A single layer, log directory, volume or path.
    Part,
    /// A volume with its own limit.
    Volume,
    /// The layer and logs of a container.
    Container,
    /// An entire pod.
    Pod,
    /// The owner of a pod.
    Owner,
    /// A file system of the node.
    FileSystem,
    // The scopes below carry the labels of k8s-ephemeral-storage-metrics.
    CompatPod,
    CompatContainer,
    CompatVolume,
    CompatVolumeLimit,
    CompatNode,
}

/// The number of scopes.
const SCOPES: usize = 11;

/// The values of one exported object.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// The rendered labels.
    pub(super) labels: Vec<u8>,
    pub(super) namespace: String,
    pub(super) used: f64,
    pub(super) inodes: Option<u64>,
    /// The time of measurement, in Unix seconds.
    pub(super) at: f64,
    pub(super) coverage: f64,
    pub(super) limit: Option<f64>,
    pub(super) request: Option<f64>,
    /// Seconds from the time of measurement until the limit is reached.
    pub(super) full: Option<f64>,
}

/// A consistent set of all records.
#[derive(Default)]
pub(crate) struct Snapshot {
    pub(super) records: [Vec<Record>; SCOPES],
}

impl Snapshot {
    pub(super) fn of(&self, scope: Scope) -> &[Record] {
        &self.records[scope as usize]
    }
}
