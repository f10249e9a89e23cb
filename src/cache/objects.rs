//! The objects of a store, indexed by key and stored in pages ordered by identity.
//!
//! Objects with similar identities (of one namespace or workload) have similar text. Side by side, they take less
//! memory and compress better. Lists arrive in this order, and pages split and merge like the leaves of a B-tree
//! (Bayer and McCreight, 1972) to preserve it. Only size depends on the order: objects are found by key, and an object
//! whose identity changes keeps its place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use super::deflate_cache::DeflateCache;
use super::object_view::ObjectView;
use super::page::{PAGE, Page, PageBuilder};
use super::schema::Rendered;
use super::tally::{Count, Group, NOWHERE, Tally};
use crate::deflate::Scratch;
use crate::util::shrink::Shrink as _;
use crate::util::work_counter;

/// The key of an object: see [`super::store::Store`].
pub(crate) type Key = u128;

/// The last content number used.
static CONTENTS: AtomicU64 = AtomicU64::new(0);

/// Minimum number of objects in a page, below which it is merged with a neighbour.
const SPARSE: usize = PAGE / 4;
/// Maximum number of objects in a merged page, so that it does not split again at once.
const MERGED: usize = PAGE * 3 / 4;

/// Objects by key, each in one version.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Pages by number; those of `free` numbers are empty.
    leaves: Vec<Leaf>,
    /// Page numbers in the order of identities.
    order: Vec<u32>,
    free: Vec<u32>,
    places: HashMap<Key, Place, foldhash::fast::FixedState>,
    /// Number of series of all objects.
    series: u64,
    tally: Tally,
    /// Number of the content, unique in the process; 0 if empty.
    content: u64,
    /// Compressed text of the content.
    deflate_cache: Arc<DeflateCache>,
    scratch: Scratch,
}

/// The place of an object, its tally group and its number of series. They fit into the alignment padding of the key.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Page number times [`PAGE`] plus slot.
    at: u32,
    group: Group,
    /// Number of the object's series.
    series: u32,
}

/// A page with the keys of its objects.
#[derive(Debug, Default)]
struct Leaf {
    page: Arc<Page>,
    /// Shared with scrapes of virtual shards.
    keys: Arc<Vec<Key>>,
}

impl Objects {
    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there is an object with this key.
    pub(super) fn contains(&self, key: Key) -> bool {
        self.places.contains_key(&key)
    }

    /// Returns the keys that satisfy `wanted`.
    pub(super) fn keys(&self, wanted: impl Fn(Key) -> bool) -> Vec<Key> {
        self.places.keys().copied().filter(|key| wanted(*key)).collect()
    }

    /// Returns the number of series of all objects, without counts over objects.
    pub(super) fn series(&self) -> u64 {
        self.series
    }

    /// Returns the object with this key.
    pub(super) fn get(&self, key: Key) -> Option<ObjectView<'_>> {
        let place = self.places.get(&key)?;
        let page = &self.leaf(place.at / PAGE as u32).page;
        Some(ObjectView::paged(page, place.at as usize % PAGE, place.series))
    }

    /// Returns the number of the content. Equal numbers mean equal text.
    pub(super) fn content(&self) -> u64 {
        self.content
    }

    /// Returns the cache of the content's compressed text. It is never shared with another content.
    pub(super) fn deflate_cache(&self) -> &Arc<DeflateCache> {
        &self.deflate_cache
    }

    fn changed(&mut self) {
        self.content = CONTENTS.fetch_add(1, Ordering::Relaxed) + 1;
        match Arc::get_mut(&mut self.deflate_cache) {
            Some(packed) => *packed = DeflateCache::default(),
            // A running scrape keeps the old cache.
            None => self.deflate_cache = Arc::default(),
        }
    }

    /// Returns the pages in order.
    pub(super) fn pages(&self) -> Vec<Arc<Page>> {
        self.order.iter().map(|&number| Arc::clone(&self.leaf(number).page)).collect()
    }

    /// Returns the keys of the objects of each page, in the order of [`Self::pages`].
    pub(super) fn page_keys(&self) -> Vec<Arc<Vec<Key>>> {
        self.order.iter().map(|&number| Arc::clone(&self.leaf(number).keys)).collect()
    }

    /// Returns the counts over the objects whose keys satisfy `wanted`.
    pub(super) fn counts_of(&self, wanted: impl Fn(Key) -> bool) -> Vec<Count> {
        if self.tally.is_empty() {
            return Vec::new();
        }
        let mut objects: BTreeMap<Group, u64> = BTreeMap::new();
        for (&key, place) in &self.places {
            if place.group != NOWHERE && wanted(key) {
                *objects.entry(place.group).or_default() += 1;
            }
        }
        self.tally.counts_of(&objects)
    }

    /// Returns the counts over all objects.
    pub(super) fn counts(&self) -> Vec<Count> {
        self.tally.counts()
    }

    /// Inserts an object, or replaces the one with the same key. `families` is the number of families.
    pub(super) fn apply(&mut self, key: Key, object: &Rendered, families: usize) {
        if self.tally.is_empty() && object.counted.is_empty() {
            return self.put(key, object, families);
        }
        let old = self.places.get(&key).map_or(NOWHERE, |place| place.group);
        self.tally.leave(old);
        self.put(key, object, families);
        let group = self.tally.enter(&object.counted);
        self.note_group(key, group);
        // Group numbers are reused.
        self.changed();
    }

    fn note_group(&mut self, key: Key, group: Group) {
        if let Some(place) = self.places.get_mut(&key) {
            place.group = group;
        }
    }

    /// Inserts or replaces an object without counting it.
    fn put(&mut self, key: Key, object: &Rendered, families: usize) {
        let Some(Place { at: place, series, .. }) = self.places.get_mut(&key) else {
            return self.insert(key, object, families);
        };
        let (place, old) = (*place, std::mem::replace(series, object.series));
        self.series = self.series + u64::from(object.series) - u64::from(old);
        let leaf = &mut self.leaves[place as usize / PAGE];
        let page = Arc::make_mut(&mut leaf.page);
        if page.put(place as usize % PAGE, object, &mut self.scratch) {
            self.changed();
        }
    }

    /// Removes the object with this key. Returns true if there was one.
    pub(super) fn delete(&mut self, key: Key) -> bool {
        let Some(Place { at: place, group, series }) = self.places.remove(&key) else {
            return false;
        };
        self.series -= u64::from(series);
        self.tally.leave(group);
        if self.places.is_empty() {
            // An empty store frees its memory.
            *self = Self::default();
            return true;
        }
        self.changed();
        let (number, slot) = (place / PAGE as u32, place as usize % PAGE);
        let leaf = &mut self.leaves[number as usize];
        Arc::make_mut(&mut leaf.keys).remove(slot);
        Arc::make_mut(&mut leaf.page).remove(slot, &mut self.scratch);
        self.renumber(number, slot);
        if self.leaf(number).keys.len() < SPARSE {
            self.merge(number);
        }
        self.places.shrink();
        true
    }

    fn leaf(&self, number: u32) -> &Leaf {
        &self.leaves[number as usize]
    }

    fn insert(&mut self, key: Key, object: &Rendered, families: usize) {
        let (at, slot) = self.place_for(&object.identity, families);
        let number = self.order[at];
        let leaf = &mut self.leaves[number as usize];
        Arc::make_mut(&mut leaf.page).insert(slot, object, &mut self.scratch);
        Arc::make_mut(&mut leaf.keys).insert(slot, key);
        self.renumber(number, slot);
        self.changed();
        self.series += u64::from(object.series);
        if let Some(place) = self.places.get_mut(&key) {
            place.series = object.series;
        }
    }

    /// Returns the place for a new identity: the index in `order` of a page with room, and the slot.
    fn place_for(&mut self, identity: &[u8], families: usize) -> (usize, usize) {
        let behind =
            self.order.partition_point(|&number| self.leaf(number).page.identity(0) <= identity);
        let at = behind.saturating_sub(1);
        let Some(&number) = self.order.get(at) else {
            self.add(0, Leaf { page: Arc::new(Page::new(families)), keys: Arc::default() });
            return (0, 0);
        };
        let leaf = &mut self.leaves[number as usize];
        let slot = leaf.page.slot_for(identity);
        if leaf.keys.len() < PAGE {
            return (at, slot);
        }
        if slot == PAGE && at + 1 == self.order.len() {
            // Objects that arrive in order fill page after page.
            self.add(at + 1, Leaf { page: Arc::new(Page::new(families)), keys: Arc::default() });
            return (at + 1, 0);
        }
        let keys = Arc::new(Arc::make_mut(&mut leaf.keys).split_off(PAGE / 2));
        let page = Arc::make_mut(&mut leaf.page).split_off(PAGE / 2, &mut self.scratch);
        self.add(at + 1, Leaf { page: Arc::new(page), keys });
        match slot.checked_sub(PAGE / 2) {
            Some(upper) if upper > 0 => (at + 1, upper),
            _ => (at, slot),
        }
    }

    /// Inserts a page at this index of the order.
    fn add(&mut self, at: usize, leaf: Leaf) {
        let number = self.next_number();
        if self.free.pop().is_some() {
            self.leaves[number as usize] = leaf;
        } else {
            self.leaves.push(leaf);
        }
        self.order.insert(at, number);
        self.renumber(number, 0);
    }

    /// Returns the number of the next page to be added.
    fn next_number(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.leaves.len() as u32)
    }

    /// Updates the places of a page's objects, starting at a slot.
    fn renumber(&mut self, number: u32, from: usize) {
        let keys = self.leaves[number as usize].keys.iter().enumerate().skip(from);
        for (slot, &key) in keys {
            self.places.entry(key).or_default().at = number * PAGE as u32 + slot as u32;
        }
    }

    /// Merges a sparse page with a neighbour that has room.
    fn merge(&mut self, number: u32) {
        let Some(at) = self.order.iter().position(|&other| other == number) else {
            return;
        };
        let len = |at: usize| self.order.get(at).map(|&number| self.leaf(number).keys.len());
        let fits = |first: usize| Some(len(first)? + len(first + 1)? <= MERGED);
        let first = match at.checked_sub(1) {
            _ if len(at) == Some(0) => None,
            _ if fits(at) == Some(true) => Some(at),
            Some(before) if fits(before) == Some(true) => Some(before),
            _ => return,
        };
        let gone = self.order.remove(first.map_or(at, |first| first + 1));
        let Leaf { page, keys } = std::mem::take(&mut self.leaves[gone as usize]);
        self.free.push(gone);
        if let Some(first) = first {
            let number = self.order[first];
            let leaf = &mut self.leaves[number as usize];
            let from = leaf.keys.len();
            Arc::make_mut(&mut leaf.page).append(&page, &mut self.scratch);
            Arc::make_mut(&mut leaf.keys).extend_from_slice(&keys);
            self.renumber(number, from);
        }
    }
}

/// Fills [`Objects`] from a list, page by page.
#[derive(Debug)]
pub(super) struct BulkLoader {
    /// The objects so far; the pages lack those of `tail`.
    pub(super) objects: Objects,
    /// The last page while it grows; its objects already have places.
    tail: PageBuilder,
    keys: Vec<Key>,
    families: usize,
    /// Identity of the object added last.
    last: Vec<u8>,
    /// Number of objects, and number of those out of order.
    total: usize,
    out_of_order: usize,
}

impl BulkLoader {
    pub(super) fn new(families: usize) -> Self {
        Self {
            objects: Objects::default(),
            tail: PageBuilder::new(families),
            keys: Vec::new(),
            families,
            last: Vec::new(),
            total: 0,
            out_of_order: 0,
        }
    }

    /// Returns the objects so far, with all pages.
    pub(super) fn flushed(&mut self) -> &Objects {
        self.flush();
        &self.objects
    }

    /// Adds an object, or replaces the one with the same key.
    pub(super) fn push(&mut self, key: Key, object: &Rendered) {
        self.total += 1;
        if object.identity < self.last {
            self.out_of_order += 1;
        }
        self.last.clear();
        self.last.extend_from_slice(&object.identity);
        if !self.is_in_order() {
            self.sort_tail();
            return self.objects.apply(key, object, self.families);
        }
        if self.is_partial() || self.objects.places.contains_key(&key) {
            work_counter::add(1);
            self.flush();
            return self.objects.apply(key, object, self.families);
        }
        let place = self.objects.next_number() * PAGE as u32 + self.keys.len() as u32;
        let group = self.objects.tally.enter(&object.counted);
        let series = object.series;
        self.objects.places.insert(key, Place { at: place, group, series });
        self.objects.series += u64::from(series);
        self.keys.push(key);
        self.tail.push(object);
        if self.keys.len() == PAGE {
            self.flush();
        }
    }

    /// Removes an object added before. Returns true if there was one.
    pub(super) fn delete(&mut self, key: Key) -> bool {
        if !self.objects.contains(key) {
            return false;
        }
        // Until the page is full, every object that follows is inserted singly.
        self.flush();
        self.objects.delete(key)
    }

    /// Returns the complete objects.
    pub(super) fn end(mut self) -> Objects {
        self.flush();
        if self.objects.len() > 0 {
            self.objects.changed();
        }
        self.objects
    }

    /// Returns true if objects arrive roughly in the order of identities. An API server orders by name, while
    /// identities have quotes, so a few namespaces may be out of order.
    fn is_in_order(&self) -> bool {
        self.out_of_order * 8 < self.total + PAGE
    }

    /// Returns true if the last page is not full and no longer growing.
    fn is_partial(&self) -> bool {
        let last = self.objects.order.last().map(|&last| self.objects.leaf(last).keys.len());
        self.keys.is_empty() && last.is_some_and(|len| len < PAGE)
    }

    /// Inserts the objects of the growing page one by one.
    fn sort_tail(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let (page, mut object) = (self.tail.take(), Rendered::default());
        for (slot, key) in std::mem::take(&mut self.keys).into_iter().enumerate() {
            page.copy_out(slot, &mut object);
            let place = self.objects.places.remove(&key).unwrap_or_default();
            self.objects.series -= u64::from(place.series);
            object.series = place.series;
            self.objects.put(key, &object, self.families);
            self.objects.note_group(key, place.group);
        }
    }

    fn flush(&mut self) {
        if !self.keys.is_empty() {
            let page = Arc::new(self.tail.take());
            let keys = Arc::new(std::mem::take(&mut self.keys));
            self.objects.add(self.objects.order.len(), Leaf { page, keys });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(n: u32) -> Rendered {
        let identity = format!("{{namespace=\"team-{}\",pod=\"p-{n:05}\"", n / 300).into_bytes();
        let lines = b"} 1\n".to_vec();
        Rendered { identity, ends: vec![4, 4], lines, ..Rendered::default() }
    }

    fn identities(objects: &Objects) -> Vec<Vec<u8>> {
        let pages = objects.pages();
        let all = pages.iter().flat_map(|page| (0..page.len()).map(|slot| page.identity(slot)));
        all.map(<[u8]>::to_vec).collect()
    }

    /// Asserts that every object has its recorded place, and that pages are ordered and not too many.
    fn assert_sound(objects: &Objects, mut model: Vec<u32>) {
        model.sort_unstable();
        let wanted: Vec<_> = model.iter().map(|&n| object(n).identity).collect();
        assert!(identities(objects) == wanted);
        for &n in &model {
            let place = objects.places[&Key::from(n)].at as usize;
            let leaf = &objects.leaves[place / PAGE];
            assert_eq!(leaf.keys[place % PAGE], Key::from(n));
            assert!(leaf.page.identity(place % PAGE) == object(n).identity);
        }
        assert!(objects.order.len() <= model.len() / (SPARSE / 2) + 1);
    }

    /// Objects that a list leaves out are no reason to insert the others one by one.
    #[test]
    fn objects_that_are_not_there_are_deleted_without_work() {
        let mut loader = BulkLoader::new(2);
        work_counter::take();
        for n in 0..1_000 {
            loader.push(Key::from(n), &object(n));
            assert!(!loader.delete(Key::from(n + 5_000)));
        }
        assert_eq!(work_counter::take(), 0);
        assert_sound(&loader.end(), (0..1_000).collect());
    }

    fn shuffled(count: u32) -> Vec<u32> {
        // The step is coprime to the count.
        (0..count).map(|n| n * 1_237 % count).collect()
    }

    #[test]
    fn objects_stay_in_order_however_they_come_and_go() {
        let mut objects = Objects::default();
        let mut model = shuffled(2_000);
        for &n in &model {
            objects.apply(Key::from(n), &object(n), 2);
        }
        assert_sound(&objects, model.clone());
        while let Some(n) = model.pop() {
            assert!(objects.delete(Key::from(n)) && !objects.delete(Key::from(n)));
            if model.len().is_multiple_of(97) {
                assert_sound(&objects, model.clone());
            }
        }
        assert!(objects.leaves.is_empty() && objects.free.is_empty());
    }

    /// A sorted list fills page after page; an unsorted one is sorted.
    #[test]
    fn lists_in_order_and_in_any_order() {
        let in_order: Vec<u32> = (0..2_000).collect();
        for (list, pages) in [(in_order, 2_000_usize.div_ceil(PAGE)), (shuffled(2_000), 2_000 / 32)]
        {
            let mut loader = BulkLoader::new(2);
            for &n in &list {
                loader.push(Key::from(n), &object(n));
            }
            // Changed, removed and added again during the list.
            loader.push(Key::from(7u32), &object(7));
            assert!(loader.delete(Key::from(8u32)));
            loader.push(Key::from(8u32), &object(8));
            assert_eq!(loader.objects.len(), list.len());
            let objects = loader.end();
            assert_sound(&objects, list);
            assert!(objects.order.len() <= pages + 1, "{}", objects.order.len());
        }
    }
}
