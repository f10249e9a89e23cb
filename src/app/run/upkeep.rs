//! Keeping a running process to its flags and files.
//!
//! Files are watched before they are read. When one has another content, or SIGHUP comes, flags and options
//! file are resolved anew; what comes of it is handed to the listeners and to the Kubernetes side, which
//! keep what they have where the new cannot be had yet, and try again. A newer change takes the place of
//! one under way. Something that cannot be used at all changes nothing.
//!
//! `last_config_reload_successful` is 1 exactly while everything that is served is what the file says.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until};

use crate::app::kube_side;
use crate::app::kube_side::{Connection, KubeSide};
use crate::app::listeners::Listeners;
use crate::app::process::file_watch::FileWatch;
use crate::app::telemetry::Telemetry;
use crate::cli::config::{Config, ConfigErrors, Load, OptionsFile};
use crate::kube::{ClientError, PipelineHandle};
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::ConfigFile;

/// The first pause after credentials that could not be used, which doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What that pause grows to.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reads the options file and resolves it with the flags; it may block.
pub(crate) type Resolve = Arc<dyn Fn(Load) -> Result<Config, ConfigErrors> + Send + Sync>;

/// The first configuration of a process, and the watch over its files, which began before they were read.
pub(crate) struct Beginning {
    resolve: Resolve,
    watched: FileWatch,
    /// The configuration.
    pub(crate) config: Config,
}

impl Beginning {
    /// Reads the first configuration. `options_file` is the value of `--config`.
    ///
    /// # Errors
    ///
    /// What cannot be used.
    pub(crate) fn new(resolve: Resolve, options_file: &str) -> Result<Self, ConfigErrors> {
        let mut watched = FileWatch::new();
        watched.follow((!options_file.is_empty()).then(|| PathBuf::from(options_file)));
        let config = resolve(Load::First)?;
        // Before anybody reads those that the file names.
        watched.follow(files(&config));
        Ok(Self { resolve, watched, config })
    }

    /// Starts the Kubernetes side, if there is one.
    ///
    /// # Errors
    ///
    /// What keeps it from starting.
    pub(crate) async fn start_side(
        &self,
        telemetry: &Telemetry,
    ) -> Result<Option<KubeSide>, ClientError> {
        match &self.config.kube {
            Some(kube) => {
                KubeSide::start(kube, self.config.personality, &telemetry.kube).await.map(Some)
            }
            None => Ok(None),
        }
    }
}

/// The files that decide about a configuration.
fn files(config: &Config) -> Vec<PathBuf> {
    let options = config.options_file.iter().map(|file| PathBuf::from(&file.path));
    let kube = config.kube.iter().flat_map(|kube| kube_side::files(kube, config.personality));
    let custom = custom_file(config).map(|file| PathBuf::from(&file.path));
    options.chain(kube).chain(custom).collect()
}

/// The file that says what is made of custom resources.
fn custom_file(config: &Config) -> Option<&OptionsFile> {
    config.kube.as_ref()?.custom.as_ref()?.file.as_ref()
}

/// What is being done for a change.
enum Step {
    Idle,
    /// Flags and options file are being resolved.
    Resolving(JoinHandle<Result<Config, ConfigErrors>>),
    /// Credentials for the new configuration are being read.
    Connecting(Box<Config>, JoinHandle<Result<Connection, ClientError>>),
}

/// What has come of a step.
enum Done {
    Resolved(Result<Result<Config, ConfigErrors>, JoinError>),
    Connected(Result<Result<Connection, ClientError>, JoinError>),
}

impl Step {
    /// Completes with the step; it may be dropped at any time.
    async fn done(&mut self) -> Done {
        match self {
            Self::Idle => std::future::pending().await,
            Self::Resolving(task) => Done::Resolved(task.await),
            Self::Connecting(_, task) => Done::Connected(task.await),
        }
    }
}

/// A running process, as far as it follows flags and files.
pub(crate) struct Upkeep {
    resolve: Resolve,
    watched: FileWatch,
    listeners: Listeners,
    side: Option<KubeSide>,
    situation: Option<PipelineHandle>,
    metrics: KubeMetrics,
    step: Step,
    /// A file has changed, and what it says was not accepted yet.
    doubt: bool,
    failures: u32,
    retry: Option<Instant>,
    /// Told when the cluster defines other custom resources than before.
    definitions: Option<watch::Receiver<u64>>,
    /// The options file that was accepted last, and the file about custom resources.
    accepted: Vec<(ConfigFile, OptionsFile)>,
    /// Whether that is in force and was said to be.
    claimed: bool,
    /// Whether anything was accepted since the start.
    reloaded: bool,
}

enum Event {
    FileChanged,
    Done(Done),
    Retry,
    /// Something has come further by itself.
    Further,
    /// The cluster defines other custom resources.
    Defined,
}

/// The files that metrics tell of.
fn told_of(config: &Config) -> Vec<(ConfigFile, OptionsFile)> {
    let options = config.options_file.iter().map(|file| (ConfigFile::Options, file));
    let custom = custom_file(config).map(|file| (ConfigFile::CustomResources, file));
    options.chain(custom).map(|(which, file)| (which, file.clone())).collect()
}

impl Upkeep {
    /// Keeps what was started.
    pub(crate) fn new(
        beginning: Beginning,
        listeners: Listeners,
        side: Option<KubeSide>,
        telemetry: &Telemetry,
    ) -> Self {
        let Beginning { resolve, watched, config } = beginning;
        let mut upkeep = Self {
            resolve,
            watched,
            listeners,
            situation: side.as_ref().map(KubeSide::handle),
            definitions: side.as_ref().and_then(KubeSide::definitions),
            side,
            metrics: telemetry.kube.clone(),
            step: Step::Idle,
            doubt: false,
            failures: 0,
            retry: None,
            accepted: told_of(&config),
            claimed: false,
            reloaded: false,
        };
        for (which, file) in &upkeep.accepted {
            upkeep.metrics.config_failed(*which, &file.path);
        }
        upkeep.judge();
        upkeep
    }

    /// Reads flags and files anew, as SIGHUP asks for.
    pub(crate) fn reload(&mut self) {
        tracing::info!("Changes detected");
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => {}
            Step::Resolving(task) => task.abort(),
            Step::Connecting(_, task) => task.abort(),
        }
        self.retry = None;
        let resolve = Arc::clone(&self.resolve);
        let task = tokio::task::spawn_blocking(move || resolve(Load::Again));
        self.step = Step::Resolving(task);
    }

    /// Looks after everything: completes when something was done. It may be dropped at any time.
    pub(crate) async fn attend(&mut self) {
        let retry = self.retry;
        let event = tokio::select! {
            () = self.watched.changed() => Event::FileChanged,
            done = self.step.done() => Event::Done(done),
            () = self.listeners.attend() => Event::Further,
            () = further(&mut self.situation) => Event::Further,
            () = resharded(&mut self.side) => Event::Further,
            () = defined(&mut self.definitions) => Event::Defined,
            () = until(retry) => Event::Retry,
        };
        match event {
            Event::FileChanged => {
                self.doubt = true;
                self.failures = 0;
                self.reload();
            }
            Event::Retry => self.reload(),
            Event::Done(done) => self.done(done),
            Event::Further => {}
            Event::Defined => {
                if let Some(side) = &mut self.side {
                    side.refresh();
                }
            }
        }
        self.judge();
    }

    /// Ends the listeners and the Kubernetes side, answers in flight first.
    pub(crate) async fn end(mut self) {
        self.listeners.stop().await;
        if let Some(side) = self.side.take() {
            side.stop().await;
        }
    }

    fn done(&mut self, done: Done) {
        match (done, std::mem::replace(&mut self.step, Step::Idle)) {
            (Done::Resolved(Ok(Ok(config))), _) => self.resolved(config),
            (Done::Connected(Ok(Ok(connection))), Step::Connecting(config, _)) => {
                self.accept(*config, Some(connection));
            }
            (Done::Resolved(Ok(Err(error))), _) => self.refuse(&error, false),
            (Done::Connected(Ok(Err(error))), _) => self.refuse(&error, true),
            (Done::Resolved(Err(error)) | Done::Connected(Err(error)), _) => {
                self.refuse(&error, true);
            }
            (Done::Connected(_), _) => {}
        }
    }

    fn resolved(&mut self, config: Config) {
        self.watched.follow(files(&config));
        match (&config.kube, &self.side) {
            (Some(kube), Some(side)) if kube.pod.as_ref() != side.pod() => self.refuse(
                &"automatic sharding follows the pod named at the start, start the process anew",
                false,
            ),
            (Some(kube), Some(side)) => {
                let (kube, personality) = (kube.clone(), config.personality);
                let current = Some(side.connection().clone());
                let task =
                    tokio::spawn(async move { Connection::open(&kube, personality, current).await });
                self.step = Step::Connecting(Box::new(config), task);
            }
            (None, None) => self.accept(config, None),
            _ => self.refuse(
                &"the Kubernetes side is turned on and off at the start only, start the process anew",
                false,
            ),
        }
    }

    /// From here on this is what has to be served.
    fn accept(&mut self, config: Config, connection: Option<Connection>) {
        self.listeners.change(&config);
        if let (Some(side), Some(kube), Some(connection)) =
            (&mut self.side, &config.kube, connection)
        {
            side.change(kube, connection);
            self.definitions = side.definitions();
        }
        self.accepted = told_of(&config);
        self.doubt = false;
        self.failures = 0;
        self.claimed = false;
        self.reloaded = true;
        for (which, file) in &self.accepted {
            self.metrics.config_failed(*which, &file.path);
        }
    }

    /// Nothing changes; what may be a matter of time is tried again.
    fn refuse(&mut self, error: &dyn std::fmt::Display, again: bool) {
        self.doubt = true;
        if again {
            let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
            self.failures += 1;
            self.retry = Some(Instant::now() + pause);
        }
        tracing::error!(
            %error,
            retry_in = again.then_some(tracing::field::debug(self.retry.map(|at| at - Instant::now()))),
            "The new configuration is not usable, the old one stays in force"
        );
    }

    /// Tells by gauge and log whether what is served is what the file says.
    fn judge(&mut self) {
        let in_force = !self.doubt
            && self.listeners.is_in_force()
            && self.side.as_ref().is_none_or(KubeSide::is_in_force);
        if in_force == self.claimed {
            return;
        }
        self.claimed = in_force;
        if in_force && self.reloaded {
            tracing::info!("The new configuration is in force");
        }
        for (which, OptionsFile { path, content }) in &self.accepted {
            match content {
                Some(content) if in_force => {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH);
                    let now = now.map_or(0.0, |since| since.as_secs_f64());
                    self.metrics.config_loaded(*which, path, content, now);
                }
                _ => self.metrics.config_failed(*which, path),
            }
        }
    }
}

/// Completes when the Kubernetes side has come further.
async fn further(situation: &mut Option<PipelineHandle>) {
    match situation {
        Some(situation) => situation.changed().await,
        None => std::future::pending().await,
    }
}

/// Completes when the Kubernetes side follows another share of the objects.
async fn resharded(side: &mut Option<KubeSide>) {
    match side {
        Some(side) => side.reshard().await,
        None => std::future::pending().await,
    }
}

/// Completes when the cluster defines other custom resources than before.
async fn defined(definitions: &mut Option<watch::Receiver<u64>>) {
    let changed = match definitions {
        Some(definitions) => definitions.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        // Nobody looks for them, or does any more.
        std::future::pending::<()>().await;
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
