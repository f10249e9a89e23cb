//! What series are made of, one record for each thing that is shown.

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// A layer, logs, a volume or a path by itself.
    Part,
    /// A volume with a limit of its own.
    Volume,
    /// Layer and logs of a container.
    Container,
    /// All of a pod.
    Pod,
    /// Who has made a pod.
    Owner,
    /// A file system of the node.
    Disk,
    // The same with the labels of another exporter.
    OtherPod,
    OtherContainer,
    OtherVolume,
    OtherVolumeLimit,
    OtherNode,
}

/// How many there are.
const SCOPES: usize = 11;

/// What series are made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// Rendered.
    pub(super) labels: Vec<u8>,
    pub(super) namespace: String,
    pub(super) used: f64,
    pub(super) inodes: Option<u64>,
    /// Unix seconds of the moment that it is of.
    pub(super) at: f64,
    pub(super) coverage: f64,
    pub(super) limit: Option<f64>,
    pub(super) request: Option<f64>,
    /// Seconds until the limit is reached, at that moment.
    pub(super) full: Option<f64>,
}

/// Everything at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    pub(super) records: [Vec<Record>; SCOPES],
}

impl Snapshot {
    pub(super) fn of(&self, scope: Scope) -> &[Record] {
        &self.records[scope as usize]
    }
}
