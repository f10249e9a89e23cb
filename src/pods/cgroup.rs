//! Containers of processes, and of inodes that name them, by their cgroups.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::util::lock::Lock;

/// The places of the node's cgroups: mounted for this purpose, or its own.
const ROOTS: [&str; 2] = ["/host/sys/fs/cgroup", "/sys/fs/cgroup"];
/// The pause between two scans of the cgroups.
const SCAN_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum number of directories of a scan, and their maximum depth.
const MAX_DIRECTORIES: usize = 100_000;
const MAX_DEPTH: usize = 16;

/// The container and the pod that the path of a cgroup names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// The ID of the container.
    pub container: Option<String>,
    /// The UID of the pod. That of a static pod is not the one in the API.
    pub pod_uid: Option<String>,
}

impl Cgroup {
    /// Reads the cgroup of a process.
    ///
    /// # Errors
    /// Fails if the process is gone, or cannot be seen from here.
    pub fn of_process(process: u32) -> std::io::Result<Self> {
        if process == 0 {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        Ok(Self::parse(&fs::read_to_string(format!("/proc/{process}/cgroup"))?))
    }

    /// Parses paths of cgroups, one a line, as container runtimes write them.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for part in text.split(['/', '\n', ':']) {
            let part = part.trim_end_matches(".scope").trim_end_matches(".slice");
            let id = part.rsplit('-').next().unwrap_or(part);
            if id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                found.container = Some(id.to_owned());
            }
            let uid = part.rsplit_once("pod").map(|(_, uid)| uid.replace('_', "-"));
            let is_uid = |uid: &String| {
                uid.len() == 36 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
            };
            found.pod_uid = uid.filter(is_uid).or(found.pod_uid);
        }
        found
    }
}

/// The cgroups of containers on this node, by inode.
#[derive(Debug)]
pub struct CgroupInodes {
    roots: Vec<PathBuf>,
    scan: Lock<Scan>,
}

#[derive(Debug, Default)]
struct Scan {
    /// The time of the last one on the clock of the index.
    at: Option<Duration>,
    found: HashMap<u64, Cgroup>,
}

impl Default for CgroupInodes {
    fn default() -> Self {
        Self { roots: ROOTS.map(PathBuf::from).into(), scan: Lock::default() }
    }
}

impl CgroupInodes {
    /// Returns the cgroup with this inode. An unknown one causes a scan, at most every ten seconds.
    pub fn get(&self, inode: u64, now: Duration) -> Option<Cgroup> {
        let mut scan = self.scan.lock();
        if let Some(known) = scan.found.get(&inode) {
            return Some(known.clone());
        }
        if scan.at.is_some_and(|at| now < at + SCAN_INTERVAL) {
            return None;
        }
        scan.at = Some(now);
        scan.found.clear();
        let root = self.roots.iter().find(|root| root.join("cgroup.controllers").exists())?;
        let mut budget = MAX_DIRECTORIES;
        visit(root, &Cgroup::default(), 0, &mut budget, &mut scan.found);
        scan.found.get(&inode).cloned()
    }
}

/// Adds the cgroups of containers below a directory.
fn visit(
    directory: &Path,
    above: &Cgroup,
    depth: usize,
    budget: &mut usize,
    found: &mut HashMap<u64, Cgroup>,
) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_directory || *budget == 0 || depth >= MAX_DEPTH {
            continue;
        }
        *budget -= 1;
        let own = Cgroup::parse(&entry.file_name().to_string_lossy());
        let own = Cgroup {
            container: own.container.or_else(|| above.container.clone()),
            pod_uid: own.pod_uid.or_else(|| above.pod_uid.clone()),
        };
        if own.container.is_some() {
            found.insert(entry.ino(), own.clone());
        }
        visit(&entry.path(), &own, depth + 1, budget, found);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    impl CgroupInodes {
        /// Searches this mount of the cgroups only.
        pub(crate) fn below(root: PathBuf) -> Self {
            Self { roots: vec![root], scan: Lock::default() }
        }
    }

    const UID: &str = "0f3c2b1a-1111-2222-3333-444455556666";

    #[test]
    fn paths_of_container_runtimes_name_container_and_pod() {
        let id = "a1".repeat(32);
        let underscored = UID.replace('-', "_");
        for path in [
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{underscored}.slice/cri-containerd-{id}.scope\n"
            ),
            format!("0::/../../kubepods-pod{underscored}.slice/crio-{id}.scope/container"),
            format!(
                "12:memory:/kubepods/besteffort/pod{UID}/{id}\n11:cpu:/kubepods/besteffort/pod{UID}/{id}\n"
            ),
            format!(
                "0::/system.slice/containerd.service/kubepods-burstable-pod{underscored}.slice:cri-containerd:{id}"
            ),
        ] {
            let want = Cgroup { container: Some(id.clone()), pod_uid: Some(UID.to_owned()) };
            assert_eq!(Cgroup::parse(&path), want, "{path}");
        }
        for path in ["", "0::/", "0::/init.scope", "0::/user.slice/podman-4.scope", "0::/pod/podx"]
        {
            assert_eq!(Cgroup::parse(path), Cgroup::default(), "{path}");
        }
    }

    #[test]
    fn inodes_name_containers() {
        let root = tempfile::tempdir().expect("directory");
        fs::write(root.path().join("cgroup.controllers"), "cpu").expect("written");
        let id = "b2".repeat(32);
        let path = root.path().join(format!("kubepods/pod{UID}/{id}/nested"));
        fs::create_dir_all(&path).expect("created");
        let inode = |path: &Path| fs::metadata(path).expect("there").ino();
        let inodes = CgroupInodes::below(root.path().into());
        let get = |inode| inodes.get(inode, Duration::ZERO);
        let want = Cgroup { container: Some(id), pod_uid: Some(UID.to_owned()) };
        assert_eq!(get(inode(&path)), Some(want.clone()));
        assert_eq!(get(inode(path.parent().expect("a parent"))), Some(want));
        assert_eq!(get(inode(root.path())), None);
    }

    #[test]
    fn this_process_has_a_cgroup_and_process_0_has_none() {
        assert!(Cgroup::of_process(std::process::id()).is_ok());
        assert!(Cgroup::of_process(0).is_err());
    }
}
