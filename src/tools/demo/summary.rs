//! Summarises the exporter's state in one line, from scrapes of its listeners.

use std::io;
use std::time::Duration;

use indicatif::{DecimalBytes, HumanCount};
use tokio::time::Instant;

use std::net::SocketAddr;

use super::client;

/// The addresses of the exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// `/metrics` of both sides.
    pub metrics: SocketAddr,
    /// Own metrics.
    pub telemetry: SocketAddr,
    /// StatsD over UDP.
    pub statsd: SocketAddr,
}

/// The state of the last scrapes.
pub struct Summary {
    addresses: Addresses,
    last_scrape: Duration,
    lines: Option<(Instant, f64)>,
}

impl Summary {
    /// Creates a summary before the first scrape.
    pub fn new(addresses: Addresses) -> Self {
        Self { addresses, last_scrape: Duration::ZERO, lines: None }
    }

    /// Returns the duration of the last scrape.
    pub fn last_scrape(&self) -> Duration {
        self.last_scrape
    }

    /// Reads the counters, so that the first summary can show rates.
    ///
    /// # Errors
    /// When the listener does not respond.
    pub async fn begin(&mut self) -> io::Result<()> {
        let own = self.own_metrics().await?;
        self.line_rate(&own);
        Ok(())
    }

    async fn own_metrics(&self) -> io::Result<String> {
        let mut own = Vec::new();
        client::get(self.addresses.telemetry, "/metrics", |part| own.extend_from_slice(part))
            .await?;
        Ok(String::from_utf8_lossy(&own).into_owned())
    }

    /// Scrapes and returns the summary; `objects` is the number of objects in the cluster.
    ///
    /// # Errors
    /// When a listener does not respond.
    pub async fn take(&mut self, objects: usize) -> io::Result<String> {
        let mut counter = SeriesCounter::default();
        let start = Instant::now();
        let status =
            client::get(self.addresses.metrics, "/metrics", |part| counter.add(part)).await?;
        self.last_scrape = start.elapsed();
        if status != 200 {
            return Err(io::Error::other(format!("/metrics answers {status}")));
        }
        let own = self.own_metrics().await?;
        let rate = self.line_rate(&own);
        Ok(format!(
            "{} objects, {} series, scrape {} in {:.1} ms, {} StatsD lines/s",
            HumanCount(objects as u64),
            HumanCount(counter.series),
            DecimalBytes(counter.bytes),
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

/// Counts the series of a body that arrives in chunks.
#[derive(Default)]
struct SeriesCounter {
    bytes: u64,
    series: u64,
    inside: bool,
}

impl SeriesCounter {
    fn add(&mut self, mut part: &[u8]) {
        self.bytes += part.len() as u64;
        while let Some(first) = part.first() {
            if !self.inside {
                self.series += u64::from(*first != b'#');
            }
            let Some(end) = memchr::memchr(b'\n', part) else {
                self.inside = true;
                return;
            };
            self.inside = false;
            part = part.get(end + 1..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_counted_across_chunks() {
        let body = b"# HELP a\n# TYPE a gauge\na 1\na{b=\"#\"} 2\nc 3\n";
        for size in 1..body.len() {
            let mut counter = SeriesCounter::default();
            body.chunks(size).for_each(|part| counter.add(part));
            assert_eq!((counter.series, counter.bytes), (3, body.len() as u64), "{size}");
        }
    }

    #[tokio::test]
    async fn rates_need_two_samples() {
        let any = "127.0.0.1:1".parse().unwrap();
        let mut summary = Summary::new(Addresses { metrics: any, telemetry: any, statsd: any });
        assert_eq!(summary.line_rate("x 1\n"), None);
        assert_eq!(summary.line_rate("statsd_exporter_lines_total 5\n"), None);
        assert!(summary.line_rate("statsd_exporter_lines_total 9\n").unwrap() > 0.0);
    }
}
