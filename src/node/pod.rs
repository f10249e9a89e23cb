//! A pod: the figures of all sources for its parts, and the records built from them.

use std::collections::BTreeMap;

use super::figure::{Figure, Figures, Origin, Part, PartKind};
use super::pods::PodSpec;
use super::record::{Record, Scope, Snapshot};
use super::trend::Trend;
use crate::exposition::labels;

/// Fill-up predictions by scope and name.
type Trends = BTreeMap<(Scope, Box<str>), Trend>;

/// The disk usage of a pod.
#[derive(Default)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) started: String,
    pub(super) containers: Vec<String>,
    pub(super) parts: BTreeMap<Part, Figures>,
    pub(super) sum: Option<Figure>,
    pub(super) known: Option<PodSpec>,
    trends: Trends,
}

/// Pod attributes for the series of k8s-ephemeral-storage-metrics.
pub(super) struct CompatLabels<'a> {
    pub(super) node: &'a str,
    pub(super) capacity: Option<u64>,
}

fn record(labels: Vec<u8>, namespace: &str, figure: &Figure) -> Record {
    Record {
        labels,
        namespace: namespace.to_owned(),
        used: figure.bytes as f64,
        inodes: figure.inodes,
        at: figure.at,
        coverage: figure.coverage,
        ..Record::default()
    }
}

/// Returns the record of a single layer, log directory, volume or path.
pub(super) fn part_record(
    namespace: &str,
    pod: &str,
    (what, name): &Part,
    of: &Figures,
    now: f64,
) -> Option<Record> {
    let (origin, figure) = of.chosen(now)?;
    let name: &str = name;
    let (container, volume, path) = match what {
        PartKind::Volume => ("", name, ""),
        PartKind::Path => ("", "", name),
        PartKind::Layer | PartKind::Logs => (name, "", ""),
    };
    let labels = labels::rendered(&[
        ("container", container),
        ("namespace", namespace),
        ("path", path),
        ("pod", pod),
        ("source", origin.as_str()),
        ("volume", volume),
        ("what", what.as_str()),
    ]);
    Some(record(labels, namespace, &figure))
}

/// Adds up figures. An unknown part sets the coverage to 0.
fn sum(figures: impl IntoIterator<Item = Option<Figure>>) -> Option<Figure> {
    let mut missing = false;
    let mut sum: Option<Figure> = None;
    for figure in figures {
        let Some(figure) = figure else {
            missing = true;
            continue;
        };
        sum = Some(match sum {
            None => figure,
            Some(sum) => Figure {
                bytes: sum.bytes + figure.bytes,
                inodes: sum.inodes.zip(figure.inodes).map(|(a, b)| a + b),
                at: sum.at.min(figure.at),
                coverage: sum.coverage.min(figure.coverage),
            },
        });
    }
    sum.map(|sum| Figure { coverage: if missing { 0.0 } else { sum.coverage }, ..sum })
}

impl Pod {
    fn of(&self, what: PartKind, name: &str, now: f64) -> Option<(Origin, Figure)> {
        self.parts.get(&(what, Box::from(name)))?.chosen(now)
    }

    /// Returns whether a volume counts towards the pod: once the API has described the pod, only an
    /// `emptyDir` on disk does.
    fn counts(&self, volume: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.volumes.contains_key(volume))
    }

    /// Returns the total: the kubelet's own if it knows every part, else the sum of the parts.
    fn all(&self, now: f64) -> Option<Figure> {
        let mut parts: Vec<Option<(Origin, Figure)>> = Vec::new();
        for container in &self.containers {
            parts.push(self.of(PartKind::Layer, container, now));
            parts.push(self.of(PartKind::Logs, container, now));
        }
        for ((what, name), figures) in &self.parts {
            if *what == PartKind::Volume && self.counts(name) {
                parts.push(figures.chosen(now));
            }
        }
        let from_kubelet = |part: &Option<(Origin, Figure)>| {
            part.is_some_and(|(origin, _)| origin == Origin::Kubelet)
        };
        match self.sum {
            Some(sum) if parts.iter().all(from_kubelet) => Some(sum),
            // Without the figures of the parts, the share missing from the kubelet's total is
            // unknown.
            said => sum(parts.into_iter().map(|part| Some(part?.1)))
                .or(said.map(|said| Figure { coverage: 0.0, ..said })),
        }
    }

    /// Appends the pod's records.
    pub(super) fn records(
        &mut self,
        now: f64,
        node: &str,
        other: Option<&CompatLabels<'_>>,
        made: &mut Snapshot,
    ) {
        let (mut trends, nothing) = (std::mem::take(&mut self.trends), PodSpec::default());
        let known = self.known.as_ref().unwrap_or(&nothing);
        let mut showing = Showing { pod: self, known, trends: &mut trends, now, other, made };
        showing.parts();
        showing.volumes();
        showing.containers();
        showing.whole();
        if self.known.is_some() {
            showing.owner(node);
        }
        self.trends = trends;
    }
}

/// The context for building the records of one pod.
struct Showing<'a> {
    pod: &'a Pod,
    known: &'a PodSpec,
    trends: &'a mut Trends,
    now: f64,
    other: Option<&'a CompatLabels<'a>>,
    made: &'a mut Snapshot,
}

impl Showing<'_> {
    fn push(&mut self, scope: Scope, record: Record) {
        self.made.records[scope as usize].push(record);
    }

    /// Builds a record with limit, request and predicted time until full.
    fn record(
        &mut self,
        (scope, name): (Scope, &str),
        labels: &[(&str, &str)],
        figure: &Figure,
        (limit, request): (Option<f64>, Option<f64>),
    ) -> Record {
        let labels = labels::rendered(labels);
        let mut of = Record { limit, request, ..record(labels, &self.pod.namespace, figure) };
        if let Some(limit) = limit {
            // The figure that is shown now becomes a sample of the trend.
            let trend = self.trends.entry((scope, Box::from(name))).or_default();
            // A partial measurement tells nothing about growth.
            if of.coverage >= 1.0 {
                trend.add(of.at, of.used as u64);
            }
            of.full = trend.seconds_until(limit, of.at);
        }
        of
    }

    fn parts(&mut self) {
        let Pod { namespace, name, parts, .. } = self.pod;
        for (part, of) in parts {
            if part.0 != PartKind::Volume || self.pod.counts(&part.1) {
                let record = part_record(namespace, name, part, of, self.now);
                self.made.records[Scope::Part as usize].extend(record);
            }
        }
    }

    fn volumes(&mut self) {
        let Pod { namespace, name: pod, .. } = self.pod;
        let mut mounts: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for (container, volume, path) in self.known.mounts.iter().filter(|_| self.other.is_some()) {
            mounts.entry(volume).or_default().push((container, path));
        }
        for (volume, limit) in &self.known.volumes {
            let Some((_, figure)) = self.pod.of(PartKind::Volume, volume, self.now) else {
                continue;
            };
            let labels = [("namespace", namespace.as_str()), ("pod", pod), ("volume", volume)];
            let of = self.record((Scope::Volume, volume), &labels, &figure, (*limit, None));
            if let Some(other) = self.other {
                for (container, path) in mounts.get(volume.as_str()).into_iter().flatten() {
                    let labels = labels::rendered(&[
                        ("container", container),
                        ("mount_path", path),
                        ("node_name", other.node),
                        ("pod_name", pod),
                        ("pod_namespace", namespace),
                        ("volume_name", volume),
                    ]);
                    let shown = Record { labels, ..of.clone() };
                    if limit.is_some() {
                        self.push(Scope::CompatVolumeLimit, shown.clone());
                    }
                    self.push(Scope::CompatVolume, shown);
                }
            }
            if limit.is_some() {
                self.push(Scope::Volume, of);
            }
        }
    }

    fn containers(&mut self) {
        let Pod { namespace, name: pod, .. } = self.pod;
        for container in &self.pod.containers {
            let figure = |what| Some(self.pod.of(what, container, self.now)?.1);
            let Some(figure) = sum([figure(PartKind::Layer), figure(PartKind::Logs)]) else {
                continue;
            };
            let labels =
                [("container", container.as_str()), ("namespace", namespace), ("pod", pod)];
            let amounts = self.known.containers.get(container).copied().unwrap_or_default();
            let of = self.record((Scope::Container, container), &labels, &figure, amounts);
            if let Some(CompatLabels { node, capacity }) = self.other {
                let source = if of.limit.is_some() { "container" } else { "node" };
                let limit = of.limit.or(capacity.map(|capacity| capacity as f64));
                let labels = labels::rendered(&[
                    ("container", container),
                    ("node_name", node),
                    ("pod_name", pod),
                    ("pod_namespace", namespace),
                    ("source", source),
                ]);
                self.push(Scope::CompatContainer, Record { labels, limit, ..of.clone() });
            }
            self.push(Scope::Container, of);
        }
    }

    /// Adds the records of the entire pod.
    fn whole(&mut self) {
        let Pod { namespace, name: pod, .. } = self.pod;
        let Some(figure) = self.pod.all(self.now) else { return };
        let labels = [("namespace", namespace.as_str()), ("pod", pod)];
        let amounts = (self.known.limit, self.known.request);
        let of = self.record((Scope::Pod, ""), &labels, &figure, amounts);
        if let Some(CompatLabels { node, .. }) = self.other {
            let labels = [("node_name", *node), ("pod_name", pod), ("pod_namespace", namespace)];
            let labels = labels::rendered(&labels);
            self.push(Scope::CompatPod, Record { labels, ..of.clone() });
        }
        self.push(Scope::Pod, of);
    }

    /// Adds the record of the pod's owner.
    fn owner(&mut self, node: &str) {
        let Pod { namespace, name: pod, .. } = self.pod;
        let (kind, name) = &self.known.owner;
        let labels = labels::rendered(&[
            ("namespace", namespace),
            ("node", node),
            ("owner_kind", kind),
            ("owner_name", name),
            ("pod", pod),
        ]);
        let namespace = namespace.clone();
        self.push(Scope::Owner, Record { labels, namespace, used: 1.0, ..Record::default() });
    }
}
