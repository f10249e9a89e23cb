//! A reading of one process.
//!
//! All files are opened relative to the directory `/proc/PID`, which stays that of the same process
//! even if its ID is reused.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

use super::procfs::{self, DiskBytes, Stat, ThreadStatus};
use crate::node::sys;

/// The size of the directory buffer in bytes: about 40 threads per step.
const BUFFER: usize = 1 << 10;

/// The maximum number of threads of one process whose context switches are read.
const MAX_THREADS: usize = 1024;

/// Why a process has no reading.
pub(super) enum Progress {
    /// It has ended, or has another name.
    Gone,
    /// A file could not be parsed, or read.
    Malformed,
}

/// The figures of a process at one time.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) stat: Stat,
    /// The error means that the kernel refuses it.
    pub(super) io: Option<DiskBytes>,
    /// The threads; `None` if there are too many, or one could not be parsed.
    pub(super) threads: Option<Vec<(u32, ThreadStatus)>>,
    /// Resident memory in bytes.
    pub(super) memory: u64,
}

/// A process that is being read.
pub(super) struct OpenProcess {
    pub(super) name: String,
    pub(super) pid: u32,
    tasks: OwnedFd,
    pub(super) reading: Reading,
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR))
}

fn failed(error: &io::Error) -> Progress {
    if is_gone(error) { Progress::Gone } else { Progress::Malformed }
}

impl OpenProcess {
    /// Opens the process with this ID, name and start time, and reads the figures of the whole
    /// process.
    ///
    /// # Errors
    ///
    /// When the process has ended, or its files are malformed.
    pub(super) fn open(
        proc: &OwnedFd,
        comm: &[u8],
        name: String,
        pid: u32,
        start: u64,
    ) -> Result<Self, Progress> {
        let path = CString::new(pid.to_string()).unwrap_or_default();
        let directory = sys::open_subdirectory(proc, &path).map_err(|error| failed(&error))?;
        let mut text = Vec::new();
        let mut read =
            |file: &CStr| procfs::read(&directory, file, &mut text).map(|()| text.clone());
        let found = read(c"comm").map_err(|error| failed(&error))?;
        if found.strip_suffix(b"\n").unwrap_or(&found) != comm {
            return Err(Progress::Gone);
        }
        let stat = read(c"stat").map_err(|error| failed(&error))?;
        let stat = procfs::stat(&stat).ok_or(Progress::Malformed)?;
        if stat.start != start {
            return Err(Progress::Gone);
        }
        let io = read(c"io").ok().and_then(|text| procfs::io(&text));
        let tasks = sys::open_subdirectory(&directory, c"task").map_err(|error| failed(&error))?;
        let reading = Reading { stat, io, threads: Some(Vec::new()), memory: 0 };
        Ok(Self { name, pid, tasks, reading })
    }

    /// Reads the next threads; returns whether there are more.
    pub(super) fn step(&mut self) -> bool {
        let mut buffer = vec![0; BUFFER];
        let Ok(read @ 1..) = sys::read_directory(&self.tasks, &mut buffer) else { return false };
        let mut text = Vec::new();
        let records = buffer.get(..read).unwrap_or_default();
        for thread in sys::entries(records).filter_map(|entry| procfs::id(entry.name)) {
            let path = CString::new(format!("{thread}/status")).unwrap_or_default();
            match procfs::read(&self.tasks, &path, &mut text) {
                Ok(()) => self.enter(thread, procfs::status(&text)),
                Err(error) if is_gone(&error) => {}
                Err(_) => self.enter(thread, None),
            }
        }
        self.reading.threads.is_some()
    }

    fn enter(&mut self, thread: u32, status: Option<ThreadStatus>) {
        let memory = status.and_then(|status| status.memory).unwrap_or(0);
        self.reading.memory = self.reading.memory.max(memory);
        match (&mut self.reading.threads, status) {
            (Some(threads), Some(status)) if threads.len() < MAX_THREADS => {
                threads.push((thread, status));
            }
            (threads, _) => *threads = None,
        }
    }
}
