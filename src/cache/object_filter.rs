//! Restricts a snapshot to the objects of some namespaces or of a virtual shard.
//!
//! A page whose objects all match is shared, including everything memoized with it. A page with other objects, too, is
//! copied without them for this scrape. There are few of these for a namespace, because objects are ordered by identity.
//! The objects of a virtual shard are spread over all pages, so they are packed into full pages, which the next scrape
//! of the shard uses again. The result is then written like any other snapshot. Pages are filtered before the body
//! begins, a bounded number in one step.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::objects::Key;
use super::packed_pages::Group;
use super::page::{PAGE, Page};
use super::part::Part;
use super::resource::Resource;
use super::store::Snapshot;
use crate::deflate::Scratch;
use crate::exposition::typed::{FamilyEncoder, TypedBody};

/// Maximum work per step; checking a page or ending a store costs 1.
const STEP: usize = if cfg!(test) { 70 } else { 4_096 };

/// Cost of copying a part of a page.
const CUT: usize = 64;

/// The selected objects.
pub(super) struct Selected {
    namespaces: Option<BTreeSet<Vec<u8>>>,
    part: Option<Part>,
}

impl Selected {
    /// Returns a selection; `None` if it has all objects.
    pub(super) fn new(namespaces: Option<&BTreeSet<String>>, part: Option<Part>) -> Option<Self> {
        let bytes =
            |names: &BTreeSet<String>| names.iter().map(|name| name.clone().into_bytes()).collect();
        let namespaces = namespaces.map(bytes);
        (namespaces.is_some() || part.is_some()).then_some(Self { namespaces, part })
    }

    /// Returns a bit mask of the selected objects of a page. Counts have no keys; those of a virtual shard have been
    /// selected by the snapshot.
    fn slots_of(&self, page: &Page, keys: Option<&Arc<Vec<Key>>>) -> u64 {
        let all = page.all_slots();
        let named = self.namespaces.as_ref().map_or(all, |names| page.slots_of(names));
        match (self.part, keys) {
            (Some(part), Some(keys)) => named & part.slots_of(keys),
            _ => named,
        }
    }
}

/// The progress of the filter.
struct ObjectFilter {
    selected: Selected,
    /// Resources to filter, last one first.
    rest: Vec<Resource>,
    done: Vec<Resource>,
    /// Filtered stores of the current resource; the last one may be incomplete.
    stores: Vec<Snapshot>,
    /// Number of pages of the current store that were checked.
    page: usize,
    packer: Packer,
    scratch: Scratch,
}

impl ObjectFilter {
    /// Does a bounded amount of work. Returns the result when it is complete, without resources that have no objects of
    /// the namespaces.
    fn step(&mut self) -> Option<Vec<Resource>> {
        let mut work = 0;
        while work < STEP {
            let Some(resource) = self.rest.last() else {
                return Some(std::mem::take(&mut self.done));
            };
            if resource.stores.is_empty() {
                self.next_resource();
                continue;
            }
            if self.stores.is_empty() {
                self.stores.push(Snapshot::default());
            }
            let (store, out) = (&resource.stores[self.stores.len() - 1], self.stores.last_mut()?);
            let packed = store.packed.as_ref().filter(|_| self.selected.namespaces.is_none());
            let Some(page) = store.pages.get(self.page) else {
                if self.selected.part.is_some() {
                    let groups = self.packer.end(out, &mut self.scratch);
                    if let Some(packed) = packed {
                        packed.replace(groups);
                    }
                    out.content = store.content;
                    out.deflate_cache = Arc::clone(&store.deflate_cache);
                }
                self.page = 0;
                work += 1;
                if self.stores.len() == resource.stores.len() {
                    self.next_resource();
                } else {
                    self.stores.push(Snapshot::default());
                }
                continue;
            };
            work += 1;
            if self.selected.part.is_some() {
                let known = packed.filter(|_| self.packer.may_end());
                if let Some(group) =
                    known.and_then(|packed| packed.group(&store.pages[self.page..]))
                {
                    self.page += group.len();
                    work += group.len();
                    self.packer.reuse(group, out, &mut self.scratch);
                } else {
                    let slots = self.selected.slots_of(page, store.keys.get(self.page));
                    self.page += 1;
                    work += CUT;
                    self.packer.push(page, slots, out, &mut self.scratch);
                }
            } else {
                let slots = self.selected.slots_of(page, store.keys.get(self.page));
                self.page += 1;
                if page.is_all(slots) {
                    out.pages.push(Arc::clone(page));
                } else if slots != 0 {
                    work += CUT;
                    let page = Page::packed(&[(&**page, slots)], &mut self.scratch);
                    out.pages.push(Arc::new(page));
                }
            }
        }
        None
    }

    fn next_resource(&mut self) {
        let stores = std::mem::take(&mut self.stores);
        self.page = 0;
        let Some(whole) = self.rest.pop() else { return };
        // Without objects they still claim the names of their families, as in a real shard.
        let is_shard = self.selected.namespaces.is_none();
        if is_shard || stores.iter().any(|store| !store.pages.is_empty()) {
            let (schema, codes) = (Arc::clone(&whole.schema), Arc::clone(&whole.codes));
            let part_of = Some(Arc::new(whole));
            let mut part = Resource { schema, stores, codes, part_of, is_repeatable: is_shard };
            part.drop_empty_stores();
            self.done.push(part);
        }
    }
}

/// Packs the objects of a virtual shard into pages, those of a few consecutive source pages into each.
#[derive(Default)]
struct Packer {
    /// Objects that do not fill a page yet, and their number.
    unpacked: Vec<(Arc<Page>, u64)>,
    len: usize,
    /// The source pages since the last packed page.
    group: Group,
    /// All groups of the current store.
    groups: Vec<Group>,
}

impl Packer {
    /// Returns true if the current page has enough objects to end before a group that can be used again.
    fn may_end(&self) -> bool {
        self.group.len() == 0 || self.len >= PAGE / 2
    }

    /// Adds the objects of a source page.
    fn push(&mut self, page: &Arc<Page>, slots: u64, out: &mut Snapshot, scratch: &mut Scratch) {
        let more = slots.count_ones() as usize;
        if self.len + more > PAGE {
            self.end_group(out, scratch);
        }
        self.group.push(page);
        self.len += more;
        if more > 0 {
            self.unpacked.push((Arc::clone(page), slots));
        }
    }

    /// Adds a group of an earlier scrape.
    fn reuse(&mut self, group: Group, out: &mut Snapshot, scratch: &mut Scratch) {
        self.end_group(out, scratch);
        out.pages.extend(group.page.clone());
        self.groups.push(group);
    }

    fn end_group(&mut self, out: &mut Snapshot, scratch: &mut Scratch) {
        let mut group = std::mem::take(&mut self.group);
        if !self.unpacked.is_empty() {
            let parts: Vec<_> = self.unpacked.iter().map(|(page, of)| (&**page, *of)).collect();
            group.page = Some(Arc::new(Page::packed(&parts, scratch)));
        }
        out.pages.extend(group.page.clone());
        self.unpacked.clear();
        self.len = 0;
        self.groups.extend((group.len() > 0).then_some(group));
    }

    /// Ends a store and returns its groups.
    fn end(&mut self, out: &mut Snapshot, scratch: &mut Scratch) -> Vec<Group> {
        self.end_group(out, scratch);
        std::mem::take(&mut self.groups)
    }
}

/// A body of the matching objects, which begins when the filter is done.
pub(super) struct FilteredBody<B> {
    filter: Option<(ObjectFilter, Make<B>)>,
    body: Option<B>,
}

/// The function that starts the body.
type Make<B> = Box<dyn FnOnce(Vec<Resource>) -> B + Send>;

impl<B> FilteredBody<B> {
    /// Returns the body of all objects, or of the selected ones.
    pub(super) fn new(
        mut resources: Vec<Resource>,
        selected: Option<Selected>,
        make: impl FnOnce(Vec<Resource>) -> B + Send + 'static,
    ) -> Self {
        let Some(selected) = selected else {
            return Self { filter: None, body: Some(make(resources)) };
        };
        resources.reverse();
        let filter = ObjectFilter {
            selected,
            rest: resources,
            done: Vec::new(),
            stores: Vec::new(),
            page: 0,
            packer: Packer::default(),
            scratch: Scratch::default(),
        };
        Self { filter: Some((filter, Box::new(make))), body: None }
    }

    /// Returns the body. While the filter runs, does a bounded amount of its work and returns `None`.
    fn body(&mut self) -> Option<&mut B> {
        if let Some((filter, _)) = &mut self.filter {
            let resources = filter.step()?;
            let (_, make) = self.filter.take()?;
            self.body = Some(make(resources));
        }
        self.body.as_mut()
    }
}

/// Empty pieces while the filter runs, then those of the body.
impl<B: Iterator<Item: Default>> Iterator for FilteredBody<B> {
    type Item = B::Item;

    fn next(&mut self) -> Option<B::Item> {
        match self.body() {
            Some(body) => body.next(),
            None => Some(B::Item::default()),
        }
    }
}

impl<B: TypedBody> TypedBody for FilteredBody<B> {
    fn step(&mut self, encoder: &mut dyn FamilyEncoder, out: &mut Vec<u8>) -> bool {
        self.body().is_none_or(|body| body.step(encoder, out))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::inflated;
    use super::super::{Catalog, Family, MetricKind, Rendered, Schema, Store, fnv1a64};
    use super::*;
    use crate::exposition::{Format, Piece, ScrapeQuery, Source, VirtualShard};
    use crate::util::jump_hash::jump_hash;

    fn schema(resource: &str) -> Arc<Schema> {
        let family = |name: String| Family { name, help: "H.".to_owned(), kind: MetricKind::Gauge };
        let names = ["a", "b"].map(|family_name| family(format!("{resource}_{family_name}")));
        Arc::new(Schema { resource: resource.to_owned(), families: names.into() })
    }

    /// Returns an object of namespace `n{namespace}`, or of none, whose first label may be another one.
    fn object(number: u32, namespace: Option<u32>, first: &str) -> Rendered {
        let mut out = Rendered::default();
        out.uid.extend_from_slice(&number.to_le_bytes());
        let name = namespace.map_or(String::new(), |namespace| format!("n{namespace}"));
        out.namespace.extend_from_slice(name.as_bytes());
        let identity = format!("{{{first}=\"{name}\",x=\"{number}\"");
        out.identity.extend_from_slice(identity.as_bytes());
        out.lines.extend_from_slice(format!("}} {number}\n").as_bytes());
        out.ends.push(out.lines.len() as u32);
        for label in 0..number % 4 {
            out.lines.extend_from_slice(format!(",l=\"{label}\"}} 1\n").as_bytes());
        }
        out.ends.push(out.lines.len() as u32);
        out
    }

    /// Returns a catalog with namespaced objects in order and in random order, cluster-scoped objects, and two stores
    /// per resource.
    fn catalog(count: u32) -> Catalog {
        let catalog = Catalog::new();
        for (resource, of, step) in [("apps", 20, 1), ("pods", 7, 1_237), ("zones", 0, 1)] {
            let schema = schema(resource);
            let stores: Vec<_> =
                (0..2).map(|_| Arc::new(Store::new(Arc::clone(&schema)))).collect();
            let mut lists: Vec<_> = stores.iter().map(Store::replace).collect();
            for place in 0..count {
                let number = place * step % count;
                // Neighbours belong to the same namespace, or to several.
                let namespace = (of > 0).then(|| number * of / count);
                let first = if resource == "pods" { "namespace" } else { "a" };
                lists[(number % 2) as usize].push(&object(number, namespace, first));
            }
            lists.into_iter().for_each(super::super::Replacement::commit);
            // Objects added by updates.
            for number in 0..40 {
                stores[0].apply(&object(count + number, (of > 0).then_some(number % 9), "a"));
            }
            catalog.register(schema, stores);
        }
        catalog
    }

    fn query(namespaces: &[&str]) -> ScrapeQuery {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        ScrapeQuery { namespaces: Some(namespaces), ..ScrapeQuery::default() }
    }

    fn text(catalog: &Catalog, query: &ScrapeQuery) -> String {
        let body = catalog.frames(Format::Text, query).flatten().collect();
        String::from_utf8(body).expect("UTF-8")
    }

    /// Returns the lines of the whole exposition that belong to the namespaces, with the headers of families that have
    /// objects.
    fn wanted(catalog: &Catalog, namespaces: &[&str]) -> String {
        let whole = text(catalog, &ScrapeQuery::default());
        let is_wanted =
            |line: &&str| namespaces.iter().any(|name| line.contains(&format!("=\"{name}\",")));
        let mut out = String::new();
        for line in whole.lines() {
            let resource = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
            let resource = resource.split('_').next().expect("a name");
            let has_some = |line: &str| line.starts_with(resource) && is_wanted(&line);
            if is_wanted(&line) || line.starts_with('#') && whole.lines().any(has_some) {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }

    #[test]
    fn a_scrape_of_namespaces_has_their_lines_and_no_others() {
        let catalog = catalog(3_000);
        for namespaces in [
            &["n3"][..],
            &["n0", "n6"],
            &["n19"],
            &["n1", "n2", "n5", "absent"],
            &["absent"],
            &["n"],
        ] {
            let query = query(namespaces);
            assert!(text(&catalog, &query) == wanted(&catalog, namespaces), "{namespaces:?}");
        }
        assert_eq!(text(&catalog, &query(&["n"])), "");
    }

    #[test]
    fn compressed_it_is_the_same_and_leaves_the_codes_of_others_alone() {
        let catalog = catalog(30_000);
        let inflated = |query: &ScrapeQuery| {
            let text = inflated::inflated(catalog.deflated(Format::Text, query));
            String::from_utf8(text).expect("UTF-8")
        };
        let size = || -> usize {
            let pieces = catalog.deflated(Format::Text, &ScrapeQuery::default());
            pieces
                .map(|piece| if let Piece::Deflated(part) = piece { part.bytes.len() } else { 0 })
                .sum()
        };
        let narrow = query(&["n2", "n5"]);
        assert!(inflated(&narrow) == text(&catalog, &narrow));
        let (before, whole) = (size(), text(&catalog, &ScrapeQuery::default()));
        assert!(inflated(&narrow) == text(&catalog, &narrow));
        assert!(size() == before && inflated(&ScrapeQuery::default()) == whole);
    }

    fn part(index: u32, total: u32) -> ScrapeQuery {
        ScrapeQuery { shard: Some(VirtualShard { index, total }), ..ScrapeQuery::default() }
    }

    /// Objects and counts are those of a catalog that has only the objects of the shard, in text and compressed.
    #[test]
    fn a_virtual_shard_has_the_text_of_a_real_one() {
        let (count, total) = (6_000, 3);
        let shard_of = |object: &Rendered| jump_hash(fnv1a64(&object.uid), i64::from(total));
        let counted = |number: u32| {
            let mut object = object(number, Some(number % 7), "a");
            if number.is_multiple_of(3) {
                // The lines of the second family are replaced by counts.
                object.lines.truncate(object.ends[0] as usize);
                object.ends[1] = object.ends[0];
                let labels = format!("{{phase=\"{}\"}}", number % 5);
                object.counted.push(1, labels.as_bytes());
                object.counted.push(1, b"{phase=\"any\"}");
            }
            object
        };
        let catalog = |keep: &dyn Fn(&Rendered) -> bool| {
            let catalog = Catalog::new();
            for resource in ["apps", "none", "pods"] {
                let schema = schema(resource);
                let stores = [(); 2].map(|()| Arc::new(Store::new(Arc::clone(&schema))));
                let count = if resource == "none" { 1 } else { count };
                for object in (0..count).map(counted).filter(keep) {
                    stores[usize::from(object.uid[0] % 2)].apply(&object);
                }
                catalog.register(schema, stores.to_vec());
            }
            catalog
        };
        let whole = catalog(&|_| true);
        for index in 0..total {
            let real = catalog(&|object| shard_of(object) == i64::from(index));
            let query = part(index, total);
            let body = text(&whole, &query);
            let sorted = |body: &str| {
                let mut lines: Vec<String> = body.lines().map(str::to_owned).collect();
                lines.sort_unstable();
                lines
            };
            assert!(sorted(&body) == sorted(&text(&real, &ScrapeQuery::default())), "{index}");
            assert!(body.contains("apps_b{phase=\"any\"} "), "{index}");
            for _ in 0..2 {
                let deflated = inflated::inflated(whole.deflated(Format::Text, &query));
                assert!(deflated == body.as_bytes(), "{index}");
            }
        }
    }

    /// All virtual shards of one moment have each object once, however they are read, and later ones never lose an
    /// object that stays while pages split and merge.
    #[test]
    fn each_object_is_in_one_virtual_shard_while_others_change() {
        let catalog = Catalog::new();
        let schema = schema("pods");
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        catalog.register(schema, vec![Arc::clone(&store)]);
        let stays = |number: u32| number.is_multiple_of(3);
        let series = |body: &str| {
            let lines = body.lines().filter(|line| line.starts_with("pods_a{"));
            let mut lines: Vec<String> = lines.map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        (0..1_500).for_each(|number| store.apply(&object(number, Some(number % 9), "a")));
        for total in [2, 5, 64] {
            let whole = series(&text(&catalog, &ScrapeQuery::default()));
            let held: Vec<_> =
                (0..total).map(|index| catalog.frames(Format::Text, &part(index, total))).collect();
            let mut later = String::new();
            for index in 0..total {
                for number in (0..1_500).filter(|number| !stays(*number)) {
                    let is_there = (number / 40 + index) % 2 == 0;
                    let object = object(number, Some(number % 9), "a");
                    match is_there {
                        true => store.apply(&object),
                        false => assert!(store.delete(&object.uid) || index > 0),
                    }
                }
                later.push_str(&text(&catalog, &part(index, total)));
            }
            let body: Vec<u8> = held.into_iter().flatten().flatten().collect();
            assert!(series(&String::from_utf8(body).expect("UTF-8")) == whole, "{total}");
            let later = series(&later);
            assert!(later.windows(2).all(|pair| pair[0] != pair[1]), "{total}: one is there twice");
            for number in (0..1_500).filter(|number| stays(*number)) {
                let line = format!("pods_a{{a=\"n{}\",x=\"{number}\"}} {number}", number % 9);
                assert!(later.binary_search(&line).is_ok(), "{total}: {line} is missing");
            }
            (0..1_500).for_each(|number| store.apply(&object(number, Some(number % 9), "a")));
        }
    }

    /// Returns the pages of a virtual shard of a store.
    fn pages(store: &Store, shard: VirtualShard) -> Vec<Arc<Page>> {
        let part = Part::new(shard, false);
        let stores = vec![store.snapshot_for(&part)];
        let schema = Arc::clone(store.schema());
        let resource = Resource::new(schema, stores, Arc::default());
        let selected = Selected::new(None, Some(part));
        let mut body = FilteredBody::new(vec![resource], selected, |resources| resources);
        let filter = &mut body.filter.as_mut().expect("work").0;
        let resources = std::iter::repeat_with(|| filter.step()).flatten().next().expect("done");
        resources[0].stores[0].pages.clone()
    }

    /// A scrape of a virtual shard packs only objects whose pages have changed since the last one.
    #[test]
    fn pages_of_a_virtual_shard_are_packed_once() {
        let store = Arc::new(Store::new(schema("pods")));
        let mut list = store.replace();
        (0..6_400).for_each(|number| list.push(&object(number, Some(number / 640), "a")));
        list.commit();
        let shard = VirtualShard { index: 1, total: 4 };
        let new = |old: &[Arc<Page>]| {
            let pages = pages(&store, shard);
            let is_new = |page: &&Arc<Page>| !old.iter().any(|old| Arc::ptr_eq(old, page));
            let count = pages.iter().filter(is_new).count();
            (pages, count)
        };
        let (first, count) = new(&[]);
        assert!(first.len() == count && count < 6_400 / 4 * 5 / 4 / PAGE, "{count}");
        let (pages, count) = new(&first);
        assert_eq!((pages.len(), count), (first.len(), 0));
        // A change, a new object, and a deletion, far from each other.
        store.apply(&object(5, Some(0), "b"));
        store.apply(&object(7_000, Some(4), "a"));
        store.delete(&object(6_000, None, "a").uid);
        let (pages, count) = new(&pages);
        assert!((1..=6).contains(&count), "{count}");
        // Other shards and another number of shards have their own pages, but a third number replaces the first.
        let keeps = |old: &[Arc<Page>]| new(old).1 == 0;
        super::tests::pages(&store, VirtualShard { index: 0, total: 4 });
        super::tests::pages(&store, VirtualShard { index: 0, total: 5 });
        assert!(keeps(&pages));
        super::tests::pages(&store, VirtualShard { index: 0, total: 6 });
        super::tests::pages(&store, VirtualShard { index: 0, total: 7 });
        assert!(!keeps(&pages));
    }

    /// After any change, all virtual shards together have what a scrape of everything has, as text and compressed.
    #[test]
    fn packed_pages_follow_every_change() {
        let (catalog, mut random) = (Catalog::new(), fastrand::Rng::with_seed(7));
        let schema = schema("pods");
        let stores = [(); 2].map(|()| Arc::new(Store::new(Arc::clone(&schema))));
        catalog.register(schema, stores.to_vec());
        let sorted = |body: &str| {
            let series = body.lines().filter(|line| !line.starts_with('#'));
            let mut series: Vec<String> = series.map(str::to_owned).collect();
            series.sort_unstable();
            series
        };
        for round in 0..60 {
            for store in &stores {
                for _ in 0..random.usize(..if round % 10 == 0 { 2_000 } else { 6 }) {
                    let object = object(random.u32(..3_000), Some(random.u32(..9)), "a");
                    if random.u8(..4) == 0 {
                        store.delete(&object.uid);
                    } else if let Some(namespace) = object.namespace.last() {
                        let label = ["a", "b"][usize::from(namespace % 2)];
                        store.apply(&self::object(random.u32(..3_000), Some(1), label));
                        store.apply(&object);
                    }
                }
            }
            if round % 20 == 19 {
                let mut list = stores[0].replace();
                (0..random.u32(..4_000)).for_each(|uid| list.push(&object(uid, Some(2), "a")));
                list.commit();
            }
            let (total, mut union) = (random.u32(2..4), String::new());
            for index in 0..total {
                let body = text(&catalog, &part(index, total));
                let deflated =
                    inflated::inflated(catalog.deflated(Format::Text, &part(index, total)));
                assert!(deflated == body.as_bytes(), "{round}: {index} of {total}");
                union.push_str(&body);
            }
            let whole = text(&catalog, &ScrapeQuery::default());
            assert!(sorted(&union) == sorted(&whole), "{round}: {total}");
        }
    }

    /// There may be thousands of watched namespaces, most of them without objects of a kind.
    #[test]
    fn stores_without_objects_cost_no_more_than_once() {
        let schema = schema("pods");
        let stores: Vec<_> =
            (0..1_000).map(|_| Arc::new(Store::new(Arc::clone(&schema)))).collect();
        for number in 0..400 {
            stores[[3, 700][number as usize % 2]].apply(&object(number, Some(number % 3), "a"));
        }
        let catalog = Catalog::new();
        catalog.register(schema, stores.clone());
        let (all, shard) = (ScrapeQuery::default(), part(1, 2));
        for query in [&all, &shard, &query(&["n1"])] {
            // As many as the filter needs for the stores with objects, but not for the others.
            let pieces: Vec<_> = catalog.frames(Format::Text, query).collect();
            assert!(pieces.len() < 1_000 / STEP, "{} pieces", pieces.len());
            let text = pieces.concat();
            for _ in 0..2 {
                assert!(inflated::inflated(catalog.deflated(Format::Text, query)) == text);
            }
        }
        // A store that has lost its objects keeps no packed pages of them.
        let packed = Arc::downgrade(&pages(&stores[700], VirtualShard { index: 1, total: 2 })[0]);
        assert!(packed.upgrade().is_some());
        for number in 0..400 {
            stores[700].delete(&object(number, None, "a").uid);
        }
        text(&catalog, &shard);
        assert!(packed.upgrade().is_none());
        assert!(text(&catalog, &all).contains("pods_a{a=\"n0\",x=\"0\"} 0\n"));
    }

    /// Ending a store is work, too, even without pages.
    #[test]
    fn the_filter_yields_among_stores_without_objects() {
        let schema = schema("pods");
        let stores = vec![Snapshot::default(); 1_000];
        let resource = Resource::new(schema, stores, Arc::default());
        let selected = Selected::new(Some(&["n1".to_owned()].into()), None);
        let mut filter = FilteredBody::new(vec![resource], selected, |resources| resources);
        let filter = &mut filter.filter.as_mut().expect("work").0;
        let steps = std::iter::from_fn(|| filter.step().is_none().then_some(())).count();
        assert!(steps >= 1_000 / STEP, "{steps}");
    }

    /// The filter yields while it checks a large cluster, and pages of one namespace are shared.
    #[test]
    fn work_is_bounded_and_pages_are_shared() {
        let catalog = catalog(30_000);
        let pieces: Vec<_> = catalog.frames(Format::Text, &query(&["absent"])).collect();
        assert!(pieces.len() > 10 && pieces.iter().all(|piece| piece.is_empty()));
        let schema = schema("things");
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        let mut list = store.replace();
        (0..6_400).for_each(|number| list.push(&object(number, Some(number / 640), "a")));
        list.commit();
        let resource = Resource::new(schema, vec![store.snapshot()], Arc::default());
        let mut filter = FilteredBody::new(
            vec![resource.clone()],
            Selected::new(Some(&["n3".to_owned()].into()), None),
            |resources| resources,
        )
        .filter
        .expect("work")
        .0;
        let narrowed = std::iter::from_fn(|| Some(filter.step())).flatten().next().expect("done");
        let whole = &resource.stores[0].pages;
        let kept = &narrowed[0].stores[0].pages;
        assert_eq!(kept.len(), 640 / 64);
        assert!(kept.iter().all(|page| whole.iter().any(|other| Arc::ptr_eq(page, other))));
    }
}
