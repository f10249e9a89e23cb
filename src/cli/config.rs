//! From flags to what the program uses: everything that can be checked without talking to anybody is
//! checked here, once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing::Level;

use super::custom;
pub use super::error::{ConfigError, ConfigErrors};
use super::error::{named, web_problem};
use super::kube_flags::KubeArgs;
use super::native::{LogArgs, LogStyle, RunArgs};
use super::node::NodeArgs;
use super::read_options::merge_options_file;
pub use super::read_options::{Load, OptionsFile, named_files, read_options_file};
use super::selection::{self, family_filter};
pub use super::selection::{default_resources, namespaces, rendering};
use super::services;
use super::shared::Profiles;
use super::statsd_flags::StatsdArgs;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::go::strconv;
use crate::kube::autosharding::PodName;
use crate::kube::selector;
use crate::kube::shard::Shard;
use crate::resources::custom::resolve::Manner;
use crate::resources::custom::{
    Config as CustomConfig, Definition, Twice, ValueErrors, with_built_in,
};
use crate::resources::select::filter::FamilyFilter;
use crate::resources::{RenderOptions, Resource};
use crate::server::connection::Limits;
use crate::server::listen::ListenAddress;
use crate::telemetry::log::{LogConfig, LogFormat};

/// Under which name the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Itself.
    Kstatd,
    /// kube-state-metrics.
    KubeStateMetrics,
    /// statsd_exporter.
    StatsdExporter,
    /// `kstatd node`.
    Node,
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
    pub name: Name,
    /// Metrics and health.
    pub main: Listener,
    /// Own metrics and profiles; statsd_exporter has them on the main listener.
    pub telemetry: Option<Listener>,
    /// The file that says how all listeners speak TLS and whom they answer.
    pub web_config: Option<PathBuf>,
    /// Whether the API server decides who may see metrics and profiles.
    pub auth_filter: bool,
    /// Who gets profiles all the same.
    pub profiles: Profiles,
    /// Whether bodies of the main listener may be compressed.
    pub gzip: bool,
    /// The Kubernetes side, whether or not a cluster is in reach.
    pub kube: Option<KubeConfig>,
    /// The StatsD side.
    pub statsd: Option<StatsdConfig>,
    /// The node's side.
    pub node: Option<Arc<NodeArgs>>,
    /// The options file, if one is named.
    pub options_file: Option<OptionsFile>,
}

impl Config {
    /// The file that says what is made of custom resources.
    pub fn custom_file(&self) -> Option<&OptionsFile> {
        self.kube.as_ref()?.custom.as_ref()?.file.as_ref()
    }
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
    /// What series and labels objects may have.
    pub budget: Arc<Budget>,
    /// Lists come from the API server's cache.
    pub use_apiserver_cache: bool,
    /// How long objects are shown that may not be listed any more, `None` for ever.
    pub staleness_limit: Option<Duration>,
    /// Whether nothing is served until the first lists are complete, and after how long kinds that cannot be listed do
    /// not hold that back any more; `None` there is never.
    pub gate: Option<Option<Duration>>,
    /// The shard that is kept, unless the pod decides.
    pub shard: Shard,
    /// The pod of a StatefulSet whose number and replicas decide what is kept.
    pub pod: Option<PodName>,
    /// Where other pods of the StatefulSet have their telemetry listener.
    pub telemetry_port: u16,
    /// Custom resources, if they are configured.
    pub custom: Option<CustomResources>,
}

/// Metrics of custom resources.
#[derive(Clone)]
pub struct CustomResources {
    /// What is to be made of them; `None` while the file that says so may be missing, and is.
    pub config: Option<Arc<CustomConfig>>,
    /// The file, if it does not stand in a flag.
    pub file: Option<OptionsFile>,
    /// Which families there are.
    pub families: Arc<FamilyFilter>,
    /// Whether what is there twice is shown as kube-state-metrics shows it.
    pub as_original: bool,
    /// The log's verbosity.
    pub verbosity: i64,
}

impl CustomResources {
    /// The kinds that entries may be for: those that are `defined`, and those that are built in, which
    /// kube-state-metrics passes over.
    pub fn served(&self, defined: Vec<Definition>) -> Vec<Definition> {
        if self.as_original { defined } else { with_built_in(defined) }
    }

    /// How objects are rendered.
    pub fn manner(&self, errors: Arc<dyn ValueErrors>) -> Manner {
        Manner {
            families: Arc::clone(&self.families),
            keep_duplicates: self.as_original,
            twice: if self.as_original { Twice::Last } else { Twice::Both },
            errors,
        }
    }
}

/// The StatsD side.
#[derive(Clone, Debug)]
pub struct StatsdConfig {
    /// The flags; every value is in its range.
    pub args: StatsdArgs,
}

/// Deadlines where no flag sets them. Without the last, a connection whose client forgot it stays for ever,
/// as it does in the original.
const TELEMETRY_LIMITS: Limits = Limits {
    read_header: Some(Duration::from_secs(5)),
    write: None,
    idle: Some(Duration::from_secs(300)),
};

/// The log of kstatd.
pub fn own_log(args: &LogArgs) -> LogConfig {
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

/// Resolves the flags of `kstatd run`. `configured` tells whether flags, once the options file was merged,
/// or the environment say where a cluster is.
///
/// # Errors
///
/// The flags, or lines of the options file, that cannot be used, whether or not there is a cluster: what
/// asks for protection must not be ignored.
pub fn kstatd(
    args: &RunArgs,
    load: Load,
    configured: impl Fn(&KubeArgs) -> bool,
) -> Result<Config, ConfigErrors> {
    let mut kube_args = args.kube.0.clone();
    let options_file = merge_options_file(&mut kube_args, load)?;
    kube_args.gate.get_or_insert(true);
    let kubernetes = configured(&kube_args);
    let mut problems = problems(&kube_args);
    let mut custom = custom_resources(&kube_args, load).unwrap_or_else(|errors| {
        problems.extend(errors.0);
        None
    });
    if let Some(config) = custom.as_mut().and_then(|custom| custom.config.as_mut()) {
        *config = Arc::new(CustomConfig::clone(config).with_valid_names());
    }
    let mut address = |flag: &'static str, text: &str| {
        let parsed = ListenAddress::parse(text);
        parsed.unwrap_or_else(|error| {
            problems.push(ConfigError::Invalid(format!("--{flag}={text}: {error}")));
            ListenAddress::new("", 0)
        })
    };
    let main = Listener {
        address: address("listen", &args.listen),
        flag: "--listen",
        limits: main_limits(&kube_args),
    };
    let telemetry = Listener {
        address: address("telemetry-listen", &args.telemetry_listen),
        flag: "--telemetry-listen",
        limits: TELEMETRY_LIMITS,
    };
    problems.extend(same_address(&main, &telemetry, "listen", "telemetry-listen"));
    let telemetry_port = telemetry.address.port;
    let web_config = match (named(&kube_args.tls_config), named(&args.statsd.0.web_config_file)) {
        (Some(one), Some(other)) if one != other => {
            problems.push(ConfigError::Invalid(format!(
                "--tls-config={one} and --web.config.file={other} are one setting; leave one of them out"
            )));
            None
        }
        (one, other) => one.or(other).map(PathBuf::from),
    };
    none(problems)?;
    // Flags that both sides have are one, with the StatsD side's values.
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
        kube: kubernetes.then(|| kube(&kube_args, budget, custom, telemetry_port)).transpose()?,
        statsd: Some(StatsdConfig { args: args.statsd.0.clone() }),
        node: None,
        options_file,
    })
}

/// Resolves the flags of the name kube-state-metrics.
///
/// # Errors
///
/// The flags, or lines of the options file, that cannot be used.
pub fn kube_state_metrics(args: &KubeArgs, load: Load) -> Result<Config, ConfigErrors> {
    let mut args = args.clone();
    let options_file = merge_options_file(&mut args, load)?;
    let mut problems = problems(&args);
    let custom = custom_resources(&args, load).unwrap_or_else(|errors| {
        problems.extend(errors.0);
        None
    });
    let mut listener = |flag: &'static str, named, host: &str, port: i64, limits| {
        let number = u16::try_from(port).unwrap_or_else(|_| {
            problems.push(ConfigError::Port { flag, value: port });
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
    problems.extend(same_address(&main, &telemetry, "port", "telemetry-port"));
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
        kube: Some(kube(&args, args.budget(BudgetMode::Off), custom, telemetry_port)?),
        statsd: None,
        node: None,
        options_file,
    })
}

fn none(problems: Vec<ConfigError>) -> Result<(), ConfigErrors> {
    if problems.is_empty() { Ok(()) } else { Err(ConfigErrors(problems)) }
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
        name: Name::StatsdExporter,
        main: Listener { address, flag: "--web.listen-address", limits },
        telemetry: None,
        web_config: named(&args.web_config_file).map(PathBuf::from),
        auth_filter: false,
        profiles: Profiles::Everybody,
        gzip: true,
        kube: None,
        statsd: Some(StatsdConfig { args: args.clone() }),
        node: None,
        options_file: None,
    })
}

/// Resolves the flags of `kstatd node`.
///
/// # Errors
///
/// The flags that cannot be used.
pub fn node(args: &NodeArgs) -> Result<Config, ConfigErrors> {
    let mut problems = Vec::new();
    let mut listener = |flag: &'static str, text: &str, limits| {
        let address = ListenAddress::parse(text).unwrap_or_else(|error| {
            problems.push(ConfigError::Invalid(format!("{flag}={text}: {error}")));
            ListenAddress::new("", 0)
        });
        Listener { address, flag, limits }
    };
    let main = listener("--listen", &args.listen, main_limits(&KubeArgs::default()));
    let telemetry = listener("--telemetry-listen", &args.telemetry_listen, TELEMETRY_LIMITS);
    problems.extend(same_address(&main, &telemetry, "listen", "telemetry-listen"));
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
        node: Some(Arc::new(args.clone())),
        options_file: None,
    })
}

fn same_address(
    main: &Listener,
    telemetry: &Listener,
    first: &'static str,
    second: &'static str,
) -> Option<ConfigError> {
    let same = main.address == telemetry.address && main.address.port != 0;
    let address = main.address.to_string();
    same.then_some(ConfigError::SameAddress { first, second, address })
}

fn main_limits(args: &KubeArgs) -> Limits {
    Limits {
        // The head is part of the request: the shorter of the two limits holds.
        read_header: match (
            strconv::limit(args.server_read_header_timeout),
            strconv::limit(args.server_read_timeout),
        ) {
            (Some(header), Some(whole)) => Some(header.min(whole)),
            (header, whole) => header.or(whole),
        },
        write: strconv::limit(args.server_write_timeout),
        // Go's server takes the limit of a request where none is given for the time between two.
        idle: strconv::limit(match args.server_idle_timeout {
            0 => args.server_read_timeout,
            idle => idle,
        }),
    }
}

/// Everything about flags, with the options file merged, for which no personality starts. Ports are not
/// among it: which of them count is the personality's.
pub fn problems(args: &KubeArgs) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    if let Some(error) = web_problem(args) {
        problems.push(ConfigError::Invalid(format!("--tls-config: {error}")));
    }
    problems.extend(selection::problems(args));
    problems
}

/// What is to be made of custom resources, if anything.
///
/// # Errors
///
/// When the configuration cannot be read or understood. A metric that cannot be compiled is one from the second time on:
/// at the start it costs the custom metrics alone, later it must not.
pub fn custom_resources(
    args: &KubeArgs,
    load: Load,
) -> Result<Option<CustomResources>, ConfigErrors> {
    let Some(named) = custom::read(args)? else { return Ok(None) };
    let mut config = None;
    let mut file = named.path.map(|path| OptionsFile { path, content: None });
    match named.content {
        Some(content) => {
            if load == Load::Again {
                content.config.compile().map_err(|error| custom::invalid(&named.what, &error))?;
            }
            for problem in &content.warnings {
                tracing::warn!(config = named.what, "{problem}");
            }
            config = Some(Arc::new(content.config));
            if let Some(file) = &mut file {
                file.content = Some(content.text.into_bytes());
            }
        }
        None => tracing::warn!(
            config = named.what,
            "no custom resource metrics until the file is there"
        ),
    }
    Ok(Some(CustomResources {
        config,
        file,
        families: Arc::new(family_filter(args)?),
        as_original: args.duplicate_series,
        verbosity: args.klog.verbosity,
    }))
}

fn kube(
    args: &KubeArgs,
    budget: Budget,
    custom: Option<CustomResources>,
    telemetry_port: u16,
) -> Result<KubeConfig, ConfigErrors> {
    Ok(KubeConfig {
        kubeconfig: named(&args.kubeconfig).map(PathBuf::from),
        apiserver: named(&args.apiserver),
        resources: if args.custom_resources_only {
            Vec::new()
        } else {
            rendering(args, default_resources)?
        },
        custom,
        namespaces: namespaces(args),
        selector: selector::build(
            &args.namespaces_denylist,
            &args.node,
            args.track_unscheduled_pods,
        ),
        object_limit: u64::try_from(args.object_limit).unwrap_or(0),
        budget: Arc::new(budget),
        use_apiserver_cache: args.use_apiserver_cache,
        staleness_limit: strconv::limit(args.staleness_limit),
        gate: args.gate.unwrap_or(false).then(|| strconv::limit(args.gate_timeout)),
        shard: Shard::new(args.shard, args.total_shards),
        pod: named(&args.pod)
            .zip(named(&args.pod_namespace))
            .map(|(name, namespace)| PodName { namespace, name }),
        telemetry_port,
    })
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
        match kube_state_metrics(&args(argv), Load::First) {
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
    fn values_that_the_original_starts_with() {
        let argv = ["--node=n", "--resources=pods,nodes", "--object-limit=-1", "--shard=5"];
        let config = kube_state_metrics(&args(&argv), Load::First);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let kube = config.kube.expect("kube");
        assert_eq!(kube.selector, "spec.nodeName=n");
        assert_eq!((kube.object_limit, kube.shard), (0, Shard::new(5, 1)));
        let names: Vec<&str> = kube.resources.iter().map(|(one, _)| one.name()).collect();
        assert_eq!(names, ["nodes", "pods"]);
        assert_eq!(config.main.address.to_string(), "[::]:8080");
    }

    #[test]
    fn a_missing_options_file_is_tolerated_when_asked_for() {
        let argv = ["--config=/none", "--continue-without-config"];
        let config = kube_state_metrics(&args(&argv), Load::First);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let file = config.options_file.expect("named");
        assert_eq!((file.path.as_str(), file.content), ("/none", None));
        let again = kube_state_metrics(&args(&argv), Load::Again);
        assert!(again.is_err(), "what runs must not lose what the file said");
    }

    #[test]
    fn a_file_that_is_rejected_leaves_nothing_behind() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let text = "resources: {nodes: {}}\nport: 9\nlabels_allow_list: {nodes: [\"a*b*\"]}\n";
        std::fs::write(file.path(), text).expect("write");
        let path = format!("--config={}", file.path().display());
        let argv = ["--resources=pods", &path, "--continue-without-config"];
        let config = kube_state_metrics(&args(&argv), Load::First);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.main.address.port, 8080);
        let kube = config.kube.expect("kube");
        let names: Vec<&str> = kube.resources.iter().map(|(one, _)| one.name()).collect();
        assert_eq!(names, ["pods"]);
        assert!(kube.resources[0].1.labels.is_empty());
        assert_eq!(config.options_file.expect("named").content, None);
    }

    #[test]
    fn everything_is_named_at_once() {
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
    fn what_protects_is_refused_without_a_cluster_too() {
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
    fn the_web_configuration_has_two_names_and_needs_no_cluster() {
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
        assert_eq!(config.kube.expect("kube").resources.len(), 1);
        let content = config.options_file.expect("file").content;
        assert_eq!(content.expect("usable"), b"resources: {nodes: {}}\nport: 9\n");
    }

    /// As Go's server has it: zero stands for the limit of a request, anything below for none.
    #[test]
    fn idle_connections_have_the_read_limit_where_none_is_given() {
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
