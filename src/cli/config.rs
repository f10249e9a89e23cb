//! From flags to what the program uses: everything that can be checked without talking to anybody is
//! checked here, once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing::Level;

use super::go;
use super::kube_flags::KubeArgs;
use super::native::{LogArgs, LogStyle, RunArgs};
use super::options_file;
use super::services;
use super::statsd_flags::StatsdArgs;
use crate::kube::selector;
use crate::kube::shard::Shard;
use crate::resources::filter::FamilyFilter;
use crate::resources::selection::AllowLists;
use crate::resources::{self, RenderOptions, Resource};
use crate::server::connection::Limits;
use crate::server::listen::ListenAddress;
use crate::telemetry::log::{LogConfig, LogFormat};

/// Under which name the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// Itself.
    Kstatd,
    /// kube-state-metrics.
    KubeStateMetrics,
    /// statsd_exporter.
    StatsdExporter,
}

/// One listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Where it listens.
    pub address: ListenAddress,
    /// The flag that says so.
    pub flag: &'static str,
    /// Deadlines of its connections.
    pub limits: Limits,
}

/// Everything that a run needs.
#[derive(Clone)]
pub struct Config {
    /// Under which name.
    pub personality: Personality,
    /// The log.
    pub log: LogConfig,
    /// Metrics and health.
    pub main: Listener,
    /// Own metrics and profiles; statsd_exporter has them on the main listener.
    pub telemetry: Option<Listener>,
    /// Whether bodies of the main listener may be compressed.
    pub gzip: bool,
    /// The Kubernetes side, whether or not a cluster is in reach.
    pub kube: Option<KubeConfig>,
    /// The StatsD side.
    pub statsd: Option<StatsdConfig>,
}

/// The Kubernetes side.
#[derive(Clone)]
pub struct KubeConfig {
    /// Path of a kubeconfig, if one was named.
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server, if one was named; overrides the kubeconfig's.
    pub apiserver: Option<String>,
    /// What is watched and how each resource is rendered, in byte order of the names.
    pub resources: Vec<(&'static dyn Resource, RenderOptions)>,
    /// Namespaces to watch in the given order; empty for all.
    pub namespaces: Vec<String>,
    /// Field selector for everything that lives in namespaces.
    pub selector: String,
    /// Most objects of one list, 0 for all.
    pub object_limit: u64,
    /// Lists come from the API server's cache.
    pub use_apiserver_cache: bool,
    /// The shard that is kept.
    pub shard: Shard,
    /// The options file in force and its content.
    pub options_file: Option<(String, Vec<u8>)>,
}

/// The StatsD side.
#[derive(Clone, Debug)]
pub struct StatsdConfig {
    /// The flags; every value is in its range.
    pub args: StatsdArgs,
}

impl StatsdConfig {
    /// Whether a mapping file is named.
    pub fn has_mapping(&self) -> bool {
        !self.args.mapping_config.is_empty()
    }
}

/// Why the flags cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A resource that is not known.
    #[error("resource {name} does not exist. Available resources: {available}")]
    UnknownResource {
        /// The name.
        name: String,
        /// What there is.
        available: String,
    },
    /// A flag whose feature this build does not have.
    #[error(
        "--{flag} is set, but this version cannot do {what}; remove the flag to start without it"
    )]
    Unavailable {
        /// Its name.
        flag: &'static str,
        /// What it stands for.
        what: &'static str,
    },
    /// A port outside 0–65535.
    #[error("--{flag}={value}: a port must be from 0 to 65535")]
    Port {
        /// The flag.
        flag: &'static str,
        /// What it says.
        value: i64,
    },
    /// Two listeners with one address.
    #[error("--{first} and --{second} are the same address {address}; give them different ports")]
    SameAddress {
        /// One flag.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// The address.
        address: String,
    },
    /// The options file cannot be read or understood.
    #[error("--config={path}: {reason}")]
    OptionsFile {
        /// Its path.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Anything else, with the flag in the text.
    #[error("{0}")]
    Invalid(String),
}

/// Deadlines where no flag sets them.
const TELEMETRY_LIMITS: Limits =
    Limits { read_header: Some(Duration::from_secs(5)), write: None, idle: None };

fn log(args: &LogArgs) -> LogConfig {
    let format = match args.log_format {
        LogStyle::Text => LogFormat::Text,
        LogStyle::Json => LogFormat::Json,
    };
    LogConfig { format, level: args.log_level.into() }
}

/// The log of the name kube-state-metrics.
pub fn klog(args: &KubeArgs) -> LogConfig {
    let level = match args.klog.verbosity {
        ..4 => Level::INFO,
        4..6 => Level::DEBUG,
        _ => Level::TRACE,
    };
    LogConfig { format: LogFormat::Klog { skip_headers: args.klog.skip_headers }, level }
}

/// The log of the name statsd_exporter.
pub fn slog(args: &StatsdArgs) -> LogConfig {
    let format = if args.log_json { LogFormat::LogfmtJson } else { LogFormat::Logfmt };
    LogConfig { format, level: args.log_level }
}

/// The log of kstatd.
pub fn own_log(args: &LogArgs) -> LogConfig {
    log(args)
}

/// Resolves the flags of `kstatd run`. `configured` tells whether flags, once the options file was merged,
/// or the environment say where a cluster is.
///
/// # Errors
///
/// The first flag, or line of the options file, that cannot be used.
pub fn kstatd(
    args: &RunArgs,
    configured: impl Fn(&KubeArgs) -> bool,
) -> Result<Config, ConfigError> {
    let address = |flag: &str, text: &str| {
        ListenAddress::parse(text)
            .map_err(|error| ConfigError::Invalid(format!("--{flag}={text}: {error}")))
    };
    let mut kube_args = args.kube.0.clone();
    let options_file = merge_options_file(&mut kube_args)?;
    let kubernetes = configured(&kube_args);
    let main = Listener {
        address: address("listen", &args.listen)?,
        flag: "--listen",
        limits: main_limits(&kube_args),
    };
    let telemetry = Listener {
        address: address("telemetry-listen", &args.telemetry_listen)?,
        flag: "--telemetry-listen",
        limits: TELEMETRY_LIMITS,
    };
    differ(&main, &telemetry, "listen", "telemetry-listen")?;
    Ok(Config {
        personality: Personality::Kstatd,
        log: log(&args.log),
        main,
        telemetry: Some(telemetry),
        gzip: kube_args.enable_gzip_encoding,
        kube: kubernetes.then(|| kube(&kube_args, options_file)).transpose()?,
        statsd: Some(StatsdConfig { args: args.statsd.0.clone() }),
    })
}

/// Resolves the flags of the name kube-state-metrics.
///
/// # Errors
///
/// The first flag, or line of the options file, that cannot be used.
pub fn kube_state_metrics(args: &KubeArgs) -> Result<Config, ConfigError> {
    let mut args = args.clone();
    let options_file = merge_options_file(&mut args)?;
    let listener = |flag: &'static str, named, host: &str, port: i64, limits| {
        let number = u16::try_from(port);
        let port = number.map_err(|_| ConfigError::Port { flag, value: port })?;
        Ok(Listener { address: ListenAddress::new(host, port), flag: named, limits })
    };
    let main = listener("port", "--host and --port", &args.host, args.port, main_limits(&args))?;
    let telemetry = listener(
        "telemetry-port",
        "--telemetry-host and --telemetry-port",
        &args.telemetry_host,
        args.telemetry_port,
        TELEMETRY_LIMITS,
    )?;
    differ(&main, &telemetry, "port", "telemetry-port")?;
    Ok(Config {
        personality: Personality::KubeStateMetrics,
        log: klog(&args),
        main,
        telemetry: Some(telemetry),
        gzip: args.enable_gzip_encoding,
        kube: Some(kube(&args, options_file)?),
        statsd: None,
    })
}

/// Resolves the flags of the name statsd_exporter.
///
/// # Errors
///
/// When the web address cannot be understood.
pub fn statsd_exporter(args: &StatsdArgs) -> Result<Config, ConfigError> {
    // Nothing at all is the port of the web, as in Go's server.
    let text = match args.web_listen_address.as_str() {
        "" => ":http",
        text => text,
    };
    let address = ListenAddress::parse(&services::numeric(text, "tcp"))
        .map_err(|error| ConfigError::Invalid(format!("listen tcp: {error}")))?;
    // The original has no limits; without any, clients that went away would be waited for for ever.
    let limits = Limits {
        read_header: Some(Duration::from_secs(60)),
        write: None,
        idle: Some(Duration::from_secs(300)),
    };
    Ok(Config {
        personality: Personality::StatsdExporter,
        log: slog(args),
        main: Listener { address, flag: "--web.listen-address", limits },
        telemetry: None,
        gzip: true,
        kube: None,
        statsd: Some(StatsdConfig { args: args.clone() }),
    })
}

fn differ(
    main: &Listener,
    telemetry: &Listener,
    first: &'static str,
    second: &'static str,
) -> Result<(), ConfigError> {
    if main.address == telemetry.address && main.address.port != 0 {
        let address = main.address.to_string();
        return Err(ConfigError::SameAddress { first, second, address });
    }
    Ok(())
}

fn main_limits(args: &KubeArgs) -> Limits {
    Limits {
        // The head is part of the request: the shorter of the two limits holds.
        read_header: match (
            go::limit(args.server_read_header_timeout),
            go::limit(args.server_read_timeout),
        ) {
            (Some(header), Some(whole)) => Some(header.min(whole)),
            (header, whole) => header.or(whole),
        },
        write: go::limit(args.server_write_timeout),
        idle: go::limit(args.server_idle_timeout),
    }
}

/// Reads the options file, if one is named, into `args`; its path and content are returned.
///
/// # Errors
///
/// When it cannot be read or understood, unless the flags say to go on without it.
pub fn merge_options_file(args: &mut KubeArgs) -> Result<Option<(String, Vec<u8>)>, ConfigError> {
    let tolerant = args.continue_without_config;
    let merged = read_options_file(args).and_then(|file| match file {
        Some(file) => match file.wildcards.into_iter().next() {
            Some(reason) => Err(ConfigError::OptionsFile { path: file.path, reason }),
            None => Ok(Some((file.path, file.content))),
        },
        None => Ok(None),
    });
    match merged {
        Err(error) if tolerant => {
            tracing::warn!(%error, "running without the options file until it is usable");
            Ok(None)
        }
        merged => merged,
    }
}

/// An options file that was merged.
pub struct OptionsFile {
    /// Its path.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
    /// Label keys that select nothing because they have more than one `*`, in words.
    pub wildcards: Vec<String>,
}

/// Reads the options file, if one is named, into `args`.
///
/// # Errors
///
/// When it cannot be read or understood.
pub fn read_options_file(args: &mut KubeArgs) -> Result<Option<OptionsFile>, ConfigError> {
    if args.config.is_empty() {
        return Ok(None);
    }
    let path = args.config.clone();
    let loaded = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    let mut merged = args.clone();
    let applied = loaded.and_then(|text| {
        options_file::apply(&text, &mut merged).map(|wildcards| (text, wildcards))
    });
    match applied {
        Ok((text, wildcards)) => {
            *args = merged;
            Ok(Some(OptionsFile { path, content: text.into_bytes(), wildcards }))
        }
        Err(reason) => Err(ConfigError::OptionsFile { path, reason }),
    }
}

/// The flags whose features are not in this version. A flag that is accepted and then ignored would be
/// worse than an error: its user would believe in it.
fn refuse_unavailable(args: &KubeArgs) -> Result<(), ConfigError> {
    let automatic = !args.pod.is_empty() && !args.pod_namespace.is_empty();
    let custom = "custom resource metrics";
    let checks = [
        (args.auth_filter, "auth-filter", "authentication of requests"),
        (!args.tls_config.is_empty(), "tls-config", "TLS and basic authentication"),
        (!args.custom_resource_config.is_empty(), "custom-resource-state-config", custom),
        (!args.custom_resource_config_file.is_empty(), "custom-resource-state-config-file", custom),
        (args.custom_resources_only, "custom-resource-state-only", custom),
        (automatic, "pod", "automatic sharding"),
    ];
    match checks.into_iter().find(|(set, ..)| *set) {
        Some((_, flag, what)) => Err(ConfigError::Unavailable { flag, what }),
        None => Ok(()),
    }
}

fn kube(
    args: &KubeArgs,
    options_file: Option<(String, Vec<u8>)>,
) -> Result<KubeConfig, ConfigError> {
    refuse_unavailable(args)?;
    let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Ok(KubeConfig {
        kubeconfig: named(&args.kubeconfig).map(PathBuf::from),
        apiserver: named(&args.apiserver),
        resources: rendering(args, default_resources)?,
        namespaces: namespaces(args),
        selector: selector::build(
            &args.namespaces_denylist,
            &args.node,
            args.track_unscheduled_pods,
        ),
        object_limit: u64::try_from(args.object_limit).unwrap_or(0),
        use_apiserver_cache: args.use_apiserver_cache,
        shard: Shard { index: args.shard, total: args.total_shards },
        options_file,
    })
}

/// The namespaces to watch, in the given order; empty for all, which an empty name stands for.
pub fn namespaces(args: &KubeArgs) -> Vec<String> {
    let mut namespaces = args.namespaces.clone();
    if namespaces.iter().any(String::is_empty) {
        return Vec::new();
    }
    if !args.duplicate_series {
        // Watched twice, a namespace would have every series twice.
        let mut seen = std::collections::BTreeSet::new();
        namespaces.retain(|namespace| seen.insert(namespace.clone()));
    }
    namespaces
}

/// The resources that are watched when none are named.
pub fn default_resources() -> Vec<&'static dyn Resource> {
    let all = resources::registry().iter().copied();
    all.filter(|resource| resource.api().default_enabled).collect()
}

/// The resources that `args` select (`default` when they name none) and how each is rendered.
///
/// # Errors
///
/// An unknown resource or a broken pattern.
pub fn rendering(
    args: &KubeArgs,
    default: impl Fn() -> Vec<&'static dyn Resource>,
) -> Result<Vec<(&'static dyn Resource, RenderOptions)>, ConfigError> {
    let selected = if args.resources.is_empty() {
        default()
    } else {
        let find = |name: &String| resources::find(name).ok_or_else(|| unknown(name));
        args.resources.iter().map(find).collect::<Result<_, _>>()?
    };
    let list = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
    let families = FamilyFilter::new(
        &list(&args.metric_allowlist),
        &list(&args.metric_denylist),
        &list(&args.metric_opt_in_list),
    )
    .map_err(|error| ConfigError::Invalid(error.to_string()))?;
    let families = Arc::new(families);
    let resolve = |lists: &AllowLists| {
        let names = selected.iter().map(|resource| resource.name());
        let resolved = lists.resolve(names, |name| resources::find(name).is_some());
        resolved.map_err(|error| unknown(&error.0))
    };
    let labels = resolve(&args.labels_allowlist)?;
    let annotations = resolve(&args.annotations_allowlist)?;
    let options = |resource: &'static dyn Resource| RenderOptions {
        labels: labels.selection(resource.name()),
        annotations: annotations.selection(resource.name()),
        families: Arc::clone(&families),
        keep_duplicates: args.duplicate_series,
    };
    Ok(selected.into_iter().map(|resource| (resource, options(resource))).collect())
}

fn unknown(name: &str) -> ConfigError {
    let available: Vec<&str> = resources::registry().iter().map(|one| one.name()).collect();
    ConfigError::UnknownResource { name: name.to_owned(), available: available.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kube_flags;
    use crate::cli::pflag;

    fn args(argv: &[&str]) -> KubeArgs {
        let mut args = KubeArgs::default();
        let argv: Vec<String> = argv.iter().map(|arg| (*arg).to_owned()).collect();
        pflag::parse(&kube_flags::all(), &mut args, &argv).expect("valid");
        args
    }

    fn error(argv: &[&str]) -> String {
        match kube_state_metrics(&args(argv)) {
            Ok(_) => panic!("{argv:?} must be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_web_address_of_statsd_exporter_may_name_its_port_or_nothing() {
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

    #[test]
    fn what_cannot_be_used_names_its_flag() {
        for (argv, part) in [
            (vec!["--resources=pods,foo"], "resource foo does not exist. Available resources: "),
            (vec!["--metric-labels-allowlist=foo=[a]"], "resource foo does not exist"),
            (vec!["--metric-allowlist=a", "--metric-denylist=b"], "--metric-allowlist and"),
            (vec!["--metric-allowlist=("], "--metric-allowlist: pattern \"(\""),
            (vec!["--port=65536"], "--port=65536"),
            (vec!["--port=8081"], "--port and --telemetry-port are the same address"),
            (vec!["--auth-filter"], "--auth-filter"),
            (vec!["--tls-config=x"], "--tls-config"),
            (vec!["--custom-resource-state-config-file=x"], "--custom-resource-state-config-file"),
            (vec!["--pod=a", "--pod-namespace=b"], "--pod"),
            (vec!["--config=/none"], "--config=/none: "),
        ] {
            let text = error(&argv);
            assert!(text.contains(part), "{argv:?}: {text}");
        }
    }

    #[test]
    fn values_that_the_original_starts_with() {
        let argv = ["--node=n", "--resources=pods,nodes", "--object-limit=-1", "--shard=5"];
        let config = kube_state_metrics(&args(&argv)).unwrap_or_else(|error| panic!("{error}"));
        let kube = config.kube.expect("kube");
        assert_eq!(kube.selector, "spec.nodeName=n");
        assert_eq!((kube.object_limit, kube.shard), (0, Shard { index: 5, total: 1 }));
        let names: Vec<&str> = kube.resources.iter().map(|(one, _)| one.name()).collect();
        assert_eq!(names, ["nodes", "pods"]);
        assert_eq!(config.main.address.to_string(), "[::]:8080");
    }

    #[test]
    fn a_missing_options_file_is_tolerated_when_asked_for() {
        let argv = ["--config=/none", "--continue-without-config"];
        let config = kube_state_metrics(&args(&argv)).unwrap_or_else(|error| panic!("{error}"));
        assert!(config.kube.expect("kube").options_file.is_none());
    }

    #[test]
    fn the_options_file_overrides_flags() {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), "resources: {nodes: {}}\nport: 9\n").expect("write");
        let path = format!("--config={}", file.path().display());
        let config = kube_state_metrics(&args(&["--resources=pods", &path]));
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.main.address.port, 9);
        let kube = config.kube.expect("kube");
        assert_eq!(kube.resources.len(), 1);
        assert_eq!(kube.options_file.expect("file").1, b"resources: {nodes: {}}\nport: 9\n");
    }
}
