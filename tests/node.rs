//! `kstatd node` as a black box: with a fake kubelet, trees of real files and a fake `/proc`.

mod common;
#[path = "node/hostile_users.rs"]
mod hostile_users;
#[path = "common/kubelet.rs"]
mod kubelet;
#[path = "node/mounts.rs"]
mod mounts;
#[path = "node/processes.rs"]
mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use common::{Program, command, get, replace, run, until, valid_text};
use kubelet::{Answer, Kubelet};

/// A running `kstatd node`.
struct Node {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Node {
    fn start(args: &[&str]) -> Self {
        let own =
            ["node", "--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0", "--interval=50ms"];
        Self::spawn(&mut command("kstatd", own.iter().chain(args)))
    }

    fn spawn(command: &mut Command) -> Self {
        let program = Program::spawn(command);
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { program, main, telemetry }
    }

    fn scrape(&self) -> String {
        let text = get(self.main, "/metrics").text();
        valid_text(&text);
        text
    }

    /// Scrapes until `wanted` returns true, and returns the series.
    fn shows(&self, what: &str, mut wanted: impl FnMut(&Series) -> bool) -> Series {
        until(what, || Some(Series::of(&self.scrape())).filter(|series| wanted(series)))
    }

    fn own(&self) -> Series {
        Series::of(&get(self.telemetry, "/metrics").text())
    }
}

/// Values by name and labels.
#[derive(Debug)]
struct Series(BTreeMap<String, f64>);

impl Series {
    fn of(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pair = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        };
        Self(lines.filter_map(pair).collect())
    }

    /// Returns the only series of a family with all these labels.
    fn get(&self, family: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |series: &str| {
            let (name, rest) = series.split_once('{').unwrap_or((series, ""));
            name == family
                && labels.iter().all(|(name, value)| {
                    let label = format!("{name}=\"{value}\"");
                    rest.split(['{', ',', '}']).any(|part| part == label)
                })
        };
        let mut found = self.0.iter().filter(|(series, _)| fits(series));
        let (_, value) = found.next()?;
        assert!(found.next().is_none(), "{family} {labels:?} is not one series");
        Some(*value)
    }
}

const GROW: &[(&str, &str)] = &[("namespace", "shop"), ("pod", "grow")];

fn of_grow<'a>(labels: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [GROW, labels].concat()
}

#[test]
fn kubelet_figures_are_joined_with_limits_and_owners() {
    let kubelet = Kubelet::start();
    let node =
        Node::start(&[&kubelet.flag(), "--pods=kubelet", "--compat.ephemeral-storage-names"]);
    let shown = node.shows("limits", |of| of.get("kstatd_node_pod_limit_ratio", GROW).is_some());
    for (family, labels, want) in [
        (
            "kstatd_node_storage_used_bytes",
            &[("what", "layer"), ("container", "main"), ("source", "kubelet")][..],
            4096.0,
        ),
        ("kstatd_node_storage_used_inodes", &[("what", "layer"), ("container", "main")], 7.0),
        ("kstatd_node_storage_used_bytes", &[("what", "logs"), ("container", "main")], 1024.0),
        ("kstatd_node_storage_used_bytes", &[("what", "volume"), ("volume", "cache")], 8192.0),
        ("kstatd_node_container_used_bytes", &[("container", "main")], 5120.0),
        ("kstatd_node_container_limit_bytes", &[("container", "main")], 10240.0),
        ("kstatd_node_container_request_bytes", &[("container", "main")], 1000.0),
        ("kstatd_node_container_limit_ratio", &[("container", "main")], 0.5),
        ("kstatd_node_pod_used_bytes", &[], 13312.0),
        ("kstatd_node_pod_limit_ratio", &[], 1.3),
        ("kstatd_node_pod_coverage_ratio", &[], 1.0),
        ("kstatd_node_volume_limit_ratio", &[("volume", "cache")], 0.5),
        (
            "kstatd_node_pod_owner",
            &[("owner_kind", "ReplicaSet"), ("owner_name", "grow-1"), ("node", "worker-1")],
            1.0,
        ),
    ] {
        assert_eq!(shown.get(family, &of_grow(labels)), Some(want), "{family} {labels:?}");
    }
    let age = shown.get("kstatd_node_storage_age_seconds", &of_grow(&[("what", "layer")]));
    assert!(age.is_some_and(|age| age > 1e6), "the fixture is old: {age:?}");
    // Volumes on other disks and in memory do not count.
    for volume in ["claim", "memory", "kube-api-access"] {
        let labels = of_grow(&[("volume", volume)]);
        assert_eq!(shown.get("kstatd_node_storage_used_bytes", &labels), None, "{volume}");
    }
    let of = |filesystem| [("filesystem", filesystem)];
    let free = shown.get("kstatd_node_filesystem_available_bytes", &of("node"));
    assert_eq!(free, Some(60_000.0));
    assert_eq!(shown.get("kstatd_node_filesystem_capacity_bytes", &of("images")), Some(50_000.0));
    let pod = [("pod_name", "grow"), ("pod_namespace", "shop"), ("node_name", "worker-1")];
    assert_eq!(shown.get("ephemeral_storage_pod_usage", &pod), Some(13312.0));
    for (family, labels, want) in [
        (
            "ephemeral_storage_container_limit_percentage",
            &[("container", "main"), ("source", "container")][..],
            50.0,
        ),
        (
            "ephemeral_storage_container_volume_usage",
            &[("container", "main"), ("volume_name", "cache"), ("mount_path", "/cache")],
            8192.0,
        ),
        (
            "ephemeral_storage_container_volume_limit_percentage",
            &[("container", "main"), ("volume_name", "cache")],
            50.0,
        ),
    ] {
        assert_eq!(shown.get(family, &[&pod[..], labels].concat()), Some(want), "{family}");
    }
    let of_node = [("node_name", "worker-1")];
    assert_eq!(shown.get("ephemeral_storage_node_capacity", &of_node), Some(100_000.0));
    assert_eq!(shown.get("ephemeral_storage_node_available", &of_node), Some(60_000.0));
    assert_eq!(shown.get("ephemeral_storage_node_percentage", &of_node), Some(40.0));
    // The pods are requested once, however often the summary is polled.
    let polls = |of: &Series, server| {
        of.get("kstatd_node_polls_total", &[("outcome", "ok"), ("server", server)])
    };
    let own = until("ten polls", || {
        Some(node.own()).filter(|own| polls(own, "kubelet").is_some_and(|polls| polls >= 10.0))
    });
    assert_eq!(polls(&own, "kubelet-pods"), Some(1.0));
    // A query for one namespace has no other.
    let text = get(node.main, "/metrics?namespace=shop").text();
    assert!(text.contains("pod=\"grow\"") && !text.contains("pod=\"quiet\""), "{text}");
    let status = get(node.main, "/status?format=text").text();
    assert!(status.starts_with("OK") && status.contains("shop/grow"), "{status}");
    let page = get(node.main, "/status").text();
    assert!(page.contains("shop/grow"), "{page}");
    assert_eq!(get(node.main, "/readyz").status, 200);
}

/// Credentials may be in it.
#[test]
fn a_changed_kubeconfig_is_read_again() {
    let (kubelet, other) = (Kubelet::start(), Kubelet::start());
    other.edit_pods(|pods| {
        let mut pods = pods["items"].as_array_mut().expect("pods").iter_mut();
        let grow = pods.find(|pod| pod["metadata"]["name"] == "grow").expect("the pod");
        let main = &mut grow["spec"]["containers"][0]["resources"];
        main["requests"]["ephemeral-storage"] = "2000".into();
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    let configure = |server: &Kubelet| {
        let url = server.url();
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
        );
        replace(&file, &text);
    };
    configure(&kubelet);
    let kubeconfig = format!("--kubeconfig={}", file.display());
    let node = Node::start(&[&kubelet.flag(), "--node=worker-1", &kubeconfig]);
    let requests = |of: &Series| {
        of.get("kstatd_node_container_request_bytes", &of_grow(&[("container", "main")]))
    };
    node.shows("requests", |of| requests(of) == Some(1_000.0));
    configure(&other);
    node.program.line(&["The new configuration is in force"]);
    // Pods are asked for when there is one that is not known.
    kubelet.edit(|summary| {
        let pods = summary["pods"].as_array_mut().expect("pods");
        let mut new = pods[0].clone();
        new["podRef"]["name"] = "new".into();
        new["podRef"]["uid"] = "new".into();
        pods.push(new);
    });
    node.shows("those of the other server", |of| requests(of) == Some(2_000.0));
}

#[test]
fn kubelet_errors_are_reported_and_remove_nothing() {
    let kubelet = Kubelet::start();
    let node = Node::start(&[&kubelet.flag(), "--pods=nobody", "--timeout=300ms"]);
    let used = |of: &Series| of.get("kstatd_node_pod_used_bytes", GROW);
    node.shows("the first summary", |of| used(of).is_some());
    let before = |answer: Answer, outcome: &str| {
        let count = |of: &Series| {
            let labels = [("outcome", outcome), ("server", "kubelet")];
            of.get("kstatd_node_polls_total", &labels).unwrap_or(0.0)
        };
        let sofar = count(&node.own());
        kubelet.set(answer);
        until(outcome, || (count(&node.own()) > sofar).then_some(()));
        let shown = Series::of(&node.scrape());
        assert!(used(&shown).is_some(), "{outcome}: nothing is left");
        assert!(
            shown.get("kstatd_node_pod_used_bytes", &[("pod", "quiet")]).is_some(),
            "{outcome}"
        );
        let status = get(node.main, "/status?format=text").text();
        assert!(status.starts_with("DEGRADED"), "{outcome}: {status}");
        let ready = get(node.main, "/readyz?verbose").text();
        assert!(ready.contains("[-]node/kubelet failed"), "{outcome}: {ready}");
    };
    before(Answer::Status(401), "refused");
    before(Answer::Status(503), "failed");
    before(Answer::Text("<html>no</html>"), "malformed");
    before(Answer::Cut(0), "failed");
    // The first pod was complete.
    before(Answer::CutAfter("\"quiet\""), "partial");
    before(Answer::Silent, "timeout");
    before(Answer::StalledAfter("\"quiet\""), "partial");
    kubelet.set(Answer::Usual);
    until("recovery", || {
        get(node.main, "/status?format=text").text().starts_with("OK").then_some(())
    });
}

#[test]
fn pods_and_containers_come_and_go() {
    let kubelet = Kubelet::start();
    let node = Node::start(&[&kubelet.flag(), "--pods=kubelet"]);
    node.shows("both pods", |of| {
        of.get("kstatd_node_pod_used_bytes", &[("pod", "quiet")]).is_some()
            && of.get("kstatd_node_pod_used_bytes", GROW).is_some()
    });
    kubelet.edit(|summary| {
        let pods = summary["pods"].as_array_mut().expect("pods");
        pods.retain(|pod| pod["podRef"]["name"] != "quiet");
        let containers = pods[0]["containers"].as_array_mut().expect("containers");
        containers[0]["name"] = "other".into();
        containers[0]["rootfs"]["usedBytes"] = 1.into();
    });
    let shown = node.shows("another container", |of| {
        of.get("kstatd_node_container_used_bytes", &[("container", "other")]).is_some()
    });
    assert_eq!(shown.get("kstatd_node_pod_used_bytes", &[("pod", "quiet")]), None);
    assert_eq!(shown.get("kstatd_node_container_used_bytes", &[("container", "main")]), None);
}

#[test]
fn growth_predicts_the_time_until_the_limit() {
    let kubelet = Kubelet::start();
    let node = Node::start(&[&kubelet.flag(), "--pods=kubelet"]);
    let now = jiff::Timestamp::now();
    // 1,000 bytes a minute, and 3,020 are left.
    for (ago, layer) in [(120, 4196), (60, 5196), (0, 6196)] {
        kubelet.edit(|summary| {
            let at = now - jiff::SignedDuration::from_secs(ago);
            let container = &mut summary["pods"][0]["containers"][0];
            container["rootfs"]["usedBytes"] = layer.into();
            for part in ["rootfs", "logs"] {
                container[part]["time"] = at.to_string().into();
            }
        });
        node.shows("the figure", |of| {
            let used = of.get("kstatd_node_container_used_bytes", &of_grow(&[]));
            used == Some(f64::from(layer + 1024))
        });
    }
    let full =
        |of: &Series, what: &str| of.get(&format!("kstatd_node_{what}_until_full_seconds"), GROW);
    let shown = node.shows("a trend", |of| full(of, "container").is_some());
    let seconds = full(&shown, "container").expect("seconds");
    assert!((60.0..=181.3).contains(&seconds), "{seconds}");
    assert_eq!(full(&shown, "volume"), None, "it does not grow");
}

#[test]
fn a_start_without_any_source_is_an_error() {
    let output = common::run(
        "kstatd",
        ["node", "--kubelet=", "--processes=", "--listen=:0", "--telemetry-listen=:0"],
    );
    assert!(!output.status.success());
    assert!(output.stderr.contains("--kubelet, --processes, --walk"), "{}", output.stderr);
}

/// Each pass would replace the tree of one by that of the other.
#[test]
fn walked_paths_with_the_same_name_are_an_error() {
    let paths = ["--walk-path=a=/x", "--walk-path=b=/x", "--walk-path=a=/y"];
    let own = ["node", "--kubelet=", "--listen=:0", "--telemetry-listen=:0"];
    let mut program = Program::start("kstatd", own.iter().chain(&paths));
    program.line(&["--walk-path=a=/y: another --walk-path has the name a"]);
    assert!(!program.ended().success());
}

/// Creates a tree with files of several sizes, hard and symbolic links, a sparse file and unusual names.
fn tree(root: &Path) {
    for outer in 0..12 {
        let outer = root.join(format!("outer {outer}\n"));
        for inner in 0..5 {
            let inner = outer.join(format!("inner{inner}"));
            fs::create_dir_all(&inner).expect("a directory");
            for file in 0..7 {
                fs::write(inner.join(format!("file{file}")), vec![b'x'; file * 3000])
                    .expect("a file");
            }
            symlink("/", inner.join("away")).expect("a link");
        }
        fs::hard_link(outer.join("inner0/file6"), outer.join("inner1/again")).expect("a name");
        fs::hard_link(
            outer.join("inner0/file6"),
            root.join(format!("{}", outer.metadata().unwrap().ino())),
        )
        .expect("a name");
    }
    let hole = fs::File::create(root.join("hole")).expect("a file");
    hole.set_len(1 << 30).expect("a hole");
}

/// Returns the bytes and inodes that `du` reports.
fn du(root: &Path) -> (f64, f64) {
    let du = |arg: &str| {
        let output = Command::new("du").args(["-s", "-x", arg]).arg(root).output().expect("du");
        let text = String::from_utf8(output.stdout).expect("text");
        text.split('\t').next().and_then(|text| text.parse::<f64>().ok()).expect("a number")
    };
    (du("--block-size=1"), du("--inodes"))
}

/// A `/proc` without pressure, at which the walk never pauses.
const NO_PROC: &str = "--host-proc=/no/such";

fn walking(root: &Path, args: &[&str]) -> Node {
    let path = format!("--walk-path=tree={}", root.display());
    let all = ["--kubelet=", &path, "--walk-interval=50ms", "--walk-entries-per-second=1000000"];
    // The pressure of the machine that runs the test does not matter.
    let calm: &[&str] =
        if args.iter().any(|arg| arg.starts_with("--host-proc")) { &[] } else { &[NO_PROC] };
    Node::start(&[&all, calm, args].concat())
}

fn found(of: &Series) -> Option<(f64, f64)> {
    let labels = [("path", "tree"), ("source", "walk"), ("what", "path")];
    let get = |family: &str| of.get(&format!("kstatd_node_storage_{family}"), &labels);
    (get("coverage_ratio")? == 1.0).then_some((get("used_bytes")?, get("used_inodes")?))
}

#[test]
fn a_walk_finds_what_du_finds_also_after_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    tree(dir.path());
    let node = walking(dir.path(), &[]);
    let agrees = |what: &str| {
        let want = du(dir.path());
        node.shows(what, |of| found(of) == Some(want));
    };
    agrees("the tree as it was");
    // Files and whole directories go, come and grow.
    fs::remove_dir_all(dir.path().join("outer 3\n")).expect("removed");
    fs::rename(dir.path().join("outer 4\n"), dir.path().join("outer 5\n/moved")).expect("moved");
    fs::create_dir_all(dir.path().join("a/b/c/d")).expect("a directory");
    fs::write(dir.path().join("a/b/c/d/e"), vec![b'x'; 100_000]).expect("a file");
    fs::remove_file(dir.path().join("outer 1\n/inner0/file6")).expect("removed");
    agrees("after changes");
    // In place: the directory's times stay.
    let inner = dir.path().join("outer 2\n/inner3");
    let stamp = inner.metadata().expect("a directory").mtime_nsec();
    fs::write(inner.join("file1"), vec![b'x'; 200_000]).expect("written");
    assert_eq!(inner.metadata().expect("a directory").mtime_nsec(), stamp);
    agrees("after a file was written in place");
}

/// Creates nested directories.
fn chain(root: &Path, levels: usize) {
    let mut at = root.to_owned();
    for _ in 0..levels {
        at.push("d");
    }
    fs::create_dir_all(&at).expect("directories");
    fs::write(at.join("file"), vec![b'x'; 100_000]).expect("a file");
}

#[test]
fn a_tree_that_is_too_deep_has_no_coverage() {
    let dir = tempfile::tempdir().expect("a directory");
    chain(dir.path(), 400);
    let want = du(dir.path());
    let node = walking(dir.path(), &[]);
    node.shows("all levels", |of| found(of) == Some(want));
    chain(dir.path(), 1200);
    let labels = [("path", "tree"), ("source", "walk"), ("what", "path")];
    node.shows("levels that are too deep", |of| {
        let get = |family: &str| of.get(&format!("kstatd_node_storage_{family}"), &labels);
        get("coverage_ratio") == Some(0.0) && get("used_inodes") > Some(900.0)
    });
    fs::remove_dir_all(dir.path().join("d")).expect("removed");
    chain(dir.path(), 3);
    let want = du(dir.path());
    node.shows("what is left", |of| found(of) == Some(want));
}

#[test]
fn unchanged_directories_cost_one_call() {
    let dir = tempfile::tempdir().expect("a directory");
    for outer in 0..20 {
        for inner in 0..10 {
            let inner = dir.path().join(format!("{outer}/{inner}"));
            fs::create_dir_all(&inner).expect("a directory");
            for file in 0..10 {
                fs::write(inner.join(format!("{file}")), "x").expect("a file");
            }
            // Users can set this time, unlike the status change time.
            let future = SystemTime::now() + Duration::from_secs(1 << 30);
            let directory = fs::File::open(&inner).expect("a directory");
            directory.set_modified(future).expect("a modification time");
        }
    }
    let node = walking(dir.path(), &[]);
    let calls = |of: &Series| {
        let call = |call| of.get("kstatd_node_walk_system_calls_total", &[("call", call)]);
        Some((
            call("fstatat")? + call("getdents64")? + call("openat")?,
            of.get("kstatd_node_walk_passes_total", &[])?,
        ))
    };
    // Times are reliable after two seconds; from then on a pass costs a sixth of a full one.
    until("passes that skip", || {
        let (before, from) = calls(&node.own())?;
        let (after, to) =
            until("passes", || calls(&node.own()).filter(|(_, to)| to - from >= 16.0));
        // 221 directories, of which 21 have others in them: 1 and 2 calls each, and 13 more for each of the 14 that are
        // rescanned in a pass.
        ((after - before) / (to - from + 1.0) < 480.0).then_some(())
    });
    assert_eq!(found(&Series::of(&node.scrape())), Some(du(dir.path())));
}

#[test]
fn a_tree_beyond_its_memory_is_partly_covered_and_leaves_the_others_theirs() {
    let dir = tempfile::tempdir().expect("a directory");
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    for outer in 0..40 {
        for inner in 0..50 {
            fs::create_dir_all(large.join(format!("{outer}/{inner}"))).expect("a directory");
        }
    }
    (0..20).for_each(|name| {
        fs::create_dir_all(small.join(name.to_string())).expect("a directory");
        fs::write(small.join(format!("{name}/file")), "x").expect("a file");
    });
    let second = format!("--walk-path=small={}", small.display());
    let node = walking(&large, &["--walk-memory=128Ki", &second]);
    let part = |of: &Series, family: &str, path: &str| {
        of.get(family, &[("path", path), ("what", "path"), ("source", "walk")])
    };
    let coverage = |path: &str| {
        let of = Series::of(&node.scrape());
        part(&of, "kstatd_node_storage_coverage_ratio", path)
    };
    let (memory, skipped) = ("kstatd_node_walk_memory_bytes", "kstatd_node_walk_skipped_entries");
    let passes = |more: f64| {
        let now = || node.own().get("kstatd_node_walk_passes_total", &[]);
        let from = until("passes", now);
        until("more passes", || now().filter(|to| to - from >= more));
    };
    passes(3.0);
    // A part of the 2,000 directories is skipped; the other tree is complete.
    let covered = until("the large tree", || coverage("tree"));
    assert!((0.05..0.95).contains(&covered), "{covered}");
    assert_eq!(coverage("small"), Some(1.0));
    let found = Series::of(&node.scrape());
    let used = |family| part(&found, family, "small");
    let (bytes, inodes) = du(&small);
    assert_eq!(used("kstatd_node_storage_used_bytes"), Some(bytes));
    assert_eq!(used("kstatd_node_storage_used_inodes"), Some(inodes));
    let own = node.own();
    assert!(own.get(memory, &[]).is_some_and(|bytes| bytes <= 131_072.0), "{own:?}");
    assert!(own.get(skipped, &[]).is_some_and(|entries| entries > 100.0), "{own:?}");
    // With fewer directories all of them are measured again.
    (4..40).for_each(|outer| {
        fs::remove_dir_all(large.join(outer.to_string())).expect("removed");
    });
    until("full coverage", || (coverage("tree") == Some(1.0)).then_some(()));
    until("nothing skipped", || (node.own().get(skipped, &[]) == Some(0.0)).then_some(()));
}

#[test]
fn a_changed_directory_costs_only_its_new_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = |file: usize| dir.path().join(file.to_string());
    (0..300).for_each(|file| fs::write(name(file), "x").expect("a file"));
    let node = walking(dir.path(), &[]);
    let looked = || node.own().get("kstatd_node_walk_system_calls_total", &[("call", "fstatat")]);
    let mut files = 0..200;
    // All files are examined while they are new, because they may still be written.
    until("a change that costs little", || {
        let before = looked()?;
        fs::remove_file(name(files.next()?)).expect("removed");
        let want = du(dir.path());
        node.shows("the change", |of| found(of) == Some(want));
        (looked()? - before < 90.0).then_some(())
    });
}

#[test]
fn a_tree_under_change_does_not_end_the_walk() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = walking(dir.path(), &[]);
    for round in 0..30 {
        let base = dir.path().join(format!("{}", round % 3));
        let _ = fs::remove_dir_all(&base);
        for inner in 0..20 {
            fs::create_dir_all(base.join(format!("{inner}/x/y"))).expect("a directory");
            fs::write(base.join(format!("{inner}/x/y/z")), "z").expect("a file");
        }
    }
    // A directory becomes a link out of the tree, which is not followed.
    fs::remove_dir_all(dir.path().join("0")).expect("removed");
    symlink("/usr", dir.path().join("0")).expect("a link");
    let want = du(dir.path());
    node.shows("the tree as it is in the end", |of| found(of) == Some(want));
    fs::remove_dir_all(dir.path()).expect("removed");
    node.shows("nothing", |of| found(of).is_none());
    fs::create_dir(dir.path()).expect("a directory");
    node.shows("the tree again", |of| found(of).is_some());
}

#[test]
fn the_walk_pauses_under_io_pressure_and_resumes() {
    let dir = tempfile::tempdir().expect("a directory");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).expect("a directory");
    let pressure = dir.path().join("pressure/io");
    fs::create_dir(dir.path().join("pressure")).expect("a directory");
    let set_pressure = |share: &str| {
        let text = format!(
            "some avg10={share} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
        );
        fs::write(&pressure, text).expect("written");
    };
    set_pressure("50.00");
    let proc = format!("--host-proc={}", dir.path().display());
    let node = walking(&tree, &[&proc]);
    let own = |family: &str| node.own().get(&format!("kstatd_node_walk_{family}"), &[]);
    until("a pause", || own("paused_seconds_total").filter(|seconds| *seconds > 0.0));
    assert_eq!((own("pauses_total"), own("passes_total")), (Some(1.0), Some(0.0)));
    set_pressure("10.00");
    node.shows("the tree", |of| found(of).is_some());
    assert_eq!(own("pauses_total"), Some(1.0));
}

#[test]
fn writable_layers_are_found_in_the_mount_table() {
    let dir = tempfile::tempdir().expect("a directory");
    let upper = dir.path().join("snapshots/1/fs");
    let other = dir.path().join("snapshots/2/fs");
    for path in [&upper, &other] {
        fs::create_dir_all(path).expect("a directory");
        fs::write(path.join("written"), vec![b'x'; 10_000]).expect("a file");
    }
    let id = "0123456789abcdef".repeat(4);
    let table = dir.path().join("mountinfo");
    fs::write(
        &table,
        format!(
            "30 22 0:40 / /run/k8s.io/{id}/rootfs rw - overlay overlay rw,lowerdir=/l,upperdir=/snapshots/1/fs,workdir=/w\n\
             31 22 0:41 / /merged rw - overlay overlay rw,upperdir=/snapshots/2/fs\n"
        ),
    )
    .expect("written");
    // The kubelet reports a container without its layer, and no emptyDir.
    let empty =
        dir.path().join("var/lib/kubelet/pods/uid-grow/volumes/kubernetes.io~empty-dir/cache");
    fs::create_dir_all(&empty).expect("a directory");
    let logs = dir.path().join("var/log/pods/shop_grow_uid-grow/main");
    fs::create_dir_all(&logs).expect("a directory");
    fs::write(logs.join("0.log"), vec![b'x'; 5000]).expect("a file");
    let kubelet = Kubelet::start();
    kubelet.edit(|summary| {
        let pod = &mut summary["pods"][0];
        pod["containers"][0].as_object_mut().expect("a container").remove("rootfs");
        pod["containers"][0].as_object_mut().expect("a container").remove("logs");
        pod.as_object_mut().expect("a pod").remove("volume");
    });
    let (root, mounts) = (
        format!("--host-root={}", dir.path().display()),
        format!("--host-mounts={}", table.display()),
    );
    let node = Node::start(&[
        &kubelet.flag(),
        "--pods=kubelet",
        "--walk",
        "--walk-interval=50ms",
        NO_PROC,
        &root,
        &mounts,
    ]);
    let all = |labels: &[(&str, &str)]| {
        let labels = of_grow(&[&[("source", "walk")], labels].concat());
        node.shows("a figure", |of| of.get("kstatd_node_storage_used_bytes", &labels).is_some())
            .get("kstatd_node_storage_used_bytes", &labels)
    };
    assert_eq!(all(&[("what", "layer"), ("container", "main")]), Some(du(&upper).0));
    assert_eq!(all(&[("what", "logs"), ("container", "main")]), Some(du(&logs).0));
    assert_eq!(all(&[("what", "volume"), ("volume", "cache")]), Some(du(&empty).0));
    let shown = node.shows("a layer without a pod", |of| {
        of.get("kstatd_node_storage_used_bytes", &[("container", "/merged")]).is_some()
    });
    let sum = du(&upper).0 + du(&logs).0 + du(&empty).0;
    assert_eq!(shown.get("kstatd_node_pod_used_bytes", GROW), Some(sum), "its parts added up");
    let coverage = shown.get("kstatd_node_pod_coverage_ratio", GROW);
    assert_eq!(coverage, Some(1.0));
}

#[test]
fn stale_kubelet_figures_are_replaced_by_the_walk() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = dir.path().join("var/log/pods/shop_grow_uid-grow/main");
    fs::create_dir_all(&logs).expect("a directory");
    fs::write(logs.join("0.log"), vec![b'x'; 5000]).expect("a file");
    // The fake kubelet's figures are months old.
    let kubelet = Kubelet::start();
    let node = Node::start(&[
        &kubelet.flag(),
        "--pods=nobody",
        "--walk",
        "--walk-interval=50ms",
        NO_PROC,
        &format!("--host-root={}", dir.path().display()),
    ]);
    let used = |source| {
        let labels = of_grow(&[("source", source), ("what", "logs"), ("container", "main")]);
        let shown =
            node.shows(source, |of| of.get("kstatd_node_storage_used_bytes", &labels).is_some());
        shown.get("kstatd_node_storage_used_bytes", &labels)
    };
    assert_eq!(used("walk"), Some(du(&logs).0));
    // A new figure of the kubelet replaces the walk's again.
    kubelet.edit(|summary| {
        let now = jiff::Timestamp::now().to_string();
        summary["pods"][0]["containers"][0]["logs"]["time"] = now.into();
    });
    assert_eq!(used("kubelet"), Some(1024.0));
}

/// docs/node.md has a row for each family and no other.
#[test]
fn the_document_lists_every_family() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).expect(file);
    let document = read("docs/node.md");
    let rows =
        document.lines().filter_map(|line| line.strip_prefix("| `kstatd_")?.split('`').next());
    let rows: BTreeSet<String> = rows.map(|name| format!("kstatd_{name}")).collect();
    let mut made = BTreeSet::new();
    for file in [
        "src/node/families.rs",
        "src/node/host/families.rs",
        "src/node/host/metrics.rs",
        "src/node/kubelet.rs",
        "src/node/walk/metrics.rs",
    ] {
        let text = read(file);
        let texts = text.split('"').skip(1).step_by(2).filter(|text| !text.contains(' '));
        for name in texts.filter(|text| text.contains("_")) {
            match name.starts_with("kstatd_node_") {
                true => drop(made.insert(name.to_owned())),
                false if name.starts_with("ephemeral_storage_") => {
                    assert!(document.contains(&format!("`{name}`")), "docs/node.md lacks {name}");
                }
                false => {}
            }
        }
    }
    assert!(made.len() > 30, "{made:?}");
    assert_eq!(rows, made);
}

#[test]
fn support_archives_are_complete() {
    let kubelet = Kubelet::start();
    let node = Node::start(&[&kubelet.flag(), "--pods=kubelet"]);
    let folder = tempfile::tempdir().expect("folder");
    let flags = [
        format!("--file={}", folder.path().join("a.tar.gz").display()),
        format!("--addr={}", node.main),
        format!("--telemetry-addr={}", node.telemetry),
    ];
    let output = run("kstatd", ["bundle".to_owned()].iter().chain(&flags));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!output.stdout.contains("MISSING"), "{output:?}");
}
