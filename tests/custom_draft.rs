//! `kstatd custom draft`, with the definitions of `tests/data/crds`.

mod common;
#[path = "common/repository.rs"]
mod repository;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use repository::{entries, read, root};

/// Returns the files with definitions.
fn definitions() -> Vec<PathBuf> {
    let folders = entries(&root().join("tests/data/crds"));
    let folders = folders.iter().filter(|path| path.is_dir());
    let definitions: Vec<PathBuf> = folders.flat_map(|folder| entries(folder)).collect();
    assert_eq!(definitions.len(), 34);
    definitions
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Returns the draft of these files.
fn draft(files: &[PathBuf]) -> String {
    let files = files.iter().map(|path| text(path));
    let output = common::run("kstatd", ["custom", "draft"].into_iter().chain(files));
    assert!(output.status.success(), "{}", output.stderr);
    assert_eq!(output.stderr, "");
    output.stdout
}

/// A value with every member that a schema allows.
fn filled(schema: &Value, depth: usize) -> Value {
    let word = |key: &str| schema[key].as_str().unwrap_or_default();
    if schema["x-kubernetes-int-or-string"] == true {
        return json!("1500m");
    }
    if depth > 8 {
        return Value::Null;
    }
    match (word("type"), word("format")) {
        ("object", _) => {
            let mut members = Map::new();
            for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                members.insert(name.clone(), filled(member, depth + 1));
            }
            if schema["additionalProperties"].is_object() {
                for key in ["cpu", "memory"] {
                    let member = filled(&schema["additionalProperties"], depth + 1);
                    members.insert(key.to_owned(), member);
                }
            }
            // Argo Rollouts reports it as a text.
            if members.get("observedGeneration").is_some_and(Value::is_string) {
                members.insert("observedGeneration".to_owned(), json!("7"));
            }
            // Not every definition lists the states of a condition.
            if members.contains_key("type") && members.contains_key("status") {
                members.insert("status".to_owned(), json!("True"));
            }
            Value::Object(members)
        }
        ("array", _) => json!([filled(&schema["items"], depth + 1)]),
        ("integer" | "number", _) => json!(7),
        ("boolean", _) => json!(true),
        ("string", "date-time") => json!("2026-11-20T09:00:00Z"),
        ("string", _) => schema["enum"].as_array().map_or(json!("text"), |states| {
            states.iter().find(|state| *state != "").cloned().unwrap_or_default()
        }),
        _ => Value::Null,
    }
}

/// Returns an object that fills the schema of the stored version.
fn object(definition: &Value) -> Value {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array().expect("versions");
    let stored = versions.iter().find(|version| version["storage"] == true).expect("stored");
    let mut object = filled(&stored["schema"]["openAPIV3Schema"], 0);
    let group = spec["group"].as_str().expect("group");
    let version = stored["name"].as_str().expect("name");
    object["apiVersion"] = format!("{group}/{version}").into();
    object["kind"] = spec["names"]["kind"].clone();
    object["metadata"] = json!({
        "name": "one", "namespace": "some", "uid": "u", "generation": 3, "creationTimestamp": "2026-11-20T09:00:00Z",
    });
    object
}

/// The draft of each definition has no problem, also not against the definition; and an object that fills the schema has series
/// of every metric.
#[test]
fn every_definition_drafts_a_configuration_that_works() {
    let folder = tempfile::tempdir().expect("folder");
    let (config, sample) = (folder.path().join("config.yaml"), folder.path().join("sample.json"));
    let config_flag = format!("--custom-resource-state-config-file={}", config.display());
    let mut wrong = Vec::new();
    for path in definitions() {
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        let drafted = draft(std::slice::from_ref(&path));
        std::fs::write(&config, &drafted).expect("write");
        let check = common::run("kstatd", ["check-config", &config_flag, "-f", text(&path)]);
        if check.stdout.lines().count() != 1 || !check.stdout.ends_with(", warnings: 0\n") {
            wrong.push(format!("{name}: {}", check.stdout));
        }
        let definition: Value = serde_json::from_str(&read(&path)).expect("JSON");
        std::fs::write(&sample, object(&definition).to_string()).expect("write");
        let args =
            ["render", "kube", "--custom-resource-state-only", &config_flag, "-f", text(&path)];
        let rendered = common::run("kstatd", args.into_iter().chain(["-f", text(&sample)]));
        if !rendered.status.success() || !rendered.stderr.is_empty() {
            wrong.push(format!("{name}: {}", rendered.stderr));
        }
        let families = drafted.lines().filter_map(|line| line.trim().strip_prefix("- name: "));
        let families: Vec<&str> = families.collect();
        assert!(families.len() >= 2, "{name}: {families:?}");
        let shown: BTreeSet<&str> = rendered
            .stdout
            .lines()
            .filter_map(|line| line.strip_prefix("kube_customresource_")?.split('{').next())
            .collect();
        let missing: Vec<_> = families.iter().filter(|family| !shown.contains(*family)).collect();
        if !missing.is_empty() {
            wrong.push(format!("{name}: no series of {missing:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The drafts of some definitions, as recorded. `DRAFTS_UPDATE=1` records them anew.
#[test]
fn drafts_are_as_recorded() {
    let is_update = std::env::var_os("DRAFTS_UPDATE").is_some_and(|value| !value.is_empty());
    for (name, files) in [
        ("certificate", vec!["cert-manager/certificates.cert-manager.io.json"]),
        ("nodepool", vec!["karpenter/nodepools.karpenter.sh.json"]),
        ("rollout", vec!["argo-rollouts/rollouts.argoproj.io.json"]),
        (
            "gateway",
            vec![
                "gateway-api/gateways.gateway.networking.k8s.io.json",
                "gateway-api/httproutes.gateway.networking.k8s.io.json",
            ],
        ),
    ] {
        let recorded = root().join("tests/data/drafts").join(format!("{name}.yaml"));
        let files: Vec<PathBuf> =
            files.into_iter().map(|file| root().join("tests/data/crds").join(file)).collect();
        let drafted = draft(&files);
        if is_update {
            std::fs::create_dir_all(recorded.parent().expect("folder")).expect("folder");
            std::fs::write(&recorded, &drafted).expect("write");
        }
        assert_eq!(drafted, read(&recorded), "{name}");
    }
}

/// The draft of all definitions in one stream on standard input is that of the files, and one configuration without problems.
#[test]
fn several_definitions_make_one_configuration() {
    let folder = tempfile::tempdir().expect("folder");
    let (all, config) = (folder.path().join("all.yaml"), folder.path().join("config.yaml"));
    let documents: Vec<String> = definitions().iter().map(|path| read(path)).collect();
    std::fs::write(&all, documents.join("\n---\n")).expect("write");
    let drafted = draft(&definitions());
    assert_eq!(draft(std::slice::from_ref(&all)), drafted);
    let output =
        common::run_with_input("kstatd", ["custom", "draft"], documents.join("\n---\n").as_bytes());
    assert_eq!(output.stdout, drafted);
    assert_eq!(drafted.matches("\n  - groupVersionKind: ").count(), 34);
    std::fs::write(&config, drafted).expect("write");
    let flag = format!("--custom-resource-state-config-file={}", config.display());
    let check = common::run("kstatd", ["check-config", &flag, "-f", text(&all)]);
    assert!(check.stdout.lines().count() == 1, "{}", check.stdout);
}

#[test]
fn errors_name_file_and_document() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("f.yaml");
    let definition = read(&root().join("tests/data/crds/karpenter/nodepools.karpenter.sh.json"));
    let file = text(&path);
    for (content, want) in [
        (
            format!("{definition}\n---\napiVersion: apps/v1\nkind: Deployment\n"),
            format!("{file}, document 2: Deployment of apps/v1 is not a CustomResourceDefinition"),
        ),
        ("a: [\n".to_owned(), format!("{file}, document 1: ")),
        (String::new(), "the input has no CustomResourceDefinition".to_owned()),
        (" ".repeat((64 << 20) + 1), format!("{file}: larger than 67108864 bytes")),
    ] {
        std::fs::write(&path, content).expect("write");
        let output = common::run("kstatd", ["custom", "draft", file]);
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), ""), "{want}");
        assert!(output.stderr.contains(&want), "{want:?} in {}", output.stderr);
    }
    let output = common::run("kstatd", ["custom", "draft", "/none"]);
    assert!(output.stderr.contains("/none: No such file"), "{}", output.stderr);
}
