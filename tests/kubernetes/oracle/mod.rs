//! The lean views compared with an oracle: complete objects, converted through the types of two other crates.
//!
//! An object is a JSON value, either recorded from kube-state-metrics or random. It reaches the renderer in four
//! ways: unchanged; through k8s-openapi, which verifies JSON names; encoded as protobuf with fields and map entries
//! in any order; and through k8s-pb, which verifies tags. All four must yield the same bytes.

mod messages;
mod random;
mod typed;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kstatd::cache::Rendered;
use kstatd::resources::select::filter::FamilyFilter;
use kstatd::resources::select::selection::Selection;
use kstatd::resources::{ObjectBytes, RenderOptions, Renderer, find, registry};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;

use messages::Schema;
use typed::Typed;

/// Creates a renderer with all families and all labels of a resource.
fn renderer(name: &str) -> Arc<dyn Renderer> {
    let all = Selection::new(&["*".to_owned()]);
    let options = RenderOptions {
        labels: all.clone(),
        annotations: all,
        families: Arc::new(FamilyFilter::new(&[], &[], &[".*".to_owned()]).unwrap()),
        keep_duplicates: true,
        ..RenderOptions::default()
    };
    find(name).unwrap().renderer(&options)
}

fn render(renderer: &dyn Renderer, object: ObjectBytes<'_>, way: &str) -> Rendered {
    let mut rendered = Rendered::default();
    renderer.render(object, &mut rendered).unwrap_or_else(|error| panic!("{way}: {error}"));
    rendered
}

fn assert_same(want: &Rendered, got: &Rendered, way: &str, object: &Value) {
    let place = || format!("{way} of {object:#}");
    assert_eq!(
        String::from_utf8_lossy(&want.uid),
        String::from_utf8_lossy(&got.uid),
        "{}",
        place()
    );
    assert_eq!(want.resource_version, got.resource_version, "{}", place());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(text(&want.identity), text(&got.identity), "{}", place());
    assert_eq!(text(&want.lines), text(&got.lines), "{}", place());
    assert_eq!(want.ends, got.ends, "{}", place());
}

/// Renders one object in all four ways.
fn check(
    typed: &Typed,
    schema: &Schema,
    renderer: &dyn Renderer,
    object: &Value,
    rng: &mut StdRng,
) -> Rendered {
    let json = |value: &Value| serde_json::to_vec(value).unwrap();
    let plain = render(renderer, ObjectBytes::Json(&json(object)), "JSON");

    let mut untyped = object.clone();
    for name in ["apiVersion", "kind"] {
        untyped.as_object_mut().unwrap().remove(name);
    }
    let other = (typed.json)(untyped).unwrap_or_else(|error| panic!("{error}: {object:#}"));
    let other = render(renderer, ObjectBytes::Json(&json(&other)), "k8s-openapi");
    assert_same(&plain, &other, "k8s-openapi", object);

    let sorted = schema.encode(&typed.message, object, &mut |_| {});
    let typed_bytes = (typed.protobuf)(&sorted).unwrap();
    assert_eq!(sorted, typed_bytes, "k8s-pb knows other fields than messages.txt: {object:#}");
    let protobuf = render(renderer, ObjectBytes::Protobuf(&typed_bytes), "k8s-pb");
    assert_same(&plain, &protobuf, "k8s-pb", object);

    let shuffled =
        schema.encode(&typed.message, object, &mut |fields| random::shuffle(fields, rng));
    let shuffled = render(renderer, ObjectBytes::Protobuf(&shuffled), "shuffled protobuf");
    assert_same(&plain, &shuffled, "shuffled protobuf", object);
    plain
}

#[test]
fn every_resource_has_an_oracle() {
    let names: Vec<_> = registry().iter().map(|resource| resource.name()).collect();
    let typed: Vec<_> = typed::all().iter().map(|typed| typed.name).collect();
    assert_eq!(names, typed, "the registry, and tests/kubernetes/oracle/typed.rs");
}

#[test]
fn random_objects_render_identically_from_every_encoding() {
    let schema = Schema::read();
    for typed in typed::all() {
        let renderer = renderer(typed.name);
        let families = renderer.schema();
        let mut lines = vec![0usize; families.families.len()];
        for seed in 0..300 {
            let mut rng = StdRng::seed_from_u64(seed);
            let object = random::object(&schema, &typed.message, &mut rng);
            let rendered = check(&typed, &schema, &*renderer, &object, &mut rng);
            for (family, lines) in lines.iter_mut().enumerate() {
                *lines += rendered.family(family).iter().filter(|byte| **byte == b'\n').count();
            }
        }
        // A family without any random series would not have been compared.
        let never: Vec<_> =
            families.families.iter().zip(&lines).filter(|(_, lines)| **lines == 0).collect();
        assert!(never.is_empty(), "{}: never rendered: {never:?}", typed.name);
    }
}

#[test]
fn recorded_objects_render_identically_from_every_encoding() {
    let schema = Schema::read();
    let all: BTreeMap<_, _> = typed::all().into_iter().map(|typed| (typed.name, typed)).collect();
    let mut cases = 0;
    for folder in ["unit", "fuzz"] {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/ksm").join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let data = std::fs::read(entry.unwrap().path()).unwrap();
            let data: Value = serde_json::from_slice(&data).unwrap();
            let typed = &all[data["resource"].as_str().unwrap()];
            let renderer = renderer(typed.name);
            for case in data["cases"].as_array().unwrap() {
                cases += 1;
                let mut rng = StdRng::seed_from_u64(cases);
                check(typed, &schema, &*renderer, &case["object"], &mut rng);
            }
        }
    }
    assert!(cases > 1000, "only {cases} recorded objects");
}

/// Corrupted bytes yield an error or complete lines.
#[test]
fn corrupted_objects_yield_an_error_or_complete_lines() {
    let schema = Schema::read();
    let (mut refused, mut taken) = (0, 0);
    for typed in typed::all() {
        let renderer = renderer(typed.name);
        for seed in 0..20 {
            let mut rng = StdRng::seed_from_u64(seed);
            let object = random::object(&schema, &typed.message, &mut rng);
            let protobuf = schema.encode(&typed.message, &object, &mut |_| {});
            let json = serde_json::to_vec(&object).unwrap();
            for _ in 0..20 {
                for (bytes, is_json) in [(&protobuf, false), (&json, true)] {
                    let mut bytes = bytes.clone();
                    random::corrupt(&mut bytes, &mut rng);
                    let object = match is_json {
                        true => ObjectBytes::Json(&bytes),
                        false => ObjectBytes::Protobuf(&bytes),
                    };
                    let mut rendered = Rendered::default();
                    match renderer.render(object, &mut rendered) {
                        Ok(()) => {
                            taken += 1;
                            let families = renderer.schema().families.len();
                            assert_eq!(rendered.ends.len(), families);
                            let lines = std::str::from_utf8(&rendered.lines).unwrap();
                            for line in lines.split_inclusive('\n') {
                                let (_, value) = line.rsplit_once("} ").unwrap();
                                assert!(value.ends_with('\n'), "{line:?}");
                            }
                        }
                        Err(error) => {
                            refused += 1;
                            assert!(!error.to_string().is_empty());
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 1000 && taken > 1000, "{refused} refused, {taken} taken");
}
