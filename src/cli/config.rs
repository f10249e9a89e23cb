//! Resolves flags to the configuration, validating everything that needs no network access.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing::Level;

pub use super::error::{ConfigError, ConfigErrors};
use super::error::{Result, named, web_problem};
use super::kube_config::kube;
pub use super::kube_config::{
    CustomResources, KubeConfig, counts_kube_events, custom_resources, watched,
};
use super::kube_flags::KubeArgs;
pub use super::load::{FilesInUse, Load, OptionsFile};
use super::native::RunArgs;
use super::node::NodeArgs;
use super::node_options;
use super::read_options::with_options_file;
pub use super::read_options::{named_files, read_options_file};
use super::selection;
pub use super::selection::{namespaces, rendering};
use super::services;
pub use super::shared::Name;
use super::shared::{LogArgs, LogStyle, Profiles};
use super::statsd_flags::StatsdArgs;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::go::strconv;
use crate::resources::custom::Config as CustomConfig;
use crate::server::connection::Limits;
use crate::server::listen::ListenAddress;
use crate::telemetry::log::{LogConfig, LogFormat};

/// The settings of a listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The listen address.
    pub address: ListenAddress,
    /// The flag that sets the address.
    pub flag: &'static str,
    /// Timeouts of its connections.
    pub limits: Limits,
}

/// The complete configuration of a run.
#[derive(Clone)]
pub struct Config {
    /// The name of the program.
    pub name: Name,
    /// The listener for metrics and health.
    pub main: Listener,
    /// The listener for own metrics and profiles; statsd_exporter serves them on the main listener.
    pub telemetry: Option<Listener>,
    /// The web configuration file: TLS and authentication of all listeners.
    pub web_config: Option<PathBuf>,
    /// True if the API server authorises access to metrics and profiles.
    pub auth_filter: bool,
    /// The clients that may fetch profiles without authentication.
    pub profiles: Profiles,
    /// True if the main listener may compress responses.
    pub gzip: bool,
    /// The Kubernetes side, regardless of whether a cluster is reachable.
    pub kube: Option<KubeConfig>,
    /// The StatsD side.
    pub statsd: Option<StatsdArgs>,
    /// The node side.
    pub node: Option<Arc<NodeArgs>>,
    /// The addresses of the replicas of which one exposes its metrics, if there are several.
    pub standby: Option<Vec<String>>,
    /// The options file, if configured.
    pub options_file: Option<OptionsFile>,
}

impl Config {
    /// Returns the custom resource configuration file.
    pub fn custom_file(&self) -> Option<&OptionsFile> {
        self.kube.as_ref()?.custom.as_ref()?.file.as_ref()
    }
}

/// Default timeouts. Without the idle timeout, abandoned connections would stay open forever, as
/// they do in the original.
const TELEMETRY_LIMITS: Limits = Limits {
    read_header: Some(Duration::from_secs(5)),
    write: None,
    idle: Some(Duration::from_secs(300)),
};

/// Returns the log settings of kstatd.
pub fn own_log(args: &LogArgs) -> LogConfig {
    let format = match args.log_format {
        LogStyle::Text => LogFormat::Text,
        LogStyle::Json => LogFormat::Json,
    };
    LogConfig { format, level: args.log_level.into() }
}

/// Returns the log settings of kube-state-metrics.
pub fn klog(args: &KubeArgs) -> LogConfig {
    let level = match args.klog.verbosity {
        ..4 => Level::INFO,
        4..6 => Level::DEBUG,
        _ => Level::TRACE,
    };
    LogConfig { format: LogFormat::Klog { skip_headers: args.klog.skip_headers }, level }
}

/// Returns the log settings of statsd_exporter.
pub fn slog(args: &StatsdArgs) -> LogConfig {
    let format = if args.log_json { LogFormat::LogfmtJson } else { LogFormat::Logfmt };
    LogConfig { format, level: args.log_level }
}

/// Resolves the flags of `kstatd run`. `configured` returns whether the merged flags or the
/// environment refer to a cluster.
///
/// # Errors
///
/// All invalid flags and options file entries, even without a cluster: a setting that asks for
/// protection must not be ignored.
pub fn kstatd(
    args: &RunArgs,
    load: Load<'_>,
    configured: impl Fn(&KubeArgs) -> bool,
) -> Result<Config> {
    with_options_file(&args.kube.0, load, |mut kube_args, options_file| {
        kube_args.gate.get_or_insert(true);
        let kubernetes = configured(&kube_args);
        let (mut custom, mut problems) = custom_or_problems(&kube_args, load);
        if let Some(config) = custom.as_mut().and_then(|custom| custom.config.as_mut()) {
            *config = Arc::new(CustomConfig::clone(config).with_valid_names());
        }
        let (main, telemetry) =
            listeners(&args.listen, &args.telemetry_listen, main_limits(&kube_args), &mut problems);
        let telemetry_port = telemetry.address.port;
        let web_config = match (named(&kube_args.tls_config), named(&args.statsd.0.web_config_file))
        {
            (Some(one), Some(other)) if one != other => {
                problems.push(format!(
                "--tls-config={one} and --web.config.file={other} are the same setting; use only one"
            ).into());
                None
            }
            (one, other) => one.or(other).map(PathBuf::from),
        };
        if !args.statsd.0.enrich.is_empty() && !kubernetes {
            let error = "--statsd.enrich needs the Kubernetes side: set --kubeconfig, --apiserver or KUBECONFIG, or run in a pod with a service account";
            problems.push(error.to_owned().into());
        }
        none(problems)?;
        // Flags shared by both sides take the StatsD side's values.
        let budget = Budget {
            series_per_kind: kube_args.limit_series_per_kind,
            ..args.statsd.0.budget(BudgetMode::Enforce)
        };
        Ok(Config {
            name: Name::Kstatd,
            main,
            telemetry: Some(telemetry),
            web_config,
            auth_filter: kube_args.auth_filter,
            profiles: args.profiles,
            gzip: kube_args.enable_gzip_encoding,
            kube: kubernetes
                .then(|| {
                    let mut kube = kube(&kube_args, Name::Kstatd, budget, custom, telemetry_port)?;
                    if args.statsd.0.recognises_senders() {
                        kube.watch_senders();
                    }
                    Ok::<_, ConfigErrors>(kube)
                })
                .transpose()?,
            statsd: Some(args.statsd.0.clone()),
            node: None,
            standby: standby(&kube_args)?,
            options_file,
        })
    })
}

/// Resolves the flags of the name kube-state-metrics.
///
/// # Errors
///
/// All invalid flags and options file entries.
pub fn kube_state_metrics(args: &KubeArgs, load: Load<'_>) -> Result<Config> {
    with_options_file(args, load, |args, options_file| {
        let (custom, mut problems) = custom_or_problems(&args, load);
        let mut listener = |flag: &'static str, named, host: &str, port: i64, limits| {
            let number = u16::try_from(port).unwrap_or_else(|_| {
                problems.push(format!("--{flag}={port}: a port must be from 0 to 65535").into());
                0
            });
            Listener { address: ListenAddress::new(host, number), flag: named, limits }
        };
        let main = listener("port", "--host and --port", &args.host, args.port, main_limits(&args));
        let telemetry = listener(
            "telemetry-port",
            "--telemetry-host and --telemetry-port",
            &args.telemetry_host,
            args.telemetry_port,
            TELEMETRY_LIMITS,
        );
        problems.extend(same_address(&main, &telemetry, "port"));
        let telemetry_port = telemetry.address.port;
        none(problems)?;
        Ok(Config {
            name: Name::KubeStateMetrics,
            main,
            telemetry: Some(telemetry),
            web_config: named(&args.tls_config).map(PathBuf::from),
            auth_filter: args.auth_filter,
            profiles: Profiles::Everybody,
            gzip: args.enable_gzip_encoding,
            kube: Some(kube(
                &args,
                Name::KubeStateMetrics,
                args.budget(BudgetMode::Off),
                custom,
                telemetry_port,
            )?),
            statsd: None,
            node: None,
            standby: standby(&args)?,
            options_file,
        })
    })
}

/// Returns the addresses of all replicas, if `--standby` is set.
fn standby(args: &KubeArgs) -> Result<Option<Vec<String>>> {
    let error = |text: String| Err(ConfigErrors::from(ConfigError::from(text)));
    let peers = &args.standby_peers;
    if args.standby == peers.is_empty() {
        return error("--standby and --standby-peers need each other".to_owned());
    }
    if !args.standby {
        return Ok(None);
    }
    if named(&args.pod).is_some() {
        return error(
            "--standby and --pod exclude each other: the replicas of a StatefulSet cannot be shards and standbys; use --shard and --total-shards for each group of replicas".to_owned(),
        );
    }
    let is_valid = |peer: &String| {
        let (host, port) = peer.rsplit_once(':').unwrap_or_default();
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
    };
    match peers.iter().find(|peer| !is_valid(peer)) {
        Some(peer) => error(format!("--standby-peers: {peer:?} must be host:port")),
        None => Ok(Some(peers.clone())),
    }
}

fn none(problems: Vec<ConfigError>) -> Result<()> {
    if problems.is_empty() { Ok(()) } else { Err(ConfigErrors(problems)) }
}

/// Resolves the flags of the name statsd_exporter.
///
/// # Errors
///
/// When the web address is invalid.
pub fn statsd_exporter(args: &StatsdArgs) -> Result<Config, ConfigError> {
    if !args.enrich.is_empty() {
        let error = "--statsd.enrich needs the pods of a cluster, which only kstatd run watches";
        return Err(error.to_owned().into());
    }
    // An empty address means the HTTP port, as in Go's server.
    let text = match args.web_listen_address.as_str() {
        "" => ":http",
        text => text,
    };
    let address = ListenAddress::parse(&services::numeric(text, "tcp"))
        .map_err(|error| format!("listen tcp: {error}"))?;
    // The original has no timeouts; without any, vanished clients would hold connections forever.
    let limits = Limits {
        read_header: Some(Duration::from_secs(60)),
        write: None,
        idle: Some(Duration::from_secs(300)),
    };
    Ok(Config {
        name: Name::StatsdExporter,
        main: Listener { address, flag: "--web.listen-address", limits },
        telemetry: None,
        web_config: named(&args.web_config_file).map(PathBuf::from),
        auth_filter: false,
        profiles: Profiles::Everybody,
        gzip: true,
        kube: None,
        statsd: Some(args.clone()),
        node: None,
        standby: None,
        options_file: None,
    })
}

/// Resolves the flags of `kstatd node` with its options file.
///
/// # Errors
///
/// All invalid flags.
pub fn node(args: &NodeArgs, load: Load<'_>) -> Result<Config> {
    let mut args = args.clone();
    let mut problems = Vec::new();
    let limits = main_limits(&KubeArgs::default());
    let (main, telemetry) = listeners(&args.listen, &args.telemetry_listen, limits, &mut problems);
    problems.extend(args.duplicate_path().map(ConfigError::from));
    let options_file = node_options::merge(&mut args, load).unwrap_or_else(|error| {
        problems.push(error);
        None
    });
    none(problems)?;
    Ok(Config {
        name: Name::Node,
        main,
        telemetry: Some(telemetry),
        web_config: args.web_config_file.clone(),
        auth_filter: false,
        profiles: args.profiles,
        gzip: true,
        kube: None,
        statsd: None,
        node: Some(Arc::new(args)),
        standby: None,
        options_file,
    })
}

/// Returns the main and the telemetry listener of kstatd's own commands.
fn listeners(
    main: &str,
    telemetry: &str,
    limits: Limits,
    problems: &mut Vec<ConfigError>,
) -> (Listener, Listener) {
    let mut listener = |flag: &'static str, text: &str, limits| {
        let address = ListenAddress::parse(text).unwrap_or_else(|error| {
            problems.push(format!("{flag}={text}: {error}").into());
            ListenAddress::new("", 0)
        });
        Listener { address, flag, limits }
    };
    let main = listener("--listen", main, limits);
    let telemetry = listener("--telemetry-listen", telemetry, TELEMETRY_LIMITS);
    problems.extend(same_address(&main, &telemetry, "listen"));
    (main, telemetry)
}

/// Returns the error of two listeners with the same address. `flag` is the one of the main listener.
fn same_address(main: &Listener, telemetry: &Listener, flag: &str) -> Option<ConfigError> {
    let is_same = main.address == telemetry.address && main.address.port != 0;
    let error = || ConfigError::same_address(flag, &format!("telemetry-{flag}"), &main.address);
    is_same.then(error)
}

fn main_limits(args: &KubeArgs) -> Limits {
    Limits {
        // The head is part of the request, so the shorter of the two timeouts applies.
        read_header: [args.server_read_header_timeout, args.server_read_timeout]
            .into_iter()
            .filter_map(strconv::positive_duration)
            .min(),
        write: strconv::positive_duration(args.server_write_timeout),
        // Go's server falls back to the read timeout.
        idle: strconv::positive_duration(match args.server_idle_timeout {
            0 => args.server_read_timeout,
            idle => idle,
        }),
    }
}

/// Returns the custom resource settings, if valid, and every error for which no personality starts,
/// after merging the options file. Port conflicts depend on the personality and are not included.
fn custom_or_problems(
    args: &KubeArgs,
    load: Load<'_>,
) -> (Option<CustomResources>, Vec<ConfigError>) {
    let mut problems = Vec::new();
    if let Some(error) = web_problem(args, load) {
        problems.push(format!("--tls-config: {error}").into());
    }
    problems.extend(selection::problems(args));
    let custom = custom_resources(args, load).unwrap_or_else(|errors| {
        problems.extend(errors.0);
        None
    });
    (custom, problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kube_flags;
    use crate::cli::pflag;
    use crate::kube::shard::Shard;

    fn args(argv: &[&str]) -> KubeArgs {
        let mut args = KubeArgs::default();
        let argv: Vec<String> = argv.iter().map(|arg| (*arg).to_owned()).collect();
        pflag::parse(&kube_flags::all(), &mut args, &argv).expect("valid");
        args
    }

    fn error(argv: &[&str]) -> String {
        match kube_state_metrics(&args(argv), Load::First) {
            Ok(_) => panic!("{argv:?} must be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn statsd_exporter_accepts_service_names_and_empty_addresses() {
        for (text, host, port) in
            [("", "", 80), ("127.0.0.1:http", "127.0.0.1", 80), (":", "", 0), (":9102", "", 9102)]
        {
            let args = StatsdArgs { web_listen_address: text.to_owned(), ..StatsdArgs::default() };
            let config = statsd_exporter(&args).expect(text);
            assert_eq!(config.main.address, ListenAddress::new(host, port), "{text:?}");
        }
        let args = StatsdArgs { web_listen_address: "h:no-such".into(), ..StatsdArgs::default() };
        assert!(statsd_exporter(&args).is_err());
    }

    /// As in kube-state-metrics, `--resources` has no meaning then.
    #[test]
    fn names_are_not_checked_with_custom_resources_only() {
        let config = "--custom-resource-state-config=kind: CustomResourceStateMetrics";
        for names in ["foo", "pods,foo", "pods"] {
            let resources = format!("--resources={names}");
            let argv = ["--custom-resource-state-only", config, &resources];
            let config = kube_state_metrics(&args(&argv), Load::First).expect(names);
            let kube = config.kube.expect("a Kubernetes side");
            assert!(kube.pipeline.resources.is_empty(), "{names}");
        }
    }

    #[test]
    fn invalid_values_name_their_flag() {
        for (argv, part) in [
            (vec!["--resources=pods,foo"], "resource foo does not exist. Available resources: "),
            (vec!["--metric-labels-allowlist=foo=[a]"], "resource foo does not exist"),
            (vec!["--metric-allowlist=a", "--metric-denylist=b"], "--metric-allowlist and"),
            (vec!["--metric-allowlist=("], "--metric-allowlist: pattern \"(\""),
            (vec!["--port=65536"], "--port=65536"),
            (vec!["--port=8081"], "--port and --telemetry-port are the same address"),
            (
                vec!["--custom-resource-state-config-file=/x"],
                "--custom-resource-state-config-file=/x: ",
            ),
            (vec!["--custom-resource-state-config=spec: ["], "--custom-resource-state-config"),
            (vec!["--config=/none"], "--config=/none: "),
        ] {
            let text = error(&argv);
            assert!(text.contains(part), "{argv:?}: {text}");
        }
    }

    #[test]
    fn values_that_the_original_accepts() {
        let argv = ["--node=n", "--resources=pods,nodes", "--object-limit=-1", "--shard=5"];
        let config = kube_state_metrics(&args(&argv), Load::First);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let pipeline = config.kube.expect("kube").pipeline;
        assert_eq!(pipeline.selector, "spec.nodeName=n");
        assert_eq!((pipeline.object_limit, pipeline.shard), (0, Shard::new(5, 1)));
        let names: Vec<String> = pipeline.resources.iter().map(|one| one.api.name()).collect();
        assert_eq!(names, ["nodes", "pods"]);
        assert_eq!(config.main.address.to_string(), "[::]:8080");
    }

    #[test]
    fn a_missing_options_file_is_tolerated_on_request() {
        let argv = ["--config=/none", "--continue-without-config"];
        let config = kube_state_metrics(&args(&argv), Load::First);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let file = config.options_file.expect("named");
        assert_eq!((file.path.as_str(), file.content), ("/none", None));
        let again = kube_state_metrics(&args(&argv), Load::Again(&FilesInUse::default()));
        assert!(again.is_err(), "what runs must not lose what the file said");
    }

    #[test]
    fn a_rejected_file_changes_no_flag() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let text = "resources: {nodes: {}}\nport: 9\nlabels_allow_list: {nodes: [\"a*b*\"]}\n";
        std::fs::write(file.path(), text).expect("write");
        let path = format!("--config={}", file.path().display());
        let argv = ["--resources=pods", &path, "--continue-without-config"];
        let config = kube_state_metrics(&args(&argv), Load::First);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.main.address.port, 8080);
        let resources = config.kube.expect("kube").pipeline.resources;
        let names: Vec<String> = resources.iter().map(|one| one.api.name()).collect();
        assert_eq!(names, ["pods"]);
        let plain = kube_state_metrics(&args(&["--resources=pods"]), Load::First);
        let plain = plain.ok().and_then(|config| config.kube).expect("kube").pipeline;
        assert!(resources[0].renderer.settings() == plain.resources[0].renderer.settings());
        assert_eq!(config.options_file.expect("named").content, None);
    }

    #[test]
    fn all_problems_are_reported_together() {
        let text = error(&[
            "--resources=pods,foo,bar",
            "--metric-allowlist=(",
            "--metric-opt-in-list=)",
            "--port=-1",
        ]);
        for part in ["foo", "bar", "\"(\"", "\")\"", "--port=-1"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn invalid_security_settings_are_refused_without_a_cluster() {
        let flag = "custom_resource_state_config_file";
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), format!("{flag}: x\n")).expect("write");
        let mut run = RunArgs::default();
        (run.listen, run.telemetry_listen) = (":1".to_owned(), ":2".to_owned());
        assert!(kstatd(&run, Load::First, |_| false).is_ok());
        run.kube.0.config = file.path().display().to_string();
        assert!(kstatd(&run, Load::First, |_| false).is_err(), "{flag}");
        run.kube.0.continue_without_config = true;
        assert!(kstatd(&run, Load::First, |_| false).is_err(), "{flag}");
    }

    #[test]
    fn the_web_configuration_has_two_flags_and_needs_no_cluster() {
        let mut run = RunArgs::default();
        (run.listen, run.telemetry_listen) = (":1".to_owned(), ":2".to_owned());
        let file = tempfile::NamedTempFile::new().expect("file");
        let web = file.path().display().to_string();
        run.kube.0.tls_config = web.clone();
        let path =
            |run: &RunArgs| kstatd(run, Load::First, |_| false).map(|config| config.web_config);
        assert_eq!(path(&run), Ok(Some(PathBuf::from(&web))));
        run.statsd.0.web_config_file = web.clone();
        assert_eq!(path(&run), Ok(Some(PathBuf::from(&web))));
        run.statsd.0.web_config_file = "other.yml".to_owned();
        assert!(path(&run).is_err());
        run.kube.0.tls_config = String::new();
        assert_eq!(path(&run), Ok(Some(PathBuf::from("other.yml"))));
        run.kube.0.tls_config = format!("{web}.absent");
        assert!(path(&run).is_err());
    }

    #[test]
    fn the_options_file_overrides_flags() {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), "resources: {nodes: {}}\nport: 9\n").expect("write");
        let path = format!("--config={}", file.path().display());
        let config = kube_state_metrics(&args(&["--resources=pods", &path]), Load::First);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.main.address.port, 9);
        assert_eq!(config.kube.expect("kube").pipeline.resources.len(), 1);
        let content = config.options_file.expect("file").content;
        assert_eq!(content.expect("usable"), b"resources: {nodes: {}}\nport: 9\n");
    }

    /// Zero means the read timeout, a negative value no timeout, as in Go's server.
    #[test]
    fn the_idle_timeout_defaults_to_the_read_timeout() {
        let limit = |idle: i64, read: i64| {
            let args = KubeArgs {
                server_idle_timeout: idle,
                server_read_timeout: read,
                ..KubeArgs::default()
            };
            main_limits(&args).idle.map(|limit| limit.as_nanos())
        };
        assert_eq!(limit(7, 5), Some(7));
        assert_eq!(limit(0, 5), Some(5));
        assert_eq!(limit(0, 0), None);
        assert_eq!(limit(-1, 5), None);
    }
}
