//! Everything that counts, shared by whatever serves it.

use crate::telemetry::{HttpMetrics, KubeMetrics, OwnMetrics, Recorder};

/// Everything that counts, shared by whatever serves it.
pub(crate) struct Telemetry {
    pub(crate) http: HttpMetrics,
    pub(crate) kube: KubeMetrics,
    pub(crate) own: OwnMetrics,
}

impl Telemetry {
    /// For a run with or without a Kubernetes side, under kstatd's name or kube-state-metrics'.
    pub(crate) fn new(with_kube: bool, as_kube_state_metrics: bool) -> Self {
        let (http, kube) = (HttpMetrics::default(), KubeMetrics::default());
        let mut recorder = Recorder::new();
        http.register_duration(&mut recorder);
        if with_kube {
            kube.register(&mut recorder);
        }
        if as_kube_state_metrics {
            recorder.kube_build_info();
        }
        Self { http, kube, own: recorder.finish() }
    }
}
