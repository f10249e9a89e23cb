//! Joins the figures of all sources.
//!
//! Sources enter figures and pod attributes, then call [`Store::publish`], which publishes a
//! [`Snapshot`] of records with rendered labels. A scrape reads the latest snapshot and computes
//! only ages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;

use super::figure::{Figure, Figures, Origin, Part, PartKind};
use super::mounts::Overlay;
use super::pod::{CompatLabels, Pod, part_record};
use super::pods::PodSpec;
use super::record::{Record, Scope, Snapshot};
use super::summary::{self, FileSystem};
use crate::exposition::labels;
use crate::util::lock::Lock;

/// The time after which the API certainly knows a container.
const SETTLING: Duration = Duration::from_secs(30);

/// The longest time for which a layer waits for the API to say whose it is.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Returns the current time in Unix seconds.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The object that a figure measures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MeasuredObject {
    /// The UID of its pod, if that is known.
    pub(super) pod: Option<String>,
    pub(super) part: Part,
}

impl MeasuredObject {
    /// Returns an object of no known pod.
    pub(super) fn unassigned(what: PartKind, name: &str) -> Self {
        Self { pod: None, part: (what, Box::from(name)) }
    }
}

/// A path to measure, and the object it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: MeasuredObject,
    pub(super) path: PathBuf,
}

#[derive(Default)]
struct State {
    node: String,
    disks: Vec<FileSystem>,
    pods: BTreeMap<String, Pod>,
    unassigned: BTreeMap<Part, Figures>,
    /// The pods already looked up in the API.
    looked_up: BTreeSet<String>,
    /// The IDs of containers that no pod of the API's last answer has, with the time at which each was found.
    unknown: BTreeMap<Box<str>, Instant>,
    /// The time at which the API was last asked.
    asked: Option<Instant>,
}

impl State {
    /// Returns whether the API has not been asked since a container was found, or so soon that it may not have known it.
    fn is_new(&self, found: Instant) -> bool {
        self.asked.is_none_or(|asked| found + SETTLING >= asked)
    }
}

/// The shared state of all sources.
pub(crate) struct Store {
    state: Lock<State>,
    snapshot: ArcSwap<Snapshot>,
    /// Exports the names of k8s-ephemeral-storage-metrics too.
    compat_names: bool,
}

impl Store {
    /// Creates an empty store. If `node` is empty, the kubelet's answer provides the node name.
    /// `compat_names` enables the names of k8s-ephemeral-storage-metrics.
    pub(crate) fn new(node: &str, compat_names: bool) -> Self {
        let state = State { node: node.to_owned(), ..State::default() };
        Self { state: Lock::new(state), snapshot: ArcSwap::default(), compat_names }
    }

    /// Returns the last published snapshot.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Returns the name of the node; empty while it is unknown.
    pub(super) fn node(&self) -> String {
        self.state.lock().node.clone()
    }

    /// Enters the kubelet's figures for the node.
    pub(super) fn set_node(&self, node: summary::Node) {
        let mut state = self.state.lock();
        if state.node.is_empty() {
            state.node = node.name;
        }
        state.disks = node.disks;
    }

    /// Enters the kubelet's figures for a pod, replacing all earlier ones.
    pub(super) fn set_pod(&self, said: summary::Pod) {
        let mut state = self.state.lock();
        let pod = state.pods.entry(said.uid).or_default();
        (pod.namespace, pod.name, pod.started) = (said.namespace, said.name, said.started);
        pod.parts.values_mut().for_each(|of| of.set(Origin::Kubelet, None));
        for (part, figure) in said.figures {
            pod.parts.entry(part).or_default().set(Origin::Kubelet, Some(figure));
        }
        // Keep the figures that other sources measured for the containers that still exist.
        let containers = &said.containers;
        pod.parts.retain(|(what, name), of| {
            let gone = *what != PartKind::Volume && !containers.iter().any(|one| **one == **name);
            !gone && !of.is_empty()
        });
        (pod.containers, pod.sum) = (said.containers, said.sum);
    }

    /// Removes all pods except these.
    pub(super) fn retain_pods(&self, uids: &BTreeSet<String>) {
        let mut state = self.state.lock();
        state.pods.retain(|uid, _| uids.contains(uid));
        state.looked_up.retain(|uid| uids.contains(uid));
    }

    /// Returns whether there is a pod or a container that was not looked up in the API yet.
    pub(super) fn has_unknown_pods(&self) -> bool {
        let state = self.state.lock();
        state.pods.keys().any(|uid| !state.looked_up.contains(uid))
            || state.unknown.values().any(|found| state.is_new(*found))
    }

    /// Enters the API's answer for all pods that were looked up, at this time or later.
    pub(super) fn set_pod_specs(&self, asked: Instant, known: Vec<(String, PodSpec)>) {
        let mut state = self.state.lock();
        state.looked_up = state.pods.keys().cloned().collect();
        state.asked = Some(asked);
        for (uid, known) in known {
            let pod = state.pods.get_mut(&uid);
            if let Some(pod) = pod.filter(|pod| known.fits(&pod.namespace, &pod.name)) {
                pod.known = Some(known);
            }
        }
    }

    /// Enters a figure; `None` removes it.
    pub(super) fn enter(&self, place: &MeasuredObject, origin: Origin, figure: Option<Figure>) {
        let mut state = self.state.lock();
        let parts = match &place.pod {
            None => &mut state.unassigned,
            Some(uid) => match state.pods.get_mut(uid) {
                Some(pod) => &mut pod.parts,
                // Do not resurrect a pod that was removed meanwhile.
                None => return,
            },
        };
        let figures = parts.entry(place.part.clone()).or_default();
        figures.set(origin, figure);
        if figures.is_empty() {
            parts.remove(&place.part);
        }
    }

    /// Removes the figures of a source for places that no longer exist.
    pub(super) fn retain_objects(&self, origin: Origin, places: &BTreeSet<MeasuredObject>) {
        let mut state = self.state.lock();
        let State { pods, unassigned, .. } = &mut *state;
        let pods = pods.iter_mut().map(|(uid, pod)| (Some(uid.clone()), &mut pod.parts));
        for (pod, parts) in pods.chain([(None, unassigned)]) {
            parts.retain(|part, of| {
                let place = || MeasuredObject { pod: pod.clone(), part: part.clone() };
                if of.has(origin) && !places.contains(&place()) {
                    of.set(origin, None);
                }
                !of.is_empty()
            });
        }
    }

    /// Returns the places that a source has to measure because no cheaper source has a fresh
    /// figure. `root` is the mount point of the host's file system.
    pub(super) fn targets(
        &self,
        origin: Origin,
        root: &Path,
        overlays: Vec<Overlay>,
    ) -> Vec<Target> {
        let (mut state, now) = (self.state.lock(), now());
        let (mut targets, mut unknown) = (Vec::new(), BTreeMap::new());
        let mut of_container = BTreeMap::new();
        for (uid, pod) in &state.pods {
            let wanted = |what: PartKind, name: &str| {
                let of = pod.parts.get(&(what, Box::from(name)));
                !of.is_some_and(|of| of.is_known_cheaper(origin, now))
            };
            let mut add = |what: PartKind, name: &str, path: PathBuf| {
                let place =
                    MeasuredObject { pod: Some(uid.clone()), part: (what, Box::from(name)) };
                targets.push(Target { place, path });
            };
            let logs = format!("var/log/pods/{}_{}_{uid}", pod.namespace, pod.name);
            for name in pod.containers.iter().filter(|name| wanted(PartKind::Logs, name)) {
                add(PartKind::Logs, name, root.join(&logs).join(name));
            }
            let Some(known) = &pod.known else { continue };
            let volumes = format!("var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir");
            for name in known.volumes.keys().filter(|name| wanted(PartKind::Volume, name)) {
                add(PartKind::Volume, name, root.join(&volumes).join(name));
            }
            for (id, name) in &known.running {
                of_container.insert(id.as_str(), (uid, name, wanted(PartKind::Layer, name)));
            }
        }
        for overlay in overlays {
            let inside = overlay.upper.strip_prefix("/").unwrap_or(&overlay.upper);
            let path = root.join(inside);
            let place = match overlay.container().map(|id| (id, of_container.get(id))) {
                Some((_, Some((_, _, false)))) => continue,
                Some((_, Some((uid, name, true)))) => MeasuredObject {
                    pod: Some((*uid).clone()),
                    part: (PartKind::Layer, Box::from(name.as_str())),
                },
                Some((id, None)) => {
                    let found = state.unknown.get(id).copied().unwrap_or_else(Instant::now);
                    unknown.insert(Box::from(id), found);
                    // A container that was restarted has a new ID.
                    let may_wait = state.asked.is_some() && found.elapsed() < MAX_WAIT;
                    if may_wait && state.is_new(found) {
                        continue;
                    }
                    MeasuredObject::unassigned(PartKind::Layer, id)
                }
                None => MeasuredObject::unassigned(PartKind::Layer, &overlay.mount_point),
            };
            let of = state.unassigned.get(&place.part).filter(|_| place.pod.is_none());
            if of.is_some_and(|of| of.is_known_cheaper(origin, now)) {
                continue;
            }
            targets.push(Target { place, path });
        }
        state.unknown = unknown;
        // Those of pods come first.
        targets.sort_by(|a, b| {
            let order = a.place.pod.is_none().cmp(&b.place.pod.is_none());
            order.then_with(|| a.place.cmp(&b.place))
        });
        targets.dedup_by(|a, b| a.place == b.place);
        targets
    }

    /// Publishes the current state as the snapshot.
    pub(super) fn publish(&self) {
        let mut state = self.state.lock();
        let now = now();
        let mut made = Snapshot::default();
        let State { node, disks, pods, unassigned, .. } = &mut *state;
        let capacity = disks.iter().find(|disk| disk.name == "node").map(|disk| disk.capacity);
        let other = self.compat_names.then_some(CompatLabels { node: node.as_str(), capacity });
        // Of two pods with the same name, use the one that started later.
        let mut by_name: BTreeMap<(String, String), &mut Pod> = BTreeMap::new();
        for pod in pods.values_mut() {
            let name = (pod.namespace.clone(), pod.name.clone());
            match by_name.get(&name) {
                Some(another) if another.started >= pod.started => {}
                _ => drop(by_name.insert(name, pod)),
            }
        }
        for pod in by_name.into_values() {
            pod.records(now, node, other.as_ref(), &mut made);
        }
        for (part, of) in unassigned.iter() {
            made.records[Scope::Part as usize].extend(part_record("", "", part, of, now));
        }
        for disk in disks.iter() {
            let labels = labels::rendered(&[("filesystem", disk.name)]);
            let used = disk.capacity.saturating_sub(disk.available) as f64;
            let of =
                Record { labels, used, limit: Some(disk.capacity as f64), ..Record::default() };
            if self.compat_names && disk.name == "node" {
                let labels = labels::rendered(&[("node_name", node)]);
                made.records[Scope::CompatNode as usize].push(Record { labels, ..of.clone() });
            }
            made.records[Scope::FileSystem as usize].push(of);
        }
        for records in &mut made.records {
            records.sort_by(|a, b| labels::compare(&a.labels, &b.labels));
        }
        self.snapshot.store(Arc::new(made));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container that was restarted has a new ID. Its layer waits until the pods have been read again.
    #[test]
    fn the_layer_of_a_new_container_waits_for_its_pod() {
        let store = Store::new("n", false);
        let pod = || summary::Pod {
            uid: "u".into(),
            namespace: "s".into(),
            name: "p".into(),
            started: String::new(),
            containers: vec!["c".into()],
            figures: Vec::new(),
            sum: None,
        };
        let spec = |id: &str| {
            let running = [(id.to_owned(), "c".to_owned())].into_iter().collect();
            vec![("u".to_owned(), PodSpec { running, ..PodSpec::default() })]
        };
        let [old, new, foreign] = ["a", "b", "f"].map(|digit| digit.repeat(64));
        let layers = |ids: &[&str]| {
            let overlay = |id: &&str| Overlay {
                mount_point: format!("/run/{id}/rootfs"),
                upper: format!("/layers/{id}").into(),
            };
            let targets =
                store.targets(Origin::Walk, Path::new("/"), ids.iter().map(overlay).collect());
            let layers = targets.into_iter().filter(|one| one.path.starts_with("/layers"));
            layers.map(|one| one.place).collect::<Vec<_>>()
        };
        let later = || Instant::now() + 2 * SETTLING;
        let part = (PartKind::Layer, Box::from("c"));
        let own = || vec![MeasuredObject { pod: Some("u".into()), part: part.clone() }];
        store.set_pod(pod());
        assert!(store.has_unknown_pods());
        let earlier = Instant::now().checked_sub(2 * SETTLING).expect("a time");
        // It was asked before the new container began.
        store.set_pod_specs(earlier, spec(&old));
        assert_eq!(layers(&[&old]), own());
        assert!(!store.has_unknown_pods());
        assert_eq!(layers(&[&new]), []);
        assert!(store.has_unknown_pods());
        store.set_pod_specs(Instant::now(), spec(&new));
        assert_eq!(layers(&[&new]), own());
        // What no pod has is measured on its own, and the pods are not read again for it.
        assert_eq!(layers(&[&new, &foreign]), own());
        store.set_pod_specs(later(), spec(&new));
        let unassigned = MeasuredObject::unassigned(PartKind::Layer, &foreign);
        assert_eq!(layers(&[&new, &foreign]), [own(), vec![unassigned.clone()]].concat());
        // Its quota has a figure.
        let figure = Figure { bytes: 1, inodes: None, at: now(), coverage: 1.0 };
        store.enter(&unassigned, Origin::Quota, Some(figure));
        assert_eq!(layers(&[&new, &foreign]), own());
        assert!(!store.has_unknown_pods());
    }
}
