//! A small simulated cluster, with all its past states and the expected scrape of each.
//!
//! An object is a name, a number that is unique to this state of it, and a status; everything that is exposed derives from
//! these.

mod jobs;
mod object;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use tokio::time::Instant;

use jobs::Jobs;

use super::accounts::{Account, Accounts};
use super::signal::{Observer, Signal};
use super::snapshot::{Owner, Snapshot};
use super::status::Status;
use crate::cache::fnv1a64;
pub use object::{Object, Subject};

/// Kinds of objects, one for each representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Received as `PartialObjectMetadata`.
    ConfigMap,
    /// The definition of a custom kind, cluster-scoped, received as a complete object, without series.
    Definition,
    /// A Kubernetes Event, received as a complete object, which has no series of its own.
    Event,
    /// Received as a complete object.
    Job,
    /// Cluster-scoped, received as a complete object.
    Node,
    /// Received as a complete object.
    Pod,
    /// Received as a table.
    Secret,
    /// A custom kind, received as JSON.
    Widget,
    /// The same objects in another version of the custom kind.
    WidgetV2,
}

/// The kinds with series of their own.
pub const KINDS: [Kind; 6] =
    [Kind::ConfigMap, Kind::Node, Kind::Pod, Kind::Secret, Kind::Widget, Kind::Job];
/// All kinds.
pub const ALL_KINDS: [Kind; 7] =
    [Kind::ConfigMap, Kind::Node, Kind::Pod, Kind::Secret, Kind::Widget, Kind::Job, Kind::Event];
/// The versions of the custom kind.
pub const VERSIONS: [Kind; 2] = [Kind::Widget, Kind::WidgetV2];
/// The further kinds of histories whose custom kind has a definition.
pub const DEFINED_KINDS: [Kind; 2] = [Kind::Definition, Kind::WidgetV2];
/// The name of the definition of the custom kind. Other definitions are for kinds without a watch.
const WIDGETS: &str = "o0";
/// The scope of definitions.
const DEFINITIONS: Scope = Scope { kind: Kind::Definition, namespace: "" };
/// The interval of bookmarks on a watch.
pub const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// The age of the versions that [`Cluster::compact_old`] keeps.
pub const KEPT_VERSIONS: Duration = Duration::from_secs(130);
/// The minimum number of versions lost in a restore.
const MIN_LOST_VERSIONS: u64 = 400;
/// The number of versions that a server uses when it starts.
const STARTUP_VERSIONS: u64 = 15;
/// The keys of taints.
const TAINTS: [&str; 3] = ["t0", "t1", "t2"];
pub const NAMESPACES: [&str; 2] = ["east", "west"];

impl Kind {
    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Definition => "customresourcedefinitions",
            Self::Event => "events",
            Self::Job => "jobs",
            Self::Node => "nodes",
            Self::Pod => "pods",
            Self::Secret => "secrets",
            Self::Widget | Self::WidgetV2 => "widgets",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Definition => "CustomResourceDefinition",
            Self::Event => "Event",
            Self::Job => "Job",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::Widget | Self::WidgetV2 => "Widget",
        }
    }

    pub fn api_version(self) -> &'static str {
        match self {
            Self::Job => "batch/v1",
            Self::Definition => "apiextensions.k8s.io/v1",
            Self::Widget => "example.com/v1",
            Self::WidgetV2 => "example.com/v2",
            _ => "v1",
        }
    }

    pub fn namespaced(self) -> bool {
        !matches!(self, Self::Definition | Self::Node)
    }

    /// Returns the kind whose objects it shows.
    pub fn stored(self) -> Self {
        if self == Self::WidgetV2 { Self::Widget } else { self }
    }

    /// Returns true if the ledger counts what happens to objects of this kind.
    pub fn has_account(self) -> bool {
        matches!(self, Self::Event | Self::Job | Self::Node | Self::Pod)
    }

    /// Returns the prefix of its series.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::ConfigMap => "kube_configmap_",
            Self::Definition => "kube_customresourcedefinition_",
            Self::Event => "kube_event_",
            Self::Job => "kube_job_",
            Self::Node => "kube_node_",
            Self::Pod => "kube_pod_",
            Self::Secret => "kube_secret_",
            Self::Widget => "widget_",
            Self::WidgetV2 => "v2_widget_",
        }
    }

    /// Returns the kind that a series belongs to.
    pub fn of_line(line: &str) -> Option<Self> {
        let kinds = KINDS.into_iter().chain([Self::WidgetV2]);
        kinds.into_iter().find(|kind| line.starts_with(kind.prefix()))
    }
}

/// The subject of one list/watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    pub kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub namespace: &'static str,
}

/// Returns every scope of these kinds.
pub fn scopes(kinds: &[Kind]) -> Vec<Scope> {
    let namespaces = |kind: Kind| if kind.namespaced() { &NAMESPACES[..] } else { &[""] };
    let of = |kind| namespaces(kind).iter().map(move |namespace| Scope { kind, namespace });
    kinds.iter().copied().flat_map(of).collect()
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub event_type: EventType,
    pub object: Object,
}

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ObjectKey {
    kind: Kind,
    namespace: String,
    name: String,
}

type Objects = BTreeMap<ObjectKey, Object>;

/// The state at one version.
#[derive(Clone)]
struct Backup {
    version: u64,
    objects: Objects,
}

/// The average number of changes from one burst to the next.
const BURST: u32 = 15;

/// The number of objects of a scope from which on a burst deletes some.
const FULL_SCOPE: usize = 40;

/// The largest number of objects that a burst creates.
const MAX_BURST: usize = 110;

/// The time within which each list/watch has noticed a restore.
const RESTORE_NOTICED: Duration = Duration::from_secs(60);

/// The cluster as seen by etcd and the watch cache of the API server.
pub struct Cluster {
    pub version: u64,
    scopes: Vec<Scope>,
    objects: Objects,
    /// The changes since the oldest version that can be watched from.
    log: VecDeque<Change>,
    compacted: u64,
    /// The versions of changes with their times.
    versions: Vec<(Instant, u64)>,
    /// The states at the versions of continue tokens.
    pages: BTreeMap<u64, Objects>,
    /// Past states with their versions, for restores.
    backups: VecDeque<Backup>,
    pub snapshots: BTreeMap<Scope, Vec<Snapshot>>,
    /// What has happened to pods and nodes.
    pub accounts: Accounts,
    last_state: u64,
    changes: Signal,
    /// Determines the [bursts](Self::burst), which one of eight histories has: they take several times as long.
    bursts: Option<Rng>,
    /// Determines the new pods with Events about them, which one of two histories has.
    new_pods: Option<Rng>,
    /// Determines the [upgrades](Self::upgrade_definition).
    upgrades: Rng,
    /// The time of the last restore from a backup.
    restored: Option<Instant>,
    jobs: Jobs,
}

impl Cluster {
    /// Creates a cluster with a few objects of these kinds.
    pub fn new(kinds: &[Kind], rng: &mut Rng) -> Self {
        Self::after(1000, 0, kinds, rng)
    }

    /// Creates another cluster, whose versions are lower than those of this one, and which has none of its objects. The states of
    /// this one count as earlier states.
    pub fn successor(&self, kinds: &[Kind], rng: &mut Rng) -> Self {
        let mut successor = Self::after(10, self.last_state, kinds, rng);
        for (scope, snapshots) in &self.snapshots {
            let later = successor.snapshots.remove(scope).unwrap_or_default();
            successor.snapshots.insert(*scope, [&snapshots[..], &later].concat());
        }
        successor
    }

    /// Creates a cluster with versions and states after these.
    fn after(version: u64, last_state: u64, kinds: &[Kind], rng: &mut Rng) -> Self {
        let scopes = scopes(kinds);
        let mut cluster = Self {
            version,
            scopes: scopes.clone(),
            objects: Objects::new(),
            log: VecDeque::new(),
            compacted: version,
            versions: Vec::new(),
            pages: BTreeMap::new(),
            backups: VecDeque::new(),
            snapshots: BTreeMap::new(),
            accounts: Accounts::default(),
            last_state,
            changes: Signal::default(),
            bursts: None,
            new_pods: None,
            upgrades: Rng::with_seed(rng.get_seed() ^ 0x7137_4491_23ef_65cd),
            restored: None,
            jobs: Jobs::default(),
        };
        for scope in scopes {
            cluster.record(scope);
            if scope.kind == scope.kind.stored() {
                (0..rng.u32(3..12)).for_each(|_| cluster.create(scope, rng));
            }
        }
        let mut bursts = Rng::with_seed(rng.get_seed() ^ 0x510e_527f_ade6_82d1);
        cluster.bursts = (bursts.u32(0..8) == 0).then_some(bursts);
        let mut new_pods = Rng::with_seed(rng.get_seed() ^ 0x3956_c25b_f348_b538);
        cluster.new_pods = new_pods.bool().then_some(new_pods);
        (0..60).for_each(|_| cluster.report(rng));
        cluster.accounts.begin();
        cluster
    }

    /// Returns true if the server serves a kind: a version of the custom one needs a definition, in histories with these.
    pub fn serves(&self, kind: Kind) -> bool {
        let is_defined = VERSIONS.contains(&kind) && self.snapshots.contains_key(&DEFINITIONS);
        !is_defined || self.definition().is_some_and(|object| object.serves(kind))
    }

    /// Returns the definition of the custom kind, if there is one.
    pub fn definition(&self) -> Option<&Object> {
        self.objects.get(&key(DEFINITIONS, WIDGETS))
    }

    /// Returns the time in seconds of 2026, which is the number of the last state.
    pub fn second(&self) -> u64 {
        self.last_state
    }

    /// Returns the present objects of a kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        self.objects.values().filter(move |object| object.scope.kind == kind)
    }

    /// Returns true if it creates many objects at once at times.
    pub fn has_bursts(&self) -> bool {
        self.bursts.is_some()
    }

    /// Returns an observer of all later changes.
    pub fn observe(&self) -> Observer {
        self.changes.observe()
    }

    /// Returns the objects of a kind, in one namespace or all, now or at the version of a continue token.
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
            object.scope.kind == kind.stored()
                && namespace.is_none_or(|namespace| namespace == object.scope.namespace)
        };
        let object = |object: &Object| object.clone().shown_as(kind);
        Some(objects.values().filter(wanted).map(object).collect())
    }

    /// Returns the version of an earlier state, as the cache of an API server may have, if there is one that a watch can
    /// continue from.
    pub fn cached(&mut self) -> Option<u64> {
        let can_be_watched =
            |backup: &&Backup| (self.compacted..self.version).contains(&backup.version);
        let cached = self.backups.iter().rev().find(can_be_watched)?;
        self.pages.insert(cached.version, cached.objects.clone());
        Some(cached.version)
    }

    /// Returns the changes since a version, or `None` if it has been compacted. A future version is valid: its watch is
    /// silent until the cluster passes it.
    pub fn changes_since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let later = move |change: &&Change| change.version > version;
        (version >= self.compacted).then(|| self.log.iter().filter(later))
    }

    /// Sometimes changes which versions of the custom kind are served. No watch reports it if a compaction follows.
    pub fn upgrade_definition(&mut self) {
        let definition = key(DEFINITIONS, WIDGETS);
        let mut rng = self.upgrades.fork();
        if self.objects.contains_key(&definition) && rng.bool() {
            self.update(&definition, &mut rng);
            self.notify();
        }
    }

    /// Compacts all versions so far: they can no longer be watched from or listed.
    pub fn compact(&mut self) {
        self.compacted = self.version;
        self.log.clear();
        self.pages.clear();
    }

    /// Compacts the versions that no watch needs any more, if there was no fault since: each had a bookmark since it was
    /// opened, and it was opened at most one bookmark earlier.
    pub fn compact_old(&mut self) {
        let known = Instant::now().checked_sub(KEPT_VERSIONS);
        let is_old = |(at, _): &&(Instant, u64)| known.is_some_and(|known| *at <= known);
        let old = self.versions.iter().rev().find(is_old).map(|(_, version)| *version);
        self.compacted = self.compacted.max(old.unwrap_or_default().min(self.version));
        self.log.retain(|change| change.version > self.compacted);
        self.pages.retain(|version, _| *version > self.compacted);
    }

    /// Restores a backup, if there is an old enough one: more changes must be lost than are made before the next
    /// request. Like a real server, it makes a few changes when it starts.
    pub fn restore(&mut self) {
        self.compact();
        let is_old = |backup: &Backup| backup.version + MIN_LOST_VERSIONS <= self.version;
        let Some(at) = self.backups.iter().rposition(is_old) else { return };
        let Some(Backup { version, objects }) = self.backups.get(at).cloned() else { return };
        self.backups.truncate(at + 1);
        let version = version + STARTUP_VERSIONS;
        self.accounts.restore(objects.values());
        (self.version, self.compacted, self.objects) = (version, version, objects);
        self.versions.clear();
        self.restored = Some(Instant::now());
        self.scopes.clone().into_iter().for_each(|scope| self.record(scope));
        self.notify();
    }

    /// Makes the current state a backup that a restore can return to.
    pub fn add_backup(&mut self) {
        self.backups.push_back(Backup { version: self.version, objects: self.objects.clone() });
        self.version += MIN_LOST_VERSIONS;
    }

    /// Makes one random change.
    pub fn change(&mut self, rng: &mut Rng) {
        if rng.u32(0..8) == 0 {
            self.backups.push_back(Backup { version: self.version, objects: self.objects.clone() });
        }
        let scope = self.scopes[rng.usize(..self.scopes.len())];
        let scope = Scope { kind: scope.kind.stored(), ..scope };
        if scope.kind == Kind::Definition {
            self.change_definition(scope, rng);
            return self.notify();
        }
        // Nobody can create or change objects of a kind that is not served.
        if scope.kind == Kind::Widget && !VERSIONS.iter().any(|kind| self.serves(*kind)) {
            return;
        }
        let keys: Vec<_> =
            self.objects.iter().filter(|(_, o)| o.scope == scope).map(|(k, _)| k.clone()).collect();
        // About ten objects per scope, sometimes none.
        let count = keys.len() as u32;
        match rng.u32(0..30) {
            at if at + count < 20 || keys.is_empty() => self.create(scope, rng),
            at if at < 22 => {
                let key = &keys[rng.usize(..keys.len())];
                self.update(key, rng);
            }
            29 if rng.u32(0..3) == 0 => keys.iter().for_each(|key| self.delete(key)),
            _ => {
                let key = &keys[rng.usize(..keys.len())];
                self.delete(key);
                if rng.bool() {
                    // A new object with the name of the deleted one.
                    self.add(scope, key.name.clone(), rng);
                }
            }
        }
        if rng.bool() {
            self.report(rng);
        }
        self.burst();
        self.notify();
    }

    /// Deletes about half of the objects of the kinds that nothing else depends on.
    pub fn thin_out(&mut self, rng: &mut Rng) {
        let is_independent =
            |key: &&ObjectKey| matches!(key.kind, Kind::ConfigMap | Kind::Secret | Kind::Widget);
        let chosen = self.objects.keys().filter(is_independent).filter(|_| rng.bool());
        let chosen: Vec<ObjectKey> = chosen.cloned().collect();
        chosen.iter().for_each(|key| self.delete(key));
        self.notify();
    }

    /// Sometimes creates or deletes many objects of one scope at once, so that they fill several pages of the cache, or few
    /// remain in each.
    fn burst(&mut self) {
        let Some(bursts) = &mut self.bursts else { return };
        let scopes = self.scopes.iter().filter(|scope| scope.kind == Kind::ConfigMap);
        let scopes: Vec<Scope> = scopes.copied().collect();
        // A server that makes as many changes as it has lost before it is asked again cannot be recognised.
        let is_unnoticed = self.restored.is_some_and(|at| at.elapsed() < RESTORE_NOTICED);
        if scopes.is_empty() || bursts.u32(0..BURST) > 0 || is_unnoticed {
            return;
        }
        let mut rng = bursts.fork();
        let scope = scopes[rng.usize(..scopes.len())];
        let of_scope = self.objects.iter().filter(|(_, object)| object.scope == scope);
        let mut keys: Vec<ObjectKey> = of_scope.map(|(key, _)| key.clone()).collect();
        rng.shuffle(&mut keys);
        if keys.len() > FULL_SCOPE {
            let kept = rng.usize(..keys.len() / 2);
            keys[kept..].iter().for_each(|key| self.delete(key));
            return;
        }
        let mut numbers: Vec<usize> = (0..MAX_BURST).collect();
        rng.shuffle(&mut numbers);
        for number in &numbers[..rng.usize(FULL_SCOPE..MAX_BURST)] {
            let name = format!("b{number}");
            if !self.objects.contains_key(&key(scope, &name)) {
                self.add(scope, name, &mut rng);
            }
        }
    }

    /// Adds, changes or deletes a definition, which deletes its objects before.
    fn change_definition(&mut self, scope: Scope, rng: &mut Rng) {
        if rng.u32(0..3) > 0 {
            return;
        }
        let name = if rng.bool() { WIDGETS.to_owned() } else { format!("o{}", rng.u32(1..4)) };
        let key = key(scope, &name);
        match self.objects.contains_key(&key) {
            false => self.add(scope, name, rng),
            true if rng.u32(0..3) > 0 => self.update(&key, rng),
            true => {
                let is_widget = |key: &&ObjectKey| name == WIDGETS && key.kind == Kind::Widget;
                let widgets: Vec<_> = self.objects.keys().filter(is_widget).cloned().collect();
                widgets.iter().for_each(|widget| self.delete(widget));
                self.delete(&key);
            }
        }
    }

    /// Lets the kubelet of a random pod report its status.
    fn report(&mut self, rng: &mut Rng) {
        let pods = self.objects.keys().filter(|key| key.kind == Kind::Pod);
        let pods: Vec<ObjectKey> = pods.cloned().collect();
        if !pods.is_empty() {
            self.update(&pods[rng.usize(..pods.len())], rng);
        }
    }

    fn notify(&mut self) {
        self.versions.push((Instant::now(), self.version));
        self.changes.announce();
    }

    fn create(&mut self, scope: Scope, rng: &mut Rng) {
        let names = if scope.kind == Kind::Definition { 4 } else { 40 };
        let name = format!("o{}", rng.u32(0..names));
        let known = self.objects.contains_key(&key(scope, &name));
        if !known {
            self.add(scope, name, rng);
        }
    }

    /// Returns an object that an Event of a namespace is about: one of the cluster, or a custom one that only its pods
    /// name. It may be gone.
    fn subject(&self, namespace: &str, rng: &mut Rng) -> Arc<Subject> {
        let is_gone = rng.u32(0..6) == 0;
        let kind = [Kind::Pod, Kind::Pod, Kind::Job, Kind::Node][rng.usize(..4)];
        let of_namespace = |account: &Account| {
            let scope = account.object.scope;
            account.is_present != is_gone && (scope.namespace == namespace || kind == Kind::Node)
        };
        let all = self.accounts.of_kind(kind).map(|(_, account)| account);
        let known: Vec<&Account> = all.filter(|account| of_namespace(account)).collect();
        let chosen = (!known.is_empty() && rng.u32(0..6) > 0).then(|| rng.usize(..known.len()));
        match chosen.map(|at| &known[at].object) {
            Some(object) => object.as_subject(),
            None => {
                let name = format!("web{}", rng.u32(0..3));
                Arc::new(Subject { kind: "Rollout", uid: format!("owner-{name}"), name })
            }
        }
    }

    /// Changes an object. A kubelet or controller reports what it knows, whatever the server has forgotten.
    fn update(&mut self, key: &ObjectKey, rng: &mut Rng) {
        let Some(object) = self.objects.get(key).cloned() else { return };
        let known = self.accounts.get(&object.uid).map(|account| &account.status);
        let mut status = Status::clone(known.unwrap_or(&object.status));
        status.evolve(key.kind, self.last_state + 1, rng);
        status.report_over(&object.status, self.last_state + 1);
        self.put(Object { status: status.into(), ..object }, EventType::Modified);
    }

    /// Adds an object with a new UID.
    fn add(&mut self, scope: Scope, name: String, rng: &mut Rng) {
        let subject = match scope.kind {
            Kind::Event => Some(self.subject(scope.namespace, rng)),
            _ => self.job_of(scope, &name, rng),
        };
        self.add_of(scope, name.clone(), subject);
        if scope.kind == Kind::Pod {
            self.add_events_of_new_pod(&key(scope, &name));
        }
    }

    /// Adds Events about a pod that was just created, in some histories. A watcher of both kinds may see these first.
    fn add_events_of_new_pod(&mut self, pod: &ObjectKey) {
        let Some(pod) = self.objects.get(pod) else { return };
        let (events, subject) = (Scope { kind: Kind::Event, ..pod.scope }, pod.as_subject());
        // A server that makes as many changes as it has lost before it is asked again cannot be recognised.
        let is_unnoticed = self.restored.is_some_and(|at| at.elapsed() < RESTORE_NOTICED);
        let Some(rng) = &mut self.new_pods else { return };
        if rng.bool() || is_unnoticed || !self.scopes.contains(&events) {
            return;
        }
        for name in [rng.u32(0..40), rng.u32(0..40)].map(|number| format!("o{number}")) {
            if !self.objects.contains_key(&key(events, &name)) {
                self.add_of(events, name, Some(Arc::clone(&subject)));
            }
        }
    }

    /// Adds an object that is about another one, or belongs to it.
    fn add_of(&mut self, scope: Scope, name: String, subject: Option<Arc<Subject>>) {
        let (uid, status) = (format!("uid-{}", self.last_state + 1), Arc::default());
        let object = Object { scope, name, uid, state: 0, version: 0, status, subject };
        let status = Status::new(scope.kind, object.containers().len(), self.last_state + 1);
        let object = Object { status: status.into(), ..object };
        let job = (scope.kind == Kind::Job).then(|| object.clone());
        self.put(object, EventType::Added);
        if let Some(job) = job {
            self.start_job(&job);
        }
    }

    fn put(&mut self, object: Object, event_type: EventType) {
        self.version += 1;
        self.last_state += 1;
        let (state, version, scope) = (self.last_state, self.version, object.scope);
        let object = Object { state, version, ..object };
        self.accounts.put(&object);
        self.log.push_back(Change { version, event_type, object: object.clone() });
        self.objects.insert(key(scope, &object.name), object);
        self.record(scope);
    }

    /// Deletes all objects of a kind.
    pub fn empty(&mut self, kind: Kind) {
        let all = self.objects.iter().filter(|(_, object)| object.scope.kind == kind);
        let keys: Vec<_> = all.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.delete(key));
        self.notify();
    }

    fn delete(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.remove(key) else { return };
        self.version += 1;
        let object = Object { version: self.version, ..object };
        self.accounts.remove(&object);
        let scope = object.scope;
        self.log.push_back(Change {
            version: self.version,
            event_type: EventType::Deleted,
            object,
        });
        self.record(scope);
    }

    /// Records the current state of a scope.
    fn record(&mut self, scope: Scope) {
        let other = Scope { kind: Kind::WidgetV2, ..scope };
        if scope.kind == Kind::Widget && self.scopes.contains(&other) {
            self.record(other);
        }
        let stored = Scope { kind: scope.kind.stored(), ..scope };
        let of_scope = self.objects.values().filter(|object| object.scope == stored);
        let lines = of_scope.flat_map(|object| {
            let mut lines = Vec::new();
            object.clone().shown_as(scope.kind).lines(&mut lines);
            let owner = Owner { uid: fnv1a64(object.uid.as_bytes()), ended: object.ended() };
            lines.into_iter().map(move |line| (line, owner))
        });
        let snapshots = self.snapshots.entry(scope).or_default();
        let snapshot = Snapshot::new(lines.collect());
        if snapshots.last().is_none_or(|last| last.lines != snapshot.lines) {
            snapshots.push(snapshot);
        }
    }
}

fn key(scope: Scope, name: &str) -> ObjectKey {
    ObjectKey { kind: scope.kind, namespace: scope.namespace.to_owned(), name: name.to_owned() }
}
