//! A snapshot of one resource.

use std::sync::Arc;

use super::deflate_cache::ContentKey;
use super::schema::Schema;
use super::store::Snapshot;
use super::tally;
use crate::exposition::Format;

/// A resource as seen by a scrape.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) schema: Arc<Schema>,
    pub(super) stores: Vec<Snapshot>,
    /// The whole resource, if this is a filtered part.
    pub(super) part_of: Option<Arc<Resource>>,
    /// True if the numbers of its contents determine the text: it is whole, or all objects of a virtual shard.
    pub(super) is_repeatable: bool,
}

impl Resource {
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
