//! The pipeline without sockets: lines from anywhere, the exposition after them.

use std::sync::Arc;

use bytes::Bytes;

use super::clock::Clock;
use super::ingest::{Shared, Worker};
use super::line::ParserFlags;
use super::mapper::Mapper;
use super::metrics::{Context, Listener};
use super::scrape::Scrape;
use super::series::registry::{Registry, Reserved};
use crate::exposition::budget::Budget;
use crate::exposition::prototext::Layout;
use crate::exposition::{Format, ScrapeQuery};

/// How lines are read and kept.
#[derive(Clone)]
pub struct OfflineConfig {
    /// Which parts of the line grammar are on.
    pub flags: ParserFlags,
    /// Keys of known lines that are remembered; 0 sends every line the long way.
    pub key_cache_size: usize,
    /// How many series there may be, and what happens beyond.
    pub budget: Budget,
    /// Names that belong to somebody else.
    pub reserved: Reserved,
    /// Time.
    pub clock: Clock,
}

impl Default for OfflineConfig {
    fn default() -> Self {
        Self {
            flags: ParserFlags::default(),
            key_cache_size: 1 << 20,
            budget: Budget::default(),
            reserved: Arc::new(|_| false),
            clock: Clock::system(),
        }
    }
}

impl std::fmt::Debug for OfflineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfflineConfig")
            .field("flags", &self.flags)
            .field("key_cache_size", &self.key_cache_size)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

/// A registry that is fed by calls.
#[derive(Debug)]
pub struct Offline {
    shared: Arc<Shared>,
    worker: Worker,
}

impl Offline {
    /// An empty registry under `mapper`.
    #[must_use]
    pub fn new(mapper: impl Into<Arc<Mapper>>, config: OfflineConfig) -> Self {
        let OfflineConfig { flags, key_cache_size, budget, reserved, clock } = config;
        let registry = Registry::new(clock, reserved, budget, Box::new(|| {}));
        let shared = Shared::new(registry, mapper, flags);
        let shared = Arc::new(Shared { key_cache_size, ..shared });
        let worker = Worker::new(&shared, Listener::Direct);
        Self { shared, worker }
    }

    /// One line, without its line feed. Returns why it, or a part of it, had no effect: words of the ledger, each once.
    /// `tag_error` alone says that the line counts and has lost a tag.
    pub fn line(&mut self, line: &[u8]) -> Vec<&'static str> {
        let before = self.shared.metrics.refusals();
        self.worker.begin();
        self.worker.line(line);
        self.worker.end();
        let after = self.shared.metrics.refusals();
        let mut words: Vec<_> = before
            .iter()
            .zip(&after)
            .filter(|((_, before), (_, after))| before != after)
            .map(|(_, (word, _))| *word)
            .collect();
        // Reasons of samples are reasons of lines as well.
        let mut seen = std::collections::HashSet::new();
        words.retain(|word| seen.insert(*word));
        words
    }

    /// Every word that [`Offline::line`] can answer.
    #[must_use]
    pub fn refusal_words(&self) -> Vec<&'static str> {
        self.shared.metrics.refusals().into_iter().map(|(word, _)| word).collect()
    }

    /// Many lines, separated by line feeds.
    pub fn lines(&mut self, bytes: &[u8]) {
        self.worker.begin();
        self.worker.lines(bytes);
        self.worker.end();
    }

    /// Tells what would become of a line.
    #[cfg(fuzzing)]
    pub(crate) fn foretold(&self, line: &[u8]) -> crate::status::explanation::Explanation {
        use super::explain::{Among, explain};
        let loaded = self.shared.mapping.load();
        explain(&loaded, self.shared.flags, Among::Those(&self.shared.registry), line, false)
    }

    /// Removes the series whose time to live is over.
    pub fn expire(&self) {
        self.shared.registry.expire();
    }

    fn scrape(&self, query: &ScrapeQuery) -> Scrape {
        let registry = &self.shared.registry;
        Scrape::new(registry.view(), Vec::new(), query.names.clone(), registry.clock.clone())
    }

    /// The series as text.
    pub fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> impl Iterator<Item = Bytes> + Send + use<> {
        self.scrape(query).text(format)
    }

    /// The series as length-delimited protobuf messages.
    pub fn protobuf_frames(
        &self,
        query: &ScrapeQuery,
    ) -> impl Iterator<Item = Bytes> + Send + use<> {
        self.scrape(query).protobuf()
    }

    /// The series as protobuf text.
    pub fn prototext_frames(
        &self,
        layout: Layout,
        query: &ScrapeQuery,
    ) -> impl Iterator<Item = Bytes> + Send + use<> {
        self.scrape(query).prototext(layout)
    }

    /// What the pipeline says about itself after these lines, as text 0.0.4.
    pub fn self_metrics(&self) -> impl Iterator<Item = Bytes> + Send + use<> {
        let registry = &self.shared.registry;
        let (mut view, mapping) = (registry.view(), self.shared.mapping.load());
        let context = Context {
            registry: &registry.counts,
            relay: None,
            has_cache: true,
            sockets: Vec::new(),
            families: &view.pages,
            rules: &mapping.hits,
            mapping_file: None,
            over: &registry.over,
            now: registry.clock.now(),
        };
        let mut own = self.shared.metrics.original(&context);
        own.extend(self.shared.metrics.ours(&context));
        view.pages = super::series::tree::Snapshot::default();
        Scrape::new(view, own, None, registry.clock.clone()).text(Format::Text)
    }
}
