//! A scan of all processes for those with the names to report.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::procfs;
use super::usage::{Found, NameUsage};
use crate::node::sys;

/// The size of the directory buffer in bytes: about 100 processes per step.
const BUFFER: usize = 2 << 10;

/// The ID and name of the kernel thread that every host has.
const KERNEL_THREAD: (u32, &[u8]) = (2, b"kthreadd");

/// A scan in progress.
pub(super) struct Scan {
    proc: OwnedFd,
    /// The host's uptime at the start of the scan, in ticks.
    pub(super) uptime: Option<u64>,
    /// The processes found so far, by name.
    pub(super) found: BTreeMap<String, Vec<Found>>,
    /// True if `/proc` has kernel threads: it is that of the host, not of a container.
    pub(super) has_kernel_threads: bool,
}

impl Scan {
    /// Begins a scan.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be opened.
    pub(super) fn begin(path: &Path) -> io::Result<Self> {
        let (proc, mut text) = (sys::open_directory(path)?, Vec::new());
        let uptime = procfs::read(&proc, c"uptime", &mut text).ok();
        let uptime = uptime.and_then(|()| procfs::uptime(&text));
        Ok(Self { proc, uptime, found: BTreeMap::new(), has_kernel_threads: false })
    }

    /// Examines the next processes; returns whether there are more.
    pub(super) fn step(&mut self, names: &BTreeMap<String, NameUsage>) -> bool {
        let mut buffer = vec![0; BUFFER];
        let read = match sys::read_directory(&self.proc, &mut buffer) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "The list of processes cannot be read to its end");
                return false;
            }
        };
        let mut text = Vec::new();
        let records = buffer.get(..read).unwrap_or_default();
        for pid in sys::entries(records).filter_map(|entry| procfs::id(entry.name)) {
            self.examine(pid, names, &mut text);
        }
        true
    }

    fn examine(&mut self, pid: u32, names: &BTreeMap<String, NameUsage>, text: &mut Vec<u8>) {
        let file = |name: &str| CString::new(format!("{pid}/{name}")).unwrap_or_default();
        if procfs::read(&self.proc, &file("comm"), text).is_err() {
            return;
        }
        let comm = text.strip_suffix(b"\n").unwrap_or(text);
        self.has_kernel_threads |= (pid, comm) == KERNEL_THREAD;
        let Some(name) = names.iter().find(|(_, usage)| usage.comm() == comm) else { return };
        let name = name.0.clone();
        if procfs::read(&self.proc, &file("stat"), text).is_ok()
            && let Some(stat) = procfs::stat(text)
        {
            self.found.entry(name).or_default().push(Found { start: stat.start, pid });
        }
    }
}
