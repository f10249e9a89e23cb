//! A source that is empty while this replica is a standby.

use std::sync::Arc;

use bytes::Bytes;

use super::state::Standby;
use crate::exposition::typed::{FamilyEncoder, TypedBody};
use crate::exposition::{Format, Piece, Preparation, ScrapeQuery, Source};

/// A source and the decision whether it is exposed.
pub(crate) struct StandbySource {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) standby: Standby,
}

impl StandbySource {
    /// Returns true if the query is answered in full. kstatd's own commands see the state of a standby.
    fn exposes(&self, query: &ScrapeQuery) -> bool {
        query.by_a_command || self.standby.is_active()
    }
}

type Frames = Box<dyn Iterator<Item = Bytes> + Send>;

impl Source for StandbySource {
    fn prepare(&self) -> Option<Preparation<'_>> {
        Some(Box::pin(self.standby.confirm()))
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
        if self.standby.is_active() { self.source.missing() } else { Vec::new() }
    }

    fn has_namespaces(&self) -> bool {
        self.source.has_namespaces()
    }

    fn has_shards(&self) -> bool {
        self.source.has_shards()
    }

    fn typed(&self, query: &ScrapeQuery) -> Option<Box<dyn TypedBody>> {
        let body = self.source.typed(query)?;
        Some(if self.exposes(query) { body } else { Box::new(NoFamilies) })
    }
}

/// The families of a standby.
struct NoFamilies;

impl TypedBody for NoFamilies {
    fn step(&mut self, _encoder: &mut dyn FamilyEncoder, _out: &mut Vec<u8>) -> bool {
        false
    }
}
