//! kstatd's own metrics of the readings.

use std::collections::BTreeMap;

use super::usage::{Gap, NameUsage};
use crate::telemetry::metric::{Counter, Gauge, Labelled, own_metrics};

own_metrics! {
    /// Counters of readings, and the number of processes without figures.
    #[derive(Clone)]
    pub(crate) struct HostMetrics {
        gauge pub(super) last_reading: Gauge = "kstatd_node_proc_last_reading_timestamp_seconds",
            "Unix time of the last reading of processes and pressure; 0 if there was none.";
        counter pub(super) readings: Counter = "kstatd_node_proc_readings_total",
            "Readings of processes and pressure, which scrapes cause.";
        counter pub(super) cpu: Gauge = "kstatd_node_proc_reading_cpu_seconds_total",
            "CPU time of readings and scans in seconds, at most 0.1% of a core.";
        counter pub(super) scans: Counter = "kstatd_node_proc_scans_total",
            "Scans of all processes for those with the names to report.";
        gauge skipped: Gauge = "kstatd_node_proc_skipped_processes",
            "Processes that are not reported because more than 64 have the same name.";
        gauge unreadable: Labelled<Gauge, 1> ["file"] = "kstatd_node_proc_unreadable_processes",
            "Processes of which a file in /proc cannot be read.";
    }
}

impl HostMetrics {
    /// Updates the numbers of processes without figures.
    pub(super) fn note(&self, names: &BTreeMap<String, NameUsage>) {
        for (file, gap) in [("io", Gap::Io), ("stat", Gap::Stat), ("status", Gap::Threads)] {
            let lacking: usize = names.values().map(|usage| usage.lacking(gap)).sum();
            self.unreadable.with([file]).set(lacking as f64);
        }
        self.skipped.set(names.values().map(|usage| usage.skipped as f64).sum());
    }
}
