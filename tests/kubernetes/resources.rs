//! Every recorded object of kube-state-metrics through kstatd's renderers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use kstatd::cache::{Catalog, Rendered, Store};
use kstatd::exposition::{Format, ScrapeQuery, Source};
use kstatd::resources::select::filter::FamilyFilter;
use kstatd::resources::select::selection::Selection;
use kstatd::resources::{ObjectBytes, RenderOptions, Representation, find, registry};

/// The expected lines of every case, compared as sorted lists.
#[test]
fn recorded_objects_yield_the_recorded_series() {
    let mut failures: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut cases, mut skipped) = (0, BTreeSet::new());
    for_each_case(|resource, case| {
        cases += 1;
        if find(resource).is_none() {
            skipped.insert(resource.to_owned());
        } else if let Err(why) = check(resource, case) {
            failures.entry(resource.to_owned()).or_default().push(format!("{resource} {why}"));
        }
    });
    let total: usize = failures.values().map(Vec::len).sum();
    let shown: Vec<_> = failures.values().flatten().take(8).cloned().collect();
    assert!(total == 0, "{total} of {cases} cases fail\n{}", shown.join("\n\n"));
    assert!(skipped.is_empty(), "no such resource: {skipped:?}");
}

fn for_each_case(mut run: impl FnMut(&str, &serde_json::Value)) {
    for folder in ["unit", "fuzz"] {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/ksm").join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let data = std::fs::read(entry.unwrap().path()).unwrap();
            let data: serde_json::Value = serde_json::from_slice(&data).unwrap();
            let resource = data["resource"].as_str().unwrap();
            data["cases"].as_array().unwrap().iter().for_each(|case| run(resource, case));
        }
    }
}

fn keys(case: &serde_json::Value, list: &str) -> Vec<String> {
    let keys = case[list].as_array().map(Vec::as_slice).unwrap_or_default();
    keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect()
}

/// Returns patterns of the families that the original does not have.
fn additions() -> Vec<String> {
    let list = include_str!("../conformance/additions.txt");
    list.lines().filter(|line| !line.starts_with('#')).map(|name| format!("^{name}$")).collect()
}

/// Returns the series of a case, in the order of the exposition.
fn lines(
    resource: &str,
    case: &serde_json::Value,
    keep_duplicates: bool,
) -> Result<Vec<String>, String> {
    let options = RenderOptions {
        labels: Selection::new(&keys(case, "labels_allowlist")),
        annotations: Selection::new(&keys(case, "annotations_allowlist")),
        families: Arc::new(FamilyFilter::new(&[], &additions(), &[".*".to_owned()]).unwrap()),
        keep_duplicates,
        ..RenderOptions::default()
    };
    let renderer = find(resource).unwrap().renderer(&options);
    let store = Arc::new(Store::new(renderer.schema()));
    let mut rendered = Rendered::default();
    let object = serde_json::to_vec(&case["object"]).unwrap();
    renderer
        .render(ObjectBytes::Json(&object), &mut rendered)
        .map_err(|error| error.to_string())?;
    store.apply(&rendered);
    let catalog = Catalog::new();
    catalog.register(renderer.schema(), vec![store]);
    let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
    let body: Vec<u8> = frames.flatten().collect();
    let body = String::from_utf8(body).map_err(|error| error.to_string())?;
    Ok(body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}

fn check(resource: &str, case: &serde_json::Value) -> Result<(), String> {
    let name = &case["name"];
    let mut got = lines(resource, case, true).map_err(|error| format!("{name}: {error}"))?;
    got.sort_unstable();
    let mut want: Vec<&str> =
        case["expected"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    want.sort_unstable();
    if got == want {
        return Ok(());
    }
    let missing: Vec<_> =
        want.iter().filter(|&&line| !got.iter().any(|own| own == line)).take(3).collect();
    let extra: Vec<_> = got.iter().filter(|line| !want.contains(&line.as_str())).take(3).collect();
    Err(format!("{name}: missing {missing:#?} extra {extra:#?}"))
}

/// An object may repeat an entry, such as a condition; the exposition must not.
#[test]
fn no_series_is_printed_twice() {
    let mut dropped = 0;
    for_each_case(|resource, case| {
        let all = lines(resource, case, true).unwrap();
        let kept = lines(resource, case, false).unwrap();
        let mut seen = BTreeSet::new();
        let first = |line: &&String| seen.insert(line.rsplit_once(' ').unwrap().0.to_owned());
        let want: Vec<_> = all.iter().filter(first).cloned().collect();
        dropped += all.len() - want.len();
        assert_eq!(want, kept, "{resource} {}", case["name"]);
    });
    assert!(dropped > 100, "only {dropped} repeated series in the recorded objects");
}

/// Returns the part of an object that `representation` contains.
fn part(object: &serde_json::Value, representation: Representation) -> serde_json::Value {
    let mut part = serde_json::Map::new();
    part.insert("metadata".to_owned(), object["metadata"].clone());
    if let Representation::Column(column) = representation {
        part.insert(column.member.to_owned(), object[column.member].clone());
    }
    part.into()
}

/// A family declared to need only a part of an object has the same series for that part, for every recorded object.
/// Conversely, each family for which that is true is declared so, if it has recorded series.
#[test]
fn families_declare_the_parts_that_they_need() {
    let (mut seen, mut differing) = (BTreeSet::new(), BTreeSet::new());
    let everything = Selection::new(&["*".to_owned()]);
    for_each_case(|resource, case| {
        let handle = find(resource).unwrap();
        let render = |pattern: &str, object: &serde_json::Value| {
            let families = FamilyFilter::new(&[pattern.to_owned()], &[], &[".*".to_owned()]);
            let options = RenderOptions {
                labels: everything.clone(),
                annotations: everything.clone(),
                families: Arc::new(families.unwrap()),
                keep_duplicates: true,
                ..RenderOptions::default()
            };
            let renderer = handle.renderer(&options);
            let mut rendered = Rendered::default();
            let object = serde_json::to_vec(object).unwrap();
            renderer.render(ObjectBytes::Json(&object), &mut rendered).unwrap();
            (rendered.identity, rendered.lines, renderer.representation())
        };
        for family in handle.families() {
            let pattern = format!("^{}$", family.name);
            let (identity, lines, representation) = render(&pattern, &case["object"]);
            if !lines.is_empty() {
                seen.insert(family.name);
            }
            let (part_identity, part_lines, _) =
                render(&pattern, &part(&case["object"], representation));
            let differs = lines != part_lines || identity != part_identity;
            assert!(
                representation == Representation::Object || !differs,
                "{} needs more than {representation:?}: {}",
                family.name,
                case["name"]
            );
            let (own_identity, own_lines, _) =
                render(&pattern, &part(&case["object"], Representation::Metadata));
            if (own_identity, own_lines) != (identity, lines) {
                differing.insert(family.name);
            }
        }
    });
    for resource in registry() {
        for family in resource.families() {
            let whole =
                family.representation == Representation::Object && seen.contains(family.name);
            assert!(
                !whole || differing.contains(family.name),
                "{} needs metadata alone",
                family.name
            );
        }
    }
}
