//! A scan of all processes for those with the names to report.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;

use super::procfs;
use super::usage::{Found, NameUsage};

/// The ID and name of the kernel thread that every host has.
const KERNEL_THREAD: (u32, &[u8]) = (2, b"kthreadd");

/// The result of a scan.
pub(super) struct Scan {
    /// The host's uptime at the start of the scan, in ticks.
    pub(super) uptime: Option<u64>,
    /// The processes found, by name.
    pub(super) found: BTreeMap<String, Vec<Found>>,
    /// True if `/proc` has kernel threads: it is that of the host, not of a container.
    pub(super) has_kernel_threads: bool,
}

impl Scan {
    /// Scans `/proc`.
    pub(super) fn of(proc: &OwnedFd, names: &BTreeMap<String, NameUsage>) -> Self {
        let mut text = Vec::new();
        let uptime = procfs::read(proc, c"uptime", &mut text).ok();
        let uptime = uptime.and_then(|()| procfs::uptime(&text));
        let mut scan = Self { uptime, found: BTreeMap::new(), has_kernel_threads: false };
        let read = procfs::for_each_id(proc, |pid| scan.examine(proc, pid, names, &mut text));
        if let Err(error) = read {
            tracing::debug!(%error, "The list of processes cannot be read to its end");
        }
        scan
    }

    fn examine(
        &mut self,
        proc: &OwnedFd,
        pid: u32,
        names: &BTreeMap<String, NameUsage>,
        text: &mut Vec<u8>,
    ) {
        let file = |name: &str| CString::new(format!("{pid}/{name}")).unwrap_or_default();
        if procfs::read(proc, &file("comm"), text).is_err() {
            return;
        }
        let comm = text.strip_suffix(b"\n").unwrap_or(text);
        self.has_kernel_threads |= (pid, comm) == KERNEL_THREAD;
        let Some((name, _)) = names.iter().find(|(_, usage)| usage.comm() == comm) else { return };
        if procfs::read(proc, &file("stat"), text).is_ok()
            && let Some(stat) = procfs::stat(text)
        {
            self.found.entry(name.clone()).or_default().push(Found { start: stat.start, pid });
        }
    }
}
