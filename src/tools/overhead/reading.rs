//! Reads the kernel's resource counters from procfs and cgroup v2.

use crate::cli::native::OverheadArgs;
use crate::tools::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The cumulative usage of a thread, process or cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    /// CPU time in seconds.
    pub(super) cpu: f64,
    /// Context switches.
    pub(super) switches: f64,
    /// Voluntary context switches; each was followed by a wake-up.
    pub(super) wakes: f64,
    /// Bytes read from and written to disks.
    pub(super) read: f64,
    pub(super) written: f64,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Busy and total seconds of all CPUs.
    pub(super) busy: f64,
    pub(super) all: f64,
    /// Context switches of all CPUs.
    pub(super) switches: f64,
    /// The usage by thread, process or cgroup; each contributes some of the counters.
    pub(super) used: BTreeMap<String, Used>,
    /// The usage of those that the reading before had and this one lacks: a directory that changes while it is read may lack an entry.
    pub(super) missed: BTreeMap<String, Used>,
    /// Resident memory in bytes.
    pub(super) memory: f64,
    pub(super) processes: usize,
}

/// The mount point of cgroup v2.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Ticks per second in `/proc` (`USER_HZ`), 100 on every supported architecture.
const TICKS: f64 = 100.0;

/// Reads all counters.
///
/// # Errors
///
/// When the counters of the host or of a cgroup cannot be read.
pub(super) fn read(args: &OverheadArgs) -> Result<Reading> {
    let mut reading = Reading::default();
    host(&mut reading)?;
    let mut apart = BTreeSet::new();
    for path in &args.cgroups {
        apart.extend(cgroup(path, &mut reading)?);
    }
    for pid in processes(args) {
        // Processes of a measured cgroup are counted there.
        if !apart.contains(&pid) {
            process(pid, true, &mut reading);
        }
    }
    Ok(reading)
}

/// Returns the IDs of the processes that currently match.
fn processes(args: &OverheadArgs) -> BTreeSet<u32> {
    let mut found: BTreeSet<u32> = args.pids.iter().copied().collect();
    if args.comms.is_empty() {
        return found;
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // This command may have the name of what it measures.
        if pid == std::process::id() {
            continue;
        }
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if args.comms.iter().any(|wanted| wanted == comm.trim_end()) {
            found.insert(pid);
        }
    }
    found
}

fn cgroup(named: &Path, reading: &mut Reading) -> Result<Vec<u32>> {
    let folder = match named.join("cgroup.procs").exists() {
        true => named.to_owned(),
        false => Path::new(CGROUPS).join(named.strip_prefix("/").unwrap_or(named)),
    };
    let read = |file: &str| {
        let path = folder.join(file);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let stat = read("cpu.stat")?;
    let mut used =
        Used { cpu: field(&stat, "usage_usec ").unwrap_or(0.0) / 1e6, ..Used::default() };
    // The file exists only if the IO controller is enabled.
    for device in read("io.stat").unwrap_or_default().lines() {
        let of = |key: &str| {
            let value = device.split(' ').find_map(|part| part.strip_prefix(key));
            value.and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0)
        };
        used.read += of("rbytes=");
        used.written += of("wbytes=");
    }
    let memory = read("memory.current").ok().and_then(|text| text.trim().parse::<f64>().ok());
    reading.memory += memory.unwrap_or(0.0);
    reading.used.insert(format!("cgroup {}", folder.display()), used);
    let mut pids = Vec::new();
    members(&folder, &mut pids);
    for pid in &pids {
        process(*pid, false, reading);
    }
    Ok(pids)
}

/// Collects the processes of a cgroup and its descendants.
fn members(folder: &Path, found: &mut Vec<u32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members(&entry.path(), found);
        }
    }
}

/// Returns the number after a key at the start of a line.
fn field(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn host(reading: &mut Reading) -> Result<()> {
    let stat = fs::read_to_string("/proc/stat").map_err(|error| format!("/proc/stat: {error}"))?;
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // Guest time is included in user time.
    let ticks: Vec<f64> =
        line.split_whitespace().take(8).filter_map(|part| part.parse().ok()).collect();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    reading.all = ticks.iter().sum::<f64>() / TICKS;
    reading.busy = reading.all - idle / TICKS;
    reading.switches = field(&stat, "ctxt ").unwrap_or(0.0);
    Ok(())
}

/// Adds a process; `whole` includes the counters that its cgroup already covers. A process that has
/// exited adds nothing.
fn process(pid: u32, whole: bool, reading: &mut Reading) {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let Ok(tasks) = fs::read_dir(folder.join("task")) else { return };
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    // It has ended, and its parent has not asked how.
    if status.contains("\nState:\tZ") {
        return;
    }
    reading.processes += 1;
    for task in tasks.flatten() {
        let file = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = file("status");
        let of = |key: &str| field(&status, key).unwrap_or(0.0);
        let wakes = of("voluntary_ctxt_switches:");
        let switches = wakes + of("nonvoluntary_ctxt_switches:");
        let cpu = if whole { cpu(&file("schedstat"), || file("stat")) } else { 0.0 };
        let used = Used { cpu, switches, wakes, ..Used::default() };
        reading.used.insert(format!("{pid}/{}", task.file_name().display()), used);
    }
    if whole {
        let file = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let io = file("io");
        let of = |key: &str| field(&io, key).unwrap_or(0.0);
        let used = Used { read: of("read_bytes:"), written: of("write_bytes:"), ..Used::default() };
        reading.used.insert(pid.to_string(), used);
        reading.memory += field(&status, "VmRSS:").unwrap_or(0.0) * 1024.0;
    }
}

/// Returns the CPU seconds of a thread, from the scheduler's nanoseconds if available, else from
/// ticks.
fn cpu(schedstat: &str, stat: impl Fn() -> String) -> f64 {
    if let Some(nanoseconds) = schedstat.split(' ').next().and_then(|of| of.parse::<f64>().ok()) {
        return nanoseconds / 1e9;
    }
    let stat = stat();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2);
    ticks.filter_map(|of| of.parse::<f64>().ok()).sum::<f64>() / TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_thread() {
        assert_eq!(cpu("1500000000 7 9\n", String::new), 1.5);
        let stat = || "1 (a) b) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0".to_owned();
        assert_eq!(cpu("", stat), 3.0);
    }
}
