//! Keeping a running process to its flags and files.
//!
//! Files are watched before they are read. When one has another content, or SIGHUP comes, flags and options
//! file are resolved anew; what comes of it is handed to the listeners and to the sides, which
//! keep what they have where the new cannot be had yet, and try again. A newer change takes the place of
//! one under way. Something that cannot be used at all changes nothing.
//!
//! `last_config_reload_successful` is 1 exactly while everything that is served is what the file says.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::listeners::Listeners;
use super::personality::{Personality, Refused, Resolve, Running};
use super::process::file_watch::FileWatch;
use super::sides::{Kind, Trigger};
use super::telemetry::Telemetry;
use crate::cli::config::{Config, Load, OptionsFile};
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::ConfigFile;

/// The first pause after credentials that could not be used, which doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What that pause grows to.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The first configuration of a process, and the watch over its files, which began before they were read.
pub(crate) struct Beginning {
    resolve: Resolve,
    watched: FileWatch,
    /// The configuration.
    pub(crate) config: Config,
}

impl Beginning {
    /// Reads the first configuration.
    ///
    /// # Errors
    ///
    /// What cannot be used.
    pub(crate) fn new(personality: &Personality) -> Result<Self, Refused> {
        let options_file = &personality.options_file;
        let mut watched = FileWatch::new();
        watched.follow((!options_file.is_empty()).then(|| PathBuf::from(options_file)));
        let config = (personality.resolve)(Load::First)?;
        // Before anybody reads those that the file names.
        watched.follow(files(&config, personality.sides));
        Ok(Self { resolve: Arc::clone(&personality.resolve), watched, config })
    }
}

/// The files that decide about a configuration.
fn files(config: &Config, kinds: &[&Kind]) -> Vec<PathBuf> {
    let options = config.options_file.iter().map(|file| PathBuf::from(&file.path));
    options.chain(kinds.iter().flat_map(|kind| (kind.files)(config))).collect()
}

/// What is being done for a change.
enum Step {
    Idle,
    /// Flags and options file are being resolved.
    Resolving(JoinHandle<Result<Config, Refused>>),
    /// Sides get what the new configuration needs.
    Preparing(Box<Config>, JoinHandle<Result<(), String>>),
}

/// What has come of a step.
enum Done {
    Resolved(Result<Result<Config, Refused>, JoinError>),
    Prepared(Result<Result<(), String>, JoinError>),
}

impl Step {
    /// Completes with the step; it may be dropped at any time.
    async fn done(&mut self) -> Done {
        match self {
            Self::Idle => std::future::pending().await,
            Self::Resolving(task) => Done::Resolved(task.await),
            Self::Preparing(_, task) => Done::Prepared(task.await),
        }
    }
}

/// A running process, as far as it follows flags and files.
pub(crate) struct Upkeep {
    resolve: Resolve,
    watched: FileWatch,
    /// The sides that there may be, and those that there are.
    kinds: &'static [&'static Kind],
    sides: Vec<Running>,
    listeners: Listeners,
    metrics: KubeMetrics,
    step: Step,
    /// A file has changed, and what it says was not accepted yet.
    doubt: bool,
    failures: u32,
    retry: Option<Instant>,
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
}

/// The files that metrics tell of.
fn told_of(config: &Config) -> Vec<(ConfigFile, OptionsFile)> {
    let options = config.options_file.iter().map(|file| (ConfigFile::Options, file));
    let custom = config.custom_file().map(|file| (ConfigFile::CustomResources, file));
    options.chain(custom).map(|(which, file)| (which, file.clone())).collect()
}

impl Upkeep {
    /// Keeps what was started.
    pub(crate) fn new(
        beginning: Beginning,
        kinds: &'static [&'static Kind],
        listeners: Listeners,
        sides: Vec<Running>,
        telemetry: &Telemetry,
    ) -> Self {
        let Beginning { resolve, watched, config } = beginning;
        let mut upkeep = Self {
            resolve,
            watched,
            kinds,
            sides,
            listeners,
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

    /// Lets the sides read again what they alone read.
    pub(crate) fn reread(&self, trigger: Trigger) {
        for reread in self.sides.iter().filter_map(|running| running.side.reread()) {
            reread(trigger);
        }
    }

    /// Reads flags and files anew, as SIGHUP asks for.
    pub(crate) fn reload(&mut self) {
        tracing::info!("Changes detected");
        self.resolve_anew();
    }

    fn resolve_anew(&mut self) {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => {}
            Step::Resolving(task) => task.abort(),
            Step::Preparing(_, task) => task.abort(),
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
            () = any_further(&mut self.sides) => Event::Further,
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
        }
        self.judge();
    }

    /// Ends the listeners, answers in flight first, and meanwhile the sides.
    pub(crate) async fn end(mut self) {
        let mut sides: JoinSet<()> =
            self.sides.into_iter().map(|running| running.side.stop()).collect();
        self.listeners.stop().await;
        while sides.join_next().await.is_some() {}
    }

    fn done(&mut self, done: Done) {
        match (done, std::mem::replace(&mut self.step, Step::Idle)) {
            (Done::Resolved(Ok(Ok(config))), _) => self.resolved(config),
            (Done::Prepared(Ok(Ok(()))), Step::Preparing(config, _)) => self.accept(&config),
            // What may have changed before it was watched is read again.
            (Done::Resolved(Ok(Err(refused))), _)
                if self.watched.follow_also(refused.files.clone()) =>
            {
                self.resolve_anew();
            }
            (Done::Resolved(Ok(Err(refused))), _) => self.refuse(&refused.errors, false),
            (Done::Prepared(Ok(Err(error))), _) => self.refuse(&error, true),
            (Done::Resolved(Err(error)) | Done::Prepared(Err(error)), _) => {
                self.refuse(&error, true);
            }
            (Done::Prepared(_), _) => {}
        }
    }

    fn resolved(&mut self, config: Config) {
        if self.watched.follow(files(&config, self.kinds)) {
            // It may have changed before it was watched.
            return self.resolve_anew();
        }
        for kind in self.kinds {
            let is_on = self.sides.iter().any(|running| std::ptr::eq(running.kind, *kind));
            if is_on == (kind.off)(&config).is_some() {
                let name = kind.name;
                let error = format!(
                    "the {name} side is turned on and off at the start only, start the process anew"
                );
                return self.refuse(&error, false);
            }
        }
        let prepared = self.sides.iter_mut().map(|running| running.side.prepare(&config));
        match prepared.collect::<Result<Vec<_>, String>>() {
            Err(error) => self.refuse(&error, false),
            Ok(tasks) => {
                let task = tokio::spawn(async move {
                    for task in tasks.into_iter().flatten() {
                        task.await?;
                    }
                    Ok(())
                });
                self.step = Step::Preparing(Box::new(config), task);
            }
        }
    }

    /// From here on this is what has to be served.
    fn accept(&mut self, config: &Config) {
        let sides = self.sides.iter_mut().map(|running| running.side.reload(config));
        if let Err(error) = sides.collect::<Result<Vec<()>, String>>() {
            return self.refuse(&error, true);
        }
        self.listeners.change(config);
        self.accepted = told_of(config);
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
            && self.sides.iter().all(|running| running.side.status().in_force);
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

/// Completes when a side has come further; it may be dropped at any time.
async fn any_further(sides: &mut [Running]) {
    let mut attending: Vec<_> = sides.iter_mut().map(|running| running.side.attend()).collect();
    std::future::poll_fn(|context| {
        // All of them, so that each is woken.
        let ready = attending
            .iter_mut()
            .filter_map(|task| task.as_mut().poll(context).is_ready().then_some(()));
        if ready.count() > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
