//! What all sources have found, joined: the place where they meet.
//!
//! Figures and what is known of pods flow in; whoever has entered something calls [`Store::settle`], which makes a
//! [`Snapshot`] of records with their labels. A scrape reads the last one and reckons nothing but ages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;

use super::figure::{Figure, Figures, Origin, What};
use super::mounts::Overlay;
use super::pod::{Other, Pod, part_record};
use super::pods::Known;
use super::record::{Record, Scope, Snapshot};
use super::summary::{self, Disk};
use crate::exposition::labels;

/// Unix seconds.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What a figure is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Something of a pod: its UID, what, and of which container or volume.
    Pod(String, What, Box<str>),
    /// What belongs to no pod that is known.
    Loose(What, Box<str>),
}

/// Something to look at, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) path: PathBuf,
}

#[derive(Default)]
struct State {
    node: String,
    disks: Vec<Disk>,
    pods: BTreeMap<String, Pod>,
    loose: BTreeMap<(What, Box<str>), Figures>,
    /// Pods of which the API was asked.
    asked: BTreeSet<String>,
}

/// The place where all sources meet.
pub(crate) struct Store {
    state: Mutex<State>,
    snapshot: ArcSwap<Snapshot>,
    /// Whether there are names of the other exporter too.
    others: bool,
}

impl Store {
    /// Nothing is known yet. `node` is the name of the node, which the kubelet tells where it is empty; `others` says
    /// whether there are names of the other exporter too.
    pub(crate) fn new(node: &str, others: bool) -> Self {
        let state = State { node: node.to_owned(), ..State::default() };
        Self { state: Mutex::new(state), snapshot: ArcSwap::default(), others }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there was when something was last entered.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The name of the node; empty while nobody has told it.
    pub(super) fn node(&self) -> String {
        self.lock().node.clone()
    }

    /// Enters what the kubelet says of the node.
    pub(super) fn enter_node(&self, node: summary::Node) {
        let mut state = self.lock();
        if state.node.is_empty() {
            state.node = node.name;
        }
        state.disks = node.disks;
    }

    /// Enters what the kubelet says of a pod, in the place of all that it said before.
    pub(super) fn enter_pod(&self, said: summary::Pod) {
        let mut state = self.lock();
        let pod = state.pods.entry(said.uid).or_default();
        (pod.namespace, pod.name, pod.started) = (said.namespace, said.name, said.started);
        pod.parts.values_mut().for_each(|of| of.set(Origin::Kubelet, None));
        for (part, figure) in said.figures {
            pod.parts.entry(part).or_default().set(Origin::Kubelet, Some(figure));
        }
        // What another source has found of a container goes with it.
        let containers = &said.containers;
        pod.parts.retain(|(what, name), of| {
            let gone = *what != What::Volume && !containers.iter().any(|one| **one == **name);
            !gone && !of.is_empty()
        });
        (pod.containers, pod.sum) = (said.containers, said.sum);
    }

    /// Forgets all pods but these.
    pub(super) fn keep(&self, uids: &BTreeSet<String>) {
        let mut state = self.lock();
        state.pods.retain(|uid, _| uids.contains(uid));
        state.asked.retain(|uid| uids.contains(uid));
    }

    /// Whether there is a pod of which the API was not asked yet.
    pub(super) fn has_strangers(&self) -> bool {
        let state = self.lock();
        state.pods.keys().any(|uid| !state.asked.contains(uid))
    }

    /// Enters what the API says of pods, all of which it was asked for.
    pub(super) fn enter_known(&self, known: Vec<(String, Known)>) {
        let mut state = self.lock();
        state.asked = state.pods.keys().cloned().collect();
        for (uid, known) in known {
            if let Some(pod) = state.pods.get_mut(&uid) {
                pod.known = Some(known);
            }
        }
    }

    /// Enters a figure; nothing says that there is none any more.
    pub(super) fn enter(&self, place: &Place, origin: Origin, figure: Option<Figure>) {
        let mut state = self.lock();
        match place {
            Place::Pod(uid, what, name) => {
                // A pod that has gone meanwhile does not come back.
                let Some(pod) = state.pods.get_mut(uid) else { return };
                let part = (*what, name.clone());
                pod.parts.entry(part.clone()).or_default().set(origin, figure);
                if pod.parts.get(&part).is_some_and(Figures::is_empty) {
                    pod.parts.remove(&part);
                }
            }
            Place::Loose(what, name) => {
                let part = (*what, name.clone());
                state.loose.entry(part.clone()).or_default().set(origin, figure);
                if state.loose.get(&part).is_some_and(Figures::is_empty) {
                    state.loose.remove(&part);
                }
            }
        }
    }

    /// Forgets what a source has found in places that are not among these any more.
    pub(super) fn keep_places(&self, origin: Origin, places: &BTreeSet<Place>) {
        let mut state = self.lock();
        for (uid, pod) in &mut state.pods {
            pod.parts.retain(|(what, name), of| {
                if of.has(origin) && !places.contains(&Place::Pod(uid.clone(), *what, name.clone()))
                {
                    of.set(origin, None);
                }
                !of.is_empty()
            });
        }
        state.loose.retain(|(what, name), of| {
            if of.has(origin) && !places.contains(&Place::Loose(*what, name.clone())) {
                of.set(origin, None);
            }
            !of.is_empty()
        });
    }

    /// What a source has to look at, because no cheaper one knows it or has a figure that is not old. `root` is where the
    /// file system of the host is.
    pub(super) fn targets(
        &self,
        origin: Origin,
        root: &Path,
        overlays: Vec<Overlay>,
    ) -> Vec<Target> {
        let (state, now) = (self.lock(), now());
        let mut targets = Vec::new();
        let mut of_container = BTreeMap::new();
        for (uid, pod) in &state.pods {
            let wanted = |what: What, name: &str| {
                let of = pod.parts.get(&(what, Box::from(name)));
                !of.is_some_and(|of| of.is_known_cheaper(origin, now))
            };
            let mut add = |what: What, name: &str, path: PathBuf| {
                let place = Place::Pod(uid.clone(), what, Box::from(name));
                targets.push(Target { place, path });
            };
            let logs = format!("var/log/pods/{}_{}_{uid}", pod.namespace, pod.name);
            for name in pod.containers.iter().filter(|name| wanted(What::Logs, name)) {
                add(What::Logs, name, root.join(&logs).join(name));
            }
            let Some(known) = &pod.known else { continue };
            let volumes = format!("var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir");
            for name in known.volumes.keys().filter(|name| wanted(What::Volume, name)) {
                add(What::Volume, name, root.join(&volumes).join(name));
            }
            for (id, name) in &known.running {
                of_container.insert(id.as_str(), (uid, name, wanted(What::Layer, name)));
            }
        }
        for overlay in overlays {
            let inside = overlay.upper.strip_prefix("/").unwrap_or(&overlay.upper);
            let path = root.join(inside);
            let place = match overlay.container().map(|id| (id, of_container.get(id))) {
                Some((_, Some((_, _, false)))) => continue,
                Some((_, Some((uid, name, true)))) => {
                    Place::Pod((*uid).clone(), What::Layer, Box::from(name.as_str()))
                }
                Some((id, None)) => Place::Loose(What::Layer, Box::from(id)),
                None => Place::Loose(What::Layer, Box::from(overlay.point.as_str())),
            };
            targets.push(Target { place, path });
        }
        targets.sort_by(|a, b| a.place.cmp(&b.place));
        targets.dedup_by(|a, b| a.place == b.place);
        targets
    }

    /// Makes what is known now what is shown.
    pub(super) fn settle(&self) {
        let mut state = self.lock();
        let now = now();
        let mut made = Snapshot::default();
        let State { node, disks, pods, loose, .. } = &mut *state;
        let capacity = disks.iter().find(|disk| disk.name == "node").map(|disk| disk.capacity);
        let other = self.others.then_some(Other { node: node.as_str(), capacity });
        // Of two pods of one name the one that was started later is meant.
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
        for (part, of) in loose.iter() {
            made.records[Scope::Part as usize].extend(part_record("", "", part, of, now));
        }
        for disk in disks.iter() {
            let labels = labels::rendered(&[("filesystem", disk.name)]);
            let used = disk.capacity.saturating_sub(disk.available) as f64;
            let of =
                Record { labels, used, limit: Some(disk.capacity as f64), ..Record::default() };
            if self.others && disk.name == "node" {
                let labels = labels::rendered(&[("node_name", node)]);
                made.records[Scope::OtherNode as usize].push(Record { labels, ..of.clone() });
            }
            made.records[Scope::Disk as usize].push(of);
        }
        for records in &mut made.records {
            records.sort_by(|a, b| labels::compare(&a.labels, &b.labels));
        }
        self.snapshot.store(Arc::new(made));
    }
}
