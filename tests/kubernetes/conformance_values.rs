//! Recorded conversions that are visible only in a rendered object.

use kstatd::cache::Rendered;
use kstatd::resources::{ObjectBytes, RenderOptions, find};
use serde_json::{Value, json};

fn cases(text: &str) -> Vec<Value> {
    let data: Value = serde_json::from_str(text).unwrap();
    let cases = data["cases"].as_array().unwrap().clone();
    assert!(cases.len() > 20);
    cases
}

/// Returns the value of each family that has a line for the object, by family name.
fn values(resource: &str, object: &Value) -> std::collections::BTreeMap<String, String> {
    let renderer = find(resource).unwrap().renderer(&RenderOptions::default());
    let mut rendered = Rendered::default();
    let object = serde_json::to_vec(object).unwrap();
    renderer.render(ObjectBytes::Json(&object), &mut rendered).unwrap();
    let text = String::from_utf8(rendered.lines.clone()).unwrap();
    let mut start = 0;
    let mut values = std::collections::BTreeMap::new();
    for (family, &end) in renderer.schema().families.iter().zip(&rendered.ends) {
        if let Some(line) = text[start..end as usize].lines().next() {
            let value = line.rsplit(' ').next().unwrap();
            values.insert(family.name.clone(), value.to_owned());
        }
        start = end as usize;
    }
    values
}

#[test]
fn resource_versions() {
    for case in cases(include_str!("../conformance/ksm/resource_versions.json")) {
        let object = json!({"metadata": {"resourceVersion": case["resource_version"]}});
        let values = values("configmaps", &object);
        let version = values.get("kube_configmap_metadata_resource_version");
        assert_eq!(version.map(String::as_str), case["rendered"].as_str(), "{case}");
        assert_eq!(version.is_none(), case["omitted"] == true, "{case}");
    }
}

#[test]
fn rolling_update_bounds() {
    for case in cases(include_str!("../conformance/ksm/int_or_percent.json")) {
        let bound = &case["value"];
        let strategy = json!({"rollingUpdate": {"maxUnavailable": bound, "maxSurge": bound}});
        let object = json!({"spec": {"replicas": case["total"], "strategy": strategy}});
        let values = values("deployments", &object);
        for name in ["max_unavailable", "max_surge"] {
            let value = values.get(&format!("kube_deployment_spec_strategy_rollingupdate_{name}"));
            let value = value.map(|value| value.parse::<f64>().unwrap());
            assert_eq!(value, case[name].as_f64(), "{name} of {case}");
            assert_eq!(value.is_none(), case["omitted"] == true, "{name} of {case}");
        }
    }
}
