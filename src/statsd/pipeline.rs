//! The StatsD side as a whole: listeners, mapping, registry, relay, and the scrapes of it.
//!
//! A [`Pipeline`] is a [`Source`]: it gives the users' series and, as configured, metrics about itself. What comes in
//! over the sockets and what the configuration says are its only inputs; HTTP, flags and signals are others' business.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::clock::Clock;
use super::ingest::{Loaded, Shared};
use super::line::ParserFlags;
use super::mapcache::CacheKind;
use super::mapper::{Mapper, Problem, Severity};
use super::metrics::{Context, EventQueue, Listener, Metrics, SelfFamily, bump, is_own_name};
use super::receive::intake::Intake;
use super::relay::{Relay, RelayConfig};
use super::reload::Reloads;
use super::scrape::Scrape;
use super::series::registry::{Registry, Reserved};
use super::series::tree;
use crate::exposition::prototext::Layout;
use crate::exposition::{Format, ScrapeQuery, Source};

mod threads;

use threads::{Expiry, Signal, Threads};

/// Which metrics about itself a pipeline adds to the users' series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfMetrics {
    /// None; they are to be had from [`Pipeline::self_source`].
    None,
    /// Those of the original, with its names.
    #[default]
    Original,
    /// Those of the original and ours.
    All,
}

/// What a pipeline listens to and how it reads.
#[derive(Clone)]
pub struct PipelineConfig {
    /// UDP address, `None` for no UDP.
    pub udp: Option<SocketAddr>,
    /// UDP sockets (and threads) that share the address by `SO_REUSEPORT`; senders are spread by the kernel. 0 is 1.
    /// With one, lines take effect in the order in which they reach this host; with more there is no order between two
    /// of them.
    pub udp_sockets: usize,
    /// TCP address, `None` for no TCP.
    pub tcp: Option<SocketAddr>,
    /// How long a TCP connection may be silent before it is closed; `None` for any time.
    pub tcp_idle: Option<Duration>,
    /// Path of a Unix datagram socket, or `@` and an abstract name.
    pub unixgram: Option<String>,
    /// Mode of that socket's file; `None` leaves what the umask gives.
    pub unixgram_mode: Option<u32>,
    /// Receive buffer of datagram sockets in bytes, 0 for as much as the system allows up to 16 MiB.
    pub read_buffer: usize,
    /// Mapping file; read at the start and at each reload.
    pub mapping_file: Option<PathBuf>,
    /// Which parts of the line grammar are on.
    pub flags: ParserFlags,
    /// Names in the mapping cache, 0 for no cache.
    pub cache_size: usize,
    /// Which name leaves a full mapping cache.
    pub cache_kind: CacheKind,
    /// Keys of known lines that each listening thread remembers, at 25 to 50 bytes each; 0 for none.
    pub key_cache_size: usize,
    /// Events after which the original's queue would be handed on, and the interval at which it would be in any case:
    /// what `statsd_exporter_event_queue_flushed_total` counts. There is no such queue here.
    pub event_flush: (u64, Duration),
    /// Series allowed; new ones beyond are refused and counted. 0 for any number.
    pub max_series: u64,
    /// Relay, if any.
    pub relay: Option<RelayConfig>,
    /// Names that StatsD clients may not use, because something else in the exposition has them.
    pub reserved: Reserved,
    /// Which metrics about itself the pipeline adds to the users' series.
    pub self_metrics: SelfMetrics,
    /// Version and revision for `statsd_exporter_build_info`.
    pub build: (String, String),
    /// Time; a manual clock for tests.
    pub clock: Clock,
}

impl Default for PipelineConfig {
    /// No listeners, no mapping, the defaults of the original for everything else.
    fn default() -> Self {
        Self {
            udp: None,
            udp_sockets: 1,
            tcp: None,
            tcp_idle: None,
            unixgram: None,
            unixgram_mode: None,
            read_buffer: 0,
            mapping_file: None,
            flags: ParserFlags::default(),
            cache_size: 1_000,
            cache_kind: CacheKind::Lru,
            key_cache_size: 4 << 20,
            event_flush: (1_000, Duration::from_millis(200)),
            max_series: 0,
            relay: None,
            reserved: Arc::new(|_| false),
            self_metrics: SelfMetrics::Original,
            build: (env!("CARGO_PKG_VERSION").to_owned(), String::new()),
            clock: Clock::system(),
        }
    }
}

impl std::fmt::Debug for PipelineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineConfig")
            .field("udp", &self.udp)
            .field("tcp", &self.tcp)
            .field("unixgram", &self.unixgram)
            .field("mapping_file", &self.mapping_file)
            .field("relay", &self.relay)
            .finish_non_exhaustive()
    }
}

/// Why a pipeline did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The mapping file could not be loaded.
    #[error(transparent)]
    Mapping(#[from] ReloadError),
    /// The relay's target could not be looked up.
    #[error("relay target {address:?}: {source}")]
    Relay {
        /// The target as configured.
        address: String,
        /// What went wrong.
        source: io::Error,
    },
    /// A listener could not be opened.
    #[error("cannot listen on {listener} {address}: {source}")]
    Listen {
        /// `udp`, `tcp` or `unixgram`.
        listener: &'static str,
        /// The address as configured.
        address: String,
        /// What went wrong.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Why a mapping was not taken up. The one in use stays.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// There is no mapping file to load.
    #[error("no mapping file is configured")]
    NoFile,
    /// The file cannot be read.
    #[error("cannot read mapping file {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The file is no valid mapping.
    #[error("mapping file {path} is not valid: {}", Problem::list(problems), path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Every problem found.
        problems: Vec<Problem>,
    },
}

fn load(path: &Path) -> Result<Mapper, ReloadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ReloadError::Read { path: path.to_owned(), source })?;
    let mapper = Mapper::from_yaml(&text)
        .map_err(|problems| ReloadError::Invalid { path: path.to_owned(), problems })?;
    for warning in mapper.warnings() {
        debug_assert_eq!(warning.severity, Severity::Warning);
        tracing::warn!(file = %path.display(), "{warning}");
    }
    Ok(mapper)
}

/// The running StatsD side.
pub struct Pipeline {
    shared: Arc<Shared>,
    threads: Arc<Threads>,
    udp_address: Option<SocketAddr>,
    tcp_address: Option<SocketAddr>,
    mapping_file: Option<PathBuf>,
    reloads: Reloads,
    self_metrics: SelfMetrics,
    build: (String, String),
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
            Some(path) => load(path)?,
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
            config.max_series,
            Box::new(move || waker.wake()),
        );
        let (threshold, interval) = config.event_flush;
        let metrics = Metrics::new(EventQueue::new(threshold, interval));
        metrics.loaded_mappings.store(mapper.rules().len() as u64, Ordering::Relaxed);
        let shared = Arc::new(Shared {
            registry,
            metrics,
            mapping: ArcSwap::from_pointee(Loaded { mapper, generation: 0 }),
            flags: config.flags,
            cache_size: config.cache_size,
            cache_kind: config.cache_kind,
            key_cache_size: config.key_cache_size,
            relay,
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
            mapping_file: config.mapping_file.clone(),
            reloads: Reloads::default(),
            self_metrics: config.self_metrics,
            build: config.build.clone(),
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
            self.shared.mapping.store(Arc::new(Loaded { mapper, generation }));
            metrics.loaded_mappings.store(rules as u64, Ordering::Relaxed);
            bump(&metrics.reloads_ok);
            rules
        };
        let reloaded = self.reloads.run(|| load(path), publish);
        reloaded.inspect_err(|_| bump(&metrics.reloads_failed))
    }

    /// Moves a manual clock and removes what has expired by then.
    pub fn advance(&self, by: Duration) {
        self.shared.registry.clock.advance(by);
        self.shared.registry.expire();
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

    /// Whether something other than a family of StatsD clients would clash with `name`.
    #[must_use]
    pub fn has_family(&self, name: &str) -> bool {
        self.shared.registry.has_family(name)
    }

    /// A source of the metrics about the pipeline alone: of the original, ours, or both.
    #[must_use]
    pub fn self_source(self: &Arc<Self>, which: SelfMetrics) -> SelfSource {
        SelfSource { pipeline: Arc::clone(self), which }
    }

    fn own_families(&self, which: SelfMetrics) -> Vec<SelfFamily> {
        let context = Context {
            registry: &self.shared.registry.counts,
            relay: self.shared.relay.as_ref(),
            has_cache: self.shared.cache_size > 0,
            kernel_drops: self.threads.intakes.iter().flat_map(Intake::kernel_drops).collect(),
            now: self.shared.registry.clock.now(),
            build: (&self.build.0, &self.build.1),
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
        let own = self.own_families(self.self_metrics);
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

/// The metrics of a [`Pipeline`] about itself, without the users' series.
#[derive(Debug)]
pub struct SelfSource {
    pipeline: Arc<Pipeline>,
    which: SelfMetrics,
}

impl SelfSource {
    fn scrape(&self, query: &ScrapeQuery) -> Scrape {
        let registry = &self.pipeline.shared.registry;
        let mut view = registry.view();
        view.pages = tree::Snapshot::default();
        let own = self.pipeline.own_families(self.which);
        Scrape::new(view, own, query.names.clone(), registry.clock.clone())
    }
}

impl Source for SelfSource {
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
}
