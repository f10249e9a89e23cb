//! A snapshot of one resource.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::deflate_cache::ContentKey;
use super::schema::{Family, Schema};
use super::store::Snapshot;
use super::tally;
use crate::deflate::CodeSet;
use crate::exposition::Format;

/// The codes that the text of a resource is compressed with, once there are any.
pub(super) type Codes = Arc<ArcSwapOption<CodeSet>>;

/// A resource as seen by a scrape.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) schema: Arc<Schema>,
    pub(super) stores: Vec<Snapshot>,
    pub(super) codes: Codes,
    /// The whole resource, if this is a filtered part.
    pub(super) part_of: Option<Arc<Resource>>,
    /// True if the numbers of its contents determine the text: it is whole, or all objects of a virtual shard.
    pub(super) is_repeatable: bool,
}

impl Resource {
    /// Returns a whole resource.
    pub(super) fn new(schema: Arc<Schema>, stores: Vec<Snapshot>, codes: Codes) -> Self {
        Self { schema, stores, codes, part_of: None, is_repeatable: true }
    }

    /// Returns the key of the text in a format.
    pub(super) fn content(&self, format: Format) -> ContentKey {
        let stores = self.stores.iter().map(|store| store.content).collect();
        ContentKey::new(Arc::clone(&self.schema), format, stores)
    }

    /// Appends the counts over all stores as another store.
    pub(super) fn append_counts(&mut self) {
        let counts = self.stores.iter_mut().map(|store| std::mem::take(&mut store.counts));
        let pages = tally::pages(&self.schema, counts);
        if !pages.is_empty() {
            self.stores.push(Snapshot { pages, ..Snapshot::default() });
        }
    }

    /// Drops the stores without objects, which a walk would pass for each family: there may be one per watched namespace.
    /// The first one stays, because it keeps the compressed text of the resource.
    pub(super) fn drop_empty_stores(&mut self) {
        let mut is_first = true;
        self.stores.retain(|store| std::mem::take(&mut is_first) || !store.pages.is_empty());
    }
}

/// A family of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FamilyIndex {
    /// The index of its resource.
    pub(super) resource: usize,
    /// Its index in the resource.
    pub(super) family: usize,
}

/// Returns the families with these names, or all, grouped by name, in the order of the first ones.
pub(super) fn groups(
    resources: &[Resource],
    names: Option<&BTreeSet<String>>,
) -> Vec<Vec<FamilyIndex>> {
    let mut groups: Vec<Vec<FamilyIndex>> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (resource, Resource { schema, .. }) in resources.iter().enumerate() {
        for (family, Family { name, .. }) in schema.families.iter().enumerate() {
            if names.is_some_and(|names| !names.contains(name)) {
                continue;
            }
            let group = *known.entry(name).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(FamilyIndex { resource, family });
        }
    }
    groups
}
