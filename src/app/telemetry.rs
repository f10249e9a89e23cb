//! The own metrics of the process and the state of its configuration files.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use crate::config_file::reader;
use crate::status::{ConfigFile, Facts, Reporter};
use crate::telemetry::{HttpMetrics, KubeMetrics, OwnMetrics, Recorder};

/// The own metrics of the process and the state of its configuration files.
pub(crate) struct Telemetry {
    pub(crate) http: HttpMetrics,
    pub(crate) kube: KubeMetrics,
    pub(crate) own: OwnMetrics,
    /// The configuration files, as shown on the status page.
    pub(crate) files: ConfigFiles,
}

impl Telemetry {
    /// Registers metrics in addition to those in `recorder`.
    pub(crate) fn new(
        mut recorder: Recorder,
        register: impl FnOnce(&mut Recorder, &HttpMetrics, &KubeMetrics),
    ) -> Self {
        let (http, kube) = (HttpMetrics::default(), KubeMetrics::default());
        register(&mut recorder, &http, &kube);
        Self { http, kube, own: recorder.finish(), files: ConfigFiles::default() }
    }
}

/// The configuration files on the status page, including unresponsive ones.
#[derive(Clone, Default)]
pub(crate) struct ConfigFiles(Arc<Mutex<Vec<ConfigFile>>>);

impl ConfigFiles {
    /// Replaces the list of files.
    pub(crate) fn set(&self, files: Vec<ConfigFile>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = files;
    }
}

impl Reporter for ConfigFiles {
    /// Runs after the other reporters, whose files may be among the unresponsive ones.
    fn report(&self, facts: &mut Facts) {
        facts.files.extend(self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        for (path, since) in reader::hanging() {
            let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let path = path.display().to_string();
            let known = facts.files.iter_mut().find(|file| file.path == path);
            match known {
                Some(file) => file.unanswered_since = Some(since),
                None => facts.files.push(ConfigFile {
                    what: "file",
                    path,
                    in_force: false,
                    loaded: None,
                    error: None,
                    unanswered_since: Some(since),
                }),
            }
        }
    }
}
