//! The StatsD side: builds a pipeline from the flags.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::{Features, ReloadTrigger, Side, SideKind, StartContext, Task};
use crate::cli::config::Name;
use crate::cli::services;
use crate::cli::statsd_flags::StatsdArgs;
use crate::config_file::reader;
use crate::exposition::budget::BudgetMode;
use crate::go::strconv;
use crate::server::health::{Check, Checks};
use crate::server::listen::resolve;
use crate::statsd::mapping;
use crate::statsd::{Pipeline, PipelineConfig, RelayConfig, SelfMetrics, StartError};
use crate::status::{Explanation, Facts, LineQuestion, Reporter, Sample};
use crate::telemetry::Recorder;
use crate::telemetry::countable::Countable;
use crate::tools::CommandError;
use crate::util::serial_blocking::SharedRuns;

/// Metrics of StatsD clients.
pub(crate) static STATSD: SideKind = SideKind {
    name: "StatsD",
    path: "/metrics/statsd",
    description: "metrics sent over StatsD",
    protobuf: true,
    disabled_reason: |config| {
        let listens = config.statsd.as_ref().is_some_and(StatsdArgs::listens);
        (!listens).then_some("The StatsD side is disabled: it has no listeners")
    },
    files: |_| Vec::new(),
    // Clients choose the names.
    names: |_| BTreeSet::new(),
    start: |start| Box::pin(async move { StatsdSide::start(&start) }),
};

/// A running StatsD side.
struct StatsdSide {
    pipeline: Arc<Pipeline>,
    /// The mapping file, if configured.
    mapping: Option<PathBuf>,
    /// Changes when an unresponsive file answers.
    late_answers: watch::Receiver<u64>,
    /// The reloads of the mapping file.
    reloads: SharedRuns,
}

impl StatsdSide {
    fn start(
        StartContext { config, names, pods, merged_metrics, .. }: &StartContext<'_>,
    ) -> Result<Box<dyn Side>, CommandError> {
        let args = config.statsd.as_ref().ok_or("no StatsD side is configured")?;
        let (self_metrics, mode) = match config.name {
            Name::StatsdExporter => (SelfMetrics::Original, BudgetMode::Off),
            _ => {
                // statsd_exporter has done this before the run loop.
                run_checks(args)?;
                (SelfMetrics::None, BudgetMode::Enforce)
            }
        };
        let taken = names.of_others(STATSD.name);
        let shape = PipelineConfig {
            budget: args.budget(mode),
            self_metrics,
            reserved: taken,
            additional: merged_metrics.clone(),
            mirrored: config.standby.is_some(),
            pods: pods.cloned(),
            // statsd_exporter keeps empty labels.
            keep_empty_labels: self_metrics == SelfMetrics::Original,
            ..PipelineConfig::default()
        };
        let pipeline = start(args, shape)?;
        let pipeline_ref = Arc::downgrade(&pipeline);
        names.subscribe(STATSD.name, move |taken| {
            if let Some(pipeline) = pipeline_ref.upgrade() {
                pipeline.reserve(taken);
            }
        });
        log_addresses(&pipeline, args);
        let mapping = Some(&args.mapping_config).filter(|path| !path.is_empty());
        Ok(Box::new(Self {
            pipeline,
            mapping: mapping.map(PathBuf::from),
            late_answers: reader::late(),
            reloads: SharedRuns::default(),
        }))
    }

    fn shutdown(&self) -> Task<'static, ()> {
        let pipeline = Arc::clone(&self.pipeline);
        Box::pin(async move { pipeline.shutdown().await })
    }
}

impl Side for StatsdSide {
    fn features(&self) -> Features {
        let pipeline = &self.pipeline;
        let mut telemetry = Recorder::default();
        telemetry.add(pipeline.own_metrics(SelfMetrics::All));
        let listening = Arc::clone(pipeline);
        let ready = move || {
            let listeners = listening.listeners().into_iter();
            let check = |(name, open): (String, bool)| Check {
                name: format!("statsd/{name}"),
                failure: (!open).then(|| "the socket failed and is being reopened".to_owned()),
            };
            listeners.map(check).collect()
        };
        let (reloading, reloads) = (Arc::clone(pipeline), self.reloads.clone());
        let has_mapping = self.mapping.is_some();
        Features {
            source: Arc::clone(pipeline) as _,
            first_sync: None,
            series: Some(Arc::clone(pipeline) as _),
            telemetry,
            ready: None,
            liveness: None,
            reporter: Arc::new(StatsdReporter(Arc::clone(pipeline))),
            health: Checks { ready: vec![Arc::new(ready)], ..Checks::default() },
            lines: Some(Arc::clone(pipeline)),
            reviews: None,
            file_reload: Some(Arc::new(move |trigger| {
                let (pipeline, reloads) = (Arc::clone(&reloading), reloads.clone());
                Box::pin(async move {
                    if announce(has_mapping, trigger) {
                        load(pipeline, &reloads).await;
                    }
                })
            })),
            abort: Some(self.shutdown()),
        }
    }

    /// Loads a mapping file that did not answer during a reload.
    fn next_event(&mut self) -> Task<'_, ()> {
        Box::pin(async move {
            while self.late_answers.changed().await.is_ok() {
                let Some(_) = self.mapping.as_deref().filter(|path| reader::has_new(path)) else {
                    continue;
                };
                let (pipeline, reloads) = (Arc::clone(&self.pipeline), self.reloads.clone());
                tokio::spawn(async move { load(pipeline, &reloads).await });
            }
            std::future::pending().await
        })
    }

    /// Counts and relays all lines received so far.
    fn stop(self: Box<Self>) -> Task<'static, ()> {
        self.shutdown()
    }
}

/// The StatsD side's data on the status page.
struct StatsdReporter(Arc<Pipeline>);

impl Reporter for StatsdReporter {
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

    fn explain(&self, question: &LineQuestion) -> Option<Explanation> {
        Some(self.0.explain(question))
    }
}

/// Parses a listen address: host and numeric port. Without a host it is every IPv4 address.
///
/// # Errors
///
/// Returns an error if the format is invalid or the host has no address.
fn listen_address(protocol: &str, text: &str) -> Result<Option<SocketAddr>, CommandError> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |reason: String| {
        let flag = format!("--statsd.listen-{}", protocol.to_lowercase());
        format!("invalid {protocol} listen address {text:?} ({flag}): {reason}")
    };
    let (host, port) = split(text).ok_or_else(|| {
        invalid(format!("bad StatsD listening address: {text}, must be host:port"))
    })?;
    let port: u16 =
        port.parse().map_err(|_| invalid(format!("bad port {port}, must be from 0 to 65535")))?;
    if host.is_empty() {
        return Ok(Some((Ipv4Addr::UNSPECIFIED, port).into()));
    }
    match resolve(host, port) {
        Ok(address) => Ok(Some(address)),
        Err(error) => Err(invalid(format!("unable to resolve {host}: {error}")).into()),
    }
}

/// Splits an address into host, without brackets, and port.
fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inner) => Some((inner.strip_suffix(']')?, port)),
        None if host.contains([':', ']']) => None,
        None => Some((host, port)),
    }
}

/// Parses the octal mode of the socket file and masks it to the permission bits. Returns `None` for invalid text, which
/// leaves the mode to the umask.
fn parse_socket_mode(text: &str) -> Option<u32> {
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

/// Performs `--debug.dump-fsm` and `--check-config`. Returns true if the program should exit afterwards.
///
/// # Errors
///
/// Returns an error if the mapping file cannot be used.
pub(crate) fn run_checks(args: &StatsdArgs) -> Result<bool, CommandError> {
    if !args.mapping_config.is_empty() && (!args.dump_fsm.is_empty() || args.check_config) {
        let mapper = mapping::load_and_warn(Path::new(&args.mapping_config))
            .map_err(|error| format!("error loading config: {error}"))?;
        if !args.dump_fsm.is_empty() {
            match std::fs::write(&args.dump_fsm, mapper.dump_dot()) {
                Ok(()) => tracing::info!(path = args.dump_fsm, "Wrote the matching automaton"),
                Err(error) => tracing::error!(path = args.dump_fsm, %error, "error dumping FSM"),
            }
        }
    }
    if args.check_config {
        tracing::info!("Configuration check successful, exiting");
    }
    Ok(args.check_config)
}

/// Starts the pipeline. `shape` has the settings that do not depend on the flags.
///
/// # Errors
///
/// Returns an error for the first listener, file or relay target that cannot be used.
fn start(args: &StatsdArgs, shape: PipelineConfig) -> Result<Arc<Pipeline>, CommandError> {
    let udp = listen_address("UDP", &args.listen_udp)?;
    let tcp = listen_address("TCP", &args.listen_tcp)?;
    let unixgram = Some(args.listen_unixgram.clone()).filter(|path| !path.is_empty());
    if let Some(path) = unixgram.as_deref().filter(|path| !path.starts_with('@'))
        && Path::new(path).symlink_metadata().is_ok()
        && !removes_unused_socket(Path::new(path))
    {
        let text = format!(
            "Unixgram socket already exists: {path} (--statsd.listen-unixgram); remove it if no \
             process uses it"
        );
        return Err(text.into());
    }
    let sockets = usize::try_from(args.udp_sockets).unwrap_or(1);
    if let Some(address) = udp.filter(|address| sockets > 1 && address.port() != 0) {
        // A shared address could also be shared with another exporter, and each would receive a part of the lines.
        // Binding without sharing detects that.
        let failed =
            |source| StartError::Listen { listener: "udp", address: address.to_string(), source };
        drop(UdpSocket::bind(address).map_err(failed)?);
    }
    let relay = Some(&args.relay_address).filter(|address| !address.is_empty());
    let config = PipelineConfig {
        udp,
        udp_sockets: sockets,
        tcp,
        tcp_idle: strconv::positive_duration(args.tcp_idle_timeout),
        unixgram_mode: unixgram.as_ref().and_then(|_| parse_socket_mode(&args.unixsocket_mode)),
        unixgram,
        read_buffer: usize::try_from(args.read_buffer).unwrap_or(0),
        mapping_file: Some(PathBuf::from(&args.mapping_config))
            .filter(|path| !path.as_os_str().is_empty()),
        flags: args.parser_flags(),
        relay: relay.map(|address| RelayConfig {
            address: address.clone(),
            target: relay_target(address),
            packet_length: usize::try_from(args.relay_packet_length).unwrap_or(usize::MAX),
        }),
        openmetrics_created: args.openmetrics_created,
        ..shape
    };
    Ok(Arc::new(Pipeline::start(config)?))
}

/// Removes a socket that no process has bound, such as that of a killed process. Returns true if it has done so.
fn removes_unused_socket(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let connected = UnixDatagram::unbound().and_then(|probe| probe.connect(path));
    let is_unused = is_socket
        && connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        && std::fs::remove_file(path).is_ok();
    if is_unused {
        tracing::info!(file = %path.display(), "Removed a Unix socket that no process uses");
    }
    is_unused
}

/// Returns the host and numeric port to resolve. A missing port becomes 0, which resolves but cannot be sent to.
fn relay_target(address: &str) -> String {
    match address.strip_suffix(':') {
        Some(host) if !host.is_empty() => format!("{host}:0"),
        _ => services::numeric(address, "udp").into_owned(),
    }
}

/// Requires at least one listener.
///
/// # Errors
///
/// Returns an error if all listeners are disabled.
pub(crate) fn require_listener(args: &StatsdArgs) -> Result<(), CommandError> {
    if args.listens() {
        return Ok(());
    }
    Err("At least one of UDP/TCP/Unixgram listeners must be specified (--statsd.listen-udp, \
         --statsd.listen-tcp, --statsd.listen-unixgram)."
        .into())
}

/// Logs the listen addresses.
fn log_addresses(pipeline: &Pipeline, args: &StatsdArgs) {
    let text = |address: Option<SocketAddr>| address.map_or(String::new(), |a| a.to_string());
    tracing::info!(
        udp = text(pipeline.udp_address()),
        tcp = text(pipeline.tcp_address()),
        unixgram = args.listen_unixgram,
        "Accepting StatsD Traffic"
    );
}

/// Logs that a reload of the mapping file was requested. Returns whether there is one.
fn announce(has_file: bool, trigger: ReloadTrigger) -> bool {
    let (what, signal) = match trigger {
        ReloadTrigger::Sighup => ("signal", Some("hangup")),
        ReloadTrigger::LifecycleApi => ("lifecycle api reload", None),
    };
    if has_file {
        tracing::info!(signal, "Received {what}, attempting reload");
    } else {
        tracing::warn!(signal, "Received {what} but no mapping config to reload");
    }
    has_file
}

/// Loads the mapping file. Reading it may take long, which occupies one thread, however many requests wait.
async fn load(pipeline: Arc<Pipeline>, reloads: &SharedRuns) {
    let load = move || match pipeline.reload() {
        Ok(rules) => tracing::info!(rules, "Config reloaded successfully"),
        Err(error) => {
            tracing::error!(%error, "Error reloading config, keeping the previous one");
        }
    };
    if let Err(error) = reloads.run(load).await {
        tracing::error!(%error, "Error reloading config, keeping the previous one");
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
            assert_eq!(parse_socket_mode(text), mode, "{text}");
        }
    }

    #[test]
    fn at_least_one_listener_is_required() {
        let mut args = StatsdArgs { listen_udp: String::new(), ..StatsdArgs::default() };
        assert!(require_listener(&args).is_ok());
        args.listen_tcp = String::new();
        assert!(require_listener(&args).is_err());
        args.listen_unixgram = "@x".into();
        assert!(require_listener(&args).is_ok());
    }
}
