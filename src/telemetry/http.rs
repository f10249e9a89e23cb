//! Metrics of the HTTP server.

use std::time::Instant;

use super::metric::{Counter, Gauge, Histogram, Labelled, own_metrics};
use super::registry::Recorder;
use super::scrapes::ScrapeLog;

own_metrics! {
    /// The duration histogram, which kube-state-metrics has.
    #[derive(Clone, Debug)]
    struct Durations {
        histogram requests: Labelled<Histogram, 2> ["handler", "method"] =
            "http_request_duration_seconds",
            "Time from the request head to the last byte of the response.";
    }
}

own_metrics! {
    /// The scrape counters of Prometheus' Go client, which statsd_exporter has.
    #[derive(Clone, Debug)]
    struct Scrapes {
        gauge in_flight: Gauge = "promhttp_metric_handler_requests_in_flight",
            "Scrapes in flight.";
        counter answered: Labelled<Counter, 1> ["code"] = "promhttp_metric_handler_requests_total",
            "Scrapes answered, by status.";
    }
}

/// The metrics of the HTTP server. Each part is exposed if it is registered.
#[derive(Clone, Debug, Default)]
pub struct HttpMetrics {
    durations: Durations,
    scrapes: Scrapes,
    /// The log of the last scrapes.
    pub(crate) log: ScrapeLog,
}

impl HttpMetrics {
    /// Registers the duration histogram.
    pub fn register_duration(&self, recorder: &mut Recorder) {
        self.durations.register(recorder);
    }

    /// Registers the scrape counters.
    pub fn register_scrapes(&self, recorder: &mut Recorder) {
        for code in ["200", "500", "503"] {
            // The series exist before the first scrape.
            drop(self.scrapes.answered.with([code]));
        }
        self.scrapes.register(recorder);
    }

    /// Returns the numbers of answered scrapes, regardless of the status, and of scrapes in flight.
    pub fn scrapes(&self) -> (u64, i64) {
        let answered = self.scrapes.answered.each().iter().map(|(_, count)| count.get()).sum();
        (answered, self.scrapes.in_flight.get() as i64)
    }

    /// Starts timing a request; dropping the timer stops it.
    pub fn start(&self, handler: &'static str, method: &str) -> Timer {
        self.scrapes.in_flight.add(1.0);
        // Other methods share a label value, because clients choose them freely.
        let method = match method {
            "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "CONNECT" | "OPTIONS"
            | "TRACE" => method.to_ascii_lowercase(),
            _ => "unknown".to_owned(),
        };
        // A request that gets no answer counts as an internal error.
        let (labels, code) = ((handler, method), 500);
        Timer { metrics: self.clone(), labels, code, from: Instant::now() }
    }
}

/// A request in flight.
#[derive(Debug)]
pub struct Timer {
    metrics: HttpMetrics,
    labels: (&'static str, String),
    code: u16,
    from: Instant,
}

impl Timer {
    /// Records the status; it counts even if the client does not read the entire body.
    #[must_use]
    pub fn answered(mut self, code: u16) -> Self {
        self.code = code;
        self
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let elapsed = self.from.elapsed().as_secs_f64();
        let (handler, method) = &self.labels;
        self.metrics.durations.requests.with([handler, method]).observe(elapsed);
        self.metrics.scrapes.answered.with([&self.code.to_string()]).inc();
        self.metrics.scrapes.in_flight.add(-1.0);
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
        drop(timer.answered(200));
        drop(metrics.start("metrics", "BREW").answered(400));
        drop(metrics.start("metrics", "GET"));
        assert_eq!(metrics.scrapes(), (3, 0));
        let body = own.encode(Format::Text);
        for line in [
            "http_request_duration_seconds_count{handler=\"metrics\",method=\"get\"} 2\n",
            "http_request_duration_seconds_count{handler=\"metrics\",method=\"unknown\"} 1\n",
            "promhttp_metric_handler_requests_total{code=\"200\"} 1\n",
            "promhttp_metric_handler_requests_total{code=\"400\"} 1\n",
            "promhttp_metric_handler_requests_total{code=\"500\"} 1\n",
            "promhttp_metric_handler_requests_total{code=\"503\"} 0\n",
            "promhttp_metric_handler_requests_in_flight 0\n",
        ] {
            assert!(body.contains(line), "{line} in {body}");
        }
    }
}
