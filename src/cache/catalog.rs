//! The catalog: all stores in exposition order, as one [`Source`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::body::Body;
use super::codes::Codes;
use super::gzip::Deflate;
use super::narrow::Narrowed;
use super::resource::Resource;
use super::schema::Schema;
use super::scrapes::Scrapes;
use super::store::Store;
use super::texts::Texts;
use crate::exposition::{Format, Piece, ScrapeQuery, Source};
use crate::growth::MINUTES;

/// One resource: its families and its stores, one for each watched namespace.
#[derive(Clone, Debug)]
struct Entry {
    schema: Arc<Schema>,
    stores: Vec<Arc<Store>>,
}

impl Entry {
    fn snapshot(&self) -> Resource {
        Resource {
            schema: Arc::clone(&self.schema),
            stores: self.stores.iter().map(|store| store.snapshot()).collect(),
            part_of: None,
        }
    }
}

/// The resources being served, in byte order of their names; every clone is the same catalog.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    entries: RwLock<Vec<Entry>>,
    codes: Arc<Codes>,
    by_the_book: bool,
    scrapes: Mutex<Scrapes>,
}

impl Catalog {
    /// A catalog without resources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One whose OpenMetrics follows the specification where that of kube-state-metrics does not.
    #[must_use]
    pub fn by_the_book() -> Self {
        Self(Arc::new(Shared { by_the_book: true, ..Shared::default() }))
    }

    /// Adds a resource, or replaces the one of the same name. Stores are printed in the given order.
    pub fn register(&self, schema: Arc<Schema>, stores: Vec<Arc<Store>>) {
        self.exchange(Some((schema, stores)), &[]);
    }

    /// Takes resources out and adds or replaces one, in one step for whoever scrapes.
    pub fn exchange(&self, new: Option<(Arc<Schema>, Vec<Arc<Store>>)>, gone: &[String]) {
        let mut entries = self.0.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut old: Vec<Entry> =
            entries.extract_if(.., |entry| gone.contains(&entry.schema.resource)).collect();
        if let Some((schema, stores)) = new {
            let schema = if self.0.by_the_book { Arc::new(schema.by_the_book()) } else { schema };
            let name = &schema.resource;
            let at = entries.binary_search_by(|entry| entry.schema.resource.cmp(name));
            let entry = Entry { schema, stores };
            match at {
                Ok(at) => old.push(std::mem::replace(&mut entries[at], entry)),
                Err(at) => entries.insert(at, entry),
            }
        }
        drop(entries);
        // Codes are made for the families there were. Freeing stores takes a while: not under the lock.
        old.iter().for_each(|entry| self.0.codes.forget(&entry.schema.resource));
    }

    /// Every resource with its number of objects.
    #[must_use]
    pub fn objects(&self) -> Vec<(String, usize)> {
        let entries = self.0.entries.read().unwrap_or_else(PoisonError::into_inner);
        let count = |entry: &Entry| entry.stores.iter().map(|store| store.len()).sum();
        entries.iter().map(|entry| (entry.schema.resource.clone(), count(entry))).collect()
    }

    /// The text of everything, for whoever counts in it.
    pub(crate) fn texts(&self) -> Texts {
        let entries = self.0.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut resources: Vec<Resource> = entries.iter().map(Entry::snapshot).collect();
        drop(entries);
        resources.iter_mut().for_each(Resource::count_up);
        Texts(resources)
    }

    /// Series that came in each of the last minutes, the present one first, of kinds that are followed still.
    pub(crate) fn growth(&self) -> [u64; MINUTES] {
        let mut sums = [0; MINUTES];
        let entries = self.0.entries.read().unwrap_or_else(PoisonError::into_inner);
        for store in entries.iter().flat_map(|entry| &entry.stores) {
            sums.iter_mut().zip(store.growth()).for_each(|(sum, count)| *sum += count);
        }
        sums
    }

    /// What `make` makes of the wanted resources, or of those of their objects that are of the wanted namespaces.
    fn body<B: Iterator + Send + 'static>(
        &self,
        query: &ScrapeQuery,
        make: impl FnOnce(Vec<Resource>) -> B + Send + 'static,
        nothing: fn() -> B::Item,
    ) -> Box<dyn Iterator<Item = B::Item> + Send> {
        let resources = self.snapshot(query);
        match &query.namespaces {
            None => Box::new(make(resources)),
            Some(namespaces) => Box::new(Narrowed::new(resources, namespaces, make, nothing)),
        }
    }

    /// How long after one another scrapes come, of whoever comes most seldom; `None` before the second.
    #[must_use]
    pub fn scrape_interval(&self) -> Option<Duration> {
        let scrapes = self.0.scrapes.lock().unwrap_or_else(PoisonError::into_inner);
        scrapes.interval(Instant::now())
    }

    fn snapshot(&self, query: &ScrapeQuery) -> Vec<Resource> {
        self.0.scrapes.lock().unwrap_or_else(PoisonError::into_inner).note(query, Instant::now());
        let entries = self.0.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut resources: Vec<Resource> = entries
            .iter()
            .filter(|entry| {
                let name = &entry.schema.resource;
                query.resources.as_ref().is_none_or(|only| names(only, name))
                    && !names(&query.exclude_resources, name)
            })
            .map(Entry::snapshot)
            .collect();
        drop(entries);
        resources.iter_mut().for_each(Resource::count_up);
        resources
    }
}

/// Whether `names` hold a resource: by its name, or, where that is `group/version, Resource=plural`, by its plural with
/// or without group and version. The comma separates items where names are listed, so both halves will do, too.
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
        let names = query.names.clone();
        let body = move |resources| Body::new(resources, format, names);
        self.body(query, body, Bytes::new)
    }

    fn deflated(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Piece> + Send> {
        let (names, codes) = (query.names.clone(), Arc::clone(&self.0.codes));
        let body = move |resources| Deflate::new(resources, format, names, codes);
        self.body(query, body, || Piece::Text(Bytes::new()))
    }

    fn has_namespaces(&self) -> bool {
        true
    }
}
