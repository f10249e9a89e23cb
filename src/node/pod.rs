//! A pod: what all sources say of its parts, and the records that they make.

use std::collections::BTreeMap;

use super::figure::{Figure, Figures, Origin, What};
use super::pods::Known;
use super::record::{Record, Scope, Snapshot};
use super::trend::Trend;
use crate::exposition::labels;

/// When something will be full, by what it is.
type Trends = BTreeMap<(Scope, Box<str>), Trend>;

/// A pod.
#[derive(Default)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) started: String,
    pub(super) containers: Vec<String>,
    pub(super) parts: BTreeMap<(What, Box<str>), Figures>,
    pub(super) sum: Option<Figure>,
    pub(super) known: Option<Known>,
    trends: Trends,
}

/// What another exporter's series need besides.
pub(super) struct Other<'a> {
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

/// The record of a layer, logs, a volume or a path by itself.
pub(super) fn part_record(
    namespace: &str,
    pod: &str,
    (what, name): &(What, Box<str>),
    of: &Figures,
    now: f64,
) -> Option<Record> {
    let (origin, figure) = of.chosen(now)?;
    let name: &str = name;
    let (container, volume, path) = match what {
        What::Volume => ("", name, ""),
        What::Path => ("", "", name),
        What::Layer | What::Logs => (name, "", ""),
    };
    let labels = labels::rendered(&[
        ("container", container),
        ("namespace", namespace),
        ("path", path),
        ("pod", pod),
        ("source", origin.word()),
        ("volume", volume),
        ("what", what.word()),
    ]);
    Some(record(labels, namespace, &figure))
}

/// Figures added up; a part that nobody knows leaves nothing of the coverage.
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
    fn of(&self, what: What, name: &str, now: f64) -> Option<(Origin, Figure)> {
        self.parts.get(&(what, Box::from(name)))?.chosen(now)
    }

    /// Whether a volume counts: where the API has told, an `emptyDir` on a disk alone.
    fn counts(&self, volume: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.volumes.contains_key(volume))
    }

    /// All of it: what the kubelet says, if it knows every part; else its parts added up.
    fn all(&self, now: f64) -> Option<Figure> {
        let mut parts: Vec<Option<(Origin, Figure)>> = Vec::new();
        for container in &self.containers {
            parts.push(self.of(What::Layer, container, now));
            parts.push(self.of(What::Logs, container, now));
        }
        for ((what, name), figures) in &self.parts {
            if *what == What::Volume && self.counts(name) {
                parts.push(figures.chosen(now));
            }
        }
        let from_kubelet = |part: &Option<(Origin, Figure)>| {
            part.is_some_and(|(origin, _)| origin == Origin::Kubelet)
        };
        match self.sum {
            Some(sum) if parts.iter().all(from_kubelet) => Some(sum),
            // Without its parts nobody knows what the kubelet has left out.
            said => sum(parts.into_iter().map(|part| Some(part?.1)))
                .or(said.map(|said| Figure { coverage: 0.0, ..said })),
        }
    }

    /// Adds what is shown of it.
    pub(super) fn records(
        &mut self,
        now: f64,
        node: &str,
        other: Option<&Other<'_>>,
        made: &mut Snapshot,
    ) {
        let (mut trends, nothing) = (std::mem::take(&mut self.trends), Known::default());
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

/// A pod of which records are made.
struct Showing<'a> {
    pod: &'a Pod,
    known: &'a Known,
    trends: &'a mut Trends,
    now: f64,
    other: Option<&'a Other<'a>>,
    made: &'a mut Snapshot,
}

impl Showing<'_> {
    fn push(&mut self, scope: Scope, record: Record) {
        self.made.records[scope as usize].push(record);
    }

    /// A record of something with a limit, a request and a time at which it will be full.
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
            // What is shown of it now is noted.
            let trend = self.trends.entry((scope, Box::from(name))).or_default();
            // What was looked at in part says nothing of how it grows.
            if of.coverage >= 1.0 {
                trend.note(of.at, of.used as u64);
            }
            of.full = trend.full(limit);
        }
        of
    }

    fn parts(&mut self) {
        let Pod { namespace, name, parts, .. } = self.pod;
        for (part, of) in parts {
            if part.0 != What::Volume || self.pod.counts(&part.1) {
                let record = part_record(namespace, name, part, of, self.now);
                self.made.records[Scope::Part as usize].extend(record);
            }
        }
    }

    fn volumes(&mut self) {
        let Pod { namespace, name: pod, .. } = self.pod;
        for (volume, limit) in &self.known.volumes {
            let Some((_, figure)) = self.pod.of(What::Volume, volume, self.now) else { continue };
            let labels = [("namespace", namespace.as_str()), ("pod", pod), ("volume", volume)];
            let of = self.record((Scope::Volume, volume), &labels, &figure, (*limit, None));
            if let Some(other) = self.other {
                let mounts = self.known.mounts.iter().filter(|(_, of, _)| of == volume);
                for (container, _, path) in mounts {
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
                        self.push(Scope::OtherVolumeLimit, shown.clone());
                    }
                    self.push(Scope::OtherVolume, shown);
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
            let Some(figure) = sum([figure(What::Layer), figure(What::Logs)]) else { continue };
            let labels =
                [("container", container.as_str()), ("namespace", namespace), ("pod", pod)];
            let amounts = self.known.containers.get(container).copied().unwrap_or_default();
            let of = self.record((Scope::Container, container), &labels, &figure, amounts);
            if let Some(Other { node, capacity }) = self.other {
                let source = if of.limit.is_some() { "container" } else { "node" };
                let limit = of.limit.or(capacity.map(|capacity| capacity as f64));
                let labels = labels::rendered(&[
                    ("container", container),
                    ("node_name", node),
                    ("pod_name", pod),
                    ("pod_namespace", namespace),
                    ("source", source),
                ]);
                self.push(Scope::OtherContainer, Record { labels, limit, ..of.clone() });
            }
            self.push(Scope::Container, of);
        }
    }

    /// All of it together.
    fn whole(&mut self) {
        let Pod { namespace, name: pod, .. } = self.pod;
        let Some(figure) = self.pod.all(self.now) else { return };
        let labels = [("namespace", namespace.as_str()), ("pod", pod)];
        let amounts = (self.known.limit, self.known.request);
        let of = self.record((Scope::Pod, ""), &labels, &figure, amounts);
        if let Some(Other { node, .. }) = self.other {
            let labels = [("node_name", *node), ("pod_name", pod), ("pod_namespace", namespace)];
            let labels = labels::rendered(&labels);
            self.push(Scope::OtherPod, Record { labels, ..of.clone() });
        }
        self.push(Scope::Pod, of);
    }

    /// Who has made it.
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
