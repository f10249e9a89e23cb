//! The catalog of all stores in exposition order, as one [`Source`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::body::Body;
use super::deflated_body::DeflatedBody;
use super::object_filter::{FilteredBody, Selected};
use super::part::Part;
use super::resource::{Codes, Resource};
use super::schema::{Family, FamilyNames, Schema};
use super::scrape_interval::ScrapeIntervals;
use super::snapshot_text::SnapshotText;
use super::store::{Snapshot, Store};
use super::typed_snapshot::TypedSnapshot;
use crate::exposition::typed::TypedBody;
use crate::exposition::{Format, Piece, ScrapeQuery, Source};
use crate::util::lock::Lock;
use crate::util::per_minute::MINUTES;
use crate::util::work_counter;

/// A resource with its families and its stores, one per watched namespace.
#[derive(Clone, Debug)]
struct Entry {
    schema: Arc<Schema>,
    /// The schema as it was registered, without the changes for OpenMetrics.
    registered: Arc<Schema>,
    stores: Vec<Member>,
    /// The codes of the text with this schema.
    codes: Codes,
}

/// A store of a resource.
#[derive(Clone, Debug)]
struct Member {
    store: Arc<Store>,
    /// The store's family index for each family of the resource, if the schemas differ.
    families: Option<Arc<[Option<usize>]>>,
}

impl Member {
    fn new(store: Arc<Store>, schema: &Schema) -> Self {
        let own = &store.schema().families;
        let mut left: Vec<Option<&Family>> = own.iter().map(Some).collect();
        let number = |family: &Family| {
            let is_same = |own: &Family| own.name == family.name && own.kind == family.kind;
            let number = left.iter().position(|own| own.is_some_and(is_same))?;
            left[number] = None;
            Some(number)
        };
        let families: Arc<[_]> = schema.families.iter().map(number).collect();
        let differs = !families.iter().copied().eq((0..own.len()).map(Some));
        Self { families: differs.then_some(families), store }
    }

    fn snapshot(&self, part: Option<&Part>) -> Snapshot {
        let snapshot = match part {
            None => self.store.snapshot(),
            Some(part) => self.store.snapshot_for(part),
        };
        self.families.iter().fold(snapshot, |snapshot, families| snapshot.with_families(families))
    }
}

impl Entry {
    /// Returns a snapshot; for a part of the objects, with their keys and the counts over the part.
    fn snapshot(&self, part: Option<&Part>) -> Resource {
        let stores = self.stores.iter().map(|member| member.snapshot(part)).collect();
        Resource::new(Arc::clone(&self.schema), stores, Arc::clone(&self.codes))
    }
}

/// A lock that is held while several stores change together, so that a scrape sees all changes or none.
#[derive(Clone, Debug, Default)]
pub struct UpdateLock(Arc<Lock<()>>);

impl UpdateLock {
    /// Blocks until no other change and no snapshot is in progress.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }
}

/// The resources being served, in byte order of their names. Clones share the catalog.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    entries: RwLock<Vec<Entry>>,
    strict_openmetrics: bool,
    /// True if `entries` have changed since they were given the types and names that OpenMetrics allows, which depend on all
    /// other families. The next reader does it, so that the registration of many resources does not each time.
    is_unsettled: AtomicBool,
    /// True if the process is one of several shards.
    is_share: AtomicBool,
    scrapes: Lock<ScrapeIntervals>,
    updates: UpdateLock,
}

impl Catalog {
    /// Creates a catalog without resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a catalog whose OpenMetrics output follows the specification where that of kube-state-metrics does not.
    pub fn strict_openmetrics() -> Self {
        Self(Arc::new(Shared { strict_openmetrics: true, ..Shared::default() }))
    }

    /// Sets whether the process is one of several shards, whose share virtual shards divide.
    pub fn set_is_share(&self, is_share: bool) {
        self.0.is_share.store(is_share, Ordering::Relaxed);
    }

    /// Returns the lock that snapshots hold.
    pub fn update_lock(&self) -> UpdateLock {
        self.0.updates.clone()
    }

    /// Adds a resource, or replaces the one of the same name. Stores are printed in the given order. If a store has
    /// another schema, the families in both are printed.
    pub fn register(&self, schema: Arc<Schema>, stores: Vec<Arc<Store>>) {
        self.exchange(Some((schema, stores)), &[]);
    }

    /// Removes resources, and adds or replaces one, atomically for scrapes.
    pub fn exchange(&self, new: Option<(Arc<Schema>, Vec<Arc<Store>>)>, gone: &[String]) {
        let mut entries = self.0.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut old: Vec<Entry> =
            entries.extract_if(.., |entry| gone.contains(&entry.schema.resource)).collect();
        if let Some((schema, stores)) = new {
            let stores = stores.into_iter().map(|store| Member::new(store, &schema)).collect();
            let name = &schema.resource;
            let at = entries.binary_search_by(|entry| entry.schema.resource.cmp(name));
            let registered = Arc::clone(&schema);
            let entry = Entry { registered, schema, stores, codes: Arc::default() };
            match at {
                Ok(at) => old.push(std::mem::replace(&mut entries[at], entry)),
                Err(at) => entries.insert(at, entry),
            }
        }
        self.0.is_unsettled.store(self.0.strict_openmetrics, Ordering::Relaxed);
        // Freeing stores takes a while, so it happens outside the lock.
        drop(entries);
        drop(old);
    }

    /// Returns the entries with the types and names that OpenMetrics allows.
    fn entries(&self) -> RwLockReadGuard<'_, Vec<Entry>> {
        loop {
            let entries = self.0.entries.read().unwrap_or_else(PoisonError::into_inner);
            // The flag changes under the lock only.
            if !self.0.is_unsettled.load(Ordering::Relaxed) {
                return entries;
            }
            drop(entries);
            let mut entries = self.0.entries.write().unwrap_or_else(PoisonError::into_inner);
            if self.0.is_unsettled.swap(false, Ordering::Relaxed) {
                strict_openmetrics(&mut entries);
            }
        }
    }

    /// Returns the name and the number of objects of each resource.
    pub fn objects(&self) -> Vec<(String, usize)> {
        let entries = self.0.entries.read().unwrap_or_else(PoisonError::into_inner);
        let count = |entry: &Entry| entry.stores.iter().map(|member| member.store.len()).sum();
        entries.iter().map(|entry| (entry.schema.resource.clone(), count(entry))).collect()
    }

    /// Returns true if a resource has this family and objects, but no series of the family.
    pub(crate) fn lacks_family(&self, resource: &str, family: &str) -> bool {
        let entries = self.0.entries.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.iter().find(|entry| entry.schema.resource == resource) else {
            return false;
        };
        let stores: Vec<_> =
            entry.stores.iter().map(|of| &of.store).filter(|store| !store.is_empty()).collect();
        let lacks = |store: &&Arc<Store>| {
            let families = store.schema().families.iter().enumerate();
            let mut own = families.filter(|(_, own)| own.name == family).peekable();
            own.peek().is_some() && own.all(|(number, _)| store.lacks_family(number))
        };
        !stores.is_empty() && stores.iter().all(lacks)
    }

    /// Returns a snapshot of all text, for cardinality reports.
    pub(crate) fn texts(&self) -> SnapshotText {
        let entries = self.entries();
        let mut resources: Vec<Resource> =
            entries.iter().map(|entry| entry.snapshot(None)).collect();
        drop(entries);
        resources.iter_mut().for_each(Resource::append_counts);
        SnapshotText(resources)
    }

    /// Returns the number of series added in each of the last minutes, the current one first. Removed resources do not
    /// count.
    pub(crate) fn growth(&self) -> [u64; MINUTES] {
        let mut sums = [0; MINUTES];
        let entries = self.0.entries.read().unwrap_or_else(PoisonError::into_inner);
        for member in entries.iter().flat_map(|entry| &entry.stores) {
            sums.iter_mut().zip(member.store.growth()).for_each(|(sum, count)| *sum += count);
        }
        sums
    }

    /// Applies `make` to the selected resources, restricted to the selected objects.
    fn body<B>(
        &self,
        query: &ScrapeQuery,
        make: impl FnOnce(Vec<Resource>) -> B + Send + 'static,
    ) -> FilteredBody<B> {
        let is_share = self.0.is_share.load(Ordering::Relaxed);
        // The only shard has all objects.
        let shard = query.shard.filter(|shard| shard.total > 1);
        let part = shard.map(|shard| Part::new(shard, is_share));
        let resources = self.snapshot(query, part.as_ref());
        FilteredBody::new(resources, Selected::new(query.namespaces.as_ref(), part), make)
    }

    /// Returns the scrape interval of the least frequent scraper; `None` before any scraper's second scrape.
    pub fn scrape_interval(&self) -> Option<Duration> {
        self.0.scrapes.lock().interval(Instant::now())
    }

    /// Returns the selected resources.
    fn snapshot(&self, query: &ScrapeQuery, part: Option<&Part>) -> Vec<Resource> {
        if !query.by_a_command {
            self.0.scrapes.lock().note(query, Instant::now());
        }
        let update = self.0.updates.hold();
        let entries = self.entries();
        let mut resources: Vec<Resource> = entries
            .iter()
            .filter(|entry| {
                let name = &entry.schema.resource;
                query.resources.as_ref().is_none_or(|only| names(only, name))
                    && !names(&query.exclude_resources, name)
            })
            .map(|entry| entry.snapshot(part))
            .collect();
        drop(entries);
        drop(update);
        for resource in &mut resources {
            resource.append_counts();
            resource.drop_empty_stores();
        }
        resources
    }
}

/// Gives all families the types that OpenMetrics allows.
fn strict_openmetrics(entries: &mut [Entry]) {
    work_counter::add(entries.len());
    let registered: Vec<Arc<Schema>> =
        entries.iter().map(|entry| Arc::clone(&entry.registered)).collect();
    let names = FamilyNames::of(registered.iter().map(|schema| &**schema));
    for entry in entries {
        let schema = entry.registered.strict_openmetrics(&names);
        if schema.families != entry.schema.families {
            entry.schema = Arc::new(schema);
            entry.codes = Arc::default();
        }
    }
}

/// Returns true if `names` contains a resource: by its name or, if that is `group/version, Resource=plural`, by its
/// plural with or without group and version. Lists of names are separated by commas, so both halves of such a name
/// match, too.
fn names(names: &BTreeSet<String>, resource: &str) -> bool {
    if names.contains(resource) {
        return true;
    }
    let Some((group_version, selector)) = resource.split_once(", ") else { return false };
    let Some(plural) = selector.strip_prefix("Resource=") else { return false };
    let Some((group, version)) = group_version.split_once('/') else { return false };
    // The group of the first built-in kinds has no name.
    if group.is_empty() && names.contains(&format!("{version}/{plural}")) {
        return true;
    }
    names.contains(plural)
        || names.contains(&format!("{plural}.{group}"))
        || names.contains(&format!("{plural}.{version}.{group}"))
        || names.contains(&format!("{group_version}/{plural}"))
        || names.contains(selector) && names.contains(group_version)
}

impl Source for Catalog {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        let (names, is_grouped) = (query.names.clone(), self.0.strict_openmetrics);
        let body = move |resources| Body::new(resources, format, names, is_grouped);
        Box::new(self.body(query, body))
    }

    fn deflated(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Piece> + Send> {
        let (names, is_grouped) = (query.names.clone(), self.0.strict_openmetrics);
        let body = move |resources| DeflatedBody::new(resources, format, names, is_grouped);
        Box::new(self.body(query, body))
    }

    fn typed(&self, query: &ScrapeQuery) -> Option<Box<dyn TypedBody>> {
        let names = query.names.clone();
        Some(Box::new(self.body(query, move |resources| TypedSnapshot::new(resources, names))))
    }

    fn has_namespaces(&self) -> bool {
        true
    }

    fn has_shards(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::code_cache::known_codes;
    use super::super::schema::MetricKind;
    use super::super::tests::inflated::inflated;
    use super::super::typed_snapshot::tests::object;
    use super::*;

    /// OpenMetrics allows each family once, with one type. The originals' names keep the order of the originals.
    #[test]
    fn families_of_several_resources_are_one_group() {
        let families = |of: &[(&str, MetricKind)]| -> Vec<Family> {
            let family = |(name, kind): &(&str, MetricKind)| Family {
                name: (*name).to_owned(),
                help: "H".to_owned(),
                kind: *kind,
            };
            of.iter().map(family).collect()
        };
        let (gauge, info) = (MetricKind::Gauge, MetricKind::Info);
        for strict in [true, false] {
            let catalog = if strict { Catalog::strict_openmetrics() } else { Catalog::new() };
            for (resource, of) in [
                ("a", &[("s_info", info), ("a", gauge), ("t", gauge)][..]),
                ("b", &[("b", gauge), ("t", info), ("s_info", info)]),
                ("c", &[("s_info", info)]),
                ("d", &[("t", gauge), ("s", gauge), ("d", gauge)]),
            ] {
                let schema = Schema { resource: resource.to_owned(), families: families(of) };
                let store = Arc::new(Store::new(Arc::new(schema.clone())));
                let lines = vec!["} 1\n"; of.len()];
                for number in 0..if resource == "a" { 0 } else { 200 } {
                    store.apply(&object(number, &format!("{{r=\"{resource}{number}\""), &lines));
                }
                catalog.register(Arc::new(schema), vec![store]);
            }
            let all = ScrapeQuery::default();
            let some = ScrapeQuery {
                names: Some(["t", "d"].map(str::to_owned).into()),
                ..ScrapeQuery::default()
            };
            for (query, format) in [
                (&all, Format::Text),
                (&all, Format::OpenMetrics),
                (&all, Format::OpenMetrics),
                (&some, Format::OpenMetrics),
            ] {
                let body: Vec<u8> = catalog.frames(format, query).flatten().collect();
                assert!(inflated(catalog.deflated(format, query)) == body);
                let body = String::from_utf8(body).expect("text");
                let mut groups: Vec<&str> = body
                    .lines()
                    .filter(|line| !line.starts_with('#'))
                    .filter_map(|line| line.split('{').next())
                    .collect();
                let series = groups.len();
                groups.dedup();
                let types = body.lines().filter(|line| line.starts_with("# TYPE "));
                let types: Vec<&str> = types.map(|line| &line["# TYPE ".len()..]).collect();
                match (strict, query.names.is_some()) {
                    (true, false) => {
                        assert_eq!(series, 7 * 200);
                        assert_eq!(groups, ["s_info", "t", "b", "s", "d"]);
                        let all = ["s_info gauge", "t gauge", "b gauge", "s gauge", "d gauge"];
                        assert_eq!(types, all);
                    }
                    (true, true) => assert_eq!(types, ["t gauge", "d gauge"]),
                    (false, true) => assert_eq!(groups, ["t", "d"]),
                    (false, false) => {
                        assert_eq!(groups, ["b", "t", "s_info", "t", "s", "d"]);
                    }
                }
            }
        }
    }

    /// A walk passes the stores of a resource for each of its families.
    #[test]
    fn a_snapshot_leaves_out_stores_without_objects() {
        let families = vec![Family { name: "a".into(), help: "H".into(), kind: MetricKind::Gauge }];
        let schema = Arc::new(Schema { resource: "r".to_owned(), families });
        let stores: Vec<_> = (0..9).map(|_| Arc::new(Store::new(Arc::clone(&schema)))).collect();
        let catalog = Catalog::new();
        catalog.register(schema, stores.clone());
        // The first store stays.
        for (number, left) in [(4, 2), (8, 3), (0, 3)] {
            stores[number].apply(&object(number, "{n=\"1\"", &["} 1\n"]));
            let resources = catalog.snapshot(&ScrapeQuery::default(), None);
            assert_eq!(resources[0].stores.len(), left);
        }
    }

    /// The streams of a resource that shares a family compress to different parts of their text, but all together to the
    /// same part in each scrape.
    #[test]
    fn codes_of_resources_with_a_shared_family_are_kept() {
        let catalog = Catalog::strict_openmetrics();
        let mut random = fastrand::Rng::with_seed(3);
        for name in ["a", "b"] {
            let family =
                |name: String| Family { name, help: "H".to_owned(), kind: MetricKind::Info };
            let families = ["shared".to_owned(), format!("{name}_info")].map(family).into();
            let schema = Arc::new(Schema { resource: name.to_owned(), families });
            let store = Arc::new(Store::new(Arc::clone(&schema)));
            for number in 0..6_000 {
                let own = format!(",x=\"{:x}\"}} 1\n", random.u128(..));
                store.apply(&object(number, &format!("{{r=\"{number}\""), &["} 1\n", &own]));
            }
            catalog.register(schema, vec![store]);
        }
        let all = ScrapeQuery::default();
        let codes = || {
            let resources = catalog.snapshot(&all, None);
            let codes = resources.iter().map(|of| known_codes(of).expect("good codes"));
            codes.map(|codes| Arc::as_ptr(&codes)).collect::<Vec<_>>()
        };
        let scrape = || {
            let body: Vec<u8> = catalog.frames(Format::OpenMetrics, &all).flatten().collect();
            assert!(inflated(catalog.deflated(Format::OpenMetrics, &all)) == body);
        };
        scrape();
        let first = codes();
        for _ in 0..3 {
            scrape();
            assert_eq!(codes(), first);
        }
    }

    /// Custom kinds are registered one after the other, as they are listed.
    #[test]
    fn many_resources_are_registered_in_linear_time() {
        let catalog = Catalog::strict_openmetrics();
        work_counter::take();
        for number in 0..500 {
            let name = format!("kind{number}_info");
            let family = Family { name, help: "H".to_owned(), kind: MetricKind::Info };
            let resource = format!("kind{number}");
            let schema = Arc::new(Schema { resource, families: vec![family] });
            let store = Arc::new(Store::new(Arc::clone(&schema)));
            store.apply(&object(1, "{r=\"a\"", &["} 1\n"]));
            catalog.register(schema, vec![store]);
        }
        let scrape = || -> Vec<u8> {
            catalog.frames(Format::OpenMetrics, &ScrapeQuery::default()).flatten().collect()
        };
        let body = String::from_utf8(scrape()).expect("text");
        assert!(body.contains("# TYPE kind499 info\n"), "{body}");
        scrape();
        assert_eq!(work_counter::take(), 500, "resources whose names were compared");
    }
}
