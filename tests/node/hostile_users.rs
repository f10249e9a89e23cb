//! Users of the node who try to exhaust its resources.

use std::fs;

use crate::common::until;
use crate::{Series, du, found, walking};

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
