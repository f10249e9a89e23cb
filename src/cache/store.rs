//! A store: the objects of one resource (and, where namespaces are listed, of one of them).

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::kept::Kept;
use super::objects::{Filling, Key, Objects};
use super::packed::Packed;
use super::page::Page;
use super::schema::{Rendered, Schema, Size};
use super::tally::Count;
use crate::growth::{Growth, MINUTES};

/// Minutes are counted from here.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The present minute.
fn minute() -> u64 {
    ORIGIN.elapsed().as_secs() / 60
}

/// The objects of one list/watch, each present in exactly one version.
///
/// The lock is held for one update, or for taking a snapshot (one reference for each 64 objects);
/// never while text is produced. A page that a snapshot still holds is copied before it is changed.
#[derive(Debug)]
pub struct Store {
    schema: Arc<Schema>,
    hasher: Keys,
    objects: Mutex<Objects>,
    growth: Mutex<Growth>,
}

/// What a scrape reads: the pages of one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) pages: Vec<Arc<Page>>,
    /// What was counted over all objects.
    pub(super) counts: Vec<Count>,
    /// As [`Objects::content`]; 0 for what was made for one scrape.
    pub(super) content: u64,
    /// As [`Objects::packed`].
    pub(super) packed: Arc<Packed>,
}

/// Makes a key of a uid: two independently seeded 64-bit hashes. With a seed of the process's own, two of a
/// million objects share one with a probability below 2^-88.
#[derive(Clone, Debug, Default)]
struct Keys(foldhash::quality::RandomState, foldhash::quality::RandomState);

impl Keys {
    fn key(&self, uid: &[u8]) -> Key {
        u128::from(self.0.hash_one(uid)) << 64 | u128::from(self.1.hash_one(uid))
    }
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> Self {
        let (objects, growth) = Default::default();
        Self { schema, hasher: Keys::default(), objects, growth }
    }

    /// The families that its objects have.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Inserts an object, or replaces the one with the same uid.
    pub fn apply(&self, object: &Rendered) {
        let key = self.hasher.key(&object.uid);
        let mut objects = self.lock();
        let before = objects.series();
        objects.apply(key, object, self.schema.families.len());
        let more = objects.series().saturating_sub(before);
        self.grown(more);
    }

    fn grown(&self, series: u64) {
        if series > 0 {
            let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
            growth.note(minute(), series);
        }
    }

    /// Series that came in each of the last minutes, the present one first.
    pub(super) fn growth(&self) -> [u64; MINUTES] {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner).by_minute(minute())
    }

    /// Removes the object with this uid; tells whether there was one.
    pub fn delete(&self, uid: &[u8]) -> bool {
        self.lock().delete(self.hasher.key(uid))
    }

    /// Whether there is an object with this uid.
    #[must_use]
    pub fn contains(&self, uid: &[u8]) -> bool {
        self.lock().contains(self.hasher.key(uid))
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many series its objects have; what is counted over all of them is not among these.
    #[must_use]
    pub fn series(&self) -> u64 {
        self.lock().series()
    }

    /// What tells the object with this uid from others.
    pub(crate) fn key(&self, uid: &[u8]) -> Key {
        self.hasher.key(uid)
    }

    /// What `look` says of the object with this uid; nothing is changed meanwhile.
    pub(crate) fn look<T>(&self, uid: &[u8], look: impl FnOnce(Kept<'_>) -> T) -> Option<T> {
        self.lock().get(self.hasher.key(uid)).map(look)
    }

    /// Shows every object of this moment. Of how many series each has, nothing is said.
    pub(crate) fn each(&self, mut see: impl FnMut(Kept<'_>)) {
        for page in self.snapshot().pages {
            (0..page.len()).for_each(|slot| see(Kept::paged(&page, slot, 0)));
        }
    }

    /// How many objects there are of each namespace.
    pub(crate) fn namespaces(&self, count: &mut BTreeMap<Vec<u8>, u64>) {
        for page in self.snapshot().pages {
            for (namespace, objects) in page.namespaces() {
                if let Some(count) = count.get_mut(namespace) {
                    *count += objects as u64;
                } else {
                    count.insert(namespace.to_vec(), objects as u64);
                }
            }
        }
    }

    /// How large the text of a scrape is that shows its objects. The first look goes through all of them, later ones
    /// through pages that have changed; nothing is locked meanwhile.
    #[must_use]
    pub fn size(&self) -> Size {
        let Snapshot { pages, counts, .. } = self.snapshot();
        let mut size = Size::default();
        for page in pages {
            let Size { series, bytes } = page.size(&self.schema.families);
            size.series += series;
            size.bytes += bytes;
        }
        for (family, labels, count) in counts {
            let name =
                self.schema.families.get(family as usize).map_or(0, |family| family.name.len());
            // A blank stands before the number, a line end behind it.
            let line = name + labels.len() + count.to_string().len() + 2;
            size.series += 1;
            size.bytes += line as u64;
        }
        size
    }

    /// Begins to build the content anew, beside the present one.
    #[must_use]
    pub fn replace(self: &Arc<Self>) -> Replacement {
        Replacement { store: Arc::clone(self), filling: Filling::new(self.schema.families.len()) }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let objects = self.lock();
        let (pages, counts) = (objects.pages(), objects.counts());
        let packed = Arc::clone(objects.packed());
        Snapshot { pages, counts, content: objects.content(), packed }
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> Vec<Count> {
        self.lock().counts()
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        // An update that panicked half-way leaves at worst one object's text stale.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The content of a store being built by a list, to take the place of the old one as a whole.
#[derive(Debug)]
pub struct Replacement {
    store: Arc<Store>,
    filling: Filling,
}

impl Replacement {
    /// Adds an object, or replaces the one with the same uid.
    pub fn push(&mut self, object: &Rendered) {
        self.filling.push(self.store.hasher.key(&object.uid), object);
    }

    /// Removes an object that was added before.
    pub fn delete(&mut self, uid: &[u8]) -> bool {
        self.filling.delete(self.store.hasher.key(uid))
    }

    /// Whether an object with this uid was added.
    #[must_use]
    pub fn contains(&self, uid: &[u8]) -> bool {
        self.filling.contains(self.store.hasher.key(uid))
    }

    /// How many series these have.
    #[must_use]
    pub fn series(&self) -> u64 {
        self.filling.series()
    }

    /// As [`Store::look`].
    pub(crate) fn look<T>(&mut self, uid: &[u8], look: impl FnOnce(Kept<'_>) -> T) -> Option<T> {
        let key = self.store.hasher.key(uid);
        if !self.filling.contains(key) {
            return None;
        }
        self.filling.objects().get(key).map(look)
    }

    /// As [`Store::each`].
    pub(crate) fn each(&mut self, mut see: impl FnMut(Kept<'_>)) {
        for page in self.filling.objects().pages() {
            (0..page.len()).for_each(|slot| see(Kept::paged(&page, slot, 0)));
        }
    }

    /// How many objects were added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.filling.len()
    }

    /// Whether none was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes what was added the content of the store.
    pub fn commit(self) {
        let new = self.filling.end();
        let mut objects = self.store.lock();
        let old = std::mem::replace(&mut *objects, new);
        let more = objects.series().saturating_sub(old.series());
        drop(objects);
        self.store.grown(more);
        // Freeing a large kind takes a while: not under the lock.
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::{Catalog, Family, MetricKind};
    use super::*;
    use crate::exposition::{Format, ScrapeQuery, Source};

    fn schema() -> Arc<Schema> {
        let family = |name: &str| Family {
            name: name.to_owned(),
            help: format!("Help of {name}."),
            kind: MetricKind::Gauge,
        };
        Arc::new(Schema { resource: "things".into(), families: ["a", "b", "c"].map(family).into() })
    }

    /// An object with `series[f]` series in family `f`.
    fn object(uid: u16, version: u32, series: [u8; 3]) -> Rendered {
        let mut out = Rendered::default();
        out.uid.extend_from_slice(format!("uid-{uid}").as_bytes());
        out.identity.extend_from_slice(format!("{{uid=\"{uid}\"").as_bytes());
        for count in series {
            for n in 0..count {
                out.lines.extend_from_slice(format!(",n=\"{n}\"}} {version}\n").as_bytes());
            }
            out.ends.push(out.lines.len() as u32);
        }
        out
    }

    fn text(catalog: &Catalog) -> Vec<String> {
        let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
        let body = String::from_utf8(frames.flatten().collect()).unwrap();
        body.lines().map(str::to_owned).collect()
    }

    /// The text of a gzip body.
    fn inflated(catalog: &Catalog) -> Vec<u8> {
        super::super::inflated::inflated(catalog.deflated(Format::Text, &ScrapeQuery::default()))
    }

    fn expected(model: &BTreeMap<u16, (u32, [u8; 3])>) -> Vec<String> {
        let mut lines = Vec::new();
        if model.is_empty() {
            return lines;
        }
        for (at, name) in ["a", "b", "c"].iter().enumerate() {
            lines.push(format!("# HELP {name} Help of {name}."));
            lines.push(format!("# TYPE {name} gauge"));
            for (uid, (version, series)) in model {
                for n in 0..series[at] {
                    lines.push(format!("{name}{{uid=\"{uid}\",n=\"{n}\"}} {version}"));
                }
            }
        }
        lines
    }

    /// Headers and families in order; objects in any.
    fn grouped(lines: Vec<String>) -> Vec<Vec<String>> {
        let mut groups: Vec<Vec<String>> = Vec::new();
        for line in lines {
            match groups.last_mut() {
                Some(group) if !line.starts_with("# HELP") => group.push(line),
                _ => groups.push(vec![line]),
            }
        }
        for group in &mut groups {
            group[2..].sort_unstable();
        }
        groups
    }

    #[derive(Clone, Debug)]
    enum Op {
        Apply(u16, u32, [u8; 3]),
        Delete(u16),
        Replace(Vec<(u16, u32, [u8; 3])>, Vec<u16>),
        Snapshot,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let one = || (0..200u16, 0..2_000_000u32, [0..3u8, 0..4u8, 0..20u8]);
        let op = prop_oneof![
            40 => one().prop_map(|(uid, version, series)| Op::Apply(uid, version, series)),
            20 => (0..200u16).prop_map(Op::Delete),
            1 => (prop::collection::vec(one(), 0..300), prop::collection::vec(0..200u16, 0..5))
                .prop_map(|(objects, deleted)| Op::Replace(objects, deleted)),
            2 => Just(Op::Snapshot),
        ];
        prop::collection::vec(op, 0..400)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Whatever happens, a scrape shows each object once and in its last version; a snapshot shows
        /// what was when it was taken.
        #[test]
        fn a_scrape_shows_the_last_version_of_each_object(ops in ops()) {
            let schema = schema();
            let store = Arc::new(Store::new(Arc::clone(&schema)));
            let catalog = Catalog::new();
            catalog.register(schema, vec![Arc::clone(&store)]);
            let mut model = BTreeMap::new();
            let mut held = Vec::new();
            for op in ops {
                match op {
                    Op::Apply(uid, version, series) => {
                        store.apply(&object(uid, version, series));
                        model.insert(uid, (version, series));
                    }
                    Op::Delete(uid) => {
                        let was_there = model.remove(&uid).is_some();
                        prop_assert_eq!(store.delete(format!("uid-{uid}").as_bytes()), was_there);
                    }
                    Op::Replace(objects, deleted) => {
                        let mut replacement = store.replace();
                        model.clear();
                        for (uid, version, series) in objects {
                            replacement.push(&object(uid, version, series));
                            model.insert(uid, (version, series));
                        }
                        for uid in deleted {
                            let was_there = model.remove(&uid).is_some();
                            let uid = format!("uid-{uid}");
                            prop_assert_eq!(replacement.delete(uid.as_bytes()), was_there);
                        }
                        replacement.commit();
                    }
                    Op::Snapshot => {
                        let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
                        held.push((frames, expected(&model)));
                        let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
                        prop_assert_eq!(inflated(&catalog), frames.flatten().collect::<Vec<_>>());
                    }
                }
                prop_assert_eq!(store.len(), model.len());
                let lines = expected(&model);
                let lines = lines.iter().filter(|line| !line.starts_with('#'));
                let size = Size {
                    series: lines.clone().count() as u64,
                    bytes: lines.map(|line| line.len() as u64 + 1).sum(),
                };
                prop_assert_eq!(store.size(), size);
            }
            held.push((catalog.frames(Format::Text, &ScrapeQuery::default()), expected(&model)));
            let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
            prop_assert_eq!(inflated(&catalog), frames.flatten().collect::<Vec<_>>());
            for (frames, want) in held {
                let body = String::from_utf8(frames.flatten().collect()).unwrap();
                let got = body.lines().map(str::to_owned).collect();
                prop_assert_eq!(grouped(got), grouped(want));
            }
        }
    }

    /// What is counted stands behind the series of objects, in a gzip body too.
    #[test]
    fn counts_are_in_every_body() {
        let schema = schema();
        let stores = [(); 2].map(|()| Arc::new(Store::new(Arc::clone(&schema))));
        let catalog = Catalog::new();
        catalog.register(schema, stores.to_vec());
        for n in 0u16..4_000 {
            let mut one = object(n, 7, [1, 0, 2]);
            let label = format!("{{kind=\"some-kind-{}\"}}", n % 2_000);
            one.counted.push(1, label.as_bytes());
            stores[usize::from(n % 2)].apply(&one);
        }
        let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
        let body = frames.flatten().collect::<Vec<_>>();
        assert!(inflated(&catalog) == body);
        let body = String::from_utf8(body).unwrap();
        let counted: Vec<&str> = body.lines().filter(|line| line.starts_with("b{kind")).collect();
        let sizes = stores.each_ref().map(|store| store.size().series);
        assert!(sizes.iter().sum::<u64>() >= 8_000 + 40, "{sizes:?}");
        // Beyond the bound of each store they are counted together, here without labels.
        let sum = |lines: &[&str]| -> u32 {
            lines.iter().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()).sum()
        };
        assert!(counted.len() >= 40 && sum(&counted) >= 80, "{}", counted.len());
        let all: Vec<&str> = body.lines().filter(|line| line.starts_with('b')).collect();
        assert_eq!(sum(&all), 4_000);
    }

    /// Identities of the shape that pods have, with names of different lengths, long ones that do not
    /// fit deflate's window among them.
    #[test]
    fn deflated_identities_are_the_plain_ones() {
        let schema = schema();
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        let catalog = Catalog::new();
        catalog.register(schema, vec![Arc::clone(&store)]);
        for n in 0u64..500 {
            let mut pod = object(n as u16, n as u32 % 3, [1, (n % 2) as u8, (n % 7 / 5) as u8 * 3]);
            let long = "n".repeat(if n % 97 == 5 { 40_000 } else { n as usize % 13 });
            let (team, random) = (n / 90, n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            pod.identity = format!(
                "{{namespace=\"team-{team}\",pod=\"app-{long}-{random:x}\",uid=\"{random:016x}\""
            )
            .into_bytes();
            store.apply(&pod);
        }
        // The second scrape finds what the first one noted.
        for _ in 0..2 {
            let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
            assert!(inflated(&catalog) == frames.flatten().collect::<Vec<_>>());
        }
    }

    /// Families whose bits are noted, while objects come, change and go.
    #[test]
    fn noted_bits_are_those_of_the_present_objects() {
        let schema = schema();
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        let catalog = Catalog::new();
        catalog.register(schema, vec![Arc::clone(&store)]);
        let mut random = 1u32;
        let mut next = move |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let mut words = move |uid: u16| {
            let mut pod = object(uid, 0, [1, 0, 0]);
            for _ in 0..6 + next(20) {
                let label = format!(",key_{}=\"some-{}-words-{}\"", next(60), next(40), next(30));
                pod.lines.extend_from_slice(label.as_bytes());
            }
            pod.lines.extend_from_slice(b"} 1\n");
            pod.ends[1] = pod.lines.len() as u32;
            pod.ends[2] = pod.lines.len() as u32;
            pod
        };
        let scrape = || {
            let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
            assert!(inflated(&catalog) == frames.flatten().collect::<Vec<_>>());
            let pages = store.snapshot().pages;
            pages.iter().map(|page| page.noted()).sum::<usize>()
        };
        (0..800).for_each(|uid| store.apply(&words(uid)));
        assert!(scrape() > 10_000);
        let noted = scrape();
        for round in 0..6 {
            for at in 0..40 {
                store.apply(&words(at * 19));
                store.delete(format!("uid-{}", at * 17 + round).as_bytes());
                store.apply(&words(1_000 + at * 7 + round));
            }
            assert!(scrape() > noted / 2);
        }
        // An object that did not change costs its page nothing.
        let one = words(1);
        store.apply(&one);
        let noted = scrape();
        store.apply(&one);
        let pages = store.snapshot().pages;
        assert_eq!(pages.iter().map(|page| page.noted()).sum::<usize>(), noted);
    }

    /// Lines that differ from object to object are noted, the bulk of identities is not noted with them again.
    #[test]
    fn bits_of_lines_are_noted_without_those_of_identities() {
        let schema = schema();
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        let catalog = Catalog::new();
        catalog.register(schema, vec![Arc::clone(&store)]);
        let mut random = 1u64;
        let mut next = move || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            random >> 16
        };
        let mut pod = move |uid: u16| {
            let mut pod = object(uid, 0, [1, 0, 0]);
            pod.identity = format!(
                "{{namespace=\"shop-{}\",pod=\"cart-{uid:05}\",uid=\"{:012x}-{:012x}-{:012x}\"",
                uid / 100,
                next(),
                next(),
                next()
            )
            .into_bytes();
            pod.lines.extend_from_slice(format!("}} {}\n", next() % 1_000_000_000).as_bytes());
            pod.ends[1] = pod.lines.len() as u32;
            pod.lines.extend_from_slice(b"} 1\n");
            pod.ends[2] = pod.lines.len() as u32;
            pod
        };
        let scrape = || {
            // The second scrape finds what the first one noted.
            for _ in 0..2 {
                let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
                assert!(inflated(&catalog) == frames.flatten().collect::<Vec<_>>());
            }
            let pages = store.snapshot().pages;
            pages.iter().map(|page| page.noted()).sum::<usize>() / store.len()
        };
        (0..2_000).for_each(|uid| store.apply(&pod(uid)));
        // Nine digits, and copies; an identity takes 19 bytes more.
        assert!((4..16).contains(&scrape()));
        for round in 0..4 {
            for at in 0..40 {
                store.apply(&pod(at * 47));
                store.delete(format!("uid-{}", at * 31 + round).as_bytes());
                store.apply(&pod(3_000 + at * 7 + round));
            }
            assert!((4..16).contains(&scrape()));
        }
    }

    #[test]
    fn pieces_of_any_length_keep_their_places() {
        let schema = schema();
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        let catalog = Catalog::new();
        catalog.register(schema, vec![Arc::clone(&store)]);
        for (version, counts) in
            [[0, 0, 1], [0, 60, 1], [1, 255, 255], [0, 1, 0]].iter().enumerate()
        {
            for uid in 0..70 {
                store.apply(&object(uid, version as u32, *counts));
            }
            let model = (0..70).map(|uid| (uid, (version as u32, *counts))).collect();
            assert_eq!(grouped(text(&catalog)), grouped(expected(&model)));
        }
        let mut large = object(7, 1, [0, 0, 0]);
        large.lines = b",n=\"0\"} 1\n".repeat(20_000);
        large.ends = vec![0, large.lines.len() as u32, large.lines.len() as u32];
        store.apply(&large);
        let lines = text(&catalog);
        assert_eq!(inflated(&catalog), format!("{}\n", lines.join("\n")).as_bytes());
        assert_eq!(lines.iter().filter(|line| line.contains("uid=\"7\"")).count(), 20_000);
        assert_eq!(lines.iter().filter(|line| line.contains("uid=\"69\"")).count(), 1);
    }
}
