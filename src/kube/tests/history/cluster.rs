//! A cluster of a few objects, all that ever was in it, and what a scrape of each of its states says.
//!
//! Every object is a name and a number that no other state of any object has; what there is to be seen of it follows from these.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::Instant;

/// Kinds of objects, one for each way in which objects come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Metadata alone.
    ConfigMap,
    /// Outside of namespaces, as a whole.
    Node,
    /// As a whole.
    Pod,
    /// A table.
    Secret,
    /// A custom kind: JSON alone.
    Widget,
}

pub const KINDS: [Kind; 5] = [Kind::ConfigMap, Kind::Node, Kind::Pod, Kind::Secret, Kind::Widget];
/// Versions that a restore loses, at least.
const LOST: u64 = 400;
/// Versions that a server uses up when it starts.
const OWN_CHANGES: u64 = 15;
pub const NAMESPACES: [&str; 2] = ["east", "west"];

impl Kind {
    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Node => "nodes",
            Self::Pod => "pods",
            Self::Secret => "secrets",
            Self::Widget => "widgets",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::Widget => "Widget",
        }
    }

    pub fn namespaced(self) -> bool {
        self != Self::Node
    }

    /// What its lines begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::ConfigMap => "kube_configmap_",
            Self::Node => "kube_node_",
            Self::Pod => "kube_pod_",
            Self::Secret => "kube_secret_",
            Self::Widget => "widget_",
        }
    }

    /// Whose line this is.
    pub fn of_line(line: &str) -> Option<Self> {
        KINDS.into_iter().find(|kind| line.starts_with(kind.prefix()))
    }
}

/// What one list/watch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    pub kind: Kind,
    /// Empty for objects outside of namespaces.
    pub namespace: &'static str,
}

/// Every scope of objects of these kinds.
pub fn scopes(kinds: &[Kind]) -> Vec<Scope> {
    let namespaces = |kind: Kind| if kind.namespaced() { &NAMESPACES[..] } else { &[""] };
    let of = |kind| namespaces(kind).iter().map(move |namespace| Scope { kind, namespace });
    kinds.iter().copied().flat_map(of).collect()
}

/// An object as it was at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub scope: Scope,
    pub name: String,
    pub uid: String,
    /// The number that no other state has.
    pub state: u64,
    pub version: u64,
}

pub const PHASES: [&str; 5] = ["Pending", "Succeeded", "Failed", "Running", "Unknown"];

impl Object {
    pub fn phase(&self) -> &'static str {
        PHASES[self.state as usize % PHASES.len()]
    }

    pub fn is_cordoned(&self) -> bool {
        self.state % 2 == 1
    }

    pub fn secret_type(&self) -> String {
        format!("example.com/t{}", self.state)
    }

    /// What a scrape says of it, written by hand: it must not ask the one that is tried.
    fn lines(&self, out: &mut Vec<String>) {
        let Self { name, uid, state, version, .. } = self;
        let namespace = self.scope.namespace;
        match self.scope.kind {
            Kind::ConfigMap => {
                let who = format!("namespace=\"{namespace}\",configmap=\"{name}\"");
                out.push(format!("kube_configmap_labels{{{who},label_state=\"{state}\"}} 1"));
                out.push(format!("kube_configmap_metadata_resource_version{{{who}}} {version}"));
            }
            Kind::Node => {
                let cordoned = u8::from(self.is_cordoned());
                out.push(format!("kube_node_labels{{node=\"{name}\",label_state=\"{state}\"}} 1"));
                out.push(format!("kube_node_spec_unschedulable{{node=\"{name}\"}} {cordoned}"));
            }
            Kind::Pod => {
                let who = format!("namespace=\"{namespace}\",pod=\"{name}\",uid=\"{uid}\"");
                out.push(format!("kube_pod_labels{{{who},label_state=\"{state}\"}} 1"));
                for phase in PHASES {
                    let is = u8::from(phase == self.phase());
                    out.push(format!("kube_pod_status_phase{{{who},phase=\"{phase}\"}} {is}"));
                }
            }
            Kind::Secret => {
                let (kind, who) =
                    (self.secret_type(), format!("namespace=\"{namespace}\",secret=\"{name}\""));
                out.push(format!("kube_secret_labels{{{who},label_state=\"{state}\"}} 1"));
                out.push(format!("kube_secret_type{{{who},type=\"{kind}\"}} 1"));
            }
            Kind::Widget => {
                let who = format!("namespace=\"{namespace}\",name=\"{name}\",uid=\"{uid}\"");
                out.push(format!("widget_state{{{who}}} {state}"));
            }
        }
    }
}

/// What a watch tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub verb: Verb,
    pub object: Object,
}

/// The objects of one scope between two changes.
#[derive(Clone, Debug)]
pub struct Moment {
    /// From when on.
    pub since: Instant,
    /// The lines of all objects, in order.
    pub lines: Arc<[String]>,
}

type Objects = BTreeMap<(Kind, String, String), Object>;

/// The cluster, as etcd and the cache of the API server have it.
pub struct Cluster {
    pub version: u64,
    scopes: Vec<Scope>,
    objects: Objects,
    /// Since the oldest version that can be watched from.
    log: VecDeque<Change>,
    oldest: u64,
    /// States that lists go on with, by version.
    pages: BTreeMap<u64, Objects>,
    /// What there was, with versions, to go back to.
    backups: VecDeque<(u64, Objects)>,
    pub moments: BTreeMap<Scope, Vec<Moment>>,
    states: u64,
    news: watch::Sender<u64>,
}

impl Cluster {
    /// With some objects of these kinds.
    pub fn new(kinds: &[Kind], rng: &mut Rng) -> Self {
        let scopes = scopes(kinds);
        let mut cluster = Self {
            version: 1000,
            scopes: scopes.clone(),
            objects: Objects::new(),
            log: VecDeque::new(),
            oldest: 1000,
            pages: BTreeMap::new(),
            backups: VecDeque::new(),
            moments: BTreeMap::new(),
            states: 0,
            news: watch::Sender::new(0),
        };
        for scope in scopes {
            cluster.note(scope);
            (0..rng.u32(3..12)).for_each(|_| cluster.create(scope, rng));
        }
        cluster
    }

    /// Told of every change.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The objects of a kind, of one namespace or all, at a version that a list goes on with, or now.
    pub fn list(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        at: Option<u64>,
    ) -> Option<Vec<Object>> {
        let objects = match at {
            Some(version) => self.pages.get(&version)?,
            None => {
                self.pages.insert(self.version, self.objects.clone());
                &self.objects
            }
        };
        let wanted = |object: &&Object| {
            object.scope.kind == kind
                && namespace.is_none_or(|namespace| namespace == object.scope.namespace)
        };
        Some(objects.values().filter(wanted).cloned().collect())
    }

    /// What has happened since a version, `None` if that is not known any more. A version of the future is one like others:
    /// nothing is told before it has passed.
    pub fn since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let later = move |change: &&Change| change.version > version;
        (version >= self.oldest).then(|| self.log.iter().filter(later))
    }

    /// Versions so far can neither be watched from nor listed on.
    pub fn compact(&mut self) {
        self.oldest = self.version;
        self.log.clear();
        self.pages.clear();
    }

    /// Back to what there was some time ago, if it was long enough ago: more changes must have been lost than are made before
    /// anybody can look. The server makes some of its own when it starts, as servers do.
    pub fn restore(&mut self) {
        self.compact();
        let old = |(version, _): &(u64, Objects)| version + LOST <= self.version;
        let Some(at) = self.backups.iter().rposition(old) else { return };
        let Some((version, objects)) = self.backups.get(at).cloned() else { return };
        self.backups.truncate(at + 1);
        let version = version + OWN_CHANGES;
        (self.version, self.oldest, self.objects) = (version, version, objects);
        self.scopes.clone().into_iter().for_each(|scope| self.note(scope));
        self.tell();
    }

    /// What there is was kept long ago: a restore goes back to it.
    pub fn age(&mut self) {
        self.backups.push_back((self.version, self.objects.clone()));
        self.version += LOST;
    }

    /// One change to anything.
    pub fn change(&mut self, rng: &mut Rng) {
        if rng.u32(0..8) == 0 {
            self.backups.push_back((self.version, self.objects.clone()));
        }
        let scope = self.scopes[rng.usize(..self.scopes.len())];
        let names: Vec<_> =
            self.objects.iter().filter(|(_, o)| o.scope == scope).map(|(k, _)| k.clone()).collect();
        // About ten of each, none at times.
        let many = names.len() as u32;
        match rng.u32(0..30) {
            at if at + many < 20 || names.is_empty() => self.create(scope, rng),
            at if at < 22 => {
                let name = &names[rng.usize(..names.len())];
                self.update(name);
            }
            29 if rng.u32(0..3) == 0 => names.iter().for_each(|name| self.delete(name)),
            _ => {
                let name = &names[rng.usize(..names.len())];
                self.delete(name);
                if rng.bool() {
                    // Under the name of one that has just gone.
                    let (name, scope) = (name.2.clone(), scope);
                    self.put(scope, name, None, Verb::Added);
                }
            }
        }
        self.tell();
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    fn create(&mut self, scope: Scope, rng: &mut Rng) {
        let name = format!("o{}", rng.u32(0..40));
        let known = self.objects.contains_key(&key(scope, &name));
        if !known {
            self.put(scope, name, None, Verb::Added);
        }
    }

    fn update(&mut self, key: &(Kind, String, String)) {
        let Some(object) = self.objects.get(key).cloned() else { return };
        self.put(object.scope, object.name, Some(object.uid), Verb::Modified);
    }

    fn put(&mut self, scope: Scope, name: String, uid: Option<String>, verb: Verb) {
        self.version += 1;
        self.states += 1;
        let (state, version) = (self.states, self.version);
        let uid = uid.unwrap_or_else(|| format!("uid-{state}"));
        let object = Object { scope, name, uid, state, version };
        self.log.push_back(Change { version, verb, object: object.clone() });
        self.objects.insert(key(scope, &object.name), object);
        self.note(scope);
    }

    fn delete(&mut self, key: &(Kind, String, String)) {
        let Some(object) = self.objects.remove(key) else { return };
        self.version += 1;
        let object = Object { version: self.version, ..object };
        let scope = object.scope;
        self.log.push_back(Change { version: self.version, verb: Verb::Deleted, object });
        self.note(scope);
    }

    /// Notes what there is of a scope from now on.
    fn note(&mut self, scope: Scope) {
        let mut lines = Vec::new();
        let of_scope = self.objects.values().filter(|object| object.scope == scope);
        of_scope.for_each(|object| object.lines(&mut lines));
        lines.sort();
        let moments = self.moments.entry(scope).or_default();
        if moments.last().is_none_or(|last| *last.lines != *lines) {
            moments.push(Moment { since: Instant::now(), lines: lines.into() });
        }
    }
}

fn key(scope: Scope, name: &str) -> (Kind, String, String) {
    (scope.kind, scope.namespace.to_owned(), name.to_owned())
}
