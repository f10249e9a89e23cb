//! Every recorded object of kube-state-metrics through our renderers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kstatd::cache::{Catalog, Rendered, Store};
use kstatd::exposition::{Format, ScrapeQuery, Source};
use kstatd::resources::filter::FamilyFilter;
use kstatd::resources::selection::Selection;
use kstatd::resources::{ObjectBytes, RenderOptions, find};

/// The expected lines of every case, compared as sorted lists.
#[test]
fn recorded_objects_give_the_recorded_series() {
    let mut failures: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut cases, mut skipped) = (0, Vec::new());
    for folder in ["unit", "fuzz"] {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/ksm").join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let data: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let name = data["resource"].as_str().unwrap();
            if find(name).is_none() {
                skipped.push(name.to_owned());
                continue;
            }
            for case in data["cases"].as_array().unwrap() {
                cases += 1;
                if let Err(why) = check(name, case) {
                    failures.entry(name.to_owned()).or_default().push(why);
                }
            }
        }
    }
    let total: usize = failures.values().map(Vec::len).sum();
    let shown: Vec<_> = failures.values().flatten().take(8).cloned().collect();
    assert!(total == 0, "{total} of {cases} cases fail\n{}", shown.join("\n\n"));
    assert!(skipped.is_empty(), "no such resource: {skipped:?}");
}

fn keys(case: &serde_json::Value, list: &str) -> Vec<String> {
    let keys = case[list].as_array().map(Vec::as_slice).unwrap_or_default();
    keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect()
}

fn check(resource: &str, case: &serde_json::Value) -> Result<(), String> {
    let options = RenderOptions {
        labels: Selection::new(&keys(case, "labels_allowlist")),
        annotations: Selection::new(&keys(case, "annotations_allowlist")),
        families: Arc::new(FamilyFilter::new(&[], &[], &[".*".to_owned()]).unwrap()),
        keep_duplicates: true,
    };
    let renderer = find(resource).unwrap().renderer(&options);
    let store = Arc::new(Store::new(renderer.schema()));
    let mut rendered = Rendered::default();
    let object = serde_json::to_vec(&case["object"]).unwrap();
    let name = &case["name"];
    renderer
        .render(ObjectBytes::Json(&object), &mut rendered)
        .map_err(|error| format!("{name}: {error}"))?;
    store.apply(&rendered);
    let catalog = Catalog::new();
    catalog.register(renderer.schema(), vec![store]);
    let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
    let body: Vec<u8> = frames.flatten().collect();
    let body = String::from_utf8(body).map_err(|error| format!("{name}: {error}"))?;
    let mut got: Vec<&str> = body.lines().filter(|line| !line.starts_with('#')).collect();
    got.sort_unstable();
    let mut want: Vec<&str> =
        case["expected"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    want.sort_unstable();
    if got == want {
        return Ok(());
    }
    let missing: Vec<_> = want.iter().filter(|line| !got.contains(line)).take(3).collect();
    let extra: Vec<_> = got.iter().filter(|line| !want.contains(line)).take(3).collect();
    Err(format!("{name}: missing {missing:#?} extra {extra:#?}"))
}
