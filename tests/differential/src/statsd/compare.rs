//! Comparison of two expositions of statsd_exporter.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Exporter, POLL, protobuf};
use crate::program::{body, difference};

const TEXT: &str = "text/plain";
const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

/// Families of the exporter itself and of its runtime.
const OWN: &[&str] = &["statsd_exporter_", "statsd_metric_mapper_", "go_", "process_", "promhttp_"];

/// Own metrics whose values must be equal.
const COMPARED_OWN: &[&str] = &[
    "statsd_exporter_lines_total",
    "statsd_exporter_samples_total",
    "statsd_exporter_sample_errors_total",
    "statsd_exporter_tags_total",
    "statsd_exporter_tag_errors_total",
    "statsd_exporter_events_total",
    "statsd_exporter_events_unmapped_total",
    "statsd_exporter_events_actions_total",
    "statsd_exporter_events_error_total",
    "statsd_exporter_events_conflict_total",
    "statsd_exporter_udp_packets_total",
    "statsd_exporter_unixgram_packets_total",
    "statsd_exporter_tcp_connections_total",
    "statsd_exporter_tcp_too_long_lines_total",
    "statsd_exporter_tcp_connection_errors_total",
    "statsd_exporter_loaded_mappings",
    "statsd_exporter_metrics_total",
    "statsd_exporter_config_reloads_total",
];

/// Returns the text exposition.
pub fn text(port: u16) -> Result<String> {
    Ok(String::from_utf8_lossy(&body(port, "/metrics", TEXT)?).into_owned())
}

/// Returns what must be equal: the text without help, own counters, and the samples and native histograms of the
/// protobuf exposition.
fn answer(exporter: &Exporter) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for line in text(exporter.port)?.lines() {
        let name = line.strip_prefix("# TYPE ").unwrap_or(line);
        let name = name.split(['{', ' ']).next().unwrap_or_default();
        let is_own = OWN.iter().any(|prefix| name.starts_with(prefix));
        if !line.starts_with("# HELP ") && (!is_own || COMPARED_OWN.contains(&name)) {
            lines.push(line.to_owned());
        }
    }
    let binary = body(exporter.port, "/metrics", PROTOBUF)?;
    let is_own = |name: &str| OWN.iter().any(|prefix| name.starts_with(prefix));
    let mut metrics = protobuf::lines(&binary, |name| !is_own(name))?;
    // The order is that of the text.
    metrics.sort();
    lines.extend(metrics);
    Ok(lines)
}

/// Returns the difference of two exporters that lasts, and the number of compared lines.
///
/// # Errors
///
/// One of them does not answer.
pub fn lasting_difference(
    sides: &[Exporter; 2],
    lasting: Duration,
) -> Result<(Option<String>, usize)> {
    let deadline = Instant::now() + lasting;
    loop {
        let [original, kstatd] = sides;
        let original = answer(original).context("the original")?;
        let kstatd = answer(kstatd).context("kstatd")?;
        let found = difference(&original, &kstatd);
        if found.is_none() || Instant::now() > deadline {
            return Ok((found, original.len()));
        }
        std::thread::sleep(POLL);
    }
}
