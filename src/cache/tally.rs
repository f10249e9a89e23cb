//! Counts of objects, or parts of objects, by label set.
//!
//! An object contributes label sets instead of series, and the series are the counts over a store. A contribution must
//! be taken back when the object changes or is removed. Each object therefore records the number of its *group*: all
//! objects with the same label sets share a group. The text of a label set is stored once.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::counted_labels::CountedLabels;
use super::page::{PAGE, Page, PageBuilder};
use super::schema::{Rendered, Schema};
use crate::exposition::float;
use crate::util::shrink::Shrink as _;

/// Maximum number of label sets per family in a store. Further ones share an overflow series, as in OpenTelemetry SDKs
/// at their cardinality limit.
const MOST_SETS: u32 = if cfg!(test) { 40 } else { 10_000 };

/// Number of series in one piece of a page.
const PIECE: usize = 64;

/// A series: family, labels and count.
pub(super) type Count = (u32, Arc<[u8]>, u64);

/// The number of a group of objects; [`NOWHERE`] for objects without label sets.
pub(super) type Group = u32;

/// The group of objects without label sets.
pub(super) const NOWHERE: Group = 0;

/// The counts of a store.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sets: Numbered<Set>,
    /// Numbers of the label sets, by family and text.
    known: HashMap<(u32, Arc<[u8]>), u32>,
    /// Number of label sets per family, without overflow.
    of_family: HashMap<u32, u32>,
    groups: Numbered<Members>,
    /// Numbers of the groups, starting at 1.
    by_members: HashMap<Box<[Member]>, Group>,
    /// Scratch buffer for the label sets of one object.
    members: Vec<Member>,
}

/// A label set and its number of occurrences in an object.
type Member = (u32, u32);

#[derive(Debug)]
struct Set {
    family: u32,
    labels: Arc<[u8]>,
    count: u64,
    is_overflow: bool,
}

#[derive(Debug)]
struct Members {
    members: Box<[Member]>,
    objects: u32,
}

impl Tally {
    /// Returns true if nothing is counted.
    pub(super) fn is_empty(&self) -> bool {
        self.by_members.is_empty()
    }

    /// Counts an object. The returned group must be passed to [`Tally::leave`].
    pub(super) fn enter(&mut self, object: &CountedLabels) -> Group {
        if object.is_empty() {
            return NOWHERE;
        }
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        for (family, labels) in object.iter() {
            let number = self.set(family, labels, &object.overflow);
            if let Some(set) = self.sets.get_mut(number) {
                set.count += 1;
            }
            members.push((number, 1));
        }
        members.sort_unstable();
        members.dedup_by(|next, own| {
            let same = next.0 == own.0;
            own.1 += if same { next.1 } else { 0 };
            same
        });
        let group = match self.by_members.get(&members[..]) {
            Some(&group) => {
                if let Some(group) = self.groups.get_mut(group - 1) {
                    group.objects += 1;
                }
                group
            }
            None => {
                let members: Box<[Member]> = members.as_slice().into();
                let group = self.groups.add(Members { members: members.clone(), objects: 1 }) + 1;
                self.by_members.insert(members, group);
                group
            }
        };
        self.members = members;
        group
    }

    /// Takes back the contribution of an object of this group.
    pub(super) fn leave(&mut self, group: Group) {
        let Some(number) = group.checked_sub(1) else { return };
        let Some(members) = self.groups.get_mut(number) else { return };
        members.objects -= 1;
        let is_last = members.objects == 0;
        for &(number, times) in &members.members {
            let Some(set) = self.sets.get_mut(number) else { continue };
            set.count -= u64::from(times);
            if set.count == 0
                && let Some(set) = self.sets.remove(number)
            {
                self.known.remove(&(set.family, set.labels));
                if let Some(sets) = self.of_family.get_mut(&set.family)
                    && !set.is_overflow
                {
                    *sets -= 1;
                }
                self.known.shrink();
            }
        }
        if is_last && let Some(members) = self.groups.remove(number) {
            self.by_members.remove(&members.members);
            self.by_members.shrink();
        }
    }

    /// Returns all series in no particular order.
    pub(super) fn counts(&self) -> Vec<Count> {
        let sets = self.sets.iter();
        sets.map(|set| (set.family, Arc::clone(&set.labels), set.count)).collect()
    }

    /// Returns the series of a part of the objects, given as the number of objects of each group.
    pub(super) fn counts_of(&self, objects: &BTreeMap<Group, u64>) -> Vec<Count> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for (group, objects) in objects {
            let members = group.checked_sub(1).and_then(|number| self.groups.get(number));
            for &(number, times) in members.iter().flat_map(|members| &members.members) {
                *counts.entry(number).or_default() += u64::from(times) * objects;
            }
        }
        let series = counts.into_iter().filter_map(|(number, count)| {
            let set = self.sets.get(number)?;
            Some((set.family, Arc::clone(&set.labels), count))
        });
        series.collect()
    }

    /// Returns the number of a label set, adding it if necessary.
    fn set(&mut self, family: u32, labels: &[u8], overflow: &[u8]) -> u32 {
        let key = (family, labels.into());
        if let Some(&number) = self.known.get(&key) {
            return number;
        }
        let sets = self.of_family.entry(family).or_default();
        let is_overflow = *sets >= MOST_SETS;
        let key = if is_overflow { (family, overflow.into()) } else { key };
        if is_overflow {
            if let Some(&number) = self.known.get(&key) {
                return number;
            }
        } else {
            *sets += 1;
        }
        let labels = Arc::clone(&key.1);
        let number = self.sets.add(Set { family, labels, count: 0, is_overflow });
        self.known.insert(key, number);
        number
    }
}

/// A slab: items by number, with reuse of numbers.
#[derive(Debug)]
struct Numbered<T> {
    things: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { things: Vec::new(), free: Vec::new() }
    }
}

impl<T> Numbered<T> {
    fn add(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.things[number as usize] = Some(thing);
            return number;
        }
        self.things.push(Some(thing));
        (self.things.len() - 1) as u32
    }

    fn get(&self, number: u32) -> Option<&T> {
        self.things.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.things.get_mut(number as usize)?.as_mut()
    }

    fn remove(&mut self, number: u32) -> Option<T> {
        let thing = self.things.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.things.iter().flatten()
    }
}

/// Returns the sums over the stores of a resource, as pages of objects without identities.
pub(super) fn pages(schema: &Schema, stores: impl Iterator<Item = Vec<Count>>) -> Vec<Arc<Page>> {
    let mut sums: BTreeMap<(u32, Arc<[u8]>), u64> = BTreeMap::new();
    for (family, labels, count) in stores.flatten() {
        *sums.entry((family, labels)).or_default() += count;
    }
    let families = schema.families.len();
    let (mut pages, mut builder, mut objects) = (Vec::new(), PageBuilder::new(families), 0);
    let (mut piece, mut lines) = (Rendered::default(), 0);
    let mut sums = sums.into_iter().peekable();
    while let Some(((family, labels), count)) = sums.next() {
        piece.lines.extend_from_slice(&labels);
        piece.lines.push(b' ');
        float::write(&mut piece.lines, count as f64);
        piece.lines.push(b'\n');
        lines += 1;
        let is_same = sums.peek().is_some_and(|((next, _), _)| *next == family);
        if is_same && lines < PIECE {
            continue;
        }
        let end = piece.lines.len() as u32;
        let ends = (0..families).map(|one| if one < family as usize { 0 } else { end });
        piece.ends.extend(ends);
        builder.push(&piece);
        piece.clear();
        (lines, objects) = (0, objects + 1);
        if objects == PAGE || sums.peek().is_none() {
            pages.push(Arc::new(builder.take()));
            objects = 0;
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::body::{Place, expand};
    use super::super::{Catalog, Family, MetricKind, Store};
    use super::*;
    use crate::exposition::{Format, ScrapeQuery, Source};
    use crate::util::shrink::SMALL;

    fn schema() -> Arc<Schema> {
        let family = |name: &str| Family {
            name: name.to_owned(),
            help: "H".to_owned(),
            kind: MetricKind::Gauge,
        };
        Arc::new(Schema { resource: "things".into(), families: ["a", "b", "c"].map(family).into() })
    }

    /// Returns an object with a series in family `b`, counted in families `a` and `c`.
    fn object(uid: u8, sets: &[(bool, u8)]) -> Rendered {
        let mut out = Rendered::default();
        out.uid.push(uid);
        out.identity = format!("{{uid=\"{uid}\"").into_bytes();
        out.lines = b"} 1\n".to_vec();
        out.ends = vec![0, 4, 4];
        out.counted.overflow = b"{overflow=\"true\"}".to_vec();
        for (in_a, set) in sets {
            out.counted.push(if *in_a { 0 } else { 2 }, &labels(*set));
        }
        out
    }

    fn labels(set: u8) -> Vec<u8> {
        if set == 0 { Vec::new() } else { format!("{{set=\"{set}\"}}").into_bytes() }
    }

    fn series(catalog: &Catalog) -> BTreeMap<String, u64> {
        let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
        let body = String::from_utf8(frames.flatten().collect()).unwrap();
        let mut series = BTreeMap::new();
        // Both stores may have an object with the same uid.
        for line in body.lines().filter(|line| !line.starts_with(['#', 'b'])) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(series.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line}");
        }
        series
    }

    type Sets = Vec<(bool, u8)>;

    #[derive(Clone, Debug)]
    enum Op {
        Apply(bool, u8, Sets),
        Delete(bool, u8),
        Replace(bool, Vec<(u8, Sets)>, Vec<u8>),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let sets = || prop::collection::vec((any::<bool>(), 0..12u8), 0..5);
        let objects = || prop::collection::vec((0..150u8, sets()), 0..150);
        let op = prop_oneof![
            30 => (any::<bool>(), 0..150u8, sets()).prop_map(|(at, uid, sets)| Op::Apply(at, uid, sets)),
            15 => (any::<bool>(), 0..150u8).prop_map(|(at, uid)| Op::Delete(at, uid)),
            1 => (any::<bool>(), objects(), prop::collection::vec(0..150u8, 0..5))
                .prop_map(|(at, objects, gone)| Op::Replace(at, objects, gone)),
        ];
        prop::collection::vec(op, 0..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Counts over two stores of one resource follow any updates, removals and lists.
        #[test]
        fn counts_are_those_of_the_present_objects(ops in ops()) {
            let stores = [(); 2].map(|()| Arc::new(Store::new(schema())));
            let catalog = Catalog::new();
            catalog.register(schema(), stores.to_vec());
            let mut model: [BTreeMap<u8, Sets>; 2] = Default::default();
            for op in ops {
                match op {
                    Op::Apply(at, uid, sets) => {
                        stores[usize::from(at)].apply(&object(uid, &sets));
                        model[usize::from(at)].insert(uid, sets);
                    }
                    Op::Delete(at, uid) => {
                        stores[usize::from(at)].delete(&[uid]);
                        model[usize::from(at)].remove(&uid);
                    }
                    Op::Replace(at, objects, gone) => {
                        let model = &mut model[usize::from(at)];
                        model.clear();
                        let mut replacement = stores[usize::from(at)].replace();
                        for (uid, sets) in objects {
                            replacement.push(&object(uid, &sets));
                            model.insert(uid, sets);
                        }
                        for uid in gone {
                            replacement.delete(&[uid]);
                            model.remove(&uid);
                        }
                        replacement.commit();
                    }
                }
            }
            let mut want: BTreeMap<String, u64> = BTreeMap::new();
            for (_, sets) in model.iter().flatten() {
                for (in_a, set) in sets {
                    let labels = String::from_utf8(labels(*set)).unwrap();
                    *want.entry(format!("{}{labels}", if *in_a { 'a' } else { 'c' })).or_default() += 1;
                }
            }
            prop_assert_eq!(series(&catalog), want);
            // Removed objects leave nothing behind.
            for (store, model) in stores.iter().zip(&model) {
                for uid in model.keys() {
                    prop_assert!(store.delete(&[*uid]));
                }
                prop_assert!(store.counts().is_empty());
            }
        }
    }

    #[test]
    fn too_many_label_sets_are_counted_together() {
        let store = Arc::new(Store::new(schema()));
        let catalog = Catalog::new();
        catalog.register(schema(), vec![Arc::clone(&store)]);
        (1..=100).for_each(|uid| store.apply(&object(uid, &[(true, uid), (false, 1)])));
        let overflow = "a{overflow=\"true\"}";
        let counts = series(&catalog);
        assert_eq!((counts[overflow], counts["c{set=\"1\"}"]), (60, 100));
        assert_eq!(counts.keys().filter(|name| name.starts_with('a')).count(), 41);
        // A removed label set makes room for another one.
        (1..=20).for_each(|uid| assert!(store.delete(&[uid])));
        (41..=50).for_each(|uid| store.apply(&object(uid, &[(true, uid)])));
        let counts = series(&catalog);
        assert_eq!(
            (counts[overflow], counts["a{set=\"50\"}"], counts["c{set=\"1\"}"]),
            (50, 1, 70)
        );
        (21..=100).for_each(|uid| assert!(store.delete(&[uid])));
        assert!(series(&catalog).is_empty());
    }

    #[test]
    fn tables_shrink_when_objects_leave() {
        let mut tally = Tally::default();
        let groups: Vec<Group> = (0..2_000)
            .map(|n| {
                let mut object = CountedLabels::default();
                object.overflow = b"{}".to_vec();
                object.push(n % 100, format!("{{n=\"{n}\"}}").as_bytes());
                tally.enter(&object)
            })
            .collect();
        assert!(tally.known.capacity() >= 2_000 && tally.by_members.capacity() >= 2_000);
        groups[1..].iter().for_each(|group| tally.leave(*group));
        assert_eq!((tally.known.len(), tally.by_members.len()), (1, 1));
        assert!(tally.known.capacity() <= SMALL && tally.by_members.capacity() <= SMALL);
    }

    /// The series fill several pages.
    #[test]
    fn many_label_sets_fill_pages() {
        let schema = schema();
        let counts = (0..10_000u32).map(|n| {
            let labels = format!("{{n=\"{n:05}\"}}");
            (n % 3, labels.into_bytes().into(), u64::from(n))
        });
        let pages = pages(&schema, std::iter::once(counts.collect()));
        let mut text = Vec::new();
        for (family, name) in ["a", "b", "c"].iter().enumerate() {
            for page in &pages {
                let (name, mut from) = (name.as_bytes(), Some(Place::default()));
                while let Some(place) = from {
                    let mut piece = Vec::new();
                    from = expand(name, page, family, place, &mut piece);
                    text.append(&mut piece);
                }
            }
        }
        let text = String::from_utf8(text).unwrap();
        let want = (0..3u32).flat_map(|family| (0..10_000).filter(move |n| n % 3 == family));
        let want = want.map(|n| format!("{}{{n=\"{n:05}\"}} {n}", ["a", "b", "c"][n as usize % 3]));
        assert!(text.lines().eq(want));
        assert_eq!(pages.len(), 10_000usize.div_ceil(PIECE * PAGE));
    }
}
