//! Metrics of the HTTP side.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;

use super::Recorder;

/// The default buckets of Prometheus' clients, in seconds.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DurationLabels {
    handler: &'static str,
    method: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CodeLabels {
    code: u16,
}

/// `http_request_duration_seconds` and, where asked for, the `promhttp_*` metrics of Prometheus' Go
/// client.
#[derive(Clone, Debug)]
pub struct HttpMetrics {
    duration: Family<DurationLabels, Histogram, fn() -> Histogram>,
    scrapes: Family<CodeLabels, Counter>,
    in_flight: Gauge<i64, AtomicI64>,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self {
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            scrapes: Family::default(),
            in_flight: Gauge::default(),
        }
    }
}

impl HttpMetrics {
    /// Registers the duration histogram, which kube-state-metrics has.
    pub fn register_duration(&self, recorder: &mut Recorder) {
        recorder.registry.register(
            "http_request_duration_seconds",
            "Time from the head of a request to the last byte of its answer",
            self.duration.clone(),
        );
    }

    /// Registers the scrape counters, which statsd_exporter has.
    pub fn register_scrapes(&self, recorder: &mut Recorder) {
        for code in [200, 500, 503] {
            // The series exist before the first scrape.
            drop(self.scrapes.get_or_create(&CodeLabels { code }));
        }
        recorder.registry.register(
            "promhttp_metric_handler_requests_in_flight",
            "Scrapes being answered",
            self.in_flight.clone(),
        );
        recorder.registry.register(
            "promhttp_metric_handler_requests",
            "Scrapes answered, by status",
            self.scrapes.clone(),
        );
    }

    /// Scrapes answered and being answered.
    pub fn scrapes(&self) -> (u64, i64) {
        (self.scrapes.get_or_create(&CodeLabels { code: 200 }).get(), self.in_flight.get())
    }

    /// Starts the clock of one request; dropping the timer stops it.
    pub fn start(&self, handler: &'static str, method: &str) -> Timer {
        self.in_flight.inc();
        // Methods outside the common ones share a label value: clients choose them freely.
        let method = match method {
            "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "CONNECT" | "OPTIONS"
            | "TRACE" => method.to_ascii_lowercase(),
            _ => "unknown".to_owned(),
        };
        Timer {
            metrics: self.clone(),
            labels: DurationLabels { handler, method },
            from: Instant::now(),
        }
    }
}

/// One request being answered.
#[derive(Debug)]
pub struct Timer {
    metrics: HttpMetrics,
    labels: DurationLabels,
    from: Instant,
}

impl Drop for Timer {
    fn drop(&mut self) {
        let elapsed = self.from.elapsed().as_secs_f64();
        self.metrics.duration.get_or_create(&self.labels).observe(elapsed);
        self.metrics.scrapes.get_or_create(&CodeLabels { code: 200 }).inc();
        self.metrics.in_flight.dec();
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Format;

    #[test]
    fn one_request_is_one_observation() {
        let metrics = HttpMetrics::default();
        let mut recorder = Recorder::default();
        metrics.register_duration(&mut recorder);
        metrics.register_scrapes(&mut recorder);
        let own = recorder.finish();
        let timer = metrics.start("metrics", "GET");
        assert!(own.encode(Format::Text).contains("requests_in_flight 1\n"));
        drop(timer);
        drop(metrics.start("metrics", "BREW"));
        let body = own.encode(Format::Text);
        for line in [
            "http_request_duration_seconds_count{handler=\"metrics\",method=\"get\"} 1\n",
            "http_request_duration_seconds_count{handler=\"metrics\",method=\"unknown\"} 1\n",
            "promhttp_metric_handler_requests_total{code=\"200\"} 2\n",
            "promhttp_metric_handler_requests_total{code=\"503\"} 0\n",
            "promhttp_metric_handler_requests_in_flight 0\n",
        ] {
            assert!(body.contains(line), "{line} in {body}");
        }
    }
}
