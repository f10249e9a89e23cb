//! The configuration of a pipeline and the errors of its start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::exposition::budget::Budget;
use crate::exposition::family::Collect;
use crate::mapper::Mapper;
use crate::pods::PodIndex;
use crate::statsd::clock::Clock;
use crate::statsd::datagram_senders::DatagramSenders;
use crate::statsd::ingest::{LoadedMapping, Shared};
use crate::statsd::line::ParserFlags;
use crate::statsd::mapping::MappingError;
use crate::statsd::metrics::Metrics;
use crate::statsd::relay::RelayConfig;
use crate::statsd::series::registry::{Registry, Reserved};

/// The configuration of a pipeline.
#[derive(Clone)]
pub struct PipelineConfig {
    /// The UDP address; `None` for no UDP.
    pub udp: Option<SocketAddr>,
    /// The number of UDP sockets, each with a thread, that share the address with `SO_REUSEPORT`. The kernel
    /// distributes senders among them. 0 means 1. With one socket, lines take effect in the order in which
    /// they reach the host; with more there is no order between sockets.
    pub udp_sockets: usize,
    /// The TCP address; `None` for no TCP.
    pub tcp: Option<SocketAddr>,
    /// The time after which an idle TCP connection is closed; `None` for never.
    pub tcp_idle: Option<Duration>,
    /// The path of a Unix datagram socket, or `@` and an abstract name.
    pub unixgram: Option<String>,
    /// The mode of the socket file; `None` leaves it to the umask.
    pub unixgram_mode: Option<u32>,
    /// The receive buffer of datagram sockets in bytes. 0 requests as much as the system allows, up to 16
    /// MiB.
    pub read_buffer: usize,
    /// The mapping file, read at startup and at each reload.
    pub mapping_file: Option<PathBuf>,
    /// The optional parts of the line grammar.
    pub flags: ParserFlags,
    /// The number of keys that each receiving thread caches, at 25 to 50 bytes each. 0 disables the cache.
    pub key_cache_size: usize,
    /// The limits on series, and the action when one is exceeded.
    pub budget: Budget,
    /// True if a label with an empty value is kept, as in statsd_exporter. Prometheus treats `m{a=""}` and
    /// `m` as one series.
    pub keep_empty_labels: bool,
    /// True if OpenMetrics has `_created` samples.
    pub openmetrics_created: bool,
    /// The relay, if any.
    pub relay: Option<RelayConfig>,
    /// True if other replicas keep the same series: received lines are kept for them, and theirs are applied.
    pub mirrored: bool,
    /// The pods that send lines, if lines get labels of them.
    pub pods: Option<Arc<PodIndex>>,
    /// Names that StatsD metrics may not use because they are used elsewhere in the exposition.
    pub reserved: Reserved,
    /// The own metrics to add to the users' series.
    pub self_metrics: SelfMetrics,
    /// Further families to merge into the same body. `reserved` must contain their names.
    pub additional: Option<Arc<dyn Collect>>,
    /// The clock; manual in tests.
    pub clock: Clock,
}

impl Default for PipelineConfig {
    /// No listeners and no mapping; otherwise the defaults of statsd_exporter.
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
            key_cache_size: 4 << 20,
            budget: Budget::default(),
            keep_empty_labels: true,
            openmetrics_created: false,
            relay: None,
            mirrored: false,
            pods: None,
            reserved: Arc::new(|_| false),
            self_metrics: SelfMetrics::Original,
            additional: None,
            clock: Clock::system(),
        }
    }
}

impl PipelineConfig {
    /// Returns the state that all workers share, without a relay or a mirror. `on_earlier_deadline` is called as by
    /// [`Registry::new`].
    pub(in crate::statsd) fn shared(
        &self,
        mapper: impl Into<Arc<Mapper>>,
        reserved: Reserved,
        on_earlier_deadline: Box<dyn Fn() + Send + Sync>,
    ) -> Shared {
        let Self { clock, budget, .. } = self;
        let mut registry =
            Registry::new(clock.clone(), reserved, budget.clone(), on_earlier_deadline);
        registry.keeps_empty_labels = self.keep_empty_labels;
        registry.exposes_start_times = self.openmetrics_created;
        Shared {
            registry,
            metrics: Metrics::default(),
            mapping: ArcSwap::from_pointee(LoadedMapping::new(mapper.into(), 0, None)),
            flags: self.flags,
            key_cache_size: self.key_cache_size,
            relay: None,
            mirror: None,
            pods: self.pods.clone(),
            datagram_senders: DatagramSenders::default(),
        }
    }
}

/// The reason why a pipeline did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The mapping file could not be loaded.
    #[error("error loading config: {0}")]
    Mapping(#[from] MappingError),
    /// The relay's target could not be resolved.
    #[error(
        "Unable to create relay: unable to resolve target {address}: {source} (--statsd.relay.address)"
    )]
    Relay {
        /// The target as configured.
        address: String,
        /// The error of the look-up.
        source: io::Error,
    },
    /// A listener could not be opened.
    #[error(
        "failed to start {} listener: listen {listener} {address}: bind: {source} (set by --statsd.listen-{listener})",
        protocol(listener)
    )]
    Listen {
        /// `udp`, `tcp` or `unixgram`.
        listener: &'static str,
        /// The address as configured.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn protocol(listener: &str) -> &'static str {
    match listener {
        "udp" => "UDP",
        "tcp" => "TCP",
        _ => "Unixgram",
    }
}

/// The own metrics that a pipeline adds to the users' series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfMetrics {
    /// None. They are available from `Pipeline::own_metrics`.
    None,
    /// The metrics of statsd_exporter, with its names.
    #[default]
    Original,
    /// The metrics of statsd_exporter and our own.
    All,
}

/// The reason why a reload failed. The current mapping stays in use.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// No mapping file is configured.
    #[error("no mapping file is configured")]
    NoFile,
    /// The file cannot be read or is invalid.
    #[error(transparent)]
    File(#[from] MappingError),
}
