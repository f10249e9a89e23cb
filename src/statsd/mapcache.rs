//! The mapping cache: what the mapper said about a name, for the lines that take the long way.
//!
//! It has the size and the replacement of the original's flags and counts as the original's does; so that the names that
//! clients make up cannot fill the memory, it is bounded in bytes as well. Known lines never
//! come here ([`super::series::keys`]), so it only matters for names with ever new tags and for unusual lines.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;

use super::mapper::Mapped;
use super::metrics::EventType;

/// Which entry leaves when the cache is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheKind {
    /// The one not used for the longest time.
    #[default]
    Lru,
    /// Any.
    Random,
}

/// What a name maps to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Number of the rule, `None` if none matched.
    pub(crate) rule: Option<usize>,
    /// Escaped metric name.
    pub(crate) name: Box<str>,
    /// Labels of the rule, sorted by name.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
}

impl Mapping {
    /// What the mapper says.
    pub(crate) fn of(mapped: &Mapped<'_>) -> Self {
        Self {
            rule: Some(mapped.rule.index),
            name: mapped.name.into(),
            labels: mapped.labels().map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }

    /// Bytes of its texts.
    fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(|(name, value)| name.len() + value.len());
        self.name.len() + labels.sum::<usize>()
    }
}

const NONE: u32 = u32::MAX;
/// Bytes of texts for each name that a cache may hold, on average; most names have a tenth of it.
const BYTES_PER_NAME: usize = 1 << 10;
/// What small caches may hold in any case.
const LEAST_BYTES: usize = 1 << 18;

#[derive(Debug)]
struct Node {
    kind: EventType,
    name: Box<str>,
    hash: u64,
    mapping: Arc<Mapping>,
    newer: u32,
    older: u32,
}

/// The cache of one ingest thread.
#[derive(Debug)]
pub(crate) struct MapCache {
    replacement: CacheKind,
    capacity: usize,
    /// Bytes of all texts, and how many there may be.
    bytes: usize,
    max_bytes: usize,
    table: HashTable<u32>,
    nodes: Vec<Node>,
    newest: u32,
    oldest: u32,
    hasher: foldhash::fast::RandomState,
    random: u64,
}

impl MapCache {
    /// A cache for `capacity` names, at least one.
    pub(crate) fn new(capacity: usize, replacement: CacheKind) -> Self {
        Self {
            replacement,
            capacity: capacity.clamp(1, NONE as usize - 1),
            bytes: 0,
            max_bytes: capacity.saturating_mul(BYTES_PER_NAME).max(LEAST_BYTES),
            table: HashTable::new(),
            nodes: Vec::new(),
            newest: NONE,
            oldest: NONE,
            hasher: foldhash::fast::RandomState::default(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Names in the cache.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.nodes.clear();
        self.bytes = 0;
        self.newest = NONE;
        self.oldest = NONE;
    }

    fn hash(&self, kind: EventType, name: &str) -> u64 {
        self.hasher.hash_one((kind, name))
    }

    /// Looks a name up.
    pub(crate) fn get(&mut self, kind: EventType, name: &str) -> Option<Arc<Mapping>> {
        let hash = self.hash(kind, name);
        let nodes = &self.nodes;
        let at = *self.table.find(hash, |&at| {
            nodes.get(at as usize).is_some_and(|node| node.kind == kind && *node.name == *name)
        })?;
        if self.replacement == CacheKind::Lru && at != self.newest {
            self.unlink(at);
            self.link(at);
        }
        self.nodes.get(at as usize).map(|node| Arc::clone(&node.mapping))
    }

    /// Takes a name in that is not there. One that is longer than all names together may be is not kept.
    pub(crate) fn insert(&mut self, kind: EventType, name: &str, mapping: Arc<Mapping>) {
        let bytes = name.len() + mapping.bytes();
        if bytes > self.max_bytes {
            return;
        }
        while self.nodes.len() >= self.capacity || self.bytes + bytes > self.max_bytes {
            let victim = self.victim();
            self.remove(victim);
        }
        let hash = self.hash(kind, name);
        let at = self.nodes.len() as u32;
        self.nodes.push(Node { kind, name: name.into(), hash, mapping, newer: NONE, older: NONE });
        self.bytes += bytes;
        let nodes = &self.nodes;
        self.table
            .insert_unique(hash, at, |&at| nodes.get(at as usize).map_or(0, |node| node.hash));
        self.link(at);
    }

    /// Takes a name out; the last one takes its place.
    fn remove(&mut self, victim: u32) {
        self.unlink(victim);
        if victim as usize >= self.nodes.len() {
            return;
        }
        let last = self.nodes.len() as u32 - 1;
        let gone = self.nodes.swap_remove(victim as usize);
        self.bytes -= gone.name.len() + gone.mapping.bytes();
        if let Ok(entry) = self.table.find_entry(gone.hash, |&at| at == victim) {
            entry.remove();
        }
        if let Some(moved) = self.nodes.get(victim as usize) {
            let (newer, older) = (moved.newer, moved.older);
            if let Some(at) = self.table.find_mut(moved.hash, |&at| at == last) {
                *at = victim;
            }
            match self.nodes.get_mut(newer as usize) {
                Some(node) => node.older = victim,
                None => self.newest = victim,
            }
            match self.nodes.get_mut(older as usize) {
                Some(node) => node.newer = victim,
                None => self.oldest = victim,
            }
        }
    }

    fn victim(&mut self) -> u32 {
        match self.replacement {
            CacheKind::Lru => self.oldest,
            CacheKind::Random => {
                // Marsaglia's xorshift: any entry may go, so any generator will do.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                (self.random % self.nodes.len() as u64) as u32
            }
        }
    }

    fn unlink(&mut self, at: u32) {
        let Some((newer, older)) = self.nodes.get(at as usize).map(|node| (node.newer, node.older))
        else {
            return;
        };
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Makes an entry the newest one.
    fn link(&mut self, at: u32) {
        let before = self.newest;
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.newer = NONE;
            node.older = before;
        }
        match self.nodes.get_mut(before as usize) {
            Some(node) => node.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(name: &str) -> Arc<Mapping> {
        Arc::new(Mapping { rule: None, name: name.into(), labels: Box::default() })
    }

    fn put(cache: &mut MapCache, name: &str) {
        cache.insert(EventType::Counter, name, mapping(name));
    }

    fn has(cache: &mut MapCache, name: &str) -> bool {
        cache.get(EventType::Counter, name).is_some_and(|found| *found.name == *name)
    }

    #[test]
    fn the_least_recently_used_name_leaves() {
        let mut cache = MapCache::new(3, CacheKind::Lru);
        for name in ["a", "b", "c"] {
            put(&mut cache, name);
        }
        assert!(has(&mut cache, "a"));
        put(&mut cache, "d");
        assert_eq!(
            ["a", "b", "c", "d"].map(|name| has(&mut cache, name)),
            [true, false, true, true]
        );
        put(&mut cache, "e");
        assert_eq!(
            ["a", "c", "d", "e"].map(|name| has(&mut cache, name)),
            [false, true, true, true]
        );
        assert_eq!(cache.len(), 3);
        cache.clear();
        assert!(!has(&mut cache, "e"));
        put(&mut cache, "e");
        assert!(has(&mut cache, "e"));
    }

    #[test]
    fn one_name_in_two_types_is_two_entries() {
        let mut cache = MapCache::new(3, CacheKind::Lru);
        put(&mut cache, "a");
        assert!(cache.get(EventType::Gauge, "a").is_none());
    }

    #[test]
    fn a_random_cache_stays_within_its_capacity() {
        let mut cache = MapCache::new(8, CacheKind::Random);
        let names: Vec<String> = (0..200).map(|number| format!("m{number}")).collect();
        for name in &names {
            put(&mut cache, name);
            assert!(has(&mut cache, name));
        }
        assert_eq!(cache.len(), 8);
        assert_eq!(names.iter().filter(|name| has(&mut cache, name)).count(), 8);
    }

    #[test]
    fn long_names_do_not_fill_the_memory() {
        for replacement in [CacheKind::Lru, CacheKind::Random] {
            let mut cache = MapCache::new(1_000, replacement);
            for number in 0..3_000 {
                let name = format!("{number}{}", "n".repeat(60_000));
                put(&mut cache, &name);
                assert!(has(&mut cache, &name));
                assert!(cache.bytes <= 1_000 * BYTES_PER_NAME);
            }
            let huge = "n".repeat(2 << 20);
            put(&mut cache, &huge);
            assert!(!has(&mut cache, &huge));
            for number in 0..1_000 {
                put(&mut cache, &format!("m{number}"));
            }
            assert!(has(&mut cache, "m999") && cache.len() <= 1_000);
            let bytes: usize =
                cache.nodes.iter().map(|node| node.name.len() + node.mapping.bytes()).sum();
            assert_eq!(cache.bytes, bytes);
        }
    }

    #[test]
    fn a_cache_of_one_works() {
        let mut cache = MapCache::new(1, CacheKind::Lru);
        for name in ["a", "b", "a"] {
            put(&mut cache, name);
            assert!(has(&mut cache, name));
        }
    }
}
