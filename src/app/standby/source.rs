//! A source that is empty while this replica is a standby, and unavailable before the first lists.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::state::Standby;
use crate::app::sides::Features;
use crate::exposition::family::TypedFamilies;
use crate::exposition::typed::TypedBody;
use crate::exposition::{Format, Piece, Preparation, ScrapeQuery, Source};
use crate::kube::FirstSync;

/// A source that is not exposed while the first lists are incomplete, or while this replica is a standby.
struct GatedSource {
    source: Arc<dyn Source>,
    first_sync: Option<Arc<FirstSync>>,
    standby: Option<Standby>,
}

/// Returns the metrics of a side, as they are exposed.
pub(crate) fn gated(side: &Features, standby: Option<&Standby>) -> Arc<dyn Source> {
    let (source, first_sync) = (Arc::clone(&side.source), side.first_sync.clone());
    if first_sync.is_none() && standby.is_none() {
        return source;
    }
    Arc::new(GatedSource { source, first_sync, standby: standby.cloned() })
}

#[cfg(test)]
impl Standby {
    /// Returns a source that this replica exposes unless it is a standby.
    pub(super) fn gate(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        Arc::new(GatedSource { source, first_sync: None, standby: Some(self.clone()) })
    }
}

impl GatedSource {
    fn is_active(&self) -> bool {
        self.standby.as_ref().is_none_or(Standby::is_active)
    }

    /// Returns true if the query is answered in full. kstatd's own commands see the state of a standby.
    fn exposes(&self, query: &ScrapeQuery) -> bool {
        query.by_a_command || self.is_active()
    }
}

type Frames = Box<dyn Iterator<Item = Bytes> + Send>;

impl Source for GatedSource {
    fn prepare(&self, since: Instant, by_a_command: bool) -> Option<Preparation<'_>> {
        let standby = self.standby.as_ref().filter(|_| !by_a_command)?;
        Some(Box::pin(standby.confirm(since.into())))
    }

    fn frames(&self, format: Format, query: &ScrapeQuery) -> Frames {
        if !self.exposes(query) {
            return Box::new(std::iter::empty());
        }
        self.source.frames(format, query)
    }

    fn deflated(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Piece> + Send> {
        if !self.exposes(query) {
            return Box::new(std::iter::empty());
        }
        self.source.deflated(format, query)
    }

    fn missing(&self) -> Vec<String> {
        let first_sync = self.first_sync.as_ref().filter(|_| self.is_active());
        first_sync.map(|first_sync| first_sync.missing()).unwrap_or_default()
    }

    fn has_namespaces(&self) -> bool {
        self.source.has_namespaces()
    }

    fn has_shards(&self) -> bool {
        self.source.has_shards()
    }

    fn typed(&self, query: &ScrapeQuery) -> Option<Box<dyn TypedBody>> {
        let body = self.source.typed(query)?;
        Some(if self.exposes(query) { body } else { Box::new(TypedFamilies::default()) })
    }
}
