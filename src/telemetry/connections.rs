//! Counters of the HTTP connections of the process.

use std::sync::LazyLock;

use super::metric::{Counter, Gauge, own_metrics};

own_metrics! {
    /// The HTTP connections of this process, shared by all listeners.
    #[derive(Debug)]
    pub(crate) struct Connections {
        gauge pub(crate) open: Gauge = "kstatd_http_connections",
            "Open HTTP connections on all listeners.";
        counter pub(crate) closed_for_another: Counter =
            "kstatd_http_connections_closed_for_another_total",
            "Idle or stuck HTTP connections closed to make room for new ones.";
        counter pub(crate) refused: Counter = "kstatd_http_connections_refused_total",
            "HTTP connections rejected with 503 because the connection limit was reached.";
    }
}

/// The counters of this process.
pub(crate) static CONNECTIONS: LazyLock<Connections> = LazyLock::new(Connections::default);
