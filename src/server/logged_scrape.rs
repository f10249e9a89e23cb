//! Adds scrapes to the log of recent scrapes when their responses have ended.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};

use super::body::Sent;
use super::connection::Peer;
use super::response::Response;
use super::router::Call;
use crate::telemetry::scrapes::{Scrape, ScrapeLog};

/// A scrape in progress, logged on drop.
pub(super) struct LoggedScrape {
    log: ScrapeLog,
    from: Instant,
    scrape: Scrape,
    sent: Arc<Sent>,
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
            status: 0,
            form: "",
            gzip: false,
            seconds: 0.0,
            bytes: 0,
            complete: false,
        };
        Self { log: log.clone(), from: Instant::now(), scrape, sent: Arc::default() }
    }

    /// Records the response and follows its body to the end.
    pub(super) fn follow(mut self, answer: Response) -> Response {
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        self.scrape.status = answer.status().as_u16();
        self.scrape.gzip = header(CONTENT_ENCODING).is_some();
        self.scrape.form = form(header(CONTENT_TYPE).unwrap_or_default());
        let sent = Arc::clone(&self.sent);
        answer.map(|body| body.counted(sent).hold(self))
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
        self.scrape.seconds = self.from.elapsed().as_secs_f64();
        self.scrape.bytes = self.sent.bytes();
        self.scrape.complete = self.sent.is_complete();
        self.log.note(self.scrape.clone());
    }
}
