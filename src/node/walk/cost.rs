//! What a walk costs.

use crate::telemetry::Recorder;
use crate::telemetry::metric::{Counter, Gauge, Labelled, Row};

/// Calls that are counted apart.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) enum Call {
    Open,
    Stat,
    Read,
    Close,
    Quota,
}

/// What the system calls them.
const CALLS: [&str; 5] = ["openat", "fstatat", "getdents64", "close", "quotactl_fd"];

/// What it costs.
#[derive(Clone)]
pub(crate) struct Cost {
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
}

impl Default for Cost {
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
        }
    }
}

impl Cost {
    /// Counts a call.
    pub(in crate::node) fn count(&self, call: Call) {
        self.by_call[call as usize].inc();
    }

    /// Registers it.
    pub(crate) fn register(&self, recorder: &mut Recorder) {
        let (cpu, paused) = (self.cpu.clone(), self.paused.clone());
        recorder.rows([
            Row::counter(
                "kstatd_node_walk_cpu_seconds_total",
                "CPU time of the thread that walks, user and system, in seconds.",
                move || cpu.get(),
            ),
            Row::counter(
                "kstatd_node_walk_directory_bytes_total",
                "Bytes of directories that the walk has read.",
                self.bytes.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_entries_total",
                "Files and directories that the walk has looked at.",
                self.entries.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_errors_total",
                "Directories that the walk could not read, or that lie too deep.",
                self.errors.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_passes_total",
                "Passes of the walk through all that it has to look at.",
                self.passes.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_paused_seconds_total",
                "Time for which the walk rested because the host's IO was under pressure.",
                move || paused.get(),
            ),
            Row::counter(
                "kstatd_node_walk_pauses_total",
                "Times that the walk rested because the host's IO was under pressure.",
                self.pauses.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_system_calls_total",
                "System calls of the walk.",
                self.calls.clone(),
            ),
            Row::counter(
                "kstatd_node_walk_unchanged_directories_total",
                "Directories that were not read again because they have not changed.",
                self.unchanged.clone(),
            ),
        ]);
    }
}
