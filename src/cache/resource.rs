//! What a scrape has of a resource.

use std::sync::Arc;

use super::packed::Content;
use super::schema::Schema;
use super::store::Snapshot;
use super::tally;
use crate::exposition::Format;

/// One resource at one moment.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) schema: Arc<Schema>,
    pub(super) stores: Vec<Snapshot>,
    /// The whole of it, where this is what a scrape wants of it.
    pub(super) part_of: Option<Arc<Resource>>,
}

impl Resource {
    /// What tells its text in a format from any other.
    pub(super) fn content(&self, format: Format) -> Content {
        let stores = self.stores.iter().map(|store| store.content).collect();
        Content::new(Arc::clone(&self.schema), format, stores)
    }

    /// Puts the series that are numbers of all stores behind those of the stores.
    pub(super) fn count_up(&mut self) {
        let counts = self.stores.iter_mut().map(|store| std::mem::take(&mut store.counts));
        let pages = tally::pages(&self.schema, counts);
        if !pages.is_empty() {
            self.stores.push(Snapshot { pages, ..Snapshot::default() });
        }
    }
}
