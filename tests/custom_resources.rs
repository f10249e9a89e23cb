//! Every recorded custom resource configuration, with the objects that it was recorded with.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use kstatd::cache::{Catalog, Rendered, Store};
use kstatd::exposition::message::{Delimited, frames};
use kstatd::exposition::{Format, ScrapeQuery, Source};
use kstatd::resources::ObjectBytes;
use kstatd::resources::custom::resolve::ResolveOptions;
use kstatd::resources::custom::{Definition, Resolution, ValueError, ValueErrors, load, resolve};
use proptest::prelude::*;
use serde_json::Value;

#[derive(Default)]
struct Errors(Mutex<Vec<String>>);

impl ValueErrors for Errors {
    fn value_error(&self, error: &ValueError<'_>) {
        self.0.lock().unwrap().push(format!("{error:?}"));
    }
}

/// Returns the versions served by the definitions of a case.
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
                    list_kind: String::new(),
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

/// Returns the body of all objects, and the names of families in order.
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
    let options =
        ResolveOptions { families: Arc::default(), keep_duplicates: true, errors: errors.clone() };
    let resolution = match resolve(&loaded.config, &served(case), &options) {
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
fn recorded_configurations_yield_the_recorded_series() {
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

/// Both entries for a kind apply, and nothing is printed twice, except in compatibility mode.
#[test]
fn two_entries_for_a_kind_both_apply() {
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
        list_kind: String::new(),
        plural: "ws".into(),
        namespaced: true,
    }];
    let object =
        serde_json::json!({"apiVersion": "e.io/v1", "kind": "W", "spec": {"m": {"x": 1, "y": 2}}});
    for (keep_duplicates, want) in
        [(false, vec![("a", 1), ("b", 1), ("c", 1)]), (true, vec![("b", 2), ("c", 2)])]
    {
        let resolution = resolve(&loaded.config, &served, &options(keep_duplicates)).unwrap();
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
        assert_eq!(counts, want, "{keep_duplicates}");
    }
}

fn options(keep_duplicates: bool) -> ResolveOptions {
    let (families, errors) = (Arc::default(), Arc::new(Errors::default()));
    ResolveOptions { families, keep_duplicates, errors }
}

/// Returns a metric of any type with arbitrary names and texts.
fn any_metric() -> impl Strategy<Value = Value> {
    let name = || prop_oneof!["[ab]", "[ab]_info", "[ab][-. é\"\\\\\n]_?[0-9]?", "\\PC{0,6}"];
    let path = prop_oneof![
        Just(serde_json::json!(["spec", "n"])),
        Just(serde_json::json!(["spec", "m"])),
        Just(serde_json::json!(["spec", "list"])),
        Just(serde_json::json!(["spec", "text"])),
    ];
    let kind = prop_oneof![Just("Gauge"), Just("Info"), Just("StateSet"), Just("Count")];
    (name(), name(), name(), "\\PC{0,3}[\"\\\\\n\r]?\\PC{0,3}", path, kind).prop_map(
        |(name, label, other, help, path, kind)| {
            let labels = serde_json::json!({
                "l": ["metadata", "name"], "e": [], "*": ["metadata", "labels"],
                "2*": ["metadata", "labels"], "3scale": ["metadata", "name"],
            });
            let mut block = serde_json::json!({"path": path, "labelsFromPath": labels});
            if kind == "StateSet" {
                block["list"] = serde_json::json!(["x", help.clone()]);
                block["labelName"] = other.into();
            } else {
                block["labelFromKey"] = other.into();
            }
            let key = kind[..1].to_lowercase() + &kind[1..];
            serde_json::json!({
                "name": name, "help": help, "commonLabels": {label: "v\n\"\\\\"},
                "each": {"type": kind, key: block}
            })
        },
    )
}

/// Returns an arbitrary key of a map that the API server accepts.
fn any_key() -> impl Strategy<Value = String> {
    prop_oneof!["[0-9]scale[.]net/tier", "(__name__)?", "[a-z0-9_./-]{1,4}", "\\PC{0,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// In `kstatd run` every file yields valid OpenMetrics.
    #[test]
    fn arbitrary_configurations_yield_valid_openmetrics(
        metrics in prop::collection::vec(any_metric(), 1..6),
        others in prop::collection::vec(any_metric(), 0..3),
        prefix in prop_oneof![Just(None), Just(Some(String::new())), "\\PC{0,3}".prop_map(Some)],
        labels in prop::collection::btree_map(any_key(), "\\PC{0,3}", 0..4),
    ) {
        let entry = serde_json::json!({
            "groupVersionKind": {"group": "e.io", "version": "v1", "kind": "W"},
            "metricNamePrefix": prefix, "metrics": metrics,
        });
        // Another kind has some of the same metrics.
        let again = metrics.iter().skip(1).rev().chain(&others).collect::<Vec<_>>();
        let other = serde_json::json!({
            "groupVersionKind": {"group": "e.io", "version": "v1", "kind": "V"},
            "metricNamePrefix": prefix, "metrics": again,
        });
        let resources = if again.is_empty() { vec![entry] } else { vec![entry, other] };
        let loaded = load(&serde_json::json!({"spec": {"resources": resources}}).to_string());
        // YAML allows fewer characters than JSON.
        prop_assume!(loaded.errors().next().is_none());
        let config = loaded.config.with_valid_names();
        let served = [widget(), Definition { kind: "V".into(), plural: "vs".into(), ..widget() }];
        let resolution = match resolve(&config, &served, &options(false)) {
            Ok(resolution) => resolution,
            Err(error) => {
                prop_assert!(error.to_string().contains("a Count needs a name"), "{error}");
                return Ok(());
            }
        };
        let catalog = Catalog::strict_openmetrics();
        let object = serde_json::json!({
            "metadata": {"name": "o", "uid": "u", "labels": labels},
            "spec": {"n": 7, "m": {"a": 1, "b": 2}, "list": ["x", 3, null], "text": "x"},
        });
        for resolved in &resolution.resources {
            let schema = resolved.renderer.schema();
            let store = Arc::new(Store::new(Arc::clone(&schema)));
            let mut rendered = Rendered::default();
            let bytes = serde_json::to_vec(&object).unwrap();
            resolved.renderer.render(ObjectBytes::Json(&bytes), &mut rendered).unwrap();
            store.apply(&rendered);
            catalog.register(schema, vec![store]);
        }
        let query = ScrapeQuery::default();
        let text: Vec<u8> = catalog.frames(Format::Text, &query).flatten().collect();
        let typed = catalog.typed(&query).into_iter().collect();
        let protobuf: Vec<u8> = frames(typed, Delimited::default()).flatten().collect();
        prop_assert_eq!(
            support::exposition::text_samples(str::from_utf8(&text).unwrap()),
            Ok(support::exposition::any_protobuf_samples(&protobuf))
        );
        let frames = catalog.frames(Format::OpenMetrics, &query);
        let body = String::from_utf8(frames.flatten().collect()).unwrap();
        // A family without series has only its header.
        let lines: Vec<&str> = body.lines().collect();
        let has_series = |at: usize| lines.get(at).is_some_and(|line| !line.starts_with('#'));
        let is_empty = |at: usize| match lines[at].split(' ').nth(1) {
            Some("HELP") => !has_series(at + 2),
            _ => lines[at].starts_with("# TYPE") && !has_series(at + 1),
        };
        let kept = (0..lines.len()).filter(|at| !is_empty(*at));
        let body: String = kept.map(|at| format!("{}\n", lines[at])).collect();
        let valid = support::exposition::check_open_metrics(&body);
        prop_assert!(valid.is_ok(), "{valid:?} in\n{body}");
    }
}

fn widget() -> Definition {
    Definition {
        group: "e.io".into(),
        version: "v1".into(),
        kind: "W".into(),
        list_kind: String::new(),
        plural: "ws".into(),
        namespaced: true,
    }
}

/// A number generator (Knuth's MMIX), so that every run uses the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Words with a meaning in such files, and some without.
const WORDS: [&str; 36] = [
    "null",
    "~",
    "true",
    "no",
    "5",
    "-1",
    "1e3",
    "0x10",
    "\"\"",
    "''",
    "[]",
    "{}",
    "[a]",
    "{a: b}",
    "*",
    "\"*\"",
    "gauge",
    "Info",
    "stateset",
    "Count",
    "path",
    "labelsFromPath",
    "valueFrom",
    "labelFromKey",
    "list",
    "\"[a=b]\"",
    "\"[\"",
    "[[a]]",
    "&x",
    "*x",
    "<<",
    "!!binary x",
    "!!str 5",
    "spec",
    "metrics",
    "\u{e9}",
];

/// Returns the text with a few words or marks replaced, removed or repeated.
fn mutated(text: &str, random: &mut Random) -> String {
    let mut text = text.to_owned();
    for _ in 0..=random.below(3) {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut words: Vec<(usize, usize)> = Vec::new();
        for (at, c) in text.char_indices() {
            match words.last_mut() {
                Some((_, end)) if is_word(c) && *end == at => *end += c.len_utf8(),
                _ => words.push((at, at + c.len_utf8())),
            }
        }
        let Some(&(start, end)) = words.get(random.below(words.len())) else { break };
        match random.below(5) {
            0 => text.replace_range(start..end, ""),
            1 => text.replace_range(start..end, &text[start..end].repeat(2)),
            2 => {
                let (from, to) = words[random.below(words.len())];
                let other = text[from..to].to_owned();
                text.replace_range(start..end, &other);
            }
            _ => text.replace_range(start..end, WORDS[random.below(WORDS.len())]),
        }
    }
    text
}

/// 10,000 corrupted configurations: an error with its position, or series; never a panic.
#[test]
fn corrupted_configurations_are_errors_or_series() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/ksm/crs");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|one| one.unwrap().path()).collect();
    files.sort();
    let mut cases: Vec<Value> = Vec::new();
    for file in files {
        let data: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        cases.extend(data["cases"].as_array().unwrap().iter().cloned());
    }
    let mut random = Random(11);
    let mut outcomes = BTreeMap::from([("refused", 0), ("not compiled", 0), ("series", 0)]);
    for round in 0..10_000 {
        let case = &cases[round % cases.len()];
        let text = mutated(case["config"].as_str().unwrap(), &mut random);
        let loaded = load(&text);
        let mut count = |what| *outcomes.get_mut(what).unwrap() += 1;
        for problem in loaded.problems.iter().chain(&loaded.config.problems()) {
            assert!(problem.line > 0 && !problem.message.is_empty(), "{problem:?} of {text}");
        }
        if loaded.errors().next().is_some() {
            count("refused");
            continue;
        }
        let objects = case["objects"].as_array().cloned().unwrap_or_default();
        for keep_duplicates in [true, false] {
            match resolve(&loaded.config, &served(case), &options(keep_duplicates)) {
                Ok(resolution) => {
                    let (lines, families) = expose(&resolution, &objects);
                    let known = |line: &String| {
                        families.iter().any(|[_, name, _]| line.starts_with(name.as_str()))
                    };
                    assert!(lines.iter().all(known), "{lines:?} of {text}");
                    count("series");
                }
                Err(error) => {
                    assert!(error.line > 0 && !error.reason.is_empty(), "{error:?} of {text}");
                    count("not compiled");
                }
            }
        }
    }
    assert!(outcomes.values().all(|count| *count > 100), "{outcomes:?}");
}
