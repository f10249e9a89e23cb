//! The packs of `deploy/custom-resources`, tested with the definitions of their projects and sample objects:
//! configuration, role, and the metrics used in alerts and dashboards.

mod common;
#[path = "common/repository.rs"]
mod repository;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use repository::{entries, read, root};

/// A pack by the name of its folder.
struct Pack(String);

impl Pack {
    fn all() -> Vec<Self> {
        let packs = entries(&root().join("deploy/custom-resources"));
        let packs = packs.iter().filter(|path| path.is_dir());
        let packs: Vec<Self> = packs.map(|path| Self(file_name(path))).collect();
        assert!(packs.len() >= 3, "only {} packs", packs.len());
        packs
    }

    fn path(&self, file: &str) -> PathBuf {
        root().join("deploy/custom-resources").join(&self.0).join(file)
    }

    fn text(&self, file: &str) -> String {
        read(&self.path(file))
    }

    fn samples(&self, extension: &str) -> PathBuf {
        root().join("tests/data/packs").join(format!("{}.{extension}", self.0))
    }

    fn definitions(&self) -> Vec<PathBuf> {
        let definitions = entries(&root().join("tests/data/crds").join(&self.0));
        assert!(!definitions.is_empty(), "{} has no definitions", self.0);
        definitions
    }

    /// Runs a command with the configuration and the definitions.
    fn run(&self, command: &[&str]) -> common::Output {
        let mut args: Vec<String> = command.iter().map(|&arg| arg.to_owned()).collect();
        let config = self.path("config.yaml");
        args.push(format!("--custom-resource-state-config-file={}", config.display()));
        for definition in self.definitions() {
            args.push(format!("--filename={}", definition.display()));
        }
        let output = common::run("kstatd", &args);
        assert!(output.status.success(), "kstatd {args:?}: {}", output.stderr);
        output
    }

    /// Returns the names of the metrics.
    fn families(&self) -> BTreeSet<String> {
        let text = read(&self.samples("prom"));
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        names.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().expect("name").to_string_lossy().into_owned()
}

/// The configurations use only fields of the definitions, and have no other problems.
#[test]
fn configurations_fit_the_definitions() {
    for pack in Pack::all() {
        let stdout = pack.run(&["check-config"]).stdout;
        assert!(stdout.lines().count() == 1 && stdout.ends_with(", warnings: 0\n"), "{stdout}");
    }
}

#[test]
fn roles_match_the_configurations() {
    for pack in Pack::all() {
        let name = format!("--name=kstatd-{}", pack.0);
        let needed = pack.run(&["rbac", "--custom-resource-state-only", &name]).stdout;
        assert_eq!(pack.text("role.yaml"), needed, "{}/role.yaml", pack.0);
    }
}

/// The samples yield exactly the recorded series, at least one for each metric; values are absent at most, never
/// invalid.
#[test]
fn samples_yield_the_recorded_series() {
    for pack in Pack::all() {
        let samples = format!("--filename={}", pack.samples("yaml").display());
        let output = pack.run(&["render", "kube", "--custom-resource-state-only", &samples]);
        let recorded = read(&pack.samples("prom"));
        assert_eq!(output.stdout, recorded, "{}", pack.0);
        for line in output.stderr.lines() {
            assert!(line.contains(": nothing (null), values: "), "{}: {line}", pack.0);
        }
        for family in pack.families() {
            let is_shown = recorded.contains(&format!("\n{family}{{"));
            // Only one of all objects is being deleted.
            assert!(is_shown || family.ends_with("_deleted"), "{family} has no series");
        }
        for definition in pack.definitions() {
            let kind: serde_json::Value =
                serde_json::from_str(&read(&definition)).expect("definition");
            let kind = kind["spec"]["names"]["kind"].as_str().expect("kind").to_owned();
            let label = format!("customresource_kind={kind:?}");
            assert!(recorded.contains(&label), "{}: {kind} has no series", pack.0);
        }
    }
    let deleted = read(&Pack("gateway-api".to_owned()).samples("prom"));
    assert_eq!(deleted.matches("_deleted{").count(), 1);
}

/// Packs are joined as `deploy/custom-resources/README.md` says: the first file, then the entries of the others.
#[test]
fn packs_can_be_joined() {
    let mut joined = String::new();
    let mut metrics = 0;
    for pack in Pack::all() {
        let config = pack.text("config.yaml");
        let (head, entries) = config.split_once("\n  resources:\n").expect("resources");
        if joined.is_empty() {
            joined = format!("{head}\n  resources:\n");
        }
        joined.push_str(entries);
        metrics += config.matches("\n    - name: ").count();
    }
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("config.yaml");
    std::fs::write(&path, joined).expect("write");
    let flag = format!("--custom-resource-state-config-file={}", path.display());
    let output = common::run("kstatd", ["check-config", &flag]);
    let part = format!(", metrics: {metrics}, warnings: 0\n");
    assert!(output.stdout.ends_with(&part), "{part}: {}", output.stdout);
}

/// Alerts and dashboards use only metrics of their pack, and each name pattern matches some.
#[test]
fn alerts_and_dashboards_use_metrics_of_the_pack() {
    let name = regex::Regex::new(r"\b(gotk|gatewayapi|kube)_[a-z_]+").expect("pattern");
    let pattern = regex::Regex::new(r#"__name__=~\\"([^"\\]+)\\""#).expect("pattern");
    for pack in Pack::all() {
        let families = pack.families();
        for file in ["alerts.yaml", "dashboard.json"] {
            let text = pack.text(file);
            let mut used = 0;
            for found in pattern.captures_iter(&text) {
                let wanted = regex::Regex::new(&format!("^(?:{})$", &found[1])).expect("pattern");
                let any = families.iter().any(|family| wanted.is_match(family));
                assert!(any, "{}/{file}: {wanted} matches nothing", pack.0);
                used += 1;
            }
            for found in name.find_iter(&pattern.replace_all(&text, "")) {
                let is_known = families.contains(found.as_str());
                assert!(is_known, "{}/{file}: there is no {}", pack.0, found.as_str());
                used += 1;
            }
            assert!(used >= 4, "{}/{file} uses {used} metrics", pack.0);
        }
    }
}

/// Each alert links to the section of the README with its name in lower case.
#[test]
fn alerts_are_explained() {
    for pack in Pack::all() {
        let (alerts, readme) = (pack.text("alerts.yaml"), pack.text("README.md"));
        let place = format!("/deploy/custom-resources/{}/README.md#", pack.0);
        let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
        let names: Vec<&str> = names.map(|name| name.trim_matches('"')).collect();
        assert!(names.len() >= 4, "{}: {names:?}", pack.0);
        for name in &names {
            assert!(readme.contains(&format!("\n### {name}\n")), "{}: {name}", pack.0);
            let url = format!("{place}{}\"\n", name.to_lowercase());
            assert_eq!(alerts.matches(&url).count(), 1, "{}: {url}", pack.0);
        }
        assert_eq!(readme.matches("\n### ").count(), names.len(), "{}", pack.0);
    }
}
