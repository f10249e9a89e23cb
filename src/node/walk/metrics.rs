//! Counters for the cost of a walk.

use crate::telemetry::metric::{Counter, Gauge, Labelled, own_metrics};
use crate::util::words::words;

words! {
    /// A system call that is counted separately.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::node) enum Call {
        Open = "openat",
        Stat = "fstatat",
        Read = "getdents64",
        Close = "close",
        Quota = "quotactl_fd",
    }
}

own_metrics! {
    /// The cost counters of a walk.
    #[derive(Clone)]
    pub(crate) struct WalkMetrics {
        counter pub(super) cpu: Gauge = "kstatd_node_walk_cpu_seconds_total",
            "User and system CPU time of the walk thread in seconds.";
        counter pub(super) bytes: Counter = "kstatd_node_walk_directory_bytes_total",
            "Bytes of directory entries read by the walk.";
        counter pub(super) entries: Counter = "kstatd_node_walk_entries_total",
            "Files and directories examined by the walk.";
        counter pub(super) errors: Counter = "kstatd_node_walk_errors_total",
            "Directories that the walk could not read, or that are nested too deeply.";
        gauge pub(super) memory: Gauge = "kstatd_node_walk_memory_bytes",
            "Memory of the walk's cache in bytes, at most --walk-memory.";
        counter pub(super) passes: Counter = "kstatd_node_walk_passes_total",
            "Completed passes of the walk.";
        counter pub(super) paused: Gauge = "kstatd_node_walk_paused_seconds_total",
            "Time the walk paused because of IO pressure on the host.";
        counter pub(super) pauses: Counter = "kstatd_node_walk_pauses_total",
            "Pauses of the walk because of IO pressure on the host.";
        gauge pub(super) skipped: Gauge = "kstatd_node_walk_skipped_entries",
            "Entries that the walk skips because --walk-memory is exhausted, or because it cannot examine them.";
        counter calls: Labelled<Counter, 1> ["call"] = "kstatd_node_walk_system_calls_total",
            "System calls made by the walk.";
        counter pub(super) unchanged: Counter = "kstatd_node_walk_unchanged_directories_total",
            "Directories skipped by the walk because they have not changed.";
    }
    state {
        /// The counters of `calls`, so that a call is counted without a look-up.
        by_call: [Counter; Call::ALL.len()],
    }
}

impl WalkMetrics {
    /// Creates the metrics, with a series for each system call.
    pub(crate) fn new() -> Self {
        let metrics = Self::default();
        let by_call = Call::ALL.map(|call| metrics.calls.with([call.as_str()]));
        Self { by_call, ..metrics }
    }

    /// Counts a call.
    pub(in crate::node) fn count(&self, call: Call) {
        self.by_call[call as usize].inc();
    }
}
