//! The sources of metrics: a [`Side`] for each.
//!
//! The [run loop](super::run) uses sides only through this trait. Each side is one file here, with a [`SideKind`] that
//! describes it before it is started and an entry in each [personality](super::personality) that has it. Sides know
//! neither each other nor the paths and listeners that serve them.

pub(crate) mod kubernetes;
pub(crate) mod node;
pub(crate) mod statsd;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use crate::cli::config::Config;
use crate::exposition::Source;
use crate::exposition::family::Collect;
use crate::kube::FirstSync;
use crate::pods::PodIndex;
use crate::server::authorisation::Reviews;
use crate::server::health::Checks;
use crate::server::routes::LivenessProbe;
use crate::statsd::Pipeline;
use crate::status::Reporter;
use crate::telemetry::countable::Countable;
use crate::telemetry::{KubeMetrics, Recorder};
use crate::tools::CommandError;
use crate::util::lock::Lock;

/// A boxed future.
pub(crate) type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Returns true for the name of a family that another side or the process itself serves.
pub(crate) type ReservedNames = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The family names of each side and of the process itself, so that no side serves a family of another. Names
/// change with the configuration.
#[derive(Default)]
pub(crate) struct FamilyNames(Lock<Owners>);

#[derive(Default)]
struct Owners {
    names: BTreeMap<&'static str, Arc<HashSet<String>>>,
    /// Sides to notify when the names of others change.
    subscribers: Vec<(&'static str, Subscriber)>,
}

/// Notifies a side of the names that others serve.
type Subscriber = Box<dyn Fn(ReservedNames) + Send>;

impl FamilyNames {
    /// Sets the names of `owner` and notifies the others.
    pub(crate) fn set(&self, owner: &'static str, names: impl IntoIterator<Item = String>) {
        let mut owners = self.0.lock();
        let names = Arc::new(names.into_iter().collect());
        if owners.names.insert(owner, Arc::clone(&names)) == Some(names) {
            return;
        }
        for (side, notify) in owners.subscribers.iter().filter(|(side, _)| *side != owner) {
            notify(owners.of_others(side));
        }
    }

    /// Returns the names of `owner`.
    pub(crate) fn of(&self, owner: &'static str) -> Arc<HashSet<String>> {
        let owners = self.0.lock();
        owners.names.get(owner).cloned().unwrap_or_default()
    }

    /// Returns a predicate for the names of all owners but `side`.
    pub(crate) fn of_others(&self, side: &'static str) -> ReservedNames {
        self.0.lock().of_others(side)
    }

    /// Calls `notify` whenever the names of owners other than `side` change.
    pub(crate) fn subscribe(
        &self,
        side: &'static str,
        notify: impl Fn(ReservedNames) + Send + 'static,
    ) {
        let mut owners = self.0.lock();
        owners.subscribers.push((side, Box::new(notify)));
    }
}

impl Owners {
    fn of_others(&self, side: &'static str) -> ReservedNames {
        let others = self.names.iter().filter(|(owner, _)| **owner != side);
        let others: Vec<_> = others.map(|(_, names)| Arc::clone(names)).collect();
        Arc::new(move |name| others.iter().any(|names| names.contains(name)))
    }
}

/// Reloads the files that only this side reads and logs the result. The future does not block.
pub(crate) type FileReload = Arc<dyn Fn(ReloadTrigger) -> Task<'static, ()> + Send + Sync>;

/// The reason for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadTrigger {
    /// SIGHUP.
    Sighup,
    /// A request to the lifecycle API.
    LifecycleApi,
}

/// The static description of a side.
pub(crate) struct SideKind {
    /// The display name.
    pub(crate) name: &'static str,
    /// The path that serves this side alone.
    pub(crate) path: &'static str,
    /// The description on the landing page.
    pub(crate) description: &'static str,
    /// The source supports protobuf.
    pub(crate) protobuf: bool,
    /// Returns the log message if the configuration disables this side.
    pub(crate) disabled_reason: fn(&Config) -> Option<&'static str>,
    /// Returns the files, besides the options file, whose changes may affect this side.
    pub(crate) files: fn(&Config) -> Vec<PathBuf>,
    /// Returns the names of all families that this side may serve, if they are known in advance.
    pub(crate) names: fn(&Config) -> BTreeSet<String>,
    /// Starts the side.
    pub(crate) start: for<'a> fn(StartContext<'a>) -> StartFuture<'a>,
}

/// A future that resolves to a started side, or to the reason why it cannot start.
pub(crate) type StartFuture<'a> = Task<'a, Result<Box<dyn Side>, CommandError>>;

/// A future that resolves when a side is ready for a new configuration.
pub(crate) type PrepareFuture = Task<'static, Result<(), CommandError>>;

/// The arguments for starting a side.
pub(crate) struct StartContext<'a> {
    pub(crate) config: &'a Config,
    /// The Kubernetes side's metrics.
    pub(crate) metrics: &'a KubeMetrics,
    /// The family names of all sides.
    pub(crate) names: &'a Arc<FamilyNames>,
    /// The pods that send StatsD lines, if lines get labels of them.
    pub(crate) pods: Option<&'a Arc<PodIndex>>,
    /// The own metrics to merge into this side's exposition.
    pub(crate) merged_metrics: Option<Arc<dyn Collect>>,
}

/// A condition for readiness.
pub(crate) struct ReadinessCondition {
    /// The description for operators.
    pub(crate) description: &'static str,
    /// Completes when the condition is met.
    pub(crate) met: Task<'static, ()>,
}

/// The state of a side's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigStatus {
    /// The latest configuration is being served in full.
    pub(crate) in_force: bool,
    /// A file that only this side reads and whose current content is rejected.
    pub(crate) rejected: Option<RejectedFile>,
}

/// A file whose current content is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RejectedFile {
    pub(crate) path: String,
    /// The reason.
    pub(crate) error: String,
}

/// What a side offers to the rest of the process.
pub(crate) struct Features {
    /// The metrics of this side, valid until the end of the process.
    pub(crate) source: Arc<dyn Source>,
    /// The lists without which the source is not exposed.
    pub(crate) first_sync: Option<Arc<FirstSync>>,
    /// The series for cardinality reports.
    pub(crate) series: Option<Arc<dyn Countable>>,
    /// The side's own metrics, in addition to those in [`Telemetry`](super::telemetry::Telemetry).
    pub(crate) telemetry: Recorder,
    /// The condition for the source to be complete after the start.
    pub(crate) ready: Option<ReadinessCondition>,
    /// The probe behind `/livez`.
    pub(crate) liveness: Option<LivenessProbe>,
    /// The status page's data source for this side.
    pub(crate) reporter: Arc<dyn Reporter>,
    /// The detailed health checks: whether the side's data is complete and up to date, and whether its tasks are running.
    pub(crate) health: Checks,
    /// The StatsD lines to share with other replicas.
    pub(crate) lines: Option<Arc<Pipeline>>,
    /// The API server client that reviews callers of the metrics endpoints.
    pub(crate) reviews: Option<Arc<dyn Reviews>>,
    /// The reload of files that are only read on SIGHUP or a lifecycle request.
    pub(crate) file_reload: Option<FileReload>,
    /// The cleanup for a signal that arrives while the process is starting.
    pub(crate) abort: Option<Task<'static, ()>>,
}

/// A running side. The default methods are for sides that no configuration changes.
pub(crate) trait Side: Send {
    /// Returns what this side offers. Asked once.
    fn features(&self) -> Features;

    /// Prepares for a configuration, which may take time; the current one stays in force. A later call replaces an
    /// earlier one. `None` if there is nothing to prepare.
    ///
    /// # Errors
    ///
    /// Returns the reason why the configuration can never be applied. Errors of the returned task may be temporary.
    fn prepare(&mut self, config: &Config) -> Result<Option<PrepareFuture>, CommandError> {
        let _ = config;
        Ok(None)
    }

    /// Applies a configuration that was prepared.
    ///
    /// # Errors
    ///
    /// Returns the reason why the current configuration stays in force; may be temporary.
    fn reload(&mut self, config: &Config) -> Result<(), CommandError> {
        let _ = config;
        Ok(())
    }

    /// Performs periodic work. Completes when [`Side::status`] may have changed; cancel-safe.
    fn next_event(&mut self) -> Task<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Returns the state of the configuration.
    fn status(&self) -> ConfigStatus {
        ConfigStatus { in_force: true, rejected: None }
    }

    /// Stops the side. Its source keeps serving the last data.
    fn stop(self: Box<Self>) -> Task<'static, ()>;
}
