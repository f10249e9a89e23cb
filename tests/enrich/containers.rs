//! Senders in containers, with cgroups and namespaces of their own.

use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::until;
use crate::{Labels, Pod, Running, cluster};

/// A cgroup of a container, removed when it is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates the cgroup of a container of the pod with this UID, where the kernel allows it.
    fn new(pod: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
        let root =
            PathBuf::from(mount.split(' ').nth(1)?).join(format!("kstatd-{}", std::process::id()));
        let group = Self(root.join(format!("pod{pod}")).join("c1".repeat(32)));
        std::fs::create_dir_all(&group.0).ok()?;
        Some(group)
    }

    /// Returns a command that runs another one in the cgroup and in namespaces of its own.
    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        let script =
            "echo 0 > $0/cgroup.procs && exec unshare --fork --pid --net --uts --ipc \"$@\"";
        command.args(["-c", script]).arg(&self.0);
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for directory in self.0.ancestors().take(3) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// The variable with the path of the socket to which [`sender_in_a_container`] sends.
const SOCKET: &str = "KSTATD_TEST_SOCKET";

/// Sends its input to a socket, as a process of [`containers_are_told_by_the_credentials_of_their_sockets`]. Otherwise it does nothing.
#[test]
fn sender_in_a_container() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let socket = UnixDatagram::unbound().expect("a socket");
    for line in std::io::stdin().lines() {
        socket.send_to(line.expect("a line").as_bytes(), &path).expect("sent");
    }
}

/// A process in a container, with a cgroup and namespaces of its own, is known by the credentials of its socket, which
/// outrank what its lines claim.
#[test]
fn containers_are_told_by_the_credentials_of_their_sockets() {
    let cluster = cluster();
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("socket");
    let unix = format!("--statsd.listen-unixgram={}", path.display());
    let program = Running::start(&cluster, &["--statsd.enrich=pod", &unix]);
    let (pods, of_pod) =
        (program.pods(), |pod: &Pod| [("pod".to_owned(), pod.labels["pod"].clone())]);
    let group = Cgroup::new(&pods[0].labels["uid"]);
    let is_allowed = |group: &Cgroup| {
        group
            .command()
            .arg("true")
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let Some(group) = group.filter(is_allowed) else {
        eprintln!("skipped: the kernel allows no cgroups or namespaces here");
        return;
    };
    let mut container = group.command();
    container
        .arg(std::env::current_exe().expect("a path"))
        .args(["--exact", "containers::sender_in_a_container"]);
    let container = container.env(SOCKET, &path).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut container = container.spawn().expect("a container");
    let claim = format!("a:1|c|#x:y|e:it-false,cn-app,pu-{}", pods[1].labels["uid"]);
    let mut input = container.stdin.take().expect("an input");
    input.write_all(format!("a:1|c|#x:y\n{claim}\n").as_bytes()).expect("written");
    until("both lines", || {
        (program.own("kstatd_statsd_enriched_lines_total", "credentials") == 2.0).then_some(())
    });
    drop(input);
    assert!(container.wait().expect("an end").success());
    let want =
        Labels::from_iter(of_pod(&pods[0]).into_iter().chain([("x".to_owned(), "y".to_owned())]));
    assert_eq!(program.series("/metrics/statsd", "a"), [(want, 2.0)]);
    assert_eq!(program.own("kstatd_statsd_rejected_origins_total", "credentials"), 1.0);
}
