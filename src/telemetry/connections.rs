//! The HTTP connections of the process: how many there are, and how many found no place.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

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

/// Shows [`CONNECTIONS`].
#[derive(Debug)]
pub(super) struct ConnectionCollector;

impl Collector for ConnectionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let open = ConstGauge::new(CONNECTIONS.open.load(Ordering::Relaxed));
        open.encode(encoder.encode_descriptor(
            "kstatd_http_connections",
            "HTTP connections that are open, on all listeners.",
            None,
            open.metric_type(),
        )?)?;
        for (name, help, value) in [
            (
                "kstatd_http_connections_closed_for_another",
                "HTTP connections that were closed, idle or stuck, because another needed the room.",
                &CONNECTIONS.closed_for_another,
            ),
            (
                "kstatd_http_connections_refused",
                "HTTP connections that were answered with 503 because there was no room for them.",
                &CONNECTIONS.refused,
            ),
        ] {
            let count = ConstCounter::new(value.load(Ordering::Relaxed));
            count.encode(encoder.encode_descriptor(name, help, None, count.metric_type())?)?;
        }
        Ok(())
    }
}
