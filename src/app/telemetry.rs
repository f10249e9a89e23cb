//! Everything that counts, shared by whatever serves it.

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
