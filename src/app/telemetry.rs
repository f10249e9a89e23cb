//! Everything that counts, shared by whatever serves it.

use crate::status::{ConfigFile, Facts, Reporter};
use crate::telemetry::{HttpMetrics, KubeMetrics, OwnMetrics, Recorder};

/// Everything that counts, shared by whatever serves it.
pub(crate) struct Telemetry {
    pub(crate) http: HttpMetrics,
    pub(crate) kube: KubeMetrics,
    pub(crate) own: OwnMetrics,
}

impl Telemetry {
    /// Registers what `register` says, beside what `recorder` has.
    pub(crate) fn new(
        mut recorder: Recorder,
        register: impl FnOnce(&mut Recorder, &HttpMetrics, &KubeMetrics),
    ) -> Self {
        let (http, kube) = (HttpMetrics::default(), KubeMetrics::default());
        register(&mut recorder, &http, &kube);
        Self { http, kube, own: recorder.finish() }
    }
}

/// Tells the status page of the files of the configuration.
pub(crate) struct Files(pub(crate) KubeMetrics);

impl Reporter for Files {
    fn report(&self, facts: &mut Facts) {
        let files = self.0.config_files().into_iter().map(|(path, kind, in_force, loaded)| {
            let what = if kind == "config" { "options file" } else { "custom resources" };
            ConfigFile { what, path, in_force, loaded }
        });
        facts.files.extend(files);
    }
}
