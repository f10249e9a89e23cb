//! Everything that `kstatd node` exports, as one source.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::families;
use super::host::{self, Host};
use super::store::Store;
use crate::exposition::{Format, Preparation, ScrapeQuery, Source};
use crate::util::serial_blocking::SharedRuns;

/// Disk usage, then processes and pressure.
pub(crate) struct NodeSource {
    pub(crate) store: Arc<Store>,
    pub(crate) host: Arc<Host>,
    /// Readings of the host, which concurrent scrapes share: a slow one occupies one thread.
    pub(crate) readings: SharedRuns,
}

impl NodeSource {
    /// Returns the names of all families.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        families::names().chain(host::family_names())
    }
}

impl Source for NodeSource {
    fn prepare(&self, _since: Instant, _by_a_command: bool) -> Option<Preparation<'_>> {
        let host = Arc::clone(&self.host);
        Some(Box::pin(async move {
            // If it panics, the last figures are shown.
            let _ = self.readings.run(move || host.read()).await;
        }))
    }

    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        // Processes and pressure belong to no namespace.
        let host = query.namespaces.is_none().then(|| self.host_text(format, query));
        Box::new(self.store.frames(format, query).chain(host))
    }

    fn has_namespaces(&self) -> bool {
        true
    }
}

impl NodeSource {
    fn host_text(&self, format: Format, query: &ScrapeQuery) -> Bytes {
        let is_wanted = |name| query.names.as_ref().is_none_or(|of| of.contains(name));
        let (last, mut out) = (self.host.last(), Vec::new());
        let wanted = last.families.iter().filter(|family| is_wanted(family.name));
        wanted.for_each(|family| family.text(&mut out, format));
        out.into()
    }
}
