//! A store: the objects of one resource, or of one of its watched namespaces.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use super::deflate_cache::DeflateCache;
use super::object_view::ObjectView;
use super::objects::{BulkLoader, Key, Objects};
use super::packed_pages::{PackedPages, PackedPart};
use super::page::Page;
use super::part::Part;
use super::schema::{Rendered, Schema, Size};
use super::tally::Count;
use crate::util::lock::Lock;
use crate::util::per_minute::{MINUTES, PerMinuteCounter};

/// Start of the first minute.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the current minute.
fn minute() -> u64 {
    ORIGIN.elapsed().as_secs() / 60
}

/// The objects of one list/watch, each in exactly one version.
///
/// The lock is held for one update or for taking a snapshot (one reference per 64 objects), never while text is
/// produced. A page that a snapshot still references is copied before it is changed.
#[derive(Debug)]
pub struct Store {
    schema: Arc<Schema>,
    hasher: Keys,
    /// An update that panicked leaves at worst the text of one object stale.
    objects: Lock<Objects>,
    growth: Lock<PerMinuteCounter>,
    packed: PackedPages,
}

/// The pages of a store at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) pages: Vec<Arc<Page>>,
    /// Keys of the objects of each page, if requested.
    pub(super) keys: Vec<Arc<Vec<Key>>>,
    /// Counts over all objects.
    pub(super) counts: Vec<Count>,
    /// Content number as in [`Objects::content`]; 0 for pages made for one scrape.
    pub(super) content: u64,
    /// Compressed text as in [`Objects::deflate_cache`].
    pub(super) deflate_cache: Arc<DeflateCache>,
    /// Packed pages of the requested virtual shard, if it is a store's.
    pub(super) packed: Option<Arc<PackedPart>>,
}

impl Snapshot {
    /// Returns the same objects with other families, each with the lines of the given family of this store, if any.
    pub(super) fn with_families(mut self, numbers: &[Option<usize>]) -> Self {
        self.pages.iter_mut().for_each(|page| *page = Arc::new(page.with_families(numbers)));
        self.counts.retain_mut(|(family, ..)| {
            let number = numbers.iter().position(|number| *number == Some(*family as usize));
            *family = number.unwrap_or_default() as u32;
            number.is_some()
        });
        Self { deflate_cache: Arc::default(), packed: None, ..self }
    }
}

/// Computes the key of a uid: a 64-bit hash seeded by the process, then the [hash](fnv1a64) used for sharding. Two of
/// a million random uids collide with a probability below 2^-88.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(foldhash::quality::RandomState);

impl Keys {
    pub(crate) fn key(&self, uid: &[u8]) -> Key {
        u128::from(self.0.hash_one(uid)) << 64 | u128::from(fnv1a64(uid))
    }
}

/// Computes the 64-bit FNV-1a hash (G. Fowler, L. C. Noll, K.-P. Vo; <http://www.isthe.com/chongo/tech/comp/fnv/>).
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET_BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

impl Store {
    /// Creates an empty store.
    pub fn new(schema: Arc<Schema>) -> Self {
        let (objects, growth, packed) = Default::default();
        Self { schema, hasher: Keys::default(), objects, growth, packed }
    }

    /// Returns the families of the objects.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Inserts an object, or replaces the one with the same uid.
    pub fn apply(&self, object: &Rendered) {
        let key = self.hasher.key(&object.uid);
        let mut objects = self.objects.lock();
        let before = objects.series();
        objects.apply(key, object, self.schema.families.len());
        let more = objects.series().saturating_sub(before);
        self.grown(more);
    }

    fn grown(&self, series: u64) {
        if series > 0 {
            self.growth.lock().add(minute(), series);
        }
    }

    /// Returns the number of series added in each of the last minutes, the current one first.
    pub(super) fn growth(&self) -> [u64; MINUTES] {
        self.growth.lock().by_minute(minute())
    }

    /// Removes the object with this uid. Returns true if there was one.
    pub fn delete(&self, uid: &[u8]) -> bool {
        self.objects.lock().delete(self.hasher.key(uid))
    }

    /// Removes the objects whose [hash](fnv1a64) does not satisfy `keep`.
    pub fn retain(&self, keep: impl Fn(u64) -> bool) {
        let others = self.objects.lock().keys(|key| !keep(key as u64));
        // The lock is released in between, because there may be many.
        for key in others {
            self.objects.lock().delete(key);
        }
    }

    /// Returns true if there is an object with this uid.
    pub fn contains(&self, uid: &[u8]) -> bool {
        self.objects.lock().contains(self.hasher.key(uid))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.lock().len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of series of the objects, without counts over objects.
    pub fn series(&self) -> u64 {
        self.objects.lock().series()
    }

    /// Returns the key of a uid.
    pub(crate) fn key(&self, uid: &[u8]) -> Key {
        self.hasher.key(uid)
    }

    /// Applies `look` to the object with this uid, under the lock.
    pub(crate) fn look<T>(&self, uid: &[u8], look: impl FnOnce(ObjectView<'_>) -> T) -> Option<T> {
        self.objects.lock().get(self.hasher.key(uid)).map(look)
    }

    /// Calls `see` for every object of a snapshot, without its number of series.
    pub(crate) fn each(&self, mut see: impl FnMut(ObjectView<'_>)) {
        for page in self.snapshot().pages {
            (0..page.len()).for_each(|slot| see(ObjectView::paged(&page, slot, 0)));
        }
    }

    /// Returns true if there are objects, and none of them has a series of this family.
    pub(super) fn lacks_family(&self, family: usize) -> bool {
        let Snapshot { pages, counts, .. } = self.snapshot();
        let has_none = pages.iter().all(|page| page.family(family).is_none());
        !pages.is_empty() && has_none && !counts.iter().any(|count| count.0 as usize == family)
    }

    /// Adds the number of objects of each namespace to `count`.
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

    /// Returns the size of the text. The first call reads all objects, later ones only changed pages. The store is not
    /// locked meanwhile.
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
            // A space before the number and a newline after it.
            let line = name + labels.len() + count.to_string().len() + 2;
            size.series += 1;
            size.bytes += line as u64;
        }
        size
    }

    /// Starts building new content. The current content stays until [`Replacement::commit`].
    pub fn replace(self: &Arc<Self>) -> Replacement {
        Replacement { store: Arc::clone(self), loader: BulkLoader::new(self.schema.families.len()) }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.packed.expire(Instant::now());
        let objects = self.objects.lock();
        let (pages, counts) = (objects.pages(), objects.counts());
        let deflate_cache = Arc::clone(objects.deflate_cache());
        let content = objects.content();
        Snapshot { pages, counts, content, deflate_cache, ..Snapshot::default() }
    }

    /// Returns all pages with the keys of their objects, and the counts over a virtual shard.
    pub(super) fn snapshot_for(&self, part: &Part) -> Snapshot {
        let objects = self.objects.lock();
        let counts = objects.counts_of(|key| part.has(key));
        let (pages, keys, content) = (objects.pages(), objects.page_keys(), objects.content());
        drop(objects);
        if pages.is_empty() {
            // With many namespaces most stores are empty. A scrape does not come to them, to replace packed pages.
            self.packed.remove(*part);
            return Snapshot { pages, keys, counts, content, ..Snapshot::default() };
        }
        let packed = self.packed.of(*part, Instant::now());
        let deflate_cache = Arc::clone(&packed.deflate_cache);
        Snapshot { pages, keys, counts, content, deflate_cache, packed: Some(packed) }
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> Vec<Count> {
        self.objects.lock().counts()
    }
}

/// New content of a store, built by a list, which replaces the old one atomically.
#[derive(Debug)]
pub struct Replacement {
    store: Arc<Store>,
    loader: BulkLoader,
}

impl Replacement {
    /// Adds an object, or replaces the one with the same uid.
    pub fn push(&mut self, object: &Rendered) {
        self.loader.push(self.store.hasher.key(&object.uid), object);
    }

    /// Removes an object added before.
    pub fn delete(&mut self, uid: &[u8]) -> bool {
        self.loader.delete(self.store.hasher.key(uid))
    }

    /// Works like [`Store::retain`], on the new content.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let others = self.loader.flushed().keys(|key| !keep(key as u64));
        for key in others {
            self.loader.delete(key);
        }
    }

    /// Returns true if an object with this uid was added.
    pub fn contains(&self, uid: &[u8]) -> bool {
        self.loader.objects.contains(self.store.hasher.key(uid))
    }

    /// Returns the number of series.
    pub fn series(&self) -> u64 {
        self.loader.objects.series()
    }

    /// Works like [`Store::look`], on the new content.
    pub(crate) fn look<T>(
        &mut self,
        uid: &[u8],
        look: impl FnOnce(ObjectView<'_>) -> T,
    ) -> Option<T> {
        let key = self.store.hasher.key(uid);
        if !self.loader.objects.contains(key) {
            return None;
        }
        self.loader.flushed().get(key).map(look)
    }

    /// Works like [`Store::each`], on the new content.
    pub(crate) fn each(&mut self, mut see: impl FnMut(ObjectView<'_>)) {
        for page in self.loader.flushed().pages() {
            (0..page.len()).for_each(|slot| see(ObjectView::paged(&page, slot, 0)));
        }
    }

    /// Returns the number of objects added.
    pub fn len(&self) -> usize {
        self.loader.objects.len()
    }

    /// Returns true if no object was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the content of the store.
    pub fn commit(self) {
        let new = self.loader.end();
        let mut objects = self.store.objects.lock();
        let old = std::mem::replace(&mut *objects, new);
        let more = objects.series().saturating_sub(old.series());
        drop(objects);
        self.store.packed.clear();
        self.store.grown(more);
        // Freeing a large content takes a while, so it happens outside the lock.
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

    /// Returns an object with `series[f]` series in family `f`.
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

    /// Returns the text of a gzip body.
    fn inflated(catalog: &Catalog) -> Vec<u8> {
        super::super::tests::inflated::inflated(
            catalog.deflated(Format::Text, &ScrapeQuery::default()),
        )
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

    /// Groups lines by family, sorted within each.
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

        /// A scrape shows each object once and in its last version, and a snapshot shows the state at its creation.
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

    /// Counts follow the series of objects, in a gzip body as well.
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
        // Beyond the limit of each store they share one series, here without labels.
        let sum = |lines: &[&str]| -> u32 {
            lines.iter().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()).sum()
        };
        assert!(counted.len() >= 40 && sum(&counted) >= 80, "{}", counted.len());
        let all: Vec<&str> = body.lines().filter(|line| line.starts_with('b')).collect();
        assert_eq!(sum(&all), 4_000);
    }

    /// Identities like those of pods, with names of different lengths, including some that exceed the deflate window.
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
        // The second scrape uses memoized results.
        for _ in 0..2 {
            let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
            assert!(inflated(&catalog) == frames.flatten().collect::<Vec<_>>());
        }
    }

    /// Memoized segments stay correct while objects are added, changed and removed.
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
            pages.iter().map(|page| page.memo().encoded_bytes()).sum::<usize>()
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
        // An unchanged object invalidates nothing.
        let one = words(1);
        store.apply(&one);
        let noted = scrape();
        store.apply(&one);
        let pages = store.snapshot().pages;
        assert_eq!(pages.iter().map(|page| page.memo().encoded_bytes()).sum::<usize>(), noted);
    }

    /// Distinct lines are memoized without the literals of identities.
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
            // What is memoized is bounded by a fraction of the text.
            pod.identity = format!(
                "{{team=\"{}\",namespace=\"shop-{}\",pod=\"cart-{uid:05}\",uid=\"{:012x}-{:012x}-{:012x}\"",
                "long".repeat(40),
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
            // The second scrape uses memoized results.
            for _ in 0..2 {
                let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
                assert!(inflated(&catalog) == frames.flatten().collect::<Vec<_>>());
            }
            let pages = store.snapshot().pages;
            pages.iter().map(|page| page.memo().encoded_bytes()).sum::<usize>() / store.len()
        };
        (0..2_000).for_each(|uid| store.apply(&pod(uid)));
        // Nine digits and some copies; an identity would take 19 bytes more.
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
