//! kstatd's own main listener.

use std::sync::Arc;

use super::metrics;
use crate::exposition::Source;
use crate::exposition::negotiate::Dialect;
use crate::server::cardinality::{self, TSDB_PATH};
use crate::server::explain;
use crate::server::explain_object;
use crate::server::health::{self, Checks};
use crate::server::landing_page::{self, Link};
use crate::server::query::Filters;
use crate::server::readiness::Readiness;
use crate::server::response::{self, Response};
use crate::server::router::{Call, Methods, Router};
use crate::server::scrape::{Gzip, Scrape};
use crate::server::status;
use crate::status::Board;
use crate::telemetry::countable::Countable;
use crate::telemetry::{HttpMetrics, VERSION};

/// A part of `/metrics` that is also served separately.
#[derive(Clone)]
pub(crate) struct MetricsEndpoint {
    /// The path.
    pub(crate) path: &'static str,
    /// The description for the landing page.
    pub(crate) about: &'static str,
    /// The source.
    pub(crate) source: Arc<dyn Source>,
    /// True if it supports protobuf.
    pub(crate) protobuf: bool,
}

/// Returns the routes. `/metrics` serves the `endpoints` in order, in protobuf if all of them support
/// it. `series` are the sides with cardinality reports.
pub(crate) fn router(
    endpoints: &[MetricsEndpoint],
    series: &[Arc<dyn Countable>],
    gzip: bool,
    readiness: Readiness,
    checks: &Checks,
    board: &Arc<Board>,
    http: &HttpMetrics,
) -> Router {
    let gzip = if gzip { Gzip::ByWeight } else { Gzip::Off };
    let scrape = |sources: Vec<Arc<dyn Source>>, protobuf| Scrape {
        sources,
        dialect: Dialect::Native { protobuf },
        filters: Filters::All,
        gzip,
    };
    let mut links = vec![Link::new("/metrics", "/metrics", "everything")];
    let all = endpoints.iter().map(|part| Arc::clone(&part.source)).collect();
    let protobuf = endpoints.iter().all(|part| part.protobuf);
    let mut router =
        metrics(Router::default(), "/metrics", Methods::Any, scrape(all, protobuf), http);
    for MetricsEndpoint { path, about, source, protobuf } in endpoints {
        router =
            metrics(router, path, Methods::Any, scrape(vec![Arc::clone(source)], *protobuf), http);
        links.push(Link::new(path, path, about));
    }
    links.push(Link::new(status::PATH, status::PATH, "health, with reasons"));
    if !series.is_empty() {
        router = router.merge(cardinality::routes(series, "")).merge(explain::routes(board));
        router = router.merge(explain_object::routes(board, ""));
        links.push(Link::new(TSDB_PATH, TSDB_PATH, "metrics and labels with the most series"));
    }
    links.push(Link::new("/healthz", "/healthz", "liveness of the process"));
    links.push(Link::new("/livez", "/livez", "the same"));
    links.push(Link::new("/readyz", "/readyz", "readiness: the initial lists are complete"));
    links.push(Link::new("/readyz?verbose", "/readyz?verbose", "health checks of each kind"));
    let summary = Arc::clone(board);
    let page = move || {
        landing_page::page(
            "kstatd",
            &format!(
                "State of Kubernetes objects and metrics sent over StatsD, for Prometheus.\n{}",
                summary.summary()
            ),
            &format!("version {VERSION}"),
            &links,
        )
    };
    let (live, ready) = (checks.clone(), checks.clone());
    status::add(router, board, status::PATH, false)
        .at("/healthz", Methods::Any, |_| response::text(200, "OK"))
        .at("/livez", Methods::Any, move |call| lives(call, &live))
        .at("/readyz", Methods::Any, move |call| is_ready(call, &readiness, &ready))
        .at("/", Methods::Any, move |_| response::html(page()))
}

/// Answers that the process is alive or, for verbose requests, whether all components are.
pub(super) fn lives(call: &Call, checks: &Checks) -> Response {
    if health::is_about_checks(call.query()) {
        return health::report("livez", call.query(), &checks.live());
    }
    response::text(200, "OK")
}

fn is_ready(call: &Call, readiness: &Readiness, checks: &Checks) -> Response {
    if health::is_about_checks(call.query()) {
        return health::report("readyz", call.query(), &checks.ready());
    }
    let waiting = readiness.waiting_for();
    if waiting.is_empty() {
        return response::text(200, "OK");
    }
    response::waiting_for(&waiting)
}
