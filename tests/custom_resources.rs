//! Every recorded configuration of custom resource metrics, with the objects that it was recorded with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use kstatd::cache::{Catalog, Rendered, Store};
use kstatd::exposition::{Format, ScrapeQuery, Source};
use kstatd::resources::ObjectBytes;
use kstatd::resources::custom::resolve::Manner;
use kstatd::resources::custom::{
    Definition, Resolution, Twice, ValueError, ValueErrors, load, resolve,
};
use serde_json::Value;

#[derive(Default)]
struct Errors(Mutex<Vec<String>>);

impl ValueErrors for Errors {
    fn value_error(&self, error: &ValueError<'_>) {
        self.0.lock().unwrap().push(format!("{error:?}"));
    }
}

/// The versions that the definitions of a case serve.
fn served(case: &Value) -> Vec<Definition> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut served = Vec::new();
    for crd in list(&case["crds"]) {
        for version in list(&crd["versions"]) {
            if version["served"] != false {
                served.push(Definition {
                    group: text(&crd["group"]),
                    version: text(&version["name"]),
                    kind: text(&crd["kind"]),
                    plural: text(&crd["plural"]),
                    namespaced: true,
                });
            }
        }
    }
    served
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// The body of all objects, and the names of families in order.
fn expose(resolution: &Resolution, objects: &[Value]) -> (Vec<String>, Vec<[String; 3]>) {
    let catalog = Catalog::new();
    let mut families = Vec::new();
    for resolved in &resolution.resources {
        let schema = resolved.renderer.schema();
        for family in &schema.families {
            let kind = family.kind.text(Format::OpenMetrics).to_owned();
            families.push([schema.resource.clone(), family.name.clone(), kind]);
        }
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        let mut rendered = Rendered::default();
        let definition = &resolved.definition;
        let api_version = format!("{}/{}", definition.group, definition.version);
        for (number, object) in objects.iter().enumerate() {
            if object["apiVersion"] != *api_version || object["kind"] != *definition.kind {
                continue;
            }
            let bytes = serde_json::to_vec(object).unwrap();
            resolved.renderer.render(ObjectBytes::Json(&bytes), &mut rendered).unwrap();
            if rendered.uid.is_empty() {
                rendered.uid = number.to_string().into_bytes();
            }
            store.apply(&rendered);
        }
        catalog.register(schema, vec![store]);
    }
    let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
    let body = String::from_utf8(frames.flatten().collect()).unwrap();
    (body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect(), families)
}

fn check(case: &Value) -> Result<(), String> {
    let loaded = load(case["config"].as_str().unwrap());
    let stage = case["error_stage"].as_str();
    let decode_error = loaded.errors().next().map(ToString::to_string);
    if decode_error.is_some() != (stage == Some("decode")) {
        return Err(format!("decode: {decode_error:?}, expected {stage:?}"));
    }
    if decode_error.is_some() {
        return Ok(());
    }
    let errors = Arc::new(Errors::default());
    let manner = Manner {
        families: Arc::default(),
        keep_duplicates: true,
        twice: Twice::Last,
        errors: errors.clone(),
    };
    let resolution = match resolve(&loaded.config, &served(case), &manner) {
        Ok(resolution) => resolution,
        Err(error) if stage == Some("compile") => {
            return if error.line > 0 { Ok(()) } else { Err(format!("without a place: {error}")) };
        }
        Err(error) => return Err(format!("compile: {error}")),
    };
    if stage.is_some() {
        return Err(format!("no error, expected {stage:?}"));
    }
    let objects = case["objects"].as_array().cloned().unwrap_or_default();
    let (mut got, families) = expose(&resolution, &objects);
    got.sort_unstable();
    let mut want = strings(&case["expected"]);
    want.sort_unstable();
    if got != want {
        return Err(format!("series {got:#?}, expected {want:#?}"));
    }
    let names: Vec<String> =
        resolution.resources.iter().map(|resolved| resolved.definition.resource_name()).collect();
    if names != strings(&case["resources"]) {
        return Err(format!("resources {names:?}, expected {}", case["resources"]));
    }
    let wanted: Vec<[String; 3]> = case["families"]
        .as_array()
        .cloned()
        .unwrap_or_default()
        .iter()
        .map(|family| {
            ["resource", "name", "type"].map(|key| family[key].as_str().unwrap().to_owned())
        })
        .collect();
    if families != wanted {
        return Err(format!("families {families:?}, expected {wanted:?}"));
    }
    if resolution.replaced != strings(&case["replaced_resources"]) {
        return Err(format!("replaced {:?}", resolution.replaced));
    }
    let errors = errors.0.lock().unwrap();
    if errors.is_empty() != strings(&case["value_errors"]).is_empty() {
        return Err(format!("value errors {errors:?}, expected {}", case["value_errors"]));
    }
    Ok(())
}

#[test]
fn recorded_configurations_give_the_recorded_series() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/ksm/crs");
    let (mut total, mut failures) = (BTreeMap::new(), Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let data = std::fs::read(entry.unwrap().path()).unwrap();
        let data: Value = serde_json::from_slice(&data).unwrap();
        let topic = data["resource"].as_str().unwrap();
        for case in data["cases"].as_array().unwrap() {
            *total.entry(topic.to_owned()).or_insert(0) += 1;
            if let Err(why) = check(case) {
                failures.push(format!("{topic} {}: {why}", case["name"]));
            }
        }
    }
    let cases: i32 = total.values().sum();
    let passed = cases - failures.len() as i32;
    println!("{passed}/{cases} recorded cases: {total:?}");
    assert!(cases >= 184, "{total:?}");
    assert!(failures.is_empty(), "{passed}/{cases} pass\n{}", failures.join("\n"));
}

/// Both entries for a kind count, and nothing is printed twice, unless the original is to be imitated.
#[test]
fn two_entries_for_a_kind_both_count() {
    let entry = |names: [&str; 2]| {
        let metric = |name: &str| {
            format!("{{name: {name}, each: {{type: gauge, gauge: {{path: [spec, m]}}}}}}")
        };
        format!(
            "{{groupVersionKind: {{group: e.io, version: '', kind: W}}, metrics: [{}]}}",
            names.map(metric).join(", ")
        )
    };
    let text = format!("spec: {{resources: [{}, {}]}}", entry(["a", "b"]), entry(["b", "c"]));
    let loaded = load(&text);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let served = [Definition {
        group: "e.io".into(),
        version: "v1".into(),
        kind: "W".into(),
        plural: "ws".into(),
        namespaced: true,
    }];
    let object =
        serde_json::json!({"apiVersion": "e.io/v1", "kind": "W", "spec": {"m": {"x": 1, "y": 2}}});
    for (twice, keep_duplicates, want) in [
        (Twice::Both, false, vec![("a", 1), ("b", 1), ("c", 1)]),
        (Twice::Last, true, vec![("b", 2), ("c", 2)]),
    ] {
        let manner = Manner {
            families: Arc::default(),
            keep_duplicates,
            twice,
            errors: Arc::new(Errors::default()),
        };
        let resolution = resolve(&loaded.config, &served, &manner).unwrap();
        let (lines, _) = expose(&resolution, std::slice::from_ref(&object));
        let names: BTreeSet<&str> =
            lines.iter().map(|line| &line[.."kube_customresource_x".len()]).collect();
        let counts: Vec<(&str, usize)> = names
            .iter()
            .map(|name| {
                let count = lines.iter().filter(|line| line.starts_with(*name)).count();
                (&name[name.len() - 1..], count)
            })
            .collect();
        assert_eq!(counts, want, "{twice:?}");
    }
}
