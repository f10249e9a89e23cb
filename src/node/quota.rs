//! Project quotas of xfs and ext4, which report the usage of a project with one system call.
//!
//! A directory's usage is that of the project it belongs to. Directories that share a project all
//! report the project's total; kubelet and container runtimes assign one project to each. Reading a
//! quota needs `CAP_SYS_ADMIN` and Linux 5.14 or later.

use std::path::Path;

use super::sys;
use super::walk::metrics::Call;

/// Returns the bytes and inodes used by the directory's project, or `None` if it has no project or
/// permission is denied. Calls `count` for each system call.
pub(super) fn of(path: &Path, count: impl Fn(Call)) -> Option<(u64, u64)> {
    count(Call::Open);
    let directory = sys::open_directory(path).ok()?;
    count(Call::Quota);
    let project = sys::project_id(&directory).ok().filter(|project| *project != 0);
    let usage = project.and_then(|project| {
        count(Call::Quota);
        let usage = sys::project_usage(&directory, project);
        usage.inspect_err(|error| tracing::debug!(project, %error, "No quota tells")).ok()
    });
    count(Call::Close);
    usage
}
