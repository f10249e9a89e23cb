//! Everything that `kstatd node` exports, as one source.

use std::sync::Arc;

use bytes::Bytes;

use super::families;
use super::host::{self, Host};
use super::store::Store;
use crate::exposition::{Format, ScrapeQuery, Source};

/// Disk usage, then processes and pressure.
pub(crate) struct NodeSource {
    pub(crate) store: Arc<Store>,
    pub(crate) host: Arc<Host>,
}

impl NodeSource {
    /// Returns the names of all families.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        families::names().chain(host::family_names())
    }
}

impl Source for NodeSource {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        let host = host_frames(&self.host, format, query);
        Box::new(self.store.frames(format, query).chain(host))
    }

    fn has_namespaces(&self) -> bool {
        true
    }
}

/// Returns processes and pressure as a part of a scrape. They belong to no namespace.
fn host_frames(
    host: &Arc<Host>,
    format: Format,
    query: &ScrapeQuery,
) -> impl Iterator<Item = Bytes> + Send + use<> {
    let (host, wanted) = (Arc::clone(host), query.names.clone());
    let is_wanted = move |name: &str| wanted.as_ref().is_none_or(|of| of.contains(name));
    let mut is_done = query.namespaces.is_some() || !host::family_names().any(&is_wanted);
    std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let Some(families) = host.advance() else { return Some(Bytes::new()) };
        is_done = true;
        let mut out = Vec::new();
        let wanted = families.iter().filter(|family| is_wanted(family.name));
        wanted.for_each(|family| family.text(&mut out, format));
        Some(out.into())
    })
}
