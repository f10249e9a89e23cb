//! The metric families of processes and pressure.

use super::pressure::Pressure;
use super::procfs::{Stalls, TICKS};
use super::usage::{Gap, NameUsage};
use crate::exposition::family::{Family, FamilyRow, family_rows};

/// Returns a sum unless a process lacks this figure: a partial sum would be wrong.
fn complete(usage: &NameUsage, gap: Gap, total: Option<u64>) -> Option<f64> {
    total.filter(|_| usage.lacking(gap) == 0).map(|total| total as f64)
}

type PressureRow = FamilyRow<fn(&Stalls) -> Option<u64>>;
type ProcessRow = FamilyRow<fn(&NameUsage) -> Option<f64>>;

/// Families of pressure, labelled with the resource.
static PRESSURE: &[PressureRow] = family_rows! {
    Counter "kstatd_node_pressure_full_seconds_total",
        "Time in which all tasks of the host waited for the resource, since boot.": |of| of.full;
    Counter "kstatd_node_pressure_some_seconds_total",
        "Time in which at least one task of the host waited for the resource, since boot.": |of| of.some;
};

/// Families of figures of processes, labelled with their name.
static PROCESSES: &[ProcessRow] = family_rows! {
    Counter "kstatd_node_process_context_switches_total",
        "Context switches of the processes with this name.":
        |usage| complete(usage, Gap::Threads, Some(usage.totals.switches));
    Counter "kstatd_node_process_cpu_seconds_total",
        "User and system CPU time of the processes with this name, in seconds.":
        |usage| Some(usage.totals.cpu as f64 / TICKS);
    Counter "kstatd_node_process_read_bytes_total",
        "Bytes that the processes with this name caused to be read from disks.":
        |usage| complete(usage, Gap::Io, usage.totals.read);
    Gauge "kstatd_node_process_resident_memory_bytes",
        "Resident memory of the processes with this name, in bytes.":
        |usage| usage.memory().map(|bytes| bytes as f64);
    Gauge "kstatd_node_process_threads", "Number of threads of the processes with this name.":
        |usage| usage.threads().map(|threads| threads as f64);
    Counter "kstatd_node_process_wakeups_total",
        "Voluntary context switches of the processes with this name; each was followed by a wake-up.":
        |usage| complete(usage, Gap::Threads, Some(usage.totals.wakeups));
    Counter "kstatd_node_process_written_bytes_total",
        "Bytes that the processes with this name caused to be written to disks.":
        |usage| complete(usage, Gap::Io, usage.totals.written);
    Gauge "kstatd_node_processes", "Number of processes with this name.":
        |usage| Some(usage.count() as f64);
};

/// Returns the names of all families.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PRESSURE.iter().map(|row| row.name).chain(PROCESSES.iter().map(|row| row.name))
}

/// Returns the families that have series.
pub(super) fn collect<'a>(
    names: impl Iterator<Item = (&'a String, &'a NameUsage)> + Clone,
    pressure: &Pressure,
) -> Vec<Family> {
    let seconds = |row: &PressureRow| {
        let series = pressure
            .stalls
            .iter()
            .filter_map(|(resource, stalls)| Some((*resource, (row.value)(stalls)? as f64 / 1e6)));
        Family::by(row.name, row.help, row.kind, "resource", series)
    };
    let figures = |row: &ProcessRow| {
        let seen = names.clone().filter(|(_, usage)| usage.was_seen);
        let series = seen.filter_map(|(name, usage)| Some((name.as_str(), (row.value)(usage)?)));
        Family::by(row.name, row.help, row.kind, "name", series)
    };
    let families = PRESSURE.iter().map(seconds).chain(PROCESSES.iter().map(figures));
    families.filter(|family| !family.series.is_empty()).collect()
}
