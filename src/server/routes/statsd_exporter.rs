//! The single listener of statsd_exporter.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use hyper::Method;

use super::{metrics, own_metrics};
use crate::exposition::Source;
use crate::exposition::negotiate::Dialect;
use crate::server::body::Body;
use crate::server::cardinality::{self, CARDINALITY_PATH, TSDB_PATH};
use crate::server::explain;
use crate::server::landing_page;
use crate::server::pprof;
use crate::server::query::{Filters, percent_decode};
use crate::server::response::{self, Response};
use crate::server::router::{Call, Methods, Router};
use crate::server::scrape::{Gzip, Scrape};
use crate::server::status;
use crate::status::Board;
use crate::telemetry::countable::Countable;
use crate::telemetry::{HttpMetrics, VERSION, process};

/// The path of metrics that the original does not have.
pub(crate) const ABOUT_PATH: &str = "/kstatd/metrics";

/// Waits for a reload.
type Reload = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The actions of statsd_exporter's lifecycle paths.
#[derive(Clone)]
pub(crate) struct Lifecycle {
    /// Starts to reload the mapping file; the outcome is logged and counted.
    pub(crate) reload: Arc<dyn Fn() -> Reload + Send + Sync>,
    /// Stops the process.
    pub(crate) quit: Arc<dyn Fn() + Send + Sync>,
}

impl Lifecycle {
    /// Adds the lifecycle routes.
    pub(crate) fn routes(self, router: Router) -> Router {
        let Self { reload, quit } = self;
        router
            .at_async("/-/reload", Methods::Any, move |call| {
                let reload = is_action(&call).then(|| reload());
                async move {
                    let Some(reload) = reload else { return response::empty(200) };
                    reload.await;
                    response::text(200, "Requesting reload")
                }
            })
            .at("/-/quit", Methods::Any, move |call| {
                if !is_action(call) {
                    return response::empty(200);
                }
                quit();
                response::text(200, "Requesting termination... Goodbye!")
            })
    }
}

/// Returns the routes. `telemetry_path` begins with a slash, or with `GET ` and a slash, and serves
/// exactly the original's metrics. kstatd's own, `about`, are at [`ABOUT_PATH`]; `series` are the
/// sides with cardinality reports.
pub(crate) fn router(
    sources: Vec<Arc<dyn Source>>,
    about: Arc<dyn Source>,
    series: &[Arc<dyn Countable>],
    telemetry_path: &str,
    lifecycle: Option<Lifecycle>,
    board: &Arc<Board>,
    http: &HttpMetrics,
) -> Router {
    let scrape = |sources| Scrape {
        sources,
        dialect: Dialect::ClientGolang { protobuf: true },
        filters: Filters::Names,
        gzip: Gzip::ByWeight,
    };
    // The original has nothing here, so every format is available.
    let about = Scrape { dialect: Dialect::Native { protobuf: true }, ..scrape(vec![about]) };
    let (methods, telemetry_path) = match telemetry_path.strip_prefix("GET ") {
        Some(path) => (Methods::Read, path.trim_start()),
        None => (Methods::Any, telemetry_path),
    };
    // Requests are compared with it after decoding.
    let telemetry_path = &*percent_decode(telemetry_path).unwrap_or(Cow::Borrowed(telemetry_path));
    let requests = http.clone();
    let mut router = Router::default()
        .at("/-/healthy", Methods::Any, |call| get_only(call, HEALTHY))
        .at("/-/ready", Methods::Any, |call| get_only(call, "Statsd Exporter is Ready.\n"))
        .at("/debug/vars", Methods::Read, |_| variables())
        .at("/debug/requests", Methods::Any, move |_| answered(&requests))
        .merge(pprof::routes(Methods::Read));
    if let Some(lifecycle) = lifecycle {
        router = lifecycle.routes(router);
    }
    // The original's path takes precedence.
    if telemetry_path != status::PREFIXED_PATH {
        router = status::add(router, board, status::PREFIXED_PATH, true);
    }
    if telemetry_path != ABOUT_PATH {
        router = own_metrics(router, ABOUT_PATH, about);
    }
    if ![TSDB_PATH, CARDINALITY_PATH].contains(&telemetry_path) {
        router = router.merge(cardinality::routes(series, ""));
    }
    if telemetry_path != explain::PATH {
        router = router.merge(explain::routes(board));
    }
    if telemetry_path == "/" {
        return metrics(router, "", Methods::Any, scrape(sources), http);
    }
    let page = landing_page::page(
        "StatsD Exporter",
        "Metrics sent over StatsD, for Prometheus.",
        &format!("kstatd version {VERSION}"),
        &[
            [telemetry_path, "Metrics", "metrics sent over StatsD"],
            [ABOUT_PATH, "More metrics", "metrics that statsd_exporter does not have"],
            [status::PREFIXED_PATH, "Status", "health, with reasons"],
            [TSDB_PATH, "Series", "metrics and labels with the most series"],
            ["/debug/pprof/heap", "Heap profile", "pprof format"],
            ["/debug/pprof/profile?seconds=60", "CPU profile", "60 seconds, pprof format"],
        ],
    );
    // The community chart's probes request it, although the original answers 404.
    if telemetry_path != "/health" {
        router = router.at("/health", Methods::Any, |call| get_only(call, HEALTHY));
    }
    let router = metrics(router, telemetry_path, methods, scrape(sources), http);
    router.at("/", Methods::Any, move |_| response::html(page.clone()))
}

const HEALTHY: &str = "Statsd Exporter is Healthy.\n";

fn get_only(call: &Call, message: &'static str) -> Response {
    if call.head.method == Method::GET {
        response::text(200, message)
    } else {
        response::empty(200)
    }
}

fn is_action(call: &Call) -> bool {
    matches!(call.head.method, Method::PUT | Method::POST)
}

/// `/debug/requests`: the numbers of answered scrapes and of those in flight.
fn answered(http: &HttpMetrics) -> Response {
    let (answered, in_flight) = http.scrapes();
    let page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>Requests</title></head>\n<body>\n\
         <h1>Requests</h1>\n<table>\n<tr><th>path</th><th>answered</th><th>in flight</th></tr>\n\
         <tr><td>metrics</td><td>{answered}</td><td>{in_flight}</td></tr>\n</table>\n</body>\n\
         </html>\n"
    );
    response::with_type(200, "text/html; charset=utf-8", Body::whole(page))
}

/// `/debug/vars`: the command line and memory of the process as JSON.
fn variables() -> Response {
    let page = serde_json::json!({"cmdline": process::arguments(), "memstats": process::memory()});
    response::with_type(200, "application/json; charset=utf-8", Body::whole(page.to_string()))
}
