//! The paths of each listener of each personality.
//!
//! | Listener | Paths | File |
//! |---|---|---|
//! | kstatd, main | `/metrics`, `/metrics/kubernetes`, `/metrics/statsd`, `/api/v1/status/…`, `/api/v1/explain`, `/status`, `/healthz`, `/livez`, `/readyz`, `/` | [`native`] |
//! | kube-state-metrics, main | `/metrics`, `/healthz`, `/livez`, `/kstatd/status`, `/kstatd/api/v1/status/…`, `/` | [`kube_state_metrics`] |
//! | telemetry of both | `/metrics`, `/readyz`, `/debug/pprof/…` (with [`support`](super::support)), `/` (kstatd: also `/status`, `/healthz`, `/livez`; kube-state-metrics: `/kstatd/status`) | [`telemetry`] |
//! | statsd_exporter | telemetry path, `/-/healthy`, `/-/ready`, `/health`, `/-/reload`, `/-/quit`, `/debug/…`, `/kstatd/metrics`, `/kstatd/status`, `/api/v1/status/…`, `/api/v1/explain`, `/` | [`statsd_exporter`] |

pub(crate) mod kube_state_metrics;
pub(crate) mod native;
pub(crate) mod statsd_exporter;
pub(crate) mod telemetry;

use std::sync::Arc;

use super::authorisation::Review;
use super::logged_scrape::LoggedScrape;
use super::report_queue::ReportQueue;
use super::response::{self, Response};
use super::router::{Call, Methods, Router};
use super::scrape::Scrape;
use crate::telemetry::HttpMetrics;
use crate::telemetry::kube::SHARD_STAGE_QUERY;
use crate::util::allocator::PurgeGuard;
use crate::util::serial_blocking::SerialBlocking;

/// Checks the liveness of the API server connection, and logs failures.
pub type LivenessProbe = Arc<dyn Fn() -> Review<()> + Send + Sync>;

fn metrics(
    router: Router,
    path: &str,
    methods: Methods,
    scrape: Scrape,
    http: &HttpMetrics,
) -> Router {
    let by_namespace = scrape.filters.has_namespaces();
    let (scrape, http) = (Arc::new(scrape), http.clone());
    let router =
        router.at_async(path, methods, move |call| timed(Arc::clone(&scrape), http.clone(), call));
    if by_namespace { router.by_namespace() } else { router }
}

/// Adds own metrics. They are collected on the blocking pool, because with many namespaces that takes long, and a worker
/// that is busy may be the one that waits for socket events.
fn own_metrics(router: Router, path: &str, scrape: Scrape) -> Router {
    let (scrape, worker) = (Arc::new(scrape), SerialBlocking::default());
    let queue = ReportQueue::new();
    router.at_async(path, Methods::Any, move |call| {
        let (scrape, worker) = (Arc::clone(&scrape), worker.clone());
        let queue = queue.clone();
        async move {
            // Other replicas ask for this during a change of the shard, and may not wait behind slow readers.
            let is_small = call.query() == SHARD_STAGE_QUERY;
            let bytes = scrape
                .sources
                .iter()
                .map(|source| source.last_size())
                .fold(0, usize::saturating_add);
            let answer = |call| response::blocking(worker, move || scrape.respond(&call));
            if is_small {
                answer(call).await
            } else {
                queue.answer_of_size(bytes, call, answer).await
            }
        }
    })
}

async fn timed(scrape: Arc<Scrape>, http: HttpMetrics, call: Call) -> Response {
    if call.is_from_command() {
        scrape.prepare(&call).await;
        return scrape.respond(&call).map(|body| body.hold(PurgeGuard::new()));
    }
    let timer = http.start("metrics", call.head.method.as_str());
    let logged_scrape = LoggedScrape::new(&call, &http.log);
    scrape.prepare(&call).await;
    let answer = scrape.respond(&call);
    let timer = timer.answered(answer.status().as_u16());
    logged_scrape.follow(answer).map(|body| body.hold((timer, PurgeGuard::new())))
}
