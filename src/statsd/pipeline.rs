//! The StatsD side as a whole: listeners, mapping, registry, relay, and the scrapes of it.
//!
//! A [`Pipeline`] is a [`Source`]: it gives the users' series and, as configured, metrics about itself. What comes in
//! over the sockets and what the configuration says are its only inputs; HTTP, flags and signals are others' business.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::census::Census;
use super::explain::{self, Among};
use super::ingest::{Loaded, Shared};
use super::mapper::Mapper;
use super::mapping;
use super::metrics::{Context, EventQueue, Listener, Metrics, bump, is_own_name};
use super::receive::intake::Intake;
use super::relay::Relay;
use super::reload::Reloads;
use super::scrape::Scrape;
use super::series::registry::Registry;
use crate::exposition::family::{Collect, Family};
use crate::exposition::prototext::Layout;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::status::Explanation;
use crate::telemetry::countable::{Countable, Snapshot};

mod config;
mod facts;
mod threads;

pub use config::{PipelineConfig, ReloadError, SelfMetrics, StartError};
use threads::{Expiry, Signal, Threads};

/// The running StatsD side.
pub struct Pipeline {
    shared: Arc<Shared>,
    threads: Arc<Threads>,
    udp_address: Option<SocketAddr>,
    tcp_address: Option<SocketAddr>,
    unix_path: Option<String>,
    mapping_file: Option<PathBuf>,
    reloads: Reloads,
    self_metrics: SelfMetrics,
    beside: Option<Arc<dyn Collect>>,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("udp_address", &self.udp_address)
            .field("mapping_file", &self.mapping_file)
            .finish_non_exhaustive()
    }
}

impl Pipeline {
    /// Loads the mapping, opens the listeners and begins to receive.
    ///
    /// # Errors
    /// The first step that failed: mapping, relay, then UDP, TCP and Unix listener. Nothing is left running then.
    pub fn start(config: PipelineConfig) -> Result<Self, StartError> {
        let mapper = match &config.mapping_file {
            Some(path) => mapping::load_and_warn(path)?,
            None => Mapper::default(),
        };
        let relay =
            match &config.relay {
                Some(relay) => Some(Relay::start(relay).map_err(|source| StartError::Relay {
                    address: relay.address.clone(),
                    source,
                })?),
                None => None,
            };
        let signal = Arc::new(Signal::default());
        let waker = Arc::clone(&signal);
        let clock = config.clock.clone();
        let others = Arc::clone(&config.reserved);
        let registry = Registry::new(
            clock.clone(),
            Arc::new(move |name| is_own_name(name) || others(name)),
            config.budget.clone(),
            Box::new(move || waker.wake()),
        );
        let (threshold, interval) = config.event_flush;
        let metrics = Metrics::new(EventQueue::new(threshold, interval));
        metrics.mapping_loaded(mapper.rules().len());
        let shared = Arc::new(Shared {
            metrics,
            cache_size: config.cache_size,
            cache_kind: config.cache_kind,
            key_cache_size: config.key_cache_size,
            relay,
            ..Shared::new(registry, mapper, config.flags)
        });
        // From here on dropping them stops what was started.
        let mut threads = Threads {
            shared: Arc::clone(&shared),
            intakes: Vec::new(),
            unix_file: None,
            expiry: None,
        };
        let (udp_address, tcp_address) = threads.listen(&config)?;
        if !clock.is_manual() {
            let expiry = Expiry::start(Arc::clone(&shared), signal);
            threads.expiry = Some(expiry.map_err(StartError::Thread)?);
        }
        Ok(Self {
            shared,
            threads: Arc::new(threads),
            udp_address,
            tcp_address,
            unix_path: config.unixgram,
            mapping_file: config.mapping_file.clone(),
            reloads: Reloads::default(),
            self_metrics: config.self_metrics,
            beside: config.beside,
        })
    }

    /// The UDP address in use, with the real port where 0 was asked for.
    #[must_use]
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.udp_address
    }

    /// The TCP address in use, with the real port where 0 was asked for.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp_address
    }

    /// Reads the mapping file again and swaps the mapping for every line received from now on. Existing series keep
    /// their help, buckets and quantiles; a series that maps elsewhere now gets no more events and ends with its time
    /// to live. Several at a time take turns, each with the file as it is by then. Returns the number of rules.
    ///
    /// # Errors
    /// What is wrong with the file; the mapping in use stays.
    pub fn reload(&self) -> Result<usize, ReloadError> {
        let Some(path) = &self.mapping_file else {
            return Err(ReloadError::NoFile);
        };
        let metrics = &self.shared.metrics;
        let publish = |mapper: Mapper, generation| {
            let rules = mapper.rules().len();
            let before = self.shared.mapping.load_full();
            let loaded = Loaded::new(Arc::new(mapper), generation, Some(&before));
            self.shared.mapping.store(Arc::new(loaded));
            metrics.examples.forget_names();
            metrics.mapping_loaded(rules);
            bump(&metrics.reloads_ok);
            rules
        };
        let read = || -> Result<Mapper, ReloadError> {
            let failed = |_: &_| {
                metrics.mapping_failed();
                bump(&metrics.reloads_failed);
            };
            Ok(mapping::load_and_warn(path).inspect_err(failed)?)
        };
        self.reloads.run(read, publish)
    }

    /// Moves a manual clock and removes what has expired by then.
    pub fn advance(&self, by: Duration) {
        self.shared.registry.clock.advance(by);
        self.shared.registry.expire();
    }

    /// The listeners by name, and whether they are open.
    #[must_use]
    pub fn listeners(&self) -> Vec<(String, bool)> {
        let sockets: Vec<_> = self.threads.intakes.iter().flat_map(Intake::sockets).collect();
        let datagrams = sockets.iter().map(|socket| {
            let listener = socket.listener.as_str();
            let several =
                socket.listener == Listener::Udp && sockets.iter().any(|one| one.socket > 0);
            let name =
                if several { format!("{listener}-{}", socket.socket) } else { listener.to_owned() };
            (name, socket.receive_buffer.is_some())
        });
        let tcp = self.tcp_address.map(|_| (Listener::Tcp.as_str().to_owned(), true));
        datagrams.chain(tcp).collect()
    }

    /// Lines processed so far, of one listener or of all. A line counts once its effect is visible to a scrape.
    #[must_use]
    pub fn lines(&self, listener: Option<Listener>) -> u64 {
        self.shared.metrics.lines(listener)
    }

    /// Series alive.
    #[must_use]
    pub fn series(&self) -> u64 {
        let live = &self.shared.registry.counts.live;
        live.iter().map(|live| live.load(Ordering::Relaxed)).sum()
    }

    /// Gathers the metrics about the pipeline alone: of the original, ours, or both.
    #[must_use]
    pub(crate) fn about(self: &Arc<Self>, which: SelfMetrics) -> impl Collect + use<> {
        About { pipeline: Arc::clone(self), which }
    }

    /// What would become of a line if it came now. It is not ingested, and nothing changes.
    #[must_use]
    pub fn explain(&self, line: &[u8], all: bool) -> Explanation {
        let Shared { mapping, flags, registry, .. } = &*self.shared;
        explain::explain(&mapping.load_full(), *flags, Among::Those(registry), line, all)
    }

    fn own_families(&self, which: SelfMetrics) -> Vec<Family> {
        if which == SelfMetrics::None {
            return Vec::new();
        }
        let (view, mapping) = (self.shared.registry.view(), self.shared.mapping.load());
        let mapping_file = self.mapping_file.as_deref().map(Path::to_string_lossy);
        let context = Context {
            registry: &self.shared.registry.counts,
            relay: self.shared.relay.as_ref(),
            has_cache: self.shared.cache_size > 0,
            sockets: self.threads.intakes.iter().flat_map(Intake::sockets).collect(),
            families: &view.pages,
            rules: &mapping.hits,
            mapping_file: mapping_file.as_deref(),
            over: &self.shared.registry.over,
            now: self.shared.registry.clock.now(),
        };
        let metrics = &self.shared.metrics;
        match which {
            SelfMetrics::None => Vec::new(),
            SelfMetrics::Original => metrics.original(&context),
            SelfMetrics::All => {
                let mut families = metrics.original(&context);
                families.extend(metrics.ours(&context));
                families
            }
        }
    }

    fn scrape(&self, query: &ScrapeQuery) -> Scrape {
        let registry = &self.shared.registry;
        // The own numbers first: they never claim more than the series show.
        let mut own = self.own_families(self.self_metrics);
        self.beside.iter().for_each(|beside| beside.collect(&mut own));
        Scrape::new(registry.view(), own, query.names.clone(), registry.clock.clone())
    }

    /// Stops the listeners after they have taken what they had received, then the relay after it has sent it.
    /// Series can be scraped still. The runtime goes on meanwhile, whatever a thread waits for.
    pub async fn shutdown(&self) {
        let threads = Arc::clone(&self.threads);
        if let Err(error) = tokio::task::spawn_blocking(move || threads.stop()).await {
            tracing::error!(%error, "stopping the StatsD side failed");
        }
    }
}

impl Countable for Pipeline {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(Census::new(&self.shared.registry))
    }
}

impl Source for Pipeline {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        Box::new(self.scrape(query).text(format))
    }

    fn protobuf_frames(
        &self,
        query: &ScrapeQuery,
    ) -> Option<Box<dyn Iterator<Item = Bytes> + Send>> {
        Some(Box::new(self.scrape(query).protobuf()))
    }

    fn prototext_frames(
        &self,
        layout: Layout,
        query: &ScrapeQuery,
    ) -> Option<Box<dyn Iterator<Item = Bytes> + Send>> {
        Some(Box::new(self.scrape(query).prototext(layout)))
    }
}

/// Gathers the metrics of a [`Pipeline`] about itself, without the users' series.
struct About {
    pipeline: Arc<Pipeline>,
    which: SelfMetrics,
}

impl Collect for About {
    fn collect(&self, out: &mut Vec<Family>) {
        out.extend(self.pipeline.own_families(self.which));
    }
}
