//! The series in exposition order, in a sorted sequence of pages.
//!
//! A page holds up to 160 adjacent series: the text of their labels in one buffer, with their
//! common prefix stored once, and the family and slot of each. The pages are the index, the exposition order
//! and the storage of the text at once, and a scrape copies text from front to back. Scrapes share pages
//! through `Arc`s: a [`Snapshot`] costs one reference count, and a page is copied only if it changes while a
//! scrape holds it.

mod page;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use page::Target;
pub(crate) use page::{Entry, Key, LabelAssembler, Page, SeriesRef};

use super::cell::SlotId;
use super::family::Family;
use crate::exposition::labels::ParsedLabels;

/// The position of a series, existing or to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    page: usize,
    entry: usize,
}

#[derive(Clone, Debug)]
struct NumberedPage {
    id: u32,
    page: Arc<Page>,
}

/// All pages at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot(Arc<Vec<NumberedPage>>);

impl Snapshot {
    /// Returns the page at an index.
    pub(crate) fn page(&self, index: usize) -> Option<&Page> {
        self.0.get(index).map(|numbered| &*numbered.page)
    }

    /// Returns the pages.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Page> {
        self.0.iter().map(|numbered| &*numbered.page)
    }

    /// Returns every family with its number of series.
    pub(crate) fn families(&self) -> impl Iterator<Item = (&Family, u64)> {
        let mut last: Option<&Arc<Family>> = None;
        let entries = self.0.iter().flat_map(move |numbered| {
            let entries = &numbered.page.entries;
            let ends = (entries.first(), entries.last());
            // A page with a single family, as most are in large registries, needs only its first entry.
            let is_one = matches!(ends, (Some(first), Some(last)) if Arc::ptr_eq(&first.family, &last.family));
            entries.iter().take(if is_one { 1 } else { usize::MAX })
        });
        entries.filter_map(move |entry| {
            let again = last.is_some_and(|last| Arc::ptr_eq(last, &entry.family));
            last = Some(&entry.family);
            (!again).then(|| (&*entry.family, u64::from(entry.family.live())))
        })
    }

    /// Returns the index of the page where the series of family `name` begin.
    pub(crate) fn page_of(&self, name: &str) -> usize {
        let key = Key { name, labels: b"", label_count: 0 };
        let labels = &ParsedLabels::default();
        page_before(&self.0, &Target { key: &key, labels, family: None })
    }

    /// Calls `find` with the series of a family and their label texts until it returns a value.
    pub(crate) fn find_series<T>(
        &self,
        name: &str,
        mut find: impl FnMut(&Entry, &[u8]) -> Option<T>,
    ) -> Option<T> {
        let mut assembler = LabelAssembler::default();
        for page in self.iter().skip(self.page_of(name)) {
            assembler.begin(page);
            for (entry, rest) in page.iter() {
                let found = match (*entry.family.name).cmp(name) {
                    Ordering::Less => None,
                    Ordering::Equal => find(entry, assembler.labels(rest)),
                    Ordering::Greater => return None,
                };
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Returns the family called `name`, if it has series.
    pub(crate) fn family(&self, name: &str) -> Option<&Arc<Family>> {
        self.family_near(name, self.page_of(name))
    }

    /// Returns the family called `name`; faster if its series begin on page `near`.
    pub(crate) fn family_near(&self, name: &str, near: usize) -> Option<&Arc<Family>> {
        let key = Key { name, labels: b"", label_count: 0 };
        let labels = &ParsedLabels::default();
        let target = Target { key: &key, labels, family: None };
        let begins_before = |page: &&Page| page.compare(0, &target, None).is_le();
        let (index, page) = match self.page(near).filter(begins_before) {
            Some(page) => (near, page),
            None => {
                let index = self.page_of(name);
                (index, self.page(index)?)
            }
        };
        let (Ok(at) | Err(at)) = page.search(&target);
        let entry = match page.entries.get(at) {
            Some(entry) => entry,
            // The family may begin on a later page, and `near` may be far before the right one.
            None => {
                let next = self.page_of(name).max(index);
                let page = self.page(next)?;
                let (Ok(at) | Err(at)) = page.search(&target);
                let first_of_next = || self.page(next + 1)?.entries.first();
                page.entries.get(at).or_else(first_of_next)?
            }
        };
        (*entry.family.name == *name).then_some(&entry.family)
    }
}

/// Returns the index of the last page that begins at or before `target`, or 0.
fn page_before(pages: &[NumberedPage], target: &Target<'_>) -> usize {
    pages
        .partition_point(|numbered| numbered.page.compare(0, target, None).is_le())
        .saturating_sub(1)
}

/// The sorted sequence of pages. There is one writer; readers take a [`Snapshot`].
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pages: Snapshot,
    next_id: u32,
    /// Incremented by every change.
    version: u64,
}

impl Tree {
    /// Returns a snapshot of the current pages.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.pages.clone()
    }

    /// Returns the position of `key`; as an error, the position to insert it at. `labels` are its parsed labels, and
    /// `family` is its family, if it exists.
    pub(crate) fn find(
        &self,
        key: &Key<'_>,
        labels: &ParsedLabels<'_>,
        family: Option<&Family>,
    ) -> Result<Position, Position> {
        let target = Target { key, labels, family };
        let page = page_before(&self.pages.0, &target);
        match self.pages.page(page).map(|page| page.search(&target)) {
            Some(Ok(entry)) => Ok(Position { page, entry }),
            Some(Err(entry)) => Err(Position { page, entry }),
            None => Err(Position { page: 0, entry: 0 }),
        }
    }

    /// Returns the series at a position returned by [`Tree::find`].
    pub(crate) fn series_ref(&self, at: Position) -> Option<SeriesRef> {
        let entry = self.pages.page(at.page)?.entries.get(at.entry)?;
        Some(SeriesRef { handle: entry.handle, ttl: entry.ttl })
    }

    /// Returns a number that stays the same as long as positions are valid.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// Inserts a series at a position returned by [`Tree::find`]. Calls `on_move` with the page of this and
    /// every moved series.
    pub(crate) fn insert(
        &mut self,
        at: Position,
        family: &Arc<Family>,
        series_ref: SeriesRef,
        key: &Key<'_>,
        mut on_move: impl FnMut(SlotId, u32),
    ) {
        self.version += 1;
        let Position { mut page, mut entry } = at;
        let full = |page: &Page| page.is_full(key.labels);
        let new_id = self.new_id();
        let pages = Arc::make_mut(&mut self.pages.0);
        match pages.get(page) {
            None => pages.push(NumberedPage { id: new_id, page: Arc::default() }),
            Some(here) if full(&here.page) => {
                let at_end = entry == here.page.len();
                if at_end && pages.get(page + 1).is_some_and(|next| !full(&next.page)) {
                    (page, entry) = (page + 1, 0);
                } else if at_end {
                    // Ascending insertions leave full pages behind. A page held by a scrape keeps its slack.
                    if let Some(full) =
                        pages.get_mut(page).and_then(|here| Arc::get_mut(&mut here.page))
                    {
                        full.shrink();
                    }
                    (page, entry) = (page + 1, 0);
                    pages.insert(page, NumberedPage { id: new_id, page: Arc::default() });
                } else if let Some(here) = pages.get_mut(page) {
                    let half = here.page.len() / 2;
                    let tail = Arc::make_mut(&mut here.page).split_off(half);
                    for moved in &tail.entries {
                        on_move(moved.handle.slot, new_id);
                    }
                    pages.insert(page + 1, NumberedPage { id: new_id, page: Arc::new(tail) });
                    if entry > half {
                        (page, entry) = (page + 1, entry - half);
                    }
                }
            }
            Some(_) => {}
        }
        if let Some(here) = pages.get_mut(page) {
            Arc::make_mut(&mut here.page).insert(entry, Arc::clone(family), series_ref, key);
            on_move(series_ref.handle.slot, here.id);
        }
    }

    /// Removes the series that are not `alive` from the pages in `ids`, calling `removed` for each, and merges small
    /// pages with a neighbour. Calls `on_move` with the new page of every moved series.
    pub(crate) fn compact(
        &mut self,
        ids: &HashSet<u32, FixedState>,
        alive: impl Fn(&Entry) -> bool,
        mut removed: impl FnMut(&Entry, &[u8]),
        mut on_move: impl FnMut(SlotId, u32),
    ) {
        self.version += 1;
        let old = std::mem::take(Arc::make_mut(&mut self.pages.0));
        let mut pages: Vec<NumberedPage> = Vec::with_capacity(old.len());
        let mut is_shorter = false;
        for NumberedPage { id, mut page } in old {
            let was_shorter = std::mem::replace(&mut is_shorter, ids.contains(&id));
            if is_shorter {
                page = Arc::new(page.filtered(&alive, &mut removed));
                if page.entries.is_empty() {
                    is_shorter = was_shorter;
                    continue;
                }
            }
            match pages.last_mut() {
                Some(before) if (was_shorter || is_shorter) && before.page.can_absorb(&page) => {
                    for moved in &page.entries {
                        on_move(moved.handle.slot, before.id);
                    }
                    Arc::make_mut(&mut before.page).append(&page);
                    is_shorter = true;
                }
                _ => pages.push(NumberedPage { id, page }),
            }
        }
        self.pages.0 = Arc::new(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::page::MAX_ENTRIES;
    use super::*;
    use crate::exposition::labels;
    use crate::statsd::series::cell::Handle;
    use crate::statsd::series::family::Kind;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    impl Snapshot {
        /// Returns the number of pages.
        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }
    }

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
        if let Err(at) = tree.find(&key, &ParsedLabels::new(key.labels), None) {
            let family = Arc::new(Family::new(name, slot, Kind::Counter, 0, 0));
            let series_ref = SeriesRef { handle: handle(slot), ttl: 0 };
            tree.insert(at, &family, series_ref, &key, |slot, page| {
                places.insert(slot.index(), page);
            });
        }
    }

    fn content(tree: &Tree) -> Vec<(String, String, usize)> {
        let snapshot = tree.snapshot();
        (0..snapshot.len())
            .filter_map(|index| snapshot.page(index))
            .flat_map(|page| {
                let mut assembler = LabelAssembler::default();
                assembler.begin(page);
                page.iter()
                    .map(|(entry, rest)| {
                        (
                            entry.family.name.to_string(),
                            String::from_utf8_lossy(assembler.labels(rest)).into_owned(),
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
        fn order_and_pages_are_correct_after_any_history(
            keys in prop::collection::vec(("[a-c]{1,2}", prop::option::of("[a-c]{0,12}")), 1..1_200),
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
            let expected = |model: &BTreeMap<(String, bool, String), usize>| {
                let text = |labelled, value: &str| if labelled { format!("k=\"{value}\"") } else { String::new() };
                model
                    .iter()
                    .map(|((name, labelled, value), slot)| (name.clone(), text(*labelled, value), *slot))
                    .collect::<Vec<_>>()
            };
            prop_assert_eq!(content(&tree), expected(&model));

            let before = tree.snapshot();
            let ids: HashSet<u32, FixedState> = places.values().copied().collect();
            let dead = |slot: usize| gone[slot];
            let mut removed = 0;
            tree.compact(
                &ids,
                |entry| !dead(entry.handle.slot.index()),
                |_, _| removed += 1,
                |slot, page| { places.insert(slot.index(), page); },
            );
            model.retain(|_, slot| !dead(*slot));
            prop_assert_eq!(content(&tree), expected(&model));
            prop_assert_eq!(before.0.iter().map(|p| p.page.len()).sum::<usize>(), model.len() + removed);

            for numbered in tree.pages.0.iter() {
                for entry in &numbered.page.entries {
                    prop_assert_eq!(places.get(&entry.handle.slot.index()), Some(&numbered.id));
                }
            }
        }
    }

    #[test]
    fn a_common_prefix_is_stored_once() {
        let mut tree = Tree::default();
        let mut places = HashMap::new();
        let shared = "s".repeat(100);
        for index in 0..1_000 {
            insert(&mut tree, &mut places, "m", Some(&format!("{shared}{index:04}")), index);
        }
        let text =
            |tree: &Tree| tree.pages.0.iter().map(|page| page.page.text.len()).sum::<usize>();
        assert!(text(&tree) < 10 * 1_000, "{}", text(&tree));
        insert(&mut tree, &mut places, "m", Some("a"), 1_000);
        insert(&mut tree, &mut places, "m", Some("t"), 1_001);
        let values: Vec<_> = content(&tree).into_iter().map(|entry| entry.1).collect();
        assert_eq!(values.first().map(String::as_str), Some("k=\"a\""));
        assert_eq!(values.get(1), Some(&format!("k=\"{shared}0000\"")));
        assert_eq!(values.get(1_000), Some(&format!("k=\"{shared}0999\"")));
        assert_eq!(values.last().map(String::as_str), Some("k=\"t\""));
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
    fn a_snapshot_does_not_change() {
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

    #[test]
    fn families_are_found_from_anywhere() {
        let mut tree = Tree::default();
        let mut places = HashMap::new();
        for index in 0..1_000 {
            insert(&mut tree, &mut places, &format!("m{index:04}"), None, index);
        }
        for index in 0..500 {
            let value = format!("{index:04}");
            insert(&mut tree, &mut places, "n", Some(&value), 1_000 + index);
        }
        let snapshot = tree.snapshot();
        for name in ["a", "m0000", "m0159", "m0160", "m0160x", "m0555", "m0999", "n", "o"] {
            let want = (name.starts_with('m') && name.len() == 5) || name == "n";
            for near in 0..=snapshot.len() {
                let found = snapshot.family_near(name, near);
                assert_eq!(
                    found.is_some_and(|family| *family.name == *name),
                    want,
                    "{name} {near}"
                );
                assert_eq!(found.is_some(), want, "{name} {near}");
            }
        }
    }
}
