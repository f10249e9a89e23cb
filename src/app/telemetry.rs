//! The own metrics of the process and the state of its configuration files.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::cli::config::{Config, Name};
use crate::config_file::reader;
use crate::server::readiness::Readiness;
use crate::status::{ConfigFile, Facts, Reporter};
use crate::telemetry::metric::Row;
use crate::telemetry::{HttpMetrics, KubeMetrics, OwnMetrics, Recorder};
use crate::util::lock::Lock;

/// The own metrics of the process and the state of its configuration files.
pub(crate) struct Telemetry {
    pub(crate) http: HttpMetrics,
    pub(crate) kube: KubeMetrics,
    pub(crate) own: OwnMetrics,
    /// The configuration files, as shown on the status page.
    pub(crate) files: ConfigFiles,
}

impl Telemetry {
    /// Registers the own metrics of the process.
    pub(crate) fn new(config: &Config, readiness: &Readiness) -> Self {
        let (http, kube) = (HttpMetrics::default(), KubeMetrics::default());
        let mut recorder = Recorder::new();
        if config.name == Name::StatsdExporter {
            recorder = Recorder::process();
            http.register_scrapes(&mut recorder);
        } else {
            recorder.extend([ready(readiness)]);
            http.register_duration(&mut recorder);
            http.log.register(&mut recorder);
            // These metrics also count reloads of the options file.
            if config.kube.is_some() || config.options_file.is_some() {
                kube.register(&mut recorder);
            }
        }
        if config.name == Name::KubeStateMetrics {
            recorder.kube_build_info();
        }
        Self { http, kube, own: recorder.finish(), files: ConfigFiles::default() }
    }
}

/// Returns the gauge for the result of `/readyz`.
pub(super) fn ready(readiness: &Readiness) -> Row {
    let readiness = readiness.clone();
    Row::gauge(
        "kstatd_ready",
        "1 if the process is ready: every initial list is complete or was rejected.",
        move || f64::from(readiness.waiting_for().is_empty()),
    )
}

/// The configuration files on the status page, including unresponsive ones.
#[derive(Clone, Default)]
pub(crate) struct ConfigFiles(Arc<Lock<Vec<ConfigFile>>>);

impl ConfigFiles {
    /// Replaces the list of files.
    pub(crate) fn set(&self, files: Vec<ConfigFile>) {
        *self.0.lock() = files;
    }
}

impl Reporter for ConfigFiles {
    /// Runs after the other reporters, whose files may be among the unresponsive ones.
    fn report(&self, facts: &mut Facts) {
        facts.files.extend(self.0.lock().iter().cloned());
        for (path, since) in reader::hanging() {
            let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let path = path.display().to_string();
            let known = facts.files.iter_mut().find(|file| file.path == path);
            match known {
                Some(file) => file.unanswered_since = Some(since),
                None => facts.files.push(ConfigFile {
                    what: "file",
                    path,
                    unanswered_since: Some(since),
                    ..ConfigFile::default()
                }),
            }
        }
    }
}
