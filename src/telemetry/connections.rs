//! Counters of the HTTP connections of the process.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::metric::Row;

/// The HTTP connections of this process, shared by all listeners.
#[derive(Debug)]
pub(crate) struct Connections {
    open: AtomicI64,
    closed_for_another: AtomicU64,
    refused: AtomicU64,
}

/// The counters of this process.
pub(crate) static CONNECTIONS: Connections = Connections {
    open: AtomicI64::new(0),
    closed_for_another: AtomicU64::new(0),
    refused: AtomicU64::new(0),
};

impl Connections {
    /// Counts an accepted connection.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of an accepted connection.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a connection that was closed to make room for another.
    pub(crate) fn closed_for_another(&self) {
        self.closed_for_another.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was refused for lack of room.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the families of [`CONNECTIONS`].
pub(super) fn rows() -> [Row; 3] {
    [
        Row::gauge("kstatd_http_connections", "Open HTTP connections on all listeners.", || {
            CONNECTIONS.open.load(Ordering::Relaxed) as f64
        }),
        Row::counter(
            "kstatd_http_connections_closed_for_another_total",
            "Idle or stuck HTTP connections closed to make room for new ones.",
            || CONNECTIONS.closed_for_another.load(Ordering::Relaxed) as f64,
        ),
        Row::counter(
            "kstatd_http_connections_refused_total",
            "HTTP connections rejected with 503 because the connection limit was reached.",
            || CONNECTIONS.refused.load(Ordering::Relaxed) as f64,
        ),
    ]
}
