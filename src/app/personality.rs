//! What the program is under each of its names, as one value: sides, listeners, names, and what a reload reads again.
//!
//! The [run loop](super::run) is the same for all of them. A side becomes part of a name by its row in
//! [`Personality::sides`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;

use super::listeners::{Role, Routers};
use super::sides::kubernetes::{self, KUBERNETES};
use super::sides::node::NODE;
use super::sides::statsd::{self, STATSD};
use super::sides::{Kind, Side, Trigger};
use super::telemetry::Telemetry;
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
use crate::server::routes::native::Part;
use crate::server::routes::statsd_exporter::Lifecycle;
use crate::server::routes::{
    kube_state_metrics as original_kube, native, statsd_exporter as original_statsd, telemetry,
};
use crate::status::Board;
use crate::telemetry::countable::Countable;
use crate::telemetry::metric::Row;
use crate::telemetry::{OwnMetrics, Recorder};

/// Reads the options file and resolves it with the flags; it may block.
pub(crate) type Resolve = Arc<dyn Fn(Load) -> Result<Config, Refused> + Send + Sync>;

/// Flags or an options file that cannot be used.
pub(crate) struct Refused {
    /// Why.
    pub(crate) errors: ConfigErrors,
    /// The files that they name: what has to be mended may be in one of them.
    pub(crate) files: Vec<PathBuf>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.errors.fmt(f)
    }
}

/// Why these flags are refused.
fn refused(flags: &KubeArgs, load: Load) -> impl FnOnce(ConfigErrors) -> Refused + use<'_> {
    // A start is not tried again, and what it has read may be a pipe.
    let again = load == Load::Again;
    move |errors| {
        let files = if again { config::named_files(flags) } else { Vec::new() };
        Refused { errors, files }
    }
}

/// What the program is under one name.
pub(crate) struct Personality {
    /// The sides it may have, in the order in which `/metrics` has them. They are started from the last to the first:
    /// who sends lines does not wait until an API server answers.
    pub(crate) sides: &'static [&'static Kind],
    /// What it is called.
    pub(crate) program: &'static str,
    /// Resolves the flags.
    pub(crate) resolve: Resolve,
    /// The value of `--config`.
    pub(crate) options_file: String,
    /// Whether SIGHUP and changed files resolve the flags anew; what sides read again at SIGHUP is theirs.
    pub(crate) follows_flags: bool,
    /// What is counted.
    pub(crate) telemetry: fn(&Config, &Readiness) -> Telemetry,
    /// Whether what is counted stands in one body with what the sides have.
    pub(crate) one_body: bool,
    /// The paths of the listeners.
    pub(crate) routers: fn(&Serving<'_>) -> Routers,
    /// Says in the log where a listener is.
    pub(crate) announce: fn(Role, SocketAddr),
    /// What the log says of the signal that ends the process.
    pub(crate) ending: &'static str,
}

/// A side that runs.
pub(crate) struct Running {
    pub(crate) kind: &'static Kind,
    pub(crate) side: Box<dyn Side>,
}

/// What a process serves.
pub(crate) struct Serving<'a> {
    pub(crate) config: &'a Config,
    pub(crate) sides: &'a [Running],
    pub(crate) telemetry: &'a Telemetry,
    pub(crate) readiness: &'a Readiness,
    /// What the status page shows.
    pub(crate) board: &'a Arc<Board>,
    /// Ends the process when it is notified.
    pub(crate) quit: &'a Arc<Notify>,
}

impl Serving<'_> {
    fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.sides.iter().map(|running| running.side.source()).collect()
    }

    fn series(&self) -> Vec<Arc<dyn Countable>> {
        self.sides.iter().filter_map(|running| running.side.series()).collect()
    }

    /// What sides say about themselves, and what is in `recorder`, as one.
    fn about(&self, mut recorder: Recorder) -> OwnMetrics {
        for running in self.sides {
            running.side.telemetry(&mut recorder);
        }
        recorder.finish()
    }

    /// All own metrics.
    fn own(&self) -> OwnMetrics {
        let mut recorder = Recorder::default();
        recorder.add(self.telemetry.own.clone());
        self.about(recorder)
    }

    fn checks(&self) -> Checks {
        let health = self.sides.iter().filter_map(|running| running.side.health());
        let (ready, live) = health.map(|health| (health.ready, health.live)).unzip();
        Checks { ready, live }
    }
}

/// The program under its own name.
pub(crate) fn kstatd(args: &RunArgs) -> Personality {
    let flags = args.clone();
    Personality {
        sides: const { &[&KUBERNETES, &STATSD] },
        program: "kstatd",
        resolve: Arc::new(move |load| {
            config::kstatd(&flags, load, kubernetes::is_configured)
                .map_err(refused(&flags.kube.0, load))
        }),
        options_file: args.kube.0.config.clone(),
        follows_flags: true,
        telemetry: |config, readiness| {
            Telemetry::new(Recorder::new(), |recorder, http, kube| {
                recorder.rows([ready(readiness)]);
                http.register_duration(recorder);
                // Reloads of the options file are counted there too.
                if config.kube.is_some() || config.options_file.is_some() {
                    kube.register(recorder);
                }
            })
        },
        one_body: false,
        routers: own_routers,
        announce,
        ending: "ending",
    }
}

/// The program as `kstatd node`.
pub(crate) fn node(args: &NodeArgs) -> Personality {
    let flags = args.clone();
    Personality {
        sides: const { &[&NODE] },
        program: "kstatd node",
        resolve: Arc::new(move |_| {
            config::node(&flags).map_err(|errors| Refused { errors, files: Vec::new() })
        }),
        options_file: String::new(),
        follows_flags: false,
        telemetry: |_, readiness| {
            Telemetry::new(Recorder::new(), |recorder, http, _| {
                recorder.rows([ready(readiness)]);
                http.register_duration(recorder);
            })
        },
        one_body: false,
        routers: own_routers,
        announce,
        ending: "ending",
    }
}

/// Those of kstatd's own names.
fn own_routers(serving: &Serving<'_>) -> Routers {
    let part = |Running { kind, side }: &Running| Part {
        path: kind.path,
        about: kind.about,
        source: side.source(),
        protobuf: kind.protobuf,
    };
    let parts: Vec<Part> = serving.sides.iter().map(part).collect();
    let (readiness, checks) = (serving.readiness.clone(), serving.checks());
    let (http, own) = (serving.telemetry.http.clone(), serving.own());
    let board = Arc::clone(serving.board);
    let (series, profiles) = (serving.series(), serving.config.profiles);
    Box::new(move |role, gzip| match role {
        Role::Main => {
            native::router(&parts, &series, gzip, readiness.clone(), &checks, &board, &http)
        }
        Role::Telemetry => {
            let router = telemetry::router(&own, "kstatd", true, &checks, &board);
            match profiles {
                Profiles::ThisHost => router.kept_from_strangers(pprof::PREFIX),
                Profiles::Everybody => router,
            }
        }
    })
}

/// The program under the name kube-state-metrics.
pub(crate) fn kube_state_metrics(args: &KubeArgs) -> Personality {
    let flags = args.clone();
    Personality {
        sides: const { &[&KUBERNETES] },
        program: "kube-state-metrics",
        resolve: Arc::new(move |load| {
            config::kube_state_metrics(&flags, load).map_err(refused(&flags, load))
        }),
        options_file: args.config.clone(),
        follows_flags: true,
        telemetry: |_, readiness| {
            Telemetry::new(Recorder::new(), |recorder, http, kube| {
                recorder.rows([ready(readiness)]);
                http.register_duration(recorder);
                kube.register(recorder);
                recorder.kube_build_info();
            })
        },
        one_body: false,
        routers: |serving| {
            let (sources, checks) = (serving.sources(), serving.checks());
            let livez = serving.sides.iter().find_map(|running| running.side.liveness());
            let (http, own) = (serving.telemetry.http.clone(), serving.own());
            let (board, series) = (Arc::clone(serving.board), serving.series());
            Box::new(move |role, gzip| match role {
                Role::Main => {
                    let livez = livez.clone();
                    let sources = sources.clone();
                    original_kube::router(sources, &series, gzip, livez, &checks, &board, &http)
                }
                Role::Telemetry => {
                    telemetry::router(&own, "kube-state-metrics", false, &checks, &board)
                }
            })
        },
        announce,
        ending: ENDING,
    }
}

/// The program under the name statsd_exporter.
pub(crate) fn statsd_exporter(args: &StatsdArgs) -> Personality {
    let flags = args.clone();
    Personality {
        sides: const { &[&STATSD] },
        program: "statsd_exporter",
        resolve: Arc::new(move |_| {
            let invalid = |error: statsd::StatsdError| ConfigError::Invalid(error.to_string());
            statsd::require_listener(&flags)
                .map_err(invalid)
                .and_then(|()| config::statsd_exporter(&flags))
                .map_err(|error| Refused { errors: error.into(), files: Vec::new() })
        }),
        options_file: String::new(),
        follows_flags: false,
        telemetry: |_, _| {
            Telemetry::new(Recorder::process(), |recorder, http, _| http.register_scrapes(recorder))
        },
        one_body: true,
        routers: |serving| {
            // Own metrics are among those of the side.
            let sources = serving.sources();
            // Where the original has nothing.
            let mut about = Recorder::new();
            about.rows([ready(serving.readiness)]);
            let about: Arc<dyn Source> = Arc::new(serving.about(about));
            let args = serving.config.statsd.as_ref().map(|statsd| statsd.args.clone());
            let args = args.unwrap_or_default();
            let lifecycle = args.web_enable_lifecycle.then(|| lifecycle(serving));
            let http = serving.telemetry.http.clone();
            let board = Arc::clone(serving.board);
            let series = serving.series();
            Box::new(move |_, _| {
                let path = &args.web_telemetry_path;
                original_statsd::router(
                    sources.clone(),
                    Arc::clone(&about),
                    &series,
                    path,
                    lifecycle.clone(),
                    &board,
                    &http,
                )
            })
        },
        announce: |_, address| tracing::info!(addr = %address, "Accepting Prometheus Requests"),
        ending: ENDING,
    }
}

/// Whether the process is ready, as `/readyz` tells it.
fn ready(readiness: &Readiness) -> Row {
    let readiness = readiness.clone();
    Row::gauge(
        "kstatd_ready",
        "Whether the start is over: every first list is complete, or was refused.",
        move || f64::from(readiness.waiting_for().is_empty()),
    )
}

/// What the originals' logs say when a signal ends them.
const ENDING: &str = "Received os signal, exiting";

fn announce(role: Role, address: SocketAddr) {
    match role {
        Role::Main => tracing::info!(%address, "Started metrics server"),
        Role::Telemetry => tracing::info!(%address, "Started self metrics server"),
    }
}

fn lifecycle(serving: &Serving<'_>) -> Lifecycle {
    let rereads: Vec<_> =
        serving.sides.iter().filter_map(|running| running.side.reread()).collect();
    let quit = Arc::clone(serving.quit);
    Lifecycle {
        reload: Arc::new(move || rereads.iter().for_each(|reread| reread(Trigger::Request))),
        quit: Arc::new(move || quit.notify_one()),
    }
}

/// What there is under a name that has no side, for the log.
pub(crate) fn nothing_to_do(name: Name) -> &'static str {
    match name {
        Name::Kstatd => {
            "nothing to do: no StatsD listener is on and no Kubernetes cluster is configured"
        }
        Name::KubeStateMetrics => "no Kubernetes side is configured",
        Name::StatsdExporter => "no StatsD side is configured",
        Name::Node => {
            "nothing to do: no kubelet is named, and nothing is to be walked (--kubelet, --walk, --walk-path)"
        }
    }
}
