//! `process_*` metrics and the thread list, read from `/proc/self` on request.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::exposition::family::{Collect, Family, FamilyRow, family_rows};

/// Ticks per second in `/proc/*/stat` (`USER_HZ`), which is 100 on every supported architecture,
/// regardless of the kernel's timer frequency.
const TICKS: f64 = 100.0;

/// Returns the time at which the process started, since the Unix epoch.
pub(super) fn start() -> Option<Duration> {
    Duration::try_from_secs_f64(Stat::read()?.started()?).ok()
}

/// Collects the metrics from `/proc/self` on each scrape, omitting those of unreadable files.
#[derive(Debug)]
pub struct Process;

/// The files of one scrape.
struct Files {
    stat: Option<Stat>,
    limits: String,
    /// As [`memory`] returns it.
    memory: BTreeMap<String, u64>,
    network: Option<(f64, f64)>,
}

/// A family with the function that returns its value.
type Row = FamilyRow<fn(&Files) -> Option<f64>>;

const ROWS: &[Row] = family_rows! {
    Counter "process_cpu_seconds_total", "CPU time spent, user and system, in seconds.":
        |of| Some(of.stat.as_ref()?.cpu);
    Gauge "process_max_fds", "Maximum number of open file descriptors allowed.":
        |of| soft_limit(&of.limits, "Max open files");
    Counter "process_network_receive_bytes_total", "Bytes received by the network namespace.":
        |of| Some(of.network?.0);
    Counter "process_network_transmit_bytes_total", "Bytes sent by the network namespace.":
        |of| Some(of.network?.1);
    Gauge "process_open_fds", "Open file descriptors.": |_| open_files();
    Gauge "process_resident_memory_bytes", "Memory in RAM in bytes.":
        |of| Some(*of.memory.get("VmRSS")? as f64);
    Gauge "process_start_time_seconds", "Start of the process, seconds since the Unix epoch.":
        |of| of.stat.as_ref()?.started();
    Gauge "process_virtual_memory_bytes", "Size of the address space in bytes.":
        |of| Some(*of.memory.get("VmSize")? as f64);
    Gauge "process_virtual_memory_max_bytes",
        "Largest address space allowed in bytes; without a limit, the largest number of 64 bits.":
        |of| soft_limit(&of.limits, "Max address space");
};

impl Collect for Process {
    fn collect(&self, out: &mut Vec<Family>) {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let files = Files {
            stat: Stat::read(),
            limits: read("/proc/self/limits"),
            memory: memory(),
            network: network(),
        };
        out.extend(ROWS.iter().filter_map(|&FamilyRow { name, help, kind, value }| {
            Some(Family::one(name, help, kind, value(&files)?))
        }));
    }

    fn may_have(&self, names: &BTreeSet<String>) -> bool {
        ROWS.iter().any(|row| names.contains(row.name))
    }
}

/// The fields read from `/proc/self/stat`.
struct Stat {
    /// CPU time in seconds.
    cpu: f64,
    /// Seconds from boot to the start of the process.
    since_boot: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The command is in parentheses and may contain anything; fields are counted after it.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        Some(Self { cpu: (ticks(11)? + ticks(12)?) / TICKS, since_boot: ticks(19)? / TICKS })
    }

    fn started(&self) -> Option<f64> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
        Some(boot.trim().parse::<f64>().ok()? + self.since_boot)
    }
}

fn open_files() -> Option<f64> {
    // Excludes the directory handle of this read itself.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn soft_limit(limits: &str, key: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(key))?;
    match line.split_whitespace().next()? {
        // The value of Go's collector.
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

fn network() -> Option<(f64, f64)> {
    let stats = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = stats.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let of = |wanted: &str| -> Option<f64> {
        let index = names.split(' ').position(|name| name == wanted)?;
        values.split(' ').nth(index)?.parse().ok()
    };
    Some((of("InOctets")?, of("OutOctets")?))
}

/// The resource usage of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// CPU seconds since the start.
    pub(crate) cpu: f64,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
}

/// Returns the current resource usage.
pub(crate) fn usage() -> Option<Usage> {
    Some(Usage { cpu: Stat::read()?.cpu, memory: *memory().get("VmRSS")? })
}

/// Returns the memory limit of the process's cgroup in bytes: the lowest of its ancestors. Absent without a limit.
pub(crate) fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    lowest_limit(&groups, Path::new("/sys/fs/cgroup"))
}

/// Returns the lowest memory limit of the groups in `groups`, which has the format of `/proc/self/cgroup`.
fn lowest_limit(groups: &str, mount: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (mount, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            "memory" => (mount.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        // In a container the mount may show only the own group, under its root.
        let group = mount.join(path.trim_start_matches('/'));
        let ancestors = group.ancestors().take_while(|folder| folder.starts_with(&mount));
        let limit = |folder: &Path| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
        ancestors.filter_map(limit).min()
    });
    // Without a limit, version 1 has the largest number of pages.
    limits.min().filter(|limit: &u64| *limit < 1 << 60)
}

/// Returns the memory of the process in bytes, by the field names of `/proc/self/status`.
pub fn memory() -> BTreeMap<String, u64> {
    sizes(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn sizes(status: &str) -> BTreeMap<String, u64> {
    let bytes = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let kilobytes: u64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some((name.to_owned(), kilobytes * 1024))
    };
    status.lines().filter_map(bytes).collect()
}

/// Returns the command line, with invalid UTF-8 replaced.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// Returns one line per thread: id, name, state.
pub fn threads() -> String {
    let mut lines: Vec<(u32, String)> = Vec::new();
    for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let id = entry.file_name().to_string_lossy().parse().unwrap_or_default();
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let field = |key: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(key));
            value.unwrap_or_default().trim().to_owned()
        };
        lines.push((id, format!("{id} {} {}\n", field("Name:"), field("State:"))));
    }
    lines.sort_unstable();
    let count = lines.len();
    let list: String = lines.into_iter().map(|(_, line)| line).collect();
    format!("threads: {count}\n{list}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_parentheses_are_parsed() {
        let text = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 4200 1 2";
        let stat = Stat::parse(text).expect("fields");
        assert_eq!((stat.cpu, stat.since_boot), (2.0, 42.0));
        assert!(Stat::parse("7 (a").is_none());
        assert!(Stat::parse("7 (a) S 1").is_none());
    }

    #[test]
    fn limits_and_sizes() {
        let limits = "Max open files            1024                 4096                 files\n\
                      Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(soft_limit(limits, "Max address space"), Some(18_446_744_073_709_551_615.0));
        assert_eq!(soft_limit(limits, "Max nothing"), None);
        assert_eq!(sizes("VmRSS:\t    8 kB\n").get("VmRSS"), Some(&8192));
    }

    #[test]
    fn memory_limit_is_the_lowest_of_all_ancestors() {
        let folder = tempfile::tempdir().expect("folder");
        let file = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("folder");
            fs::write(path, text).expect("file");
        };
        let limit = |groups: &str| lowest_limit(groups, folder.path());
        assert_eq!(limit("0::/a/b\n"), None);
        file("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        file("a/memory.max", "3000\n");
        assert_eq!(limit("0::/a/b\n"), Some(3000));
        file("a/b/memory.max", "2000\n");
        assert_eq!(limit("0::/a/b\n"), Some(2000));
        assert_eq!(limit("0::/a\n"), Some(3000));
        file("memory/c/memory.limit_in_bytes", "1000\n");
        file("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit("4:memory:/c\n0::/\n"), Some(1000));
        assert_eq!(limit("4:memory:/\n0::/\n"), None);
        // The mount of a container is the own group.
        file("memory.max", "500\n");
        assert_eq!(limit("0::/kubepods/pod1/x\n"), Some(500));
    }

    #[test]
    fn this_thread_is_listed() {
        assert!(threads().starts_with("threads: "));
        assert!(threads().lines().count() >= 2);
    }
}
