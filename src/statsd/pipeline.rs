//! The StatsD side as a whole: listeners, mapping, registry, relay, and the scrapes of it.
//!
//! A [`Pipeline`] is a [`Source`]: it gives the users' series and, as configured, metrics about itself. What comes in
//! over the sockets and what the configuration says are its only inputs; HTTP, flags and signals are others' business.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;

use super::clock::{Clock, TICK_NANOS, TICKS_PER_SECOND};
use super::datagram::DatagramListener;
use super::ingest::{Loaded, Shared};
use super::line::ParserFlags;
use super::mapcache::CacheKind;
use super::mapper::{Mapper, Problem, Severity};
use super::metrics::{Context, Listener, Metrics, SelfFamily, bump, is_own_name};
use super::net;
use super::registry::{Registry, Reserved};
use super::relay::{Relay, RelayConfig};
use super::scrape::Scrape;
use super::{tcp, tree};
use crate::exposition::prototext::Layout;
use crate::exposition::{Format, ScrapeQuery, Source};

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
    pub udp_sockets: usize,
    /// TCP address, `None` for no TCP.
    pub tcp: Option<SocketAddr>,
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
            unixgram: None,
            unixgram_mode: None,
            read_buffer: 0,
            mapping_file: None,
            flags: ParserFlags::default(),
            cache_size: 1_000,
            cache_kind: CacheKind::Lru,
            key_cache_size: 4 << 20,
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
    #[error("mapping file {path} is not valid: {}", join(problems), path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Every problem found, in the order of the file.
        problems: Vec<Problem>,
    },
}

fn join(problems: &[Problem]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
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
    datagrams: Vec<DatagramListener>,
    udp_address: Option<SocketAddr>,
    tcp: Option<Tcp>,
    /// File of the Unix socket, to be removed at the end.
    unix_file: Option<PathBuf>,
    expiry: Option<Expiry>,
    mapping_file: Option<PathBuf>,
    loads: AtomicU64,
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

struct Tcp {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Pipeline {
    /// Loads the mapping, opens the listeners and begins to receive. With TCP it must be called within a tokio runtime.
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
        let metrics = Metrics::default();
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
        let mut pipeline = Self {
            shared,
            datagrams: Vec::new(),
            udp_address: None,
            tcp: None,
            unix_file: None,
            expiry: None,
            mapping_file: config.mapping_file.clone(),
            loads: AtomicU64::new(0),
            self_metrics: config.self_metrics,
            build: config.build.clone(),
        };
        // From here on dropping the pipeline stops what was started.
        pipeline.listen(&config)?;
        if !clock.is_manual() {
            let shared = Arc::clone(&pipeline.shared);
            pipeline.expiry = Some(Expiry::start(shared, signal).map_err(StartError::Thread)?);
        }
        Ok(pipeline)
    }

    fn listen(&mut self, config: &PipelineConfig) -> Result<(), StartError> {
        let failed = |listener: Listener, address: &dyn ToString| {
            let (listener, address) = (listener.as_str(), address.to_string());
            move |source| StartError::Listen { listener, address, source }
        };
        if let Some(mut address) = config.udp {
            let (buffer, several) = (config.read_buffer, config.udp_sockets > 1);
            for number in 0..config.udp_sockets.max(1) {
                let socket = net::bind_udp(address, buffer, several)
                    .map_err(failed(Listener::Udp, &address))?;
                // With port 0 the first socket decides for the others.
                let bound = socket.local_addr().ok().and_then(|bound| bound.as_socket());
                address = bound.unwrap_or(address);
                self.udp_address = Some(address);
                let open = Box::new(move || net::bind_udp(address, buffer, several));
                self.datagrams.push(
                    DatagramListener::start(&self.shared, Listener::Udp, number, socket, open)
                        .map_err(StartError::Thread)?,
                );
            }
        }
        if let Some(address) = config.tcp {
            self.tcp =
                Some(Tcp::start(&self.shared, address).map_err(failed(Listener::Tcp, &address))?);
        }
        if let Some(name) = &config.unixgram {
            self.listen_unix(name, config).map_err(failed(Listener::Unixgram, name))?;
        }
        Ok(())
    }

    fn listen_unix(&mut self, name: &str, config: &PipelineConfig) -> io::Result<()> {
        let file = (!name.starts_with('@')).then(|| PathBuf::from(name));
        let (buffer, mode) = (config.read_buffer, config.unixgram_mode);
        let (path, name) = (file.clone(), name.to_owned());
        let open = move || {
            let socket = net::bind_unixgram(&name, buffer)?;
            if let (Some(path), Some(mode)) = (&path, mode) {
                set_mode(path, mode)?;
            }
            Ok(socket)
        };
        let socket = open()?;
        self.unix_file.clone_from(&file);
        let reopen = move || {
            if let Some(file) = &file {
                // The file of our own old socket; a new one cannot be bound while it is there.
                let _ = std::fs::remove_file(file);
            }
            open()
        };
        self.datagrams.push(DatagramListener::start(
            &self.shared,
            Listener::Unixgram,
            0,
            socket,
            Box::new(reopen),
        )?);
        Ok(())
    }

    /// The UDP address in use, with the real port where 0 was asked for.
    #[must_use]
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.udp_address
    }

    /// The TCP address in use, with the real port where 0 was asked for.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|tcp| tcp.address)
    }

    /// Reads the mapping file again and swaps the mapping for every line received from now on. Existing series keep
    /// their help, buckets and quantiles; a series that maps elsewhere now gets no more events and ends with its time
    /// to live. Returns the number of rules.
    ///
    /// # Errors
    /// What is wrong with the file; the mapping in use stays.
    pub fn reload(&self) -> Result<usize, ReloadError> {
        let Some(path) = &self.mapping_file else {
            return Err(ReloadError::NoFile);
        };
        let metrics = &self.shared.metrics;
        let mapper = load(path).inspect_err(|_| bump(&metrics.reloads_failed))?;
        let rules = mapper.rules().len();
        let generation = self.loads.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.mapping.store(Arc::new(Loaded { mapper, generation }));
        metrics.loaded_mappings.store(rules as u64, Ordering::Relaxed);
        bump(&metrics.reloads_ok);
        Ok(rules)
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
            kernel_drops: self.datagrams.iter().map(DatagramListener::kernel_drops).collect(),
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
    /// Series can be scraped still.
    pub async fn shutdown(&self) {
        if let Some(tcp) = &self.tcp {
            tcp.shutdown().await;
        }
        self.stop_threads();
    }

    fn stop_threads(&self) {
        for listener in &self.datagrams {
            listener.shutdown();
        }
        if let Some(relay) = &self.shared.relay {
            relay.shutdown();
        }
        if let Some(expiry) = &self.expiry {
            expiry.shutdown();
        }
        if let Some(file) = &self.unix_file
            && let Err(error) = std::fs::remove_file(file)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %file.display(), %error, "the socket file stays behind");
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if let Some(tcp) = &self.tcp {
            tcp.stop.send_replace(true);
        }
        self.stop_threads();
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o777))
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

impl Tcp {
    fn start(shared: &Arc<Shared>, address: SocketAddr) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| io::Error::other(format!("TCP needs a tokio runtime: {error}")))?;
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = watch::channel(false);
        let task = runtime.spawn(tcp::run(Arc::clone(shared), listener, stopped));
        Ok(Self { address, stop, task: Mutex::new(Some(task)) })
    }

    async fn shutdown(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the TCP listener failed");
        }
    }
}

/// Wakes the expiry thread.
#[derive(Debug, Default)]
struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    woken: bool,
    stopping: bool,
}

impl Signal {
    fn set(&self, change: impl FnOnce(&mut SignalState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wake(&self) {
        self.set(|state| state.woken = true);
    }

    /// Waits until woken or for `timeout`; returns whether to stop.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut SignalState| !state.woken && !state.stopping;
        let mut state = match timeout {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(state, timeout, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.woken = false;
        state.stopping
    }
}

/// The thread that removes expired series. It sleeps while nothing can expire.
struct Expiry {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Expiry {
    fn start(shared: Arc<Shared>, signal: Arc<Signal>) -> io::Result<Self> {
        let mine = Arc::clone(&signal);
        let thread =
            std::thread::Builder::new().name("statsd-expiry".to_owned()).spawn(move || {
                loop {
                    let timeout = shared.registry.next_expiry().map(|second| {
                        let due = u64::from(second) * u64::from(TICKS_PER_SECOND) * TICK_NANOS;
                        Duration::from_nanos(
                            due.saturating_sub(shared.registry.clock.now().nanos()),
                        )
                    });
                    if mine.wait(timeout) {
                        return;
                    }
                    shared.registry.expire();
                }
            })?;
        Ok(Self { signal, thread: Mutex::new(Some(thread)) })
    }

    fn shutdown(&self) {
        self.signal.set(|state| state.stopping = true);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the expiry thread panicked");
        }
    }
}
