//! The settings of a walk.

use std::path::PathBuf;
use std::time::Duration;

/// The targets of a walk and its limits.
#[derive(Clone, Debug)]
pub(crate) struct WalkConfig {
    /// The mount point of the host's root file system.
    pub(crate) root: PathBuf,
    /// The mount table of the host.
    pub(crate) mounts: PathBuf,
    /// Enables project quotas.
    pub(crate) quotas: bool,
    /// Enables the directory walk.
    pub(crate) walk: bool,
    /// Additional paths to walk, with the names they get in labels.
    pub(crate) paths: Vec<(String, PathBuf)>,
    /// The maximum number of calls for directory entries per second.
    pub(crate) calls: f64,
    /// The minimum interval between passes.
    pub(crate) interval: Duration,
    /// The memory budget of all trees together, in bytes.
    pub(crate) memory: usize,
    /// The path of the host's IO pressure file.
    pub(crate) pressure_file: PathBuf,
}
