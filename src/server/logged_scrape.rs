//! Adds scrapes to the log of recent scrapes when their responses have ended.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};

use super::body::Sent;
use super::connection::{Exchange, Peer, scrape_timeout};
use super::response::Response;
use super::router::Call;
use crate::telemetry::scrapes::{Cause, Scrape, ScrapeLog, product};

/// The time within which a reset of the connection is attributed to the last response, for a client
/// that announces no scrape timeout.
const RESET_WINDOW: Duration = Duration::from_secs(10);

/// A scrape in progress, logged on drop.
pub(super) struct LoggedScrape {
    log: ScrapeLog,
    from: Instant,
    scrape: Scrape,
    sent: Arc<Sent>,
    timeout: Option<Duration>,
    exchange: Option<Exchange>,
}

impl LoggedScrape {
    /// Creates the entry of a new scrape.
    pub(super) fn new(call: &Call, log: &ScrapeLog) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let address = call.head.extensions.get::<Peer>().and_then(Peer::address);
        let scrape = Scrape {
            at: now.as_millis() as f64 / 1000.0,
            client: address.map_or_else(String::new, |address| address.to_canonical().to_string()),
            agent: call.header(USER_AGENT).to_owned(),
            path: call.path.clone(),
            is_filtered: !call.query().is_empty(),
            scraper: product(call.header(USER_AGENT)),
            ..Scrape::default()
        };
        let timeout = scrape_timeout(&call.head.headers);
        let exchange = call.head.extensions.get().cloned();
        let (log, sent) = (log.clone(), Arc::default());
        Self { log, from: Instant::now(), scrape, sent, timeout, exchange }
    }

    /// Records the response and follows its body to the end.
    pub(super) fn follow(mut self, answer: Response) -> Response {
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        self.scrape.status = answer.status().as_u16();
        self.scrape.gzip = header(CONTENT_ENCODING).is_some();
        self.scrape.form = form(header(CONTENT_TYPE).unwrap_or_default());
        answer.map(|body| {
            let (body, sent) = body.counted();
            self.sent = sent;
            body.hold(self)
        })
    }
}

/// Returns the cause for which a client has closed its connection this long after its request.
fn cause(elapsed: Duration, timeout: Option<Duration>) -> Cause {
    // The client's clock started when it connected.
    match timeout {
        Some(timeout) if elapsed >= timeout.mul_f64(0.9) => Cause::ScrapeTimeout,
        _ => Cause::Closed,
    }
}

/// Returns the common name of a media type.
fn form(content_type: &str) -> &'static str {
    match content_type.split(';').next().unwrap_or_default() {
        "application/openmetrics-text" => "OpenMetrics",
        "application/vnd.google.protobuf" => "protobuf",
        _ => "text",
    }
}

impl Drop for LoggedScrape {
    fn drop(&mut self) {
        let elapsed = self.from.elapsed();
        self.scrape.seconds = elapsed.as_secs_f64();
        self.scrape.bytes = self.sent.bytes();
        self.scrape.text_bytes = self.sent.text_bytes();
        self.scrape.complete = self.sent.is_complete();
        if !self.scrape.complete {
            let ended = |of: &Exchange| of.deadlines.ends_response(of.number);
            let by_server = self.exchange.as_ref().is_some_and(ended);
            let cause = if by_server { Cause::Server } else { cause(elapsed, self.timeout) };
            self.scrape.cause = Some(cause);
        }
        let scrape = self.log.note(self.scrape.clone());
        let Some(exchange) = self.exchange.as_ref().filter(|_| scrape.complete) else { return };
        // The system may have taken the last bytes for a client that never reads them.
        let (log, from, timeout) = (self.log.clone(), self.from, self.timeout);
        exchange.deadlines.on_reset(move || {
            let elapsed = from.elapsed();
            if elapsed <= timeout.unwrap_or(RESET_WINDOW).mul_f64(1.1) {
                log.unread(scrape, cause(elapsed, timeout));
            }
        });
    }
}
