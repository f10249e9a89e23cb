//! Timeouts of a connection and of each response on it.
//!
//! hyper's own header timeout also runs while a kept-alive connection is idle, and hyper has no
//! write timeout. The originals distinguish three phases: waiting for a request, reading its head,
//! and answering. [`Deadlines`] tracks the phase. [`TimedStream`] fails reads and writes that
//! exceed it, and passes on one head at a time, so that bytes of the next request do not hide in
//! hyper's buffer where no timeout applies. An HTTP/2 connection is in use while any of its
//! requests is being answered, and idle after the last.
//!
//! A response also has an absolute deadline and ends when its client accepts no body frame for
//! 10 s. Neither depends on the socket, because an HTTP/2 client with a closed window blocks
//! no write. [`Peer`] tells a slow handler whether its client is still connected.

mod deadlines;
mod peer;
mod request_head;
mod timed_stream;
mod timer;

pub use deadlines::{Answer, Deadlines, Limits};
pub use peer::Peer;
pub use timed_stream::TimedStream;

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName};

/// The header in which Prometheus announces its scrape timeout.
const SCRAPE_TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// Returns the scrape timeout, if the client announces it.
pub fn scrape_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(SCRAPE_TIMEOUT)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|timeout| !timeout.is_zero())
}

/// A request and its connection.
#[derive(Clone)]
pub struct Exchange {
    pub(in crate::server) number: u64,
    pub(in crate::server) deadlines: Deadlines,
}
