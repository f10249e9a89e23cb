//! The telemetry listener of kstatd and of kube-state-metrics: own metrics and profiles.

use std::sync::Arc;

use super::native::lives;
use super::own_metrics;
use crate::exposition::negotiate::Dialect;
use crate::server::health::{self, Checks};
use crate::server::landing_page;
use crate::server::pprof;
use crate::server::query::Filters;
use crate::server::readiness::Readiness;
use crate::server::response;
use crate::server::router::{Methods, Router};
use crate::server::scrape::{Gzip, Scrape};
use crate::server::status;
use crate::status::Board;
use crate::telemetry::{OwnMetrics, VERSION};

/// Returns the routes. kstatd serves `/healthz` and `/livez` here; kube-state-metrics does not. With a `readiness`, `/readyz` waits for that,
/// too.
pub(crate) fn router(
    own: &OwnMetrics,
    name: &str,
    with_health: bool,
    readiness: Option<Readiness>,
    checks: &Checks,
    board: &Arc<Board>,
) -> Router {
    let ready = checks.clone();
    // Queries that the original does not know are ignored there.
    let about_checks = if with_health { health::is_about_checks } else { health::is_verbose };
    let scrape = Scrape {
        sources: vec![Arc::new(own.clone())],
        dialect: Dialect::ClientGolang { protobuf: true },
        filters: Filters::NamesAndNamespaces,
        gzip: Gzip::ByWeight,
    };
    // Under the name kube-state-metrics, use a path that cannot conflict.
    let place = if with_health { status::PATH } else { status::PREFIXED_PATH };
    let page = landing_page::page(
        &format!("{name} telemetry"),
        "Metrics of this process.",
        &format!("kstatd version {VERSION}"),
        &[
            ["/metrics", "metrics", "own metrics"],
            [place, "status", "health, with reasons"],
            ["/readyz", "readyz", "readiness"],
            ["/readyz?verbose", "readyz?verbose", "health checks of each kind"],
            ["/debug/pprof/", "debug/pprof", "profiles"],
        ],
    );
    let router = status::add(Router::default(), board, place, true);
    let mut router = own_metrics(router, "/metrics", scrape)
        .by_namespace()
        .at_async("/readyz", Methods::Any, move |call| {
            let ready = ready.clone();
            let is_waiting =
                readiness.as_ref().is_some_and(|readiness| !readiness.waiting_for().is_empty());
            async move {
                if about_checks(call.query()) {
                    let checks = ready.ready().await;
                    return health::report("readyz", call.query(), &checks);
                }
                match is_waiting {
                    true => response::text(503, "Service Unavailable"),
                    false => response::text(200, "OK"),
                }
            }
        })
        .at("/", Methods::Any, move |_| response::html(page.clone()))
        .merge(pprof::routes(Methods::Any));
    if with_health {
        let live = checks.clone();
        router = router.at("/healthz", Methods::Any, |_| response::text(200, "OK"));
        router = router.at_async("/livez", Methods::Any, move |call| lives(call, live.clone()));
    }
    router
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use hyper::Request;

    use super::*;
    use crate::exposition::family::{Collect, Family};
    use crate::telemetry::Recorder;
    use crate::telemetry::metric::Row;
    use crate::telemetry::scrapes::ScrapeLog;

    /// A collector that waits for a message.
    struct Waiting(Mutex<Receiver<()>>);

    impl Collect for Waiting {
        fn collect(&self, _: &mut Vec<Family>) {
            let received = self.0.lock().expect("no panic").recv_timeout(Duration::from_secs(60));
            received.expect("an answer of another request meanwhile");
        }

        fn may_have(&self, _: &BTreeSet<String>) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn own_metrics_do_not_delay_other_requests() {
        let (answered, waiting) = channel();
        let mut recorder = Recorder::process();
        recorder.add(Waiting(Mutex::new(waiting)));
        let board = Arc::new(Board::new("", ScrapeLog::default(), Vec::new()));
        let router = router(&recorder.finish(), "kstatd", true, None, &Checks::default(), &board);
        let ask = |path: &str| {
            let request = Request::get(path).body(()).expect("a request");
            router.dispatch(request.into_parts().0)
        };
        let health = async {
            let status = ask("/healthz").await.status();
            answered.send(()).expect("a collector");
            status
        };
        let (metrics, health) = tokio::join!(ask("/metrics"), health);
        assert_eq!((metrics.status().as_u16(), health.as_u16()), (200, 200));
    }

    /// Pods of a StatefulSet ask each other for one family many times a second, and others take long to collect.
    #[tokio::test]
    async fn a_request_for_a_family_collects_no_other_one() {
        let collected = Arc::new(AtomicUsize::new(0));
        let counted = |name: &'static str| {
            let collected = Arc::clone(&collected);
            let value = move || (collected.fetch_add(1, Ordering::Relaxed) + 1) as f64;
            Row::gauge(name, "Counts how often such families were collected.", value)
        };
        // Those of the sides are added to the process's own.
        let mut process = Recorder::default();
        process.extend([counted("a"), counted("b")]);
        let mut recorder = Recorder::from(process.finish());
        recorder.extend([counted("c")]);
        let board = Arc::new(Board::new("", ScrapeLog::default(), Vec::new()));
        let router = router(&recorder.finish(), "kstatd", true, None, &Checks::default(), &board);
        for (query, want) in [("?name%5B%5D=a", 1), ("?name%5B%5D=z", 0), ("", 3)] {
            let request = Request::get(format!("/metrics{query}")).body(()).expect("a request");
            let answer = router.dispatch(request.into_parts().0).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(collected.swap(0, Ordering::Relaxed), want, "{query}");
        }
    }
}
