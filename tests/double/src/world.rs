//! The current objects, the log of their changes, and the snapshots for paged lists.
//!
//! An object is stored as a few numbers ([`Item`]) and encoded whenever it is read, so that 100,000 pods take
//! megabytes. Versions are shared by all kinds, as in etcd. Independent of HTTP.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::encode::Encoding;
use super::envelope;
use super::kinds::{self, Kind, Name};
use super::layout::Item;
use super::source::Source;
use crate::api::{APIS, Api, DEFINITIONS};

/// The version before the first object's, with as many digits as in a real cluster.
const FIRST_VERSION: u64 = 100_000_000;
/// Snapshots for continued lists, for each kind.
const SNAPSHOTS: usize = 8;

/// The whole cluster.
pub struct World {
    /// The source of its objects.
    pub source: Source,
    version: AtomicU64,
    changes: AtomicU64,
    delivered: AtomicU64,
    history: usize,
    collections: Vec<Arc<Collection>>,
}

/// The objects of one resource.
pub struct Collection {
    /// Their API location.
    pub api: &'static Api,
    kind: Option<&'static Kind>,
    state: Mutex<State>,
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    items: BTreeMap<String, Item>,
    log: VecDeque<Arc<Change>>,
    /// The newest version whose change is no longer in the log.
    forgotten: u64,
    snapshots: VecDeque<Arc<Snapshot>>,
}

/// All objects of a resource at one version.
pub struct Snapshot {
    /// The version.
    pub version: u64,
    /// The objects in the order of their names.
    pub items: Vec<Item>,
}

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was deleted.
    Deleted,
}

impl ChangeKind {
    /// Returns the `type` of the watch event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of an object.
pub struct Change {
    /// Its version.
    pub version: u64,
    /// The type.
    pub kind: ChangeKind,
    /// The object after the change, or its last state if it was deleted.
    pub item: Item,
    /// The object before the change.
    pub before: Option<Item>,
    frames: [OnceLock<Bytes>; 2],
}

impl World {
    /// Creates the cluster of this source; watches can start from the last `history` changes of each resource.
    pub fn new(source: Source, history: usize) -> Self {
        let mut version = FIRST_VERSION;
        let new = |api| Arc::new(Collection::new(api, &source, &mut version));
        let collections: Vec<_> = APIS.iter().chain([&DEFINITIONS]).map(new).collect();
        for collection in &collections {
            collection.lock().forgotten = version;
            collection.newest.send_replace(version);
        }
        Self {
            source,
            version: AtomicU64::new(version),
            changes: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            history,
            collections,
        }
    }

    /// Returns the objects of a resource.
    pub fn collection(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Option<&Arc<Collection>> {
        self.collections.iter().find(|collection| {
            let api = collection.api;
            (api.group, api.version, api.name) == (group, version, resource)
        })
    }

    /// Returns the objects of a resource in any group.
    pub fn named(&self, resource: &str) -> Option<&Arc<Collection>> {
        self.collections.iter().find(|collection| collection.api.name == resource)
    }

    /// Returns the objects of all resources.
    pub fn collections(&self) -> &[Arc<Collection>] {
        &self.collections
    }

    /// Returns the newest version.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the number of objects of all kinds.
    pub fn objects(&self) -> usize {
        self.collections.iter().map(|collection| collection.lock().items.len()).sum()
    }

    /// Returns the number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the number of objects sent in lists and as initial events.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Counts objects that are being sent.
    pub fn count_delivered(&self, objects: u64) {
        self.delivered.fetch_add(objects, Ordering::Relaxed);
    }

    /// Creates an object, or updates the one of that name.
    pub fn put(&self, collection: &Collection, mut item: Item) {
        let mut state = collection.lock();
        item.resource_version = self.next_version();
        let before = state.items.insert(collection.key(&self.source, &item), item);
        let change = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.log(collection, state, change, item, before);
    }

    /// Deletes the object with the name of `item`, if it exists.
    pub fn delete(&self, collection: &Collection, item: &Item) {
        let mut state = collection.lock();
        if let Some(before) = state.items.remove(&collection.key(&self.source, item)) {
            let item = Item { resource_version: self.next_version(), ..before };
            self.log(collection, state, ChangeKind::Deleted, item, Some(before));
        }
    }

    /// Returns the object with the name of `item`.
    pub fn get(&self, collection: &Collection, item: &Item) -> Option<Item> {
        let name = collection.key(&self.source, item);
        collection.lock().items.get(&name).copied()
    }

    /// Forgets all changes and snapshots: continue tokens and old versions are answered with 410.
    pub fn forget(&self) {
        for collection in &self.collections {
            let mut state = collection.lock();
            state.log.clear();
            state.snapshots.clear();
            state.forgotten = self.next_version();
            collection.newest.send_replace(state.forgotten);
        }
    }

    /// Versions increase under the lock of their collection, so a snapshot of a collection at the newest version
    /// contains every change up to it.
    fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn log(
        &self,
        collection: &Collection,
        mut state: MutexGuard<'_, State>,
        kind: ChangeKind,
        item: Item,
        before: Option<Item>,
    ) {
        let version = item.resource_version;
        let frames = [OnceLock::new(), OnceLock::new()];
        state.log.push_back(Arc::new(Change { version, kind, item, before, frames }));
        if state.log.len() > self.history
            && let Some(old) = state.log.pop_front()
        {
            state.forgotten = old.version;
        }
        drop(state);
        self.changes.fetch_add(1, Ordering::Relaxed);
        collection.newest.send_replace(version);
    }

    /// Returns a snapshot of all objects. Calls without a change in between share one snapshot.
    pub fn snapshot(&self, collection: &Collection) -> Arc<Snapshot> {
        let mut state = collection.lock();
        let version = self.version();
        let newest = *collection.newest.borrow();
        if let Some(last) = state.snapshots.back()
            && last.version >= newest
        {
            return Arc::clone(last);
        }
        let items = state.items.values().copied().collect();
        let snapshot = Arc::new(Snapshot { version, items });
        state.snapshots.push_back(Arc::clone(&snapshot));
        if state.snapshots.len() > SNAPSHOTS {
            state.snapshots.pop_front();
        }
        snapshot
    }
}

impl Collection {
    fn new(api: &'static Api, source: &Source, version: &mut u64) -> Self {
        let (state, newest) = (Mutex::default(), watch::Sender::new(0));
        let collection = Self { api, kind: kinds::find(api.name), state, newest };
        let mut state = collection.lock();
        for mut item in source.items(api.name, collection.kind) {
            *version += 1;
            item.resource_version = *version;
            let mut name = collection.key(source, &item);
            // Two random suffixes may be equal.
            while state.items.contains_key(&name) {
                item.incarnation += 1;
                name = collection.key(source, &item);
            }
            state.items.insert(name, item);
        }
        drop(state);
        collection
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the items in the order of their names.
    pub fn items(&self) -> Vec<Item> {
        self.lock().items.values().copied().collect()
    }

    /// Returns the snapshot of this version, if it is still kept.
    pub fn snapshot_at(&self, version: u64) -> Option<Arc<Snapshot>> {
        self.lock().snapshots.iter().find(|snapshot| snapshot.version == version).cloned()
    }

    /// Returns up to `limit` changes after `version`; `None` if some of them are forgotten.
    pub fn changes_after(&self, version: u64, limit: usize) -> Option<Vec<Arc<Change>>> {
        let state = self.lock();
        if version < state.forgotten {
            return None;
        }
        let first = state.log.partition_point(|change| change.version <= version);
        Some(state.log.range(first..).take(limit).cloned().collect())
    }

    /// Returns a receiver for the version of each change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Appends an object. With `type_meta`, JSON has `kind` and `apiVersion`.
    pub fn encode(
        &self,
        source: &Source,
        item: &Item,
        encoding: Encoding,
        type_meta: bool,
        out: &mut Vec<u8>,
    ) {
        let api_version = api_version(self.api);
        let type_meta = type_meta.then_some((self.api.kind, api_version.as_str()));
        source.encode(self.kind, item, encoding, type_meta, out);
    }

    /// Returns namespace and name of an object.
    pub fn name<'a>(&self, source: &'a Source, item: &Item) -> Name<'a> {
        source.name(self.kind, item)
    }

    /// Returns the sort key of an object.
    pub fn key(&self, source: &Source, item: &Item) -> String {
        let name = self.name(source, item);
        match name.namespace {
            Some(namespace) => format!("{namespace}/{}", name.name),
            None => name.name,
        }
    }

    /// Returns the watch event of a change as sent to all watches without a selector; encoded on the first call.
    pub fn frame(&self, source: &Source, change: &Change, encoding: Encoding) -> Bytes {
        let [protobuf, json] = &change.frames;
        let cell = if encoding == Encoding::Protobuf { protobuf } else { json };
        let frame = cell.get_or_init(|| {
            let mut out = Vec::new();
            self.event(source, change.kind.name(), &change.item, encoding, &mut out);
            Bytes::from(out)
        });
        frame.clone()
    }

    /// Appends a watch event about an object.
    pub fn event(
        &self,
        source: &Source,
        kind: &str,
        item: &Item,
        encoding: Encoding,
        out: &mut Vec<u8>,
    ) {
        let mut object = Vec::with_capacity(16 * 1024);
        self.encode(source, item, encoding, true, &mut object);
        envelope::event(out, encoding, kind, &api_version(self.api), self.api.kind, &object);
    }
}

/// Returns `group/version` as in objects.
pub fn api_version(api: &Api) -> String {
    match api.group {
        "" => api.version.to_owned(),
        group => format!("{group}/{}", api.version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    fn world() -> World {
        World::new(Source::Synthetic(Box::new(Layout::new(60, 1, 1_800_000_000))), 3)
    }

    #[test]
    fn changes_are_told_until_they_are_forgotten() {
        let world = world();
        let pods = world.named("pods").unwrap();
        let start = world.version();
        let item = pods.items()[0];
        for _ in 0..3 {
            world.put(pods, item);
        }
        let versions = |list: Vec<Arc<Change>>| -> Vec<u64> {
            list.iter().map(|change| change.version - start).collect()
        };
        assert_eq!(versions(pods.changes_after(start, 9).unwrap()), [1, 2, 3]);
        assert_eq!(versions(pods.changes_after(start + 1, 1).unwrap()), [2]);
        world.delete(pods, &item);
        assert!(pods.changes_after(start, 9).is_none());
        let left = pods.changes_after(start + 1, 9).unwrap();
        assert_eq!(left.last().unwrap().kind, ChangeKind::Deleted);
        assert_eq!(left.last().unwrap().item.resource_version, start + 4);
        assert_eq!(pods.items().len(), 59);
        world.forget();
        assert!(pods.changes_after(start + 4, 9).is_none());
    }

    #[test]
    fn snapshots_stay_as_they_were() {
        let world = world();
        let pods = world.named("pods").unwrap();
        let first = world.snapshot(pods);
        assert!(Arc::ptr_eq(&first, &world.snapshot(pods)));
        world.delete(pods, &first.items[0]);
        let second = world.snapshot(pods);
        assert_eq!((first.items.len(), second.items.len()), (60, 59));
        assert_eq!(second.version, first.version + 1);
        assert_eq!(pods.snapshot_at(first.version).unwrap().items.len(), 60);
        world.forget();
        assert!(pods.snapshot_at(first.version).is_none());
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let encode = |world: &World| {
            let pods = world.named("pods").unwrap();
            let mut out = Vec::new();
            for item in pods.items() {
                pods.encode(&world.source, &item, Encoding::Protobuf, false, &mut out);
            }
            out
        };
        assert!(encode(&world()) == encode(&world()));
    }
}
