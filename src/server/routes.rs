//! The paths of each listener of each personality.
//!
//! | Listener | Paths |
//! |---|---|
//! | kstatd, main | `/metrics`, `/metrics/kubernetes`, `/metrics/statsd`, `/healthz`, `/livez`, `/readyz`, `/` |
//! | kube-state-metrics, main | `/metrics`, `/healthz`, `/livez`, `/` |
//! | telemetry of both | `/metrics`, `/readyz`, `/debug/pprof/…`, `/` (kstatd: also `/healthz`, `/livez`) |
//! | statsd_exporter | telemetry path, `/-/healthy`, `/-/ready`, `/health`, `/-/reload`, `/-/quit`, `/debug/…`, `/kstatd/metrics`, `/` |

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hyper::Method;

use super::landing::{self, Link};
use super::pprof;
use super::query::Filters;
use super::readiness::Readiness;
use super::response::{self, Response};
use super::router::{Call, Methods, Router};
use super::scrape::{Gzip, Scrape};
use crate::exposition::negotiate::Dialect;
use crate::exposition::{Format, Source};
use crate::telemetry::{HttpMetrics, OwnMetrics, VERSION};

/// Asks the API server whether it lives; the error is for the log.
pub type LivenessProbe =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// The sources of a process that has both sides. A side that is off is `None`.
#[derive(Clone, Default)]
pub struct Sides {
    /// The Kubernetes side.
    pub kubernetes: Option<Arc<dyn Source>>,
    /// The StatsD side.
    pub statsd: Option<Arc<dyn Source>>,
}

impl Sides {
    fn both(&self) -> Vec<Arc<dyn Source>> {
        self.kubernetes.iter().chain(&self.statsd).cloned().collect()
    }
}

/// kstatd's main listener.
pub fn kstatd(sides: &Sides, gzip: bool, readiness: Readiness, http: &HttpMetrics) -> Router {
    let gzip = if gzip { Gzip::ByWeight } else { Gzip::Off };
    let scrape = |sources: Vec<Arc<dyn Source>>, protobuf| Scrape {
        sources,
        dialect: Dialect::Native { protobuf },
        filters: Filters::All,
        gzip,
    };
    let mut links = vec![Link::new("/metrics", "/metrics", "everything")];
    let mut router = Router::default();
    router = metrics(router, "/metrics", scrape(sides.both(), sides.kubernetes.is_none()), http);
    let paths = [
        ("/metrics/kubernetes", "Kubernetes objects", &sides.kubernetes, false),
        ("/metrics/statsd", "what StatsD clients sent", &sides.statsd, true),
    ];
    for (path, about, source, protobuf) in paths {
        if let Some(source) = source {
            router = metrics(router, path, scrape(vec![Arc::clone(source)], protobuf), http);
            links.push(Link::new(path, path, about));
        }
    }
    links.push(Link::new("/healthz", "/healthz", "the process answers"));
    links.push(Link::new("/livez", "/livez", "the same"));
    links.push(Link::new("/readyz", "/readyz", "the first lists are complete"));
    let page = landing::page(
        "kstatd",
        "State of Kubernetes objects and metrics sent over StatsD, for Prometheus.",
        &format!("version {VERSION}"),
        &links,
    );
    router
        .at("/healthz", Methods::Any, |_| response::text(200, "OK"))
        .at("/livez", Methods::Any, |_| response::text(200, "OK"))
        .at("/readyz", Methods::Any, move |_| ready(&readiness))
        .at("/", Methods::Any, move |_| response::html(page.clone()))
}

fn ready(readiness: &Readiness) -> Response {
    let waiting = readiness.waiting_for();
    if waiting.is_empty() {
        return response::text(200, "OK");
    }
    response::text(503, format!("waiting for:\n{}\n", waiting.join("\n")))
}

fn metrics(router: Router, path: &str, scrape: Scrape, http: &HttpMetrics) -> Router {
    router.at(path, Methods::Any, timed(scrape, http))
}

fn timed(scrape: Scrape, http: &HttpMetrics) -> impl Fn(&Call) -> Response + Send + Sync + 'static {
    let http = http.clone();
    move |call| {
        let timer = http.start("metrics", call.head.method.as_str());
        scrape.respond(call).map(|body| body.hold(timer))
    }
}

/// kube-state-metrics' main listener.
pub fn kube_state_metrics(
    source: Arc<dyn Source>,
    gzip: bool,
    livez: LivenessProbe,
    http: &HttpMetrics,
) -> Router {
    let scrape = Scrape {
        sources: vec![source],
        dialect: Dialect::KubeStateMetrics,
        filters: Filters::Resources,
        gzip: if gzip { Gzip::ByItem } else { Gzip::Off },
    };
    let page = landing::page(
        "kube-state-metrics",
        "Metrics for the state of Kubernetes objects. Profiles are on the telemetry port.",
        &format!("kstatd version {VERSION}"),
        &[
            Link::new("/metrics", "metrics", "the state of the objects"),
            Link::new("/healthz", "healthz", "the process answers"),
            Link::new("/livez", "livez", "the API server answers too"),
        ],
    );
    metrics(Router::default(), "/metrics", scrape, http)
        .at("/healthz", Methods::Any, |_| response::text(200, "OK"))
        .at_async("/livez", Methods::Any, move |_| forward_livez(livez()))
        .at("/", Methods::Any, move |_| response::html(page.clone()))
}

async fn forward_livez(probe: impl Future<Output = Result<(), String>> + Send) -> Response {
    match probe.await {
        Ok(()) => response::text(200, "OK"),
        Err(error) => {
            tracing::warn!(%error, "the API server's livez check failed");
            response::text(503, "Service Unavailable")
        }
    }
}

/// The telemetry listener: own metrics, then those of `more`. kube-state-metrics has no `/healthz` and
/// `/livez` here; kstatd has.
pub fn telemetry(
    own: OwnMetrics,
    more: Vec<Arc<dyn Source>>,
    name: &str,
    with_health: bool,
) -> Router {
    let probe = own.clone();
    let mut sources: Vec<Arc<dyn Source>> = vec![Arc::new(own)];
    sources.extend(more);
    let scrape = Scrape {
        sources,
        dialect: Dialect::ClientGolang { protobuf: true },
        filters: Filters::Names,
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
        .at("/readyz", Methods::Any, move |_| own_metrics_ready(&probe))
        .at("/", Methods::Any, move |_| response::html(page.clone()))
        .merge(pprof::routes());
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

/// Where statsd_exporter's listener has the metrics that the original does not have.
pub const ABOUT_PATH: &str = "/kstatd/metrics";

/// What the lifecycle paths of statsd_exporter do.
#[derive(Clone)]
pub struct Lifecycle {
    /// Reads the mapping file again; the outcome goes to the log and the counters.
    pub reload: Arc<dyn Fn() + Send + Sync>,
    /// Ends the process.
    pub quit: Arc<dyn Fn() + Send + Sync>,
}

/// statsd_exporter's listener. `telemetry_path` begins with a slash, or with `GET ` and a slash. It has
/// exactly what the original's has; what kstatd knows beyond it, `about`, is at [`ABOUT_PATH`].
pub fn statsd_exporter(
    sources: Vec<Arc<dyn Source>>,
    about: Vec<Arc<dyn Source>>,
    telemetry_path: &str,
    lifecycle: Option<Lifecycle>,
    http: &HttpMetrics,
) -> Router {
    let scrape = |sources| Scrape {
        sources,
        dialect: Dialect::ClientGolang { protobuf: true },
        filters: Filters::Names,
        gzip: Gzip::ByWeight,
    };
    // The original has nothing here, so that every format can be had.
    let about = Scrape { dialect: Dialect::Native { protobuf: true }, ..scrape(about) };
    let (methods, telemetry_path) = match telemetry_path.strip_prefix("GET ") {
        Some(path) => (Methods::Read, path.trim_start()),
        None => (Methods::Any, telemetry_path),
    };
    // Requests are compared with it after their escapes are decoded.
    let telemetry_path = &*super::query::percent_decode(telemetry_path)
        .unwrap_or(std::borrow::Cow::Borrowed(telemetry_path));
    let requests = http.clone();
    let mut router = Router::default()
        .at("/-/healthy", Methods::Any, |call| get_only(call, HEALTHY))
        .at("/-/ready", Methods::Any, |call| get_only(call, "Statsd Exporter is Ready.\n"))
        .at(ABOUT_PATH, Methods::Any, move |call| about.respond(call))
        .at("/debug/vars", Methods::Read, |_| variables())
        .at("/debug/requests", Methods::Any, move |_| answered(&requests))
        .merge(pprof::routes());
    if let Some(lifecycle) = lifecycle {
        let Lifecycle { reload, quit } = lifecycle;
        router = router
            .at("/-/reload", Methods::Any, move |call| act(call, "Requesting reload", &*reload))
            .at("/-/quit", Methods::Any, move |call| {
                act(call, "Requesting termination... Goodbye!", &*quit)
            });
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
    response::with_type(200, "text/html; charset=utf-8", super::body::Body::whole(page))
}

/// `/debug/vars`: the command line and memory of the process as JSON.
fn variables() -> Response {
    let args: Vec<String> =
        std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let page = serde_json::json!({
        "cmdline": args,
        "memstats": crate::telemetry::process::memory(),
    });
    response::with_type(
        200,
        "application/json; charset=utf-8",
        super::body::Body::whole(page.to_string()),
    )
}
