//! Project quotas of xfs and ext4: the file system itself counts what a project holds, and tells it with one call.
//!
//! A directory counts by its quota if it belongs to a project. Who has given one project to several directories is told
//! their sum for each: kubelet and container runtimes give each its own. To be told of a quota needs `CAP_SYS_ADMIN`, and
//! a kernel of 5.14 or later.

use std::path::Path;

use super::sys;
use super::walk::cost::Call;

/// Bytes and inodes of the project that a directory belongs to; nothing where it is of none, or nobody may ask. `count`
/// is told of each call.
pub(super) fn of(path: &Path, count: impl Fn(Call)) -> Option<(u64, u64)> {
    count(Call::Open);
    let directory = sys::open(path).ok()?;
    count(Call::Quota);
    let project = sys::project(&directory).ok().filter(|project| *project != 0);
    let usage = project.and_then(|project| {
        count(Call::Quota);
        let usage = sys::usage(&directory, project);
        usage.inspect_err(|error| tracing::debug!(project, %error, "no quota tells")).ok()
    });
    count(Call::Close);
    usage
}
