//! The objects rejected by a budget, counted by namespace.
//!
//! Only the key of each object is kept, so that the counts are exact and memory stays small.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::cache::Key;
use crate::util::lock::Lock;
use crate::util::shrink::Shrink as _;

/// Namespaces with their number of rejected objects.
pub(crate) type Namespaces = Vec<(Vec<u8>, u64)>;

/// The rejected objects of one list/watch.
#[derive(Debug, Default)]
pub(crate) struct RejectedSet(Lock<State>);

#[derive(Debug, Default)]
struct State {
    served: Objects,
    /// Rejected objects of the state being collected.
    collected: Option<Objects>,
}

#[derive(Debug, Default)]
struct Objects {
    /// The keys, with the namespace.
    keys: HashMap<Key, Arc<[u8]>, foldhash::fast::FixedState>,
    /// The number of objects of each namespace.
    counts: BTreeMap<Arc<[u8]>, u64>,
}

impl Objects {
    fn insert(&mut self, key: Key, namespace: &[u8]) {
        if self.keys.contains_key(&key) {
            return;
        }
        let known = self.counts.get_key_value(namespace).map(|(known, _)| Arc::clone(known));
        let namespace = known.unwrap_or_else(|| namespace.into());
        *self.counts.entry(Arc::clone(&namespace)).or_default() += 1;
        self.keys.insert(key, namespace);
    }

    fn remove(&mut self, key: Key) {
        if self.keys.is_empty() {
            return;
        }
        let Some(namespace) = self.keys.remove(&key) else { return };
        self.keys.shrink();
        if let Some(count) = self.counts.get_mut(&namespace) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&namespace);
            }
        }
    }
}

impl State {
    /// Returns the rejected objects of the current state.
    fn current(&mut self) -> &mut Objects {
        self.collected.as_mut().unwrap_or(&mut self.served)
    }
}

impl RejectedSet {
    /// Adds a rejected object.
    pub(super) fn insert(&self, key: Key, namespace: &[u8]) {
        self.0.lock().current().insert(key, namespace);
    }

    /// Removes an object that has series now or was deleted.
    pub(super) fn remove(&self, key: Key) {
        self.0.lock().current().remove(key);
    }

    /// Begins to collect a new state.
    pub(super) fn collect(&self) {
        self.0.lock().collected = Some(Objects::default());
    }

    /// Commits or discards the rejected objects of the collected state.
    pub(super) fn settle(&self, commits: bool) {
        let mut state = self.0.lock();
        if let Some(collected) = state.collected.take().filter(|_| commits) {
            state.served = collected;
        }
    }

    /// Keeps the objects whose UIDs have hashes that satisfy `keep`.
    pub(super) fn retain(&self, keep: impl Fn(u64) -> bool) {
        let State { served, collected } = &mut *self.0.lock();
        for objects in std::iter::once(served).chain(collected) {
            let keys = objects.keys.keys().copied();
            let others: Vec<Key> = keys.filter(|key| !keep(*key as u64)).collect();
            others.into_iter().for_each(|key| objects.remove(key));
        }
    }

    /// Removes all objects.
    pub(super) fn clear(&self) {
        *self.0.lock() = State::default();
    }

    /// Returns whether the object was rejected.
    pub(super) fn contains(&self, key: Key) -> bool {
        self.0.lock().served.keys.contains_key(&key)
    }

    /// Returns the number of rejected objects.
    pub(crate) fn len(&self) -> u64 {
        self.0.lock().served.keys.len() as u64
    }

    /// Returns the number of rejected objects by namespace.
    pub(crate) fn namespaces(&self) -> Namespaces {
        let state = self.0.lock();
        state.served.counts.iter().map(|(name, count)| (name.to_vec(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::shrink::SMALL;

    fn namespaces(set: &RejectedSet) -> Vec<(String, u64)> {
        let all = set.namespaces().into_iter();
        all.map(|(name, count)| (String::from_utf8(name).expect("text"), count)).collect()
    }

    fn counted(name: &str, count: u64) -> (String, u64) {
        (name.to_owned(), count)
    }

    #[test]
    fn objects_are_counted_by_namespace() {
        let set = RejectedSet::default();
        for (key, namespace) in [(1, "a"), (2, "b"), (3, "a"), (1, "a")] {
            set.insert(key, namespace.as_bytes());
        }
        assert_eq!((set.len(), namespaces(&set)), (3, vec![counted("a", 2), counted("b", 1)]));
        set.remove(2);
        set.remove(2);
        assert_eq!((set.len(), namespaces(&set)), (2, vec![counted("a", 2)]));
        assert!(set.contains(1) && set.contains(3) && !set.contains(2));
        set.clear();
        assert_eq!((set.len(), namespaces(&set), set.contains(1)), (0, vec![], false));
    }

    /// The hash of a UID is in the lower half of a key.
    #[test]
    fn objects_of_other_shards_are_removed_from_both_states() {
        let set = RejectedSet::default();
        let key = |high: u128, hash: u128| high << 64 | hash;
        [key(1, 10), key(2, 11)].into_iter().for_each(|key| set.insert(key, b"a"));
        set.collect();
        [key(1, 10), key(2, 11), key(3, 12)].into_iter().for_each(|key| set.insert(key, b"a"));
        set.retain(|hash| hash != 11);
        assert_eq!(namespaces(&set), [counted("a", 1)]);
        set.settle(true);
        assert_eq!((set.len(), namespaces(&set)), (2, vec![counted("a", 2)]));
        assert!(set.contains(key(1, 10)) && !set.contains(key(2, 11)));
    }

    #[test]
    fn a_list_replaces_the_objects_when_it_is_committed() {
        let set = RejectedSet::default();
        set.insert(1, b"a");
        for commits in [false, true] {
            set.collect();
            set.insert(2, b"b");
            set.insert(3, b"b");
            set.remove(3);
            assert!(set.contains(1) && !set.contains(2), "the served state is as before");
            set.settle(commits);
        }
        assert!(!set.contains(1) && set.contains(2));
        assert_eq!(namespaces(&set), [counted("b", 1)]);
    }

    #[test]
    fn the_table_shrinks_when_objects_leave() {
        let set = RejectedSet::default();
        (0..2_000).for_each(|key| set.insert(key, b"n"));
        (1..2_000).for_each(|key| set.remove(key));
        let capacity = set.0.lock().served.keys.capacity();
        assert!(set.len() == 1 && capacity <= SMALL, "{capacity}");
    }
}
