//! Metrics of the HTTP side.

use std::sync::atomic::AtomicI64;
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::registry::Recorder;

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
