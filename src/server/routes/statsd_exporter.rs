//! statsd_exporter's one listener.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Method;

use super::timed;
use crate::exposition::Source;
use crate::exposition::negotiate::Dialect;
use crate::server::body::Body;
use crate::server::cardinality::{self, CARDINALITY_PATH, TSDB_PATH};
use crate::server::explain;
use crate::server::landing::{self, Link};
use crate::server::pprof;
use crate::server::query::{Filters, percent_decode};
use crate::server::response::{self, Response};
use crate::server::router::{Call, Methods, Router};
use crate::server::scrape::{Gzip, Scrape};
use crate::server::status;
use crate::status::Board;
use crate::telemetry::countable::Countable;
use crate::telemetry::{HttpMetrics, VERSION};

/// Where statsd_exporter's listener has the metrics that the original does not have.
pub(crate) const ABOUT_PATH: &str = "/kstatd/metrics";

/// What the lifecycle paths of statsd_exporter do.
#[derive(Clone)]
pub(crate) struct Lifecycle {
    /// Reads the mapping file again; the outcome goes to the log and the counters.
    pub(crate) reload: Arc<dyn Fn() + Send + Sync>,
    /// Ends the process.
    pub(crate) quit: Arc<dyn Fn() + Send + Sync>,
}

/// The routes. `telemetry_path` begins with a slash, or with `GET ` and a slash. It has
/// exactly what the original's has; what kstatd knows beyond it, `about`, is at [`ABOUT_PATH`], and there are reports of
/// `series`.
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
    // The original has nothing here, so that every format can be had.
    let about = Scrape { dialect: Dialect::Native { protobuf: true }, ..scrape(vec![about]) };
    let (methods, telemetry_path) = match telemetry_path.strip_prefix("GET ") {
        Some(path) => (Methods::Read, path.trim_start()),
        None => (Methods::Any, telemetry_path),
    };
    // Requests are compared with it after their escapes are decoded.
    let telemetry_path = &*percent_decode(telemetry_path).unwrap_or(Cow::Borrowed(telemetry_path));
    let requests = http.clone();
    let mut router = status::add(Router::default(), board, status::PATH_BESIDE, true)
        .at("/-/healthy", Methods::Any, |call| get_only(call, HEALTHY))
        .at("/-/ready", Methods::Any, |call| get_only(call, "Statsd Exporter is Ready.\n"))
        .at(ABOUT_PATH, Methods::Any, move |call| about.respond(call))
        .at("/debug/vars", Methods::Read, |_| variables())
        .at("/debug/requests", Methods::Any, move |_| answered(&requests))
        .merge(pprof::routes(Methods::Read));
    if let Some(lifecycle) = lifecycle {
        let Lifecycle { reload, quit } = lifecycle;
        router = router
            .at("/-/reload", Methods::Any, move |call| act(call, "Requesting reload", &*reload))
            .at("/-/quit", Methods::Any, move |call| {
                act(call, "Requesting termination... Goodbye!", &*quit)
            });
    }
    // The original's path goes first, wherever it is.
    if ![TSDB_PATH, CARDINALITY_PATH].contains(&telemetry_path) {
        router = router.merge(cardinality::routes(series, ""));
    }
    if telemetry_path != explain::PATH {
        router = router.merge(explain::routes(board));
    }
    if telemetry_path == "/" {
        return router.all(timed(scrape(sources), http));
    }
    let page = landing::page(
        "StatsD Exporter",
        "Metrics sent over StatsD, for Prometheus.",
        &format!("kstatd version {VERSION}"),
        &[
            Link::new(telemetry_path, "Metrics", "what StatsD clients sent"),
            Link::new(ABOUT_PATH, "More metrics", "what kstatd knows beyond the original"),
            Link::new(status::PATH_BESIDE, "Status", "how it is doing, and why"),
            Link::new(TSDB_PATH, "Series", "which metrics and labels bring them"),
            Link::new("/debug/pprof/heap", "Heap profile", "pprof format"),
            Link::new("/debug/pprof/profile?seconds=60", "CPU profile", "60 seconds, pprof format"),
        ],
    );
    // The community chart's probes ask for it, although the original answers 404.
    if telemetry_path != "/health" {
        router = router.at("/health", Methods::Any, |call| get_only(call, HEALTHY));
    }
    router.at(telemetry_path, methods, timed(scrape(sources), http)).at(
        "/",
        Methods::Any,
        move |_| response::html(page.clone()),
    )
}

const HEALTHY: &str = "Statsd Exporter is Healthy.\n";

fn get_only(call: &Call, message: &'static str) -> Response {
    if call.head.method == Method::GET {
        response::text(200, message)
    } else {
        response::empty(200)
    }
}

fn act(call: &Call, message: &'static str, action: &(dyn Fn() + Send + Sync)) -> Response {
    if matches!(call.head.method, Method::PUT | Method::POST) {
        action();
        response::text(200, message)
    } else {
        response::empty(200)
    }
}

/// `/debug/requests`: how many scrapes were answered and are being answered.
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
    let args: Vec<String> =
        std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let page = serde_json::json!({
        "cmdline": args,
        "memstats": crate::telemetry::process::memory(),
    });
    response::with_type(200, "application/json; charset=utf-8", Body::whole(page.to_string()))
}
