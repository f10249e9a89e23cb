//! What the kubelet's `/stats/summary` says of disks, read from one object at a time.
//!
//! The names are those of `k8s.io/kubelet/pkg/apis/stats/v1alpha1`. What is not read here is passed over.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;

use super::figure::{Figure, What};

/// The members of the body that matter.
pub(super) const WANTED: &[(&str, bool)] = &[("node", false), ("pods", true)];

/// A file system; among the members of a volume stand those of its own, as Go embeds them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FsStats<'a> {
    /// Of a volume.
    #[serde(borrow)]
    name: Cow<'a, str>,
    /// A volume that has one lies elsewhere.
    pvc_ref: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    available_bytes: Option<u64>,
    capacity_bytes: Option<u64>,
    used_bytes: Option<u64>,
    inodes_used: Option<u64>,
}

impl FsStats<'_> {
    /// The figure, if there is one. Where it says no time, or one of which nobody has heard, it is of now.
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
pub(crate) struct Disk {
    /// `node`, `images` or `containers`.
    pub(crate) name: &'static str,
    pub(crate) capacity: u64,
    pub(crate) available: u64,
}

/// What is said of the node.
#[derive(Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) disks: Vec<Disk>,
}

/// What is said of a pod.
#[derive(Debug, PartialEq)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// As it is written: later ones are greater.
    pub(super) started: String,
    /// Its containers, whether or not anything is said of their disks.
    pub(super) containers: Vec<String>,
    pub(super) figures: Vec<((What, Box<str>), Figure)>,
    /// All of it together.
    pub(super) sum: Option<Figure>,
}

/// Reads what is said of the node.
///
/// # Errors
///
/// It is not of that form.
pub(super) fn node(object: &[u8]) -> Result<Node, String> {
    let stats: NodeStats<'_> = serde_json::from_slice(object).map_err(|error| error.to_string())?;
    let runtime = stats.runtime.as_ref();
    let disks = [
        ("node", stats.fs.as_ref()),
        ("images", runtime.and_then(|runtime| runtime.image_fs.as_ref())),
        ("containers", runtime.and_then(|runtime| runtime.container_fs.as_ref())),
    ];
    let disk = |(name, fs): (&'static str, Option<&FsStats<'_>>)| {
        let fs = fs?;
        Some(Disk { name, capacity: fs.capacity_bytes?, available: fs.available_bytes? })
    };
    Ok(Node {
        name: stats.node_name.into_owned(),
        disks: disks.into_iter().filter_map(disk).collect(),
    })
}

/// Reads what is said of a pod at this moment (Unix seconds).
///
/// # Errors
///
/// It is not of that form.
pub(super) fn pod(object: &[u8], now: f64) -> Result<Pod, String> {
    let stats: PodStats<'_> = serde_json::from_slice(object).map_err(|error| error.to_string())?;
    let (mut figures, mut containers) = (Vec::new(), Vec::new());
    for container in stats.containers.unwrap_or_default() {
        let parts = [(What::Layer, &container.rootfs), (What::Logs, &container.logs)];
        figures.extend(parts.into_iter().filter_map(|(what, of)| {
            Some(((what, Box::from(&*container.name)), of.as_ref()?.figure(now)?))
        }));
        containers.push(container.name.into_owned());
    }
    let volumes = stats.volume.unwrap_or_default();
    let here = volumes.iter().filter(|volume| volume.pvc_ref.is_none());
    figures.extend(here.filter_map(|volume| {
        Some(((What::Volume, Box::from(&*volume.name)), volume.figure(now)?))
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
