//! Parses the disk usage in the kubelet's `/stats/summary`, one object at a time.
//!
//! Field names are those of `k8s.io/kubelet/pkg/apis/stats/v1alpha1`. Other fields are ignored.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;

use super::figure::{Figure, PartKind};
use super::json_splitter::Member;

/// The members of the body to extract.
pub(super) const WANTED: &[Member] = &[Member::object("node"), Member::list("pods")];

/// File system statistics. In a volume they are inlined next to the volume's fields, like Go's
/// embedded structs.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FsStats<'a> {
    /// The name of the volume.
    #[serde(borrow)]
    name: Cow<'a, str>,
    /// Set for a volume backed by a claim, which is not on the node's disk.
    pvc_ref: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    available_bytes: Option<u64>,
    capacity_bytes: Option<u64>,
    used_bytes: Option<u64>,
    inodes_used: Option<u64>,
}

impl FsStats<'_> {
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
struct NodeStats<'a> {
    #[serde(borrow, default)]
    node_name: Cow<'a, str>,
    #[serde(borrow)]
    fs: Option<FsStats<'a>>,
    #[serde(borrow)]
    runtime: Option<RuntimeStats<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeStats<'a> {
    #[serde(borrow)]
    image_fs: Option<FsStats<'a>>,
    #[serde(borrow)]
    container_fs: Option<FsStats<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats<'a> {
    #[serde(borrow)]
    pod_ref: PodReference<'a>,
    #[serde(borrow, default)]
    start_time: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    containers: Option<Vec<ContainerStats<'a>>>,
    #[serde(borrow, default)]
    volume: Option<Vec<FsStats<'a>>>,
    #[serde(borrow, rename = "ephemeral-storage")]
    ephemeral_storage: Option<FsStats<'a>>,
}

#[derive(Deserialize)]
struct PodReference<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ContainerStats<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    rootfs: Option<FsStats<'a>>,
    #[serde(borrow)]
    logs: Option<FsStats<'a>>,
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
    pub(super) figures: Vec<((PartKind, Box<str>), Figure)>,
    /// The pod's total.
    pub(super) sum: Option<Figure>,
}

/// Parses the statistics of the node.
///
/// # Errors
///
/// When the object has another form.
pub(super) fn node(object: &[u8]) -> serde_json::Result<Node> {
    let stats: NodeStats<'_> = serde_json::from_slice(object)?;
    let runtime = stats.runtime.as_ref();
    let disks = [
        ("node", stats.fs.as_ref()),
        ("images", runtime.and_then(|runtime| runtime.image_fs.as_ref())),
        ("containers", runtime.and_then(|runtime| runtime.container_fs.as_ref())),
    ];
    let disk = |(name, fs): (&'static str, Option<&FsStats<'_>>)| {
        let fs = fs?;
        Some(FileSystem { name, capacity: fs.capacity_bytes?, available: fs.available_bytes? })
    };
    Ok(Node {
        name: stats.node_name.into_owned(),
        disks: disks.into_iter().filter_map(disk).collect(),
    })
}

/// Parses the statistics of a pod; `now` is in Unix seconds.
///
/// # Errors
///
/// When the object has another form.
pub(super) fn pod(object: &[u8], now: f64) -> serde_json::Result<Pod> {
    let stats: PodStats<'_> = serde_json::from_slice(object)?;
    let (mut figures, mut containers) = (Vec::new(), Vec::new());
    for container in stats.containers.unwrap_or_default() {
        let parts = [(PartKind::Layer, &container.rootfs), (PartKind::Logs, &container.logs)];
        figures.extend(parts.into_iter().filter_map(|(what, of)| {
            Some(((what, Box::from(&*container.name)), of.as_ref()?.figure(now)?))
        }));
        containers.push(container.name.into_owned());
    }
    let volumes = stats.volume.unwrap_or_default();
    let here = volumes.iter().filter(|volume| volume.pvc_ref.is_none());
    figures.extend(here.filter_map(|volume| {
        Some(((PartKind::Volume, Box::from(&*volume.name)), volume.figure(now)?))
    }));
    let PodReference { name, namespace, uid } = stats.pod_ref;
    Ok(Pod {
        uid: uid.into_owned(),
        namespace: namespace.into_owned(),
        name: name.into_owned(),
        started: stats.start_time.unwrap_or_default().into_owned(),
        containers,
        figures,
        sum: stats.ephemeral_storage.and_then(|of| of.figure(now)),
    })
}
