//! kstatd's own main listener.

use std::sync::Arc;

use super::metrics;
use crate::exposition::Source;
use crate::exposition::negotiate::Dialect;
use crate::server::cardinality::{self, TSDB_PATH};
use crate::server::explain;
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
    let mut links = vec![["/metrics", "/metrics", "everything"]];
    let all = endpoints.iter().map(|part| Arc::clone(&part.source)).collect();
    let protobuf = endpoints.iter().all(|part| part.protobuf);
    let mut router =
        metrics(Router::default(), "/metrics", Methods::Any, scrape(all, protobuf), http);
    for MetricsEndpoint { path, about, source, protobuf } in endpoints {
        router =
            metrics(router, path, Methods::Any, scrape(vec![Arc::clone(source)], *protobuf), http);
        links.push([path, path, about]);
    }
    links.push([status::PATH, status::PATH, "health, with reasons"]);
    if !series.is_empty() {
        router = router.merge(cardinality::routes(series, "")).merge(explain::routes(board));
        router = router.merge(explain::object_routes(board, ""));
        links.push([TSDB_PATH, TSDB_PATH, "metrics and labels with the most series"]);
    }
    links.push(["/healthz", "/healthz", "liveness of the process"]);
    links.push(["/livez", "/livez", "the same"]);
    links.push(["/readyz", "/readyz", "readiness: the initial lists are complete"]);
    links.push(["/readyz?verbose", "/readyz?verbose", "health checks of each kind"]);
    let (summary, links) = (Arc::clone(board), Arc::new(links));
    let (live, ready) = (checks.clone(), checks.clone());
    status::add(router, board, status::PATH, false)
        .at("/healthz", Methods::Any, |_| response::text(200, "OK"))
        .at_async("/livez", Methods::Any, move |call| lives(call, live.clone()))
        .at_async("/readyz", Methods::Any, move |call| {
            is_ready(call, readiness.clone(), ready.clone())
        })
        .at_async("/", Methods::Any, move |_| front(Arc::clone(&summary), Arc::clone(&links)))
}

async fn front(board: Arc<Board>, links: Arc<Vec<Link<'static>>>) -> Response {
    let page = board.run(move |board| {
        let about = "State of Kubernetes objects and metrics sent over StatsD, for Prometheus.";
        let about = format!("{about}\n{}", board.summary());
        response::html(landing_page::page("kstatd", &about, &format!("version {VERSION}"), &links))
    });
    page.await.unwrap_or_else(response::not_produced)
}

/// Answers that the process is alive or, for verbose requests, whether all components are.
pub(super) async fn lives(call: Call, checks: Checks) -> Response {
    if health::is_about_checks(call.query()) {
        return health::report("livez", call.query(), &checks.live().await);
    }
    response::text(200, "OK")
}

async fn is_ready(call: Call, readiness: Readiness, checks: Checks) -> Response {
    if health::is_about_checks(call.query()) {
        return health::report("readyz", call.query(), &checks.ready().await);
    }
    let waiting = readiness.waiting_for();
    if waiting.is_empty() {
        return response::text(200, "OK");
    }
    response::waiting_for(&waiting)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use hyper::Request;

    use super::*;
    use crate::status::{Facts, Reporter};
    use crate::telemetry::scrapes::ScrapeLog;

    /// A side that takes as long as the answer to another request.
    struct Slow(Mutex<Receiver<()>>);

    impl Slow {
        fn wait(&self) {
            let received = self.0.lock().expect("no panic").recv_timeout(Duration::from_secs(60));
            received.expect("an answer of another request meanwhile");
        }
    }

    impl Reporter for Slow {
        fn report(&self, _: &mut Facts) {
            self.wait();
        }
    }

    #[tokio::test]
    async fn pages_and_checks_do_not_delay_other_requests() {
        let (answered, waiting) = channel();
        let slow = Arc::new(Slow(Mutex::new(waiting)));
        let board = Arc::new(Board::new("", ScrapeLog::default(), vec![Arc::clone(&slow) as _]));
        let check = move || {
            slow.wait();
            Vec::new()
        };
        let checks = Checks { ready: vec![Arc::new(check)], ..Checks::default() };
        let (readiness, http) = (Readiness::default(), HttpMetrics::default());
        let router = router(&[], &[], false, readiness, &checks, &board, &http);
        let ask = |path: &str| {
            let request = Request::get(path).body(()).expect("a request");
            router.dispatch(request.into_parts().0)
        };
        for path in ["/status", "/status?format=json", "/", "/readyz?verbose"] {
            let health = async {
                let status = ask("/healthz").await.status();
                answered.send(()).expect("a side");
                status
            };
            let (page, health) = tokio::join!(ask(path), health);
            assert_eq!((page.status().as_u16(), health.as_u16()), (200, 200), "{path}");
        }
    }
}
