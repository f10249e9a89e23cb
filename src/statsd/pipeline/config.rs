//! What a pipeline is started with, and why it does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::exposition::budget::Budget;
use crate::exposition::family::Collect;
use crate::statsd::clock::Clock;
use crate::statsd::line::ParserFlags;
use crate::statsd::mapcache::CacheKind;
use crate::statsd::mapping::MappingError;
use crate::statsd::relay::RelayConfig;
use crate::statsd::series::registry::Reserved;

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
    /// How many series there may be, and what happens beyond.
    pub budget: Budget,
    /// Relay, if any.
    pub relay: Option<RelayConfig>,
    /// Names that StatsD clients may not use, because something else in the exposition has them.
    pub reserved: Reserved,
    /// Which metrics about itself the pipeline adds to the users' series.
    pub self_metrics: SelfMetrics,
    /// Families of others that stand among the users' in the same body; `reserved` has their names.
    pub beside: Option<Arc<dyn Collect>>,
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
            budget: Budget::default(),
            relay: None,
            reserved: Arc::new(|_| false),
            self_metrics: SelfMetrics::Original,
            beside: None,
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
    Mapping(#[from] MappingError),
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

/// Which metrics about itself a pipeline adds to the users' series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfMetrics {
    /// None; they are to be had from `Pipeline::about`.
    None,
    /// Those of the original, with its names.
    #[default]
    Original,
    /// Those of the original and ours.
    All,
}

/// Why a mapping was not taken up. The one in use stays.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// There is no mapping file to load.
    #[error("no mapping file is configured")]
    NoFile,
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] MappingError),
}
