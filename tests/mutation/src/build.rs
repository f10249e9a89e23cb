//! Builds the library's tests with all mutants in one binary. Mutants that do not compile are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::instrument::{Instrumented, Switch, instrument};

/// The function that the conditions call. `KSTATD_MUTANT` is the number of the mutant that is on, and the numbers of those
/// that are reached are written to the file `KSTATD_REACHED`.
const SWITCH: &str = r#"
#[doc(hidden)]
pub fn mutant(id: usize) -> bool {
    use std::io::Write as _;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    static ON: LazyLock<usize> =
        LazyLock::new(|| std::env::var("KSTATD_MUTANT").map_or(usize::MAX, |id| id.parse().expect("a number")));
    static REACHED: LazyLock<Option<std::fs::File>> =
        LazyLock::new(|| std::env::var("KSTATD_REACHED").ok().map(|path| std::fs::File::create(path).expect("a file")));
    static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    if let Some(mut file) = REACHED.as_ref()
        && !SEEN[id].swap(true, Ordering::Relaxed)
    {
        writeln!(file, "{id}").expect("a file that can be written");
    }
    *ON == id
}
"#;

/// A copy of the repository with mutants.
pub struct Tree {
    repository: PathBuf,
    copy: PathBuf,
}

impl Tree {
    /// Names the copy of a repository, in its folder `target`.
    pub fn new(repository: &Path) -> Self {
        Self { repository: repository.to_owned(), copy: repository.join("target/mutation") }
    }

    /// Copies the files that git knows, except those of `changed`, which have mutants.
    fn copy_all_but(&self, changed: &BTreeSet<&str>) {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.repository)
            .output()
            .expect("git");
        for path in String::from_utf8_lossy(&listed.stdout).split('\0') {
            if path.is_empty() || changed.contains(path) {
                continue;
            }
            // Deleted ones are listed as well.
            if let Ok(content) = fs::read(self.repository.join(path)) {
                self.write(path, &content);
            }
        }
    }

    /// Writes a file of the copy, and keeps the time of one that has not changed.
    fn write(&self, path: &str, content: &[u8]) {
        let to = self.copy.join(path);
        if fs::read(&to).is_ok_and(|old| old == content) {
            return;
        }
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder for the copy");
        fs::write(&to, content).expect("a copy");
    }

    /// Returns the text of a file of the repository.
    ///
    /// # Errors
    /// Names the file.
    pub fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.repository.join(path)).map_err(|error| format!("{path}: {error}"))
    }

    /// Builds the tests with the mutants. Returns the binary, and adds the mutants that do not compile to `unviable`.
    ///
    /// # Errors
    /// Returns the compiler's first error if no mutant causes it.
    pub fn build(
        &self,
        switches: &[Switch<'_>],
        unviable: &mut BTreeSet<usize>,
    ) -> Result<PathBuf, String> {
        let mut changed: BTreeSet<&str> =
            switches.iter().map(|switch| switch.site.key.file.as_str()).collect();
        changed.insert("src/lib.rs");
        self.copy_all_but(&changed);
        let count = switches.iter().map(|switch| switch.id + 1).max().unwrap_or(1);
        let library =
            self.read("src/lib.rs")?.replacen("#![warn(missing_docs)]", "#![allow(warnings)]", 1);
        self.write(
            "src/lib.rs",
            format!("{library}{}", SWITCH.replace("COUNT", &count.to_string())).as_bytes(),
        );
        loop {
            let mut files: BTreeMap<&str, Vec<Switch<'_>>> = BTreeMap::new();
            for switch in switches.iter().filter(|switch| !unviable.contains(&switch.id)) {
                files.entry(&switch.site.key.file).or_default().push(*switch);
            }
            let mut written = BTreeMap::new();
            for file in switches.iter().map(|switch| &switch.site.key.file) {
                if written.contains_key(file.as_str()) {
                    continue;
                }
                let switches = files.get(file.as_str()).map_or(&[][..], Vec::as_slice);
                let instrumented = instrument(&self.read(file)?, switches);
                self.write(file, instrumented.text.as_bytes());
                written.insert(file.as_str(), instrumented);
            }
            let (binary, messages) = self.cargo();
            if let Some(binary) = binary {
                return Ok(binary);
            }
            let found: BTreeSet<usize> =
                messages.iter().flat_map(|message| culprits(message, &written)).collect();
            if found.is_empty() {
                let text = |message: &serde_json::Value| {
                    message["rendered"].as_str().unwrap_or_default().to_owned()
                };
                return Err(messages.first().map_or_else(|| "cargo failed".to_owned(), text));
            }
            eprintln!("{} mutants do not compile", found.len());
            unviable.extend(found);
        }
    }

    /// Returns the test binary, or the compiler's errors.
    fn cargo(&self) -> (Option<PathBuf>, Vec<serde_json::Value>) {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        // `cargo run` describes this program in these variables. The build script of ring depends on them, and would compile it
        // and all that uses it once more.
        let is_of_cargo_run =
            |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars().filter(|(name, _)| is_of_cargo_run(name)) {
            command.env_remove(name);
        }
        let output = command
            .args(["--config", "profile.dev.package.kstatd.debug=false"])
            .args(["--config", "profile.dev.package.kstatd-double.debug=false"])
            .args([
                "test",
                "--locked",
                "--package",
                "kstatd",
                "--lib",
                "--no-run",
                "--message-format=json",
            ])
            .env("CARGO_TARGET_DIR", self.repository.join("target"))
            .current_dir(&self.copy)
            .stderr(std::process::Stdio::inherit())
            .output()
            .expect("cargo");
        let (mut binary, mut errors) = (None, Vec::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(mut message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            if let Some(path) = message["executable"].as_str() {
                binary = Some(PathBuf::from(path));
            }
            if message["message"]["level"] == "error" {
                errors.push(message["message"].take());
            }
        }
        (binary.filter(|_| output.status.success()), errors)
    }
}

/// Returns the mutants that cause an error: those whose own text it is in, otherwise the innermost one around it.
fn culprits(message: &serde_json::Value, files: &BTreeMap<&str, Instrumented>) -> Vec<usize> {
    let mut ids = Vec::new();
    let spans = message["spans"].as_array().map_or(&[][..], Vec::as_slice);
    let is_primary = |span: &&serde_json::Value| span["is_primary"] == true;
    let of = |spans: &mut dyn Iterator<Item = &serde_json::Value>, is_exact: bool| {
        let mut ids = Vec::new();
        for span in spans {
            let Some(file) = span["file_name"].as_str().and_then(|name| files.get(name)) else {
                continue;
            };
            let offset = |name: &str| span[name].as_u64().unwrap_or_default() as usize;
            let (start, end) = (offset("byte_start"), offset("byte_end"));
            let touching = file.parts.iter().filter(|part| {
                part.is_exact == is_exact
                    && if is_exact {
                        start < part.range.end && part.range.start < end
                    } else {
                        part.range.start <= start && end <= part.range.end
                    }
            });
            if is_exact {
                ids.extend(touching.map(|part| part.id));
            } else if let Some(innermost) = touching.min_by_key(|part| part.range.len()) {
                ids.extend(
                    file.parts
                        .iter()
                        .filter(|part| !part.is_exact && part.range == innermost.range)
                        .map(|part| part.id),
                );
            }
        }
        ids
    };
    for is_exact in [true, false] {
        ids = of(&mut spans.iter().filter(is_primary), is_exact);
        if ids.is_empty() {
            ids = of(&mut spans.iter(), is_exact);
        }
        if !ids.is_empty() {
            break;
        }
    }
    ids
}
