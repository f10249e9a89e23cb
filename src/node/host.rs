//! Resource usage of the node's system processes and PSI pressure, read from the host's `/proc`.
//!
//! Nothing is read unless somebody scrapes. A reading advances in [steps](Host::advance) of about a
//! millisecond, so it can share a thread with other connections, and a [`CpuBudget`] keeps readings
//! and scans for new processes within 0.1% of a core: scrapes in between show the last reading.

mod budget;
mod families;
mod metrics;
mod names;
mod pressure;
mod procfs;
mod reading;
mod scan;
mod usage;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::budget::CpuBudget;
pub(crate) use self::families::names as family_names;
use self::metrics::HostMetrics;
pub(crate) use self::names::{DEFAULT_PROCESSES, ProcessNames};
use self::pressure::Pressure;
use self::reading::{OpenProcess, Progress};
use self::scan::Scan;
use self::usage::{Gap, NameUsage};
use super::sys;
use crate::exposition::family::Family;

/// The interval between scans for new processes while the known ones live.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);

/// The time after which a reading that its scrape has abandoned is started over.
const ABANDONED: Duration = Duration::from_secs(5);

/// Processes and pressure of the host.
pub(crate) struct Host {
    state: Mutex<State>,
    pub(crate) metrics: HostMetrics,
}

struct State {
    /// The mount point of the host's `/proc`.
    path: PathBuf,
    names: BTreeMap<String, NameUsage>,
    pressure: Pressure,
    phase: Phase,
    /// The start of the current reading.
    begun: Instant,
    readings: CpuBudget,
    scans: CpuBudget,
    scan: ScanState,
    /// The figures that are missing, with an explanation of each.
    gaps: BTreeMap<Gap, String>,
    /// The gaps that were logged and still exist.
    logged: BTreeSet<Gap>,
}

/// The results of earlier scans.
#[derive(Default)]
struct ScanState {
    last: Option<Instant>,
    /// The host's uptime at the start of the last scan, in ticks.
    uptime: Option<u64>,
    /// True if a known process has ended or the names have changed.
    is_wanted: bool,
    /// True if `/proc` shows only the processes of this container.
    is_container: bool,
}

/// The progress of a reading.
enum Phase {
    Idle,
    Scanning(Scan),
    Reading { proc: OwnedFd, queue: VecDeque<(String, u32)>, open: Option<OpenProcess> },
}

impl Host {
    /// Creates a reader of the `/proc` at `path`; nothing is read yet.
    pub(crate) fn new(path: PathBuf, names: &ProcessNames) -> Self {
        let mut state = State {
            path,
            names: BTreeMap::new(),
            pressure: Pressure::default(),
            phase: Phase::Idle,
            begun: Instant::now(),
            readings: CpuBudget::default(),
            scans: CpuBudget::default(),
            scan: ScanState::default(),
            gaps: BTreeMap::new(),
            logged: BTreeSet::new(),
        };
        state.set_names(names);
        Self { state: Mutex::new(state), metrics: HostMetrics::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the process names. Names that stay keep their counters.
    pub(crate) fn set_names(&self, names: &ProcessNames) {
        self.lock().set_names(names);
    }

    /// Performs one step of a reading, about a millisecond of work. Returns the families once they
    /// are current, or as current as the CPU budget allows.
    pub(super) fn advance(&self) -> Option<Vec<Family>> {
        let mut state = self.lock();
        if state.advance(&self.metrics) {
            return None;
        }
        Some(families::collect(state.names.iter(), &state.pressure))
    }

    /// Reads all figures once. Blocks until they are read.
    pub(crate) fn read(&self) {
        while self.advance().is_none() {}
    }

    /// Returns an explanation of each figure that is missing.
    pub(super) fn gaps(&self) -> Vec<String> {
        self.lock().gaps.values().cloned().collect()
    }
}

impl State {
    fn set_names(&mut self, names: &ProcessNames) {
        let mut old = std::mem::take(&mut self.names);
        for name in names.iter() {
            let usage = old.remove(name).unwrap_or_else(|| NameUsage::new(name));
            self.names.insert(name.to_owned(), usage);
        }
        self.phase = Phase::Idle;
        self.scan.is_wanted = true;
        self.scans.reset();
        self.readings.reset();
    }

    /// Performs one step; returns whether another one is needed.
    fn advance(&mut self, metrics: &HostMetrics) -> bool {
        let now = Instant::now();
        if !matches!(self.phase, Phase::Idle) && now.duration_since(self.begun) > ABANDONED {
            self.phase = Phase::Idle;
            self.readings.pause(now);
            self.scans.pause(now);
        }
        if matches!(self.phase, Phase::Idle) && !self.readings.is_due(now) {
            return false;
        }
        let before = sys::thread_cpu_seconds();
        let was_scanning = matches!(self.phase, Phase::Scanning(_)) || self.is_scan_due(now);
        let is_unfinished = self.step(now, metrics);
        let cost = sys::thread_cpu_seconds() - before;
        metrics.cpu.add(cost);
        if was_scanning {
            self.scans.spend(cost);
        } else {
            self.readings.spend(cost);
        }
        if !is_unfinished {
            self.readings.pause(Instant::now());
            self.note_gaps(metrics);
        }
        is_unfinished
    }

    fn is_scan_due(&self, now: Instant) -> bool {
        let is_old = self.scan.last.is_none_or(|last| now.duration_since(last) >= SCAN_INTERVAL);
        let is_wanted = (is_old || self.scan.is_wanted) && !self.names.is_empty();
        matches!(self.phase, Phase::Idle) && is_wanted && self.scans.is_due(now)
    }

    fn step(&mut self, now: Instant, metrics: &HostMetrics) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => {
                self.begun = now;
                if !self.is_scan_due(now) {
                    return self.begin_reading();
                }
                match Scan::begin(&self.path) {
                    Ok(scan) => self.phase = Phase::Scanning(scan),
                    Err(error) => return self.fail(&error),
                }
            }
            Phase::Scanning(mut scan) => {
                if scan.step(&self.names) {
                    self.phase = Phase::Scanning(scan);
                } else {
                    metrics.scans.inc();
                    self.adopt(scan, now);
                    return self.begin_reading();
                }
            }
            Phase::Reading { proc, mut queue, mut open } => {
                if let Some(process) = open.take() {
                    open = self.read(process);
                } else if let Some((name, pid)) = queue.pop_front() {
                    open = self.open(&proc, name, pid);
                } else {
                    self.pressure = Pressure::read(&proc);
                    metrics.readings.inc();
                    metrics.last_reading.set(super::store::now());
                    return false;
                }
                self.phase = Phase::Reading { proc, queue, open };
            }
        }
        true
    }

    /// Ends a reading because `/proc` itself cannot be read.
    fn fail(&mut self, error: &std::io::Error) -> bool {
        let path = self.path.display();
        self.gaps.insert(
            Gap::Proc,
            format!("no figures of processes and pressure: cannot read {path}: {error}"),
        );
        self.pressure = Pressure::default();
        self.names.values_mut().for_each(NameUsage::clear);
        self.scan.is_wanted = true;
        false
    }

    fn begin_reading(&mut self) -> bool {
        let proc = match sys::open_directory(&self.path) {
            Ok(proc) => proc,
            Err(error) => return self.fail(&error),
        };
        self.gaps.remove(&Gap::Proc);
        let processes = self
            .names
            .iter()
            .flat_map(|(name, usage)| usage.pids().map(move |pid| (name.clone(), pid)));
        let queue = processes.collect();
        self.phase = Phase::Reading { proc, queue, open: None };
        true
    }

    /// Uses the result of a scan.
    fn adopt(&mut self, scan: Scan, now: Instant) {
        self.scans.pause(Instant::now());
        let since = self.scan.uptime;
        let uptime = scan.uptime;
        self.scan = ScanState {
            last: Some(now),
            uptime,
            is_wanted: false,
            is_container: !scan.has_kernel_threads,
        };
        let mut found = scan.found;
        for (name, usage) in &mut self.names {
            usage.adopt(found.remove(name).unwrap_or_default(), since);
        }
    }

    fn open(&mut self, proc: &OwnedFd, name: String, pid: u32) -> Option<OpenProcess> {
        let usage = self.names.get_mut(&name)?;
        let start = usage.start(pid)?;
        match OpenProcess::open(proc, usage.comm(), name, pid, start) {
            Ok(process) => Some(process),
            Err(Progress::Gone) => {
                usage.end(pid);
                self.scan.is_wanted = true;
                None
            }
            Err(Progress::Malformed) => {
                usage.skip(pid);
                None
            }
        }
    }

    /// Reads a chunk of a process's threads; returns the process if there are more.
    fn read(&mut self, mut process: OpenProcess) -> Option<OpenProcess> {
        if process.step() {
            return Some(process);
        }
        if let Some(usage) = self.names.get_mut(&process.name) {
            usage.enter(process.pid, process.reading);
        }
        None
    }

    /// Determines which figures are missing. Logs each kind of gap when it first appears.
    fn note_gaps(&mut self, metrics: &HostMetrics) {
        let mut gaps: BTreeMap<Gap, String> = BTreeMap::new();
        if let Some(text) = self.gaps.remove(&Gap::Proc) {
            gaps.insert(Gap::Proc, text);
        } else {
            gaps.extend(usage::gaps(&self.names));
            gaps.extend(self.pressure.gap().map(|text| (Gap::Pressure, text)));
            if self.scan.is_container && !self.names.is_empty() {
                let path = self.path.display();
                let text = format!(
                    "{path} shows only the processes of this container: mount the host's /proc and name it with \
                     --host-proc to see the others"
                );
                gaps.insert(Gap::Container, text);
            }
        }
        metrics.note(&self.names);
        for (gap, text) in &gaps {
            if self.logged.insert(*gap) {
                match gap {
                    Gap::Container => tracing::info!("{text}"),
                    _ => tracing::warn!("{text}"),
                }
            }
        }
        self.logged.retain(|gap| gaps.contains_key(gap));
        self.gaps = gaps;
    }
}
