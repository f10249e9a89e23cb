//! The HTTP connections of the process: how many there are, and how many found no place.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::metric::Row;

/// The HTTP connections of this process, which all its listeners count in.
#[derive(Debug)]
pub(crate) struct Connections {
    open: AtomicI64,
    closed_for_another: AtomicU64,
    refused: AtomicU64,
}

/// See [`Connections`].
pub(crate) static CONNECTIONS: Connections = Connections {
    open: AtomicI64::new(0),
    closed_for_another: AtomicU64::new(0),
    refused: AtomicU64::new(0),
};

impl Connections {
    /// One was accepted and got a place.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// One of those has ended.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// One was closed because another needed its place.
    pub(crate) fn closed_for_another(&self) {
        self.closed_for_another.fetch_add(1, Ordering::Relaxed);
    }

    /// One found no place.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// The families that show [`CONNECTIONS`].
pub(super) fn rows() -> [Row; 3] {
    [
        Row::gauge(
            "kstatd_http_connections",
            "HTTP connections that are open, on all listeners.",
            || CONNECTIONS.open.load(Ordering::Relaxed) as f64,
        ),
        Row::counter(
            "kstatd_http_connections_closed_for_another_total",
            "HTTP connections that were closed, idle or stuck, because another needed the room.",
            || CONNECTIONS.closed_for_another.load(Ordering::Relaxed) as f64,
        ),
        Row::counter(
            "kstatd_http_connections_refused_total",
            "HTTP connections that were answered with 503 because there was no room for them.",
            || CONNECTIONS.refused.load(Ordering::Relaxed) as f64,
        ),
    ]
}
