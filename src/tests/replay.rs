//! Compares simulated histories with those of another process, which has other hash seeds and addresses and another speed.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::hash;

/// The variable with the folder into which the other process writes its journals.
const FOLDER: &str = "KSTATD_JOURNALS";

/// The journal of one seed: a line for each request, response, event, StatsD line and scrape.
pub(crate) struct Journal {
    pub(crate) seed: u64,
    pub(crate) lines: Vec<String>,
}

impl Journal {
    fn text(&self) -> String {
        self.lines.join("\n")
    }
}

/// Asserts that two processes write the same journals. `test` is the path of the calling test, which the other process
/// runs, too.
pub(crate) fn assert_same_in_another_process(test: &str, run: impl FnOnce() -> Vec<Journal>) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        for journal in run() {
            let path = Path::new(&folder).join(journal.seed.to_string());
            std::fs::write(path, journal.text()).expect("written");
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (_, name) = test.split_once("::").expect("a path in this crate");
    // It has a lower priority, so it runs at another speed.
    let other = Command::new("nice")
        .args(["-n", "5"])
        .arg(std::env::current_exe().expect("a path"))
        .args([name, "--exact"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the other process");
    let own = run();
    let other = other.wait_with_output().expect("its output");
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stdout));
    let mut wrong = String::new();
    for journal in own {
        let (seed, own) = (journal.seed, journal.text());
        let path = folder.path().join(seed.to_string());
        let other = std::fs::read_to_string(path).expect("the journal of the other process");
        println!(
            "seed {seed}: {} lines with hash {:016x}",
            own.lines().count(),
            hash(own.as_bytes())
        );
        if let Some(difference) = first_difference(&own, &other) {
            let _ = writeln!(wrong, "seed {seed}, {difference}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Describes the first line that differs, if any.
fn first_difference(own: &str, other: &str) -> Option<String> {
    let (mut own, mut other) = (own.lines(), other.lines());
    for number in 1.. {
        match (own.next(), other.next()) {
            (None, None) => break,
            (one, other) if one == other => {}
            (one, other) => {
                return Some(format!("line {number}: {one:?}, in the other process {other:?}"));
            }
        }
    }
    None
}

#[test]
fn the_first_difference_is_named() {
    assert_eq!(first_difference("a\nb", "a\nb"), None);
    for (other, line) in [("a\nc", "line 2"), ("a", "line 2"), ("a\nb\nc", "line 3")] {
        let found = first_difference("a\nb", other).expect("a difference");
        assert!(found.starts_with(line), "{other:?}: {found}");
    }
}
