//! Summarises the exporter's state in one line, from scrapes of its listeners.

use std::time::Duration;

use indicatif::{DecimalBytes, HumanCount};
use tokio::time::Instant;

use crate::kube::client::endpoint::Endpoint;
use crate::tools::Result;
use crate::tools::diff::{TEXT, fetch};

/// The time within which a scrape must be complete.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The state of the last scrapes.
pub struct Summary {
    metrics: Endpoint,
    telemetry: Endpoint,
    last_scrape: Duration,
    lines: Option<(Instant, f64)>,
}

impl Summary {
    /// Creates a summary before the first scrape.
    pub fn new(metrics: Endpoint, telemetry: Endpoint) -> Self {
        Self { metrics, telemetry, last_scrape: Duration::ZERO, lines: None }
    }

    /// Returns the duration of the last scrape.
    pub fn last_scrape(&self) -> Duration {
        self.last_scrape
    }

    /// Reads the counters, so that the first summary can show rates.
    ///
    /// # Errors
    /// When the listener does not respond.
    pub async fn begin(&mut self) -> Result<()> {
        let own = self.own_metrics().await?;
        self.line_rate(&own);
        Ok(())
    }

    async fn own_metrics(&self) -> Result<String> {
        let mut own = Vec::new();
        fetch(&self.telemetry, TEXT, "identity", TIMEOUT, &mut own).await?;
        Ok(String::from_utf8_lossy(&own).into_owned())
    }

    /// Scrapes and returns the summary; `objects` is the number of objects in the cluster.
    ///
    /// # Errors
    /// When a listener does not respond.
    pub async fn take(&mut self, objects: usize) -> Result<String> {
        let mut body: Vec<u8> = Vec::new();
        let start = Instant::now();
        let fetched = fetch(&self.metrics, TEXT, "identity", TIMEOUT, &mut body).await;
        self.last_scrape = start.elapsed();
        let transferred = fetched?.transferred;
        let lines = body.split(|byte| *byte == b'\n');
        let series = lines.filter(|line| line.first().is_some_and(|first| *first != b'#')).count();
        let own = self.own_metrics().await?;
        let rate = self.line_rate(&own);
        Ok(format!(
            "{} objects, {} series, scrape {} in {:.1} ms, {} StatsD lines/s",
            HumanCount(objects as u64),
            HumanCount(series as u64),
            DecimalBytes(transferred),
            self.last_scrape.as_secs_f64() * 1e3,
            rate.map_or_else(|| "…".to_owned(), |rate| format!("{rate:.0}")),
        ))
    }

    /// Returns the lines per second since the last call, from the exporter's own counter.
    fn line_rate(&mut self, own: &str) -> Option<f64> {
        let value = own.lines().find_map(|line| {
            line.strip_prefix("statsd_exporter_lines_total ")?.trim().parse::<f64>().ok()
        })?;
        let now = Instant::now();
        let (then, before) = self.lines.replace((now, value))?;
        Some((value - before) / (now - then).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::client::endpoint::Access;

    #[tokio::test]
    async fn rates_need_two_samples() {
        let any = Endpoint::new("http://127.0.0.1:1", Access::default()).unwrap();
        let mut summary = Summary::new(any.clone(), any);
        assert_eq!(summary.line_rate("x 1\n"), None);
        assert_eq!(summary.line_rate("statsd_exporter_lines_total 5\n"), None);
        assert!(summary.line_rate("statsd_exporter_lines_total 9\n").unwrap() > 0.0);
    }
}
