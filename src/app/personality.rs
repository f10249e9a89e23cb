//! The program under each of its names, as one value: sides, listeners, metric names and reload behaviour.
//!
//! All personalities share the [run loop](super::run). To add a side to one, add it to [`Personality::sides`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Notify;

use super::listeners::{Role, Routers};
use super::sides::kubernetes::{self, KUBERNETES};
use super::sides::node::NODE;
use super::sides::statsd::{self, STATSD};
use super::sides::{Features, FileReload, ReloadTrigger, Side, SideKind, Task};
use super::standby::{Standby, gated};
use super::telemetry::{Telemetry, ready};
use crate::cli::config::{self, Config, ConfigError, ConfigErrors, Load, Name};
use crate::cli::kube_flags::KubeArgs;
use crate::cli::native::RunArgs;
use crate::cli::node::NodeArgs;
use crate::cli::shared::Profiles;
use crate::cli::statsd_flags::StatsdArgs;
use crate::exposition::Source;
use crate::server::health::Checks;
use crate::server::pprof;
use crate::server::readiness::Readiness;
use crate::server::router::Router;
use crate::server::routes::native::MetricsEndpoint;
use crate::server::routes::statsd_exporter::Lifecycle;
use crate::server::routes::{
    kube_state_metrics as original_kube, native, statsd_exporter as original_statsd, telemetry,
};
use crate::server::support;
use crate::status::Board;
use crate::telemetry::countable::Countable;
use crate::telemetry::{OwnMetrics, Recorder};

/// Reads the configuration files and resolves them with the flags; may block.
pub(crate) type Resolve = Arc<dyn Fn(Load<'_>) -> Result<Config, ConfigErrors> + Send + Sync>;

/// Returns the files that the flags and the options file name, valid or not; may block.
pub(crate) type NamedFiles = Arc<dyn Fn() -> Vec<PathBuf> + Send + Sync>;

/// The behaviour of the program under one name.
pub(crate) struct Personality {
    pub(crate) name: Name,
    /// The sides that may be enabled, in the order of their families on `/metrics`. They are started in reverse order,
    /// so that StatsD lines are received while the API server is still being contacted.
    pub(crate) sides: &'static [&'static SideKind],
    /// Resolves the flags.
    pub(crate) resolve: Resolve,
    /// Returns the files that the flags name.
    pub(crate) named_files: NamedFiles,
    /// The value of `--config`.
    pub(crate) options_file: Option<PathBuf>,
}

impl Personality {
    fn of_kube_flags(
        name: Name,
        sides: &'static [&'static SideKind],
        flags: &KubeArgs,
        resolve: Resolve,
    ) -> Self {
        let options_file = Some(PathBuf::from(&flags.config)).filter(|path| path != Path::new(""));
        let flags = flags.clone();
        let named_files = Arc::new(move || config::named_files(&flags));
        Self { name, sides, resolve, named_files, options_file }
    }

    /// Returns true if SIGHUP and file changes resolve the flags again. Sides reload their own files in any case.
    pub(crate) fn reloads_flags(&self) -> bool {
        self.name != Name::StatsdExporter
    }

    /// Returns true if own metrics and the sides' metrics share one exposition.
    pub(crate) fn merges_own_metrics(&self) -> bool {
        self.name == Name::StatsdExporter
    }

    /// Returns the log message for the signal that ends the process.
    pub(crate) fn exit_message(&self) -> &'static str {
        match self.name {
            Name::Kstatd | Name::Node => "Ending",
            Name::KubeStateMetrics | Name::StatsdExporter => "Received os signal, exiting",
        }
    }
}

/// A side that has been started.
pub(crate) struct RunningSide {
    pub(crate) kind: &'static SideKind,
    pub(crate) features: Features,
    pub(crate) side: Box<dyn Side>,
}

/// Everything that the routers of a process need.
pub(crate) struct RouterContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) sides: &'a [RunningSide],
    pub(crate) telemetry: &'a Telemetry,
    pub(crate) readiness: &'a Readiness,
    /// The data of the status page.
    pub(crate) board: &'a Arc<Board>,
    /// Notify it to end the process.
    pub(crate) quit: &'a Arc<Notify>,
    /// The other replicas, with `--standby`.
    pub(crate) standby: Option<&'a Standby>,
}

impl RouterContext<'_> {
    fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.sides.iter().map(|running| gated(&running.features, self.standby)).collect()
    }

    fn series(&self) -> Vec<Arc<dyn Countable>> {
        self.sides.iter().filter_map(|running| running.features.series.clone()).collect()
    }

    /// Returns the sides' own metrics together with those in `recorder`.
    fn with_side_metrics(&self, mut recorder: Recorder) -> OwnMetrics {
        for running in self.sides {
            recorder.include(&running.features.telemetry);
        }
        recorder.finish()
    }

    /// Returns all own metrics of the process.
    fn own_metrics(&self) -> OwnMetrics {
        let mut recorder = Recorder::from(self.telemetry.own.clone());
        if let Some(standby) = self.standby {
            recorder.extend(standby.rows());
        }
        self.with_side_metrics(recorder)
    }

    /// Returns the routes for support archives, by the path of the web configuration in use.
    fn support(&self) -> impl Fn(Option<&Path>) -> Router + Send + Sync + 'static {
        let board = Arc::clone(self.board);
        move |web_config| support::routes(&board, web_config.map(Path::to_owned))
    }

    fn checks(&self) -> Checks {
        let mut checks = Checks::default();
        for running in self.sides {
            checks.ready.extend(running.features.health.ready.iter().cloned());
            checks.live.extend(running.features.health.live.iter().cloned());
        }
        checks
    }
}

/// Returns the personality of `kstatd run`.
pub(crate) fn kstatd(args: &RunArgs) -> Personality {
    let flags = args.clone();
    let resolve = move |load: Load<'_>| config::kstatd(&flags, load, kubernetes::is_configured);
    let sides = const { &[&KUBERNETES, &STATSD] };
    Personality::of_kube_flags(Name::Kstatd, sides, &args.kube.0, Arc::new(resolve))
}

/// Returns the personality of kube-state-metrics.
pub(crate) fn kube_state_metrics(args: &KubeArgs) -> Personality {
    let flags = args.clone();
    let resolve = move |load: Load<'_>| config::kube_state_metrics(&flags, load);
    let sides = const { &[&KUBERNETES] };
    Personality::of_kube_flags(Name::KubeStateMetrics, sides, args, Arc::new(resolve))
}

/// Returns the personality of `kstatd node`.
pub(crate) fn node(args: &NodeArgs) -> Personality {
    let (flags, file) = (args.clone(), args.config.clone());
    Personality {
        name: Name::Node,
        sides: const { &[&NODE] },
        resolve: Arc::new(move |load| config::node(&flags, load)),
        named_files: Arc::new(move || file.iter().cloned().collect()),
        options_file: args.config.clone(),
    }
}

/// Returns the personality of statsd_exporter.
pub(crate) fn statsd_exporter(args: &StatsdArgs) -> Personality {
    let flags = args.clone();
    Personality {
        name: Name::StatsdExporter,
        sides: const { &[&STATSD] },
        resolve: Arc::new(move |_| {
            statsd::require_listener(&flags)
                .map_err(|error| ConfigError::from(error.to_string()))
                .and_then(|()| config::statsd_exporter(&flags))
                .map_err(ConfigErrors::from)
        }),
        named_files: Arc::new(Vec::new),
        options_file: None,
    }
}

/// Builds the routers of the listeners.
pub(crate) fn routers(context: &RouterContext<'_>) -> Routers {
    match context.config.name {
        Name::Kstatd | Name::Node => native_routers(context),
        Name::KubeStateMetrics => kube_state_metrics_routers(context),
        Name::StatsdExporter => statsd_exporter_routers(context),
    }
}

/// Builds the routers of `kstatd run` and `kstatd node`.
fn native_routers(context: &RouterContext<'_>) -> Routers {
    let endpoint = |running: &RunningSide| MetricsEndpoint {
        path: running.kind.path,
        about: running.kind.description,
        source: gated(&running.features, context.standby),
        protobuf: running.kind.protobuf,
    };
    let endpoints: Vec<MetricsEndpoint> = context.sides.iter().map(endpoint).collect();
    let (readiness, checks) = (context.readiness.clone(), context.checks());
    let (http, own) = (context.telemetry.http.clone(), context.own_metrics().with_start());
    let board = Arc::clone(context.board);
    let (series, profiles) = (context.series(), context.config.profiles);
    let (lifecycle, standby) = (lifecycle(context), context.standby.cloned());
    let support = context.support();
    Box::new(move |role, gzip, web| match role {
        Role::Main => {
            let readiness = readiness.clone();
            let router =
                native::router(&endpoints, &series, gzip, readiness, &checks, &board, &http);
            match lifecycle.clone() {
                Some(lifecycle) => lifecycle.routes(router),
                None => router,
            }
        }
        Role::Telemetry => {
            let router = telemetry::router(&own, "kstatd", true, None, &checks, &board);
            let router = router.merge(support(web));
            let router = with_polls(router, standby.as_ref());
            match profiles {
                Profiles::ThisHost => router.restrict(pprof::PREFIX),
                Profiles::Everybody => router,
            }
        }
    })
}

/// Adds the path that other replicas poll.
fn with_polls(router: Router, standby: Option<&Standby>) -> Router {
    match standby {
        Some(standby) => standby.route(router),
        None => router,
    }
}

fn kube_state_metrics_routers(context: &RouterContext<'_>) -> Routers {
    let (sources, checks) = (context.sources(), context.checks());
    let livez = context.sides.iter().find_map(|running| running.features.liveness.clone());
    let (http, own) = (context.telemetry.http.clone(), context.own_metrics());
    let (board, series) = (Arc::clone(context.board), context.series());
    let (standby, support) = (context.standby.cloned(), context.support());
    // kstatd's own mode: a replica that is not ready to take over must not replace one that is, in a rollout.
    let synced = context.standby.map(|_| context.readiness.clone());
    Box::new(move |role, gzip, web| match role {
        Role::Main => {
            let (sources, livez) = (sources.clone(), livez.clone());
            original_kube::router(sources, &series, gzip, livez, &checks, &board, &http)
        }
        Role::Telemetry => {
            let name = "kube-state-metrics";
            let router = telemetry::router(&own, name, false, synced.clone(), &checks, &board);
            with_polls(router.merge(support(web)), standby.as_ref())
        }
    })
}

fn statsd_exporter_routers(context: &RouterContext<'_>) -> Routers {
    // The sides' metrics include the own metrics here.
    let sources = context.sources();
    // Own metrics that the original does not have.
    let mut about = Recorder::new();
    about.extend([ready(context.readiness)]);
    context.telemetry.http.log.register(&mut about);
    let about: Arc<dyn Source> = Arc::new(context.with_side_metrics(about));
    let path = context.config.statsd.clone().unwrap_or_default().web_telemetry_path;
    let (lifecycle, http) = (lifecycle(context), context.telemetry.http.clone());
    let board = Arc::clone(context.board);
    let (series, support) = (context.series(), context.support());
    Box::new(move |_, _, web| {
        let (sources, about) = (sources.clone(), Arc::clone(&about));
        let lifecycle = lifecycle.clone();
        original_statsd::router(sources, about, &series, &path, lifecycle, &board, &http)
            .merge(support(web))
    })
}

/// Returns the lifecycle API, if it is enabled.
fn lifecycle(context: &RouterContext<'_>) -> Option<Lifecycle> {
    context.config.statsd.as_ref().filter(|args| args.web_enable_lifecycle)?;
    let file_reloads: Vec<_> =
        context.sides.iter().filter_map(|running| running.features.file_reload.clone()).collect();
    let quit = Arc::clone(context.quit);
    let reload = move || -> Task<'static, ()> {
        // They go on if the client does not wait for the answer.
        let start = |reload: &FileReload| tokio::spawn(reload(ReloadTrigger::LifecycleApi));
        let reloads: Vec<_> = file_reloads.iter().map(start).collect();
        Box::pin(async move {
            for reload in reloads {
                // The side logs its failure.
                let _ = reload.await;
            }
        })
    };
    Some(Lifecycle { reload: Arc::new(reload), quit: Arc::new(move || quit.notify_one()) })
}

/// Returns the error message for a configuration without any side.
pub(crate) fn no_sides_error(name: Name) -> &'static str {
    match name {
        Name::Kstatd => {
            "nothing to do: every StatsD listener is disabled and no Kubernetes cluster is configured"
        }
        Name::KubeStateMetrics => "no Kubernetes side is configured",
        Name::StatsdExporter => "no StatsD side is configured",
        Name::Node => "nothing to do: set --kubelet, --processes, --walk, --walk-path or --quotas",
    }
}
