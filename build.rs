//! Sets the program's revision: the environment variable `KSTATD_REVISION`, or else the current commit, with the suffix
//! `-dirty` if the sources differ from it.
//!
//! Only release builds run git, because otherwise every commit would recompile a debug build.

use std::path::Path;
use std::process::Command;

/// The paths that affect the build.
const SOURCES: [&str; 4] = ["src", "Cargo.toml", "Cargo.lock", "build.rs"];

fn main() {
    println!("cargo::rerun-if-env-changed=KSTATD_REVISION");
    let is_given = std::env::var_os("KSTATD_REVISION").is_some();
    let is_optimised = std::env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    if is_given || !is_optimised {
        println!("cargo::rerun-if-changed=build.rs");
        return;
    }
    for path in SOURCES {
        println!("cargo::rerun-if-changed={path}");
    }
    // A new commit changes the log of HEAD, wherever the branch is kept.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(revision) = revision() {
        println!("cargo::rustc-env=KSTATD_REVISION={revision}");
    }
}

fn revision() -> Option<String> {
    // Sources that were unpacked within somebody else's repository have nothing to do with its commits.
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let here = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    if Path::new(&root).canonicalize().ok()? != Path::new(&here).canonicalize().ok()? {
        return None;
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let status = [&["status", "--porcelain", "--untracked-files=no", "--"][..], &SOURCES].concat();
    let dirty = if git(&status)?.is_empty() { "" } else { "-dirty" };
    Some(commit + dirty)
}

/// Returns the output of git without the line end. `None` without git or outside a repository.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
