//! File systems that are mounted below a walked path.

use std::fs;
use std::process::Command;

use super::common::{command, until};
use super::{NO_PROC, Node, Series, found};

/// Also if a server of it does not answer: the FUSE file systems of this test have a server that never reads a request. Without access to
/// `/dev/fuse` the same directory is mounted again.
#[test]
fn what_is_mounted_below_a_path_is_neither_entered_nor_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["own/late/a/b/c", "own/kept", "first"] {
        fs::create_dir_all(dir.path().join(name)).expect("a directory");
    }
    let script = r#"
        freeze() {
            if (: <>/dev/fuse) 2>/dev/null; then
                mount -i -t fuse none "$1" -o fd=9,rootmode=40000,user_id=0,group_id=0
            else
                mount --bind own "$1"
            fi
        }
        (
            ! (: <>/dev/fuse) 2>/dev/null || exec 9<>/dev/fuse
            until [ -e go ]; do sleep 0.05; done
            freeze own/late
            touch frozen
            exec sleep 1000
        ) &
        ! (: <>/dev/fuse) 2>/dev/null || exec 9<>/dev/fuse
        freeze first
        exec "$0" "$@"
    "#;
    let kstatd = command("kstatd", [""]);
    let mut confined = Command::new("unshare");
    confined.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]);
    confined.args(["sh", "-c", script]).arg(kstatd.get_program());
    confined.args(["node", "--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"]);
    confined.args(["--interval=50ms", "--kubelet=", NO_PROC, "--walk-interval=50ms"]);
    confined.arg(format!("--walk-path=tree={}", dir.path().display())).current_dir(dir.path());
    let node = Node::spawn(&mut confined);
    // `own` and what is below it, and the path itself.
    let inodes = |of: &Series| found(of).map(|(_, inodes)| inodes);
    node.shows("the path without what is mounted", |of| inodes(of) == Some(7.0));
    fs::write(dir.path().join("go"), "").expect("a file");
    until("a mount", || dir.path().join("frozen").exists().then_some(()));
    // `own/late` and what is below it are gone, and two files came.
    node.shows("the path without what was mounted later", |of| inodes(of) == Some(5.0));
    fs::create_dir(dir.path().join("own/kept/new")).expect("a directory");
    node.shows("a change after that", |of| inodes(of) == Some(6.0));
}
