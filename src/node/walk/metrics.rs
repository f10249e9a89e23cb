//! Counters for the cost of a walk.

use crate::telemetry::Recorder;
use crate::telemetry::metric::{Counter, Gauge, Labelled, Row};

/// A system call that is counted separately.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) enum Call {
    Open,
    Stat,
    Read,
    Close,
    Quota,
}

/// The names of the system calls.
const CALLS: [&str; 5] = ["openat", "fstatat", "getdents64", "close", "quotactl_fd"];

/// The cost counters of a walk.
#[derive(Clone)]
pub(crate) struct WalkMetrics {
    calls: Labelled<Counter, 1>,
    by_call: [Counter; CALLS.len()],
    pub(super) entries: Counter,
    pub(super) bytes: Counter,
    pub(super) unchanged: Counter,
    pub(super) errors: Counter,
    pub(super) passes: Counter,
    pub(super) pauses: Counter,
    pub(super) paused: Gauge,
    pub(super) cpu: Gauge,
    pub(super) memory: Gauge,
    pub(super) skipped: Gauge,
}

impl Default for WalkMetrics {
    fn default() -> Self {
        let calls = Labelled::new(["call"]);
        Self {
            by_call: CALLS.map(|call| calls.with([call])),
            calls,
            entries: Counter::default(),
            bytes: Counter::default(),
            unchanged: Counter::default(),
            errors: Counter::default(),
            passes: Counter::default(),
            pauses: Counter::default(),
            paused: Gauge::default(),
            cpu: Gauge::default(),
            memory: Gauge::default(),
            skipped: Gauge::default(),
        }
    }
}

impl WalkMetrics {
    /// Counts a call.
    pub(in crate::node) fn count(&self, call: Call) {
        self.by_call[call as usize].inc();
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, recorder: &mut Recorder) {
        let (cpu, paused) = (self.cpu.clone(), self.paused.clone());
        recorder.rows([
            Row::counter(
                "kstatd_node_walk_cpu_seconds_total",
                "User and system CPU time of the walk thread in seconds.",
                move || cpu.get(),
            ),
            Row::counter(
                "kstatd_node_walk_directory_bytes_total",
                "Bytes of directory entries read by the walk.",
                self.bytes.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_entries_total",
                "Files and directories examined by the walk.",
                self.entries.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_errors_total",
                "Directories that the walk could not read, or that are nested too deeply.",
                self.errors.clone(),
            ),
            Row::gauge(
                "kstatd_node_walk_memory_bytes",
                "Memory of the walk's cache in bytes, at most --walk-memory.",
                self.memory.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_passes_total",
                "Completed passes of the walk.",
                self.passes.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_paused_seconds_total",
                "Time the walk paused because of IO pressure on the host.",
                move || paused.get(),
            ),
            Row::counter(
                "kstatd_node_walk_pauses_total",
                "Pauses of the walk because of IO pressure on the host.",
                self.pauses.clone(),
            ),
            Row::gauge(
                "kstatd_node_walk_skipped_entries",
                "Directories and hard-linked files that the walk skips because --walk-memory is exhausted.",
                self.skipped.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_system_calls_total",
                "System calls made by the walk.",
                self.calls.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_unchanged_directories_total",
                "Directories skipped by the walk because they have not changed.",
                self.unchanged.clone(),
            ),
        ]);
    }
}
