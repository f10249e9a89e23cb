//! Objects that move between shards: gained objects stay hidden and lost objects stay visible until the switch.
//!
//! While the shard of a process changes, it follows the objects of the old and of the new shard. Gained objects are
//! rendered and kept aside, so that all of them become visible at once. Lost objects are found in the store by the hashes
//! of their UIDs, so that all of them disappear at once. [`resharding`](crate::kube::resharding) chooses both moments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cache::{ObjectView, Rendered, Replacement, Store};
use crate::exposition::escape;
use crate::kube::observer::ObjectSeries;
use crate::kube::shard::{Ownership, Shard};

#[cfg(test)]
mod tests;

/// The hidden objects of one state: gained by the new shard, but not visible yet.
#[derive(Debug, Default)]
pub(crate) struct PendingTransfer {
    gained: HashMap<Vec<u8>, Rendered>,
    /// The number of series of the hidden objects.
    series: u64,
}

impl PendingTransfer {
    /// Adds an object to the state being collected, hidden if it is gained.
    pub(crate) fn collect(
        &mut self,
        ownership: Ownership,
        object: &Rendered,
        state: &mut Replacement,
    ) {
        match ownership {
            Ownership::Gained => self.gain(object),
            Ownership::Kept | Ownership::Lost | Ownership::Foreign => state.push(object),
        }
    }

    fn gain(&mut self, object: &Rendered) {
        let old = self.gained.insert(object.uid.clone(), object.clone());
        self.series += u64::from(object.series);
        self.series -= old.map_or(0, |old| u64::from(old.series));
    }

    /// Removes all hidden objects and returns those that belong to the shard.
    fn take(&mut self, shard: Shard) -> impl Iterator<Item = Rendered> {
        self.series = 0;
        let gained = std::mem::take(&mut self.gained).into_iter();
        gained.filter(move |(uid, _)| shard.keeps(uid)).map(|(_, object)| object)
    }

    /// Removes an object, if it is hidden.
    pub(crate) fn forget(&mut self, uid: &[u8]) {
        self.series -= self.gained.remove(uid).map_or(0, |old| u64::from(old.series));
    }

    /// Returns whether there are no hidden objects.
    pub(crate) fn is_empty(&self) -> bool {
        self.gained.is_empty()
    }

    /// Returns the number of series of the hidden objects.
    pub(crate) fn series(&self) -> u64 {
        self.series
    }

    /// Calls `see` with the object with this UID, if it is hidden.
    pub(crate) fn look(&self, uid: &[u8], see: impl FnOnce(ObjectView<'_>)) {
        if let Some(object) = self.gained.get(uid) {
            see(ObjectView::from(object));
        }
    }

    /// Calls `see` with each hidden object.
    pub(crate) fn each(&self, mut see: impl FnMut(ObjectView<'_>)) {
        self.gained.values().for_each(|object| see(ObjectView::from(object)));
    }

    /// Returns whether the object is hidden.
    pub(crate) fn hides(&self, uid: &[u8]) -> bool {
        self.gained.contains_key(uid)
    }

    /// Returns the number of hidden objects.
    pub(crate) fn hidden(&self) -> usize {
        self.gained.len()
    }
}

/// The series of the objects of a list/watch, visible and hidden.
pub(crate) struct ScopeSeries {
    /// The namespace; empty for all namespaces.
    pub(crate) namespace: String,
    pub(crate) store: Arc<Store>,
    pub(crate) handover: Arc<Handover>,
}

impl ObjectSeries for ScopeSeries {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn relabel(&self, uid: &[u8], namespace: &str, labels: &[u8]) {
        if let Some(hidden) = self.handover.lock().pending.gained.get_mut(uid) {
            if let Some(identity) = relabelled(&hidden.identity, uid, labels) {
                hidden.identity = identity;
            }
            return;
        }
        let families = self.store.schema().families.len();
        let object = self.store.look(uid, |view| {
            let identity = relabelled(view.identity(), uid, labels)?;
            let series = u32::try_from(view.series()).unwrap_or(u32::MAX);
            let (uid, namespace) = (uid.to_vec(), namespace.as_bytes().to_vec());
            let mut object = Rendered { uid, namespace, identity, series, ..Rendered::default() };
            for family in 0..families {
                object.lines.extend_from_slice(view.family(family));
                object.ends.push(u32::try_from(object.lines.len()).unwrap_or(u32::MAX));
            }
            Some(object)
        });
        if let Some(object) = object.flatten() {
            self.store.apply(&object);
        }
    }
}

/// Returns an identity with other labels after the UID, which is the last identity label of an object; `None` if it has
/// them already.
fn relabelled(identity: &[u8], uid: &[u8], labels: &[u8]) -> Option<Vec<u8>> {
    let mut end = b",uid=\"".to_vec();
    escape::label_value(&mut end, &String::from_utf8_lossy(uid));
    end.push(b'"');
    let start = identity.windows(end.len()).position(|part| part == end)?;
    let (own, old) = identity.split_at(start + end.len());
    (old != labels).then(|| [own, labels].concat())
}

/// The shard of a list/watch, and the hidden objects of the served state.
#[derive(Debug)]
pub(crate) struct Handover(Mutex<State>);

#[derive(Debug)]
struct State {
    shard: Shard,
    pending: PendingTransfer,
}

impl Handover {
    pub(crate) fn new(shard: Shard) -> Self {
        Self(Mutex::new(State { shard, pending: PendingTransfer::default() }))
    }

    /// Returns the current shard.
    pub(crate) fn shard(&self) -> Shard {
        self.lock().shard
    }

    /// Adds or updates an object, hidden if it is gained, else in the store.
    pub(crate) fn put(&self, ownership: Ownership, object: &Rendered, store: &Store) {
        let mut state = self.lock();
        match ownership {
            Ownership::Gained => state.pending.gain(object),
            Ownership::Kept | Ownership::Lost | Ownership::Foreign => store.apply(object),
        }
    }

    /// Replaces the served state with the collected one. Gained objects become visible if the shard's stage says so.
    pub(crate) fn commit(&self, mut pending: PendingTransfer, mut collected: Replacement) {
        let mut state = self.lock();
        let shard = state.shard;
        if shard.shows_gained() {
            pending.take(shard).for_each(|object| collected.push(&object));
        }
        if shard != Shard::ALL {
            collected.retain(|hash| shard.ownership_of_hash(hash) != Ownership::Foreign);
        }
        state.pending = pending;
        collected.commit();
    }

    /// Removes an object, if it is hidden.
    pub(crate) fn forget(&self, uid: &[u8]) {
        self.lock().pending.forget(uid);
    }

    /// Removes all hidden objects.
    pub(crate) fn clear(&self) {
        self.lock().pending = PendingTransfer::default();
    }

    /// Returns whether the object is hidden.
    pub(crate) fn hides(&self, uid: &[u8]) -> bool {
        self.lock().pending.hides(uid)
    }

    /// Returns the number of hidden objects.
    pub(crate) fn hidden(&self) -> usize {
        self.lock().pending.hidden()
    }

    /// Returns the number of series of the hidden objects.
    pub(crate) fn hidden_series(&self) -> u64 {
        self.lock().pending.series()
    }

    /// Calls `see` with the object with this UID, if it is hidden.
    pub(crate) fn look(&self, uid: &[u8], see: impl FnOnce(ObjectView<'_>)) {
        self.lock().pending.look(uid, see);
    }

    /// Calls `see` with each hidden object.
    pub(crate) fn each(&self, see: impl FnMut(ObjectView<'_>)) {
        self.lock().pending.each(see);
    }

    /// Switches to another shard or stage: gained objects become visible if the stage says so, and objects of other
    /// shards are removed from the store.
    pub(crate) fn show(&self, shard: Shard, store: &Store) {
        let mut state = self.lock();
        state.shard = shard;
        if shard.shows_gained() {
            state.pending.take(shard).for_each(|object| store.apply(&object));
        }
        if shard != Shard::ALL {
            store.retain(|hash| shard.ownership_of_hash(hash) != Ownership::Foreign);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
