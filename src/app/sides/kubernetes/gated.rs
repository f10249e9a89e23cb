//! A catalog that is withheld until its first lists are complete.

use std::sync::Arc;

use bytes::Bytes;

use crate::cache::Catalog;
use crate::exposition::typed::TypedBody;
use crate::exposition::{Format, Piece, ScrapeQuery, Source};
use crate::kube::FirstSync;

/// A catalog and the gate in front of it.
pub(super) struct GatedCatalog {
    pub(super) catalog: Catalog,
    pub(super) first_sync: Arc<FirstSync>,
}

impl Source for GatedCatalog {
    fn missing(&self) -> Vec<String> {
        self.first_sync.missing()
    }

    fn has_namespaces(&self) -> bool {
        self.catalog.has_namespaces()
    }

    fn has_shards(&self) -> bool {
        self.catalog.has_shards()
    }

    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        self.catalog.frames(format, query)
    }

    fn deflated(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Piece> + Send> {
        self.catalog.deflated(format, query)
    }
    fn typed(&self, query: &ScrapeQuery) -> Option<Box<dyn TypedBody>> {
        self.catalog.typed(query)
    }
}
