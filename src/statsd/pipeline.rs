//! The complete StatsD pipeline: listeners, mapping, registry, relay and scrapes.
//!
//! A [`Pipeline`] is a [`Source`]: it exposes the users' series and, if configured, metrics about itself.
//! HTTP, flags and signals are handled elsewhere.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use super::explain;
use super::ingest::{LoadedMapping, Shared, Worker};
use super::mapping;
use super::metrics::{CONFLICTS, Listener, OwnSelection, bump, is_own_name};
use super::mirror::Mirror;
use super::receive::receiver::Receiver;
use super::relay::Relay;
use super::scrape::Scrape;
use super::series::registry::{NameChanges, Reserved};
use super::series_snapshot;
use crate::exposition::family::{Collect, Family};
use crate::exposition::typed::TypedBody;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::mapper::Mapper;
use crate::status::{Explanation, LineQuestion};
use crate::telemetry::countable::{Countable, Snapshot};
use crate::util::lock::Lock;

pub(super) mod config;
mod facts;
#[cfg(test)]
mod tests;
mod threads;

pub use config::{PipelineConfig, ReloadError, SelfMetrics, StartError};
use threads::{Expiry, Threads, wake};

/// A running StatsD pipeline.
pub struct Pipeline {
    shared: Arc<Shared>,
    threads: Arc<Threads>,
    unix_path: Option<String>,
    mapping_file: Option<PathBuf>,
    /// The number of successful reloads. Locked during a reload, so that each reads the file after the one before.
    reloads: Lock<u64>,
    self_metrics: SelfMetrics,
    additional: Option<Arc<dyn Collect>>,
    /// Applies the lines of other replicas.
    peer_worker: Mutex<Worker>,
}

impl Pipeline {
    /// Loads the mapping, opens the listeners and starts receiving.
    ///
    /// # Errors
    /// Returns the first failed step: mapping, relay, UDP, TCP or Unix listener. Nothing keeps running then.
    pub fn start(config: PipelineConfig) -> Result<Self, StartError> {
        let mapper = match &config.mapping_file {
            Some(path) => mapping::load_and_warn(path)?,
            None => Mapper::default(),
        };
        let relay = config.relay.as_ref().map(|relay| {
            Relay::start(relay)
                .map_err(|source| StartError::Relay { address: relay.address.clone(), source })
        });
        let relay = relay.transpose()?;
        Self::start_with(config, mapper, relay)
    }

    /// Does the same with a mapping and a relay.
    fn start_with(
        config: PipelineConfig,
        mapper: Mapper,
        relay: Option<Relay>,
    ) -> Result<Self, StartError> {
        let (waker, wakeups) = sync_channel(1);
        if let Some(pods) = &config.pods {
            let waker = waker.clone();
            pods.on_end(move || wake(&waker));
        }
        let on_earlier_deadline = waker.clone();
        let rules = mapper.rules().len();
        let reserved = with_own_names(Arc::clone(&config.reserved));
        let mut shared =
            config.shared(mapper, reserved, Box::new(move || wake(&on_earlier_deadline)));
        shared.metrics.mapping_loaded(rules);
        shared.relay = relay;
        shared.mirror = config.mirrored.then(|| Mirror::new(config.pods.is_some()));
        let shared = Arc::new(shared);
        // From here on, dropping `threads` stops what was started.
        let mut threads = Threads {
            shared: Arc::clone(&shared),
            udp: None,
            tcp: None,
            receivers: Vec::new(),
            unix_file: None,
            expiry: None,
        };
        threads.listen(&config)?;
        if !config.clock.is_manual() {
            let expiry = Expiry::start(Arc::clone(&shared), waker, wakeups);
            threads.expiry = Some(expiry.map_err(StartError::Thread)?);
        }
        Ok(Self {
            peer_worker: Mutex::new(Worker::new(&shared, Listener::Peer)),
            shared,
            threads: Arc::new(threads),
            unix_path: config.unixgram,
            mapping_file: config.mapping_file.clone(),
            reloads: Lock::default(),
            self_metrics: config.self_metrics,
            additional: config.additional,
        })
    }

    /// Replaces [`PipelineConfig::reserved`]. Families with a reserved name are hidden but still updated, and
    /// shown again when the name is free.
    pub fn reserve(&self, reserved: Reserved) {
        let NameChanges { hidden, shown } = self.shared.registry.reserve(with_own_names(reserved));
        if !hidden.is_empty() {
            tracing::warn!(
                metrics = ?hidden,
                "StatsD metrics are hidden: the new configuration gives their names to other metrics"
            );
        }
        if !shown.is_empty() {
            tracing::info!(metrics = ?shown, "StatsD metrics are shown again: their names are free");
        }
    }

    /// Returns the UDP address in use, with the actual port if 0 was configured.
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.threads.udp
    }

    /// Returns the TCP address in use, with the actual port if 0 was configured.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.threads.tcp
    }

    /// Reloads the mapping file and uses it for all lines received from now on. Existing series keep their
    /// help, buckets and quantiles. A series that is no longer the target of a mapping gets no more events
    /// and expires. Concurrent calls run one after the other, each with the current content of the file.
    /// Returns the number of rules.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is invalid. The current mapping stays in use.
    pub fn reload(&self) -> Result<usize, ReloadError> {
        let Some(path) = &self.mapping_file else {
            return Err(ReloadError::NoFile);
        };
        let metrics = &self.shared.metrics;
        let mut generation = self.reloads.lock();
        let mapper = mapping::load_and_warn(path).inspect_err(|error| {
            metrics.mapping_failed(&error.first());
            bump(&metrics.reloads_failed);
        })?;
        *generation += 1;
        let rules = mapper.rules().len();
        let before = self.shared.mapping.load_full();
        let loaded = LoadedMapping::new(Arc::new(mapper), *generation, Some(&before));
        metrics.examples.clear_names(*generation);
        self.shared.mapping.store(Arc::new(loaded));
        metrics.mapping_loaded(rules);
        bump(&metrics.reloads_ok);
        Ok(rules)
    }

    /// Returns the received lines for other replicas, if they are kept.
    pub(crate) fn mirror(&self) -> Option<&Mirror> {
        self.shared.mirror.as_ref()
    }

    /// Returns true if lines get labels of their sender.
    pub(crate) fn resolves_senders(&self) -> bool {
        self.shared.pods.is_some()
    }

    /// Applies lines that another replica received, each followed by a line feed, and with its sender if `has_senders`. They
    /// are not relayed.
    pub(crate) fn apply_mirrored(&self, text: &[u8], has_senders: bool) {
        let mut worker = self.peer_worker.lock().unwrap_or_else(|poisoned| {
            self.peer_worker.clear_poison();
            let mut worker = poisoned.into_inner();
            worker.recover();
            worker
        });
        worker.begin();
        match text.strip_suffix(b"\n") {
            Some(lines) if has_senders => worker.lines_with_senders(lines),
            Some(lines) => {
                worker.set_sender(None);
                worker.lines(lines);
            }
            None => {}
        }
        worker.end();
    }

    /// Advances a manual clock and removes expired series.
    pub fn advance(&self, by: Duration) {
        self.shared.registry.clock.advance(by);
        self.shared.registry.expire();
        self.shared.end_senders();
    }

    /// Returns the listeners by name; true if the listener is open.
    pub fn listeners(&self) -> Vec<(String, bool)> {
        let sockets: Vec<_> = self.threads.receivers.iter().flat_map(Receiver::sockets).collect();
        let datagrams = sockets.iter().map(|socket| {
            let listener = socket.listener.as_str();
            let several =
                socket.listener == Listener::Udp && sockets.iter().any(|one| one.socket > 0);
            let name =
                if several { format!("{listener}-{}", socket.socket) } else { listener.to_owned() };
            (name, socket.receive_buffer.is_some())
        });
        let tcp = self.threads.tcp.map(|_| (Listener::Tcp.as_str().to_owned(), true));
        datagrams.chain(tcp).collect()
    }

    /// Returns the number of lines processed, of one listener or of all. A line counts once its effect is
    /// visible to scrapes.
    pub fn lines(&self, listener: Option<Listener>) -> u64 {
        self.shared.metrics.lines(listener)
    }

    /// Returns the number of live series.
    pub fn series(&self) -> u64 {
        let live = &self.shared.registry.counts.live;
        live.iter().map(|live| live.load(Ordering::Relaxed)).sum()
    }

    /// Returns a collector of the pipeline's own metrics: those of statsd_exporter, ours, or both.
    pub(crate) fn own_metrics(self: &Arc<Self>, which: SelfMetrics) -> impl Collect + use<> {
        OwnMetrics { pipeline: Arc::clone(self), which }
    }

    /// Explains the effect that a line would have now, without applying it.
    pub(crate) fn explain(&self, question: &LineQuestion) -> Explanation {
        let Shared { mapping, flags, registry, pods, .. } = &*self.shared;
        explain::explain(&mapping.load_full(), *flags, Some(registry), pods.as_deref(), question)
    }

    fn own_families(&self, selection: OwnSelection<'_>) -> Vec<Family> {
        let pages = self.shared.registry.view().pages;
        let file = self.mapping_file.as_deref().map(Path::to_string_lossy);
        let sockets = self.threads.receivers.iter().flat_map(Receiver::sockets).collect();
        self.shared.own_families(&pages, sockets, file.as_deref(), selection)
    }

    fn scrape(&self, query: &ScrapeQuery) -> Scrape {
        let registry = &self.shared.registry;
        registry.clock.follow_wall_clock();
        // Own metrics are read first, so they never count more than the series show.
        let names = query.names.as_ref();
        let (mut own, mut conflicts) = (Vec::new(), None);
        if self.self_metrics != SelfMetrics::None {
            let all = self.self_metrics == SelfMetrics::All;
            let selection = OwnSelection { all, names, omits_conflicts: true };
            own = self.own_families(selection);
            conflicts = selection.has(CONFLICTS).then(|| self.shared.metrics.conflicts.snapshot());
        }
        let additional = self.additional.iter();
        let additional = additional.filter(|of| names.is_none_or(|names| of.may_have(names)));
        additional.for_each(|families| families.collect(&mut own));
        let wanted = query.names.clone();
        Scrape::new(registry.view(), own, conflicts, wanted, registry.clock.clone())
    }

    /// Stops the listeners after they have processed what they had received, then the relay after it has sent
    /// everything. Series can still be scraped. Runs on a blocking thread, so it does not block the async
    /// runtime.
    pub async fn shutdown(&self) {
        let threads = Arc::clone(&self.threads);
        if let Err(error) = tokio::task::spawn_blocking(move || threads.stop()).await {
            tracing::error!(%error, "Cannot stop the StatsD pipeline");
        }
    }
}

impl Countable for Pipeline {
    fn snapshot(&self) -> Snapshot {
        self.shared.registry.clock.follow_wall_clock();
        series_snapshot::snapshot(&self.shared.registry)
    }
}

impl Source for Pipeline {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        Box::new(self.scrape(query).text(format, self.shared.registry.exposes_start_times))
    }

    fn typed(&self, query: &ScrapeQuery) -> Option<Box<dyn TypedBody>> {
        Some(Box::new(self.scrape(query)))
    }
}

/// Returns a predicate for `others` and the pipeline's own metric names.
fn with_own_names(others: Reserved) -> Reserved {
    Arc::new(move |name| is_own_name(name) || others(name))
}

/// Collects the own metrics of a [`Pipeline`], without the users' series.
struct OwnMetrics {
    pipeline: Arc<Pipeline>,
    which: SelfMetrics,
}

impl Collect for OwnMetrics {
    fn collect(&self, out: &mut Vec<Family>) {
        if self.which != SelfMetrics::None {
            let all = self.which == SelfMetrics::All;
            let selection = OwnSelection { all, names: None, omits_conflicts: false };
            out.extend(self.pipeline.own_families(selection));
        }
    }

    fn may_have(&self, names: &BTreeSet<String>) -> bool {
        names.iter().any(|name| is_own_name(name))
    }
}
