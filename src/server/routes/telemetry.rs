//! The telemetry listener of kstatd and of kube-state-metrics: own metrics and profiles.

use std::sync::Arc;

use super::native::lives;
use crate::exposition::negotiate::Dialect;
use crate::server::health::{self, Check, Checks};
use crate::server::landing::{self, Link};
use crate::server::pprof;
use crate::server::query::Filters;
use crate::server::response;
use crate::server::router::{Methods, Router};
use crate::server::scrape::{Gzip, Scrape};
use crate::server::status;
use crate::status::Board;
use crate::telemetry::{OwnMetrics, VERSION};

/// The routes. kube-state-metrics has no `/healthz` and `/livez` here; kstatd has.
pub(crate) fn router(
    own: &OwnMetrics,
    name: &str,
    with_health: bool,
    checks: &Checks,
    board: &Arc<Board>,
) -> Router {
    let (probe, ready) = (own.clone(), checks.clone());
    // What the original knows nothing of is left alone there.
    let about_checks = if with_health { health::is_about_checks } else { health::is_verbose };
    let scrape = Scrape {
        sources: vec![Arc::new(own.clone())],
        dialect: Dialect::ClientGolang { protobuf: true },
        filters: Filters::NamesAndNamespaces,
        gzip: Gzip::ByWeight,
    };
    // Among the paths of kube-state-metrics it has a name that cannot be another one's.
    let place = if with_health { status::PATH } else { status::PATH_BESIDE };
    let page = landing::page(
        &format!("{name} telemetry"),
        "What this process says about itself.",
        &format!("kstatd version {VERSION}"),
        &[
            Link::new("/metrics", "metrics", "own metrics"),
            Link::new(place, "status", "how it is doing, and why"),
            Link::new("/readyz", "readyz", "own metrics can be read"),
            Link::new("/readyz?verbose", "readyz?verbose", "how each kind is doing"),
            Link::new("/debug/pprof/", "debug/pprof", "profiles"),
        ],
    );
    let mut router = status::add(Router::default(), board, place, true)
        .at("/metrics", Methods::Any, move |call| scrape.respond(call))
        .by_namespace()
        .at("/readyz", Methods::Any, move |call| {
            let is_readable = probe.are_readable();
            if about_checks(call.query()) {
                let mut checks = ready.ready();
                checks.insert(1, own_metrics(is_readable));
                return health::report("readyz", call.query(), &checks);
            }
            match is_readable {
                true => response::text(200, "OK"),
                false => response::text(503, "Service Unavailable"),
            }
        })
        .at("/", Methods::Any, move |_| response::html(page.clone()))
        .merge(pprof::routes(Methods::Any));
    if with_health {
        let live = checks.clone();
        router = router.at("/healthz", Methods::Any, |_| response::text(200, "OK")).at(
            "/livez",
            Methods::Any,
            move |call| lives(call, &live),
        );
    }
    router
}

fn own_metrics(is_readable: bool) -> Check {
    let failure = (!is_readable).then(|| "there are none".to_owned());
    Check { name: "metrics".to_owned(), failure }
}
