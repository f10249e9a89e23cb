//! A catalog that is not to be seen before its first lists are complete.

use std::sync::Arc;

use bytes::Bytes;

use crate::cache::Catalog;
use crate::exposition::{Format, Piece, ScrapeQuery, Source};
use crate::kube::FirstSync;

/// What is served of the cluster, and what holds it back.
pub(super) struct Gated {
    pub(super) catalog: Catalog,
    pub(super) first_sync: Arc<FirstSync>,
}

impl Source for Gated {
    fn missing(&self) -> Vec<String> {
        self.first_sync.missing()
    }

    fn has_namespaces(&self) -> bool {
        self.catalog.has_namespaces()
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
}
