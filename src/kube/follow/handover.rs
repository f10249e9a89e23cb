//! Objects that move between shards: gained objects stay hidden and lost objects stay visible until the switch.
//!
//! While the shard of a process changes, it follows the objects of the old and of the new shard. Gained objects are
//! rendered and kept aside, so that all of them become visible at once. Lost objects are found in the store by the hashes
//! of their UIDs, so that all of them disappear at once. [`resharding`](crate::kube::resharding) chooses both moments.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache::{ObjectView, Rendered, Replacement, Store};
use crate::exposition::escape;
use crate::kube::observer::ObjectSeries;
use crate::kube::shard::{Ownership, Shard};
use crate::util::lock::Lock;
use crate::util::shrink::Shrink as _;

#[cfg(test)]
mod tests;

/// The hidden objects of one state: gained by the new shard, but not visible yet.
#[derive(Debug, Default)]
struct HiddenObjects {
    objects: HashMap<Vec<u8>, Rendered>,
    /// The number of their series.
    series: u64,
}

impl HiddenObjects {
    fn insert(&mut self, object: &Rendered) {
        let old = self.objects.insert(object.uid.clone(), object.clone());
        self.series += u64::from(object.series);
        self.series -= old.map_or(0, |old| u64::from(old.series));
    }

    fn remove(&mut self, uid: &[u8]) {
        self.series -= self.objects.remove(uid).map_or(0, |old| u64::from(old.series));
        self.objects.shrink();
    }

    /// Removes those that the shard does not follow: their changes are missed from now on.
    fn retain(&mut self, shard: Shard) {
        self.objects.retain(|uid, _| shard.keeps(uid));
        self.objects.shrink();
        self.series = self.objects.values().map(|object| u64::from(object.series)).sum();
    }

    /// Removes and returns those that the shard exposes.
    fn take_exposed(&mut self, shard: Shard) -> Vec<Rendered> {
        let is_exposed = |uid: &Vec<u8>| shard.ownership(uid).is_exposed();
        let exposed: Vec<Rendered> =
            self.objects.extract_if(|uid, _| is_exposed(uid)).map(|(_, object)| object).collect();
        self.series -= exposed.iter().map(|object| u64::from(object.series)).sum::<u64>();
        self.objects.shrink();
        exposed
    }

    fn look<T>(&self, uid: &[u8], see: impl FnOnce(ObjectView<'_>) -> T) -> Option<T> {
        self.objects.get(uid).map(|object| see(ObjectView::from(object)))
    }

    fn each(&self, mut see: impl FnMut(ObjectView<'_>)) {
        self.objects.values().for_each(|object| see(ObjectView::from(object)));
    }
}

/// The objects that a list collects, which replace the served ones when it is complete.
pub(crate) struct CollectedObjects {
    visible: Replacement,
    hidden: HiddenObjects,
}

impl CollectedObjects {
    /// Adds or updates an object, hidden if it is gained. The shard may have changed since it was added.
    pub(crate) fn put(&mut self, ownership: Ownership, object: &Rendered) {
        match ownership {
            Ownership::Gained => {
                self.visible.delete(&object.uid);
                self.hidden.insert(object);
            }
            Ownership::Kept | Ownership::Lost | Ownership::Foreign => {
                if !self.hidden.objects.is_empty() {
                    self.hidden.remove(&object.uid);
                }
                self.visible.push(object);
            }
        }
    }

    pub(crate) fn remove(&mut self, uid: &[u8]) {
        self.hidden.remove(uid);
        self.visible.delete(uid);
    }

    pub(crate) fn contains(&self, uid: &[u8]) -> bool {
        self.visible.contains(uid) || self.hidden.objects.contains_key(uid)
    }

    /// Returns the number of objects that are not hidden.
    pub(crate) fn visible(&self) -> usize {
        self.visible.len()
    }

    /// Returns the number of hidden objects.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden.objects.len()
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.visible() + self.hidden()
    }

    /// Returns the number of series.
    pub(crate) fn series(&self) -> u64 {
        self.visible.series() + self.hidden.series
    }

    /// Calls `see` with the object with this UID, if there is one.
    pub(crate) fn look<T>(
        &mut self,
        uid: &[u8],
        mut see: impl FnMut(ObjectView<'_>) -> T,
    ) -> Option<T> {
        self.visible.look(uid, &mut see).or_else(|| self.hidden.look(uid, see))
    }

    /// Calls `see` with each object.
    pub(crate) fn each(&mut self, mut see: impl FnMut(ObjectView<'_>)) {
        self.visible.each(&mut see);
        self.hidden.each(see);
    }
}

/// The served objects of a list/watch, visible and hidden, and their shard.
#[derive(Debug)]
pub(crate) struct ServedObjects {
    /// The namespace; empty for all namespaces.
    namespace: String,
    /// The visible objects.
    pub(crate) store: Arc<Store>,
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    shard: Shard,
    hidden: HiddenObjects,
}

impl ServedObjects {
    pub(crate) fn new(namespace: Option<&str>, store: Arc<Store>, shard: Shard) -> Self {
        let state = Lock::new(State { shard, hidden: HiddenObjects::default() });
        Self { namespace: namespace.unwrap_or_default().to_owned(), store, state }
    }

    /// Returns the current shard.
    pub(crate) fn shard(&self) -> Shard {
        self.state.lock().shard
    }

    /// Adds or updates an object, hidden if it is gained.
    pub(crate) fn put(&self, ownership: Ownership, object: &Rendered) {
        let mut state = self.state.lock();
        match ownership {
            Ownership::Gained => state.hidden.insert(object),
            Ownership::Kept | Ownership::Lost | Ownership::Foreign => self.store.apply(object),
        }
    }

    pub(crate) fn remove(&self, uid: &[u8]) {
        self.state.lock().hidden.remove(uid);
        self.store.delete(uid);
    }

    /// Removes all objects and returns how many were visible.
    pub(crate) fn clear(&self) -> usize {
        let visible = self.store.len();
        self.store.replace().commit();
        self.state.lock().hidden = HiddenObjects::default();
        visible
    }

    /// Starts to collect the objects of a list.
    pub(crate) fn collect(&self) -> CollectedObjects {
        CollectedObjects { visible: self.store.replace(), hidden: HiddenObjects::default() }
    }

    /// Replaces the objects with the collected ones. Since the list began, the shard or its stage may have changed, and with it
    /// what is exposed.
    pub(crate) fn commit(&self, collected: CollectedObjects) {
        let CollectedObjects { mut visible, mut hidden } = collected;
        let mut state = self.state.lock();
        let shard = state.shard;
        hidden.retain(shard);
        hidden.take_exposed(shard).iter().for_each(|object| visible.push(object));
        if shard != Shard::ALL {
            // The shard may have lost objects and begun to gain them again.
            visible.retain(|hash| shard.ownership_of_hash(hash).is_exposed());
        }
        state.hidden = hidden;
        visible.commit();
    }

    pub(crate) fn contains(&self, uid: &[u8]) -> bool {
        self.store.contains(uid) || self.state.lock().hidden.objects.contains_key(uid)
    }

    /// Returns the number of hidden objects.
    pub(crate) fn hidden(&self) -> usize {
        self.state.lock().hidden.objects.len()
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.store.len() + self.hidden()
    }

    /// Returns the number of series.
    pub(crate) fn series(&self) -> u64 {
        self.store.series() + self.state.lock().hidden.series
    }

    /// Calls `see` with the object with this UID, if there is one.
    pub(crate) fn look<T>(
        &self,
        uid: &[u8],
        mut see: impl FnMut(ObjectView<'_>) -> T,
    ) -> Option<T> {
        self.store.look(uid, &mut see).or_else(|| self.state.lock().hidden.look(uid, see))
    }

    /// Calls `see` with each object.
    pub(crate) fn each(&self, mut see: impl FnMut(ObjectView<'_>)) {
        self.store.each(&mut see);
        self.state.lock().hidden.each(see);
    }

    /// Switches to another shard or stage: hidden objects that it exposes become visible, and visible ones that it does not
    /// expose are removed.
    pub(crate) fn show(&self, shard: Shard) {
        let mut state = self.state.lock();
        state.shard = shard;
        state.hidden.retain(shard);
        let exposed = state.hidden.take_exposed(shard);
        exposed.iter().for_each(|object| self.store.apply(object));
        if shard != Shard::ALL {
            self.store.retain(|hash| shard.ownership_of_hash(hash).is_exposed());
        }
    }
}

/// The objects of a list/watch: the served ones, and those that a list in progress collects.
pub(crate) struct CurrentObjects {
    pub(crate) served: Arc<ServedObjects>,
    /// While there are any, the changes are theirs.
    pub(crate) collected: Option<CollectedObjects>,
}

impl CurrentObjects {
    pub(crate) fn new(served: Arc<ServedObjects>) -> Self {
        Self { served, collected: None }
    }

    pub(crate) fn begin_list(&mut self) {
        self.collected = Some(self.served.collect());
    }

    /// Ends a list, whose objects replace the served ones if it `commits`.
    pub(crate) fn end_list(&mut self, commits: bool) {
        if let Some(collected) = self.collected.take().filter(|_| commits) {
            self.served.commit(collected);
        }
    }

    pub(crate) fn put(&mut self, ownership: Ownership, object: &Rendered) {
        match &mut self.collected {
            Some(collected) => collected.put(ownership, object),
            None => self.served.put(ownership, object),
        }
    }

    pub(crate) fn remove(&mut self, uid: &[u8]) {
        match &mut self.collected {
            Some(collected) => collected.remove(uid),
            None => self.served.remove(uid),
        }
    }

    pub(crate) fn contains(&self, uid: &[u8]) -> bool {
        match &self.collected {
            Some(collected) => collected.contains(uid),
            None => self.served.contains(uid),
        }
    }

    /// Calls `see` with the object with this UID, if there is one.
    pub(crate) fn look(&mut self, uid: &[u8], see: impl FnMut(ObjectView<'_>)) {
        match &mut self.collected {
            Some(collected) => collected.look(uid, see),
            None => self.served.look(uid, see),
        };
    }

    pub(crate) fn len(&self) -> usize {
        self.collected.as_ref().map_or_else(|| self.served.len(), CollectedObjects::len)
    }

    pub(crate) fn series(&self) -> u64 {
        self.collected.as_ref().map_or_else(|| self.served.series(), CollectedObjects::series)
    }

    /// Returns the number of objects, and that of series, of either the served or the collected ones, whichever is larger.
    pub(crate) fn largest(&self) -> (usize, u64) {
        let (objects, series) = (self.served.len(), self.served.series());
        let collected = self.collected.as_ref();
        collected.map_or((objects, series), |collected| {
            (objects.max(collected.len()), series.max(collected.series()))
        })
    }
}

impl ObjectSeries for ServedObjects {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn relabel(&self, uid: &[u8], namespace: &str, labels: &[u8]) {
        if let Some(hidden) = self.state.lock().hidden.objects.get_mut(uid) {
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
