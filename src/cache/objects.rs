//! The objects of a store: found by their keys, kept in pages in the order of their identities.
//!
//! Objects whose identities begin alike (of one namespace, of one workload) have much of their text in
//! common. Side by side they take less memory, and a gzip body copies each from the one before. A list
//! comes in such an order; pages that split and join as the leaves of a B-tree do (Bayer and McCreight,
//! 1972) keep it, however long objects come and go. Nothing but size depends on it: objects are found by
//! their keys, and one whose identity changes stays where it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use super::kept::Kept;
use super::packed::Packed;
use super::page::{PAGE, Page, PageBuilder};
use super::schema::Rendered;
use super::segment::Scratch;
use super::tally::{Count, Group, NOWHERE, Tally};

/// What tells objects of a store apart: see [`super::store::Store`].
pub(crate) type Key = u128;

/// The last number that the content of a store was given.
static CONTENTS: AtomicU64 = AtomicU64::new(0);

/// A page with fewer objects is joined with a neighbour.
const SPARSE: usize = PAGE / 4;
/// As many objects at most are joined in a page, so that it does not split again at once.
const JOINED: usize = PAGE * 3 / 4;

/// Objects by their keys, each in one version.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// By number; those of `free` numbers are empty.
    leaves: Vec<Leaf>,
    /// The numbers in the order of the identities.
    order: Vec<u32>,
    free: Vec<u32>,
    places: HashMap<Key, Place, foldhash::fast::FixedState>,
    /// Series of all objects.
    series: u64,
    tally: Tally,
    /// What tells this content from any other that a store of the process had; 0 where there is none.
    content: u64,
    /// What scrapes have compressed of it.
    packed: Arc<Packed>,
    scratch: Scratch,
}

/// Where an object is, and what is counted of it, which takes no memory: a key is aligned to as much.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The number of the page, times [`PAGE`], and the slot in it.
    at: u32,
    group: Group,
    /// Its series.
    series: u32,
}

/// A page with the key of the object in each slot.
#[derive(Debug, Default)]
struct Leaf {
    page: Arc<Page>,
    keys: Vec<Key>,
}

impl Objects {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is an object with this key.
    pub(super) fn contains(&self, key: Key) -> bool {
        self.places.contains_key(&key)
    }

    /// Series of all of them, without those that are numbers of objects.
    pub(super) fn series(&self) -> u64 {
        self.series
    }

    /// The object with this key.
    pub(super) fn get(&self, key: Key) -> Option<Kept<'_>> {
        let place = self.places.get(&key)?;
        let page = &self.leaf(place.at / PAGE as u32).page;
        Some(Kept::paged(page, place.at as usize % PAGE, place.series))
    }

    /// A number that no other content of any store has had: where it is the same, so is the text.
    pub(super) fn content(&self) -> u64 {
        self.content
    }

    /// What scrapes may note of the present content. It is never that of another one.
    pub(super) fn packed(&self) -> &Arc<Packed> {
        &self.packed
    }

    fn changed(&mut self) {
        self.content = CONTENTS.fetch_add(1, Ordering::Relaxed) + 1;
        match Arc::get_mut(&mut self.packed) {
            Some(packed) => *packed = Packed::default(),
            // A scrape goes on with what was.
            None => self.packed = Arc::default(),
        }
    }

    /// The pages in order.
    pub(super) fn pages(&self) -> Vec<Arc<Page>> {
        self.order.iter().map(|&number| Arc::clone(&self.leaf(number).page)).collect()
    }

    /// What was counted over all objects.
    pub(super) fn counts(&self) -> Vec<Count> {
        self.tally.counts()
    }

    /// Inserts an object, or replaces the one with the same key; there are so many families.
    pub(super) fn apply(&mut self, key: Key, object: &Rendered, families: usize) {
        if self.tally.is_empty() && object.counted.is_empty() {
            return self.put(key, object, families);
        }
        let old = self.places.get(&key).map_or(NOWHERE, |place| place.group);
        self.tally.leave(old);
        self.put(key, object, families);
        let group = self.tally.enter(&object.counted);
        self.note_group(key, group);
        // The number of a group that is gone is given again.
        self.changed();
    }

    fn note_group(&mut self, key: Key, group: Group) {
        if let Some(place) = self.places.get_mut(&key) {
            place.group = group;
        }
    }

    /// The same without counting it.
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

    /// Removes the object with this key; tells whether there was one.
    pub(super) fn delete(&mut self, key: Key) -> bool {
        let Some(Place { at: place, group, series }) = self.places.remove(&key) else {
            return false;
        };
        self.series -= u64::from(series);
        self.tally.leave(group);
        if self.places.is_empty() {
            // A kind that emptied gives its memory back.
            *self = Self::default();
            return true;
        }
        self.changed();
        let (number, slot) = (place / PAGE as u32, place as usize % PAGE);
        let leaf = &mut self.leaves[number as usize];
        leaf.keys.remove(slot);
        Arc::make_mut(&mut leaf.page).remove(slot, &mut self.scratch);
        self.renumber(number, slot);
        if self.leaf(number).keys.len() < SPARSE {
            self.join(number);
        }
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to(self.places.len() * 2);
        }
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
        leaf.keys.insert(slot, key);
        self.renumber(number, slot);
        self.changed();
        self.series += u64::from(object.series);
        if let Some(place) = self.places.get_mut(&key) {
            place.series = object.series;
        }
    }

    /// Makes room for an identity: the place in `order` of a page, and the slot in it.
    fn place_for(&mut self, identity: &[u8], families: usize) -> (usize, usize) {
        let behind =
            self.order.partition_point(|&number| self.leaf(number).page.identity(0) <= identity);
        let at = behind.saturating_sub(1);
        let Some(&number) = self.order.get(at) else {
            self.add(0, Leaf { page: Arc::new(Page::new(families)), keys: Vec::new() });
            return (0, 0);
        };
        let leaf = &mut self.leaves[number as usize];
        let slot = leaf.page.slot_for(identity);
        if leaf.keys.len() < PAGE {
            return (at, slot);
        }
        if slot == PAGE && at + 1 == self.order.len() {
            // What comes in order fills page after page.
            self.add(at + 1, Leaf { page: Arc::new(Page::new(families)), keys: Vec::new() });
            return (at + 1, 0);
        }
        let keys = leaf.keys.split_off(PAGE / 2);
        let page = Arc::make_mut(&mut leaf.page).split_off(PAGE / 2, &mut self.scratch);
        self.add(at + 1, Leaf { page: Arc::new(page), keys });
        match slot.checked_sub(PAGE / 2) {
            Some(upper) if upper > 0 => (at + 1, upper),
            _ => (at, slot),
        }
    }

    /// Adds a page at this place of the order.
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

    /// The number of the page that is added next.
    fn next_number(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.leaves.len() as u32)
    }

    /// Notes the places of the objects of a page from a slot on.
    fn renumber(&mut self, number: u32, from: usize) {
        let keys = self.leaves[number as usize].keys.iter().enumerate().skip(from);
        for (slot, &key) in keys {
            self.places.entry(key).or_default().at = number * PAGE as u32 + slot as u32;
        }
    }

    /// Joins a sparse page with a neighbour that has room for both.
    fn join(&mut self, number: u32) {
        let Some(at) = self.order.iter().position(|&other| other == number) else {
            return;
        };
        let len = |at: usize| self.order.get(at).map(|&number| self.leaf(number).keys.len());
        let fits = |first: usize| Some(len(first)? + len(first + 1)? <= JOINED);
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
            leaf.keys.extend(keys);
            self.renumber(number, from);
        }
    }
}

/// Fills [`Objects`] from a list, page by page.
#[derive(Debug)]
pub(super) struct Filling {
    objects: Objects,
    /// The last page while it grows; its objects have their places already.
    tail: PageBuilder,
    keys: Vec<Key>,
    families: usize,
    /// The identity that came last.
    last: Vec<u8>,
    /// How many objects came, and how many of them with an identity below the one before.
    came: usize,
    back: usize,
}

impl Filling {
    pub(super) fn new(families: usize) -> Self {
        Self {
            objects: Objects::default(),
            tail: PageBuilder::new(families),
            keys: Vec::new(),
            families,
            last: Vec::new(),
            came: 0,
            back: 0,
        }
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is an object with this key.
    pub(super) fn contains(&self, key: Key) -> bool {
        self.objects.contains(key)
    }

    /// Series of all of them.
    pub(super) fn series(&self) -> u64 {
        self.objects.series()
    }

    /// All of them, to be looked at.
    pub(super) fn objects(&mut self) -> &Objects {
        self.flush();
        &self.objects
    }

    /// Adds an object, or replaces the one with the same key.
    pub(super) fn push(&mut self, key: Key, object: &Rendered) {
        self.came += 1;
        if object.identity < self.last {
            self.back += 1;
        }
        self.last.clear();
        self.last.extend_from_slice(&object.identity);
        if !self.is_in_order() {
            self.sort_tail();
            return self.objects.apply(key, object, self.families);
        }
        if self.is_partial() || self.objects.places.contains_key(&key) {
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

    /// Removes an object that was added before; tells whether there was one.
    pub(super) fn delete(&mut self, key: Key) -> bool {
        self.flush();
        self.objects.delete(key)
    }

    /// What was added.
    pub(super) fn end(mut self) -> Objects {
        self.flush();
        if self.objects.len() > 0 {
            self.objects.changed();
        }
        self.objects
    }

    /// Whether objects come in about the order of their identities. An API server compares names where
    /// identities have quotes in between, so that a few namespaces may change places.
    fn is_in_order(&self) -> bool {
        self.back * 8 < self.came + PAGE
    }

    /// Whether the last page has room and is no longer one that grows.
    fn is_partial(&self) -> bool {
        let last = self.objects.order.last().map(|&last| self.objects.leaf(last).keys.len());
        self.keys.is_empty() && last.is_some_and(|len| len < PAGE)
    }

    /// Adds the objects of the page that grows again, one by one.
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
            let keys = std::mem::take(&mut self.keys);
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

    /// Each object has the place that is noted of it, pages are in order and not too many.
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

    fn shuffled(count: u32) -> Vec<u32> {
        // A step that has no divisor in common with the count.
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

    /// A list in order fills page after page; one in any order comes out in order all the same.
    #[test]
    fn lists_in_order_and_in_any_order() {
        let in_order: Vec<u32> = (0..2_000).collect();
        for (list, pages) in [(in_order, 2_000_usize.div_ceil(PAGE)), (shuffled(2_000), 2_000 / 32)]
        {
            let mut filling = Filling::new(2);
            for &n in &list {
                filling.push(Key::from(n), &object(n));
            }
            // Changed, taken away and come again while the list goes on.
            filling.push(Key::from(7u32), &object(7));
            assert!(filling.delete(Key::from(8u32)));
            filling.push(Key::from(8u32), &object(8));
            assert_eq!(filling.len(), list.len());
            let objects = filling.end();
            assert_sound(&objects, list);
            assert!(objects.order.len() <= pages + 1, "{}", objects.order.len());
        }
    }
}
