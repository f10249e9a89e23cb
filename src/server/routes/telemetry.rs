//! The telemetry listener of kstatd and of kube-state-metrics: own metrics and profiles.

use std::sync::Arc;

use crate::exposition::negotiate::Dialect;
use crate::exposition::{Format, Source};
use crate::server::landing::{self, Link};
use crate::server::pprof;
use crate::server::query::Filters;
use crate::server::response::{self, Response};
use crate::server::router::{Methods, Router};
use crate::server::scrape::{Gzip, Scrape};
use crate::telemetry::{OwnMetrics, VERSION};

/// The routes: own metrics, then those of `more`. kube-state-metrics has no `/healthz` and
/// `/livez` here; kstatd has.
pub(crate) fn router(
    own: OwnMetrics,
    more: Arc<dyn Source>,
    name: &str,
    with_health: bool,
) -> Router {
    let probe = own.clone();
    let scrape = Scrape {
        sources: vec![Arc::new(own), more],
        dialect: Dialect::ClientGolang { protobuf: true },
        filters: Filters::NamesAndNamespaces,
        gzip: Gzip::ByWeight,
    };
    let page = landing::page(
        &format!("{name} telemetry"),
        "What this process says about itself.",
        &format!("kstatd version {VERSION}"),
        &[
            Link::new("/metrics", "metrics", "own metrics"),
            Link::new("/readyz", "readyz", "own metrics can be read"),
            Link::new("/debug/pprof/", "debug/pprof", "profiles"),
        ],
    );
    let mut router = Router::default()
        .at("/metrics", Methods::Any, move |call| scrape.respond(call))
        .by_namespace()
        .at("/readyz", Methods::Any, move |_| own_metrics_ready(&probe))
        .at("/", Methods::Any, move |_| response::html(page.clone()))
        .merge(pprof::routes(Methods::Any));
    if with_health {
        router = router.at("/healthz", Methods::Any, |_| response::text(200, "OK")).at(
            "/livez",
            Methods::Any,
            |_| response::text(200, "OK"),
        );
    }
    router
}

fn own_metrics_ready(own: &OwnMetrics) -> Response {
    if own.encode(Format::Text).is_empty() {
        response::text(503, "Service Unavailable")
    } else {
        response::text(200, "OK")
    }
}
