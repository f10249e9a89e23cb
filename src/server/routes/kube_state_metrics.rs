//! The main listener of kube-state-metrics.

use std::sync::Arc;

use super::{LivenessProbe, metrics};
use crate::exposition::Source;
use crate::exposition::negotiate::Dialect;
use crate::server::cardinality;
use crate::server::explain;
use crate::server::health::{self, Check, Checks};
use crate::server::landing_page;
use crate::server::query::Filters;
use crate::server::response::{self, Response};
use crate::server::router::{Call, Methods, Router};
use crate::server::scrape::{Gzip, Scrape};
use crate::server::status;
use crate::status::Board;
use crate::telemetry::countable::Countable;
use crate::telemetry::{HttpMetrics, VERSION};

/// Returns the routes. `livez` queries the API server; `series` are the sides with cardinality
/// reports.
pub(crate) fn router(
    sources: Vec<Arc<dyn Source>>,
    series: &[Arc<dyn Countable>],
    gzip: bool,
    livez: Option<LivenessProbe>,
    checks: &Checks,
    board: &Arc<Board>,
    http: &HttpMetrics,
) -> Router {
    let checks = checks.clone();
    let scrape = Scrape {
        sources,
        dialect: Dialect::KubeStateMetrics,
        filters: Filters::Resources,
        gzip: if gzip { Gzip::ByItem } else { Gzip::Off },
    };
    let page = landing_page::page(
        "kube-state-metrics",
        "Metrics for the state of Kubernetes objects. Profiles are on the telemetry port.",
        &format!("kstatd version {VERSION}"),
        &[
            ["/metrics", "metrics", "metrics of Kubernetes objects"],
            ["/healthz", "healthz", "liveness of the process"],
            ["/livez", "livez", "liveness, including the API server"],
            [status::PREFIXED_PATH, "status", "health, with reasons"],
            ["/kstatd/api/v1/status/tsdb", "series", "metrics and labels with the most series"],
        ],
    );
    let router = metrics(Router::default(), "/metrics", Methods::Any, scrape, http);
    let router = router.merge(cardinality::routes(series, cardinality::KSTATD_PREFIX));
    let router = router.merge(explain::object_routes(board, cardinality::KSTATD_PREFIX));
    status::add(router, board, status::PREFIXED_PATH, false)
        .at("/healthz", Methods::Any, |_| response::text(200, "OK"))
        .at_async("/livez", Methods::Any, move |call| {
            forward_livez(call, livez.clone(), checks.clone())
        })
        .at("/", Methods::Any, move |_| response::html(page.clone()))
}

async fn forward_livez(call: Call, probe: Option<LivenessProbe>, checks: Checks) -> Response {
    let lives = match probe {
        Some(probe) => probe().await,
        None => Ok(()),
    };
    if health::is_verbose(call.query()) {
        let mut checks = checks.live().await;
        let failure = lives.err().map(|_| "its livez check failed".to_owned());
        checks.insert(1, Check { name: "kubernetes/apiserver".to_owned(), failure });
        return health::report("livez", call.query(), &checks);
    }
    match lives {
        Ok(()) => response::text(200, "OK"),
        Err(_) => response::text(503, "Service Unavailable"),
    }
}
