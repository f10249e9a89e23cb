//! A reading of one process.
//!
//! All files are opened relative to the directory `/proc/PID`, which stays that of the same process
//! even if its ID is reused.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

use super::procfs::{self, DiskBytes, Stat, ThreadStatus};
use crate::node::sys;

/// The maximum number of threads of one process whose context switches are read.
const MAX_THREADS: usize = 1024;

/// Why a process has no reading.
pub(super) enum Unreadable {
    /// It has ended, or has another name.
    Gone,
    /// A file could not be parsed, or read.
    Malformed,
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        if is_gone(&error) { Self::Gone } else { Self::Malformed }
    }
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

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR))
}

impl Reading {
    /// Reads the process with this ID, name and start time.
    ///
    /// # Errors
    ///
    /// When the process has ended, or its files are malformed.
    pub(super) fn of(
        proc: &OwnedFd,
        comm: &[u8],
        pid: u32,
        start: u64,
    ) -> Result<Self, Unreadable> {
        let path = CString::new(pid.to_string()).unwrap_or_default();
        let directory = sys::open_subdirectory(proc, &path)?;
        let mut text = Vec::new();
        let mut read =
            |file: &CStr| procfs::read(&directory, file, &mut text).map(|()| text.clone());
        let found = read(c"comm")?;
        if found.strip_suffix(b"\n").unwrap_or(&found) != comm {
            return Err(Unreadable::Gone);
        }
        let stat = procfs::stat(&read(c"stat")?).ok_or(Unreadable::Malformed)?;
        if stat.start != start {
            return Err(Unreadable::Gone);
        }
        let io = read(c"io").ok().and_then(|text| procfs::io(&text));
        let mut reading = Self { stat, io, threads: Some(Vec::new()), memory: 0 };
        reading.read_threads(&sys::open_subdirectory(&directory, c"task")?);
        Ok(reading)
    }

    fn read_threads(&mut self, tasks: &OwnedFd) {
        let (mut text, mut all) = (Vec::new(), Vec::new());
        // An error means that the process has ended meanwhile.
        let _ = procfs::for_each_id(tasks, |thread| all.push(thread));
        if all.len() > MAX_THREADS {
            self.threads = None;
        }
        for thread in all.into_iter().take(MAX_THREADS) {
            let path = CString::new(format!("{thread}/status")).unwrap_or_default();
            match procfs::read(tasks, &path, &mut text).map(|()| procfs::status(&text)) {
                Ok(Some(status)) => {
                    self.memory = self.memory.max(status.memory.unwrap_or(0));
                    self.threads.iter_mut().for_each(|threads| threads.push((thread, status)));
                }
                Err(error) if is_gone(&error) => {}
                _ => self.threads = None,
            }
        }
    }
}
