//! Reloads the configuration of a running process when its flags' files change or SIGHUP arrives.
//!
//! Files are watched before they are read. After a change, the flags and files are resolved again on a blocking thread.
//! Files are independent: if one is invalid or its file system does not answer, its last valid content stays in use
//! while changes to the others are applied. The result is handed to the listeners and sides; they keep their current
//! state where the new one is not available yet and retry. A newer change replaces one in progress.
//!
//! `last_config_reload_successful` is 1 exactly while the file's current content is served.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::future::select_all;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::listeners::Listeners;
use super::personality::{Personality, RunningSide};
use super::process::file_watch::FileWatch;
use super::sides::kubernetes::own_identity;
use super::sides::{RejectedFile, ReloadTrigger, SideKind};
use super::standby::Standby;
use super::telemetry::{ConfigFiles, Telemetry};
use crate::cli::config::{Config, ConfigErrors, FilesInUse, Load, OptionsFile};
use crate::config_file::reader;
use crate::status;
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::ConfigFile;
use crate::tools::CommandError;
use crate::util::waiting;

/// Initial backoff after a configuration could not be applied; doubles with each failure.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// Upper limit of the backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Reads the initial configuration. Also returns the watch on its files, which started before they were read.
///
/// # Errors
///
/// Returns every problem that prevents a start with it.
pub(crate) fn first_config(personality: &Personality) -> Result<(FileWatch, Config), ConfigErrors> {
    let watched = FileWatch::new();
    // Those that flags name; options and the environment can name others.
    let named = personality.options_file.iter().cloned().chain((personality.named_files)());
    watched.files().follow(named);
    loop {
        let config = (personality.resolve)(Load::First)?;
        // A file that was not watched until now may have changed since it was read.
        if !watched.files().follow(files(&config, personality.sides)) {
            return Ok((watched, config));
        }
    }
}

/// Returns the files that a configuration depends on.
fn files(config: &Config, kinds: &[&SideKind]) -> Vec<PathBuf> {
    let options = config.options_file.iter().map(|file| PathBuf::from(&file.path));
    options.chain(kinds.iter().flat_map(|kind| (kind.files)(config))).collect()
}

/// The result of a completed step.
enum StepResult {
    Resolved(Result<Config, ConfigErrors>),
    Prepared(Config, Result<(), CommandError>),
}

/// One file of the current configuration.
struct File {
    kind: ConfigFile,
    /// The last valid content, and the reason why the current one is rejected.
    file: OptionsFile,
    /// True if the content is being served.
    is_served: bool,
    /// The last value of `last_config_reload_successful`, and the time of the last change to 1.
    is_reported: Option<bool>,
    loaded: Option<f64>,
}

impl File {
    fn description(&self) -> &'static str {
        match self.kind {
            ConfigFile::Options => "options file",
            ConfigFile::CustomResources => "custom resources",
        }
    }
}

/// Applies changed flags and files to a running process.
pub(crate) struct ConfigReloader {
    personality: Personality,
    watched: FileWatch,
    sides: Vec<RunningSide>,
    listeners: Listeners,
    standby: Option<Standby>,
    metrics: KubeMetrics,
    status: ConfigFiles,
    /// The step of a reload that is in progress, at most one.
    step: JoinSet<StepResult>,
    /// True if flags and files are being resolved, false if the sides prepare for the new configuration.
    is_resolving: bool,
    /// A file event has arrived since the current step started.
    is_unresolved: bool,
    /// A file has changed or SIGHUP has arrived since the current step started, so its result is out of date.
    is_outdated: bool,
    /// SIGHUP requested the current step.
    is_sighup: bool,
    /// The log reports the last accepted configuration as in force.
    is_announced: bool,
    /// The reason why the whole configuration was refused.
    refused: Option<String>,
    failures: u32,
    retry: Option<Instant>,
    in_use: FilesInUse,
    /// The options file and the custom resource configuration.
    files: Vec<File>,
    /// The files that sides rejected, as logged.
    rejected: Vec<RejectedFile>,
}

/// Returns the files whose reloads are reported as metrics.
fn reported_files(config: &Config) -> Vec<(ConfigFile, OptionsFile)> {
    let options = config.options_file.iter().map(|file| (ConfigFile::Options, file));
    let custom = config.custom_file().map(|file| (ConfigFile::CustomResources, file));
    options.chain(custom).map(|(kind, file)| (kind, file.clone())).collect()
}

impl ConfigReloader {
    /// Takes over the process configuration after the start.
    pub(crate) fn new(
        personality: Personality,
        watched: FileWatch,
        config: &Config,
        listeners: Listeners,
        sides: Vec<RunningSide>,
        standby: Option<Standby>,
        telemetry: &Telemetry,
    ) -> Self {
        let mut reloader = Self {
            personality,
            watched,
            sides,
            listeners,
            standby,
            metrics: telemetry.kube.clone(),
            status: telemetry.files.clone(),
            step: JoinSet::new(),
            is_resolving: false,
            is_unresolved: false,
            is_outdated: false,
            is_sighup: false,
            is_announced: true,
            refused: None,
            failures: 0,
            retry: None,
            in_use: FilesInUse::default(),
            files: Vec::new(),
            rejected: Vec::new(),
        };
        reloader.use_files(config);
        reloader.report();
        reloader
    }

    /// Reloads flags and files for SIGHUP. Also makes the sides reload the files that only they read, such as the mapping.
    pub(crate) fn reload(&mut self) {
        for running in &self.sides {
            if let Some(file_reload) = &running.features.file_reload {
                tokio::spawn(file_reload(ReloadTrigger::Sighup));
            }
        }
        if self.personality.reloads_flags() {
            self.is_sighup = true;
            self.reload_files();
        }
    }

    /// Reloads flags and files, including an options file that was rejected before.
    fn reload_files(&mut self) {
        self.in_use.rejected = None;
        self.start_resolving();
    }

    /// Starts to resolve flags and files. If that is in progress already, it runs again afterwards.
    fn start_resolving(&mut self) {
        if self.is_resolving {
            // A blocking read cannot be cancelled, so only one runs at a time.
            self.is_outdated = true;
            return;
        }
        self.step = JoinSet::new();
        (self.retry, self.is_unresolved, self.is_outdated) = (None, false, false);
        let Personality { resolve, named_files, sides: kinds, .. } = &self.personality;
        let (resolve, named_files) = (Arc::clone(resolve), Arc::clone(named_files));
        let (in_use, watched) = (self.in_use.clone(), Arc::clone(self.watched.files()));
        let kinds = *kinds;
        self.is_resolving = true;
        self.step.spawn_blocking(move || {
            loop {
                // The baseline for later changes.
                watched.compare();
                let resolved = resolve(Load::Again(&in_use));
                let mut paths =
                    resolved.as_ref().map_or_else(|_| Vec::new(), |config| files(config, kinds));
                if resolved.as_ref().map_or(true, |config| {
                    config.options_file.as_ref().is_some_and(|file| file.error.is_some())
                }) {
                    // The options file is invalid; the fix may be in one of the files it names.
                    paths.extend(named_files());
                }
                // A file that was not watched until now may have changed since it was read.
                if !watched.follow(paths) {
                    return StepResult::Resolved(resolved);
                }
            }
        });
    }

    /// Waits for the next event and handles it; cancel-safe.
    pub(crate) async fn next_event(&mut self) {
        let retry = self.retry;
        // A file that returns to its former content while files are being read may have been read before.
        let any = self.has_unapplied_change() || self.is_resolving;
        let side_events = self.sides.iter_mut().map(|running| running.side.next_event());
        tokio::select! {
            has_changed = self.watched.changed(any) => {
                if has_changed {
                    tracing::info!("Changes detected");
                    (self.failures, self.is_announced) = (0, false);
                }
                if has_changed || self.step.is_empty() {
                    self.reload_files();
                } else {
                    self.is_unresolved = true;
                }
            }
            Some(result) = self.step.join_next() => self.step_done(result),
            // A listener or side has made progress.
            () = self.listeners.next_event() => {}
            () = select_all(side_events).map(drop) => {}
            () = waiting::until(retry) => {
                self.retry = None;
                self.reload_files();
            }
        }
        self.report();
    }

    /// Stops the listeners and the sides in parallel. The listeners complete the responses in flight first. A replica
    /// of several hands over before that, and passes its last lines on.
    pub(crate) async fn end(mut self) {
        if let Some(standby) = &self.standby {
            standby.leave().await;
        }
        let mut sides: JoinSet<()> =
            self.sides.into_iter().map(|running| running.side.stop()).collect();
        if let Some(standby) = self.standby {
            while sides.join_next().await.is_some() {}
            standby.drain().await;
        }
        self.listeners.stop().await;
        while sides.join_next().await.is_some() {}
    }

    /// Returns true if a file's content differs from what is in use.
    fn has_unapplied_change(&self) -> bool {
        self.refused.is_some()
            || !self.rejected.is_empty()
            || self.files.iter().any(|used| used.file.error.is_some())
    }

    fn step_done(&mut self, result: Result<StepResult, JoinError>) {
        let was_resolving = std::mem::take(&mut self.is_resolving);
        if was_resolving {
            // The same if it returns just afterwards.
            self.watched.verify();
        }
        match result {
            _ if was_resolving && self.is_outdated => self.reload_files(),
            Ok(StepResult::Resolved(Ok(config))) => self.resolved(config),
            Ok(StepResult::Resolved(Err(errors))) => self.refuse(errors.first(), false),
            Ok(StepResult::Prepared(config, Ok(()))) => self.accept(&config),
            Ok(StepResult::Prepared(config, Err(error))) => {
                self.refuse_config(&config, error.to_string(), true);
            }
            Err(error) => self.refuse(error.to_string(), true),
        }
        if self.is_unresolved && self.step.is_empty() {
            self.reload_files();
        }
    }

    fn resolved(&mut self, config: Config) {
        for kind in self.personality.sides {
            let is_on = self.sides.iter().any(|running| std::ptr::eq(running.kind, *kind));
            if is_on == (kind.disabled_reason)(&config).is_some() {
                let name = kind.name;
                let error = format!(
                    "the {name} side cannot be enabled or disabled at run time, restart the process"
                );
                return self.refuse_config(&config, error.to_string(), false);
            }
        }
        let prepared = self.sides.iter_mut().map(|running| running.side.prepare(&config));
        match prepared.collect::<Result<Vec<_>, CommandError>>() {
            Err(error) => self.refuse_config(&config, error.to_string(), false),
            Ok(tasks) => {
                self.step.spawn(async move {
                    let prepare_all = async {
                        for task in tasks.into_iter().flatten() {
                            task.await?;
                        }
                        Ok(())
                    };
                    StepResult::Prepared(config, prepare_all.await)
                });
            }
        }
    }

    /// Applies a configuration for which the sides are prepared.
    fn accept(&mut self, config: &Config) {
        let sides = self.sides.iter_mut().map(|running| running.side.reload(config));
        if let Err(error) = sides.collect::<Result<Vec<()>, CommandError>>() {
            return self.refuse_config(config, error.to_string(), true);
        }
        self.listeners.change(config);
        if let Some(standby) = &self.standby {
            standby.reload(config);
            // A file enables TLS once, as for the listeners, and reloads itself.
            if self.in_use.web_config != config.web_config {
                standby.set_identity(own_identity(config));
            }
        }
        files(config, self.personality.sides).iter().for_each(|path| reader::forget_applied(path));
        let had_refused = self.refused.take().is_some();
        let rejects = |running: &RunningSide| running.side.status().rejected;
        let rejected: Vec<_> = self.sides.iter().filter_map(rejects).collect();
        if rejected.is_empty() {
            // Keep the backoff while a rejected options file waits for its retry.
            match self.in_use.rejected {
                Some(_) if self.retry.is_some() => {}
                _ => self.failures = 0,
            }
        } else {
            self.schedule_retry();
        }
        for file in rejected.iter().filter(|file| !self.rejected.contains(file)) {
            log_rejected(&file.path, &file.error, self.retry);
        }
        let has_new = self.use_files(config) || had_refused || rejected != self.rejected;
        self.rejected = rejected;
        self.is_announced &= !has_new;
        if std::mem::take(&mut self.is_sighup) && self.is_announced {
            tracing::info!("Options file, custom resources and kubeconfig have not changed");
        }
    }

    /// Records the files of `config` as the ones in use. Returns true if any of them, or its error, is new.
    fn use_files(&mut self, config: &Config) -> bool {
        let mut old = std::mem::take(&mut self.files);
        let mut has_new = false;
        for (kind, file) in reported_files(config) {
            let at = old.iter().position(|old| old.kind == kind && old.file.path == file.path);
            let known = at.map(|at| old.swap_remove(at));
            let is_same = known.as_ref().is_some_and(|known| known.file.content == file.content);
            has_new |=
                !is_same || known.as_ref().is_some_and(|known| known.file.error != file.error);
            let is_logged = known.as_ref().is_some_and(|known| known.file.error == file.error);
            // Unresponsive files are logged by the reader.
            if let Some(error) = &file.error
                && !is_logged
                && !reader::is_hanging(Path::new(&file.path))
            {
                log_rejected(&file.path, error, self.retry);
            }
            self.files.push(File {
                is_served: is_same && known.as_ref().is_some_and(|known| known.is_served),
                is_reported: known.as_ref().and_then(|known| known.is_reported),
                loaded: known.and_then(|known| known.loaded),
                kind,
                file,
            });
        }
        for old in old {
            has_new = true;
            self.metrics.config_forgotten(old.kind, &old.file.path);
        }
        let of = |kind| {
            let found = self.files.iter().find(|used: &&File| used.kind == kind);
            found.map(|used| OptionsFile { error: None, ..used.file.clone() })
        };
        self.in_use = FilesInUse {
            options: of(ConfigFile::Options),
            custom: of(ConfigFile::CustomResources),
            web_config: config.web_config.clone(),
            rejected: self.in_use.rejected.take(),
        };
        has_new
    }

    /// Refuses a configuration. If it comes from a changed options file, that file is rejected and resolving starts
    /// again with its last valid content, so that changes to other files still apply. With `retry`, the refusal is
    /// retried.
    fn refuse_config(&mut self, config: &Config, error: String, retry: bool) {
        let old = self.in_use.options.as_ref().and_then(|file| file.content.as_ref());
        let new = config.options_file.as_ref().filter(|file| file.error.is_none());
        let Some(new) = new.and_then(|file| file.content.clone()).filter(|new| Some(new) != old)
        else {
            return self.refuse(error, retry);
        };
        self.in_use.rejected = Some((new, error));
        self.start_resolving();
        if retry {
            self.schedule_retry();
        }
    }

    /// Refuses a configuration and keeps the current one. With `retry`, it is retried.
    fn refuse(&mut self, error: String, retry: bool) {
        if retry {
            self.schedule_retry();
        }
        if self.refused.as_ref() != Some(&error) {
            log_rejected("", &error, self.retry);
        }
        self.refused = Some(error);
    }

    fn schedule_retry(&mut self) {
        let backoff = INITIAL_BACKOFF.saturating_mul(1 << self.failures.min(16)).min(MAX_BACKOFF);
        self.failures += 1;
        self.retry = Some(Instant::now() + backoff);
    }

    /// Reports by metric, status page and log which files are applied.
    fn report(&mut self) {
        let is_listening = self.listeners.is_in_force();
        let are_served = self.sides.iter().all(|running| running.side.status().in_force);
        let in_force = is_listening && are_served;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0.0, |since| since.as_secs_f64());
        let has_unapplied_change = self.has_unapplied_change();
        for used in &mut self.files {
            used.is_served |= are_served;
            // The listen addresses are part of the options file.
            let is_there = is_listening || used.kind != ConfigFile::Options;
            let is_refused = used.file.error.is_some() || self.refused.is_some();
            let is_applied = used.is_served && is_there && !is_refused;
            let applied = used.file.content.as_ref().filter(|_| is_applied);
            if used.is_reported == Some(applied.is_some()) {
                continue;
            }
            used.is_reported = Some(applied.is_some());
            let Some(content) = applied else {
                self.metrics.config_failed(used.kind, &used.file.path);
                continue;
            };
            used.loaded = Some(now);
            self.metrics.config_loaded(used.kind, &used.file.path, content, now);
            if has_unapplied_change {
                tracing::info!(file = used.file.path, "The file is in force");
            }
        }
        if in_force && !has_unapplied_change && !std::mem::replace(&mut self.is_announced, true) {
            tracing::info!("The new configuration is in force");
        }
        let file = |used: &File| status::ConfigFile {
            what: used.description(),
            path: used.file.path.clone(),
            in_force: used.is_reported == Some(true),
            loaded: used.loaded,
            error: used.file.error.clone().or_else(|| self.refused.clone()),
            unanswered_since: None,
        };
        let rejected = self.rejected.iter().map(|file| status::ConfigFile {
            what: "kubeconfig",
            path: file.path.clone(),
            error: Some(file.error.clone()),
            ..status::ConfigFile::default()
        });
        self.status.set(self.files.iter().map(file).chain(rejected).collect());
    }
}

fn log_rejected(file: &str, error: &str, retry: Option<Instant>) {
    let retry_in = retry.map(|at| at - Instant::now()).map(tracing::field::debug);
    tracing::error!(
        file,
        error,
        retry_in,
        "Cannot apply the new configuration, keeping the previous one"
    );
}
