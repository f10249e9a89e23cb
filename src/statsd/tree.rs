//! The membership of the registry in exposition order: a sorted run of pages.
//!
//! A page holds up to [`MAX_ENTRIES`] neighbouring series: their label text in one piece, and for each the family and
//! the slot of its numbers. That is the index by which a series is found, the order in which it is written and the
//! store of its text, all at once; a scrape copies text from front to back. Pages are shared with scrapes through
//! `Arc`s: a [`Snapshot`] costs one reference count, and a page is copied only if it changes while a scrape holds it.
//! Values, locks and conflicts are the business of others.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use super::cell::{Handle, SlotId};
use super::family::Family;
use super::labels;

/// Series in a page. An insertion moves half a page of text, a look-up compares with a few entries of it.
const MAX_ENTRIES: usize = 160;
/// A page with more text than this is split early. It is a size class of the allocator, so that a full page has no slack.
const MAX_TEXT: usize = 14 * 1024;

/// One series of a page.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) family: Arc<Family>,
    pub(crate) handle: Handle,
    /// End of its label text in the text of the page.
    end: u32,
    label_count: u16,
    /// What the registry numbers times to live with.
    pub(crate) ttl: u16,
}

/// Neighbouring series.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    entries: Vec<Entry>,
    text: Vec<u8>,
}

/// What a series is found by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// Family name.
    pub(crate) name: &'a str,
    /// Rendered labels.
    pub(crate) labels: &'a [u8],
    pub(crate) label_count: u16,
}

/// Who lives at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) handle: Handle,
    /// What the registry numbers times to live with.
    pub(crate) ttl: u16,
}

/// Where a series is, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    page: usize,
    entry: usize,
}

impl Page {
    /// The series of this page with their label texts, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let end = entry.end as usize;
            let text = self.text.get(start..end).unwrap_or_default();
            start = end;
            (entry, text)
        })
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn start_of(&self, index: usize) -> usize {
        match index.checked_sub(1).and_then(|before| self.entries.get(before)) {
            Some(before) => before.end as usize,
            None => 0,
        }
    }

    /// Compares the series at `index` with `key`.
    fn compare(&self, index: usize, key: &Key<'_>) -> Ordering {
        let Some(entry) = self.entries.get(index) else {
            return Ordering::Greater;
        };
        entry
            .family
            .name
            .as_bytes()
            .cmp(key.name.as_bytes())
            .then_with(|| entry.label_count.cmp(&key.label_count))
            .then_with(|| {
                let text = self.text.get(self.start_of(index)..entry.end as usize);
                labels::compare(text.unwrap_or_default(), key.labels)
            })
    }

    fn search(&self, key: &Key<'_>) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(middle, key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    fn insert(&mut self, index: usize, family: Arc<Family>, tenant: Tenant, key: &Key<'_>) {
        let start = self.start_of(index);
        // Small steps: a page is long-lived and its slack is paid for every series.
        let count = self.entries.len();
        if count == self.entries.capacity() {
            let room = MAX_ENTRIES.saturating_sub(count);
            self.entries.reserve_exact((count / 8).min(room).max(1));
        }
        let length = self.text.len();
        if length + key.labels.len() > self.text.capacity() {
            let room = MAX_TEXT.saturating_sub(length);
            self.text.reserve_exact((length / 8).min(room).max(key.labels.len()));
        }
        self.text.splice(start..start, key.labels.iter().copied());
        for entry in self.entries.iter_mut().skip(index) {
            entry.end += key.labels.len() as u32;
        }
        self.entries.insert(
            index,
            Entry {
                family,
                handle: tenant.handle,
                ttl: tenant.ttl,
                end: (start + key.labels.len()) as u32,
                label_count: key.label_count,
            },
        );
    }

    /// Takes the entries from `index` on into a page of their own.
    fn split_off(&mut self, index: usize) -> Page {
        let start = self.start_of(index);
        let mut entries = self.entries.split_off(index);
        for entry in &mut entries {
            entry.end -= start as u32;
        }
        let text = self.text.split_off(start);
        self.shrink();
        Page { entries, text }
    }

    fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    /// Appends the entries of `next`.
    fn append(&mut self, next: &Page) {
        let base = self.text.len() as u32;
        self.text.extend_from_slice(&next.text);
        self.entries.extend(
            next.entries.iter().map(|entry| Entry { end: entry.end + base, ..entry.clone() }),
        );
    }
}

#[derive(Clone, Debug)]
struct Numbered {
    id: u32,
    page: Arc<Page>,
}

/// All pages of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot(Arc<Vec<Numbered>>);

impl Snapshot {
    /// Number of pages.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A page, counted from the front.
    pub(crate) fn page(&self, index: usize) -> Option<&Page> {
        self.0.get(index).map(|numbered| &*numbered.page)
    }

    /// Index of the page in which series of family `name` begin.
    pub(crate) fn page_of(&self, name: &str) -> usize {
        let key = Key { name, labels: b"", label_count: 0 };
        page_before(&self.0, &key)
    }

    /// The family called `name`, if it has series.
    pub(crate) fn family(&self, name: &str) -> Option<&Arc<Family>> {
        let from = self.page_of(name);
        self.0.iter().skip(from).take(2).find_map(|numbered| {
            numbered
                .page
                .entries
                .iter()
                .map(|entry| &entry.family)
                .find(|family| *family.name == *name)
        })
    }
}

/// Index of the last page that begins at or before `key`, or the first page.
fn page_before(pages: &[Numbered], key: &Key<'_>) -> usize {
    pages.partition_point(|numbered| numbered.page.compare(0, key).is_le()).saturating_sub(1)
}

/// The sorted run of pages. One writer; readers take a [`Snapshot`].
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pages: Snapshot,
    next_id: u32,
    /// Changes with every change of the membership.
    version: u64,
}

impl Tree {
    /// The present pages.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.pages.clone()
    }

    /// Where `key` is, or as an error where it belongs.
    pub(crate) fn find(&self, key: &Key<'_>) -> Result<Position, Position> {
        let page = page_before(&self.pages.0, key);
        match self.pages.page(page).map(|page| page.search(key)) {
            Some(Ok(entry)) => Ok(Position { page, entry }),
            Some(Err(entry)) => Err(Position { page, entry }),
            None => Err(Position { page: 0, entry: 0 }),
        }
    }

    /// The series at a position that [`Tree::find`] gave.
    pub(crate) fn tenant(&self, at: Position) -> Option<Tenant> {
        let entry = self.pages.page(at.page)?.entries.get(at.entry)?;
        Some(Tenant { handle: entry.handle, ttl: entry.ttl })
    }

    /// A number that stays the same as long as positions hold.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// Inserts a series where [`Tree::find`] said it belongs. `placed` is told the page of this and every moved series.
    pub(crate) fn insert(
        &mut self,
        at: Position,
        family: &Arc<Family>,
        tenant: Tenant,
        key: &Key<'_>,
        mut placed: impl FnMut(SlotId, u32),
    ) {
        self.version += 1;
        let Position { mut page, mut entry } = at;
        let full = |page: &Page| {
            page.len() >= MAX_ENTRIES
                || (page.len() > 1 && page.text.len() + key.labels.len() > MAX_TEXT)
        };
        let new_id = self.new_id();
        let pages = Arc::make_mut(&mut self.pages.0);
        match pages.get(page) {
            None => pages.push(Numbered { id: new_id, page: Arc::default() }),
            Some(here) if full(&here.page) => {
                let at_end = entry == here.page.len();
                if at_end && pages.get(page + 1).is_some_and(|next| !full(&next.page)) {
                    (page, entry) = (page + 1, 0);
                } else if at_end {
                    // Ascending arrivals leave full pages behind them. One that a scrape holds keeps its slack.
                    if let Some(full) =
                        pages.get_mut(page).and_then(|here| Arc::get_mut(&mut here.page))
                    {
                        full.shrink();
                    }
                    (page, entry) = (page + 1, 0);
                    pages.insert(page, Numbered { id: new_id, page: Arc::default() });
                } else if let Some(here) = pages.get_mut(page) {
                    let half = here.page.len() / 2;
                    let tail = Arc::make_mut(&mut here.page).split_off(half);
                    for moved in &tail.entries {
                        placed(moved.handle.slot, new_id);
                    }
                    pages.insert(page + 1, Numbered { id: new_id, page: Arc::new(tail) });
                    if entry > half {
                        (page, entry) = (page + 1, entry - half);
                    }
                }
            }
            Some(_) => {}
        }
        if let Some(here) = pages.get_mut(page) {
            Arc::make_mut(&mut here.page).insert(entry, Arc::clone(family), tenant, key);
            placed(tenant.handle.slot, here.id);
        }
    }

    /// Removes from the pages in `ids` what is not `alive`, telling `removed` of each, and joins pages that became
    /// small. `placed` is told the new page of every moved series.
    pub(crate) fn compact(
        &mut self,
        ids: &HashSet<u32>,
        alive: impl Fn(&Entry) -> bool,
        mut removed: impl FnMut(&Entry, &[u8]),
        mut placed: impl FnMut(SlotId, u32),
    ) {
        self.version += 1;
        let old = std::mem::take(Arc::make_mut(&mut self.pages.0));
        let mut pages: Vec<Numbered> = Vec::with_capacity(old.len());
        for numbered in old {
            if !ids.contains(&numbered.id) {
                pages.push(numbered);
                continue;
            }
            let mut kept = Page::default();
            for (entry, text) in numbered.page.iter() {
                if alive(entry) {
                    kept.text.extend_from_slice(text);
                    kept.entries.push(Entry { end: kept.text.len() as u32, ..entry.clone() });
                } else {
                    removed(entry, text);
                }
            }
            if kept.entries.is_empty() {
                continue;
            }
            kept.shrink();
            match pages.last_mut() {
                Some(before)
                    if before.page.len() + kept.len() <= MAX_ENTRIES / 2
                        && before.page.text.len() + kept.text.len() <= MAX_TEXT / 2 =>
                {
                    for moved in &kept.entries {
                        placed(moved.handle.slot, before.id);
                    }
                    Arc::make_mut(&mut before.page).append(&kept);
                }
                _ => pages.push(Numbered { id: numbered.id, page: Arc::new(kept) }),
            }
        }
        self.pages.0 = Arc::new(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::family::Kind;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    fn handle(slot: u32) -> Handle {
        Handle { slot: SlotId::scalar(slot), generation: 0 }
    }

    fn insert(
        tree: &mut Tree,
        places: &mut HashMap<usize, u32>,
        name: &str,
        value: Option<&str>,
        slot: u32,
    ) {
        let mut text = Vec::new();
        if let Some(value) = value {
            labels::push(&mut text, "k", value);
        }
        let key = Key { name, labels: &text, label_count: u16::from(value.is_some()) };
        if let Err(at) = tree.find(&key) {
            let family = Arc::new(Family::new(name, slot, Kind::Counter, 0, 0));
            let tenant = Tenant { handle: handle(slot), ttl: 0 };
            tree.insert(at, &family, tenant, &key, |slot, page| {
                places.insert(slot.index(), page);
            });
        }
    }

    fn content(tree: &Tree) -> Vec<(String, String, usize)> {
        let snapshot = tree.snapshot();
        (0..snapshot.len())
            .filter_map(|index| snapshot.page(index))
            .flat_map(|page| {
                page.iter()
                    .map(|(entry, text)| {
                        (
                            entry.family.name.to_string(),
                            String::from_utf8_lossy(text).into_owned(),
                            entry.handle.slot.index(),
                        )
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_order_and_the_places_are_right_after_any_history(
            keys in prop::collection::vec(("[a-c]{1,2}", prop::option::of("[a-z]{0,3}")), 1..1_200),
            gone in prop::collection::vec(any::<bool>(), 1_200),
        ) {
            let mut tree = Tree::default();
            let mut places = HashMap::new();
            let mut model: BTreeMap<(String, bool, String), usize> = BTreeMap::new();
            for (slot, (name, value)) in keys.iter().enumerate() {
                insert(&mut tree, &mut places, name, value.as_deref(), slot as u32);
                model
                    .entry((name.clone(), value.is_some(), value.clone().unwrap_or_default()))
                    .or_insert(slot);
            }
            let slots = |tree: &Tree| content(tree).into_iter().map(|entry| entry.2).collect::<Vec<_>>();
            prop_assert_eq!(slots(&tree), model.values().copied().collect::<Vec<_>>());

            let before = tree.snapshot();
            let ids: HashSet<u32> = places.values().copied().collect();
            let dead = |slot: usize| gone[slot];
            let mut removed = 0;
            tree.compact(
                &ids,
                |entry| !dead(entry.handle.slot.index()),
                |_, _| removed += 1,
                |slot, page| { places.insert(slot.index(), page); },
            );
            model.retain(|_, slot| !dead(*slot));
            prop_assert_eq!(slots(&tree), model.values().copied().collect::<Vec<_>>());
            prop_assert_eq!(before.0.iter().map(|p| p.page.len()).sum::<usize>(), model.len() + removed);

            for numbered in tree.pages.0.iter() {
                for entry in &numbered.page.entries {
                    prop_assert_eq!(places.get(&entry.handle.slot.index()), Some(&numbered.id));
                }
            }
        }
    }

    #[test]
    fn ascending_and_descending_arrivals_fill_pages() {
        for descending in [false, true] {
            let mut tree = Tree::default();
            let mut places = HashMap::new();
            for index in 0..10_000u32 {
                let number = if descending { 10_000 - index } else { index };
                insert(&mut tree, &mut places, "m", Some(&format!("{number:06}")), index);
            }
            let pages = tree.snapshot().len();
            assert!(pages <= 10_000 / (MAX_ENTRIES / 2) + 1, "{pages} pages");
            assert_eq!(content(&tree).len(), 10_000);
        }
    }

    #[test]
    fn a_snapshot_stays_as_it_was() {
        let mut tree = Tree::default();
        let mut places = HashMap::new();
        insert(&mut tree, &mut places, "a", None, 1);
        let before = tree.snapshot();
        insert(&mut tree, &mut places, "b", None, 2);
        assert_eq!(before.page(0).map(Page::len), Some(1));
        assert_eq!(tree.snapshot().page(0).map(Page::len), Some(2));
        assert!(tree.snapshot().family("b").is_some());
        assert!(before.family("b").is_none());
    }
}
