//! What a walk is told.

use std::path::PathBuf;
use std::time::Duration;

/// What to look at, and how gently.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Where the file system of the host is.
    pub(crate) root: PathBuf,
    /// The mount table of the host.
    pub(crate) mounts: PathBuf,
    /// Whether what pods hold is asked of project quotas.
    pub(crate) quotas: bool,
    /// Whether it is walked.
    pub(crate) walk: bool,
    /// Paths to walk besides, by the name that they get.
    pub(crate) paths: Vec<(String, PathBuf)>,
    /// Calls for entries of directories, a second.
    pub(crate) calls: f64,
    /// Bytes of directories, a second.
    pub(crate) bytes: f64,
    /// From one pass to the next, at least.
    pub(crate) interval: Duration,
    /// In how many passes at most each directory is read again though it has not changed.
    pub(crate) passes: u8,
    /// The share of time (percent, over 10 s) for which something may wait for IO while it goes on.
    pub(crate) pressure: f64,
    /// Where the host tells that.
    pub(crate) pressure_file: PathBuf,
}
