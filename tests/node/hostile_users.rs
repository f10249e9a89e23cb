//! Users of the node who try to exhaust its resources or to falsify the figures of others.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::common::{get, until};
use crate::kubelet::Kubelet;
use crate::{GROW, NO_PROC, Node, Series, chain, du, found, walking};

/// Files beyond the memory of the tree are measured on each read of their directory. Subdirectories and hard links keep
/// their memory.
#[test]
fn new_files_beside_directories_stay_within_the_memory_of_the_walk() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = |kind: &str, number: usize| dir.path().join(format!("{kind}{number}"));
    (0..200).for_each(|number| fs::create_dir(name("d", number)).expect("a directory"));
    let node = walking(dir.path(), &["--walk-memory=128Ki"]);
    let agrees = |what: &str| {
        let want = du(dir.path());
        node.shows(what, |of| found(of) == Some(want));
    };
    agrees("the directories");
    for number in 0..500 {
        fs::write(name("a", number), "").expect("a file");
        fs::hard_link(name("a", number), name("b", number)).expect("a link");
    }
    (0..5000).for_each(|number| fs::write(name("f", number), "").expect("a file"));
    let own = |family: &str| node.own().get(&format!("kstatd_node_walk_{family}"), &[]);
    agrees("the files");
    let before = own("passes_total").expect("passes");
    until("two passes", || own("passes_total").filter(|of| *of > before + 1.0));
    // One tree may use three quarters.
    let memory = own("memory_bytes");
    assert!(memory.is_some_and(|bytes| bytes <= 98_304.0), "{memory:?}");
    assert_eq!(found(&Series::of(&node.scrape())), Some(du(dir.path())));
}

/// Each level holds a descriptor; three quarters of them are left to connections and other files.
#[test]
fn nested_directories_take_a_quarter_of_the_descriptors() {
    let dir = tempfile::tempdir().expect("a directory");
    chain(dir.path(), 400);
    let path = format!("--walk-path=tree={}", dir.path().display());
    let flags = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0", "--kubelet=", &path];
    let command = ["--nofile=256", env!("CARGO_BIN_EXE_kstatd"), "node", NO_PROC];
    let node = Node::spawn(Command::new("prlimit").args(command).args(flags));
    let labels = [("path", "tree"), ("source", "walk"), ("what", "path")];
    let shown = node.shows("the first pass", |of| {
        of.get("kstatd_node_storage_coverage_ratio", &labels) == Some(0.0)
    });
    // The root and 64 levels.
    assert_eq!(shown.get("kstatd_node_storage_used_inodes", &labels), Some(65.0));
}

/// A user who knows the UID of a pod can set it as the annotation that connects a mirror pod with its static pod.
#[test]
fn annotations_do_not_replace_pods_of_others() {
    let kubelet = Kubelet::start();
    kubelet.edit_pods(|pods| {
        let pods = pods["items"].as_array_mut().expect("pods");
        let mirror = |namespace: &str, name: &str, of: &str, owner: &str| {
            let annotations = json!({ "kubernetes.io/config.mirror": of });
            let owners = json!([{ "kind": "Node", "name": owner, "controller": true }]);
            json!({ "namespace": namespace, "name": name, "uid": format!("uid-of-{name}"),
                "annotations": annotations, "ownerReferences": owners })
        };
        pods[1]["metadata"] = mirror("other", "quiet", "uid-quiet", "worker-1");
        for of in ["uid-grow", "uid-quiet"] {
            let mut pod = pods[0].clone();
            pod["metadata"] = mirror("shop", &format!("false-{of}"), of, "false");
            pods.push(pod);
        }
    });
    let node = Node::start(&[&kubelet.flag(), "--pods=kubelet"]);
    let quiet = [("namespace", "other"), ("pod", "quiet")];
    let shown = node.shows("owners", |of| of.get("kstatd_node_pod_owner", &quiet).is_some());
    for (pod, owner) in [(GROW, "grow-1"), (&quiet, "worker-1")] {
        let labels = [pod, &[("owner_name", owner)]].concat();
        assert_eq!(shown.get("kstatd_node_pod_owner", &labels), Some(1.0), "{shown:?}");
    }
}

/// A user can give a pod a limit of 0, which would hide the pods that are really full.
#[test]
fn limits_of_zero_are_not_the_fullest() {
    let kubelet = Kubelet::start();
    kubelet.edit_pods(|pods| {
        let containers = pods["items"][1]["spec"]["containers"].as_array_mut().expect("containers");
        for container in containers {
            container["resources"] = json!({ "limits": { "ephemeral-storage": "0" } });
        }
    });
    let node = Node::start(&[&kubelet.flag(), "--pods=kubelet"]);
    let status = until("both pods, with their limits", || {
        let status = get(node.main, "/status?format=text").text();
        (status.contains("other/quiet") && status.contains('%')).then_some(status)
    });
    assert!(status.find("shop/grow") < status.find("other/quiet"), "{status}");
    assert!(!status.contains("inf%") && !status.contains("NaN%"), "{status}");
}
