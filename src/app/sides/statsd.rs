//! The StatsD side of a run: flags to a pipeline, and what can be asked of it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Health, Kind, Reread, Side, Start, Taken, Task, Trigger};
use crate::cli::config::Name;
use crate::cli::services;
use crate::cli::statsd_flags::StatsdArgs;
use crate::exposition::Source;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::family::Collect;
use crate::server::health::Check;
use crate::statsd::mapping;
use crate::statsd::{CacheKind, Pipeline, PipelineConfig, RelayConfig, SelfMetrics, StartError};
use crate::status::{Explanation, Facts, Reporter, Sample};
use crate::telemetry::Recorder;
use crate::telemetry::countable::Countable;

/// What StatsD clients send.
pub(crate) static STATSD: Kind = Kind {
    name: "StatsD",
    path: "/metrics/statsd",
    about: "what StatsD clients sent",
    protobuf: true,
    off: |config| {
        let args = config.statsd.as_ref().map(|statsd| &statsd.args);
        let listens = args.is_some_and(|args| require_listener(args).is_ok());
        (!listens).then_some("the StatsD side is off: all its listeners are")
    },
    files: |_| Vec::new(),
    // Clients choose them.
    names: |_| BTreeSet::new(),
    start: |start| Box::pin(async move { StatsdSide::start(&start) }),
};

/// A running StatsD side.
struct StatsdSide {
    pipeline: Arc<Pipeline>,
    /// Whether a mapping file is named.
    has_mapping: bool,
}

impl StatsdSide {
    fn start(Start { config, taken, beside, .. }: &Start<'_>) -> Result<Box<dyn Side>, String> {
        let args = &config.statsd.as_ref().ok_or("no StatsD side is configured")?.args;
        let self_metrics = match config.name {
            Name::StatsdExporter => SelfMetrics::Original,
            _ => {
                // Under its own name the original has done so before anything else.
                before_start(args)?;
                SelfMetrics::None
            }
        };
        let mode = match config.name {
            Name::StatsdExporter => BudgetMode::Off,
            _ => BudgetMode::Enforce,
        };
        let pipeline =
            start(args, args.budget(mode), self_metrics, Arc::clone(taken), beside.clone());
        let pipeline = pipeline.map_err(|error| error.to_string())?;
        announce(&pipeline, args);
        Ok(Box::new(Self { pipeline, has_mapping: !args.mapping_config.is_empty() }))
    }

    fn shutdown(&self) -> Task<'static, ()> {
        let pipeline = Arc::clone(&self.pipeline);
        Box::pin(async move { pipeline.shutdown().await })
    }
}

impl Side for StatsdSide {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.pipeline) as _
    }

    fn reporter(&self) -> Option<Arc<dyn Reporter>> {
        Some(Arc::new(StatsdReport(Arc::clone(&self.pipeline))))
    }

    fn series(&self) -> Option<Arc<dyn Countable>> {
        Some(Arc::clone(&self.pipeline) as _)
    }

    fn telemetry(&self, recorder: &mut Recorder) {
        recorder.add(self.pipeline.about(SelfMetrics::All));
    }

    /// Whether its listeners are open: one that fails to read is closed, and opened again after a pause.
    fn health(&self) -> Option<Health> {
        let pipeline = Arc::clone(&self.pipeline);
        let ready = move || {
            let listeners = pipeline.listeners().into_iter();
            let check = |(name, open): (String, bool)| Check {
                name: format!("statsd/{name}"),
                failure: (!open).then(|| "the socket failed and is being opened again".to_owned()),
            };
            listeners.map(check).collect()
        };
        Some(Health { ready: Arc::new(ready), live: Arc::new(Vec::new) })
    }

    fn reread(&self) -> Option<Reread> {
        let (pipeline, has_mapping) = (Arc::clone(&self.pipeline), self.has_mapping);
        Some(Arc::new(move |trigger| reload(&pipeline, has_mapping, trigger)))
    }

    /// What it has received until then is counted and relayed.
    fn at_once(&self) -> Option<Task<'static, ()>> {
        Some(self.shutdown())
    }

    fn stop(self: Box<Self>) -> Task<'static, ()> {
        self.shutdown()
    }
}

/// Tells the status page of it.
struct StatsdReport(Arc<Pipeline>);

impl Reporter for StatsdReport {
    fn report(&self, facts: &mut Facts) {
        facts.statsd = Some(self.0.facts());
        facts.files.extend(self.0.mapping());
    }

    fn sample(&self, sample: &mut Sample) {
        self.0.sample(sample);
    }

    fn series(&self) -> Option<Arc<dyn Countable>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn explain(&self, line: &[u8], all: bool) -> Option<Explanation> {
        Some(self.0.explain(line, all))
    }
}

/// Why the StatsD side does not start. The text says it all.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StatsdError(String);

/// Reads a listen address: host and numeric port; without a host every IPv4 address.
///
/// # Errors
///
/// When it is not of that form or the host has no address.
fn listen_address(protocol: &str, text: &str) -> Result<Option<SocketAddr>, StatsdError> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |reason: String| {
        let flag = format!("--statsd.listen-{}", protocol.to_lowercase());
        StatsdError(format!("invalid {protocol} listen address {text:?} ({flag}): {reason}"))
    };
    let (host, port) = split(text).ok_or_else(|| {
        invalid(format!("bad StatsD listening address: {text}, must be host:port"))
    })?;
    let port: u16 =
        port.parse().map_err(|_| invalid(format!("bad port {port}, must be from 0 to 65535")))?;
    if host.is_empty() {
        return Ok(Some((Ipv4Addr::UNSPECIFIED, port).into()));
    }
    resolve(host, port)
        .map(Some)
        .map_err(|error| invalid(format!("unable to resolve {host}: {error}")))
}

/// Host without brackets and port text.
fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inner) => Some((inner.strip_suffix(']')?, port)),
        None if host.contains([':', ']']) => None,
        None => Some((host, port)),
    }
}

fn resolve(host: &str, port: u16) -> std::io::Result<SocketAddr> {
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen.copied().ok_or_else(|| std::io::Error::other("no such host"))
}

/// The mode of the socket file: octal, of which the permission bits count. Text that is no octal number
/// leaves what the umask gives.
fn socket_mode(text: &str) -> Option<u32> {
    if text.is_empty() {
        return Some(0);
    }
    let mode = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| u64::from_str_radix(text, 8));
    match mode {
        Some(Ok(mode)) => Some((mode & 0o777) as u32),
        _ => {
            tracing::warn!(mode = text, "Bad socket mode, ignoring (--statsd.unixsocket-mode)");
            None
        }
    }
}

/// What `--debug.dump-fsm` and `--check-config` ask for before anything listens. Returns whether that
/// was all.
///
/// # Errors
///
/// When the mapping file cannot be used.
pub(crate) fn before_start(args: &StatsdArgs) -> Result<bool, String> {
    if args.mapping_config.is_empty() {
        if args.check_config {
            tracing::info!("Configuration check successful, exiting");
        }
        return Ok(args.check_config);
    }
    if args.dump_fsm.is_empty() && !args.check_config {
        return Ok(false);
    }
    let mapper = mapping::load_and_warn(Path::new(&args.mapping_config))
        .map_err(|error| format!("error loading config: {error}"))?;
    if !args.dump_fsm.is_empty() {
        match std::fs::write(&args.dump_fsm, mapper.dump_dot()) {
            Ok(()) => tracing::info!(path = args.dump_fsm, "Wrote the matching automaton"),
            Err(error) => tracing::error!(path = args.dump_fsm, %error, "error dumping FSM"),
        }
    }
    if args.check_config {
        tracing::info!("Configuration check successful, exiting");
    }
    Ok(args.check_config)
}

/// Starts the pipeline. `reserved` tells the names that the rest of the exposition has, `beside` is what stands among its
/// families.
///
/// # Errors
///
/// The first listener, file or target that cannot be used.
fn start(
    args: &StatsdArgs,
    budget: Budget,
    self_metrics: SelfMetrics,
    reserved: Taken,
    beside: Option<Arc<dyn Collect>>,
) -> Result<Arc<Pipeline>, StatsdError> {
    let udp = listen_address("UDP", &args.listen_udp)?;
    let tcp = listen_address("TCP", &args.listen_tcp)?;
    let unixgram = Some(args.listen_unixgram.clone()).filter(|path| !path.is_empty());
    if let Some(path) = unixgram.as_deref().filter(|path| !path.starts_with('@'))
        && Path::new(path).symlink_metadata().is_ok()
    {
        return Err(StatsdError(format!(
            "Unixgram socket already exists: {path} (--statsd.listen-unixgram); remove it if no \
             process uses it"
        )));
    }
    let sockets = usize::try_from(args.udp_sockets).unwrap_or(1);
    if let Some(address) = udp.filter(|address| sockets > 1 && address.port() != 0) {
        // Sockets that share an address would share it with another exporter too, and each would see a
        // part of the lines. A socket that does not share finds out whether somebody is there.
        drop(UdpSocket::bind(address).map_err(|source| listen_error("udp", address, &source))?);
    }
    let relay = Some(&args.relay_address).filter(|address| !address.is_empty());
    let config = PipelineConfig {
        udp,
        udp_sockets: sockets,
        tcp,
        tcp_idle: duration(args.tcp_idle_timeout),
        unixgram_mode: unixgram.as_ref().and_then(|_| socket_mode(&args.unixsocket_mode)),
        unixgram,
        read_buffer: usize::try_from(args.read_buffer).unwrap_or(0),
        mapping_file: Some(PathBuf::from(&args.mapping_config))
            .filter(|path| !path.as_os_str().is_empty()),
        flags: args.parser_flags(),
        cache_size: usize::try_from(args.cache_size).unwrap_or(0),
        event_flush: (
            u64::try_from(args.event_flush_threshold).unwrap_or(0),
            duration(args.event_flush_interval).unwrap_or(Duration::MAX),
        ),
        cache_kind: if args.cache_type == "random" { CacheKind::Random } else { CacheKind::Lru },
        relay: relay.map(|address| RelayConfig {
            address: address.clone(),
            target: relay_target(address),
            packet_length: usize::try_from(args.relay_packet_length).unwrap_or(usize::MAX),
        }),
        budget,
        reserved,
        self_metrics,
        beside,
        ..PipelineConfig::default()
    };
    let pipeline = Pipeline::start(config).map_err(|error| match error {
        StartError::Mapping(error) => StatsdError(format!("error loading config: {error}")),
        StartError::Relay { address, source } => StatsdError(format!(
            "Unable to create relay: unable to resolve target {address}: {source} \
             (--statsd.relay.address)"
        )),
        StartError::Listen { listener, address, source } => {
            listen_error(listener, address, &source)
        }
        other => StatsdError(other.to_string()),
    })?;
    Ok(Arc::new(pipeline))
}

/// A flag's nanoseconds; 0 is none.
fn duration(nanos: i64) -> Option<Duration> {
    u64::try_from(nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)
}

/// What is looked up for an address: without a port it is port 0, which can be looked up, though never sent to.
fn relay_target(address: &str) -> String {
    match address.strip_suffix(':') {
        Some(host) if !host.is_empty() => format!("{host}:0"),
        _ => services::numeric(address, "udp").into_owned(),
    }
}

fn listen_error(
    listener: &str,
    address: impl std::fmt::Display,
    source: &std::io::Error,
) -> StatsdError {
    let protocol = match listener {
        "udp" => "UDP",
        "tcp" => "TCP",
        _ => "Unixgram",
    };
    StatsdError(format!(
        "failed to start {protocol} listener: listen {listener} {address}: bind: {source} (set by \
         --statsd.listen-{listener})"
    ))
}

/// At least one listener has to be on.
///
/// # Errors
///
/// When all are off.
pub(crate) fn require_listener(args: &StatsdArgs) -> Result<(), StatsdError> {
    let addresses = [&args.listen_udp, &args.listen_tcp, &args.listen_unixgram];
    if addresses.iter().any(|address| !address.is_empty()) {
        return Ok(());
    }
    Err(StatsdError(
        "At least one of UDP/TCP/Unixgram listeners must be specified (--statsd.listen-udp, \
         --statsd.listen-tcp, --statsd.listen-unixgram)."
            .to_owned(),
    ))
}

/// Says where lines are taken.
fn announce(pipeline: &Pipeline, args: &StatsdArgs) {
    let text = |address: Option<SocketAddr>| address.map_or(String::new(), |a| a.to_string());
    tracing::info!(
        udp = text(pipeline.udp_address()),
        tcp = text(pipeline.tcp_address()),
        unixgram = args.listen_unixgram,
        "Accepting StatsD Traffic"
    );
}

/// Reads the mapping file again.
fn reload(pipeline: &Pipeline, has_file: bool, trigger: Trigger) {
    let (what, signal) = match trigger {
        Trigger::Hangup => ("signal", Some("hangup")),
        Trigger::Request => ("lifecycle api reload", None),
    };
    if !has_file {
        tracing::warn!(signal, "Received {what} but no mapping config to reload");
        return;
    }
    tracing::info!(signal, "Received {what}, attempting reload");
    match pipeline.reload() {
        Ok(rules) => tracing::info!(rules, "Config reloaded successfully"),
        Err(error) => {
            tracing::error!(%error, "Error reloading config, the old one stays in force");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses() {
        let read = |text: &str| listen_address("UDP", text).map_err(|error| error.to_string());
        assert_eq!(read(""), Ok(None));
        assert_eq!(read(":9125"), Ok(Some(([0, 0, 0, 0], 9125).into())));
        assert_eq!(read("[127.0.0.1]:0"), Ok(Some(([127, 0, 0, 1], 0).into())));
        assert!(read("[::1]:1").is_ok_and(|address| address.is_some_and(|a| a.is_ipv6())));
        for (text, part) in [
            ("foo", "bad StatsD listening address: foo"),
            ("[::1", "bad StatsD listening address: [::1"),
            ("::1:1", "bad StatsD listening address"),
            ("127.0.0.1:abc", "bad port abc"),
            ("127.0.0.1:65536", "bad port 65536"),
            ("127.0.0.1:-1", "bad port -1"),
            ("127.0.0.1:", "bad port "),
            ("127.0.0.1:http", "bad port http"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(part) && error.contains("--statsd.listen-udp"), "{error}");
        }
    }

    #[test]
    fn relay_targets() {
        for (address, target) in [
            ("h:8125", "h:8125"),
            ("127.0.0.1:", "127.0.0.1:0"),
            ("127.0.0.1:domain", "127.0.0.1:53"),
            (":8125", ":8125"),
            ("h", "h"),
        ] {
            assert_eq!(relay_target(address), target);
        }
    }

    #[test]
    fn socket_modes() {
        for (text, mode) in [
            ("755", Some(0o755)),
            ("0770", Some(0o770)),
            ("", Some(0)),
            ("1777", Some(0o777)),
            ("77777", Some(0o777)),
            ("abc", None),
            ("9", None),
            ("-1", None),
            ("0o755", None),
        ] {
            assert_eq!(socket_mode(text), mode, "{text}");
        }
    }

    #[test]
    fn something_must_listen() {
        let mut args = StatsdArgs { listen_udp: String::new(), ..StatsdArgs::default() };
        assert!(require_listener(&args).is_ok());
        args.listen_tcp = String::new();
        assert!(require_listener(&args).is_err());
        args.listen_unixgram = "@x".into();
        assert!(require_listener(&args).is_ok());
    }
}
