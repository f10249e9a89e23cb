//! Resource usage of the node's system processes and PSI pressure, read from the host's `/proc`.
//!
//! Nothing is read unless somebody scrapes. A [reading](Host::read) blocks, so it runs on the blocking pool, and a
//! [`CpuBudget`] keeps readings and scans for new processes within 0.1% of a core: scrapes in between show the last reading.

mod budget;
mod families;
mod metrics;
mod names;
mod pressure;
mod procfs;
mod reading;
mod scan;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use self::budget::CpuBudget;
pub(crate) use self::families::names as family_names;
use self::metrics::HostMetrics;
pub(crate) use self::names::{DEFAULT_PROCESSES, ProcessNames};
use self::pressure::Pressure;
use self::reading::{Reading, Unreadable};
use self::scan::Scan;
use self::usage::{Gap, NameUsage};
use super::sys;
use crate::exposition::family::Family;
use crate::util::lock::Lock;

/// The interval between scans for new processes while the known ones live.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);

/// Processes and pressure of the host.
pub(crate) struct Host {
    state: Lock<State>,
    last: ArcSwap<Figures>,
    pub(crate) metrics: HostMetrics,
}

/// The result of a reading.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) families: Vec<Family>,
    /// An explanation of each figure that is missing.
    pub(super) gaps: Vec<String>,
}

#[derive(Default)]
struct State {
    /// The mount point of the host's `/proc`.
    path: PathBuf,
    names: BTreeMap<String, NameUsage>,
    pressure: Pressure,
    readings: CpuBudget,
    scans: CpuBudget,
    /// The time of the last scan.
    scanned: Option<Instant>,
    /// The host's uptime at the start of the last scan, in ticks.
    uptime: Option<u64>,
    /// True if a known process has ended or the names have changed.
    is_scan_wanted: bool,
    /// True if `/proc` shows only the processes of this container.
    is_container: bool,
    /// The gaps that were logged and still exist.
    logged: BTreeSet<Gap>,
}

impl Host {
    /// Creates a reader of the `/proc` at `path`; nothing is read yet.
    pub(crate) fn new(path: PathBuf, names: &ProcessNames) -> Self {
        let mut state = State { path, ..State::default() };
        state.set_names(names);
        let (state, last) = (Lock::new(state), ArcSwap::default());
        Self { state, last, metrics: HostMetrics::default() }
    }

    /// Replaces the process names. Names that stay keep their counters.
    pub(crate) fn set_names(&self, names: &ProcessNames) {
        self.state.lock().set_names(names);
    }

    /// Reads all figures, unless the CPU budget has none left for it. Blocks until they are read.
    pub(crate) fn read(&self) {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.readings.is_due(now) {
            let gaps = state.read(now, &self.metrics);
            let families = families::collect(state.names.iter(), &state.pressure);
            self.last.store(Arc::new(Figures { families, gaps }));
        }
    }

    /// Returns the figures of the last reading.
    pub(super) fn last(&self) -> Arc<Figures> {
        self.last.load_full()
    }
}

impl State {
    fn set_names(&mut self, names: &ProcessNames) {
        let mut old = std::mem::take(&mut self.names);
        for name in names.iter() {
            let usage = old.remove(name).unwrap_or_else(|| NameUsage::new(name));
            self.names.insert(name.to_owned(), usage);
        }
        self.is_scan_wanted = true;
        self.scans.reset();
        self.readings.reset();
    }

    /// Reads everything. Returns an explanation of each figure that is missing.
    fn read(&mut self, now: Instant, metrics: &HostMetrics) -> Vec<String> {
        let begun = sys::thread_cpu_seconds();
        let mut scanned = begun;
        let outcome = sys::open_directory(&self.path).map(|proc| {
            if self.is_scan_due(now) {
                self.scan(&proc, now);
                metrics.scans.inc();
                scanned = sys::thread_cpu_seconds();
                self.scans.pause(Instant::now(), scanned - begun);
            }
            self.read_processes(&proc);
            self.pressure = Pressure::read(&proc);
            metrics.readings.inc();
            metrics.last_reading.set(super::store::now());
        });
        if outcome.is_err() {
            self.pressure = Pressure::default();
            self.names.values_mut().for_each(NameUsage::clear);
            self.is_scan_wanted = true;
        }
        let ended = sys::thread_cpu_seconds();
        metrics.cpu.add(ended - begun);
        self.readings.pause(Instant::now(), ended - scanned);
        metrics.note(&self.names);
        let gaps = self.gaps(outcome.err());
        self.log(&gaps);
        gaps.into_values().collect()
    }

    fn is_scan_due(&self, now: Instant) -> bool {
        let is_old = self.scanned.is_none_or(|last| now.duration_since(last) >= SCAN_INTERVAL);
        (is_old || self.is_scan_wanted) && !self.names.is_empty() && self.scans.is_due(now)
    }

    /// Looks for new processes.
    fn scan(&mut self, proc: &OwnedFd, now: Instant) {
        let Scan { uptime, mut found, has_kernel_threads } = Scan::of(proc, &self.names);
        for (name, usage) in &mut self.names {
            usage.adopt(found.remove(name).unwrap_or_default(), self.uptime);
        }
        (self.scanned, self.uptime) = (Some(now), uptime);
        (self.is_scan_wanted, self.is_container) = (false, !has_kernel_threads);
    }

    fn read_processes(&mut self, proc: &OwnedFd) {
        for usage in self.names.values_mut() {
            for (pid, start) in usage.processes() {
                match Reading::of(proc, usage.comm(), pid, start) {
                    Ok(reading) => usage.enter(pid, reading),
                    Err(Unreadable::Gone) => {
                        usage.end(pid);
                        self.is_scan_wanted = true;
                    }
                    Err(Unreadable::Malformed) => usage.skip(pid),
                }
            }
        }
    }

    /// Returns the figures that are missing, with an explanation of each.
    fn gaps(&self, error: Option<io::Error>) -> BTreeMap<Gap, String> {
        let path = self.path.display();
        if let Some(error) = error {
            let text = format!("no figures of processes and pressure: cannot read {path}: {error}");
            return BTreeMap::from([(Gap::Proc, text)]);
        }
        let mut gaps = usage::gaps(&self.names);
        gaps.extend(self.pressure.gap().map(|text| (Gap::Pressure, text)));
        if self.is_container && !self.names.is_empty() {
            let text = format!(
                "{path} shows only the processes of this container: mount the host's /proc and name it with \
                 --host-proc to see the others"
            );
            gaps.insert(Gap::Container, text);
        }
        gaps
    }

    /// Logs each kind of gap when it first appears.
    fn log(&mut self, gaps: &BTreeMap<Gap, String>) {
        for (gap, text) in gaps {
            if self.logged.insert(*gap) {
                match gap {
                    Gap::Container => tracing::info!("{text}"),
                    _ => tracing::warn!("{text}"),
                }
            }
        }
        self.logged.retain(|gap| gaps.contains_key(gap));
    }
}
