//! The usage of all processes with one name.
//!
//! Counters start at 0 with kstatd and sum up increments, so they never go back: the increments of
//! ended processes stay in the sum. A process that started since the previous scan counts from its
//! start; one that is older, but new to kstatd, from its first reading.

use std::collections::{BTreeMap, BTreeSet};

use super::names;
use super::procfs::ThreadStatus;
use super::reading::Reading;

/// The maximum number of processes with the same name. The oldest count, so that later ones cannot
/// displace them.
const MAX_PROCESSES: usize = 64;

/// A kind of missing figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Gap {
    /// `/proc` itself.
    Proc,
    /// The processes outside of this container.
    Container,
    /// Processes beyond the maximum number.
    Skipped,
    /// Disk bytes.
    Io,
    /// Context switches.
    Threads,
    /// All figures of a process.
    Stat,
    /// Pressure.
    Pressure,
}

/// Sums over all processes of a name, ended ones included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// CPU time in ticks.
    pub(super) cpu: u64,
    /// Bytes; `None` until the first successful reading.
    pub(super) read: Option<u64>,
    pub(super) written: Option<u64>,
    pub(super) switches: u64,
    pub(super) wakeups: u64,
}

/// Sets a counter of a process to its value `now` and returns the increment. The first value is an increment if the counter
/// is known to have started at 0.
fn advance(last: &mut Option<u64>, now: u64, from_zero: bool) -> u64 {
    match last.replace(now) {
        Some(last) => now.saturating_sub(last),
        None if from_zero => now,
        None => 0,
    }
}

/// A process with one of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// The start time in ticks since boot.
    pub(super) start: u64,
    pub(super) pid: u32,
}

/// A live process.
#[derive(Debug, Default)]
struct Process {
    start: u64,
    /// True if it started since the previous scan.
    is_new: bool,
    /// The counters at the last reading.
    cpu: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
    /// The threads of the last reading; `None` before the first.
    threads: Option<BTreeMap<u32, ThreadStatus>>,
    /// Those of the reading before that the last one lacks. One may have been overlooked.
    missed: BTreeMap<u32, ThreadStatus>,
    thread_count: u64,
    memory: u64,
    /// The figures missing from the last reading.
    lacks: BTreeSet<Gap>,
}

/// The processes with one name.
#[derive(Debug, Default)]
pub(super) struct NameUsage {
    comm: Vec<u8>,
    pub(super) totals: Totals,
    live: BTreeMap<u32, Process>,
    /// The number of processes beyond the maximum.
    pub(super) skipped: usize,
    /// True if there ever was such a process.
    pub(super) was_seen: bool,
}

impl NameUsage {
    pub(super) fn new(name: &str) -> Self {
        Self { comm: names::comm(name).to_vec(), ..Self::default() }
    }

    /// Returns the name as `/proc/PID/comm` has it.
    pub(super) fn comm(&self) -> &[u8] {
        &self.comm
    }

    /// Returns the IDs and start times of the live processes.
    pub(super) fn processes(&self) -> Vec<(u32, u64)> {
        self.live.iter().map(|(pid, process)| (*pid, process.start)).collect()
    }

    /// Removes a process that has ended; its increments stay in the totals.
    pub(super) fn end(&mut self, pid: u32) {
        self.live.remove(&pid);
    }

    /// Removes all processes.
    pub(super) fn clear(&mut self) {
        self.live.clear();
    }

    /// Marks a process whose files are unreadable; it keeps its previous figures.
    pub(super) fn skip(&mut self, pid: u32) {
        if let Some(process) = self.live.get_mut(&pid) {
            process.lacks.insert(Gap::Stat);
        }
    }

    /// Replaces the live processes by those that a scan found. `since` is the uptime at the
    /// previous scan, in ticks.
    pub(super) fn adopt(&mut self, mut found: Vec<Found>, since: Option<u64>) {
        found.sort_unstable();
        self.skipped = found.len().saturating_sub(MAX_PROCESSES);
        found.truncate(MAX_PROCESSES);
        let mut old = std::mem::take(&mut self.live);
        for Found { start, pid } in found {
            let known = old.remove(&pid).filter(|process| process.start == start);
            let is_new = since.is_some_and(|since| start >= since);
            let new = || Process { start, is_new, ..Process::default() };
            self.live.insert(pid, known.unwrap_or_else(new));
        }
        self.was_seen |= !self.live.is_empty();
    }

    /// Enters a reading of a process.
    pub(super) fn enter(&mut self, pid: u32, reading: Reading) {
        let Some(process) = self.live.get_mut(&pid) else { return };
        let (totals, is_new) = (&mut self.totals, process.is_new);
        let cpu = advance(&mut process.cpu, reading.stat.cpu, is_new);
        totals.cpu = totals.cpu.saturating_add(cpu);
        if let Some(io) = reading.io {
            let read = advance(&mut process.read, io.read, is_new);
            totals.read = Some(totals.read.unwrap_or(0).saturating_add(read));
            let written = advance(&mut process.written, io.written, is_new);
            totals.written = Some(totals.written.unwrap_or(0).saturating_add(written));
        }
        (process.thread_count, process.memory) = (reading.stat.threads, reading.memory);
        let lacks = [(Gap::Io, reading.io.is_none()), (Gap::Threads, reading.threads.is_none())];
        process.lacks = lacks.into_iter().filter_map(|(gap, is)| is.then_some(gap)).collect();
        if let Some(threads) = reading.threads {
            process.enter_threads(threads, totals);
        }
    }

    /// Returns the number of processes.
    pub(super) fn count(&self) -> usize {
        self.live.len()
    }

    /// Returns the number of threads; `None` without a process.
    pub(super) fn threads(&self) -> Option<u64> {
        self.sum(|process| process.thread_count)
    }

    /// Returns the resident memory in bytes; `None` without a process.
    pub(super) fn memory(&self) -> Option<u64> {
        self.sum(|process| process.memory)
    }

    fn sum(&self, of: fn(&Process) -> u64) -> Option<u64> {
        let sum = self.live.values().fold(0_u64, |sum, process| sum.saturating_add(of(process)));
        (!self.live.is_empty()).then_some(sum)
    }

    /// Returns the number of processes that lack figures, or that are not counted at all.
    pub(super) fn lacking(&self, gap: Gap) -> usize {
        match gap {
            Gap::Skipped => self.skipped,
            _ => self.live.values().filter(|process| process.lacks.contains(&gap)).count(),
        }
    }
}

impl Process {
    fn enter_threads(&mut self, threads: Vec<(u32, ThreadStatus)>, totals: &mut Totals) {
        // A thread that is in neither of the last two readings has started since.
        let counts_all = self.is_new || self.threads.is_some();
        let mut before = self.threads.take().unwrap_or_default();
        let missed = std::mem::take(&mut self.missed);
        for (thread, now) in &threads {
            let zero = ThreadStatus::default();
            let last = match before.get(thread).or_else(|| missed.get(thread)) {
                Some(last) if last.switches <= now.switches => last,
                // The ID was reused within the process.
                Some(_) => &zero,
                None if counts_all => &zero,
                None => now,
            };
            let increment = |of: fn(&ThreadStatus) -> u64| of(now).saturating_sub(of(last));
            totals.switches = totals.switches.saturating_add(increment(|of| of.switches));
            totals.wakeups = totals.wakeups.saturating_add(increment(|of| of.wakeups));
        }
        let now: BTreeMap<u32, ThreadStatus> = threads.into_iter().collect();
        before.retain(|thread, _| !now.contains_key(thread));
        (self.missed, self.threads) = (before, Some(now));
    }
}

/// Returns an explanation for each kind of figures that processes lack.
pub(super) fn gaps(names: &BTreeMap<String, NameUsage>) -> BTreeMap<Gap, String> {
    let texts = [
        (
            Gap::Io,
            "no disk bytes of processes, because /proc/PID/io needs CAP_SYS_PTRACE or the same user",
        ),
        (
            Gap::Threads,
            "no context switches of processes with unreadable or more than 1,024 threads",
        ),
        (Gap::Stat, "old figures of processes whose files in /proc cannot be read"),
        (Gap::Skipped, "only the 64 oldest processes of a name count, and there are more"),
    ];
    let mut gaps = BTreeMap::new();
    for (gap, text) in texts {
        let lacking = names.iter().filter(|(_, usage)| usage.lacking(gap) > 0);
        let lacking: Vec<&str> = lacking.map(|(name, _)| name.as_str()).collect();
        if !lacking.is_empty() {
            gaps.insert(gap, format!("{text}: {}", lacking.join(", ")));
        }
    }
    gaps
}
