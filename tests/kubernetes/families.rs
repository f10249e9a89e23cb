//! The tables of families compared with those of kube-state-metrics.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kstatd::exposition::Format;
use kstatd::resources::{FamilyInfo, Stability, find, registry};
use serde_json::Value;

fn recorded(path: &str) -> Value {
    let path = conformance().join(path);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the families that the original does not have.
fn additions() -> Vec<&'static str> {
    let list = include_str!("../conformance/additions.txt");
    list.lines().filter(|line| !line.starts_with('#')).collect()
}

fn conformance() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/ksm")
}

/// Families some of whose series have other labels than those of the table, and these labels.
const OTHER_LABELS: [(&str, &[&str]); 3] = [
    ("kube_horizontalpodautoscaler_info", &["scaletargetref_kind", "scaletargetref_name"]),
    (
        "kube_ingress_path",
        &["host", "path", "path_type", "resource_api_group", "resource_kind", "resource_name"],
    ),
    ("kube_job_status_failed", &[]),
];

/// Returns the labels of the series of a family whose labels are not those of its table.
pub fn other_labels(family: &str) -> Option<&'static [&'static str]> {
    OTHER_LABELS.iter().find(|(name, _)| *name == family).map(|(_, labels)| *labels)
}

/// Returns the possible label lists of a family, without labels from object keys, and the prefix of those.
fn label_sets(
    identity: &[&str],
    family: &FamilyInfo,
) -> (BTreeSet<Vec<String>>, Option<&'static str>) {
    let mut prefix = None;
    let mut sets = BTreeSet::new();
    for labels in [Some(family.labels), other_labels(family.name)].into_iter().flatten() {
        let mut set: Vec<String> = identity.iter().map(|&label| label.to_owned()).collect();
        for label in labels {
            match label.strip_suffix('*') {
                Some(start) => prefix = Some(start),
                None => set.push((*label).to_owned()),
            }
        }
        sets.insert(set);
    }
    (sets, prefix)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn tables_equal_the_originals() {
    let recorded = recorded("families.json");
    let recorded = recorded["families"].as_array().unwrap();
    let known: BTreeSet<_> =
        recorded.iter().map(|family| family["name"].as_str().unwrap()).collect();
    let mut compared = 0;
    for resource in registry() {
        let mut want = recorded.iter().filter(|family| family["resource"] == resource.name());
        let identity = &resource.identity_labels();
        let families = resource.families();
        let shared = families.iter().filter(|family| !additions().contains(&family.name));
        for (order, family) in shared.enumerate() {
            let name = family.name;
            assert!(
                known.contains(name),
                "kube-state-metrics has no {name}: if it is ours, tests/conformance/additions.txt names it"
            );
            let want = want.next().unwrap_or_else(|| panic!("{name} is of another resource there"));
            assert_eq!(want["name"], name);
            assert_eq!(want["order"], order, "{name}");
            assert_eq!(want["type"], family.kind.text(Format::OpenMetrics), "{name}");
            let stability = match family.stability {
                Stability::Stable => "STABLE",
                Stability::Alpha => "ALPHA",
            };
            assert_eq!(want["stability"], stability, "{name}");
            assert_eq!(want["opt_in"], family.opt_in, "{name}");
            assert_eq!(want["deprecated_in"].as_str(), family.deprecated, "{name}");
            let enabled = &want["resource_enabled_by_default"];
            assert_eq!(*enabled, resource.api().default_enabled, "{name}");
            let (sets, prefix) = label_sets(identity, family);
            let want_sets = match want.get("label_sets") {
                Some(sets) => sets.as_array().unwrap().iter().map(texts).collect(),
                None => BTreeSet::from([texts(&want["labels"])]),
            };
            assert_eq!(want_sets, sets, "{name}");
            assert_eq!(want.get("dynamic_label_prefix").and_then(Value::as_str), prefix, "{name}");
            compared += 1;
        }
        assert_eq!(want.next(), None);
    }
    assert_eq!(compared, recorded.len());
}

#[test]
fn additions_are_absent_in_the_original() {
    let recorded = recorded("families.json");
    let recorded = recorded["families"].as_array().unwrap();
    let theirs: BTreeSet<_> =
        recorded.iter().map(|family| family["name"].as_str().unwrap()).collect();
    let ours = registry().iter().flat_map(|resource| resource.families());
    let ours: BTreeSet<_> = ours.map(|family| family.name).collect();
    assert!(theirs.is_subset(&ours), "missing: {:?}", theirs.difference(&ours));
    let listed = BTreeSet::from_iter(additions());
    assert_eq!(ours.difference(&theirs).copied().collect::<BTreeSet<_>>(), listed);
}

#[test]
fn resources_are_in_exposition_order() {
    let names: Vec<_> = registry().iter().map(|resource| resource.name()).collect();
    assert!(names.is_sorted(), "{names:?}");
}

/// Returns the label names of a series line, in order.
fn label_names(line: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = line.split_once('{').unwrap().1;
    while let Some((name, value)) = rest.split_once("=\"") {
        names.push(name);
        let mut escaped = false;
        let end = value.find(|c| {
            let found = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            found
        });
        rest = &value[end.unwrap() + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    names
}

#[test]
fn recorded_series_have_the_labels_of_the_tables() {
    let mut lines = 0;
    for folder in ["unit", "fuzz"] {
        for entry in std::fs::read_dir(conformance().join(folder)).unwrap() {
            let data = recorded(entry.unwrap().path().to_str().unwrap());
            let resource = find(data["resource"].as_str().unwrap()).unwrap();
            let families = resource.families();
            let cases = data["cases"].as_array().unwrap();
            for line in cases.iter().flat_map(|case| texts(&case["expected"])) {
                let name = line.split('{').next().unwrap();
                let family = families.iter().find(|family| family.name == name).unwrap();
                let (sets, prefix) = label_sets(&resource.identity_labels(), family);
                let labels: Vec<_> = label_names(&line)
                    .into_iter()
                    .filter(|label| prefix.is_none_or(|prefix| !label.starts_with(prefix)))
                    .map(str::to_owned)
                    .collect();
                assert!(sets.contains(&labels), "{line} is not of {sets:?}");
                lines += 1;
            }
        }
    }
    assert!(lines > 10_000, "only {lines} series");
}

#[test]
fn help_texts_are_sentences() {
    for family in registry().iter().flat_map(|resource| resource.families()) {
        let (name, help) = (family.name, family.help());
        assert!(help.ends_with('.') && !help.contains(".."), "{name}: {help:?}");
        assert!(help.starts_with(|c: char| c.is_ascii_uppercase() || c == '1'), "{name}: {help:?}");
        assert!(
            help.len() >= 15 && !help.contains('\n') && !help.contains('|'),
            "{name}: {help:?}"
        );
    }
}
