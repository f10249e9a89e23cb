//! Starting what a [`Config`](crate::cli::config::Config) says, keeping to it, and ending it cleanly.

mod kstatd;
mod kube_state_metrics;
mod statsd_exporter;
mod upkeep;

use super::process::{self, Request, Signals, Starting};
use crate::telemetry::{HttpMetrics, KubeMetrics, OwnMetrics, Recorder};

use super::process::dump;

pub use kstatd::{kstatd, run_kstatd};
pub use kube_state_metrics::kube_state_metrics;
pub use statsd_exporter::statsd_exporter;

/// Runs it on a runtime of its own. Until `run` drops what it is given, a signal ends the process at once.
pub(crate) fn block_on<F>(run: impl FnOnce(Starting) -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), String>>,
{
    // Before anything asks for its share of them.
    if let Err(error) = crate::descriptors::raise_limit() {
        tracing::warn!(%error, "the limit of open files stays what it is");
    }
    let runtime = process::runtime().map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(async {
        let starting =
            Starting::new().map_err(|error| format!("cannot handle signals: {error}"))?;
        run(starting).await
    });
    // Threads that look up names or write profiles are not waited for.
    runtime.shutdown_background();
    outcome
}

/// Everything that counts, shared by whatever serves it.
struct Telemetry {
    http: HttpMetrics,
    kube: KubeMetrics,
    own: OwnMetrics,
}

impl Telemetry {
    /// For a run with or without a Kubernetes side, under kstatd's name or kube-state-metrics'.
    fn new(with_kube: bool, as_kube_state_metrics: bool) -> Self {
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

/// Waits for a clean end, until a second signal says not to.
async fn unless_asked_again(signals: &mut Signals, end: impl Future<Output = ()>) {
    tokio::select! {
        () = end => {}
        signal = ended(signals) => super::process::at_once::end(signal),
    }
}

fn signals() -> Result<Signals, String> {
    Signals::new().map_err(|error| format!("cannot handle signals: {error}"))
}

/// The next signal that ends the process; what else arrives meanwhile is dropped.
async fn ended(signals: &mut Signals) -> &'static str {
    loop {
        match signals.next().await {
            Request::End(signal) => return signal,
            Request::Dump => dump(),
            Request::Reload => {}
        }
    }
}
