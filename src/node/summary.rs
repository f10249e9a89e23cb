//! Parses the disk usage in the kubelet's `/stats/summary`, one object at a time.
//!
//! Field names are those of `k8s.io/kubelet/pkg/apis/stats/v1alpha1`. Other fields are ignored.

use jiff::Timestamp;
use serde::Deserialize;

use super::figure::{Figure, Part, PartKind};
use super::json_splitter::Member;

/// The members of the body to extract.
pub(super) const WANTED: &[Member] =
    &[Member { name: "node", is_list: false }, Member { name: "pods", is_list: true }];

/// File system statistics. In a volume they are inlined next to the volume's fields, like Go's
/// embedded structs.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FsStats {
    /// The name of the volume.
    name: String,
    /// Set for a volume backed by a claim, which is not on the node's disk.
    pvc_ref: Option<serde::de::IgnoredAny>,
    time: Option<String>,
    available_bytes: Option<u64>,
    capacity_bytes: Option<u64>,
    used_bytes: Option<u64>,
    inodes_used: Option<u64>,
}

impl FsStats {
    /// Returns the figure, if there is one. An absent or invalid timestamp means `now`.
    fn figure(&self, now: f64) -> Option<Figure> {
        let said = self.time.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let at = said.map(|time| time.as_millisecond() as f64 / 1000.0).filter(|at| *at > 0.0);
        let (at, inodes) = (at.map_or(now, |at| at.min(now)), self.inodes_used);
        Some(Figure { bytes: self.used_bytes?, inodes, at, coverage: 1.0 })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStats {
    #[serde(default)]
    node_name: String,
    fs: Option<FsStats>,
    runtime: Option<RuntimeStats>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeStats {
    image_fs: Option<FsStats>,
    container_fs: Option<FsStats>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodReference,
    start_time: Option<String>,
    containers: Option<Vec<ContainerStats>>,
    volume: Option<Vec<FsStats>>,
    #[serde(rename = "ephemeral-storage")]
    ephemeral_storage: Option<FsStats>,
}

#[derive(Deserialize)]
struct PodReference {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Deserialize)]
struct ContainerStats {
    name: String,
    rootfs: Option<FsStats>,
    logs: Option<FsStats>,
}

/// A file system of the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileSystem {
    /// `node`, `images` or `containers`.
    pub(crate) name: &'static str,
    pub(crate) capacity: u64,
    pub(crate) available: u64,
}

/// The kubelet's statistics of the node.
#[derive(Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) disks: Vec<FileSystem>,
}

/// The kubelet's statistics of a pod.
#[derive(Debug, PartialEq)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The start time as text; later ones compare greater.
    pub(super) started: String,
    /// The names of its containers, including those without disk statistics.
    pub(super) containers: Vec<String>,
    pub(super) figures: Vec<(Part, Figure)>,
    /// The pod's total.
    pub(super) sum: Option<Figure>,
}

/// Parses the statistics of the node.
///
/// # Errors
///
/// When the object has another form.
pub(super) fn node(object: &[u8]) -> serde_json::Result<Node> {
    let stats: NodeStats = serde_json::from_slice(object)?;
    let runtime = stats.runtime.as_ref();
    let disks = [
        ("node", stats.fs.as_ref()),
        ("images", runtime.and_then(|runtime| runtime.image_fs.as_ref())),
        ("containers", runtime.and_then(|runtime| runtime.container_fs.as_ref())),
    ];
    let disk = |(name, fs): (&'static str, Option<&FsStats>)| {
        let fs = fs?;
        Some(FileSystem { name, capacity: fs.capacity_bytes?, available: fs.available_bytes? })
    };
    Ok(Node { name: stats.node_name, disks: disks.into_iter().filter_map(disk).collect() })
}

/// Parses the statistics of a pod; `now` is in Unix seconds.
///
/// # Errors
///
/// When the object has another form.
pub(super) fn pod(object: &[u8], now: f64) -> serde_json::Result<Pod> {
    let stats: PodStats = serde_json::from_slice(object)?;
    let (mut figures, mut containers) = (Vec::new(), Vec::new());
    for container in stats.containers.unwrap_or_default() {
        let parts = [(PartKind::Layer, &container.rootfs), (PartKind::Logs, &container.logs)];
        figures.extend(parts.into_iter().filter_map(|(what, of)| {
            Some(((what, Box::from(&*container.name)), of.as_ref()?.figure(now)?))
        }));
        containers.push(container.name);
    }
    let volumes = stats.volume.unwrap_or_default();
    let here = volumes.iter().filter(|volume| volume.pvc_ref.is_none());
    figures.extend(here.filter_map(|volume| {
        Some(((PartKind::Volume, Box::from(&*volume.name)), volume.figure(now)?))
    }));
    let PodReference { name, namespace, uid } = stats.pod_ref;
    Ok(Pod {
        uid,
        namespace,
        name,
        started: stats.start_time.unwrap_or_default(),
        containers,
        figures,
        sum: stats.ephemeral_storage.and_then(|of| of.figure(now)),
    })
}
