//! The objects that a ledger knows, over lists, lost events and list/watches that replace each other.
//!
//! A record survives its object for a while: a server restored from a backup, or a list/watch that is behind another one,
//! may show the object again, which must not be counted twice.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tokio::time::Instant;

use crate::cache::{Key, Keys, fnv1a64};
use crate::kube::observed::Metadata;
use crate::util::shrink::Shrink as _;
use crate::util::work_counter;

/// The number of a list/watch. A later one has a larger number.
pub(in crate::kube::workloads) type ScopeId = u64;

/// The largest number of records of objects that are gone.
const MAX_GONE: usize = 100_000;

/// The seconds by which an object may seem older than another one that was created before it: API servers assign the
/// creation time by their own clocks, before the object gets its resourceVersion.
const CREATION_SKEW: i64 = 60;

/// The part of an object's past that has been counted.
pub(super) trait Past: Default {
    /// The sums that it is part of.
    type Totals;

    /// Counts the end of the object, which was deleted, or is missing in a list (`unseen`).
    fn end(&mut self, _unseen: bool, _totals: &mut Self::Totals) {}

    /// Takes the object out of what it counts for.
    fn leave(&mut self, _totals: &mut Self::Totals, _now: Instant) {}
}

struct Record<T> {
    /// The served list/watch that has the object, and the number of its list at that time.
    scope: Option<(ScopeId, u32)>,
    /// The same of the latest one that is not served yet.
    next_scope: Option<(ScopeId, u32)>,
    /// The hash of name, namespace and creation time.
    identity: u64,
    /// The time since which the object has been gone, and belongs to no list/watch.
    gone_at: Option<Instant>,
    past: T,
}

impl<T> Record<T> {
    /// Notes that a list/watch has the object in its list.
    fn belong(&mut self, key: Key, id: ScopeId, scopes: &mut Scopes) {
        let scope = scopes.entry(id).or_default();
        let (place, is_served) = ((id, scope.list), scope.is_served);
        self.relate(key, scopes, |record| {
            if is_served {
                record.scope = record.scope.max(Some(place));
            } else {
                record.next_scope = record.next_scope.max(Some(place));
            }
        });
    }

    /// Notes that the object is gone.
    fn leave(&mut self, key: Key, now: Instant, scopes: &mut Scopes) {
        self.gone_at = Some(now);
        self.relate(key, scopes, |record| (record.scope, record.next_scope) = (None, None));
    }

    /// Changes the list/watches that the object belongs to, and the keys of these.
    fn relate(&mut self, key: Key, scopes: &mut Scopes, change: impl FnOnce(&mut Self)) {
        let ids = |record: &Self| [record.scope, record.next_scope].map(|scope| Some(scope?.0));
        let before = ids(self);
        change(self);
        let after = ids(self);
        for id in before.iter().filter(|id| !after.contains(id)).flatten() {
            if let Some(scope) = scopes.get_mut(id) {
                scope.keys.remove(&key);
                scope.keys.shrink();
            }
        }
        for id in after.iter().filter(|id| !before.contains(id)).flatten() {
            scopes.entry(*id).or_default().keys.insert(key);
        }
    }

    /// Returns the list/watch that decides whether the object is gone, and the number of its last list with the object.
    fn owner(&self) -> Option<(ScopeId, u32)> {
        self.scope.or(self.next_scope)
    }

    fn is_owned_by(&self, id: ScopeId) -> bool {
        self.owner().is_some_and(|owner| owner.0 == id)
    }
}

#[derive(Default)]
struct Scope {
    /// The number of lists that have begun.
    list: u32,
    is_listing: bool,
    is_synced: bool,
    is_served: bool,
    /// The latest creation time of an object, in unix seconds, without those of incomplete lists.
    newest: i64,
    /// The same of the list in progress.
    newest_listed: i64,
    /// The same when its objects were forgotten, so that those created until then may have been counted.
    forgotten: Option<i64>,
    /// The keys of its objects, which are visited alone: with many namespaces there are many more of others.
    keys: HashSet<Key>,
}

/// The list/watches of one kind.
type Scopes = HashMap<ScopeId, Scope>;

/// The records of the objects of one kind.
pub(super) struct Objects<T> {
    keys: Keys,
    records: HashMap<Key, Record<T>>,
    scopes: Scopes,
    /// The records of objects that are gone, oldest first.
    gone: VecDeque<(Instant, Key)>,
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        let (keys, records, scopes, gone) = Default::default();
        Self { keys, records, scopes, gone }
    }
}

impl<T: Past> Objects<T> {
    /// Begins or continues a list.
    pub(super) fn begin_list(&mut self, scope: ScopeId) {
        let scope = self.scopes.entry(scope).or_default();
        if !scope.is_listing {
            scope.list = scope.list.wrapping_add(1);
            scope.newest_listed = i64::MIN;
            scope.is_listing = true;
        }
    }

    /// Ends a list. If it is complete, objects that it does not contain are gone.
    pub(super) fn end_list(
        &mut self,
        id: ScopeId,
        complete: bool,
        totals: &mut T::Totals,
        now: Instant,
    ) {
        let scope = self.scopes.entry(id).or_default();
        scope.is_listing = false;
        scope.is_synced |= complete;
        let list = scope.list;
        if complete {
            scope.newest = scope.newest.max(scope.newest_listed);
            let is_absent = |record: &Record<T>| {
                record.owner().is_some_and(|owner| owner.0 == id && owner.1 != list)
            };
            self.leave(id, is_absent, now, |past| {
                past.end(true, totals);
                past.leave(totals, now);
            });
        }
    }

    /// Notes that a list/watch is served. The one with the same objects that it replaces will be closed.
    pub(super) fn show(&mut self, id: ScopeId) {
        let scope = self.scopes.entry(id).or_default();
        if std::mem::replace(&mut scope.is_served, true) {
            return;
        }
        let keys = std::mem::take(&mut scope.keys);
        work_counter::add(keys.len());
        for key in &keys {
            let Some(record) = self.records.get_mut(key) else { continue };
            record.relate(*key, &mut self.scopes, |record| {
                if let Some(next) = record.next_scope.take_if(|next| next.0 == id) {
                    record.scope = Some(next);
                }
            });
        }
        self.scopes.entry(id).or_default().keys = keys;
    }

    /// Forgets the objects of a list/watch: they may still exist, but are no longer watched. Those that one has that is not
    /// served yet belong to that one.
    pub(super) fn forget(&mut self, id: ScopeId, totals: &mut T::Totals, now: Instant) {
        if let Some(scope) = self.scopes.get_mut(&id) {
            scope.forgotten = Some(scope.newest);
        }
        let is_unwatched = |record: &Record<T>| {
            record.is_owned_by(id) && record.next_scope.is_none_or(|next| next.0 == id)
        };
        self.leave(id, is_unwatched, now, |past| past.leave(totals, now));
        let keys = self.scopes.get(&id).map(|scope| scope.keys.iter().copied().collect::<Vec<_>>());
        for key in keys.into_iter().flatten() {
            if let Some(record) = self.records.get_mut(&key) {
                record.relate(key, &mut self.scopes, |record| {
                    record.scope.take_if(|scope| scope.0 == id);
                });
            }
        }
    }

    /// Drops a list/watch that has ended. Forgets the objects that only it had, if it was never served: otherwise they were
    /// [forgotten](Self::forget) when it was replaced or removed.
    pub(super) fn drop_scope(&mut self, id: ScopeId, totals: &mut T::Totals, now: Instant) {
        if self.scopes.get(&id).is_some_and(|scope| !scope.is_served) {
            self.leave(id, |record| record.is_owned_by(id), now, |past| past.leave(totals, now));
        }
        let Some(Scope { keys, is_served: false, .. }) = self.scopes.remove(&id) else { return };
        work_counter::add(keys.len());
        for key in &keys {
            if let Some(record) = self.records.get_mut(key) {
                record.next_scope.take_if(|next| next.0 == id);
            }
        }
    }

    /// Takes objects from a list/watch, and calls `gone` with the record of each of them.
    fn leave(
        &mut self,
        id: ScopeId,
        is_gone: impl Fn(&Record<T>) -> bool,
        now: Instant,
        mut gone: impl FnMut(&mut T),
    ) {
        let Some(scope) = self.scopes.get_mut(&id) else { return };
        let mut keys = std::mem::take(&mut scope.keys);
        work_counter::add(keys.len());
        keys.retain(|&key| {
            let record = self.records.get_mut(&key).filter(|record| is_gone(record));
            let Some(record) = record else { return true };
            record.leave(key, now, &mut self.scopes);
            self.gone.push_back((now, key));
            gone(&mut record.past);
            false
        });
        keys.shrink();
        self.scopes.entry(id).or_default().keys = keys;
        self.expire(now, Duration::MAX);
    }

    /// Returns the record of an object that was added or has changed, and whether what it reports is news: it was seen before, or
    /// created after its list/watch had listed. With `is_new_in_watch`, an object that a watch adds is new even if it seems older
    /// than others; without, it may be an old one that begins to match the selectors.
    pub(super) fn put(
        &mut self,
        id: ScopeId,
        object: &Metadata<'_>,
        is_new_in_watch: bool,
        totals: &mut T::Totals,
        now: Instant,
    ) -> (bool, &mut T) {
        let created = object.creation_timestamp.unix();
        let scope = self.scopes.entry(id).or_default();
        let mut is_news = scope.is_synced
            && (is_new_in_watch && !scope.is_listing
                || created.saturating_add(CREATION_SKEW) >= scope.newest)
            && scope.forgotten.is_none_or(|newest| created > newest);
        let newest = if scope.is_listing { &mut scope.newest_listed } else { &mut scope.newest };
        *newest = created.max(*newest);
        let (namespace, name) = (&*object.namespace, &*object.name);
        let identity = fnv1a64(format!("{namespace}/{name}/{created}").as_bytes());
        let key = self.keys.key(object.uid.as_bytes());
        let record = self.records.entry(key).and_modify(|record| {
            let old = record.gone_at.take();
            if record.identity == identity {
                is_news = true;
            } else {
                let mut past = std::mem::take(&mut record.past);
                if old.is_none() {
                    // Objects that take turns in having a UID would otherwise be news each time.
                    is_news = false;
                    past.leave(totals, now);
                }
            }
        });
        let record = record.or_insert_with(|| Record {
            scope: None,
            next_scope: None,
            identity,
            gone_at: None,
            past: T::default(),
        });
        record.identity = identity;
        record.belong(key, id, &mut self.scopes);
        (is_news, &mut record.past)
    }

    /// Notes that a list/watch has an object, whatever its state is.
    pub(super) fn keep(&mut self, id: ScopeId, uid: &[u8]) {
        let key = self.keys.key(uid);
        if let Some(record) = self.records.get_mut(&key).filter(|record| record.gone_at.is_none()) {
            record.belong(key, id, &mut self.scopes);
        }
    }

    /// Returns the record of an object, if it is not gone.
    pub(super) fn get(&mut self, uid: &[u8]) -> Option<&mut T> {
        let record = self.records.get_mut(&self.keys.key(uid));
        record.filter(|record| record.gone_at.is_none()).map(|record| &mut record.past)
    }

    /// Returns the record of an object, which may be gone.
    pub(super) fn former(&self, uid: &[u8]) -> Option<&T> {
        self.records.get(&self.keys.key(uid)).map(|record| &record.past)
    }

    /// Removes a deleted object.
    pub(super) fn delete(&mut self, uid: &[u8], totals: &mut T::Totals, now: Instant) {
        self.expire(now, Duration::MAX);
        let key = self.keys.key(uid);
        let record = self.records.get_mut(&key).filter(|record| record.gone_at.is_none());
        let Some(record) = record else { return };
        record.leave(key, now, &mut self.scopes);
        self.gone.push_back((now, key));
        record.past.end(false, totals);
        record.past.leave(totals, now);
    }

    /// Returns the time since which a record of an object that is gone has been kept.
    pub(super) fn gone_since(&self) -> Option<Instant> {
        self.gone.front().map(|(since, _)| *since)
    }

    /// Drops the records of objects that have been gone for this time, or of which there are too many.
    pub(super) fn expire(&mut self, now: Instant, retention: Duration) {
        while let Some(&(at, key)) = self.gone.front()
            && (self.gone.len() > MAX_GONE || now.duration_since(at) >= retention)
        {
            self.gone.pop_front();
            // It may have appeared again, and may be gone again.
            if self.records.get(&key).is_some_and(|record| record.gone_at == Some(at)) {
                self.records.remove(&key);
            }
        }
        self.records.shrink();
        self.gone.shrink();
    }

    /// Calls `see` with the record of each object that is not gone.
    pub(super) fn each(&mut self, mut see: impl FnMut(&mut T)) {
        let records = self.records.values_mut().filter(|record| record.gone_at.is_none());
        records.for_each(|record| see(&mut record.past));
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::util::shrink::SMALL;

    /// A record whose totals are the records that have left.
    impl Past for u32 {
        type Totals = Vec<u32>;

        fn leave(&mut self, gone: &mut Vec<u32>, _: Instant) {
            gone.push(*self);
        }
    }

    /// What a list/watch has that ends before it was served is gone, unless another one has it too.
    #[test]
    fn list_watches_that_were_never_served_leave_no_objects() {
        let (mut objects, now) = (Objects::<u32>::default(), Instant::now());
        let object =
            |uid: &'static str| Metadata { uid: Cow::from(uid).into(), ..Metadata::default() };
        let dropped = |objects: &mut Objects<u32>, id| {
            let mut gone = Vec::new();
            objects.drop_scope(id, &mut gone, now);
            gone.sort_unstable();
            gone
        };
        objects.show(1);
        for (value, uid, scopes) in [
            (1, "old", &[1, 2, 3][..]),
            (2, "seen first by a candidate", &[2, 1]),
            (3, "of two candidates", &[2, 3]),
            (4, "of one candidate", &[2]),
            (5, "of the next candidate", &[3]),
        ] {
            for id in scopes {
                *objects.put(*id, &object(uid), true, &mut Vec::new(), now).1 = value;
            }
        }
        assert_eq!(dropped(&mut objects, 2), [4]);
        // The next attempt knows it.
        let seen = objects.put(3, &object("of one candidate"), true, &mut Vec::new(), now);
        assert_eq!(seen, (true, &mut 4));
        assert_eq!(dropped(&mut objects, 3), [3, 4, 5]);
        // One that was served is told before that its objects are not watched any more.
        assert!(dropped(&mut objects, 1).is_empty());
        assert!(objects.scopes.is_empty());
        let mut left = Vec::new();
        objects.each(|value| left.push(*value));
        left.sort_unstable();
        assert_eq!(left, [1, 2]);
    }

    /// A list/watch visits its own objects, however many others there are.
    #[test]
    fn visits_are_linear_in_the_objects() {
        let visits = |namespaces: u64| {
            let (mut objects, now) = (Objects::<u32>::default(), Instant::now());
            let list = |objects: &mut Objects<u32>, id: ScopeId, names: std::ops::Range<u32>| {
                objects.begin_list(id);
                for name in names {
                    let uid = Cow::from(format!("{}/{name}", id % namespaces)).into();
                    let object = Metadata { uid, ..Metadata::default() };
                    objects.put(id, &object, true, &mut Vec::new(), now);
                }
                let mut gone = Vec::new();
                objects.end_list(id, true, &mut gone, now);
                gone.len()
            };
            let ids = |generation: u64| generation * namespaces..(generation + 1) * namespaces;
            work_counter::take();
            for id in ids(0) {
                list(&mut objects, id, 0..20);
                objects.show(id);
            }
            // A candidate is dropped, and the next one is served.
            ids(1).for_each(|id| assert_eq!(list(&mut objects, id, 0..22), 0));
            let mut gone = Vec::new();
            ids(1).for_each(|id| objects.drop_scope(id, &mut gone, now));
            assert_eq!(gone.len() as u64, 2 * namespaces);
            gone.clear();
            ids(2).for_each(|id| assert_eq!(list(&mut objects, id, 0..20), 0));
            ids(2).for_each(|id| objects.show(id));
            for id in ids(0) {
                objects.forget(id, &mut gone, now);
                objects.drop_scope(id, &mut gone, now);
                assert!(gone.is_empty(), "the next one has it");
            }
            ids(2).for_each(|id| assert_eq!(list(&mut objects, id, 0..19), 1));
            work_counter::take()
        };
        let (few, many) = (visits(10), visits(80));
        assert!(few >= 200 && many <= 8 * few, "{few} visits for 200 objects, {many} for 1,600");
    }

    /// After each operation a list/watch has the keys of the objects that belong to it.
    #[test]
    fn keys_are_those_of_the_objects() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut ids, mut next) = ([1, 2, 3, 4, 5], 6);
        let (mut objects, mut now) = (Objects::<u32>::default(), Instant::now());
        let gone = &mut Vec::new();
        for _ in 0..20_000 {
            let (place, uid) = (random.usize(..5), random.u32(..30).to_string());
            let id = ids[place];
            match random.u32(..100) {
                0..50 => {
                    let uid = Cow::from(uid).into();
                    objects.put(id, &Metadata { uid, ..Metadata::default() }, true, gone, now);
                }
                50..60 => objects.keep(id, uid.as_bytes()),
                60..75 => objects.delete(uid.as_bytes(), gone, now),
                75..83 => objects.begin_list(id),
                83..91 => objects.end_list(id, random.bool(), gone, now),
                91..94 => objects.show(id),
                94..96 => objects.forget(id, gone, now),
                96..98 => {
                    objects.drop_scope(id, gone, now);
                    (ids[place], next) = (next, next + 1);
                }
                _ => {
                    now += Duration::from_secs(1);
                    objects.expire(now, Duration::from_secs(5));
                }
            }
            for (id, scope) in &objects.scopes {
                let belongs = |record: &Record<u32>| {
                    [record.scope, record.next_scope].iter().flatten().any(|of| of.0 == *id)
                };
                let own = objects.records.iter().filter(|(_, record)| belongs(record));
                let own: HashSet<Key> = own.map(|(key, _)| *key).collect();
                assert_eq!(scope.keys, own);
            }
            let mut gone = objects.records.values().filter(|record| record.gone_at.is_some());
            assert!(gone.all(|record| record.owner().is_none()));
        }
    }

    #[test]
    fn tables_shrink_when_records_expire() {
        let mut objects = Objects::<u32>::default();
        let now = Instant::now();
        for number in 0..2_000 {
            let object =
                Metadata { uid: Cow::from(number.to_string()).into(), ..Metadata::default() };
            objects.put(1, &object, true, &mut Vec::new(), now);
        }
        (1..2_000).for_each(|number| {
            objects.delete(number.to_string().as_bytes(), &mut Vec::new(), now);
        });
        assert!(objects.records.capacity() >= 2_000 && objects.gone.capacity() >= 1_999);
        objects.expire(now, Duration::ZERO);
        assert_eq!((objects.records.len(), objects.gone.len()), (1, 0));
        assert!(objects.records.capacity() <= SMALL && objects.gone.capacity() <= SMALL);
        let keys = &objects.scopes[&1].keys;
        assert!(keys.len() == 1 && keys.capacity() <= SMALL, "{}", keys.capacity());
    }
}
