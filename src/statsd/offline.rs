//! A StatsD pipeline without sockets, for commands, tests and fuzz targets.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use super::ingest::{Shared, Worker};
use super::metrics::{Listener, OwnSelection};
use super::pipeline::config::PipelineConfig;
use super::scrape::Scrape;
use super::series::registry::Reserved;
use crate::exposition::typed::TypedBody;
use crate::exposition::{Format, ScrapeQuery};
use crate::mapper::Mapper;

/// The configuration of an [`Offline`] pipeline, which ignores listeners, files, relay, mirror, and own and additional metrics.
pub type OfflineConfig = PipelineConfig;

/// A registry of series and a worker that applies lines to it.
pub struct Offline {
    shared: Arc<Shared>,
    worker: Worker,
}

impl Offline {
    /// Creates an empty registry with this mapping.
    pub fn new(mapper: impl Into<Arc<Mapper>>, config: OfflineConfig) -> Self {
        Self::with(mapper, config, |_| ())
    }

    /// Like [`Offline::new`], with changes of the shared state, such as a relay.
    pub(super) fn with(
        mapper: impl Into<Arc<Mapper>>,
        config: OfflineConfig,
        change: impl FnOnce(&mut Shared),
    ) -> Self {
        let mut shared = config.shared(mapper, Arc::clone(&config.reserved), Box::new(|| {}));
        change(&mut shared);
        let shared = Arc::new(shared);
        let worker = Worker::new(&shared, Listener::Direct);
        Self { shared, worker }
    }

    /// Applies one line, without its line feed. Returns the distinct reasons for which the line or a part of
    /// it was rejected. With `tag_error` alone, the line took effect without a tag.
    pub fn line(&mut self, line: &[u8]) -> Vec<&'static str> {
        let before = self.shared.metrics.rejections();
        self.worker.begin();
        self.worker.line(line);
        self.worker.end();
        self.reasons_since(&before)
    }

    /// Returns the distinct reasons for rejections since these counts.
    pub(super) fn reasons_since(&self, before: &[(&'static str, u64)]) -> Vec<&'static str> {
        let after = self.shared.metrics.rejections();
        let mut words: Vec<_> = before
            .iter()
            .zip(&after)
            .filter(|((_, before), (_, after))| before != after)
            .map(|(_, (word, _))| *word)
            .collect();
        // A reason can apply to samples and to lines.
        let mut seen = std::collections::HashSet::new();
        words.retain(|word| seen.insert(*word));
        words
    }

    /// Returns every reason that [`Offline::line`] can return.
    pub fn rejection_reasons(&self) -> Vec<&'static str> {
        self.shared.metrics.rejections().into_iter().map(|(word, _)| word).collect()
    }

    /// Applies lines separated by line feeds.
    pub fn lines(&mut self, bytes: &[u8]) {
        self.worker.begin();
        self.worker.lines(bytes);
        self.worker.end();
    }

    /// Ingests a batch of datagrams with the addresses of their senders; `None` for a Unix socket.
    pub fn datagrams<'a>(
        &mut self,
        datagrams: impl IntoIterator<Item = (Option<IpAddr>, &'a [u8])>,
    ) {
        self.worker.begin();
        for (address, datagram) in datagrams {
            self.worker.set_sender(address);
            self.worker.datagram(datagram);
        }
        self.worker.end();
    }

    /// The state that the threads of a pipeline share.
    #[cfg(any(test, fuzzing))]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Replaces [`OfflineConfig::reserved`]: series with these names are hidden from now on.
    pub fn reserve(&self, reserved: Reserved) {
        drop(self.shared.registry.reserve(reserved));
    }

    /// Removes the series that have expired.
    pub fn expire(&self) {
        self.shared.registry.expire();
        self.shared.end_senders();
    }

    fn scrape(&self, query: &ScrapeQuery) -> Scrape {
        let registry = &self.shared.registry;
        Scrape::new(registry.view(), Vec::new(), None, query.names.clone(), registry.clock.clone())
    }

    /// Writes the series as text. OpenMetrics has start times if [`OfflineConfig::openmetrics_created`] is set.
    pub fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> impl Iterator<Item = Bytes> + Send + use<> {
        self.scrape(query).text(format, self.shared.registry.exposes_start_times)
    }

    /// Returns the series for the formats that are not text.
    pub fn typed(&self, query: &ScrapeQuery) -> Box<dyn TypedBody> {
        Box::new(self.scrape(query))
    }

    /// Writes the pipeline's own metrics as text format 0.0.4.
    pub fn self_metrics(&self) -> impl Iterator<Item = Bytes> + Send + use<> {
        let registry = &self.shared.registry;
        let mut view = registry.view();
        let selection = OwnSelection { all: true, names: None, omits_conflicts: false };
        let own = self.shared.own_families(&view.pages, Vec::new(), None, selection);
        view.pages = super::series::tree::Snapshot::default();
        Scrape::new(view, own, None, None, registry.clock.clone()).text(Format::Text, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Offline {
        /// Applies lines that another replica received, with their senders.
        pub(in crate::statsd) fn lines_with_senders(&mut self, bytes: &[u8]) {
            self.worker.begin();
            self.worker.lines_with_senders(bytes);
            self.worker.end();
        }
    }
}
