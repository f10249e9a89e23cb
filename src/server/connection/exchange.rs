//! A request and its connection, for the handler of the request.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName};

use super::deadlines::Deadlines;

/// The header in which Prometheus announces its scrape timeout.
const SCRAPE_TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// Returns the scrape timeout, if the client announces it.
pub fn scrape_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(SCRAPE_TIMEOUT)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|timeout| !timeout.is_zero())
}

/// A request and its connection.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub(in crate::server) number: u64,
    pub(in crate::server) deadlines: Deadlines,
}

impl Exchange {
    /// Returns whether the server, and not its client, ends the response early.
    pub(in crate::server) fn is_ended_by_server(&self) -> bool {
        self.deadlines.ends_response(self.number)
    }

    /// Calls `unread` if the client resets the connection before its next request.
    pub(in crate::server) fn on_reset(&self, unread: impl FnOnce() + Send + 'static) {
        self.deadlines.on_reset(unread);
    }
}
