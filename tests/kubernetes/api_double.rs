//! Compares the API double with kstatd: API locations of resources, and contents of objects.

use kstatd::cache::Rendered;
use kstatd::resources::{ObjectBytes, RenderOptions, registry};
use kstatd_double::{APIS, Options, objects};

#[test]
fn double_and_kstatd_agree_on_api_locations() {
    let theirs: Vec<_> = APIS
        .iter()
        .map(|api| (api.name, api.group, api.version, api.kind, api.namespaced))
        .collect();
    let ours: Vec<_> = registry()
        .iter()
        .map(|resource| resource.api())
        .map(|api| (api.name, api.group, api.version, api.kind, api.namespaced))
        .collect();
    assert_eq!(theirs, ours, "tests/double/src/api.rs and the tables of src/resources");
}

#[test]
fn json_and_protobuf_yield_the_same_series() {
    let options = Options { pods: 400, seed: 3, epoch: 1_800_000_000, ..Options::default() };
    let mut with_objects = 0;
    for resource in registry() {
        let name = resource.name();
        let renderer = resource.renderer(&RenderOptions::default());
        let (mut from_protobuf, mut from_json) = (Rendered::default(), Rendered::default());
        let protobuf = objects(&options, name, false, 0);
        let json = objects(&options, name, true, 0);
        assert_eq!(protobuf.len(), json.len(), "{name}");
        with_objects += usize::from(!json.is_empty());
        for (protobuf, json) in protobuf.iter().zip(&json) {
            renderer.render(ObjectBytes::Protobuf(protobuf), &mut from_protobuf).unwrap();
            renderer.render(ObjectBytes::Json(json), &mut from_json).unwrap();
            let text = |rendered: &Rendered| String::from_utf8(rendered.lines.clone()).unwrap();
            assert_eq!(text(&from_protobuf), text(&from_json), "{name}");
            assert_eq!(from_protobuf.uid, from_json.uid);
            assert_eq!(from_protobuf.resource_version, from_json.resource_version);
        }
    }
    assert!(with_objects > 20, "{with_objects} resources have objects");
}
