//! `kstatd custom draft`: drafts a custom resource configuration from custom resource definitions.
//!
//! [`kind`] reads a definition and [`mod@column`] its printer columns, [`fields`] finds the values in the schema, [`metrics`] chooses
//! a metric for each, and [`yaml`] writes the file. Depth, fields and metrics are bounded, whatever the schema is.

mod column;
mod fields;
mod kind;
mod metrics;
mod names;
mod yaml;

use std::collections::BTreeMap;

use super::manifests::Manifest;
use crate::tools::Result;
use kind::CustomKind;

/// The maximum size of an input file in bytes.
pub const MAX_FILE: u64 = 64 << 20;

/// Drafts a configuration with an entry for each definition.
///
/// # Errors
///
/// The first object that is not a usable definition, or no definition at all.
pub fn draft(manifests: &[Manifest]) -> Result<String> {
    let mut seen: BTreeMap<(String, String), &str> = BTreeMap::new();
    let mut kinds = Vec::new();
    for manifest in manifests {
        let found = CustomKind::read(manifest)?;
        let key = (found.definition.group.clone(), found.definition.kind.clone());
        if let Some(first) = seen.insert(key.clone(), &manifest.place) {
            let (place, (group, kind)) = (&manifest.place, key);
            return Err(format!("{place}: {kind} of {group} is already defined in {first}").into());
        }
        kinds.push(found);
    }
    if kinds.is_empty() {
        return Err("the input has no CustomResourceDefinition".into());
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for kind in &kinds {
        *names.entry(names::word(&kind.definition.kind)).or_default() += 1;
    }
    let is_repeated = |kind: &CustomKind<'_>| names[&names::word(&kind.definition.kind)] > 1;
    let drafts: Vec<metrics::EntryDraft<'_>> =
        kinds.iter().map(|kind| metrics::draft(kind, is_repeated(kind))).collect();
    Ok(yaml::write(&drafts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::custom;
    use crate::tools::manifests;

    fn drafted(text: &str) -> Result<String, String> {
        let mut parsed = Vec::new();
        manifests::parse("f.yaml", text, &mut parsed).map_err(|error| error.to_string())?;
        draft(&parsed).map_err(|error| error.to_string())
    }

    fn definition(group: &str, schema: &str, more: &str) -> String {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: ws.{group}}}\n\
             spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: ws, kind: W}}\n  versions:\n  \
             - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}{more}}}\n"
        )
    }

    /// Loads the draft, which must be without problems, and returns the names and types of its metrics.
    fn metrics_of(text: &str) -> Vec<String> {
        let draft = drafted(text).expect(text);
        let loaded = custom::load(&draft);
        let mut problems = loaded.problems;
        problems.extend(loaded.config.problems());
        assert!(problems.is_empty(), "{problems:?}\n{draft}");
        loaded.config.compile().expect("compiles");
        let metrics = loaded.config.entries.iter().flat_map(|entry| &entry.metrics);
        metrics.map(|metric| format!("{} {}", metric.name, metric.kind)).collect()
    }

    #[test]
    fn errors_name_the_place() {
        let crd = definition("a.io", "{type: object}", "");
        for (text, want) in [
            (String::new(), "the input has no CustomResourceDefinition"),
            (
                format!("{crd}---\n{{apiVersion: apps/v1, kind: Deployment}}\n"),
                "f.yaml, document 2: Deployment of apps/v1 is not a CustomResourceDefinition of apiextensions.k8s.io/v1",
            ),
            (
                crd.replace("extensions.k8s.io/v1", "extensions.k8s.io/v1beta1"),
                "f.yaml, document 1: CustomResourceDefinition of apiextensions.k8s.io/v1beta1 is not",
            ),
            (
                crd.replace("served: true", "served: false"),
                "f.yaml, document 1: CustomResourceDefinition ws.a.io: spec.versions has no served version",
            ),
            (
                format!("{crd}---\n{crd}"),
                "f.yaml, document 2: W of a.io is already defined in f.yaml, document 1",
            ),
            (crd.replace("group: a.io", "group: [a]"), "f.yaml, document 1"),
            ("apiVersion: v1\nkind: [\n".to_owned(), "f.yaml, document 1"),
        ] {
            let error = drafted(&text).expect_err(&text);
            assert!(error.contains(want), "{want:?} in {error:?}");
        }
    }

    #[test]
    fn values_become_metrics_of_their_type() {
        let schema = "{type: object, properties: {\
            spec: {type: object, properties: {replicas: {type: integer}, paused: {type: boolean}, mode: {type: string, enum: [A, B, '']},\
              targetRef: {type: object, properties: {kind: {type: string}, name: {type: string}, uid: {type: string}}},\
              note: {type: string}, '[odd]': {type: integer},\
              limits: {type: object, additionalProperties: {x-kubernetes-int-or-string: true, pattern: '^[numkMGTPE]$'}}}},\
            status: {type: object, properties: {replicas: {type: integer}, readyAt: {type: string, format: date-time}, observedGeneration: {type: integer},\
              conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}},\
              parts: {type: array, items: {type: object, required: [name], properties: {name: {type: string}, count: {type: integer}, phase: {type: string, enum: [Up, Down]}}}}}}}}";
        assert_eq!(
            metrics_of(&definition("a.io", schema, "")),
            [
                "w_info Info",
                "w_created Gauge",
                "w_metadata_generation Gauge",
                "w_status_condition Gauge",
                "w_status_observed_generation Gauge",
                "w_status_parts_count Gauge",
                "w_status_parts_phase StateSet",
                "w_status_ready_timestamp_seconds Gauge",
                "w_status_replicas Gauge",
                "w_spec_limits Gauge",
                "w_spec_mode StateSet",
                "w_spec_paused Gauge",
                "w_spec_replicas Gauge",
            ]
        );
        let draft = drafted(&definition("a.io", schema, "")).expect("draft");
        for part in [
            "gauge: {path: [], valueFrom: [paused]}",
            // Both spec and status have it.
            "gauge: {path: [status], valueFrom: [replicas]}",
            "gauge: {path: [spec, limits], labelFromKey: resource}",
            "list: [A, B]",
            "target_kind: [spec, targetRef, kind]",
            "# .status.readyAt: time",
        ] {
            assert!(draft.contains(part), "{part} in {draft}");
        }
        assert!(!draft.contains("uid") && !draft.contains("note"), "{draft}");
    }

    #[test]
    fn columns_and_scale_choose_metrics() {
        let more = ", subresources: {scale: {specReplicasPath: .spec.a.b.c.size, statusReplicasPath: .status.size}}, \
            additionalPrinterColumns: [{name: Zone, type: string, jsonPath: '.metadata.labels.example\\.io/zone'},\
            {name: \"Up\\nTime\", type: date, jsonPath: .status.since}, {name: Count, type: integer, jsonPath: .status.n},\
            {name: Text, type: string, jsonPath: '.status.conditions[?(@.type==\"Ready\")].message'},\
            {name: All, type: string, jsonPath: '.status.items[*].x'}]";
        let text = definition("a.io", "{x-kubernetes-preserve-unknown-fields: true}", more);
        assert_eq!(
            metrics_of(&text),
            [
                "w_info Info",
                "w_created Gauge",
                "w_status_since_timestamp_seconds Gauge",
                "w_status_n Gauge",
                "w_spec_a_b_c_size Gauge",
                "w_status_size Gauge",
            ]
        );
        let draft = drafted(&text).expect("draft");
        for part in [
            "zone: [metadata, labels, example.io/zone]",
            "# .status.since: time, column \"Up Time\"",
            "# Left out: column \"All\"",
            "# Left out: column \"Text\"",
        ] {
            assert!(draft.contains(part), "{part} in {draft}");
        }
    }

    #[test]
    fn kinds_of_one_name_have_prefixes() {
        let schema = |kind| {
            format!(
                "{{type: object, properties: {{spec: {{type: object, properties: {{x: {{type: {kind}, enum: [a]}}}}}}}}}}"
            )
        };
        let text = format!(
            "{}---\n{}",
            definition("a.io", &schema("string"), ""),
            definition("b.io", &schema("integer"), "")
        );
        metrics_of(&text);
        let draft = drafted(&text).expect("draft");
        assert!(draft.contains("metricNamePrefix: kube_customresource_a_io\n"), "{draft}");
        assert!(draft.contains("metricNamePrefix: kube_customresource_b_io\n"), "{draft}");
    }

    #[test]
    fn hostile_schemas_are_bounded() {
        let wide: String = (0..30_000).map(|n| format!("f{n}: {{type: integer}},")).collect();
        let wide = format!(
            "{{type: object, properties: {{spec: {{type: object, properties: {{{wide}}}}}}}}}"
        );
        let draft = drafted(&definition("a.io", &wide, "")).expect("draft");
        assert!(draft.len() < 30_000 && draft.contains("# Left out: "), "{}", draft.len());
        let deep =
            format!("{}{{type: integer}}{}", "{type: array, items: ".repeat(20), "}".repeat(20));
        let loops = format!(
            "{{type: object, properties: {{status: {{$ref: '#/properties/status', type: object, properties: {{status: {{$ref: '#'}}, deep: {deep}}}}}}}}}"
        );
        assert_eq!(metrics_of(&definition("a.io", &loops, "")), ["w_info Info", "w_created Gauge"]);
        let states: String = (0..500).map(|n| format!("s{n},")).collect();
        let states = format!(
            "{{type: object, properties: {{status: {{type: object, properties: {{phase: {{type: string, enum: [{states}]}}, 'a: b\\n': {{type: integer}}}}}}}}}}"
        );
        let draft = drafted(&definition("a.io", &states.replace('\'', "\""), "")).expect("draft");
        assert!(!draft.contains("StateSet") && draft.contains("phase: [status, phase]"), "{draft}");
        assert!(draft.contains("valueFrom: [\"a: b\\n\"]"), "{draft}");
    }
}
